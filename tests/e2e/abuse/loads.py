#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a healthy client of `bitnet serve` notices of one that is hostile: a table. Each load has a server of its own, with
two keys; one of them asks for short greedy answers, each over a new connection, while the other one does its worst. Both are
processes of their own. Every answer must come, be right, and 99 of 100 within the limit, which is meant for a machine that
does nothing else; and the server's memory is bounded.

usage: loads.py BITNET [--seconds 10] [--limit-ms 300] [--only TEXT]      output is the table, and TAP
"""
import argparse
import http.client
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
from serving import Process, Server, until
from tap import Tap, comment

PAUSE_S = 0.02  # of the healthy client, between an answer and the next request
LEAST = 5  # answers that it must get
SHORT = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
LONG = {"prompt": "One day", "max_tokens": 400, "ignore_eos": True}
GROWTH_MIB = 512  # that a load may take for a while; bodies in transit are most of it
KEPT_MIB = 256  # that malloc may keep of it
FEW_DESCRIPTORS = 256
# A step of the engine reads up to 512 tokens, whosever they are, and scoring takes the full head: without
# --itl-target-ms a short answer waits for several of these.
LONGER = {"long_prompts": 3}


class Client:
    def __init__(self, url, key, seconds):
        self.at, self.key, self.end = urllib.parse.urlparse(url), key, time.monotonic() + seconds

    def goes_on(self):
        return time.monotonic() < self.end

    def socket(self, receive_bytes=None):
        s = socket.socket()
        if receive_bytes:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        s.settimeout(60)
        s.connect((self.at.hostname, self.at.port))
        return s

    def post(self, path, body):
        """The status, and the reply's bytes."""
        c = http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=120)
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        c.request("POST", path, body, {"Authorization": "Bearer " + self.key, "Content-Type": "application/json"})
        r = c.getresponse()
        got = r.status, r.read()
        c.close()
        return got

    def head(self, path, n):
        return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\nContent-Length: {n}\r\n\r\n").encode()

    def at_once(self, n, what):
        """what(i) again and again by n threads, until the time is over."""
        count = [0] * n

        def repeat(i):
            while self.goes_on():
                try:
                    what(i)
                except (ConnectionError, http.client.HTTPException, TimeoutError):
                    time.sleep(0.01)  # it may be turned away
                count[i] += 1

        threads = [threading.Thread(target=repeat, args=[i], daemon=True) for i in range(n)]
        for t in threads:
            t.start()
        time.sleep(max(0, self.end - time.monotonic()))
        return sum(count)


# ---------------------------------------------------------------- what is done to the server

def nothing(c):
    time.sleep(max(0, c.end - time.monotonic()))
    return ""


def connect_flood(c):
    return f"{c.at_once(4, lambda i: c.socket().close())} connects"


def embeddings(c):
    body = {"input": ["A cat sat on the mat."] * 2048}
    return f"{c.at_once(3, lambda i: c.post('/v1/embeddings', body))} requests of 2,048 texts"


def unread_streams(c):
    body = json.dumps({**LONG, "stream": True, "logprobs": 5}).encode()
    held = []
    for _ in range(60):
        held.append(c.socket(receive_bytes=1024))
        held[-1].sendall(c.head("/v1/completions", len(body)) + body)
    time.sleep(max(0, c.end - time.monotonic()))
    return f"{len(held)} streams"


def many_choices(c):
    body = {**LONG, "n": 128, "max_tokens": 40}
    return f"{c.at_once(3, lambda i: c.post('/v1/completions', body))} requests with n=128"


def greedy_key(c):
    return f"{c.at_once(200, lambda i: c.post('/v1/completions', LONG))} answers of 400 tokens, 200 at a time"


def long_prompts(c):
    ids = [7 + i % 500 for i in range(480)]
    body = {"prompt": [ids] * 8, "max_tokens": 0, "echo": True, "logprobs": 5}
    return f"{c.at_once(4, lambda i: c.post('/v1/completions', body))} requests of 8 scored prompts"


