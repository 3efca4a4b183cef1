#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bitnet serve from outside: every endpoint, errors, keys, browsers, a full queue, clients that go, shutting down.

usage: server.py BITNET [--only TEXT]      output is TAP
"""
import argparse
import base64
import concurrent.futures
import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import traceback

from serving import Reply, Server, until

STORY = "Once upon a time there was a"
SECRET = "xylophone-zebra-quartz"  # in prompts; must not be in the log
CHAT = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 12, "seed": 7}
TEXT = {"prompt": STORY, "max_tokens": 12, "seed": 7}
LONG = {"prompt": STORY, "max_tokens": 400, "ignore_eos": True, "temperature": 1}


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def shaped(reply, status, code=None, words=""):
    """An error as OpenAI words it."""
    equal(reply.status, status, f"status of {reply.body[:200]!r}")
    equal(reply.headers["Content-Type"], "application/json", "type")
    error = reply.json()["error"]
    equal(sorted(error), ["code", "message", "param", "type"], "members of the error")
    assert error["message"] and words in error["message"], error
    if code:
        equal(error["code"], code, "code")
    assert reply.headers["X-Request-Id"], "no request id"
    return error


def text_of(reply):
    return [c["text"] for c in reply.json()["choices"]]


def joined(reply):
    """Texts of the choices of a streamed chat or completion."""
    texts = {}
    for e in reply.events():
        for c in e["choices"]:
            piece = c["text"] if "text" in c else c["delta"].get("content") or ""
            texts[c["index"]] = texts.get(c["index"], "") + piece
    return [texts[i] for i in sorted(texts)]


# ---------------------------------------------------------------- one server for most of it

def endpoints(s, t):
    model = s.get("/v1/models").json()["data"][0]
    for member in ("n_params", "n_ctx_train", "n_vocab", "n_embd", "size"):
        assert model["meta"][member] > 0, member
    equal((model["object"], model["owned_by"]), ("model", "bitnet"), "model")
    equal(s.get("/v1/models/" + model["id"]).json()["id"], model["id"], "one model")
    equal(s.get("/models").json()["data"][0]["id"], model["id"], "without /v1")
    equal(s.get("/health").json(), {"status": "ok"}, "health")
    until("ready", lambda: s.get("/ready").status == 200)
    props = s.get("/props").json()
    for member in ("model", "engine", "default_generation_settings", "version", "build", "config"):
        assert member in props, member
    assert "bitnet_build_info" in s.get("/metrics").body.decode()
    assert s.get("/metrics.json").json()
    ids = s.post("/tokenize", {"content": STORY}).json()["tokens"]
    equal(s.post("/detokenize", {"tokens": ids}).json()["content"], STORY, "there and back")
    pieces = s.post("/tokenize", {"text": "caf\u00e9 \U0001f600", "with_pieces": True}).json()["tokens"]
    raw = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    equal(raw.decode(), "caf\u00e9 \U0001f600", "pieces")
    assert STORY in s.post("/apply-template", {"messages": CHAT["messages"]}).json()["prompt"]
    chat = s.post("/v1/chat/completions", CHAT).json()
    equal(chat["object"], "chat.completion", "object")
    equal(chat["usage"]["completion_tokens"], 12, "tokens")
    equal(s.post("/v1/completions", TEXT).json()["object"], "text_completion", "object")
    equal(s.post("/v1/completions", {**TEXT, "prompt": ids}).status, 200, "token ids")
    equal(len(text_of(s.post("/v1/completions", {**TEXT, "prompt": [STORY, "The"], "n": 2}))), 4, "choices")
    response = s.post("/v1/responses", {"input": STORY, "max_output_tokens": 12}).json()
    equal(response["object"], "response", "object")
    head = s.ask("HEAD", "/health")
    equal((head.status, head.body), (200, b""), "HEAD")
    page = s.get("/")
    equal(page.status, 200, "page")
    equal(s.get("/", {"If-None-Match": page.headers["ETag"]}).status, 304, "page again")
    equal(s.get("/dashboard").status, 200, "dashboard")


def embeddings(s, t):
    texts = ["A cat sat on the mat", "A dog ran"]
    reply = s.post("/v1/embeddings", {"input": texts}).json()
    want = [json.loads(l)["embedding"] for l in t.run("embed", *texts, "--json").splitlines()]
    equal([d["embedding"] for d in reply["data"]], want, "as bitnet embed")
    coded = s.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"}).json()["data"]
    for d, w in zip(coded, want):
        raw = base64.b64decode(d["embedding"])
        equal(list(struct.unpack(f"<{len(raw) // 4}f", raw)), [struct.unpack("f", struct.pack("f", x))[0] for x in w],
              "base64")
    n = len(want[0])
    equal(s.post("/v1/embeddings", {"input": [1, 2, 3], "dimensions": n}).json()["usage"]["prompt_tokens"], 3, "ids")
    equal(len(s.post("/v1/embeddings", {"input": [[1, 2], [3]]}).json()["data"]), 2, "lists of ids")
    last = s.post("/v1/embeddings", {"input": texts[0], "pooling": "last"}).json()["data"][0]["embedding"]
    assert last != want[0], "pooling has no effect"
    for bad in ({}, {"input": []}, {"input": [[]]}, {"input": "a", "dimensions": n - 1}, {"input": [1, "a"]},
                {"input": "a", "poling": "last"}, {"input": "a", "encoding_format": "hex"}, {"input": [10 ** 8]},
                {"input": 5}, {"input": ["a"] * 2049}):
        shaped(s.post("/v1/embeddings", bad), 400)


def streams(s, t):
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
        for more in ({}, {"n": 3}, {"stop": ["a"]}, {"logprobs": True if "chat" in path else 2}):
            whole, stream = s.post(path, {**body, **more}), s.post(path, {**body, **more, "stream": True})
            texts = [c["text"] if "text" in c else c["message"]["content"] for c in whole.json()["choices"]]
            equal(joined(stream), texts, f"{path} {more}")
            assert stream.body.endswith(b"data: [DONE]\n\n"), "no end mark"
            equal(stream.headers["Content-Type"].split(";")[0], "text/event-stream", "type")
            equal(stream.headers["Cache-Control"], "no-cache", "cache")
    last = s.post("/v1/completions", {**TEXT, "stream": True, "stream_options": {"include_usage": True}}).events()[-1]
    equal(last["usage"]["completion_tokens"], 12, "usage")
    body = {"input": STORY, "max_output_tokens": 12, "temperature": 0}
    whole = s.post("/v1/responses", body).json()["output"][0]["content"][0]["text"]
    events = s.post("/v1/responses", {**body, "stream": True}).events()
    equal("".join(e["delta"] for e in events if e["type"] == "response.output_text.delta"), whole, "response")
    equal(events[-1]["type"] in ("response.completed", "response.incomplete"), True, "last event")


def seeds(s, t):
    free = {"prompt": STORY, "max_tokens": 20}
    first = s.post("/v1/completions", free)
    seed = int(first.headers["X-Bitnet-Seed"])
    again = s.post("/v1/completions", {**free, "seed": seed})
    equal(text_of(again), text_of(first), "with the seed of the header")
    equal(again.headers["X-Bitnet-Seed"], None, "a seed that the client knows")
    assert len({s.post("/v1/completions", free).headers["X-Bitnet-Seed"] for _ in range(8)}) == 8, "seeds repeat"


def same_as_run(s, t):
    """In a crowd of 32 others."""
    plain = ["--json", "--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"]
    want = {seed: json.loads(t.run("run", STORY, "-n", "40", "--seed", str(seed), *plain))["text"] for seed in range(1, 9)}
    stop = threading.Event()

    def crowd(i):
        n = 0
        while not stop.is_set():
            body = {"prompt": STORY + " " + str(i + n), "max_tokens": 30, "temperature": 1}
            equal(s.post("/v1/completions", body).status, 200, "one of the crowd")
            n += 1
        return n

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        others = [pool.submit(crowd, i) for i in range(32)]
        try:
            body = {"prompt": STORY, "max_tokens": 40}
            replies = {seed: pool.submit(s.post, "/v1/completions", {**body, "seed": seed}) for seed in want}
            for seed, r in replies.items():
                equal(text_of(r.result())[0], want[seed], f"seed {seed}")
        finally:
            stop.set()
        return f"{sum(o.result() for o in others)} others"


def errors(s, t):
    chat, text = "/v1/chat/completions", "/v1/completions"
    post = s.post
    shaped(post(chat, b""), 400, words="no body")
    shaped(post(chat, b"{"), 400, words="JSON")
    shaped(post(chat, b"[]"), 400, words="object")
    shaped(post(chat, b'{"messages": "\xff"}'), 400, words="UTF-8")
    shaped(post(chat, b"[" * 100000), 400)
    shaped(post(text, {**TEXT, "temprature": 1}), 400, words="temprature")
    shaped(post(text, {**TEXT, "temperature": "hot"}), 400, words="temperature")
    shaped(post(text, {"max_tokens": 3}), 400, words="prompt")
    shaped(post(chat, {"messages": []}), 400)
    shaped(post(text, {**TEXT, "prompt": [1] * 100000}), 400, "context_length_exceeded")
    shaped(post(text, {**TEXT, "prompt": [1] * 100000, "stream": True}), 400, "context_length_exceeded")
    shaped(post(text, {**TEXT, "prompt": STORY * 100}), 400, "context_length_exceeded", "tokens")
    shaped(post(text, {**TEXT, "prompt": STORY * 100000}), 400, "context_length_exceeded", "bytes")
    shaped(post(chat, {"messages": [{"role": "user", "content": STORY * 10000}] * 10}), 400, "context_length_exceeded")
    shaped(post(text, {**TEXT, "prompt": [10 ** 7]}), 400)
    shaped(post(text, {**TEXT, "prompt": [10 ** 7], "stream": True}), 400)
    shaped(post(text, {**TEXT, "grammar": "root ::= ("}), 400)
    shaped(post(text, {**TEXT, "grammar": "root ::= (", "stream": True}), 400)
    form = {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}
    shaped(post(chat, {**CHAT, "response_format": form}), 400)
    shaped(post("/v1/responses", {"input": STORY, "previous_response_id": "resp_1"}), 400, words="previous_response_id")
    shaped(post("/tokenize", {"content": 5}), 400)
    shaped(post("/tokenize", {"content": "a", "addspecial": True}), 400, words="addspecial")
    shaped(post("/tokenize", {"content": "a" * (3 << 20)}), 400, words="bytes")
    shaped(post("/detokenize", {"tokens": [-1]}), 400)
    shaped(post("/detokenize", {"tokens": [10 ** 7]}), 400)
    shaped(post("/apply-template", {}), 400)
    shaped(post("/v1/chat/completion", CHAT), 404, words="/v1/chat/completions")
    shaped(s.get("/no/such/thing/at/all"), 404)
    shaped(s.get("/v1/models/gpt-4"), 404, "model_not_found")
    wrong = s.get(chat)
    shaped(wrong, 405)
    assert "POST" in wrong.headers["Allow"], "Allow"
    shaped(post("/health", {}), 405)
    shaped(s.ask("DELETE", text), 405)
    equal(s.get("/health", {"X-Request-Id": "mine-1.2_3"}).headers["X-Request-Id"], "mine-1.2_3", "id taken over")
    for bad in ("a b", "x" * 65, "<b>"):
        assert s.get("/health", {"X-Request-Id": bad}).headers["X-Request-Id"] != bad, "id taken over"
    equal(s.post(text, {**TEXT}).status, 200, "it goes on")


def browsers(s, t):
    origin = {"Origin": "http://page.example"}
    allowed = s.get("/v1/models", origin)
    equal(allowed.headers["Access-Control-Allow-Origin"], "http://page.example", "allowed")
    assert "X-Bitnet-Seed" in allowed.headers["Access-Control-Expose-Headers"]
    equal(s.get("/v1/models", {"Origin": "http://other.example"}).headers["Access-Control-Allow-Origin"], None, "other")
    asked = s.ask("OPTIONS", "/v1/chat/completions", None,
                  {**origin, "Access-Control-Request-Method": "POST",
                   "Access-Control-Request-Headers": "authorization,x-stainless-os"})
    equal((asked.status, asked.body), (204, b""), "preflight")
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]
    equal(asked.headers["Access-Control-Allow-Headers"], "authorization,x-stainless-os", "headers")
    wrong = s.post("/v1/completions", {}, origin)
    shaped(wrong, 400)
    equal(wrong.headers["Access-Control-Allow-Origin"], "http://page.example", "errors")


def vanishing(s, t):
    """A client that goes is not computed for."""
    before = s.metric("bitnet_request_success_total", finished_reason="abort")
    for stream in (True, False):
        c = s.connect()
        c.request("POST", "/v1/completions", json.dumps({**LONG, "n": 8, "stream": stream}), s.headers())
        if stream:
            assert c.getresponse().read(100), "no beginning"
        else:
            until("it runs", lambda: s.metric("bitnet_num_requests_running") > 0)
        c.sock.shutdown(socket.SHUT_RDWR)
        c.close()
        until("nothing runs", lambda: s.metric("bitnet_num_requests_running") == 0)
    after = s.metric("bitnet_request_success_total", finished_reason="abort")
    equal(after - before, 16, "cancelled answers")


def slow_reader(s, t):
    """What a client does not read waits as text; it gets all of it in the end."""
    body = {**LONG, "n": 16, "logprobs": 20, "seed": 5, "max_tokens": 80}
    want = text_of(s.post("/v1/completions", body))
    c = s.connect()
    c.sock = socket.socket()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.sock.connect((c.host, c.port))
    done = s.metric("bitnet_request_success_total")
    c.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), s.headers())
    until("it is computed", lambda: s.metric("bitnet_num_requests_running") == 0 and
          s.metric("bitnet_generation_tokens_total") >= 2 * 16 * 80, 60)
    r = c.getresponse()
    reply = Reply(r.status, r.headers, r.read())
    equal(joined(reply), want, "texts")
    until("it is counted", lambda: s.metric("bitnet_request_success_total") == done + 16)
    return f"{len(reply.body)} bytes"


def steady(x):
    """Without what differs from call to call."""
    if isinstance(x, list):
        return [steady(v) for v in x]
    if not isinstance(x, dict):
        return x
    return {k: steady(v) for k, v in x.items() if k not in ("created", "created_at", "cached_tokens")
            and not (k == "id" and re.search("[-_][0-9a-f]{16}", str(v)))}


def documented(s, t):
    """The transcripts of docs/serve/api.md."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "serve" / "api.md").read_text()
    blocks = re.findall(r"```console\n\$ curl -s localhost:8080(\S+)(?: -d '(.*?)')?\n(.*?)\n```", text, re.S)
    for path, body, want in blocks:
        got = s.post(path, body.encode()) if body else s.get(path)
        equal(steady(got.json()), steady(json.loads(want)), f"docs/serve/api.md, {path}")
    equal(len(blocks), text.count("```console"), "transcripts understood")
    return f"{len(blocks)} transcripts"


