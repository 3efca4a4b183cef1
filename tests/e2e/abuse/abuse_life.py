# SPDX-License-Identifier: Apache-2.0
"""The server's end and its return, keys and TLS, under attack; see abuse.py. Each takes the program, a folder of its own and
whether there is time, and returns what it saw, in words."""
import base64
import contextlib
import json
import signal
import socket
import ssl
import statistics
import subprocess
import threading
import time

from abuse_http import GET, Raw, answer, post
from serving import Server, until
from tap import find

ASK = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
KEY = "sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH"
PUBLIC = ["/health", "/ready", "/ping", "/", "/dashboard", "/docs", "/openapi.json"]
GUARDED = ["/v1/models", "/v1/models/x", "/models", "/props", "/tokenizer_info", "/lora-adapters", "/metrics", "/metrics.json",
           "/metrics/history.json",
           "/api/tags", "/api/ps", "/api/version", "/version", "/load", "/slots"]
GUARDED_POST = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages",
                "/v1/messages/count_tokens", "/v1/responses/input_tokens", "/tokenize", "/detokenize",
                "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/lora-adapters", "/models/load", "/v1/models/unload",
                "/apply-template", "/chat/completions", "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show",
                "/api/pull", "/api/push", "/api/create", "/api/copy", "/completion", "/completions", "/infill",
                "/embedding", "/embeddings", "/v1/rerank", "/reranking", "/v1/score", "/slots/0?action=save"]


def ends_well(s):
    assert s.stop() == 0, "exit status"
    bad = [l for l in s.errors if "ERROR:" in l or "WARNING:" in l or "runtime error" in l]
    assert not bad, bad


def server_unix(program, path, *options):
    """One that listens on a local socket."""
    p = subprocess.Popen([program, "serve", "--no-warm-up", "--host", f"unix:{path}", *options], stderr=subprocess.DEVNULL)

    def answers():
        with socket.socket(socket.AF_UNIX) as c:
            try:
                c.connect(str(path))
                c.sendall(GET)
                return c.recv(100).startswith(b"HTTP/1.1 200")
            except OSError:
                return False

    until("it listens", answers, 60)
    return p


# ---------------------------------------------------------------- ends

class Loop(threading.Thread):
    """A closed-loop client on one connection. began: when it sent the request that is on its way."""

    def __init__(self, s, stream):
        super().__init__(daemon=True)
        self.s, self.stream = s, stream
        self.texts, self.refused, self.lost, self.error = [], 0, [], None
        self.start()

    def once(self, c):
        c.send(post("/v1/completions", {**ASK, "stream": self.stream}))
        got = c.reply()
        if not got:
            return None
        code, body = got
        if code != 200:
            assert code == 503 and json.loads(body)["error"]["code"] == "draining", got
            self.refused += 1
            return None
        if not self.stream:
            return json.loads(body)["choices"][0]["text"]
        assert body.endswith(b"data: [DONE]\n\n"), "a stream without its end"
        return "".join(json.loads(l[6:])["choices"][0]["text"] for l in body.split(b"\n") if l.startswith(b"data: {"))

    def run(self):
        try:
            while True:
                with Raw(self.s) as c:
                    while True:
                        sent = time.monotonic()
                        text = self.once(c)
                        if text is None:
                            self.lost.append(sent)
                            break
                        self.texts.append(text)
                if self.s.process.poll() is not None:
                    return
        except (ConnectionRefusedError, ConnectionResetError):  # by the connect: nobody listens any more
            return
        except Exception as e:
            self.error = e


