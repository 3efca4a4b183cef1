#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Continues every line of a text, many at a time; says how fast that was. Without a file the lines are some of its own.

    python batch_infer.py --batch-size 16 --model bitnet-b1.58-3B [--prompts FILE]"""
import argparse
import pathlib
import sys
import time

from bitnet import LLM, SamplingParams

OWN = ["Once upon a time", "The cat sat on the", "A king and a queen", "Tom and Lily went to the park", "The big red truck",
       "There was a dragon who", "One day, a little bird", "The moon was so bright that"] * 4


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--model", default="embedded", help="path or name [the small model in the package]")
    words.add_argument("--batch-size", type=int, default=16, help="texts at a time [16]")
    words.add_argument("--prompts", type=pathlib.Path, help="a file, one prompt in each line")
    words.add_argument("--max-new-tokens", type=int, default=32, help="tokens of each answer [32]")
    words.add_argument("--threads", type=int, default=0, help="0 is one for each usable core [0]")
    asked = words.parse_args()
    prompts = [line for line in asked.prompts.read_text(encoding="utf-8").splitlines() if line.strip()] if asked.prompts else OWN
    with LLM(asked.model, max_num_seqs=asked.batch_size, num_threads=asked.threads) as llm:
        began = time.perf_counter()
        outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=asked.max_new_tokens))
        seconds = time.perf_counter() - began
    for output in outputs:
        print(repr(output.prompt + output.outputs[0].text))
    made = sum(len(output.outputs[0].token_ids) for output in outputs)
    print(f"{len(outputs)} texts, {made} new tokens in {seconds:.2f} s: {made / seconds:.0f} tokens a second", file=sys.stderr)


if __name__ == "__main__":
    main()