def log_lines(s, t):
    s.post("/v1/completions", {"prompt": SECRET, "max_tokens": 5}, {"X-Request-Id": "for-the-log"})
    until("the line is there", lambda: "for-the-log" in t.log.read_text())
    lines = [json.loads(l) for l in t.log.read_text().splitlines()]
    assert SECRET not in t.log.read_text() and STORY not in t.log.read_text(), "prompts are in the log"
    line = next(l for l in lines if l["request_id"] == "for-the-log")
    equal((line["status"], line["method"], line["path"]), (200, "POST", "/v1/completions"), "line")
    moved = t.log.with_suffix(".1")
    t.log.rename(moved)
    s.process.send_signal(signal.SIGHUP)
    until("a new log", t.log.exists)
    s.get("/health", {"X-Request-Id": "in-the-new-one"})
    until("the line is there", lambda: "in-the-new-one" in t.log.read_text())
    return f"{len(lines)} lines"


SHARED = [endpoints, embeddings, streams, seeds, same_as_run, errors, browsers, vanishing, slow_reader, documented,
          log_lines]


# ---------------------------------------------------------------- servers of their own

def keys(t):
    file = t.folder / "keys"
    file.write_text("# keys\nfirst-key\n")
    file.chmod(0o600)
    with Server(t.program, "--no-warm-up", "--api-key-file", file, "--alias", "tiny") as s:
        missing = s.post("/v1/completions", TEXT)
        shaped(missing, 401, "invalid_api_key", "needed")
        assert missing.headers["WWW-Authenticate"].startswith("Bearer")

        def code(key, path="/v1/models"):
            return s.get(path, {"Authorization": "Bearer " + key}).status

        shaped(s.get("/v1/models", {"Authorization": "Bearer wrong"}), 401, "invalid_api_key")
        for wrong in ("", "first-ke", "first-keyy", "x" * 5000, "# keys"):
            equal(code(wrong), 401, f"key {wrong[:20]!r}")
        equal(s.get("/v1/models", {"Authorization": "Basic first-key"}).status, 401, "another scheme")
        equal(code("first-key"), 200, "the right key")
        named = s.post("/v1/completions", TEXT, {"Authorization": "bearer first-key"}).json()
        equal(named["model"], "tiny", "the model's name")
        equal(code("first-key", "/v1/models/tiny"), 200, "the model by its name")
        for path in ("/health", "/ready", "/", "/dashboard"):
            assert s.get(path).status in (200, 503), path
        for path in ("/props", "/metrics", "/metrics.json", "/v1/models/x"):
            equal(s.get(path).status, 401, path)
        equal(s.get("/nothing").status, 404, "no such path")
        file.write_text("second-key\n")
        s.process.send_signal(signal.SIGHUP)
        until("the second key is known", lambda: code("second-key") == 200)
        equal(code("first-key"), 401, "the old key")
        for bad in ("", "x" * 10000):
            file.write_text(bad)
            s.process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            equal((code("second-key"), code("")), (200, 401), "after a bad file")
        equal(s.stop(), 0, "exit status")
        assert "second-key" not in "".join(s.errors), "a key was printed"


