#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long from nothing to the first token: starts the program again and again and looks at the clock from outside.

usage: cold_start.py PROGRAM [--runs N] [--prompt TEXT] [--evict] [--cold FILE]... [--json] [-- OPTIONS OF run]

Every time is that of one process, from just before it is made to the first byte of its answer. 'version' says what
the process alone takes. A run of one token is split by what the program itself reports: loading the model, opening the
engine, reading the prompt up to the first token; 'start' is all the rest: the process, options, the prompt's token
ids, and printing. The program's file is in the page cache, unless --evict drops it from there before every run; --cold does
the same with a model's file or its packed copy.
"""
import argparse
import json
import os
import statistics
import sys
import time

WARM_UP = 2  # runs that do not count
PARTS = {"load": "load_ms", "engine": "engine_ms", "first token": "ttft_ms"}


def evict(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def run(words, cold):
    """What the program wrote, and the milliseconds to the first byte of it."""
    for path in cold:
        evict(path)
    read_end, write_end = os.pipe()
    began = time.monotonic_ns()
    pid = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)])
    os.close(write_end)
    text = os.read(read_end, 1 << 16)
    took_ms = (time.monotonic_ns() - began) / 1e6
    while more := os.read(read_end, 1 << 16):
        text += more
    os.close(read_end)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status or not text:
        sys.exit(f"{' '.join(words)}: exit status {status}")
    return text, took_ms


def one_round(program, prompt, options, cold):
    """Milliseconds by name. The parts of 'answer' add up to it."""
    _, version = run([program, "version"], cold)
    text, answer = run([program, "run", "-p", prompt, "-n", "1", "--seed", "1", "--json", *options], cold)
    timings = json.loads(text)["timings"]
    parts = {name: timings[key] for name, key in PARTS.items()}
    return {"version": version, "answer": answer, "start": answer - sum(parts.values()), **parts}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("program", type=os.path.realpath)
    a.add_argument("--runs", type=int, default=20)
    a.add_argument("--prompt", default="Once upon a time")
    a.add_argument("--evict", action="store_true")
    a.add_argument("--cold", action="append", default=[])
    a.add_argument("--json", action="store_true")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = words[end + 1:]
    a = a.parse_args(words[:end])
    cold = a.cold + [a.program] * a.evict
    rounds = [one_round(a.program, a.prompt, options, cold) for _ in range(WARM_UP + a.runs)][WARM_UP:]
    if a.json:
        print(json.dumps({"program": a.program, "bytes": os.path.getsize(a.program), "evicted": a.evict, "rounds": rounds}))
        return
    print(f"{a.program}: {os.path.getsize(a.program) / 1e6:.2f} MB, {a.runs} runs, "
          f"file {'dropped from' if a.evict else 'in'} the page cache; ms")
    print(f"{'':<14}{'median':>9}{'least':>9}{'most':>9}")
    for name in rounds[0]:
        x = [r[name] for r in rounds]
        print(f"{name if name in ('version', 'answer') else '  ' + name:<14}"
              f"{statistics.median(x):>9.2f}{min(x):>9.2f}{max(x):>9.2f}")


if __name__ == "__main__":
    main()
