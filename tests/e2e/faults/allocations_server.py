#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every allocation that a server makes for a request fails in turn, from the connection to the last byte. The client gets
an error, or a connection that ends before the reply does, or the same reply as without; and the next request is
answered as ever.

usage: allocations_server.py BITNET FAIL_ALLOC.so DATA [--most N]      output is TAP; N allocations of a case are tried [all]
"""
import json
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import time

import fail_alloc

START_S = 20
CALL_S = 10
STARTS_COST = 5  # requests: of --most a case that starts servers tries this part
LEAST = 10  # allocations for any request that is tried here
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "integer", "minimum": 3}},
          "required": ["a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "string", "maxLength": 5}}, "required": ["a"]}}}
TALK = [{"role": "developer", "content": "Be brief"}, {"role": "user", "content": "Tell me é"}]
DRAW = {"seed": 7, "temperature": 1, "max_tokens": 6}
GREEDY = {"temperature": 0, "max_tokens": 6}  # where requests have no seed
CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "One"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""},
                                              {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "b"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "Two"},
                                         {"type": "text", "text": "Three"}]}]
CLAUDE_TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}}
CASES = [
    ("chat", CHAT, {"messages": TALK, **DRAW}),
    ("chat, stream", CHAT, {"messages": TALK, **DRAW, **STREAM}),
    ("completion, logprobs", TEXT, {"prompt": "Once", "logprobs": 2, "stop": ["zz"], "logit_bias": {"5": 1}, **DRAW}),
    ("completion, logprobs, stream", TEXT, {"prompt": "Once", "logprobs": 2, "n": 2, **DRAW, **STREAM}),
    ("completion, echo", TEXT, {"prompt": ["Once", [5, 6, 7]], "echo": True, "logprobs": 2, "n": 2, **DRAW}),
    ("completion, echo only, stream", TEXT, {"prompt": "Once upon é", "echo": True, "logprobs": 1, **DRAW, "max_tokens": 0, **STREAM}),
    ("response", RESPONSES, {"input": "One", "instructions": "Be brief", "max_output_tokens": 6, "temperature": 0}),
    ("response, stream", RESPONSES, {"input": "One", "max_output_tokens": 6, "temperature": 0, "stream": True}),
    ("schema", CHAT, {"messages": TALK, "response_format": FORM, **DRAW, "max_tokens": 40}),
    ("tools", CHAT, {"messages": TALK, "tools": [TOOL], "tool_choice": "required", **DRAW, "max_tokens": 60}),
    ("tools, stream", CHAT, {"messages": TALK, "tools": [TOOL], "tool_choice": "required", **DRAW, "max_tokens": 60, **STREAM}),
    ("adapters, none", TEXT, {"prompt": "Once", "lora": [], **DRAW}),
    ("scales of adapters", "/lora-adapters", []),
    ("message", "/v1/messages", {"messages": MESSAGES, "system": "Be brief", "tools": [CLAUDE_TOOL], **GREEDY}),
    ("message, stream", "/v1/messages", {"messages": MESSAGES, "tools": [CLAUDE_TOOL], "tool_choice": {"type": "any"}, "wich": 1,
                                         **GREEDY, "max_tokens": 60, **STREAM}),
    ("message, counted", "/v1/messages/count_tokens", {"messages": MESSAGES}),
    ("continued", CHAT, {"messages": [*TALK, {"role": "assistant", "content": "Once"}], "enable_thinking": True,
                         "timings_per_token": True, "stop_token_ids": [7], "min_tokens": 2, **DRAW}),
    ("embeddings", "/v1/embeddings", {"input": ["One", "Two"]}),
    ("ollama chat", "/api/chat", {"messages": [{"role": "user", "content": "Tell me é"}], "stream": False, "options": {"seed": 7, "num_predict": 6}}),
    ("ollama call", "/api/chat", {"messages": [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}],
                                  "stream": False, "tools": [TOOL], "tool_choice": "required", "options": {"seed": 7, "num_predict": 60}}),
    ("ollama text", "/api/generate", {"prompt": "Once", "raw": True, "format": "json", "stream": False, "options": {"seed": 7, "num_predict": 30}}),
    ("ollama embed", "/api/embed", {"input": ["One", "Two"]}),
    ("ollama show", "/api/show", {"model": "small"}),
    ("ollama tags", "/api/tags", None),
    ("ollama, nothing asked", "/api/generate", {"prompt": ""}),
    ("ollama, bad request", "/api/chat", {"messages": 5}),
    ("native", "/completion", {"prompt": ["Once", [5, "é"]], "n_predict": 6, "n_probs": 2, "seed": 7, "stop": ["zz", "yy"], "return_tokens": True,
                               "logit_bias": [[" the", -1], [5, False]], "samplers": ["top_k", "temperature"]}),
    ("native, stream", "/completion", {"prompt": {"prompt_string": "Once"}, "n_predict": 6, "n_probs": 1, "seed": 7, "stream": True}),
    ("native, some fields", "/completion", {"prompt": "Once", "n_predict": 3, "seed": 7, "response_fields": ["content", "generation_settings/seed"]}),
    ("infill", "/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "c", "text": "d"}]}),
    ("native vectors", "/embedding", {"content": ["One", "Two"], "pooling": "none"}),
    ("rerank", "/v1/rerank", {"query": "One", "documents": ["Two", "One"], "return_documents": True}),
    ("score", "/v1/score", {"text_1": "One", "text_2": ["Two", "One"]}),
    ("slots", "/slots", None),
    ("the interface", "/openapi.json", None),
    ("tokenize", "/tokenize", {"content": "Once upon é", "with_pieces": True}),
    ("tokenize, other words", "/tokenize", {"prompt": "Once upon é", "return_token_strs": True}),
    ("detokenize", "/detokenize", {"tokens": [40, 41, 42]}),
    ("tokenizer", "/tokenizer_info", None),
    ("template", "/apply-template", {"messages": TALK, "tools": [TOOL]}),
    ("metrics", "/metrics", None),
    ("metrics, JSON", "/metrics.json", None),
    ("metrics of an hour", "/metrics/history.json", None),
    ("properties", "/props", None),
    ("models", "/v1/models", None),
    ("page", "/", None),
    ("bad request", TEXT, {"prompt": "One", "max_tokens": "many"}),
    ("no such path", "/nowhere", None),
]


class Cut(Exception):
    """The connection ended before the reply."""


class Reply:
    """The first reply in the bytes of a connection that has ended, and the rest of them."""

    def __init__(self, raw):
        head, found, rest = raw.partition(b"\r\n\r\n")
        if not found:
            raise Cut
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)
        if "content-length" in self.headers:
            n = int(self.headers["content-length"])
            self.check(len(rest) >= n)
            self.body, self.rest = rest[:n], rest[n:]
        elif self.headers.get("transfer-encoding") == "chunked":
            self.body, self.rest = self.joined(rest)
        else:
            raise AssertionError(f"a reply without a length: {raw[:200]}")

    @staticmethod
    def check(whole):
        if not whole:
            raise Cut

    def joined(self, rest):
        body = b""
        while True:
            size, found, rest = rest.partition(b"\r\n")
            self.check(found)
            n = int(size, 16)
            self.check(len(rest) >= n + 2)
            assert rest[n : n + 2] == b"\r\n", "a chunk does not end where it should"
            body, rest = body + rest[:n], rest[n + 2 :]
            if n == 0:
                return body, rest

    def is_error(self):
        error = self.status in (500, 503) and json.loads(self.body)["error"]
        return bool(error["message"] if isinstance(error, dict) else error)


def gathered(out, value, key=""):
    """Texts of all events, joined by where they stand: how a text is cut into events is a matter of time."""
    if isinstance(value, dict):
        for k in sorted(value):
            gathered(out, value[k], f"{key}.{k}")
    elif isinstance(value, list):
        for v in value:
            index = f".{v['index']}" if isinstance(v, dict) and "index" in v else ""
            gathered(out, v, key + index)
    elif key.endswith((".content", ".text", ".arguments", ".partial_json", ".delta", ".tokens", ".token_logprobs")):
        out[key] = out.get(key, "") + str(value)
    elif key == ".message.usage.output_tokens":  # of a message's beginning: how far it was when that was written
        pass
    elif value is not None and not key.endswith(("_number", ".bytes", ".role")):
        out.setdefault(key, set()).add(str(value))


def stream(body):
    """What the events say together; None: they say that they failed."""
    out, text = {}, body.decode()
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    assert events, "a stream without events"
    for event in events:
        if event == "[DONE]":
            out["done"] = True
            continue
        event = json.loads(event)
        if "error" in event or event.get("type") in ("error", "response.failed"):
            return None
        gathered(out, event)
    ends = ("response.completed", "response.incomplete", "message_stop", '"stop":true')
    assert out.get("done") or any(end in text for end in ends), "a stream without its end"
    return out


def shape(value):
    """Names without numbers; of lists, which grow, the first."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    return [shape(v) for v in value[:1]] if isinstance(value, list) else 0


