#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What marks cost that are off: instructions per decoded token of a program with them and of one without.

  meson setup build-off -Dprofile=false && ninja -C build-off
  tools/profile_cost.py build/bitnet build-off/bitnet
  tools/profile_cost.py build/bitnet build-off/bitnet --threads 2
  tools/profile_cost.py build/bitnet build-off/bitnet --model model.gguf -- --head exact

Both tell the same text twice under callgrind, a short and a longer piece of it, at temperature 0. The
difference between the two is the cost of the tokens between them; opening the model cancels out. With
several threads the functions that wait for others are left out: how often they look is a matter of
time. What follows -- goes to `bitnet run`. Exit 1 if marks cost more than --limit per cent.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

# src/base/threads/pool.c: looks at a gate until it opens; the rest is what it may be part of
WAITING = ("gate_wait", "meet", "bn_pool_barrier", "work")


def self_costs(path):
    """Instructions by function, without those of the functions that it calls."""
    names, costs, fn, called = {}, {}, None, False
    with open(path, encoding="utf-8") as f:
        for line in f:
            name = re.match(r"fn=\((\d+)\)(?: (.*))?$", line)
            if name:
                if name[2]:
                    names[name[1]] = name[2].split("'")[0]
                fn = names[name[1]]
            elif re.match(r"cfn=\((\d+)\) (.*)$", line):
                callee = re.match(r"cfn=\((\d+)\) (.*)$", line)
                names[callee[1]] = callee[2].split("'")[0]
            elif line.startswith("calls="):
                called = True
            elif re.match(r"[+*\-\d]", line):
                if not called:
                    costs[fn] = costs.get(fn, 0) + int(line.split()[1])
                called = False
    return costs


def instructions(program, args, tokens):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, program, "run", args.model,
                   "-p", args.prompt, "-n", str(tokens), "--temp", "0", "--ignore-eos", "--speculation", "off",
                   "--backend", args.backend, "--ctx-size", "512", "-t", str(args.threads), "--quiet"] + args.more
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit("%s: %s" % (" ".join(command), done.stderr.strip().splitlines()[-1]))
        costs = self_costs(out)
    if args.threads > 1:
        costs = {fn: n for fn, n in costs.items() if fn.split(".")[0] not in WAITING}
    return sum(costs.values())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("on", help="the program with marks, which are off")
    p.add_argument("off", help="the same, built with -Dprofile=false")
    p.add_argument("--model", default="embedded")
    p.add_argument("--prompt", default="Once upon a time")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--backend", default="avx2", help="valgrind has no AVX-512 [avx2]")
    p.add_argument("--tokens", type=int, default=32, help="tokens that are compared [32]")
    p.add_argument("--limit", type=float, default=1.0, help="per cent [1]")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = p.parse_args(sys.argv[1:end])
    args.more = sys.argv[end + 1:]
    per_token = []
    for program in (args.on, args.off):
        short, long = (instructions(program, args, n) for n in (8, 8 + args.tokens))
        per_token.append((long - short) / args.tokens)
        print("%-24s %14.0f instructions a token" % (program, per_token[-1]))
    percent = 100 * (per_token[0] / per_token[1] - 1)
    print("marks that are off: %+.0f instructions a token, %+.4f %%" % (per_token[0] - per_token[1], percent))
    return percent > args.limit


if __name__ == "__main__":
    sys.exit(main())
