#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every logit of the tiny checkpoints beside the float32 logits of Hugging Face transformers.

A row passes if it lies within 1e-3 of the golden one, relative to the model's logit standard deviation, where
activations are floats within 1e-4. In pieces, or one token at a time, a prompt must give the same bits, and so must a GGUF
made from the checkpoint. int8 activations are rounded, and a value within float error of a half can go either way: then whole rows move. Such a row
passes only if the ties are found and named: a double precision model (bitnet_ref.py), with single roundings flipped
that lie within TIE of a half, must give our row, and likewise the golden one.

Embeddings are judged by the same rows: the head's products with the last hidden state are the last row, and those with
the mean of all hidden states are the mean of all rows.

Hybrids are also compared with a model in double precision (hybrid_ref.py), and so are the logits of their draft heads.

Prints TAP. usage: test_golden.py BITNET [DATA [DRAFTS]]
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from checkpoints import unpacked
from tap import Tap, comment, need_module

need_module("numpy")
import numpy as np

from bitnet_ref import Model, read_safetensors
from hybrid_ref import Hybrid

BOUND, FLOAT_BOUND, TIE, EXACT_BOUND, INT16_BOUND = 1e-3, 1e-4, 1e-4, 2e-5, 5e-3
bitnet = sys.argv[1]
data = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "..", "data", "golden")
drafts = sys.argv[3] if len(sys.argv) > 3 else None
scratch = tempfile.TemporaryDirectory()
tap = Tap()


def ours(model, ids, *options, activations="f32"):
    """With int8 activations for models that were trained so, else as asked for."""
    out = os.path.join(scratch.name, "logits")
    how = ["--activations", activations] if takes_floats(model) else []
    subprocess.run([bitnet, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, *how, *options], check=True,
                   stderr=subprocess.DEVNULL)
    return np.fromfile(out, "<f4").reshape(len(ids), -1)


def embedding(model, ids, pooling):
    how = ["--activations", "f32"] if takes_floats(model) else []
    text = subprocess.run([bitnet, "embed", model, "--ids", ",".join(map(str, ids)), "--pooling", pooling,
                           "--no-normalize", "--kv-type", "f32", *how], check=True, capture_output=True, text=True).stdout
    return np.array(text.split(), np.float64)


def head_of(folder):
    tensors = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        tensors.update(read_safetensors(path))
    for name in ("lm_head.weight", "model.embed_tokens.weight", "model.language_model.embed_tokens.weight"):
        if name in tensors:
            return tensors[name].astype(np.float64)


def judge_chunks(name, model, ids):
    """One token at a time (the recurrent form of a delta net), or in pieces: the same bits."""
    whole = ours(model, ids).tobytes()
    for chunk in ("1", "7", "64"):
        same = ours(model, ids, "--chunk", chunk).tobytes() == whole
        tap.point(f"{name}, {len(ids)} ids: the same bits in pieces of {chunk}", same)


def bad_rows(a, b, std):
    return np.nonzero(np.abs(a - b).max(1) / std > BOUND)[0]


def explain(model, ids, target, std):
    """Flips (each within TIE of a half) after which the exact model gives `target`; None if there are none."""
    flips, named = {}, []
    while True:
        rows = bad_rows(model.logits(ids, flips), target, std)
        if len(rows) == 0:
            return named
        pos = rows[0]
        near = sorted((float(d[pos, i]), where, int(i)) for where, d in model.near.items()
                      for i in np.nonzero(d[pos] < TIE)[0])
        for distance, where, index in near:
            trial = {w: list(f) for w, f in flips.items()}
            trial.setdefault(where, []).append((pos, index))
            # the row must come right, or the first difference must move on
            left = bad_rows(model.logits(ids, trial), target, std)
            if len(left) == 0 or left[0] > pos:
                flips = trial
                named.append(f"position {pos}, layer {where[0]}, input {index} of {where[1]}: {distance:.1e} from a half")
                break
        else:
            return None


def takes_floats(model):
    """Weights are plain values: activations are not rounded, so there are no ties. model: the folder, or a GGUF made from it."""
    folder = os.path.join(data, os.path.basename(model).removesuffix(".gguf"))
    config = json.load(open(os.path.join(folder, "config.json")))
    return "quantization_config" not in config and config["architectures"] != ["BitnetForCausalLM"]


