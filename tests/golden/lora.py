# SPDX-License-Identifier: Apache-2.0
"""Adapters as PEFT has them, and their files: a folder as PEFT saves it, and a GGUF as llama.cpp wants it, by writers that
share nothing with the library.

A pair (A [rank][in], B [out][rank]) stands beside a module, "model.layers.0.self_attn.q_proj"; the module's output gets
scale * B (A x), x being its input. Of the embedding A is [rank][vocabulary]: a column is what a token gives."""
import json
import math
import os
import struct

import numpy as np

import hybrid_gguf as gguf
from hybrid_gguf import F32, STR, Gguf, Tensor

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
DELTA = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.in_proj_a", "linear_attn.in_proj_b",
         "linear_attn.out_proj")
FEED_FORWARD = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
DTYPES = {"F32": "<f4", "F16": "<f2"}


def bf16(a):
    """As uint16, rounded down: which numbers they are does not matter here."""
    return (np.ascontiguousarray(a, "<f4").view("<u4") >> 16).astype("<u2")


def rounded(a, dtype):
    if dtype == "BF16":
        return (bf16(a).astype("<u4") << 16).view("<f4").astype(np.float64)
    return a.astype(DTYPES[dtype]).astype(np.float64)


def encoded(a, dtype):
    return bf16(a).tobytes() if dtype == "BF16" else a.astype(DTYPES[dtype]).tobytes()


def shapes(config, tied_head=True):
    """{module: (out, in)} of a language model; of the embedding (hidden size, vocabulary)."""
    c, out = gguf.text_config(config), {}
    hidden, heads, ff = c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["intermediate_size"]
    kv, gate = c["num_key_value_heads"] * c["head_dim"], 2 if "linear_num_value_heads" in c else 1
    sizes = dict(zip(ATTENTION, ((gate * heads, hidden), (kv, hidden), (kv, hidden), (hidden, heads))))
    sizes.update(zip(FEED_FORWARD, ((ff, hidden), (ff, hidden), (hidden, ff))))
    if gate == 2:
        vh = c["linear_num_value_heads"]
        values = vh * c["linear_value_head_dim"]
        mixed = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + values
        sizes.update(zip(DELTA, ((mixed, hidden), (values, hidden), (vh, hidden), (vh, hidden), (hidden, values))))
    kinds = c.get("layer_types") or ["full_attention"] * c["num_hidden_layers"]
    for i, kind in enumerate(kinds):
        mixer = DELTA if kind == "linear_attention" else ATTENTION
        out.update({f"model.layers.{i}.{name}": sizes[name] for name in (*mixer, *FEED_FORWARD)})
    out["model.embed_tokens"] = hidden, c["vocab_size"]
    out["lm_head"] = c["vocab_size"], hidden
    return out