def full_queue(t):
    with Server(t.program, "--no-warm-up", "--max-num-seqs", 1, "--max-queue", 2) as s:
        shaped(s.post("/v1/completions", {**TEXT, "n": 4}), 400, words="3")
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(s.post, "/v1/completions", LONG) for _ in range(16)]
            until("answers wait", lambda: s.metric("bitnet_num_requests_waiting") > 0)
            equal(s.get("/health").status, 200, "health")
            replies = [f.result() for f in asked]
        full = [r for r in replies if r.status != 200]
        assert 1 <= len(full) <= 13, f"{len(full)} of 16 were refused"
        for r in full:
            shaped(r, 429, "queue_full")
            assert 1 <= int(r.headers["Retry-After"]) <= 60, "Retry-After"
        equal(s.post("/v1/completions", TEXT).status, 200, "there is room again")
        equal(s.metric("bitnet_rejected_total", reason="queue_full"), len(full), "refused ones counted")


def late_answers(t):
    with Server(t.program, "--no-warm-up", "--timeout", 1, "--max-num-seqs", 1) as s:
        many = {k: v for k, v in LONG.items() if k != "max_tokens"}
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            replies = [f.result() for f in [pool.submit(s.post, "/v1/completions", many) for _ in range(24)]]
        assert time.monotonic() - start < 10, "answers go on after the deadline"
        late = [r for r in replies if r.status == 504]
        assert late, "nothing was late"
        shaped(late[0], 504, "timeout")
        shaped(s.post("/v1/embeddings", {"input": [[5] * 500] * 2048}), 504, "timeout")
        until("the engine is free again", lambda: s.metric("bitnet_num_requests_running") == 0)
        equal(s.post("/v1/completions", TEXT).status, 200, "it goes on")
        return f"{len(late)} of {len(replies)} were late"


