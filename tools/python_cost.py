#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much slower LLM.generate of the Python package is than `bitnet batch`: the same prompts, 32 at a time, in turn, several
rounds. Compares the CPU time of one thread, which other work on the machine disturbs little, and with --wall the time that
passes with all threads, for a quiet machine.

usage: PYTHONPATH=build/python python_cost.py build/bitnet [--wall] [ROUNDS]"""
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time

TOKENS = 48
NAMES = [(a, b) for a in "cat dog king star".split() for b in "queen river moon baker".split()] * 16
PROMPTS = [f"Once upon a time there was a {a} and a {b}" for a, b in NAMES]


def package(wall):
    """In a process of its own; prints the seconds."""
    import bitnet

    clock = time.perf_counter if wall else time.process_time
    with bitnet.LLM("embedded", max_num_seqs=32, num_threads=0 if wall else 1) as llm:
        params = bitnet.SamplingParams(temperature=0.8, top_k=40, max_tokens=TOKENS, ignore_eos=True)
        llm.generate(PROMPTS[:1], params)
        began = clock()
        llm.generate(PROMPTS, params)
        print(clock() - began)


def program(bitnet, file, wall):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([bitnet, "batch", "-i", file, "-o", "-", "-j", "32", *([] if wall else ["-t", "1"])], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if wall:
        return time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write(file, prompts):
    for i, prompt in enumerate(prompts):
        line = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0.8, "top_k": 40, "top_p": 1, "min_p": 0, "seed": i, "ignore_eos": True}
        file.write(json.dumps(line) + "\n")
    file.flush()


def main(argv):
    wall = "--wall" in argv
    args = [a for a in argv if a != "--wall"]
    if args == ["package"]:
        return package(wall)
    rounds = int(args[1]) if len(args) > 1 else 5
    ratios = []
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as many, tempfile.NamedTemporaryFile("w", suffix=".jsonl") as one:
        write(many, PROMPTS)
        write(one, PROMPTS[:1])
        for _ in range(rounds):
            theirs = program(args[0], many.name, wall) - program(args[0], one.name, wall)  # without the start
            ours = float(subprocess.run([sys.executable, __file__, "package", *(["--wall"] if wall else [])], check=True,
                                        capture_output=True, text=True).stdout)
            ratios.append(ours / theirs)
            print(f"bitnet batch {theirs:.3f} s, LLM.generate {ours:.3f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
