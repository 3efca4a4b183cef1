#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hybrids in files that were not written by us (hybrid_gguf.py), beside the checkpoints they were made of.

Plain: value heads tiled, every type that holds the weights. The bits of the checkpoint.

Rotated ("prism.hadamard", as Bonsai 2 has it): the rotation is folded into the golden's weights, which are floats then. The
logits must be the golden's within 1e-4 of a standard deviation; with and without signs, for ssm_out in both orders, for several
block sizes. And the other way round, as such files really are: the golden's ternary matrices are taken as rotated ones, and
compared with the model in double precision (hybrid_ref.py) that has them turned back. Whatever is wrong with the keys is refused.

Prints TAP. usage: test_hybrid_files.py BITNET [DATA]
"""
import json
import lzma
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from tap import Tap, need_module

need_module("numpy")
import numpy as np

import hybrid_gguf as gguf
from bitnet_ref import read_safetensors
from hybrid_gguf import ARRAY, BOOL, I32, STR, T_F16, T_F32, T_PQ2_0, T_Q2_0, U32, Rotation
from hybrid_ref import Hybrid

BOUND, EXACT_BOUND = 1e-4, 2e-5
bitnet = sys.argv[1]
data = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "..", "data", "golden")
scratch = tempfile.TemporaryDirectory()
tap = Tap()


def logits(path, ids, *options):
    out = os.path.join(scratch.name, "logits")
    subprocess.run([bitnet, "logits", path, "--ids", ",".join(map(str, ids)), "--out", out,
                    *(() if "--activations" in options else ("--activations", "f32")), *options], check=True,
                   stderr=subprocess.DEVNULL)
    return np.fromfile(out, "<f4").reshape(len(ids), -1)


class Golden:
    def __init__(self, kind):
        folder = os.path.join(data, kind)
        self.kind, self.folder = kind, os.path.join(scratch.name, kind)
        os.makedirs(self.folder, exist_ok=True)
        for name in ("config.json", "model.safetensors.xz"):
            raw = open(os.path.join(folder, name), "rb").read()
            raw = lzma.decompress(raw) if name.endswith(".xz") else raw
            open(os.path.join(self.folder, name.removesuffix(".xz")), "wb").write(raw)
        self.config = json.load(open(os.path.join(folder, "config.json")))
        self.tensors = read_safetensors(os.path.join(self.folder, "model.safetensors"))
        s = json.load(open(os.path.join(folder, "golden.json")))["sequences"][1]
        self.ids = s["ids"]
        raw = open(os.path.join(folder, "golden.bin"), "rb").read()
        self.want = np.frombuffer(raw, "<f4", np.prod(s["shape"]), s["offset"]).reshape(s["shape"])
        c = gguf.text_config(self.config)
        heads, values = c["num_attention_heads"] * c["head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
        self.widths = sorted({c["hidden_size"], c["intermediate_size"], heads, values})

    def path(self, file, name="model.gguf"):
        path = os.path.join(scratch.name, name)
        open(path, "wb").write(file.bytes())
        return path

    def distance(self, got, want=None):
        return np.abs(got - (self.want if want is None else want)).max() / self.want.std()


def converted(g, path, name, *options):
    """A GGUF made of one: the same bits."""
    to = os.path.join(scratch.name, "converted.gguf")
    run = subprocess.run([bitnet, "convert", path, to, "--force", *options], capture_output=True, text=True)
    if run.returncode:
        return tap.point(f"{name}, converted {' '.join(options)}: {run.stderr.strip()}", False)
    same = all((logits(to, g.ids, "--activations", a) == logits(path, g.ids, "--activations", a)).all() for a in ("f32", "int16"))
    return tap.point(f"{name}, converted {' '.join(options)}: the same bits", same)


def plain(g):
    values, first = gguf.arrange(g.config, g.tensors), logits(g.folder, g.ids)
    tap.point(f"{g.kind}: the checkpoint, {g.distance(first):.1e} from the golden", g.distance(first) <= BOUND)
    for name, kinds in (("PQ2_0, else Q2_0", (T_PQ2_0, T_Q2_0)), ("Q2_0", (T_Q2_0,)), ("F16", (T_F16,)), ("F32", (T_F32,))):
        path = g.path(gguf.make(g.config, values, kinds))
        tap.point(f"{g.kind}, tiled, {name}: the bits of the checkpoint", (logits(path, g.ids) == first).all())
        tap.point(f"{g.kind}, tiled, {name}, token by token, scalar: the bits of the checkpoint",
               (logits(path, g.ids, "--chunk", "1", "--backend", "scalar", "-t", "2") == first).all())
        converted(g, path, f"{g.kind}, tiled, {name}")


def rotated(g, **options):
    """Folded into floats; name: what is special."""
    r = Rotation(widths=g.widths, **options)
    values = r.fold(gguf.arrange(g.config, g.tensors, tile_out=not r.grouped))
    path = g.path(gguf.make(g.config, values, (T_F32,), r))
    got = logits(path, g.ids)
    name = f"{g.kind}, rotated in blocks of {r.block}, {'signs' if r.explicit else 'no signs'}, ssm_out " + \
           ("grouped" if r.grouped else "tiled")
    tap.point(f"{name}: {g.distance(got):.1e} from the golden", g.distance(got) <= BOUND)
    tap.point(f"{name}: the same bits token "
           "by token, scalar", (logits(path, g.ids, "--chunk", "1", "--backend", "scalar", "-t", "3") == got).all())


def turned(g, kinds, **options):
    """Ternary as stored; the model they stand for has floats."""
    r = Rotation(widths=g.widths, **options)
    ours = gguf.arrange(g.config, g.tensors, tile_out=not r.grouped)
    path = g.path(gguf.make(g.config, ours, kinds, r))
    stands_for = r.unfold(ours)
    names = {gguf.gguf_name(k, gguf.text_config(g.config)["num_hidden_layers"]): k for k in g.tensors}
    if not r.grouped:  # back into the checkpoint's order
        c = gguf.text_config(g.config)
        back = np.argsort(gguf.tile(np.arange(c["linear_num_value_heads"] * c["linear_value_head_dim"]), c, 0,
                                    c["linear_value_head_dim"]))
        stands_for = {k: a[:, back] if ".ssm_out." in k else a for k, a in stands_for.items()}
    tensors = dict(g.tensors)
    for k, name in names.items():
        if r.turns(k) or k == "token_embd.weight":
            a = stands_for[k]
            if k.endswith(("attn_qkv.weight", "attn_gate.weight")):
                a = untile_rows(g, k, a)
            tensors[name] = a
    exact, got = Hybrid(g.config, tensors).logits(g.ids), logits(path, g.ids)
    worst = np.abs(got - exact).max() / exact.std()
    name = f"{g.kind}, ternary and rotated in blocks of {r.block}, ssm_out {'grouped' if r.grouped else 'tiled'}"
    tap.point(f"{name}: {worst:.1e} from double precision", worst <= EXACT_BOUND)
    tap.point(f"{name}: the same bits token "
           "by token, scalar", (logits(path, g.ids, "--chunk", "1", "--backend", "scalar", "-t", "2") == got).all())
    converted(g, path, name)
    if kinds[0] == T_PQ2_0:
        converted(g, path, name, "--type", "ptq1_0")


def untile_rows(g, name, a):
    c = gguf.text_config(g.config)
    first = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] if "attn_qkv" in name else 0
    return a[np.argsort(gguf.tile(np.arange(len(a)), c, 0, c["linear_value_head_dim"], first))]


def refused(g):
    r = Rotation(block=64, widths=g.widths)
    values = r.fold(gguf.arrange(g.config, g.tensors, tile_out=False))
    p = "prism.hadamard."
    wrong = [("version", U32, 2), ("version", STR, "1"), ("block_size", U32, 96), ("block_size", U32, 8192), ("block_size", U32, 0),
             ("transform", STR, "walsh"), ("axis", STR, "output"), ("sign_mode", STR, "random"),
             ("sign_widths", ARRAY, (I32, g.widths[:-1])), ("sign_widths", ARRAY, (I32, [])),
             ("sign_values", ARRAY, (I32, [1] * (sum(g.widths) - 1))), ("sign_values", ARRAY, (I32, [2] * sum(g.widths))),
             ("weight_names", ARRAY, (STR, ["blk.99.ffn_up.weight"])), ("weight_names", U32, 1),
             ("inverse_weight_names", ARRAY, (STR, ["nothing"])), ("gdn_v_grouped", U32, 1), ("seed", U32, 1)]
    for key, kind, value in wrong:
        f = gguf.make(g.config, values, (T_F32,), r)
        f.set(p + key, kind, value)
        refusal(g, f, p + key, f"{key} {str(value)[:40]}")
    for key in ("version", "block_size", "transform", "axis", "sign_mode", "sign_widths", "sign_values", "weight_names"):
        f = gguf.make(g.config, values, (T_F32,), r)
        f.drop(p + key)
        refusal(g, f, p + key, f"no {key}")


def refusal(g, f, key, what):
    run = subprocess.run([bitnet, "logits", g.path(f), "--ids", "1", "--out", os.path.join(scratch.name, "logits")],
                         capture_output=True, text=True)
    named = key in run.stderr or (key.endswith("sign_widths") and "sign_values" in run.stderr)
    tap.point(f"refused: {what}: {run.stderr.strip().rpartition(': ')[2][:100]}", run.returncode == 1 and named)


for kind in ("qwen35-nested-tied", "qwen35-v3", "qwen35-wide", "qwen35-mtp"):
    plain(Golden(kind))
g = Golden("qwen35-v3")
rotated(g, block=128, grouped=True)
rotated(g, block=128, grouped=False)
rotated(g, block=64, signs=False)
rotated(g, block=2, seed=2)
rotated(Golden("qwen35-nested-tied"), block=128)
rotated(Golden("qwen35-wide"), block=32, grouped=False)
rotated(Golden("qwen35-mtp"), block=128)
turned(g, (T_PQ2_0, T_Q2_0), block=128, grouped=True)
turned(g, (T_Q2_0,), block=64, grouped=False)
refused(g)
sys.exit(tap.end())
