#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the model right as often as it says? Takes the likeliest token at every place of a text, sorts these by the probability
that the model gave them, and draws how many were right into an SVG. On the diagonal it is calibrated.

usage: calibration.py TEXT.txt OUT.svg [MODEL]"""
import pathlib
import sys

import numpy as np

import bitnet

BINS = 10
SIZE = 320


def measure(file: str, model: str) -> list:
    """(mean probability, share that was right, count) of every bin that has tokens."""
    text = pathlib.Path(file).read_text(encoding="utf-8")
    chances, right = [], []
    with bitnet.Engine(model) as engine:
        ids = engine.model.encode(text, bos=False)
        window = engine.info.ctx_tokens
        for begin in range(0, len(ids) - 1, window):
            piece = ids[begin:begin + window]
            rows = engine.logits(piece)[:-1].astype(np.float64)
            rows -= rows.max(axis=1, keepdims=True)
            chances.append(1 / np.exp(rows).sum(axis=1))  # of the likeliest
            right.append(rows.argmax(axis=1) == piece[1:])
    p, hit = np.concatenate(chances), np.concatenate(right)
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    return [(p[bins == b].mean(), hit[bins == b].mean(), int((bins == b).sum())) for b in range(BINS) if (bins == b).any()]


def draw(points: list) -> str:
    path = " ".join(f"{x * SIZE:.1f},{(1 - y) * SIZE:.1f}" for x, y, _ in points)
    dots = "".join(f'<circle cx="{x * SIZE:.1f}" cy="{(1 - y) * SIZE:.1f}" r="4"><title>{n} tokens</title></circle>' for x, y, n in points)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {SIZE + 20} {SIZE + 20}" width="{SIZE}">'
            f'<path d="M0 {SIZE} L{SIZE} 0 M0 0 V{SIZE} H{SIZE}" stroke="#999" fill="none"/>'
            f'<polyline points="{path}" stroke="#06c" fill="none"/>{dots}</svg>\n')


def main(file: str, target: str, model: str = "embedded") -> None:
    points = measure(file, model)
    pathlib.Path(target).write_text(draw(points), encoding="utf-8")
    total = sum(n for _, _, n in points)
    error = sum(abs(x - y) * n for x, y, n in points) / total
    print(f"{total} tokens, expected calibration error {error:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