# of the metrics: what failed requests add, and numbers of the kernel, left out where reading them needs memory that is not there
COMES_AND_GOES = rb'code="5\d\d"|endpoint="other"|process_'
NORMAL = [(rb'"(id|item_id|response_id)":"[a-z]+[-_][^"]*"', rb'"\1":""'), (rb'"(created\w*|completed_at)":\d+', rb'"\1":0'),
          (rb'"cached_tokens":\d+', rb'"cached_tokens":0'), (rb'"(\w+_duration|\w+_ms|\w+_per_second|cache_n|prompt_n)":[\d.e+-]+', rb'"\1":0'),
          (rb'"(created_at|modified_at)":"[^"]*"', rb'"\1":""'), (rb"call_\w+", b"")]


def plain(reply, path):
    """Without what differs from one time to the next."""
    body, kind = reply.body, reply.headers.get("content-type", "")
    if path in ("/metrics.json", "/metrics/history.json"):
        return shape(json.loads(body))
    for what, by in NORMAL:
        body = re.sub(what, by, body)
    if kind.startswith("text/plain"):
        return sorted(re.sub(rb" \S+$", b"", line) for line in body.splitlines() if not re.search(COMES_AND_GOES, line))
    if kind == "text/event-stream":
        return stream(body)
    return body