def drain_under_load(program, folder, long):
    """SIGTERM among 32 closed-loop clients: all that was taken before is answered, whole and right."""
    with Server(program, "--max-num-seqs", 8, "--drain", 60) as s:
        want = s.post("/v1/completions", ASK).json()["choices"][0]["text"]
        loops = [Loop(s, stream=i % 2 == 0) for i in range(32)]
        until("all were answered", lambda: all(l.texts or l.error for l in loops), 120)
        asked = []

        def all_taken():
            asked.append(time.monotonic())
            return s.metric("bitnet_num_requests_running", "bitnet_num_requests_waiting") == len(loops)

        until("the server has a request of each", all_taken, 120)
        told = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        for l in loops:
            l.join(60)
        took = time.monotonic() - told
        assert s.process.wait(60) == 0, "exit status"
        assert not any(l.error for l in loops), f"a client saw a broken answer: {[l.error for l in loops if l.error]}"
        assert {t for l in loops for t in l.texts} == {want}, "texts"
        early = [told - x for l in loops for x in l.lost if x < asked[-1]]  # when it had one of each
        assert not early, f"requests sent {early} s before the signal were lost or refused"
        n, refused = sum(len(l.texts) for l in loops), sum(l.refused for l in loops)
        return f"{n} answers, {refused} told 503 afterwards, none lost; it ended {took:.1f} s after the signal"


def drains(s):
    """It has seen the signal: it says so, or nobody listens any more."""
    try:
        return s.metric("bitnet_draining") == 1
    except ConnectionError:
        return True


def second_signal(program, folder, long):
    with Server(program, "--no-warm-up", "--drain", 60) as s:
        with Raw(s) as c:
            c.send(post("/v1/completions", {**ASK, "max_tokens": 400, "n": 64}))
            until("it runs", lambda: s.metric("bitnet_num_requests_running") > 0)
            s.process.send_signal(signal.SIGTERM)
            until("it drains", lambda: drains(s))
            start = time.monotonic()
            s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(30) == 0, "exit status"
            return f"it ended after {time.monotonic() - start:.2f} s"


def kill_and_restart(program, folder, long):
    """SIGKILL under load; the port, the local socket and the log are there for the next one."""
    log, port = folder / "killed.log", 0
    for _ in range(3):
        with Server(program, "--no-warm-up", "--access-log", log, "--port", port) as s:
            port = int(s.url.rsplit(":", 1)[1])
            assert s.post("/v1/completions", {**ASK, "max_tokens": 2}).status == 200
            clients = [Raw(s) for _ in range(20)]
            for c in clients:
                c.send(post("/v1/completions", {**ASK, "max_tokens": 400, "stream": True}))
            assert clients[0].sock.recv(100), "nothing came"
            s.process.kill()
            s.process.wait()
            for c in clients:
                c.close()
    lines = log.read_text().splitlines()
    assert len(lines) >= 3 and all(json.loads(l) for l in lines), "the log is broken"
    path = folder / "socket"
    first = server_unix(program, path)
    second = subprocess.run([program, "serve", "--no-warm-up", "--host", f"unix:{path}"], capture_output=True, text=True)
    assert second.returncode != 0 and str(path) in second.stderr, "two servers on one socket"
    first.kill()
    first.wait()
    assert path.exists()
    start = time.monotonic()
    second = server_unix(program, path)
    took = time.monotonic() - start
    second.terminate()
    assert second.wait(30) == 0 and not path.exists(), "it leaves its socket"
    return f"three times on port {port}; from a socket left behind to the first answer {took:.2f} s"


# ---------------------------------------------------------------- keys

def wrong_keys():
    yield "no header", []
    for name, value in (("empty", ""), ("a prefix", KEY[:-1]), ("a byte more", KEY + "x"), ("upper case", KEY.upper()), ("doubled", KEY * 2),
                        ("another", "sk-" + "x" * 40), ("last byte", KEY[:-1] + "Z"), ("first byte", "S" + KEY[1:]), ("quoted", f'"{KEY}"'),
                        ("a list", f"{KEY}, {KEY}"), ("long", "x" * 8000), ("not ASCII", "\xff" * 20), ("a star", "*"), ("null", "null")):
        yield name, ["Bearer " + value]
    for scheme in ("Basic " + base64.b64encode(KEY.encode()).decode(), "Basic " + KEY, "Token " + KEY, KEY, "BearerX " + KEY, "Bearer", "Digest " + KEY):
        yield scheme[:12], [scheme]
    yield "right and wrong", ["Bearer " + KEY, "Bearer x"]
    yield "wrong and right", ["Bearer x", "Bearer " + KEY]
    yield "twice", ["Bearer " + KEY] * 2


