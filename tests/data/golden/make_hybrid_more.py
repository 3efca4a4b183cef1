#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes further tiny hybrids of the Qwen3.5 kind (see make_hybrid.py for the first three), grouped ternary weights as f16 values,
and the logits that transformers computes for them in float32:

  qwen35-v3    three value heads for each of two key heads, values wider than keys, a prompt of 300 tokens
  qwen35-wide  attention heads of 256 with 64 rotated dimensions, eight layers, keys wider than values, tied, 300 tokens
  qwen35-odd   key heads of 40, value heads of 24, three taps, an order of layers of its own, nested
  qwen35-mtp   with a layer that drafts tokens (mtp.*). transformers leaves it out; here its parts are put together as
               tests/golden/hybrid_ref.py says: "draft" are the logits of every pair, "draft_zero_pair" the same with a pair of
               token 0 and zeros in front, "chain" tokens and logits of three guesses behind the model's own next token

Runs where torch and transformers are installed. usage: make_hybrid_more.py OUTDIR
"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm

GROUP = 128
out = sys.argv[1]
rng = np.random.default_rng(11)
torch.manual_seed(11)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
dev = "cuda" if torch.cuda.is_available() else "cpu"


def grouped(rows, cols):
    g = (torch.randn(rows, cols) * 0.08).reshape(rows, cols // GROUP, GROUP)
    d = g.abs().mean(-1, keepdim=True).half().float()
    return ((g / d).round().clamp(-1, 1) * d).reshape(rows, cols).half()


def value(name, shape):
    r = torch.randn(shape)
    if "linear_attn.norm" in name:
        return (1 + 0.2 * r).bfloat16()
    if "norm" in name:
        return (0.2 * r).bfloat16()
    if "A_log" in name:
        return torch.log(torch.rand(shape) * 4 + 0.5)
    if "dt_bias" in name:
        return 0.5 * r
    if "conv1d" in name:
        return (0.4 * r).bfloat16()
    if "in_proj_a" in name or "in_proj_b" in name:
        return (0.05 * r).bfloat16()
    if "embed" in name or "lm_head" in name:
        return (0.5 * r).bfloat16()
    return grouped(*shape)


def mtp_shapes(c):
    d, heads, kv = c.hidden_size, c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    layer = {"input_layernorm": (d,), "post_attention_layernorm": (d,), "self_attn.q_proj": (2 * heads, d),
             "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d), "self_attn.o_proj": (d, heads),
             "self_attn.q_norm": (c.head_dim,), "self_attn.k_norm": (c.head_dim,), "mlp.gate_proj": (c.intermediate_size, d),
             "mlp.up_proj": (c.intermediate_size, d), "mlp.down_proj": (d, c.intermediate_size)}
    own = {"fc": (d, 2 * d), "pre_fc_norm_embedding": (d,), "pre_fc_norm_hidden": (d,), "norm": (d,)}
    return {f"mtp.{k}.weight": v for k, v in own.items()} | {f"mtp.layers.0.{k}.weight": v for k, v in layer.items()}


class Draft:
    """The draft head, out of a model of one layer that takes embeddings."""

    def __init__(self, c, sd, trunk):
        own = c.to_dict() | dict(num_hidden_layers=1, layer_types=["full_attention"])
        self.trunk, self.m = trunk, Qwen3_5ForCausalLM(Qwen3_5TextConfig(**own)).float().eval()
        full = {"model.layers.0." + k[13:]: v.float() for k, v in sd.items() if k.startswith("mtp.layers.0.")}
        full |= {"model.norm.weight": sd["mtp.norm.weight"].float(), "lm_head.weight": trunk.lm_head.weight.data.cpu(),
                 "model.embed_tokens.weight": trunk.model.embed_tokens.weight.data.cpu()}
        miss = self.m.load_state_dict(full, strict=False)
        assert not miss.unexpected_keys and not miss.missing_keys, miss
        self.m = self.m.to(dev)
        self.norms = {k: Qwen3_5RMSNorm(c.hidden_size, eps=c.rms_norm_eps).to(dev) for k in ("embedding", "hidden")}
        for k, norm in self.norms.items():
            norm.weight.data = sd[f"mtp.pre_fc_norm_{k}.weight"].float().to(dev)
        self.fc = sd["mtp.fc.weight"].float().to(dev)

    def pairs(self, ids, h):
        """logits and hidden states"""
        e = self.norms["embedding"](self.trunk.model.embed_tokens(ids.to(dev)))
        x = torch.cat([e, self.norms["hidden"](h)], -1) @ self.fc.T
        h = self.m.model(inputs_embeds=x[None]).last_hidden_state[0]
        return self.m.lm_head(h), h

    def records(self, ids, f):
        def put(lg):
            lg = lg.float().cpu().numpy()
            f.write(lg.astype("<f4").tobytes())
            return dict(offset=f.tell() - lg.nbytes, shape=list(lg.shape))

        h = self.trunk.model(ids[None].to(dev)).last_hidden_state[0]
        r = dict(draft=put(self.pairs(ids[1:], h[:-1])[0]),
                 draft_zero_pair=put(self.pairs(ids, torch.cat([torch.zeros_like(h[:1]), h[:-1]]))[0][1:]))
        tokens, rows = [int(self.trunk.lm_head(h[-1]).argmax())], []
        for _ in range(3):
            lg, after = self.pairs(torch.cat([ids[1:], torch.tensor(tokens)]), h)
            rows.append(lg[-1])
            tokens.append(int(lg[-1].argmax()))
            h = torch.cat([h, after[-1:]])
        return r | dict(chain=put(torch.stack(rows)) | dict(tokens=tokens))


def make(kind, lengths, nested=False, mtp=False, **options):
    c = Qwen3_5TextConfig(**(dict(
        hidden_size=128, intermediate_size=256, num_attention_heads=2, num_key_value_heads=1, head_dim=64, rms_norm_eps=1e-6,
        max_position_embeddings=1024, rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25,
                                                           mrope_section=[3, 3, 2], mrope_interleaved=True)) | options))
    folder = os.path.join(out, kind)
    os.makedirs(folder, exist_ok=True)
    m = Qwen3_5ForCausalLM(c).float().eval()
    tied = c.tie_word_embeddings
    sd = {k: value(k, v.shape) for k, v in m.state_dict().items() if not (tied and k == "lm_head.weight")}
    full = {k: v.float() for k, v in sd.items()}
    if tied:
        full["lm_head.weight"] = full["model.embed_tokens.weight"]
    miss = m.load_state_dict(full, strict=False)
    assert not miss.unexpected_keys and not miss.missing_keys, miss
    m = m.to(dev)
    if mtp:
        sd |= {k: value(k, shape) for k, shape in mtp_shapes(c).items()}
    j = c.to_dict()
    j.pop("transformers_version", None)
    j |= dict(architectures=["Qwen3_5ForCausalLM"], dtype="bfloat16", mtp_num_hidden_layers=int(mtp))
    if nested:
        j = dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", tie_word_embeddings=tied, text_config=j,
                 dtype="bfloat16")
        sd = {("model.language_model." + k[6:] if k.startswith("model.") else k): v for k, v in sd.items()}
    json.dump(j, open(os.path.join(folder, "config.json"), "w"), indent=1, sort_keys=True, default=str)
    save_file({k: v.contiguous() for k, v in sd.items()}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    records = []
    with open(os.path.join(folder, "golden.bin"), "wb") as f, torch.no_grad():
        for n in lengths:
            ids = torch.tensor(rng.integers(0, c.vocab_size, n))
            lg = m(ids[None].to(dev)).logits[0].float().cpu().numpy()
            records.append(dict(ids=ids.tolist(), offset=f.tell(), shape=list(lg.shape)))
            f.write(lg.astype("<f4").tobytes())
            if mtp:
                records[-1] |= Draft(c, sd, m).records(ids, f)
            past, steps = None, []
            for t in ids:
                r = m(t.reshape(1, 1).to(dev), past_key_values=past, use_cache=True)
                past = r.past_key_values
                steps.append(r.logits[0, -1].float().cpu().numpy())
            print(kind, n, "std", lg.std(), "token by token:", np.abs(np.array(steps) - lg).max() / lg.std(), flush=True)
    json.dump(dict(dtype="float32-le", made_with=f"transformers {transformers.__version__}, float32", group=GROUP,
                   sequences=records), open(os.path.join(folder, "golden.json"), "w"))


FULL, LINEAR = "full_attention", "linear_attention"
make("qwen35-v3", (1, 12, 300), vocab_size=160, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=6,
     linear_key_head_dim=32, linear_value_head_dim=64)
make("qwen35-wide", (2, 300), vocab_size=152, num_hidden_layers=8, head_dim=256, linear_num_key_heads=2, linear_num_value_heads=4,
     linear_key_head_dim=64, linear_value_head_dim=32, tie_word_embeddings=True,
     rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10],
                          mrope_interleaved=True))
make("qwen35-odd", (3, 9, 100), nested=True, vocab_size=168, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR],
     intermediate_size=128, linear_num_key_heads=8, linear_num_value_heads=16, linear_key_head_dim=40, linear_value_head_dim=24,
     linear_conv_kernel_dim=3)
make("qwen35-mtp", (2, 17, 90), mtp=True, vocab_size=160, num_hidden_layers=4, num_key_value_heads=2, linear_num_key_heads=2,
     linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32)
