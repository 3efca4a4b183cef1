#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three servers behind HAProxy, with the configuration of deploy/haproxy, of which only the ports are changed.

usage: fleet.py BITNET      output is TAP
"""
import argparse
import concurrent.futures
import contextlib
import csv
import http.client
import http.server
import io
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(1, str(ROOT / "tests" / "lib"))
from serving import Server, until
from tap import Tap, comment, find

CONFIG = ROOT / "deploy/haproxy/haproxy.cfg"
NAMES = "abc"
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 450, "ignore_eos": True, "seed": 3}
CALL_S = 120


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def free_ports(n):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


class Fleet:
    """The proxy and what is behind it. changes: [(text, text)] in the configuration"""

    def __init__(self, folder, programs, changes=()):
        self.programs = programs  # {name: how to start one on a port}
        self.ports = dict(zip([*NAMES, "front", "status"], free_ports(5)))
        text = CONFIG.read_text()
        for old, new in ((":8000", f"127.0.0.1:{self.ports['front']}"), (":8404", f":{self.ports['status']}"),
                         *((f":808{i}", f":{self.ports[n]}") for i, n in enumerate(NAMES, 1)), *changes):
            assert old in text, f"the configuration has no {old}"
            text = text.replace(old, new)
        self.file = folder / "haproxy.cfg"
        self.file.write_text(text)
        self.servers = {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.stack = stack
            for name in NAMES:
                self.start(name)
            self.log = stack.enter_context(tempfile.TemporaryFile())
            self.proxy = subprocess.Popen([find("haproxy", "/usr/sbin/haproxy"), "-f", self.file], stdout=self.log, stderr=subprocess.STDOUT)
            stack.callback(lambda: (self.proxy.kill(), self.proxy.wait()))
            until("the proxy runs", lambda: all(self.state(n).startswith("UP") for n in NAMES))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def start(self, name):
        self.servers[name] = self.stack.enter_context(self.programs[name](self.ports[name]))

    def rows(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.ports["status"], timeout=CALL_S)
            c.request("GET", "/;csv")
            text = c.getresponse().read().decode().lstrip("# ")
            return {r["svname"]: r for r in csv.DictReader(io.StringIO(text)) if r["pxname"] == "servers"}
        except OSError:
            return {}

    def state(self, name):
        return self.rows().get(name, {}).get("status", "")

    def counts(self):
        return {n: int(r["stot"]) for n, r in self.rows().items() if n in NAMES}

    def ask(self, path, body, headers=()):
        """(status, body) through the proxy"""
        c = http.client.HTTPConnection("127.0.0.1", self.ports["front"], timeout=CALL_S)
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **dict(headers)})
        r = c.getresponse()
        return r.status, r.read()


def serve(program):
    return lambda port: Server(program, "--port", port, "--no-warm-up", "--max-num-seqs", 4, "-t", 1)


def whole(stream):
    return stream.endswith(b"data: [DONE]\n\n")


# ------------------------------------------------------------------ cases

def checked(folder, program):
    r = subprocess.run([find("haproxy", "/usr/sbin/haproxy"), "-c", "-f", CONFIG], capture_output=True, text=True)
    equal((r.returncode, r.stdout.strip() + r.stderr.strip()), (0, "Configuration file is valid"), "haproxy -c")


def talk(fleet, i, turns):
    """A conversation that grows; whose requests it was."""
    before = fleet.counts()
    messages = [{"role": "user", "content": f"Tell me story number {i} about a dog, a cat and a big red ball in the park."}]
    if i % 2:
        messages.insert(0, {"role": "system", "content": "Tell short stories."})
    for turn in range(turns):
        # one at a time: a server that has more to do than others passes conversations on
        until("the last one has ended", lambda: all(r["scur"] == "0" for r in fleet.rows().values()))
        status, body = fleet.ask(CHAT, {"messages": messages, "max_tokens": 16, "temperature": 0})
        equal(status, 200, body)
        messages += [json.loads(body)["choices"][0]["message"], {"role": "user", "content": f"And then? ({turn})"}]
    after = fleet.counts()
    return [n for n in NAMES if after[n] > before[n]]


def conversations(folder, program):
    hits, spread = {}, {}
    roundrobin = re.search(r"    balance hash.*\n    hash-type.*\n    hash-balance-factor.*\n", CONFIG.read_text())[0]
    for way, changes in (("by conversation", []), ("in turn", [(roundrobin, "    balance roundrobin\n")])):
        with Fleet(folder, dict.fromkeys(NAMES, serve(program)), changes) as fleet:
            whose = [talk(fleet, i, 4) for i in range(8)]
            hits[way] = sum(s.metric("bitnet_prefix_cache_hits_total") for s in fleet.servers.values())
            spread[way] = [len(w) for w in whose]
            if not changes:
                for key in ({"prompt_cache_key": "k1"}, {"user": "someone"}):
                    before = fleet.counts()
                    for i in range(4):
                        equal(fleet.ask(TEXT, {"prompt": f"{i} cats", "max_tokens": 1, **key})[0], 200, key)
                    equal(sorted(n - before[k] for k, n in fleet.counts().items()), [0, 0, 4], f"requests with {key}")
    equal(spread["by conversation"], [1] * 8, "servers a conversation")
    assert min(spread["in turn"]) > 1
    assert hits["by conversation"] > 1.2 * hits["in turn"], f"tokens found in the cache: {hits}"
    return f"tokens found in the prefix cache: {hits}"


class Hesitant(http.server.BaseHTTPRequestHandler):
    """A backend that sends the end of its stream when the beginning has arrived."""
    arrived = threading.Event()

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n" if self.arrived.wait(30) else b"data: late\n\n")


@contextlib.contextmanager
def hesitant(port):
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Hesitant) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield s
        s.shutdown()


def not_buffered(folder, program):
    with Fleet(folder, dict.fromkeys(NAMES, hesitant)) as fleet:
        with socket.create_connection(("127.0.0.1", fleet.ports["front"]), CALL_S) as c:
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            seen = b""
            while b"first\n\n" not in seen:
                more = c.recv(4096)
                assert more, f"the connection ended: {seen}"
                seen += more
            Hesitant.arrived.set()
            while b"[DONE]" not in seen:
                more = c.recv(4096)
                assert more, f"the end came only after the beginning had been held back: {seen}"
                seen += more


def streams(fleet, pool, n):
    """n long streams, each of a conversation of its own, all begun: [(server, future)]"""
    begun = []
    for i in range(n):
        before = fleet.counts()
        f = pool.submit(fleet.ask, TEXT, {**LONG, "stream": True}, {"X-Conversation-Id": f"talk {i}"})
        until("it was passed on", lambda: fleet.counts() != before)
        begun.append((next(k for k, v in fleet.counts().items() if v > before[k]), f))
    return begun


def all_are_answered(fleet, n=20):
    replies = [fleet.ask(TEXT, {"prompt": "The cat", "max_tokens": 2}, {"X-Conversation-Id": f"new {i}"}) for i in range(n)]
    equal([r[0] for r in replies], [200] * n, "new requests")


def ended(future):
    try:
        status, body = future.result()
        return status == 200 and whole(body)
    except (OSError, http.client.HTTPException):
        return False


def killed(folder, program):
    with Fleet(folder, dict.fromkeys(NAMES, serve(program))) as fleet, concurrent.futures.ThreadPoolExecutor(16) as pool:
        begun = streams(fleet, pool, 12)
        victim = begun[-1][0]
        fleet.servers[victim].process.send_signal(signal.SIGKILL)
        all_are_answered(fleet)
        lost = [name for name, f in begun if not ended(f)]
        assert set(lost) <= {victim}, f"{victim} was killed, and streams of {lost} broke off"
        fleet.start(victim)
        until("it is back", lambda: fleet.state(victim).startswith("UP"))
        return f"{len(lost)} of {len(begun)} streams lost, all of the killed server"


def drained(folder, program):
    with Fleet(folder, dict.fromkeys(NAMES, serve(program))) as fleet, concurrent.futures.ThreadPoolExecutor(16) as pool:
        begun = streams(fleet, pool, 9)
        victim = begun[-1][0]
        fleet.servers[victim].process.send_signal(signal.SIGTERM)
        all_are_answered(fleet)
        equal([ended(f) for _, f in begun], [True] * len(begun), "streams that had begun")
        equal(fleet.servers[victim].process.wait(CALL_S), 0, "its exit status")
        fleet.start(victim)
        until("it is back", lambda: fleet.state(victim).startswith("UP"))


def stopped(folder, program):
    with Fleet(folder, dict.fromkeys(NAMES, serve(program))) as fleet, concurrent.futures.ThreadPoolExecutor(16) as pool:
        before = fleet.counts()
        equal(fleet.ask(TEXT, {"prompt": "One", "max_tokens": 1}, {"X-Conversation-Id": "me"})[0], 200, "before")
        victim = next(k for k, v in fleet.counts().items() if v > before[k])
        fleet.servers[victim].process.send_signal(signal.SIGSTOP)
        try:
            start = time.monotonic()
            hung = pool.submit(fleet.ask, TEXT, {"prompt": "One", "max_tokens": 1}, {"X-Conversation-Id": "me"})
            until("it is taken out", lambda: fleet.state(victim).startswith("DOWN"))
            equal(hung.result()[0], 200, "who waited for it is answered by another server")
            seconds = time.monotonic() - start
            all_are_answered(fleet)
        finally:
            fleet.servers[victim].process.send_signal(signal.SIGCONT)
        until("it is back", lambda: fleet.state(victim).startswith("UP"))
        return f"a request to the stopped server was answered after {seconds:.1f} s"


def hidden(folder, program):
    with Fleet(folder, dict.fromkeys(NAMES, serve(program))) as fleet:
        for path in ("/metrics", "/metrics.json", "/metrics/history.json", "/props", "/slots", "/dashboard"):
            c = http.client.HTTPConnection("127.0.0.1", fleet.ports["front"], timeout=CALL_S)
            c.request("GET", path)
            equal(c.getresponse().status, 404, path)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    o = p.parse_args()
    cases = (checked, conversations, not_buffered, killed, drained, stopped, hidden)
    tap = Tap(len(cases))
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="bitnet-fleet-") as folder:
            tap.case(case.__name__.replace("_", " "), case, pathlib.Path(folder), str(pathlib.Path(o.program).resolve()))
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