def with_headers(method, path, values, more=b""):
    head = b"".join(b"Authorization: %s\r\n" % v.encode("latin-1") for v in values)
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n".encode() + head + more + b"\r\n"


def keys(program, folder, long):
    """No one gets in without the key, and it is told to no one."""
    file, log = folder / "keys", folder / "keys.log"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    options = ["--api-key-file", str(file), "--access-log", str(log)]
    with Server(program, "--no-warm-up", *options, key=KEY) as s:
        said, n = [], 0
        for name, values in wrong_keys():
            for method, paths in (("GET", GUARDED), ("POST", GUARDED_POST)):
                for path in paths:
                    got = answer(s, with_headers(method, path, values))
                    assert got and got[0] == (400 if len(values) > 1 else 401), f"{name} {path}: {got}"
                    said.append(got[1])
                    n += 1
        for path in PUBLIC:
            assert answer(s, with_headers("GET", path, []))[0] == 200, path
        for key, status in ((KEY, 200), (KEY + "x", 401), ("", 401)):
            assert answer(s, with_headers("GET", "/v1/models", [], b"X-Api-Key: %s\r\n" % key.encode()))[0] == status, key
        for more in (b"Proxy-Authorization: Bearer " + KEY.encode() + b"\r\n",
                     b"Cookie: Authorization=Bearer " + KEY.encode() + b"\r\n"):
            assert answer(s, with_headers("GET", "/v1/models", [], more))[0] == 401, more
        assert answer(s, with_headers("GET", f"/v1/models?key={KEY}&api_key={KEY}", []))[0] == 401, "a key in the query"
        for scheme in ("Bearer ", "bearer ", "BEARER "):
            assert answer(s, with_headers("GET", "/v1/models", [scheme + KEY]))[0] == 200, scheme
        said += [s.get(p).body for p in ("/props", "/metrics", "/metrics.json", "/v1/models")]
        said += [s.get("/" + "x", {"Authorization": "Bearer " + KEY}).body]
        times = key_times(s, 2000 if long else 300)
        assert s.stop() == 0, "exit status"
        said += ["".join(s.errors).encode(), log.read_bytes()]
    said.append(subprocess.run([program, "serve", *options, "--api-key", "second-" + KEY, "--print-config"], capture_output=True).stdout)
    assert len(said[-1]) > 100, "no configuration"
    for text in said:
        assert KEY.encode() not in text, f"the key is told: {text[:300]}"
    return f"{n} wrong tries; " + times


