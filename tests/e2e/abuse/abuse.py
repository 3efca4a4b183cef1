#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bitnet serve among clients that mean it harm. A healthy client asks all the time; it must never notice more than a delay.

usage: abuse.py BITNET [--long] [--only TEXT]      output is TAP; --long takes half an hour
"""
import argparse
import pathlib
import resource
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
import abuse_bodies
import abuse_http
import abuse_life
from serving import CALL_S, Healthy, Process, Server, until
from tap import Tap

# Short times, so that slow clients are seen to be cut off; the rest as a small server would have it.
OPTIONS = ["--request-time", 4, "--idle-time", 8, "--write-time", 4, "--linger-time", 4, "--max-connections", 500,
           "--max-body-mib", 16, "--max-queue", 1024, "--max-num-seqs", 8, "--timeout", 60]
SPARE_MIB = 256  # that malloc may keep; sanitizers keep more
SPARE_DESCRIPTORS = 20
SANITIZED_MIB = 2048


def is_sanitized(program):
    return b"__asan_init" in pathlib.Path(program).read_bytes() or b"__tsan_init" in pathlib.Path(program).read_bytes()


def under_watch(attack, s, long, healthy, spare_mib):
    """The attack, what the healthy client saw of it, and what is left of it in the server."""
    process = Process(s.process.pid)
    rss, descriptors = process.rss_mib(), process.descriptors()
    process.forget_peak()
    said = attack(s, long)
    peak = process.peak_mib()
    until("its descriptors are closed", lambda: process.descriptors() <= descriptors + SPARE_DESCRIPTORS)
    until("the healthy client is answered", lambda: healthy.times or healthy.wrong, CALL_S)
    seen = healthy.since_last()
    until(f"its memory is given back ({process.rss_mib():.0f} of {rss:.0f} MiB)",
          lambda: process.rss_mib() < rss + spare_mib)
    return f"{said}; {seen}; RSS {rss:.0f}, {peak:.0f}, {process.rss_mib():.0f} MiB"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--long", action="store_true")
    p.add_argument("--only", default="")
    o = p.parse_args()
    o.program = str(pathlib.Path(o.program).resolve())
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    spare_mib = SANITIZED_MIB if is_sanitized(o.program) else SPARE_MIB
    attacks = [a for a in abuse_http.ATTACKS + abuse_bodies.ATTACKS if o.only in a.__name__]
    lives = [a for a in abuse_life.CASES if o.only in a.__name__]
    tap = Tap(len(attacks) + len(lives) + 1)
    with tempfile.TemporaryDirectory(prefix="bitnet-abuse-") as folder:
        folder = pathlib.Path(folder)
        with Server(o.program, *OPTIONS, "--access-log", folder / "log") as s:
            healthy = Healthy(s)
            until("the healthy client is answered", lambda: (healthy.times and healthy.gaps) or healthy.wrong, CALL_S)
            healthy.since_last()
            for attack in attacks:
                tap.case(attack.__name__, under_watch, attack, s, o.long, healthy, spare_mib)
            healthy.stop()
            tap.case("ends", abuse_life.ends_well, s)
        for case in lives:
            tap.case(case.__name__, case, o.program, folder, o.long)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
