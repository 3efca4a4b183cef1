#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny checkpoints of further families, and the logits that transformers computes for them in float32:

  llama-values-rope3  TriLM: a plain Llama whose f16 values are ternary, with a scale for each half of the rows; Llama-3.1
                      rotation scaling; two shards
  qwen3-values        Bonsai's architecture: norms of q and k, a head width that is not hidden / heads
  qwen3-yarn-options  YaRN with bounds that are not rounded, bounds and factor of their own
  llama-yarn-mscale   YaRN with a factor made of mscale and mscale_all_dim
  1bitllm-master      SiLU, heads of 100, f16 master weights, 1bitLLM's names and no quantization_config; the logits are those
                      of transformers' BitNet with the same weights

Runs where torch and transformers are installed. usage: make_families.py OUTDIR
"""
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, BitNetConfig, BitNetForCausalLM, LlamaConfig, LlamaForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

out = sys.argv[1]
torch.manual_seed(7)
rng = np.random.default_rng(7)
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
COMMON = dict(max_position_embeddings=512, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1)
ONLINE = dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="online", modules_to_not_convert=None)
# what transformers adds and published files do not have
NOISE = ("transformers_version", "_name_or_path", "id2label", "label2id", "return_dict", "output_attentions",
         "output_hidden_states", "problem_type", "chunk_size_feed_forward", "is_encoder_decoder")


def ternary(w, dtype):
    """Values in {-s, 0, +s} with s exact in dtype."""
    s = w.abs().mean().to(dtype).float()
    return (w / s).round().clamp(-1, 1) * s


def weights(model, how, dtype):
    sd = {}
    for k, v in model.state_dict().items():
        if any(k.endswith(n + ".weight") for n in PROJECTIONS):
            w = torch.randn_like(v) * 0.05
            if how == "values":
                w = ternary(w, dtype)
            if how == "values-rows":
                h = w.shape[0] // 2
                w = torch.cat([ternary(w[:h], dtype), ternary(w[h:], dtype)])
            sd[k] = w.to(dtype)
        elif "norm" in k:
            sd[k] = (1.0 + 0.2 * torch.randn_like(v)).to(dtype)
        elif "lm_head" not in k or not model.config.tie_word_embeddings:
            sd[k] = (torch.randn_like(v) * 0.5).to(dtype)
    return {k: v.contiguous() for k, v in sd.items()}


def save(folder, sd, shards):
    if shards == 1:
        save_file(sd, f"{folder}/model.safetensors", metadata={"format": "pt"})
        return
    os.remove(f"{folder}/model.safetensors")
    where = {}
    for i in range(shards):
        name = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {k: sd[k] for k in sorted(sd)[i::shards]}
        save_file(part, f"{folder}/{name}", metadata={"format": "pt"})
        where.update({k: name for k in part})
    json.dump({"metadata": {}, "weight_map": where}, open(f"{folder}/model.safetensors.index.json", "w"))


def golden(folder, model, vocab):
    records = []
    with open(f"{folder}/golden.bin", "wb") as f:
        for n in (1, 9, 70):
            ids = rng.integers(0, vocab, n)
            with torch.no_grad():
                logits = model(torch.tensor(ids)[None]).logits[0].float().numpy()
            records.append(dict(ids=[int(x) for x in ids], offset=f.tell(), shape=list(logits.shape)))
            f.write(logits.astype("<f4").tobytes())
    json.dump(dict(dtype="float32-le", made_with="transformers, float32, CPU", sequences=records),
              open(f"{folder}/golden.json", "w"))


def make(name, config, cls, how, dtype, shards=1, quantization=None, rename=None, finish=None):
    folder = f"{out}/{name}"
    os.makedirs(folder, exist_ok=True)
    sd = weights(cls(config).float(), how, dtype)
    j = {k: v for k, v in config.to_dict().items() if k not in NOISE}
    rope = j.pop("rope_parameters", None) or {}
    j.update(rope_theta=rope.pop("rope_theta"), architectures=[cls.__name__])
    if rope.get("rope_type", "default") != "default":
        j["rope_scaling"] = rope
    if quantization:
        j["quantization_config"] = quantization
    json.dump(j, open(f"{folder}/config.json", "w"), indent=1, sort_keys=True)
    save(folder, sd, 1)
    golden(folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map="cpu").eval(),
           config.vocab_size)
    if finish:
        json.dump(finish(j), open(f"{folder}/config.json", "w"), indent=1, sort_keys=True)
    save(folder, {rename(k) if rename else k: v for k, v in sd.items()}, shards)


def one_bit_llm_name(k):
    return k.replace("self_attn.attn_sub_norm", "self_attn.inner_attn_ln").replace("mlp.ffn_sub_norm", "mlp.ffn_layernorm")


def one_bit_llm_config(j):
    return {**{k: v for k, v in j.items() if k != "quantization_config"}, "architectures": ["BitnetForCausalLM"],
            "model_type": "llama"}


make("llama-values-rope3",
     LlamaConfig(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=32, vocab_size=200, tie_word_embeddings=False,
                 rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, **COMMON),
     LlamaForCausalLM, "values-rows", torch.float16, shards=2)
make("qwen3-values",
     Qwen3Config(hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=48, vocab_size=180, tie_word_embeddings=True,
                 rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, **COMMON),
     Qwen3ForCausalLM, "values", torch.bfloat16)
make("1bitllm-master",
     BitNetConfig(hidden_size=200, intermediate_size=270, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                  head_dim=100, vocab_size=150, hidden_act="silu", tie_word_embeddings=True,
                  rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **COMMON),
     BitNetForCausalLM, "master", torch.float16, quantization=ONLINE, rename=one_bit_llm_name, finish=one_bit_llm_config)
torch.manual_seed(11)
rng = np.random.default_rng(11)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
make("qwen3-yarn-options",
     Qwen3Config(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=48, vocab_size=180, tie_word_embeddings=True,
                 rope_parameters={**YARN, "beta_fast": 8.0, "beta_slow": 0.5, "truncate": False, "attention_factor": 1.25},
                 **COMMON),
     Qwen3ForCausalLM, "values", torch.bfloat16)
make("llama-yarn-mscale",
     LlamaConfig(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=32, vocab_size=200, tie_word_embeddings=True,
                 rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.4}, **COMMON),
     LlamaForCausalLM, "values", torch.float16)
