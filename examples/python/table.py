#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills a column of a table: for every row of a CSV file a prompt is made of its columns, all rows are answered in one batch,
and the table is written with a column "answer". With pandas it is one
line: df["answer"] = answers(df.to_dict("records"), prompt, model).

usage: table.py IN.csv OUT.csv "Once upon a time there was a {animal} who" [MODEL]"""
import csv
import sys
from typing import Any, Dict, List

from bitnet import LLM, SamplingParams


def answers(rows: List[Dict[str, Any]], prompt: str, model: str) -> List[str]:
    with LLM(model) as llm:
        outputs = llm.generate([prompt.format(**row) for row in rows], SamplingParams(temperature=0, max_tokens=24, stop=["."]))
    return [o.outputs[0].text.strip() for o in outputs]


def main(source: str, target: str, prompt: str, model: str = "embedded") -> None:
    with open(source, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    with open(target, "w", newline="", encoding="utf-8") as f:
        table = csv.DictWriter(f, [*rows[0], "answer"])
        table.writeheader()
        table.writerows({**row, "answer": answer} for row, answer in zip(rows, answers(rows, prompt, model)))


if __name__ == "__main__":
    main(*sys.argv[1:])
