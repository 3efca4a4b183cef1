# SPDX-License-Identifier: Apache-2.0
"""GGUF files of hybrids, made from a checkpoint's tensors by a writer that shares nothing with the library: value heads tiled as
llama.cpp's converter does it, norms with their 1 added, ssm_a = -exp(A_log); and the rotated form ("prism.hadamard"), folded
into the weights in double precision."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e", "broken"))
from files import ARRAY, BOOL, F32, I32, STR, U32, Gguf, Tensor

T_F32, T_F16, T_Q2_0, T_PQ2_0 = 0, 1, 42, 142
BLOCKS = {T_Q2_0: 64, T_PQ2_0: 128}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "linear_attn.norm": "ssm_norm", "linear_attn.conv1d": "ssm_conv1d",
         "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_a": "ssm_alpha",
         "linear_attn.in_proj_b": "ssm_beta", "linear_attn.out_proj": "ssm_out"}
MTP = {"fc": "nextn.eh_proj", "pre_fc_norm_embedding": "nextn.enorm", "pre_fc_norm_hidden": "nextn.hnorm",
       "norm": "nextn.shared_head_norm"}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
ROTATED = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv", "attn_gate", "ffn_gate", "ffn_up", "ffn_down", "ssm_out",
           "output")


def text_config(config):
    return config.get("text_config", config)


def gguf_name(name, n_layer):
    name = name.replace("model.language_model.", "model.")
    if name in WHOLE:
        return WHOLE[name]
    if name.startswith("mtp.layers."):
        name = f"model.layers.{n_layer}." + name.split(".", 3)[3]
    elif name.startswith("mtp."):
        return f"blk.{n_layer}.{MTP[name[4:-7]]}.weight"
    _, _, layer, rest = name.split(".", 3)
    if rest == "linear_attn.A_log":
        return f"blk.{layer}.ssm_a"
    if rest == "linear_attn.dt_bias":
        return f"blk.{layer}.ssm_dt.bias"
    return f"blk.{layer}.{LAYER[rest[:-7]]}.weight"


def part_of(name):
    """blk.3.ssm_out.weight: ssm_out"""
    return (name.split(".", 2)[2] if name.startswith("blk.") else name).removesuffix(".weight")


def tile(a, c, axis, width, first=0):
    """Value heads of `width` along an axis, from `first` on: the first one of every key head, then the second ones."""
    kh, vh = c["linear_num_key_heads"], c["linear_num_value_heads"]
    order = np.arange(vh * width).reshape(kh, vh // kh, width).transpose(1, 0, 2).reshape(-1)
    return np.take(a, np.concatenate([np.arange(first), first + order]), axis)


def arrange(config, tensors, tile_out=True):
    """{GGUF name: values} in double precision, value heads tiled. tile_out: the columns of ssm_out, too."""
    c, out = text_config(config), {}
    vd, keys = c["linear_value_head_dim"], 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    for name, a in tensors.items():
        to = gguf_name(name, c["num_hidden_layers"])
        a, part = np.asarray(a, np.float64), part_of(to)
        if part.endswith("norm") and part != "ssm_norm":
            a = (a.astype(np.float32) + np.float32(1)).astype(np.float64)
        if part == "ssm_conv1d":
            a = a.reshape(len(a), -1)
        if part in ("attn_qkv", "ssm_conv1d"):
            a = tile(a, c, 0, vd, keys)
        elif part == "attn_gate":
            a = tile(a, c, 0, vd)
        elif part in ("ssm_alpha", "ssm_beta", "ssm_dt.bias"):
            a = tile(a, c, 0, 1)
        elif part == "ssm_a":
            a = -np.exp(tile(a, c, 0, 1))
        elif part == "ssm_out" and tile_out:
            a = tile(a, c, 1, vd)
        out[to] = a
    return out


def hadamard(x, block):
    """Sylvester's, in blocks of the last axis, normalized; its own inverse."""
    h = np.ones((1, 1))
    while len(h) < block:
        h = np.block([[h, h], [h, -h]])
    return (x.reshape(*x.shape[:-1], -1, block) @ (h / np.sqrt(block))).reshape(x.shape)


