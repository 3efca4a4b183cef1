#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real vocabularies: every case of llama.cpp's tokenizer tests, and whole texts through two files of one vocabulary.

tests/data/tokenizers holds the files, compressed; README.md there says where they come from. Prints TAP.

usage: tokenizers.py BITNET DATA
"""
import lzma
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from tap import Tap

bitnet, data = sys.argv[1:3]
tap = Tap()


def tokenize(model, text, *options):
    p = subprocess.run([bitnet, "tokenize", model, *options], input=text, capture_output=True)
    return p.stdout if p.returncode == 0 else b"failed: " + p.stderr


with tempfile.TemporaryDirectory() as scratch:

    def unpack(name):
        path = os.path.join(scratch, name)
        with open(path, "wb") as f:
            f.write(lzma.open(os.path.join(data, name + ".xz")).read())
        return path

    for name in ("falcon", "gpt-2", "llama-bpe", "llama-spm"):
        model = unpack(f"ggml-vocab-{name}.gguf")
        cases = open(os.path.join(data, f"ggml-vocab-{name}.gguf.inp"), "rb").read().split(b"\n__ggml_vocab_test__\n")
        wanted = open(os.path.join(data, f"ggml-vocab-{name}.gguf.out"), "rb").read().split(b"\n")
        for i, (text, want) in enumerate(zip(cases[:-1], wanted)):
            got = tokenize(model, text)
            tap.point(f"{name}, case {i}", got.split() == want.split(), f"{text!r}\ngot  {got!r}\nwant {want!r}")
        tap.point(f"{name} has as many answers as cases", len(cases) - 1 == len([w for w in wanted[:-1]]))

    wiki = open(unpack("wiki.test.raw"), "rb").read()
    for one, other in (("llama3-tokenizer.json", "ggml-vocab-llama-bpe.gguf"),
                       ("llama2-tokenizer.model", "ggml-vocab-llama-spm.gguf")):
        a = tokenize(unpack(one), wiki)
        b = tokenize(os.path.join(scratch, other), wiki)
        tap.point(f"{one} and {other}: same ids for {len(wiki)} bytes, {len(b.split())} tokens", a == b and len(b) > len(wiki))
        tap.point(f"{other}: decoding gives the text back",
                  tokenize(os.path.join(scratch, other), b, "--decode") == wiki)
sys.exit(tap.end())