class Adapter:
    """modules: those that get a pair; rank and alpha, by the end of a module's name if not the default."""

    def __init__(self, config, modules=None, rank=4, alpha=8.0, rs=False, dtype="F32", seed=1, ranks=None, alphas=None):
        self.config, self.rank, self.alpha, self.rs, self.dtype = config, rank, alpha, rs, dtype
        self.ranks, self.alphas, self.pairs = ranks or {}, alphas or {}, {}
        rng = np.random.default_rng(seed)
        for name, (n_out, n_in) in shapes(config).items():
            if modules is not None and not any(name.endswith(m) for m in modules):
                continue
            r = self.of(name, self.ranks, rank)
            a = rng.standard_normal((r, n_in)) * (0.5 if name.endswith("embed_tokens") else 1 / math.sqrt(n_in))
            b = rng.standard_normal((n_out, r)) * 0.2
            self.pairs[name] = rounded(a, dtype), rounded(b, dtype)

    @staticmethod
    def of(name, pattern, default):
        return next((v for k, v in pattern.items() if name == k or name.endswith("." + k)), default)

    def scale(self, name):
        r = self.of(name, self.ranks, self.rank)
        return self.of(name, self.alphas, self.alpha) / (math.sqrt(r) if self.rs else r)

    def product(self, x, name):
        if name not in self.pairs:
            return 0.0
        a, b = self.pairs[name]
        return self.scale(name) * ((x @ a.T) @ b.T)

    def embedding(self, ids):
        a, b = self.pairs.get("model.embed_tokens", (None, None))
        return 0.0 if a is None else self.scale("model.embed_tokens") * (a[:, ids].T @ b.T)

    # -------------------------------------------------------------- files

    def tensors(self):
        out = {}
        for name, (a, b) in self.pairs.items():
            table = name.endswith("embed_tokens")
            key = "base_model.model." + name
            out[key + (".lora_embedding_A" if table else ".lora_A.weight")] = a
            out[key + (".lora_embedding_B" if table else ".lora_B.weight")] = b
        return out

    def write_peft(self, folder, more=None, tensors=None, **changes):
        """changes: of adapter_config.json. tensors: instead of its own. more: further ones, {name: array}."""
        os.makedirs(folder, exist_ok=True)
        config = {"peft_type": "LORA", "base_model_name_or_path": "x", "r": self.rank, "lora_alpha": self.alpha, "bias": "none",
                  "use_rslora": self.rs, "use_dora": False, "rank_pattern": self.ranks, "alpha_pattern": self.alphas,
                  "modules_to_save": None, "fan_in_fan_out": False, "lora_dropout": 0.05, "init_lora_weights": True,
                  "target_modules": sorted({n.rsplit(".", 1)[-1] for n in self.pairs}), "task_type": "CAUSAL_LM", **changes}
        json.dump(config, open(os.path.join(folder, "adapter_config.json"), "w"))
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for name, a in {**(self.tensors() if tensors is None else tensors), **(more or {})}.items():
            raw = encoded(a, self.dtype)
            header[name] = {"dtype": self.dtype, "shape": a.shape, "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        head = json.dumps(header).encode()
        head += b" " * (-len(head) % 8)
        open(os.path.join(folder, "adapter_model.safetensors"), "wb").write(struct.pack("<Q", len(head)) + head + data)
        return folder

    def arrange(self, name, a, b, pairs_of_heads, tile_out):
        """In the order of a GGUF."""
        c = gguf.text_config(self.config)
        part = name.rsplit(".", 1)[-1]
        if pairs_of_heads and part in ("q_proj", "k_proj"):
            heads = c["num_attention_heads" if part == "q_proj" else "num_key_value_heads"]
            b = b.reshape(heads, 2, -1, b.shape[-1]).swapaxes(1, 2).reshape(b.shape)
        if "linear_attn" in name:
            vd = c["linear_value_head_dim"]
            first = {"in_proj_qkv": 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]}.get(part, 0)
            if part in ("in_proj_qkv", "in_proj_z"):
                b = gguf.tile(b, c, 0, vd, first)
            elif part in ("in_proj_a", "in_proj_b"):
                b = gguf.tile(b, c, 0, 1)
            elif tile_out:
                a = gguf.tile(a, c, 1, vd)
        return a, b

    def write_gguf(self, path, arch, pairs_of_heads=False, tile_out=True, change=None):
        """One rank and alpha for all. change: called with the file before it is written."""
        f, c = Gguf(), gguf.text_config(self.config)
        kind = {"F32": gguf.T_F32, "F16": gguf.T_F16, "BF16": 30}[self.dtype]
        f.set("general.type", STR, "adapter")
        f.set("general.architecture", STR, arch)
        f.set("adapter.type", STR, "lora")
        f.set("adapter.lora.alpha", F32, self.alpha)
        for name, (a, b) in self.pairs.items():
            a, b = self.arrange(name, a, b, pairs_of_heads, tile_out)
            base = gguf.gguf_name(name + ".weight", c["num_hidden_layers"])
            if name.endswith("embed_tokens"):
                a = a.T
            for end, x in ((".lora_a", a), (".lora_b", b)):
                f.tensors.append(Tensor(base + end, x.shape[::-1], kind, encoded(np.ascontiguousarray(x), self.dtype)))
        if change:
            change(f)
        open(path, "wb").write(f.bytes())
        return path