def difference(got, right):
    got, right = str(got), str(right)
    i = next((i for i, (a, b) in enumerate(zip(got, right)) if a != b), min(len(got), len(right)))
    return f"{got[:5]}...{got[max(i - 60, 0) : i + 60]} is not {right[max(i - 60, 0) : i + 60]}"


class Broken(Exception):
    """The server says that it cannot serve, or ended and said why."""


def request(path, body, last):
    data = b"" if body is None else json.dumps(body).encode()
    head = (f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {'close' if last else 'keep-alive'}"
            f"\r\nContent-Length: {len(data)}\r\n\r\n")
    return head.encode() + data


class Server:
    def __init__(self, args, fail, folder, tls=None):
        self.args, self.fail, self.folder, self.tls, self.process = args, fail, folder, tls, None
        self.path, self.said = folder / "socket", folder / "said"

    def start(self, at=-1):
        """Allocation `at` of the process fails."""
        self.stop()
        self.path.unlink(missing_ok=True)
        pem = ["--tls-cert", self.folder / "cert.pem", "--tls-key", self.folder / "key.pem"] if self.tls else []
        self.fail.arm(at, self.args.n)
        with open(self.said, "wb") as said:
            self.process = subprocess.Popen(
                [self.args.bitnet, "serve", self.folder / "small", "--host", f"unix:{self.path}", "-t", "1", "--no-cache",
                 "--access-log", self.folder / "log", "--scrub", "0", "--linger-time", "2", *pem],
                env=self.fail.env(), stdout=said, stderr=said)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self.process.poll() is not None or self.is_ready():
                break
            time.sleep(0.01)
        self.started = self.fail.seen()
        self.fail.arm(-1)
        if self.process.poll() == 1 and self.said.read_text().strip():
            raise Broken
        assert self.process.poll() is None and self.is_ready(), f"the server did not start: {self.process.poll()} {self.last_words()}"

    def is_ready(self):
        try:
            reply, *_ = self.send("/ready", None)
        except (OSError, Cut):
            return False
        if reply.status != 200 and b"warmed up" not in reply.body:
            raise Broken
        return reply.status == 200

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def died(self):
        return self.process.poll() is not None

    def last_words(self):
        return self.said.read_text(errors="replace")[-300:]

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(CALL_S)
        s.connect(str(self.path))
        return self.tls.wrap_socket(s) if self.tls else s

    def send(self, path, body, n=1):
        """The replies to n such requests on one connection, as many as come whole. TimeoutError: it hangs."""
        raw, replies = b"", []
        try:
            with self.connect() as s:
                s.sendall(b"".join(request(path, body, i == n - 1) for i in range(n)))
                while got := s.recv(1 << 16):
                    raw += got
        except (ConnectionError, ssl.SSLError) as e:
            raise Cut from e
        while len(replies) < n and (not replies or replies[-1].headers["connection"] != "close"):
            replies.append(Reply(raw))
            raw = replies[-1].rest
        return replies

    def ask(self, path, body, n=1, at=-1):
        """The same while allocation `at` from now on fails; self.seen: how many there were."""
        self.fail.arm(at, self.args.n)
        try:
            return self.send(path, body, n)
        finally:
            self.seen = self.fail.seen()
            self.fail.arm(-1)


