# SPDX-License-Identifier: Apache-2.0
"""Attacks on connections and on HTTP itself; see abuse.py. Each takes the server and whether there is time, and returns
what it did, in words."""
import contextlib
import http.client
import io
import json
import os
import socket
import struct
import time
import urllib.parse

from serving import until

HOST = b"Host: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"


def post(path, body, headers=b""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (b"POST %s HTTP/1.1\r\n" % path.encode() + HOST + headers +
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


SHORT = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
ASK = post("/v1/completions", SHORT)
ASK_CHUNKED = (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" +
               b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (b'{"prompt": "On', b'ce", "max_tokens"', b": 4}")) +
               b"0\r\nX-Trailer: 1\r\n\r\n")


class Kept(io.BufferedReader):
    """Several replies are read from it; each would close it."""

    def close(self):
        pass


class Raw:
    """A connection on which anything can be sent."""

    def __init__(self, s, receive_bytes=None, timeout=60):
        at = urllib.parse.urlparse(s.url)
        self.sock = socket.socket()
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(timeout)
        self.sock.connect((at.hostname, at.port))
        self.file = Kept(self.sock.makefile("rb", buffering=0))

    def makefile(self, *args):
        return self.file

    def send(self, data):
        """False: the other side takes no more."""
        try:
            self.sock.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def reply(self):
        """Status and body; None: the connection ended, or was reset, without one."""
        r = http.client.HTTPResponse(self)
        try:
            r.begin()
            return r.status, r.read()
        except (http.client.BadStatusLine, ConnectionResetError):
            assert r.status != 200, "an answer was cut"
            return None

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.file.raw.close()
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def answer(s, data):
    with Raw(s) as c:
        c.send(data)
        return c.reply()


# ---------------------------------------------------------------- slowness

def slow_writers(s, long):
    """200 clients send a byte a second. Each is told 408 after --request-time."""
    clients, told, start = [], 0, time.monotonic()
    whole = ASK + b"x" * 1000
    while told < 200 or time.monotonic() < start + (120 if long else 8):
        assert time.monotonic() < start + 300, f"only {told} were told anything"
        clients += [[Raw(s), 0] for _ in range(200 - len(clients))]
        for c in clients:
            c[0].send(whole[c[1]:c[1] + 1])
            c[1] += 1
        time.sleep(1)
        for c in [c for c in clients if c[1] >= 5]:
            code = c[0].reply()
            assert code and code[0] == 408, code
            told += 1
            c[0].close()
            clients.remove(c)
    for c in clients:
        c[0].close()
    return f"{told} were told 408"


def slow_readers(s, long):
    """200 clients take a byte a second of replies that the kernel cannot hold for them. All are dropped in the end."""
    page = max(("/", "/dashboard"), key=lambda p: len(s.get(p).body))
    ask = b"GET %s HTTP/1.1\r\n" % page.encode() + HOST + b"\r\n"
    dropped, end = 0, time.monotonic() + (120 if long else 1)
    before = s.metric("bitnet_connections")
    while time.monotonic() < end:
        clients = [Raw(s, receive_bytes=1024) for _ in range(200)]
        for c in clients:
            c.send(ask * 100)
        until("they are connected", lambda: s.metric("bitnet_connections") >= before + 150)
        for _ in range(8):
            time.sleep(1)
            for c in clients:
                with contextlib.suppress(BlockingIOError, ConnectionResetError):
                    c.sock.recv(1, socket.MSG_DONTWAIT)
        until("they are dropped", lambda: s.metric("bitnet_connections") <= before + 5)
        dropped += len(clients)
        for c in clients:
            c.close()
    return f"{dropped} were dropped"


def slow_stream(s, long):
    """A long stream, read in small pieces by a client with a tiny buffer, arrives whole."""
    body = {"prompt": "One day", "max_tokens": 200, "n": 4, "logprobs": 5, "temperature": 0, "ignore_eos": True}
    want = s.post("/v1/completions", body).json()["choices"][3]["text"]
    with Raw(s, receive_bytes=1024) as c:
        c.send(post("/v1/completions", {**body, "stream": True}, b"Connection: close\r\n"))
        pieces = []
        while piece := c.sock.recv(2048):
            pieces.append(piece)
            time.sleep(0.001)
    raw = b"".join(pieces)
    got = ""
    for line in raw.split(b"\n"):
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                got += choice["text"] if choice["index"] == 3 else ""
    assert got == want, f"{got!r}, not {want!r}"
    return f"{len(raw)} bytes in pieces of 2,048"


# ---------------------------------------------------------------- masses

def connects(s, long):
    """10,000 connections, one after the other: closed, reset, with garbage, with half a head."""
    n = 10000
    start = time.monotonic()
    for i in range(n):
        c = Raw(s)
        if i % 4 == 1:
            c.send(GET[:20])
        elif i % 4 == 2:
            c.send(os.urandom(30) + b"\r\n\r\n")
        c.reset() if i % 2 else c.close()
    return f"{n / (time.monotonic() - start):.0f} a second"


def held(s, long):
    """Three times as many connections as are allowed, silent ones and ones with half a head."""
    clients = []
    end = time.monotonic() + (60 if long else 6)
    while time.monotonic() < end:
        for i in range(1500 - len(clients)):
            clients.append(Raw(s))
            if i % 10 == 0:
                clients[-1].send(GET[:30])
        time.sleep(0.5)
        for c in clients[::3]:
            c.close()
        clients = [c for i, c in enumerate(clients) if i % 3]
    n = len(clients)
    for c in clients:
        c.close()
    return f"{n} at a time, beyond the limit of 500"


def half_closed(s, long):
    """Clients that close their sending side: before a request, inside one, after one."""
    for data in (b"", GET[:10], ASK[:-5], ASK_CHUNKED[:-5]):
        for _ in range(50):
            with Raw(s) as c:
                c.send(data)
                c.sock.shutdown(socket.SHUT_WR)
                assert c.reply() is None
    for _ in range(50):
        with Raw(s) as c:
            c.send(GET)
            c.sock.shutdown(socket.SHUT_WR)
            got = c.reply()
            assert got and got[0] == 200, got
    return "250 of them"


def vanish(s, long):
    """500 clients begin streams of thousands of tokens, and go. Nothing is computed for them."""
    many = post("/v1/completions", {"prompt": "One day", "max_tokens": 3000, "ignore_eos": True, "stream": True})
    before = s.metric("bitnet_request_success_total", finished_reason="abort")
    clients = [Raw(s) for _ in range(400)]
    for c in clients:
        c.send(many)
    clients[0].sock.recv(100)
    for i, c in enumerate(clients):
        c.reset() if i % 2 else c.close()
    for _ in range(100):
        with Raw(s) as c:
            c.send(many)
            c.sock.recv(100)
    # the healthy client has two requests at a time
    until("nothing is left of them", lambda: s.metric("bitnet_num_requests_running") <= 2 and
          s.metric("bitnet_num_requests_waiting") == 0)
    n = s.metric("bitnet_request_success_total", finished_reason="abort") - before
    return f"{n:.0f} of 500 had begun and were cancelled"


# ---------------------------------------------------------------- messages

def cuts(s, long):
    """Requests cut at every byte; the rest never comes."""
    n = 0
    for whole in (ASK, ASK_CHUNKED, GET) if long else (ASK_CHUNKED,):
        for i in range(len(whole)):
            c = Raw(s)
            c.send(whole[:i])
            c.reset() if i % 2 else c.close()
            n += 1
        got = answer(s, whole)
        assert got and got[0] == 200, got
        for i in range(1, len(whole)):  # the rest comes later, by itself
            if not long and i % 7:
                continue
            with Raw(s) as c:
                c.send(whole[:i])
                time.sleep(0.002)
                c.send(whole[i:])
                got = c.reply()
                assert got and got[0] == 200, (i, got)
    return f"{n} cuts"


def chunked(sizes):
    return b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + sizes


BROKEN = [
    (ASK.replace(b"Content-Type", b"Transfer-Encoding: chunked\r\nContent-Type"), 400),
    (ASK.replace(b"Content-Type", b"Content-Length: 1\r\nContent-Type"), 400),
    (chunked(b"").replace(b"chunked", b"gzip, chunked"), 501),
    (chunked(b"").replace(b"chunked", b"\x0bchunked"), 400),
    (chunked(b"-5\r\nhello\r\n0\r\n\r\n"), 400),
    (chunked(b"5 \r\nhello\r\n0\r\n\r\n"), 400),
    (chunked(b"0x5\r\nhello\r\n0\r\n\r\n"), 400),
    (chunked(b"xyz\r\nhello\r\n0\r\n\r\n"), 400),
    (chunked(b"\r\nhello\r\n0\r\n\r\n"), 400),
    (chunked(b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n"), 413),
    (chunked(b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n"), 413),
    (chunked(b"4\r\nhello\r\n0\r\n\r\n"), 400),
    (chunked(b"5;" + b"x" * 300 + b"\r\nhello\r\n0\r\n\r\n"), 400),
    (chunked(b"0\r\n" + b"X: y\r\n" * 100000 + b"\r\n"), 431),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x10\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999999\r\n\r\n", 413),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1073741824\r\n\r\n", 413),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * (10 << 20) + b"\r\n\r\n", 431),
    (b"GET /" + b"y" * (10 << 20) + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 100000 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 120 + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + HOST + b"no colon\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b" folded: line\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X : y\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n", 400),
    (b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /%00 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /%ff HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /\xc3\xa4 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /%c0%af HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    (b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    (b"GET / HTTP/1.1\nHost: localhost\n\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    (b"GET / HTTP/9999999999\r\n\r\n", 400),
    (b"\0" * 100 + b"\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)), 400),  # as TLS begins
    (b"GET / HTTP/1.1\r\n" + HOST + b"Expect: a-miracle\r\n\r\n", 417),
    (b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X-Request-Id: \xff\xfe\r\nOrigin: \xff\r\nConnection: close\r\n\r\n", 200),
]


def broken(s, long):
    """Heads and bodies that are wrong, each with the status that says so."""
    for data, status in BROKEN:
        got = answer(s, data)
        # a client that goes on sending may find the connection reset before it reads the answer
        assert got is None and len(data) > 1 << 20 or got and got[0] == status, (data[:80], status, got)
    return f"{len(BROKEN)} kinds"


def pipelined(s, long):
    """100 requests in one write are answered in order; errors of requests do not end the connection."""
    wrong = post("/v1/completions", b"{")
    with Raw(s) as c:
        c.send((ASK + GET + wrong + GET) * 25)
        got = [c.reply() for _ in range(100)]
    assert [g[0] for g in got] == [200, 200, 400, 200] * 25, got
    assert len({json.loads(g[1])["choices"][0]["text"] for g in got[::4]}) == 1, "texts"
    with Raw(s) as c:
        for _ in range(20):
            for data, status in ((wrong, 400), (post("/nothing", {}), 404), (ASK, 200)):
                c.send(data)
                got = c.reply()
                assert got and got[0] == status, got
    return "100 in one write"


def large_bodies(s, long):
    """Bodies beyond the limit, announced or not, and many that are just below it and never end."""
    mib = b"x" * (1 << 20)
    n_mib = 1024 if long else 40
    for head, wrap in ((b"Content-Length: %d" % (n_mib << 20), lambda p: p),
                       (b"Transfer-Encoding: chunked", lambda p: b"%x\r\n%s\r\n" % (len(p), p))):
        with Raw(s) as c:
            c.send(b"POST /v1/completions HTTP/1.1\r\n" + HOST + head + b"\r\n\r\n")
            any(not c.send(wrap(mib)) for _ in range(n_mib))
            got = c.reply()
            # what is sent after the answer is read for a second; then there may be a reset
            assert got is None or got[0] == 413, got
    got = answer(s, b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (1 << 30))
    assert got and got[0] == 413, got
    return f"of {n_mib} MiB"


def unfinished_bodies(s, long):
    """Bodies just below the limit whose end never comes hold memory no longer than --request-time."""
    part = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 16000000\r\n\r\n" + b"x" * 15000000
    clients = [Raw(s) for _ in range(200 if long else 40)]
    sent = sum([c.send(part) for c in clients])
    codes = [c.reply() for c in clients]
    for c in clients:
        c.close()
    told = [c[0] for c in codes if c]
    assert set(told) <= {408, 503}, told
    return f"{sent} of {len(clients)} times 15 MB; {told.count(408)} were told 408, {told.count(503)} 503"


ATTACKS = [slow_writers, slow_readers, slow_stream, connects, held, half_closed, vanish, cuts, broken, pipelined,
           large_bodies, unfinished_bodies]
