#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trained model beside Hugging Face transformers (golden_text.json): its mean negative log-likelihood, and greedy
continuations of some prompts. The embedded one (tests/data/stories) has int8 activations, the hybrid one (tests/data/hybrid)
floats.

int8 activations: continuations may part where two tokens are about equally likely, because ties (see test_golden.py) move
logits by a few hundredths. Where one differs, the gap between the two best logits at that place is shown, and must be below
GAP. With floats there are no ties, and every token must be the same.

Prints TAP. usage: test_stories.py BITNET MODEL GOLDEN_TEXT [--floats]
"""
import array
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from tap import Tap

bitnet, model, golden = sys.argv[1:4]
*texts, scores = json.load(open(golden))
NLL_BOUND, GAP = (1e-4, 0) if "--floats" in sys.argv else (2e-4, 0.1)
INT8_BOUND = 5e-4  # of an int8 head
tap = Tap()


def run(*args):
    return subprocess.run([bitnet, *args], check=True, capture_output=True, text=True).stdout


def logits_after(ids):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "logits")
        run("logits", model, "--ids", ",".join(map(str, ids)), "--out", out, "--last", "--kv-type", "f16")
        return array.array("f", open(out, "rb").read())


def nll(ids, *options):
    return json.loads(run("perplexity", model, "--file", ids, "--ids", "--ctx", str(scores["windows"]), "--json", *options))


with tempfile.TemporaryDirectory() as d:
    ids, want = os.path.join(d, "ids"), scores["sum_nll"] / scores["scored"]
    open(ids, "w").write(" ".join(str(i) for key, value in scores.items() if key.startswith("val_first") for i in value))
    r, rounded = nll(ids), nll(ids, "--head", "int8")
    tap.point(f"{r['nll_per_token']:.6f} nats a token over {r['tokens']} tokens ({want:.6f} +- {NLL_BOUND})",
           r["tokens"] == scores["scored"] and abs(r["nll_per_token"] - want) < NLL_BOUND)
    tap.point(f"{rounded['nll_per_token']:.6f} with an int8 head (+- {INT8_BOUND})",
           rounded["head"] == "int8" and 0 < abs(rounded["nll_per_token"] - r["nll_per_token"]) < INT8_BOUND)

for g in texts:
    prompt, want = g["prompt"], g["ids"]
    chat = prompt.startswith("Q: ")
    options = ["--chat"] if chat else []
    r = json.loads(run("run", model, "-p", prompt[3:] if chat else prompt, "--temp", "0", "-n",
                       str(scores.get("max_new_tokens", 400)), "--json", *options))
    got = r["tokens"]
    n = len(want) - r["prompt_tokens"]
    same = next((i for i, (a, b) in enumerate(zip(got, want[-n:])) if a != b), min(len(got), n))
    if got == want[-n:]:
        tap.point(f"{prompt!r}: {n} tokens equal", True)
        continue
    lg = logits_after(want[: r["prompt_tokens"] + same])
    best = sorted(lg, reverse=True)[:2]
    tap.point(f"{prompt!r}: {same} of {n} tokens equal, then a gap of {best[0] - best[1]:.4f} between the two best logits",
           best[0] - best[1] < GAP)
sys.exit(tap.end())