class Case:
    """A request to a server that has answered it before, or, fresh, to one that has just begun."""

    def __init__(self, server, name, path, body, fresh=False, n=1):
        self.server, self.name, self.path, self.body, self.fresh, self.n = server, name, path, body, fresh, n

    def undisturbed(self):
        return [(r.status, plain(r, self.path)) for r in self.server.ask(self.path, self.body, self.n)]

    def prepare(self):
        """The right answer."""
        if self.fresh or not self.server.process:
            self.server.start()
        for _ in range(1 if self.fresh else 2):
            self.right = self.undisturbed()
        self.total = self.server.seen

    def judge(self, reply, right):
        if reply.is_error():
            return "errors", ""
        got = (reply.status, plain(reply, self.path))
        if got == right:
            return "same", ""
        return ("errors", "") if got == (200, None) else ("wrong", difference(got, right))

    def attempt(self, at):
        """How it ended, and what is wrong."""
        if self.fresh:
            self.server.start()
        try:
            ends = [self.judge(*both) for both in zip(self.server.ask(self.path, self.body, self.n, at), self.right)]
        except Cut:
            return "closed", ""
        except TimeoutError:
            return "wrong", f"no end within {CALL_S} s"
        except (AssertionError, ValueError) as e:
            return "wrong", str(e)
        return next((e for kind in ("wrong", "errors") for e in ends if e[0] == kind), ("same", ""))

    def survived(self):
        """What is wrong with the server, or ""."""
        if self.server.died():
            return f"status {self.server.process.returncode}: {self.server.last_words()}"
        try:
            got = self.undisturbed()
        except (Cut, AssertionError, ValueError, OSError) as e:
            return f"the next request: {e!r}"
        return "" if got == self.right else "the next request: " + difference(got, self.right)

    def try_one(self, at, ends, faults):
        end, fault = self.attempt(at)
        after = self.survived() if end != "refused" else ""
        end = "errors" if end == "refused" else "crashed" if self.server.died() else "wrong" if after else end
        ends[end] = ends.get(end, 0) + 1
        if fault or after:
            faults.append(f"allocation {at} of {self.total}: {end}: {fault or after}")
        if after:
            self.server.start()
            self.undisturbed()

    def loop(self, args, table):
        self.prepare()
        ends, faults = {}, []
        if self.total < LEAST:
            faults.append(f"only {self.total} allocations were seen")
        most = args.most // STARTS_COST if args.most and self.fresh else args.most
        for at in fail_alloc.some(self.total, most):
            self.try_one(at, ends, faults)
        table.case(self.name, self.total, ends, faults)


class Start(Case):
    """The server's own beginning: it does not begin, and says why, or serves as ever."""

    def prepare(self):
        self.server.start()
        self.total, self.right = self.server.started, self.undisturbed()

    def attempt(self, at):
        try:
            self.server.start(at)
        except Broken:
            return "refused", ""
        except AssertionError as e:
            return "wrong", str(e)
        return "same", ""


def tls_context(folder):
    """None: there is no program that makes certificates."""
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=x", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
    except FileNotFoundError:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def cases(args, folder):
    fail = fail_alloc.FailAlloc(args.preload, folder / "orders")
    plain_server, context = Server(args, fail, folder), tls_context(folder)
    found = [Case(plain_server, *c) for c in CASES]
    found.append(Case(plain_server, "two on a connection", TEXT, {"prompt": "Once", **DRAW}, n=2))
    found.append(Case(plain_server, "the first, stream", *CASES[3][1:], fresh=True))
    found.append(Case(plain_server, "the first, tools", *CASES[7][1:], fresh=True))
    found.append(Start(plain_server, "the start", TEXT, {"prompt": "Once", **DRAW}, fresh=True))
    if context:
        found.append(Case(Server(args, fail, folder, context), "chat, TLS", *CASES[0][1:]))
    return [c for c in found if args.only in c.name]


def main():
    args = fail_alloc.arguments()
    with tempfile.TemporaryDirectory(prefix="bitnet-alloc-") as folder:
        folder = pathlib.Path(folder)
        fail_alloc.small_folder(args.data, folder / "small")
        chosen = cases(args, folder)
        table = fail_alloc.Table(len(chosen))
        try:
            for case in chosen:
                case.loop(args, table)
        finally:
            for case in chosen:
                case.server.stop()
        return table.end()


if __name__ == "__main__":
    raise SystemExit(main())
