#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Constrained texts beside a validator that is not ours: for every schema of tests/data/schemas, texts drawn at random
from what the masks allow are parsed by json and validated by jsonschema (Debian: python3-jsonschema). The masks
themselves are compared with a trial of every token, on the embedded model's vocabulary and on Llama 3's. Prints TAP.

usage: grammar.py GRAMMAR_DRAW DATA [TEXTS_A_SCHEMA]
"""
import json
import lzma
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from grammar_check import faults, jsonschema
from tap import Missing, Tap

draw, data = sys.argv[1:3]
texts = int(sys.argv[3]) if len(sys.argv) > 3 else 50
stories = os.path.join(data, "stories", "tokenizer.json")
tap = Tap()


def run(mode, tokenizer, schema, n, seed):
    p = subprocess.run([draw, mode, tokenizer, schema, str(n), str(seed)], capture_output=True)
    return p.returncode == 0, p.stdout.decode(), p.stderr.decode(errors="replace")


def texts_fit(name, schema, path):
    good, out, err = run("draw", stories, path, texts, 20261115)
    lines = out.split("\n")[:-1]
    wrong = list(faults(schema, lines)) if good else [err]
    tap.point(f"{name}: {texts} texts {'validate' if jsonschema else 'parse'}", not wrong and len(lines) == texts,
              "\n".join(wrong[:5]))


schemas = sorted(os.listdir(os.path.join(data, "schemas")))
for name in schemas:
    path = os.path.join(data, "schemas", name)
    with open(path) as f:
        texts_fit(name, json.load(f), path)
texts_fit("any object", {"type": "object"}, "json")
tap.point("20 schemas", len(schemas) == 20)

with tempfile.TemporaryDirectory() as scratch:
    llama3 = os.path.join(scratch, "tokenizer.json")
    with open(llama3, "wb") as f:
        f.write(lzma.open(os.path.join(data, "tokenizers", "llama3-tokenizer.json.xz")).read())
    for vocabulary, tokenizer, n in (("stories", stories, 60), ("Llama 3", llama3, 6)):
        for name in schemas:
            good, out, err = run("check", tokenizer, os.path.join(data, "schemas", name), n, 7)
            tap.point(f"{name}, {vocabulary}: {n} masks as tried token by token", good, out + err)
if not jsonschema:
    tap.skip("validation", Missing("no python3-jsonschema: the texts were only parsed"))
sys.exit(tap.end())