def judge(name, folder, model, ids, want):
    """One sequence; model: the folder, or a GGUF made from it."""
    got, std = ours(model, ids), want.std()
    ok, ties = True, []
    if takes_floats(folder):
        ok = np.abs(got - want).max() / std <= FLOAT_BOUND
        judge_int16(name, model, ids, want)
    elif len(bad_rows(got, want, std)):
        exact = Model(folder)
        mine, theirs = explain(exact, ids, got, std), explain(exact, ids, want, std)
        ok = mine is not None and theirs is not None and mine != theirs
        ties = [f"  ours: {x}" for x in mine or []] + [f"  golden: {x}" for x in theirs or []]
    worst = np.abs(got - want).max() / std
    tap.point(f"{name}, {len(ids)} ids: largest difference {worst:.1e}", ok)
    comment("\n".join(ties))
    judge_embeddings(name, folder, model, ids, got if ties else want)


def judge_int16(name, model, ids, want):
    """What floats become by default; twice, the second time by other means."""
    got = ours(model, ids, activations="int16")
    worst = np.abs(got - want).max() / want.std()
    same = (ours(model, ids, "--chunk", "3", "--backend", "scalar", activations="auto") == got).all()
    tap.point(f"{name}, {len(ids)} ids, int16: largest difference {worst:.1e}", worst <= INT16_BOUND and same)


def judge_embeddings(name, folder, model, ids, rows):
    """rows: the logits to which the hidden states must lead."""
    for pooling, row in (("last", rows[-1]), ("mean", rows.astype(np.float64).mean(0))):
        worst = np.abs(head_of(folder) @ embedding(model, ids, pooling) - row).max() / rows.std()
        tap.point(f"{name}, {len(ids)} ids, embedding, {pooling}: largest difference {worst:.1e}", worst <= BOUND)


def our_drafts(folder, ids, n_chain):
    """Logits of the layer that drafts, of every token but the last; and of a chain of guesses behind it."""
    out = os.path.join(scratch.name, "drafts")
    subprocess.run([drafts, folder, ",".join(map(str, ids)), str(n_chain), out], check=True)
    rows = np.fromfile(out, "<f4").reshape(len(ids) - 1 + n_chain, -1)
    return rows[: len(ids) - 1], rows[len(ids) - 1 :]


def judge_exact(name, folder, s, golden):
    """A hybrid beside double precision; golden: the logits at a record."""
    exact, std = Hybrid.read(folder), golden(s).std()
    pairs = [("ours and double precision", ours(folder, s["ids"]), exact.logits(s["ids"]))]
    if "draft" in s:
        tokens, rows = exact.draft(s["ids"], len(s["chain"]["tokens"]) - 1)
        pairs += [("drafts", exact.draft_logits(s["ids"]), golden(s["draft"])),
                  ("drafts with a pair of zeros in front", exact.draft_logits(s["ids"], True), golden(s["draft_zero_pair"])),
                  ("a chain of drafts", rows, golden(s["chain"])),
                  ("the tokens of a chain", np.array(tokens), np.array(s["chain"]["tokens"]))]
        if drafts:
            first, rest = our_drafts(folder, s["ids"], len(rows))
            pairs += [("our drafts", first, golden(s["draft"])), ("our chain of drafts", rest, golden(s["chain"]))]
    for what, a, b in pairs:
        worst = np.abs(a - b).max() / std
        tap.point(f"{name}, {len(s['ids'])} ids, {what}: largest difference {worst:.1e}", worst <= EXACT_BOUND)


for kind in sorted(os.listdir(data)):
    if not os.path.isdir(os.path.join(data, kind)):
        continue
    folder = unpacked(os.path.join(data, kind), scratch.name)
    golden = json.load(open(os.path.join(folder, "golden.json")))
    raw = open(os.path.join(folder, "golden.bin"), "rb").read()
    gguf = os.path.join(scratch.name, kind + ".gguf")
    made = subprocess.run([bitnet, "convert", folder, gguf], capture_output=True, text=True)
    fits = made.returncode == 0
    if not fits: # widths of no whole blocks exist in this test only
        tap.point(f"{kind} as GGUF: refused, {made.stderr.strip()}", "multiple" in made.stderr)

    def at(record):
        return np.frombuffer(raw, "<f4", np.prod(record["shape"]), record["offset"]).reshape(record["shape"])

    for s in golden["sequences"]:
        want = at(s)
        judge(kind, folder, folder, s["ids"], want)
        judge_chunks(kind, folder, s["ids"])
        if kind.startswith("qwen35"):
            judge_exact(kind, folder, s, at)
        if fits:
            judge(kind + " as GGUF", folder, gguf, s["ids"], want)
            same = ours(folder, s["ids"]).tobytes() == ours(gguf, s["ids"]).tobytes()
            tap.point(f"{kind}, {len(s['ids'])} ids: the GGUF gives the same bits", same)
sys.exit(tap.end())