def drain(t):
    with Server(t.program, "--no-warm-up", "--max-num-seqs", 4, "--drain", 300) as s:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            body = {**LONG, "max_tokens": 250, "n": 3, "seed": 3}
            whole = [pool.submit(s.post, "/v1/completions", body) for _ in range(4)]
            parts = [pool.submit(s.post, "/v1/completions", {**body, "stream": True}) for _ in range(4)]
            until("all were taken", lambda: s.metric("bitnet_num_requests_running") +
                  s.metric("bitnet_num_requests_waiting") == 24)
            s.process.send_signal(signal.SIGTERM)
            until("it is not ready", lambda: s.get("/ready").status == 503)
            refused = s.post("/v1/completions", TEXT)
            shaped(refused, 503, "draining")
            assert int(refused.headers["Retry-After"]) >= 1
            equal(s.get("/health").status, 200, "alive")
            texts = [text_of(f.result()) for f in whole] + [joined(f.result()) for f in parts]
            equal(texts, [texts[0]] * 8, "texts with the same seed")
        equal(s.process.wait(30), 0, "exit status")
    with Server(t.program, "--no-warm-up", "--drain", 60) as s:
        c = s.connect()
        c.request("POST", "/v1/completions", json.dumps({**LONG, "n": 32}), s.headers())
        until("it runs", lambda: s.metric("bitnet_num_requests_running") > 0)
        s.process.send_signal(signal.SIGINT)
        s.process.send_signal(signal.SIGTERM)
        equal(s.process.wait(5), 0, "exit status after two signals")


