#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters beside a numpy pass in double precision (bitnet_ref.py, hybrid_ref.py) that applies them as PEFT does: to the
input of a module, before it is rounded or rotated.

Logits must agree within 1e-4 of a standard deviation. With int8 activations a value within float error of a half can go
either way, and what follows moves: there the input is chosen so that none is near. PEFT folders and GGUFs of the same
adapter must give the same bits, and so must every backend, number of threads and cut of the prompt.

Prints TAP. usage: test_adapters.py BITNET [DATA]
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from checkpoints import unpacked
from tap import Tap, need_module

need_module("numpy")
import numpy as np

import hybrid_gguf as gguf
from bitnet_ref import Model, read_safetensors
from hybrid_gguf import F32, STR, T_F32, Rotation
from hybrid_ref import Hybrid
from lora import Adapter

BOUND, TIE = 1e-4, 2e-5
bitnet = sys.argv[1]
data = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "..", "data", "golden")
scratch = tempfile.TemporaryDirectory()
tap = Tap()


def place(name):
    return os.path.join(scratch.name, name)


def command(name, model, ids, *options):
    return [bitnet, name, model, "--ids", ",".join(map(str, ids)), *options]


def logits(model, ids, adapters=(), *options):
    """adapters: (path, scale)"""
    lora = [x for i, (path, scale) in enumerate(adapters) for x in ("--lora", f"a{i}={path}:{scale}")]
    run = subprocess.run(command("logits", model, ids, "--out", place("logits"), *lora, *options), capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return np.fromfile(place("logits"), "<f4").reshape(len(ids), -1)


def checkpoint(kind):
    return unpacked(os.path.join(data, kind), place(""))


def near(name, got, want):
    worst = np.abs(got - want).max() / want.std()
    tap.point(f"{name}: largest difference {worst:.1e}", worst <= BOUND)


def same(name, got, want):
    tap.point(f"{name}: the same bits", got.tobytes() == want.tobytes())


def invariant(name, model, ids, adapters, want, *options):
    for chunk, threads, backend in ((1, 1, "scalar"), (1, 3, "auto"), (7, 2, "avx2"), (64, 4, "auto"), (3, 1, "auto")):
        how = ("--chunk", str(chunk), "-t", str(threads), *(("--backend", backend) if usable(backend) else ()), *options)
        same(f"{name}, chunks of {chunk}, {threads} threads, {backend}", logits(model, ids, adapters, *how), want)


def usable(backend):
    if backend not in usable.known:
        run = subprocess.run([bitnet, "run", "-p", "x", "-n", "1", "--backend", backend], capture_output=True)
        usable.known[backend] = run.returncode == 0
    return usable.known[backend]


usable.known = {"auto": True, "scalar": True}


def converted(folder):
    to = place(os.path.basename(folder) + ".gguf")
    subprocess.run([bitnet, "convert", folder, to, "--force"], check=True, capture_output=True)
    return to


def quiet_ids(exact, rng):
    """A text without values near a half: a short one, where there are any."""
    while True:
        ids = [int(i) for i in rng.integers(0, exact.c["vocab_size"], 24 if exact.floats else 6)]
        rows = exact.logits(ids)
        if all(d.min() > TIE for d in exact.near.values()):
            return ids, rows


def dense(kind, arch, pairs, *options):
    folder = checkpoint(kind)
    config = json.load(open(os.path.join(folder, "config.json")))
    file, rng = converted(folder), np.random.default_rng(5)
    some = Adapter(config, rank=5, alpha=7.0, dtype="F32", seed=2)
    # further ranks and scales, by the ends of names
    mixed = Adapter(config, ("q_proj", "o_proj", "down_proj", "up_proj", "lm_head"), rank=8, alpha=16, rs=True, dtype="F16", seed=3,
                    ranks={"down_proj": 17, "model.layers.1.self_attn.o_proj": 1}, alphas={"o_proj": 3.5})
    third = Adapter(config, ("k_proj", "v_proj", "gate_proj", "embed_tokens"), rank=3, alpha=2, dtype="BF16", seed=4)
    exact, base = Model(folder), None
    for name, use in (("everything", [(some, 1.0)]), ("patterns, rsLoRA, F16", [(mixed, 1.0)]), ("BF16, scale -0.75", [(third, -0.75)]),
                      ("three", [(mixed, 0.5), (some, 2.0), (third, 1.0)])):
        exact.adapters = use
        ids, want = quiet_ids(exact, rng)
        paths = [(a.write_peft(place(f"{kind}-{i}")), scale) for i, (a, scale) in enumerate(use)]
        got = logits(folder, ids, paths, *options)
        near(f"{kind}, {name}", got, want)
        exact.adapters = []
        base = exact.logits(ids)
        tap.point(f"{kind}, {name}: they matter", np.abs(base - want).max() / want.std() > 0.05)
        same(f"{kind}, {name}, the model as a GGUF", logits(file, ids, paths, *options), got)
        if name == "three":
            invariant(f"{kind}, {name}", folder, ids, paths, got, *options)
    in_gguf = [(some.write_gguf(place("some.gguf"), arch, pairs), 2.0)]
    in_peft = [(some.write_peft(place("some")), 2.0)]
    want = logits(folder, ids, in_peft, *options)
    same(f"{kind}, a GGUF adapter", logits(folder, ids, in_gguf, *options), want)
    same(f"{kind}, a GGUF adapter, the model as a GGUF", logits(file, ids, in_gguf, *options), want)
    same(f"{kind}, scale 0: the base model", logits(folder, ids, [(place("some"), 0)], *options), logits(folder, ids, (), *options))


def hybrid(kind):
    folder, how = checkpoint(kind), ("--activations", "f32")
    config, rng = json.load(open(os.path.join(folder, "config.json"))), np.random.default_rng(6)
    exact = Hybrid.read(folder)
    ids = [int(i) for i in rng.integers(0, exact.c["vocab_size"], 40)]
    one, two = Adapter(config, rank=6, alpha=5.0, dtype="F16", seed=7), Adapter(config, ("in_proj_qkv", "out_proj", "o_proj"), seed=8)
    exact.adapters = [(one, 1.0), (two, 0.5)]
    want = exact.logits(ids)
    paths = [(one.write_peft(place("one")), 1.0), (two.write_peft(place("two")), 0.5)]
    got = logits(folder, ids, paths, *how)
    near(f"{kind}, two adapters", got, want)
    invariant(kind, folder, ids, paths, got, *how)
    near_file = [(one.write_gguf(place("one.gguf"), "qwen35"), 1.0), (two.write_gguf(place("two.gguf"), "qwen35"), 0.5)]
    same(f"{kind}, GGUF adapters", logits(folder, ids, near_file, *how), got)
    tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
    values = gguf.arrange(config, tensors)
    open(place("tiled.gguf"), "wb").write(gguf.make(config, values, (T_F32,)).bytes())
    for name, adapters in (("PEFT", paths), ("GGUF", near_file)):
        same(f"{kind}, tiled, {name} adapters", logits(place("tiled.gguf"), ids, adapters, *how), got)
    c = gguf.text_config(config)
    heads, values_width = c["num_attention_heads"] * c["head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    widths = sorted({c["hidden_size"], c["intermediate_size"], heads, values_width})
    for grouped in (True, False):
        r = Rotation(block=64, widths=widths, grouped=grouped)
        turned = r.fold(gguf.arrange(config, tensors, tile_out=not grouped))
        open(place("turned.gguf"), "wb").write(gguf.make(config, turned, (T_F32,), r).bytes())
        in_order = [(a.write_gguf(place(f"turned-{i}.gguf"), "qwen35", tile_out=not grouped), scale)
                    for i, (a, scale) in enumerate(exact.adapters)]
        name = f"{kind}, rotated, ssm_out {'grouped' if grouped else 'tiled'}"
        first = logits(place("turned.gguf"), ids, paths, *how)
        near(name, first, want)
        same(f"{name}, GGUF adapters", logits(place("turned.gguf"), ids, in_order, *how), first)
        same(f"{name}, token by token, scalar", logits(place("turned.gguf"), ids, paths, *how, "--chunk", "1", "--backend", "scalar"),
             first)


def refused(model, config, says, path):
    run = subprocess.run(command("logits", model, [1, 2], "--out", place("never"), "--lora", path), capture_output=True, text=True)
    wrong = [s for s in says if s not in run.stderr]
    tap.point(f"refused: {run.stderr.strip().splitlines()[-1]}" + (f" (lacks {wrong})" if wrong else ""), run.returncode == 1 and not wrong)


def refusals():
    folder = checkpoint("bitnet-master")
    config = json.load(open(os.path.join(folder, "config.json")))
    a = Adapter(config, ("q_proj",), rank=2)
    for change, says in (({"use_dora": True}, ["DoRA"]), ({"bias": "all"}, ["bias 'all'"]), ({"modules_to_save": ["lm_head"]}, ["modules_to_save"]),
                         ({"peft_type": "IA3"}, ["IA3"]), ({"fan_in_fan_out": True}, ["fan_in_fan_out"]),
                         ({"init_lora_weights": "pissa"}, ["pissa"]), ({"r": 3}, ["lora_A", "2 x 256", "3 x 256"]),
                         ({"r": 4096}, ["rank 4096"]), ({"lora_alpha": "x"}, ["lora_alpha"]),
                         ({"alpha_pattern": {".*q_proj": 1}}, ["regular expression"])):
        refused(folder, config, says, a.write_peft(place("wrong"), **change))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    t = a.tensors()
    for tensors, says in (({**t, name + "A.weight": np.zeros((2, 250))}, ["q_proj.lora_A", "2 x 250", "2 x 256"]),
                          ({**t, name + "B.weight": np.zeros((256, 3))}, ["q_proj.lora_B", "256 x 3", "256 x 2"]),
                          ({k: v for k, v in t.items() if k != name + "B.weight"}, ["lora_A", "counterpart"]),
                          ({**t, name + "magnitude_vector": np.zeros((1, 256))}, ["DoRA"]),
                          ({**t, "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight": np.zeros((2, 256))}, ["layers.9"]),
                          ({**t, name + "A.weight": np.full((2, 256), np.nan)}, ["not finite"]), ({}, ["no tensors"])):
        refused(folder, config, says, a.write_peft(place("wrong"), tensors=tensors))
    for change, says in ((lambda f: f.set("general.architecture", STR, "llama"), ["'llama'", "'bitnet"]),
                         (lambda f: f.set("adapter.type", STR, "other"), ["'other'"]), (lambda f: f.drop("adapter.lora.alpha"), ["alpha"]),
                         (lambda f: f.set("general.type", STR, "model"), ["no adapter"]),
                         (lambda f: f.set("adapter.lora.alpha", F32, float("inf")), ["alpha"])):
        refused(folder, config, says, a.write_gguf(place("wrong.gguf"), arch_of(folder), change=change))
    refused(folder, config, ["no adapter_config.json"], folder)
    refused(folder, config, ["nowhere"], place("nowhere"))
    for name in ("cut.gguf", "cut/adapter_model.safetensors"):
        a.write_gguf(place("cut.gguf"), arch_of(folder)) if name == "cut.gguf" else a.write_peft(place("cut"))
        raw = open(place(name), "rb").read()
        open(place(name), "wb").write(raw[: len(raw) - 40])
        refused(folder, config, ["cut"], place(name.split("/")[0]))


def arch_of(folder):
    run = subprocess.run([bitnet, "inspect", folder, "--json"], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["model"]["architecture"]


if __name__ == "__main__":
    only = sys.argv[3:] or ["dense", "hybrid", "refusals"]
    if "dense" in only:
        dense("qwen3-values", "qwen3", False, "--activations", "f32")
        for kind in ("bitnet-master", "llama-packed-div"):
            dense(kind, arch_of(checkpoint(kind)), kind.startswith("llama"))
    if "hybrid" in only:
        for kind in ("qwen35-ternary", "qwen35-nested-tied"):
            hybrid(kind)
    if "refusals" in only:
        refusals()
    sys.exit(tap.end())
