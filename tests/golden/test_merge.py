#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`convert --merge-lora`: the file computes what the numpy pass (bitnet_ref.py, hybrid_ref.py) with the adapters beside the
model computes, within 1e-4 of a standard deviation, and what would not is refused with the reason.

Prints TAP. usage: test_merge.py BITNET [DATA]
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from tap import Tap, need_module

need_module("numpy")
import numpy as np

import lzma
from bitnet_ref import Model, read_safetensors
from hybrid_ref import Hybrid
from lora import Adapter, bf16

BOUND = 1e-4
bitnet = sys.argv[1]
data = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "..", "data", "golden")
scratch = tempfile.TemporaryDirectory()
tap = Tap()


def place(name):
    return os.path.join(scratch.name, name)


def write_model(name, config, tensors):
    """A checkpoint: floats, in BF16 where a tensor is a pair ("BF16", values)."""
    folder = place(name)
    os.makedirs(folder, exist_ok=True)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    header, body = {}, b""
    for key, a in tensors.items():
        dtype, a = a if isinstance(a, tuple) else ("F32", a)
        raw = bf16(a).tobytes() if dtype == "BF16" else np.ascontiguousarray(a, {"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()
        header[key] = {"dtype": dtype, "shape": a.shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    open(os.path.join(folder, "model.safetensors"), "wb").write(struct.pack("<Q", len(head)) + head + body)
    return folder


def golden(kind):
    """(config, tensors)"""
    folder = os.path.join(data, kind)
    path = os.path.join(folder, "model.safetensors")
    if not os.path.exists(path):
        raw = lzma.open(path + ".xz").read()
        path = place("golden.safetensors")
        open(path, "wb").write(raw)
    return json.load(open(os.path.join(folder, "config.json"))), read_safetensors(path)


def of_floats(tensors, ends, rng):
    """Matrices whose names end so become floats that are not ternary, of the size they had, in three types."""
    out = dict(tensors)
    for i, (name, a) in enumerate(tensors.items()):
        if any(name.endswith(end + ".weight") for end in ends):
            dtype = ("F32", "BF16", "F16")[i % 3]
            out[name] = dtype, rng.standard_normal(a.shape).astype("<f4") * np.float32(np.abs(a).mean())
    return out


def convert(source, target, *options):
    return subprocess.run([bitnet, "convert", source, place(target), "--force", *options], capture_output=True, text=True)


def merged(source, target, adapters, *options):
    more = [x for path, scale in adapters for x in ("--merge-lora", path if scale == 1 else f"{path}:{scale}")]
    done = convert(source, target, *more, *options)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return place(target)


def logits(model, ids, *options):
    run = subprocess.run([bitnet, "logits", model, "--ids", ",".join(map(str, ids)), "--out", place("logits"), *options],
                         capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return np.fromfile(place("logits"), "<f4").reshape(len(ids), -1)


def near(name, got, want):
    worst = np.abs(got - want).max() / want.std()
    tap.point(f"{name}: largest difference {worst:.1e}", worst <= BOUND)


def check(name, folder, exact, adapters, ids, *options):
    """From a checkpoint and from its GGUF, packed or not."""
    want_base = exact.logits(ids)
    exact.adapters = adapters
    want = exact.logits(ids)
    tap.point(f"{name}: they matter", np.abs(want_base - want).max() / want.std() > 0.05)
    paths = [(a.write_peft(place(f"adapter-{i}")), scale) for i, (a, scale) in enumerate(adapters)]
    one = merged(folder, "one.gguf", paths)
    got = logits(one, ids, *options)
    near(name, got, want)
    if convert(folder, "base.gguf").returncode:
        raise RuntimeError("the model is not converted")
    for how, more in (("its GGUF", ()), ("its GGUF, packed", ("--packed",))):
        again = merged(place("base.gguf"), "two.gguf", paths, *more)
        same = logits(again, ids, *options).tobytes() == got.tobytes()
        tap.point(f"{name}, from {how}: the same bits", same)
    return paths


def dense(arch):
    config, tensors = golden("qwen3-values")
    rng = np.random.default_rng(3)
    config["tie_word_embeddings"] = False
    tensors["lm_head.weight"] = "F16", rng.standard_normal((config["vocab_size"], config["hidden_size"])).astype("<f4") * 0.1
    if arch == "llama":  # q and k of a GGUF in pairs
        config.update(architectures=["LlamaForCausalLM"], model_type="llama")
        tensors = {k: a for k, a in tensors.items() if "q_norm" not in k and "k_norm" not in k}
    tensors = of_floats(tensors, ("q_proj", "k_proj", "o_proj", "down_proj"), rng)
    folder = write_model(arch, config, tensors)
    one = Adapter(config, ("q_proj", "o_proj", "lm_head"), rank=5, alpha=9, dtype="F16", seed=2)
    two = Adapter(config, ("q_proj", "k_proj", "down_proj", "embed_tokens"), rank=3, alpha=4, rs=True, seed=3)
    ids = [int(i) for i in rng.integers(0, config["vocab_size"], 20)]
    check(f"{arch}, two adapters", folder, Model(folder), [(one, 1.0), (two, -0.5)], ids, "--activations", "f32")
    return folder, config, two


def hybrid():
    config, tensors = golden("qwen35-ternary")
    rng = np.random.default_rng(4)
    parts = ("in_proj_qkv", "in_proj_z", "in_proj_a", "out_proj", "self_attn.q_proj", "gate_proj")
    folder = write_model("hybrid", config, of_floats(tensors, parts, rng))
    one = Adapter(config, (*parts, "lm_head", "embed_tokens"), rank=4, alpha=5, dtype="F16", seed=5)
    ids = [int(i) for i in rng.integers(0, config["vocab_size"], 24)]
    check("hybrid", folder, Hybrid.read(folder), [(one, 1.5)], ids, "--activations", "f32")


def refused(name, folder, path, *says, options=()):
    done = convert(folder, "never.gguf", "--merge-lora", path, *options)
    wrong = [s for s in says if s not in done.stderr]
    tap.point(f"{name}: {done.stderr.strip().splitlines()[-1]}" + (f" (lacks {wrong})" if wrong else ""),
              done.returncode == 1 and not wrong and not os.path.exists(place("never.gguf")))


def refusals(folder, config, fits):
    ternary = Adapter(config, ("q_proj", "v_proj"), rank=2).write_peft(place("ternary"))
    refused("ternary", folder, ternary, "v_proj", "it is ternary", "--lora")
    path = fits.write_peft(place("fits"))
    refused("few bits", folder, path, "embed_tokens", "head_type f32", options=("--head-type", "f16"))
    tied, tensors = golden("qwen3-values")
    table = Adapter(tied, ("embed_tokens",), rank=2).write_peft(place("table"))
    refused("tied", write_model("tied", tied, tensors), table, "embedding and head at once")
    master, tensors = golden("bitnet-master")
    a = Adapter(master, ("o_proj",), rank=2).write_peft(place("master"))
    refused("master weights", write_model("master-weights", master, {k: ("F32", v) for k, v in tensors.items()}), a, "rounded to ternary")
    refused("no adapter", folder, place("nowhere"), "nowhere")
    refused("another shape", folder, Adapter({**config, "hidden_size": 80}, ("o_proj",)).write_peft(place("shape")), "80")
    done = convert(folder, "never.gguf", *["--merge-lora", path] * 9)
    tap.point(f"nine: {done.stderr.strip()}", done.returncode != 0 and "at most 8" in done.stderr)


if __name__ == "__main__":
    dense("llama")
    fit = dense("qwen3")
    hybrid()
    refusals(*fit)
    sys.exit(tap.end())