class Rotation:
    def __init__(self, block, widths, seed=1, signs=True, grouped=True):
        rng = np.random.default_rng(seed)
        self.block, self.widths, self.explicit, self.grouped = block, widths, signs, grouped
        self.signs = {w: rng.choice([-1, 1], w) if signs else np.ones(w, int) for w in widths}

    @staticmethod
    def turns(name):
        """Is the input of this matrix rotated? MTP's eh_proj and the small ssm_alpha and ssm_beta are not."""
        return part_of(name) in ROTATED

    def fold(self, values):
        """W becomes W S H, so that W' (H S x) = W x. Rows of the embedding: z = H S h, and h = S H z. All are the same."""
        return {k: hadamard(a * self.signs[a.shape[1]], self.block) if self.turns(k) or k == "token_embd.weight" else a
                for k, a in values.items()}

    def unfold(self, values):
        return {k: hadamard(a, self.block) * self.signs[a.shape[1]] if self.turns(k) or k == "token_embd.weight" else a
                for k, a in values.items()}

    def meta(self, f, names):
        p, names = "prism.hadamard.", sorted(names)
        signs = [int(s) for w in self.widths for s in self.signs[w]] if self.explicit else []
        f.set(p + "version", U32, 1)
        f.set(p + "block_size", U32, self.block)
        f.set(p + "transform", STR, "normalized-sylvester-walsh-hadamard")
        f.set(p + "axis", STR, "input-last-dimension")
        f.set(p + "sign_mode", STR, "explicit" if self.explicit else "identity")
        f.set(p + "sign_widths", ARRAY, (I32, self.widths if self.explicit else []))
        f.set(p + "sign_values", ARRAY, (I32, signs))
        f.set(p + "weight_names", ARRAY, (STR, [n for n in names if self.turns(n)]))
        f.set(p + "inverse_weight_names", ARRAY, (STR, ["token_embd.weight"]))
        f.set(p + "gdn_v_grouped", BOOL, self.grouped)


def two_bits(a, block):
    """Blocks of one magnitude: an f16 scale, then four weights in a byte."""
    g = a.reshape(-1, block)
    d = np.abs(g).max(1)
    t = np.rint(np.divide(g, d[:, None], out=np.zeros_like(g), where=d[:, None] > 0))
    assert (t * d[:, None] == g).all() and (d.astype(np.float16) == d).all(), "not ternary in blocks of %d" % block
    codes = (t + 1).astype(np.uint8).reshape(len(g), block // 4, 4)
    packed = codes[..., 0] | codes[..., 1] << 2 | codes[..., 2] << 4 | codes[..., 3] << 6
    return b"".join(s.tobytes() + q.tobytes() for s, q in zip(d.astype("<f2"), packed))


def holds(kind, a):
    """Without loss?"""
    if kind not in BLOCKS:
        return kind == T_F32 or bool((a.astype(np.float16) == a).all())
    if a.shape[1] % BLOCKS[kind]:
        return False
    g = np.abs(a.reshape(-1, BLOCKS[kind]))
    return bool(((g == 0) | (g == g.max(1, keepdims=True))).all())


def encode(a, kind):
    if kind == T_F32:
        return a.astype("<f4").tobytes()
    if kind == T_F16:
        return a.astype("<f2").tobytes()
    return two_bits(a, BLOCKS[kind])


def make(config, values, kinds, rotation=None):
    """kinds: types to be tried for the ternary matrices, in this order; the first that holds them is taken. Other matrices are
    F32, as are vectors."""
    c, f = text_config(config), Gguf()
    rope, mtp = c["rope_parameters"], c.get("mtp_num_hidden_layers", 0)
    f.set("general.architecture", STR, "qwen35")
    f.set("general.name", STR, "golden")
    values_width = c["linear_num_value_heads"] * c["linear_value_head_dim"]
    numbers = {"block_count": c["num_hidden_layers"] + mtp, "context_length": c["max_position_embeddings"],
               "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
               "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
               "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"],
               "rope.dimension_count": int(c["head_dim"] * rope["partial_rotary_factor"]),
               "ssm.conv_kernel": c["linear_conv_kernel_dim"], "ssm.state_size": c["linear_key_head_dim"],
               "ssm.group_count": c["linear_num_key_heads"], "ssm.time_step_rank": c["linear_num_value_heads"],
               "ssm.inner_size": values_width, "full_attention_interval": 4}
    if mtp:
        numbers["nextn_predict_layers"] = mtp
    for key, n in numbers.items():
        f.set("qwen35." + key, U32, n)
    f.set("qwen35.attention.layer_norm_rms_epsilon", F32, c["rms_norm_eps"])
    f.set("qwen35.rope.freq_base", F32, rope["rope_theta"])
    f.set("qwen35.rope.dimension_sections", ARRAY, (I32, [*rope["mrope_section"], 0]))
    kinds_of = [int(k == "linear_attention") for k in c["layer_types"]]
    if kinds_of != [int((i + 1) % 4 != 0) for i in range(len(kinds_of))]:
        f.set("qwen35.attention.recurrent_layers", ARRAY, (U32, kinds_of + [0] * mtp))
    if rotation:
        rotation.meta(f, values)
    for name, a in values.items():
        kind = T_F32
        if a.ndim == 2 and "conv1d" not in name:
            kind = next((k for k in kinds if holds(k, a)), T_F32)
        f.tensors.append(Tensor(name, a.shape[::-1], kind, encode(a, kind)))
    return f
