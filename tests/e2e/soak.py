#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server under the load tester for a long time: no answer fails, and its memory and descriptors do not grow.

usage: soak.py BITNET [--minutes N]      output is TAP
"""
import argparse
import json
import pathlib
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import Process, Server, until
from tap import Tap

CLIENTS = 32
MOST_GROWTH = 0.05  # of its memory, from the end of the first minute


def soak(program, minutes):
    with Server(program, "--max-num-seqs", 16, "--max-queue", 2 * CLIENTS) as s:
        process = Process(s.process.pid)
        descriptors = process.descriptors()
        done = subprocess.run([program, "loadtest", "--host", s.url, "-c", str(CLIENTS), "--duration", f"{60 * minutes:g}s",
                               "--warmup", f"{6 * minutes:g}s", "--input-len", "16-96", "--output-len", "16-128",
                               "--temperature", "0.8", "--pid", str(s.process.pid), "--json"],
                              stdout=subprocess.PIPE, check=True, timeout=60 * minutes + 600)
        r = json.loads(done.stdout)["runs"][0]
        assert r["ok"] > CLIENTS and r["failed"] == 0, r["outcomes"]
        growth = r["server_memory"]["growth"]
        assert growth < MOST_GROWTH, r["server_memory"]
        until("its descriptors are closed", lambda: process.descriptors() <= descriptors + 1)
        assert s.stop() == 0, s.errors[-20:]
        return f"{r['ok']} answers, memory {growth * 100:+.1f} %"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--minutes", type=float, default=20)
    o = p.parse_args()
    tap = Tap(1)
    tap.case(f"{o.minutes:g} minutes", soak, str(pathlib.Path(o.program).resolve()), o.minutes)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
