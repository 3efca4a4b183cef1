#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys that share a server, for as long as it takes to be exact: weights 1:2:4:8 get tokens in that ratio, a small user beside a
greedy one waits a few steps of the engine, and a quota holds in every window of a minute.

usage: fairness.py BITNET [--seconds 60] [--only TEXT]      output is TAP
"""
import argparse
import pathlib
import sys
import tempfile
import threading
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import Server, until
from tap import Tap

SHORT = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
WEIGHTS = (1, 2, 4, 8)
CLOSE = 0.05  # of a share
STEPS = 5  # of the engine, that a small user may wait beyond its own time
A_MINUTE_S = 60


def key(name):
    return {"Authorization": f"Bearer sk-{name}"}


def keys_file(folder, *lines):
    file = pathlib.Path(folder, "keys")
    file.write_text("".join(f"sk-{line.split()[0]} name={line}\n" for line in lines))
    file.chmod(0o600)
    return file


class Crowd:
    """Threads that do the same again and again until they are told to stop."""

    def __init__(self):
        self.ended, self.threads, self.wrong = threading.Event(), [], []

    def add(self, n, what):
        def repeat():
            while not self.ended.is_set():
                try:
                    what()
                except Exception as e:
                    self.wrong.append(repr(e))

        self.threads += [threading.Thread(target=repeat, daemon=True) for _ in range(n)]
        for t in self.threads[-n:]:
            t.start()

    def stop(self):
        self.ended.set()
        for t in self.threads:
            t.join(120)
        assert not self.wrong, self.wrong[:3]


def generated(s, name):
    return s.metric("bitnet_key_tokens_total", key=name, kind="generation")


def weights(o, folder):
    """Each has more to ask than it gets."""
    names = [f"w{w}" for w in WEIGHTS]
    file = keys_file(folder, *(f"w{w} weight={w}" for w in WEIGHTS))
    crowd, seed = Crowd(), iter(range(1 << 30))
    with Server(o.program, "--api-key-file", file, "--public-metrics", "--max-num-seqs", 8, "--no-warm-up") as s:
        def ask(name):
            body = {"prompt": "One day", "max_tokens": 24, "ignore_eos": True, "seed": next(seed), "temperature": 1}
            reply = s.post("/v1/completions", body, key(name))
            assert reply.status == 200, reply.body

        for name in names:
            crowd.add(12, lambda name=name: ask(name))
        until("all have got something", lambda: all(generated(s, n) for n in names))
        before = [generated(s, n) for n in names]
        time.sleep(o.seconds)
        got = [generated(s, n) - b for n, b in zip(names, before)]
        crowd.stop()
        assert s.stop() == 0, s.errors[-20:]
    shares = [n / sum(got) for n in got]
    wants = [w / sum(WEIGHTS) for w in WEIGHTS]
    worst = max(abs(a / b - 1) for a, b in zip(shares, wants))
    said = "tokens " + " : ".join(f"{n:.0f}" for n in got) + f"; as 1 : 2 : 4 : 8 within {worst:.1%}"
    assert worst <= CLOSE, said
    return said


def timed(s, n, name):
    times = []
    for _ in range(n):
        start = time.monotonic()
        reply = s.post("/v1/completions", SHORT, key(name))
        times.append(time.monotonic() - start)
        assert reply.status == 200, reply.body
        time.sleep(0.05)
    return sorted(times)


def of_100(times, p):
    return times[min(len(times) - 1, int(len(times) * p / 100))]


def greedy(o, folder):
    """200 long answers of one key at a time; what another one waits beyond its own time is told in steps of the engine."""
    file, n = keys_file(folder, "greedy", "small"), max(20, int(o.seconds * 4))
    crowd, many = Crowd(), {"prompt": "One day", "max_tokens": 400, "ignore_eos": True}
    with Server(o.program, "--api-key-file", file, "--public-metrics") as s:
        until("it is warm", lambda: s.get("/ready").status == 200)
        alone = timed(s, n, "small")
        crowd.add(200, lambda: s.post("/v1/completions", many, key("greedy")))
        until("they are taken", lambda: s.metric("bitnet_num_requests_waiting") > 150)
        steps, seconds = s.metric("bitnet_step_seconds_count"), s.metric("bitnet_step_seconds_sum")
        beside = timed(s, n, "small")
        step = (s.metric("bitnet_step_seconds_sum") - seconds) / (s.metric("bitnet_step_seconds_count") - steps)
        crowd.ended.set()
        s.process.kill()
    p99, own = of_100(beside, 99), of_100(alone, 99)
    # its own tokens take as many steps as alone, and a step with others in it takes longer
    own_beside = own + (SHORT["max_tokens"] + 1) * step
    waits = (p99 - own_beside) / step
    said = (f"alone P99 {own * 1e3:.0f} ms; beside 200 answers P50 {of_100(beside, 50) * 1e3:.0f}, P99 {p99 * 1e3:.0f} ms, of which its own "
            f"{SHORT['max_tokens'] + 1} steps of {step * 1e3:.1f} ms; {waits:.1f} steps more")
    assert waits <= STEPS, said
    return said


def quota(o, folder):
    """30 requests a minute for one that asks as fast as it can: never 31 within a minute, wherever that begins, and no fewer."""
    limit, seconds = 30, A_MINUTE_S + 15
    file, crowd, taken, lock = keys_file(folder, f"asker requests={limit}"), Crowd(), [], threading.Lock()
    with Server(o.program, "--api-key-file", file, "--no-warm-up") as s:
        def ask():
            before = time.monotonic()
            reply = s.post("/v1/completions", {"prompt": "Once", "max_tokens": 1}, key("asker"))
            with lock:
                if reply.status == 200:
                    taken.append((before, time.monotonic()))
                else:
                    assert reply.status == 429 and 1 <= int(reply.headers["Retry-After"]) <= A_MINUTE_S + 1, reply.body
            time.sleep(0.02)

        crowd.add(4, ask)
        time.sleep(seconds)
        crowd.stop()
        assert s.stop() == 0, s.errors[-20:]
    taken.sort()
    most = max(sum(1 for a, b in taken if a >= first and b <= first + A_MINUTE_S) for first, _ in taken)
    assert most <= limit, f"{most} requests within a minute, {limit} are allowed"
    assert len(taken) == 2 * limit, f"{len(taken)} requests in {seconds} s"
    return f"{len(taken)} requests taken in {seconds} s, at most {most} in any minute"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--seconds", type=float, default=A_MINUTE_S)
    p.add_argument("--only", default="")
    o = p.parse_args()
    o.program = str(pathlib.Path(o.program).resolve())
    cases = [f for f in (weights, greedy, quota) if o.only in f.__name__]
    tap = Tap(len(cases))
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            tap.case(case.__name__, case, o, folder)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
