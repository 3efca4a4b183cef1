#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Search by meaning: lines of a file as vectors, and those that point where the question points.

usage: search.py FILE QUESTION [MODEL]"""
import pathlib
import sys

import numpy as np

import bitnet


def main(file: str, question: str, model: str = "embedded") -> None:
    lines = [line for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    with bitnet.Engine(model, max_seqs=8) as engine:
        vectors = engine.embed(lines)
        middle = vectors.mean(axis=0)  # what all texts have in common says nothing
        wanted = engine.embed(question) - middle
    nearness = (vectors - middle) @ wanted
    for i in np.argsort(-nearness)[:3]:
        print(f"{nearness[i]:.3f} {lines[i]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
