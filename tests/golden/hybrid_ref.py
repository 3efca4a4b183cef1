# SPDX-License-Identifier: Apache-2.0
"""Hybrids of the Qwen3.5 kind in plain numpy and double precision, written after transformers' modeling_qwen3_5: gated delta
nets token by token, gated attention, and the layer that drafts tokens (`mtp.*`), which transformers leaves out. Only the
angles of rotations are float32, because the models were trained with them.

The draft head, as vLLM (qwen3_5_mtp) and llama.cpp (qwen35, graph_mtp) compute it:

  e  = norm(embedding of token i + 1; pre_fc_norm_embedding)
  h  = norm(hidden state of token i; pre_fc_norm_hidden), the hidden state taken AFTER the model's last norm, as both do
  x  = fc [e, h], the embedding first
  x  = a layer with full attention over the pairs before, keys of its own
  x  = norm(x; mtp.norm); logits = head x: they guess token i + 2

To guess further tokens, x after mtp.norm takes the place of the hidden state, and the guess that of the token. All norms but
those inside delta nets multiply by 1 + weight.

Pair i has position i here, as in vLLM; llama.cpp counts i + 1, and since rotations are relative this is the same. But llama.cpp
also has a pair in front, of token 0 and a hidden state of zeros, which adds a key that training did not have (`zero_pair`).
"""
import glob
import json
import os