def large_bodies(c):
    n = (4 << 20) - 100
    bodies = [b'{"prompt": "a", "max_tokens": ' + b"9" * n + b"}", b'{"prompt": [' + b"[]," * (n // 3) + b"[]]}",
              b'{"prompt": "' + b"a " * (n // 2) + b'"}', b'{"prompt": "' + b"\\u00e4" * (n // 6) + b'"}',
              b'{"messages": [' + b'{"role":"user","content":"a"},' * (n // 31) + b'{"role":"user","content":"a"}]}']
    paths = ["/v1/completions"] * 4 + ["/v1/chat/completions"]
    return f"{c.at_once(5, lambda i: c.post(paths[i], bodies[i]))} bodies of 4 MiB"


def hard_schemas(c):
    def ask(i):
        names = {f"p{i}-{time.monotonic_ns()}-{k}": {"type": "string", "pattern": "^[a-z]{1,20}-[0-9]+$"} for k in range(60)}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": names}}}
        c.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "response_format": form})

    return f"{c.at_once(4, ask)} schemas, none twice"


def slow_clients(c):
    held, request = [], c.head("/v1/completions", 2000) + b"x"
    while c.goes_on():
        held += [[c.socket(), 0] for _ in range(500 - len(held))]
        for one in held:
            try:
                one[0].send(request[one[1]:one[1] + 1])
                one[1] += 1
            except OSError:
                one[1] = len(request)
        held = [one for one in held if one[1] < len(request)]
        time.sleep(0.5)
    return "500 clients, 2 bytes a second"


def idle_connections(c):
    held = []
    while c.goes_on():
        while len(held) < 400:
            held.append(c.socket())
        time.sleep(0.2)
        for s in held[::4]:
            s.close()
        held = [s for i, s in enumerate(held) if i % 4]
    return f"400 idle connections, {FEW_DESCRIPTORS} descriptors"


LOADS = [nothing, connect_flood, idle_connections, slow_clients, unread_streams, embeddings, many_choices, greedy_key, long_prompts,
         large_bodies, hard_schemas]


# ---------------------------------------------------------------- the healthy one

def healthy(c):
    """[seconds of each answer], and errors."""
    times, wrong, want = [], [], None
    while c.goes_on():
        start = time.monotonic()
        try:
            status, body = c.post("/v1/completions", SHORT)
            text = json.loads(body)["choices"][0]["text"] if status == 200 else None
            want = want or text
            if text is None or text != want:
                wrong.append(f"{status}: {body[:200]!r}")
        except (OSError, http.client.HTTPException) as e:
            wrong.append(repr(e))
        times.append(time.monotonic() - start)
        time.sleep(PAUSE_S)
    return {"times": times, "wrong": wrong}


def another(name, url, key, seconds):
    """This file as a process of its own."""
    return subprocess.Popen([sys.executable, __file__, "--be", name, url, key, str(seconds)], stdout=subprocess.PIPE, text=True)


# ---------------------------------------------------------------- the table

def few(words):
    return ["sh", "-c", f'ulimit -n {FEW_DESCRIPTORS}; exec "$0" "$@"', *words]


def measured(program, load, keys, seconds):
    words = few([program]) if load is idle_connections else [program]
    with Server(words, "--api-key-file", keys, "--public-metrics", key="sk-healthy") as s:
        process = Process(s.process.pid)
        until("it is warm", lambda: s.get("/ready").status == 200)
        for _ in range(3):
            s.post("/v1/completions", SHORT)
        before = process.rss_mib()
        process.forget_peak()
        bad = another(load.__name__, s.url, "sk-hostile", seconds + 1)
        time.sleep(0.5)
        good = another("healthy", s.url, "sk-healthy", seconds)
        said, did = json.loads(good.communicate()[0]), json.loads(bad.communicate()[0])
        peak = process.peak_mib()
        until("it has ended what the other one wanted", lambda: s.metric("bitnet_num_requests_running") == 0)
        status = s.post("/v1/completions", SHORT).status
        assert status == 200, f"{status} when it was over"
        after = process.rss_mib()
        assert s.stop() == 0, s.errors[-20:]
    return {**said, "did": did, "before": before, "peak": peak, "after": after}


def row(name, r):
    t = sorted(r["times"])
    p50, p99 = t[len(t) // 2] * 1e3, t[min(len(t) - 1, int(len(t) * 0.99))] * 1e3
    comment(f"{name:17} {len(t):7} {p50:7.0f} {p99:7.0f} {t[-1] * 1e3:7.0f} {r['before']:8.0f} {r['peak']:6.0f} {r['after']:6.0f}  {r['did']}")
    return p99


def check(program, load, keys, o):
    r = measured(program, load, keys, o.seconds)
    assert len(r["times"]) >= LEAST and not r["wrong"], f"{len(r['times'])} answers; wrong: {r['wrong'][:2]}"
    p99 = row(load.__name__, r)
    limit = o.limit_ms * LONGER.get(load.__name__, 1)
    assert p99 <= limit, f"99 of 100 answers within {p99:.0f} ms; {limit:g} are the limit"
    assert r["peak"] < r["before"] + GROWTH_MIB and r["after"] < r["before"] + KEPT_MIB, "its memory has grown"


def main():
    if sys.argv[1] == "--be":
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        what = {f.__name__: f for f in [healthy, *LOADS]}[sys.argv[2]]
        json.dump(what(Client(sys.argv[3], sys.argv[4], float(sys.argv[5]))), sys.stdout)
        sys.stdout.flush()
        os._exit(0)  # threads may still wait for answers
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--limit-ms", type=float, default=300)
    p.add_argument("--only", default="")
    o = p.parse_args()
    loads = [f for f in LOADS if o.only in f.__name__]
    tap = Tap(len(loads))
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder, "keys")
        keys.write_text("sk-healthy name=healthy\nsk-hostile name=hostile\n")
        keys.chmod(0o600)
        comment(f"{'load':17} {'answers':>7} {'P50 ms':>7} {'P99':>7} {'most':>7} {'RSS MiB':>8} {'peak':>6} {'after':>6}")
        for load in loads:
            tap.case(load.__name__, check, str(pathlib.Path(o.program).resolve()), load, keys, o)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