OWN = [keys, full_queue, late_answers, drain]


class Tools:
    def __init__(self, program, folder):
        self.program, self.folder = str(pathlib.Path(program).resolve()), pathlib.Path(folder)
        self.log = self.folder / "access.log"

    def run(self, *args):
        return subprocess.run([self.program, *args], capture_output=True, text=True, check=True).stdout


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--only", default="")
    o = p.parse_args()
    failed = 0
    shared = [c for c in SHARED if o.only in c.__name__]
    own = [c for c in OWN if o.only in c.__name__]
    with tempfile.TemporaryDirectory(prefix="bitnet-serve-") as folder:
        t = Tools(o.program, folder)
        print(f"1..{len(shared) + len(own) + 1}")
        number = 0

        def report(name, case, *args):
            nonlocal failed, number
            number += 1
            start = time.monotonic()
            try:
                said = case(*args)
                took = f"{time.monotonic() - start:.1f} s"
                print(f"ok {number} - {name}: {took}{', ' + said if said else ''}", flush=True)
            except Exception:
                failed = 1
                print(f"not ok {number} - {name}", flush=True)
                print("# " + traceback.format_exc().replace("\n", "\n# "), flush=True)

        with Server(t.program, "--access-log", t.log, "--max-num-seqs", 16, "--cors", "http://page.example") as s:
            for case in shared:
                report(case.__name__, case, s, t)
            report("ends", lambda: equal(s.stop(), 0, "exit status"))
        for case in own:
            report(case.__name__, case, t)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