import numpy as np
from bitnet_ref import read_safetensors


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Hybrid:
    """`tensors`: names as in a checkpoint whose language model is not nested."""

    def __init__(self, config, tensors):
        self.c = config.get("text_config", config)
        self.tied = self.c.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
        self.t = {k.replace("model.language_model.", "model."): np.asarray(v, np.float64) for k, v in tensors.items()}
        self.adapters = []  # (an Adapter of lora.py, its scale)
        rope = self.c["rope_parameters"]
        self.rope_dim = int(self.c["head_dim"] * rope.get("partial_rotary_factor", 1.0))
        self.theta = rope["rope_theta"]

    @staticmethod
    def read(folder):
        tensors = {}
        for path in glob.glob(os.path.join(folder, "*.safetensors")):
            tensors.update(read_safetensors(path))
        return Hybrid(json.load(open(os.path.join(folder, "config.json"))), tensors)

    def norm(self, x, name, plus=1.0):
        r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"])
        return x * r * (plus + self.t[name + ".weight"])

    def linear(self, x, name):
        return x @ self.t[name + ".weight"].T + sum(scale * a.product(x, name) for a, scale in self.adapters)

    def rope(self, x, positions):
        d = self.rope_dim
        freq = np.float32(1) / np.power(np.float32(self.theta), np.arange(0, d, 2).astype(np.float32) / np.float32(d))
        angle = (positions.astype(np.float32)[:, None] * freq[None]).astype(np.float64)[:, None, :]
        a, b, rest = x[..., : d // 2], x[..., d // 2 : d], x[..., d:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), rest], -1)

    def attention(self, x, p, keys=None):
        """keys: a list that gathers keys and values of earlier calls."""
        c, n = self.c, len(x)
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        before = len(keys[0]) if keys else 0
        positions = np.arange(before, before + n)
        q, gate = np.split(self.linear(x, p + "q_proj").reshape(n, heads, 2 * dim), 2, -1)
        k = self.linear(x, p + "k_proj").reshape(n, kv, dim)
        v = self.linear(x, p + "v_proj").reshape(n, kv, dim)
        q, k = self.rope(self.norm(q, p + "q_norm"), positions), self.rope(self.norm(k, p + "k_norm"), positions)
        if keys:
            k, v = np.concatenate([keys[0], k]), np.concatenate([keys[1], v])
        if keys is not None:
            keys[:] = [k, v]
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim)
        s[:, np.arange(len(k))[None, :] > positions[:, None]] = -np.inf
        e = np.exp(s - s.max(-1, keepdims=True))
        a = np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v)
        return self.linear((a * sigmoid(gate)).reshape(n, heads * dim), p + "o_proj")

    def delta(self, x, p):
        c, n = self.c, len(x)
        kh, vh = c["linear_num_key_heads"], c["linear_num_value_heads"]
        kd, vd = c["linear_key_head_dim"], c["linear_value_head_dim"]
        taps = c["linear_conv_kernel_dim"]
        raw = np.concatenate([np.zeros((taps - 1, 2 * kh * kd + vh * vd)), self.linear(x, p + "in_proj_qkv")])
        w = self.t[p + "conv1d.weight"].reshape(-1, taps)
        mixed = silu(sum(raw[j : j + n] * w[:, j] for j in range(taps)))
        q, k, v = np.split(mixed, [kh * kd, 2 * kh * kd], -1)

        def unit(y):
            y = y.reshape(n, kh, kd)
            y = y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6)
            return np.repeat(y, vh // kh, 1)  # value heads of a key head stand together

        q, k, v = unit(q) / np.sqrt(kd), unit(k), v.reshape(n, vh, vd)
        z = self.linear(x, p + "in_proj_z").reshape(n, vh, vd)
        beta = sigmoid(self.linear(x, p + "in_proj_b"))
        a = self.linear(x, p + "in_proj_a") + self.t[p + "dt_bias"]
        decay = np.exp(-np.exp(self.t[p + "A_log"]) * np.logaddexp(0, a))
        state, out = np.zeros((vh, kd, vd)), np.empty((n, vh, vd))
        for t in range(n):
            state *= decay[t][:, None, None]
            d = (v[t] - np.einsum("hkv,hk->hv", state, k[t])) * beta[t][:, None]
            state += k[t][:, :, None] * d[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", state, q[t])
        y = self.norm(out, p + "norm", 0.0) * silu(z)
        return self.linear(y.reshape(n, vh * vd), p + "out_proj")

    def feed_forward(self, x, p):
        h = self.norm(x, p + "post_attention_layernorm")
        return self.linear(silu(self.linear(h, p + "mlp.gate_proj")) * self.linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")

    def hidden(self, ids):
        """[n][hidden], after the last norm"""
        x = self.t["model.embed_tokens.weight"][ids] + sum(scale * a.embedding(ids) for a, scale in self.adapters)
        for i, kind in enumerate(self.c["layer_types"]):
            p = f"model.layers.{i}."
            h = self.norm(x, p + "input_layernorm")
            x = x + (self.delta(h, p + "linear_attn.") if kind == "linear_attention" else self.attention(h, p + "self_attn."))
            x = x + self.feed_forward(x, p)
        return self.norm(x, "model.norm")

    def head(self, h):
        logits = h @ self.t["model.embed_tokens.weight" if self.tied else "lm_head.weight"].T
        return logits + sum(scale * a.product(h, "lm_head") for a, scale in self.adapters)

    def logits(self, ids):
        return self.head(self.hidden(ids))

    def draft_step(self, ids, h, keys):
        """Pairs of tokens and hidden states behind those in `keys`: hidden states after mtp.norm."""
        e = self.norm(self.t["model.embed_tokens.weight"][ids], "mtp.pre_fc_norm_embedding")
        x = self.linear(np.concatenate([e, self.norm(h, "mtp.pre_fc_norm_hidden")], -1), "mtp.fc")
        p = "mtp.layers.0."
        x = x + self.attention(self.norm(x, p + "input_layernorm"), p + "self_attn.", keys)
        return self.norm(x + self.feed_forward(x, p), "mtp.norm")

    def draft_logits(self, ids, zero_pair=False):
        """[n - 1][vocab]: row i guesses token i + 2 from tokens 0 .. i + 1."""
        h, ids = self.hidden(ids[:-1]), np.asarray(ids)
        if not zero_pair:
            return self.head(self.draft_step(ids[1:], h, []))
        return self.head(self.draft_step(ids, np.concatenate([np.zeros_like(h[:1]), h]), []))[1:]

    def draft(self, ids, n):
        """The n tokens guessed behind ids and the model's own choice of the next one, and the logits of the guesses."""
        h, keys = self.hidden(ids), []
        token = int(self.head(h[-1]).argmax())
        h = self.draft_step(np.asarray([*ids[1:], token]), h, keys)
        tokens, rows = [token], []
        for _ in range(n):
            rows.append(self.head(h[-1]))
            tokens.append(int(rows[-1].argmax()))
            h = self.draft_step(np.asarray(tokens[-1:]), h[-1:], keys)
        return tokens, np.array(rows)