def key_times(s, n):
    """Medians of the time that wrong keys take, by how many bytes they share with the right one."""
    shown = {"0": "x" * len(KEY), "half": KEY[:len(KEY) // 2] + "x" * (len(KEY) - len(KEY) // 2), "all but one": KEY[:-1] + "x"}
    times = {name: [] for name in shown}
    with Raw(s) as c:
        for _ in range(n):
            for name, key in shown.items():
                start = time.perf_counter()
                c.send(with_headers("GET", "/v1/models", ["Bearer " + key]))
                assert c.reply()[0] == 401
                times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(t) for name, t in times.items()}
    assert max(medians.values()) < 1.5 * min(medians.values()), medians
    return f"medians of {n} tries that share " + ", ".join(f"{k} bytes {v * 1e6:.1f} us" for k, v in medians.items())


# ---------------------------------------------------------------- TLS

def make_certificate(folder, name, key="key.pem"):
    subprocess.run([find("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / key, "-out", folder / "cert.pem"],
                   check=True, capture_output=True)


def s_client(s, *options, data=b""):
    port = s.url.rsplit(":", 1)[1]
    p = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-quiet" if data else "-brief", *options],
                       input=data, capture_output=True, timeout=60)
    return p.returncode, p.stdout + p.stderr


def tls(program, folder, long):
    """openssl s_client: versions, the certificate, a request; noise on either port; a new certificate."""
    make_certificate(folder, "first.example")
    pem = ["--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem"]
    with Server(program, "--no-warm-up", "--idle-time", 5, *pem) as s:
        assert s.url.startswith("https://"), s.url
        for version in ("1_2", "1_3"):
            code, said = s_client(s, "-tls" + version)
            assert code == 0 and f"TLSv{version.replace('_', '.')}".encode() in said and b"first.example" in said, said
        for version in ("1", "1_1"):
            code, said = s_client(s, "-tls" + version, "-cipher", "DEFAULT:@SECLEVEL=0")
            assert code != 0 and b"Protocol version: TLS" not in said, said
        ask = post("/v1/completions", {**ASK, "max_tokens": 5}, b"Connection: close\r\n")
        code, said = s_client(s, "-CAfile", str(folder / "cert.pem"), "-verify_return_error", "-ign_eof", data=ask)
        assert b"HTTP/1.1 200 OK" in said and b"text_completion" in said, said
        noise = [GET, b"\x16\x03\x01\x00\x05hello", b"\0" * 1000, bytes(range(256)) * 100, b"\x80\x2e\x01\x03\x01"]
        clients = [Raw(s) for _ in range(100)]
        for i, c in enumerate(clients):
            c.send(noise[i % len(noise)])
        for c in clients:
            with contextlib.suppress(ConnectionResetError), c:
                assert not c.sock.recv(1000).startswith(b"HTTP/1.1 200"), "plain HTTP was answered"
        hello = client_hello()
        for i in range(0, len(hello), 1 if long else 10):
            with Raw(s) as c:
                c.send(hello[:i])
        make_certificate(folder, "second.example")
        s.process.send_signal(signal.SIGHUP)
        until("the new certificate is shown", lambda: b"second.example" in s_client(s)[1])
        (folder / "cert.pem").write_text("rubbish")
        s.process.send_signal(signal.SIGHUP)
        until("it says that the certificate is bad", lambda: any("certificate stays" in l for l in s.errors))
        assert b"second.example" in s_client(s)[1], "a bad certificate was taken"
        ends_well(s)
    return f"TLS 1.2 and 1.3, not 1.0 and 1.1; 100 times noise; {len(hello)} bytes of hello cut"


def client_hello():
    """The bytes with which a TLS client begins."""
    context = ssl.create_default_context()
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="a").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


# ---------------------------------------------------------------- descriptors

def has(c):
    """What has come to this client, b"" at its end; None: nothing yet."""
    c.sock.setblocking(False)
    try:
        return c.sock.recv(1000, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""


def few_descriptors(program, folder, long):
    """256 descriptors and 400 connections that say nothing: requests are answered, and the operator is told why there are
    fewer connections than asked for. Then all connections are in use: 503 and a line, not silence."""
    with Server(["sh", "-c", 'ulimit -n 256; exec "$0" "$@"', program]) as s:
        assert any("connections at a time, not 1024: this process may have 256 files open" in l for l in s.errors), s.errors
        with contextlib.ExitStack() as idle:
            for _ in range(400):
                idle.enter_context(Raw(s))
            start = time.monotonic()
            for _ in range(20):
                assert s.post("/v1/completions", {**ASK, "max_tokens": 2}).status == 200
            took = time.monotonic() - start
        half = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
        with contextlib.ExitStack() as busy:
            clients = []
            for _ in range(400):
                clients.append(busy.enter_context(Raw(s)))
                clients[-1].send(half)
            until("all were taken or refused", lambda: has(clients[-1]) is not None)
            told = sum(b" 503 " in (has(c) or b"") for c in clients)
            until("the operator is told", lambda: any("in use: further ones are refused" in l for l in s.errors))
        until("requests are answered again", lambda: s.post("/v1/completions", {**ASK, "max_tokens": 2}).status == 200)
        assert told >= 8, told  # beyond 32 at a time they are just closed
        ends_well(s)
    return f"20 answers among 400 idle connections in {took:.1f} s; with all in use {told} are told 503"


CASES = [few_descriptors, drain_under_load, second_signal, kill_and_restart, keys, tls]
