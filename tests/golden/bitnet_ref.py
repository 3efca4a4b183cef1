# SPDX-License-Identifier: Apache-2.0
"""The model in plain numpy and double precision: the executable specification.

Reads a Hugging Face folder (BitNet, 1bitLLM or Llama architecture with int8 activations, master or packed weights; Qwen3 with
plain values and float activations) and computes logits, if wanted with adapters (lora.py), whose inputs are not rounded. Every int8
rounding is recorded with its distance from a tie (a value that lies half-way between two integers), and any of them
can be flipped: so a difference between two implementations can be traced to the ties that cause it.
"""
import json
import os
import struct

import numpy as np

DTYPES = {"F32": "<f4", "F16": "<f2", "U8": "u1"}


def read_safetensors(path):
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    out = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        data = raw[8 + n + begin : 8 + n + end]
        if t["dtype"] == "BF16":
            values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data, DTYPES[t["dtype"]])
        out[name] = values.reshape(t["shape"])
    return out


def unpack(packed, rows):
    """Four quarters of the rows in one byte, two bits each, code minus one."""
    quarters = [((packed >> (2 * i)) & 3).astype(np.int8) - 1 for i in range(4)]
    return np.concatenate(quarters)[:rows]


class Model:
    def __init__(self, folder):
        self.c = json.load(open(os.path.join(folder, "config.json")))
        self.t = read_safetensors(os.path.join(folder, "model.safetensors"))
        one_bit_llm = self.c["architectures"] == ["BitnetForCausalLM"]  # master weights, its own names of two norms
        q = self.c.get("quantization_config", {})
        self.online = one_bit_llm or q.get("quantization_mode") == "online"
        self.multiply = q.get("linear_class") == "autobitlinear"
        self.floats = not q and not one_bit_llm
        self.adapters = []  # (an Adapter of lora.py, its scale)
        self.bitnet = one_bit_llm or self.c["model_type"] == "bitnet"
        self.attn_norm = "self_attn.inner_attn_ln" if one_bit_llm else "self_attn.attn_sub_norm"
        self.ffn_norm = "mlp.ffn_layernorm" if one_bit_llm else "mlp.ffn_sub_norm"
        self.cache = {}

    def weight(self, name, rows):
        """(ternary matrix, factor)"""
        if name not in self.cache:
            w = self.t[name + ".weight"]
            if self.floats:
                trits, scale = w, 1.0
            elif self.online:
                w = w.astype(np.float32)
                s = np.float32(1) / np.maximum(np.float32(np.abs(w.astype(np.float64)).mean()), np.float32(1e-5))
                trits = np.clip(np.rint(w * s), -1, 1)
                scale = 1.0 / float(s)
            else:
                trits = unpack(w, rows)
                scale = float(self.t[name + ".weight_scale"][0])
                if not self.multiply:
                    scale = 1.0 / scale
            self.cache[name] = trits.astype(np.float64), scale
        return self.cache[name]

    def norm(self, x, name):
        r = 1.0 / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"])
        return x * r * self.t[name + ".weight"].astype(np.float64)

    def quant(self, x, where):
        """int8 codes, their factor, and what they were made of; near[where] gets the distances from a tie."""
        if self.floats:
            return x, 1.0, x
        s = 127.0 / np.maximum(np.abs(x).max(-1, keepdims=True), 1e-5)
        v = x * s
        q = np.clip(np.rint(v), -128, 127)
        distance = np.abs(v - np.floor(v) - 0.5)
        self.near[where] = distance
        for pos, index in self.flips.get(where, ()):
            q[pos, index] = np.floor(v[pos, index]) + np.ceil(v[pos, index]) - q[pos, index]
        return q, 1.0 / s, x

    def linear(self, quantised, name, rows):
        q, inv, x = quantised
        w, scale = self.weight(name, rows)
        return (q @ w.T) * inv * scale + self.adapted(x, name)

    def adapted(self, x, name):
        """What adapters add to the output of a module."""
        return sum(scale * a.product(x, name) for a, scale in self.adapters)

    def rope(self, x, theta):
        n, _, d = x.shape
        freq = np.float32(1) / np.power(np.float32(theta), np.arange(0, d, 2).astype(np.float32) / np.float32(d))
        angle = (np.arange(n, dtype=np.float32)[:, None] * freq[None]).astype(np.float64)[:, None, :]
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    def logits(self, ids, flips=None):
        """[n][vocab] in double. flips: {where: [(position, index), ...]}."""
        c, self.near, self.flips = self.c, {}, flips or {}
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        n = len(ids)
        embed = self.t["model.embed_tokens.weight"].astype(np.float64)
        x = embed[ids] + sum(scale * a.embedding(ids) for a, scale in self.adapters)
        mask = np.triu(np.full((n, n), -np.inf), 1)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = self.quant(self.norm(x, p + "input_layernorm"), (i, "qkv"))
            q = self.linear(h, p + "self_attn.q_proj", heads * dim).reshape(n, heads, dim)
            k = self.linear(h, p + "self_attn.k_proj", kv * dim).reshape(n, kv, dim)
            v = self.linear(h, p + "self_attn.v_proj", kv * dim).reshape(n, kv, dim)
            if p + "self_attn.q_norm.weight" in self.t:
                q, k = self.norm(q, p + "self_attn.q_norm"), self.norm(k, p + "self_attn.k_norm")
            q, k = self.rope(q, c["rope_theta"]), self.rope(k, c["rope_theta"])
            k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
            s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim) + mask
            e = np.exp(s - s.max(-1, keepdims=True))
            a = np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v).reshape(n, heads * dim)
            if self.bitnet:
                a = self.norm(a, p + self.attn_norm)
            x = x + self.linear(self.quant(a, (i, "o")), p + "self_attn.o_proj", c["hidden_size"])
            h = self.quant(self.norm(x, p + "post_attention_layernorm"), (i, "gate_up"))
            g = self.linear(h, p + "mlp.gate_proj", c["intermediate_size"])
            u = self.linear(h, p + "mlp.up_proj", c["intermediate_size"])
            f = np.maximum(g, 0) ** 2 * u if c["hidden_act"] == "relu2" else g / (1 + np.exp(-g)) * u
            if self.bitnet:
                f = self.norm(f, p + self.ffn_norm)
            x = x + self.linear(self.quant(f, (i, "down")), p + "mlp.down_proj", c["hidden_size"])
        head = embed if c["tie_word_embeddings"] else self.t["lm_head.weight"].astype(np.float64)
        x = self.norm(x, "model.norm")
        return x @ head.T + self.adapted(x, "lm_head")
