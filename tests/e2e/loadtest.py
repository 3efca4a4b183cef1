#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bitnet loadtest against a server whose delays are known: does the report tell them?

usage: loadtest.py BITNET [--only TEXT]      output is TAP

The server is a small one of asyncio in this process. Bounds are generous: below by what the server
certainly took, above by what a busy machine may add.
"""
import argparse
import asyncio
import csv
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import xml.dom.minidom

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import until
from tap import Missing, Tap, find

LIMIT_S = 120
SLACK_MS = 1000  # what a busy machine may add
BUSY_MS = 20000  # what it may make of a wait of a second


class Mock:
    """Streams `tokens` chunks: the first after `first_s`, the others `gap_s` apart. Attributes may be changed while
    it runs; `status_of(i)` is asked for every request."""

    def __init__(self, tls=None):
        self.first_s, self.gap_s, self.tokens = 0.02, 0.005, 8
        self.stall_until = 0.0          # nothing is answered before, by the monotonic clock
        self.status_of = lambda i: 200
        self.headers = ""
        self.cut_after = None           # chunks, then the connection is closed
        self.usage, self.cached = True, 3
        self.tokens_per_chunk = 1
        self.key = None
        self.requests, self.connections, self.bodies, self.heads = 0, 0, [], []
        self.open, self.most_open = 0, 0
        self.steps = 0
        self.loop = asyncio.new_event_loop()
        started = threading.Event()

        async def serve():
            self.server = await asyncio.start_server(self.connection, "127.0.0.1", 0, ssl=tls, backlog=1024)
            self.port = self.server.sockets[0].getsockname()[1]
            started.set()

        def run():
            asyncio.set_event_loop(self.loop)
            self.loop.create_task(serve())
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert started.wait(10)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    async def connection(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                body = await reader.readexactly(int(length[0].split(":")[1])) if length else b""
                if not await self.answer(head, body, writer):
                    break
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    def whole(self, writer, code, text):
        data = text.encode()
        writer.write(f"HTTP/1.1 {code} X\r\nContent-Length: {len(data)}\r\n{self.headers}\r\n".encode() + data)
        return True

    async def answer(self, head, body, writer):
        path = head.split(" ")[1]
        if self.key and f"\r\nAuthorization: Bearer {self.key}\r\n" not in head:
            return self.whole(writer, 401, '{"error": {"message": "who are you?"}}')
        if path == "/v1/models":
            return self.whole(writer, 200, '{"data": [{"id": "mock-model"}]}')
        if path == "/metrics":
            return self.whole(writer, 200, f"bitnet_batch_size_sum {self.steps * 3}\nbitnet_batch_size_count {self.steps}\n"
                              f'bitnet_step_seconds_sum{{a="}} 1"}} {self.steps * 0.25}\nbitnet_step_seconds_count {self.steps}\n')
        i, self.requests = self.requests, self.requests + 1
        self.heads.append(head)
        self.bodies.append(json.loads(body))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self.generate(i, path, json.loads(body), writer)
        finally:
            self.open -= 1

    async def generate(self, i, path, asked, writer):
        status = self.status_of(i)
        if status != 200:
            return self.whole(writer, status, json.dumps({"error": {"message": f"no {status} today"}}))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        chat = path.endswith("/chat/completions")
        if chat:
            self.event(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        await asyncio.sleep(self.first_s)
        for k in range(self.tokens):
            if k:
                await asyncio.sleep(self.gap_s)
            while time.monotonic() < self.stall_until:
                await asyncio.sleep(self.stall_until - time.monotonic())
            if self.cut_after == k:
                return False
            self.event(writer, {"choices": [{"delta": {"content": "x "}} if chat else {"text": "x "}]})
            await writer.drain()
            self.steps += 1
        self.event(writer, {"choices": [{"delta": {}, "finish_reason": "length"}]})
        if self.usage:
            self.event(writer, {"choices": [], "usage": {
                "prompt_tokens": len(json.dumps(asked.get("messages", asked.get("prompt"))).split()),
                "completion_tokens": self.tokens * self.tokens_per_chunk, "prompt_tokens_details": {"cached_tokens": self.cached}}})
        self.chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def event(self, writer, value):
        self.chunk(writer, b"data: " + json.dumps(value).encode() + b"\n\n")

    @staticmethod
    def chunk(writer, data):
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def close(self):
        async def stop():
            self.server.close()
            tasks = [x for x in asyncio.all_tasks() if x is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.loop.stop()
        asyncio.run_coroutine_threadsafe(stop(), self.loop)
        self.thread.join(10)


class Tool:
    def __init__(self, program, folder):
        self.program, self.folder = pathlib.Path(program).resolve(), pathlib.Path(folder)

    def start(self, *args, **kw):
        env = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}
        env.update(kw.pop("env", {}))
        return subprocess.Popen([self.program, "loadtest", *map(str, args)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, cwd=self.folder, env=env, **kw)

    def run(self, *args, code=0, **kw):
        p = self.start(*args, **kw)
        out, err = p.communicate(timeout=LIMIT_S)
        assert p.returncode == code, f"exit code {p.returncode}, not {code}: {err.decode()}\n{out.decode()}"
        return out.decode(), err.decode()

    def report(self, *args, **kw):
        out, _ = self.run(*args, "--json", **kw)
        return json.loads(out)

    def one(self, *args, **kw):
        runs = self.report(*args, **kw)["runs"]
        assert len(runs) == 1
        return runs[0]


def between(what, value, low, high):
    assert value is not None and low <= value <= high, f"{what} is {value}, not in {low} .. {high}"


# ------------------------------------------------------------------ cases

def test_closed_loop_tells_known_delays(t, m):
    r = t.one("--host", m.url, "-c", 4, "-n", 60, "--warmup", 4)
    assert r["ok"] == 60 and r["failed"] == 0 and r["warmup"] == 4 and r["requests"] == 60, r
    between("ttft", r["ttft_ms"]["p50"], 20, 20 + SLACK_MS)
    between("itl", r["itl_ms"]["p50"], 4.5, 5 + SLACK_MS)
    between("tpot", r["tpot_ms"]["mean"], 4.5, 5 + SLACK_MS)
    between("e2e", r["e2e_ms"]["p50"], 55, 55 + 2 * SLACK_MS)
    assert r["itl_ms"]["n"] == 60 * 7 and r["tokens"]["output_mean"] == 8
    assert r["ttft_ms"]["p50"] <= r["ttft_ms"]["p99"] <= r["ttft_ms"]["max"] <= r["e2e_ms"]["max"]
    assert m.most_open <= 4 and m.connections <= 4 + 4, "connections are kept"  # and models, metrics, first look
    between("tokens a second", r["output_tok_s"], 1, 4 * 8 / 0.055)
    between("mean batch by the server", r["server"]["batch_mean"], 3, 3)
    between("step by the server", r["server"]["step_ms_mean"], 250, 250)


def test_tokens_come_from_usage(t, m):
    m.tokens_per_chunk = 3
    m.cached = 60
    out, _ = t.run("--host", m.url, "-n", 5, "--seed", 9)
    assert "knew 90 % of the prompts" in out and "seed 9" in out, out
    m.cached = 3
    r = t.one("--host", m.url, "-n", 5)
    assert r["tokens"]["output_mean"] == 24 and r["tokens"]["cached_mean"] == 3
    between("tpot", r["tpot_ms"]["mean"], 7 * 4.5 / 23, (7 * 5 + SLACK_MS) / 23)
    m.usage = False
    r = t.one("--host", m.url, "-n", 5)
    assert r["tokens"]["output_mean"] == 8 and r["tokens"]["replies_without_usage"] == 5


def test_bodies_are_what_was_asked_for(t, m):
    t.one("--host", m.url + "/v1/", "-n", 6, "--input-len", "5-9", "--output-len", 7, "--ignore-eos", "--temperature", 0.5,
          "--seed", 3, "--shared-prefix", 3, "--header", "X-One: 1", "--api-key", "secret")
    assert m.heads[0].startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "\r\nX-One: 1\r\n" in m.heads[0] and "\r\nAuthorization: Bearer secret\r\n" in m.heads[0]
    first = m.bodies[0]
    assert first["model"] == "mock-model" and first["max_tokens"] == 7 and first["stream"] is True
    assert first["ignore_eos"] is True and first["temperature"] == 0.5 and first["stream_options"] == {"include_usage": True}
    texts = [b["messages"][0]["content"].split() for b in m.bodies]
    assert all(5 <= len(x) <= 9 for x in texts) and len({tuple(x[:3]) for x in texts}) == 1
    assert len({tuple(x) for x in texts}) == 6 and [b["seed"] for b in m.bodies] == list(range(3, 9))
    before = list(m.bodies)
    m.bodies.clear()
    t.one("--host", m.url, "-n", 6, "--input-len", "5-9", "--output-len", 7, "--ignore-eos", "--temperature", 0.5,
          "--seed", 3, "--shared-prefix", 3)
    assert m.bodies == before, "the same seed asks the same"
    m.bodies.clear()
    t.one("--host", m.url, "-n", 2, "--endpoint", "completions", "--model", "other")
    assert m.bodies[0]["model"] == "other" and len(m.bodies[0]["prompt"].split()) == 64 and "ignore_eos" not in m.bodies[0]
    assert m.bodies[0]["prompt"].split()[:3] != m.bodies[1]["prompt"].split()[:3], "no prefix is shared unasked"


def test_key_from_the_environment(t, m):
    m.key = "sesame"
    _, err = t.run("--host", m.url, "-n", 1, code=1)
    assert "--model" in err and "401" in err
    t.run("--host", m.url, "-n", 1, env={"OPENAI_API_KEY": "sesame"})


def test_dataset(t, m):
    lines = [{"prompt": "plain"}, {"turns": ["first turn", "second turn"]},
             {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]}]
    (t.folder / "d.jsonl").write_text("\n".join(map(json.dumps, lines)))
    t.one("--host", m.url, "-n", 4, "--dataset", "d.jsonl")
    got = [b["messages"][-1]["content"] for b in m.bodies]
    assert got == ["plain", "first turn", "hello", "plain"] and len(m.bodies[2]["messages"]) == 2
    m.bodies.clear()
    t.one("--host", m.url, "-n", 3, "--dataset", "d.jsonl", "--endpoint", "completions")
    assert m.bodies[2]["prompt"] == "be kind\nhello"
    (t.folder / "d.jsonl").write_text('{"question": 1}\n')
    _, err = t.run("--host", m.url, "--dataset", "d.jsonl", code=1)
    assert "line 1" in err


def test_a_stall_shows_in_an_open_loop(t, m):
    """20 requests a second for 4 s; the server stands still for one of them. Whoever was due then waited: about a
    quarter of all requests, half a second on average. A tool that does not send while it waits would show one."""
    m.first_s, m.gap_s, m.tokens = 0.005, 0.001, 2
    p = t.start("--host", m.url, "--rps", 20, "--arrival", "constant", "--duration", 4, "--json", "--max-outstanding", 2,
                "--latency-percentiles", "50,80,95")
    until("a second of requests has come", lambda: m.requests >= 20)
    m.stall_until = time.monotonic() + 1
    out, err = p.communicate(timeout=LIMIT_S)
    assert p.returncode == 0, err
    report = json.loads(out)
    r = report["runs"][0]
    assert report["latency_from"] == "due" and r["requests"] == 80 and r["ok"] == 80 and r["unsent"] == 0, r
    between("p80", r["ttft_ms"]["p80"], 80, BUSY_MS)
    between("p95", r["ttft_ms"]["p95"], 500, BUSY_MS)
    between("max", r["e2e_ms"]["max"], 850, BUSY_MS)
    between("late", r["late"], 10, 60)  # at most two could be open
    between("delay of sending", r["send_delay_ms"]["max"], 500, BUSY_MS)
    assert m.most_open <= 2


def test_what_is_never_sent_is_counted(t, m):
    m.first_s, m.gap_s, m.tokens = 0.5, 0, 1
    r = t.one("--host", m.url, "--rps", 40, "--arrival", "constant", "--duration", 2, "--max-outstanding", 2, "--goodput",
              "ttft:100000")
    assert r["requests"] == 80 and r["ok"] + r["unsent"] == 80 and r["failed"] == 0, r
    between("unsent", r["unsent"], 60, 78)
    between("goodput", r["goodput"]["share"], r["ok"] / 80 - 1e-9, r["ok"] / 80 + 1e-9)
    out, _ = t.run("--host", m.url, "--rps", 40, "--arrival", "constant", "--duration", 1, "--max-outstanding", 1)
    assert "never left" in out and "never sent" in out


def test_poisson_rate(t, m):
    m.first_s, m.gap_s, m.tokens = 0.001, 0, 1
    r = t.one("--host", m.url, "--rps", 100, "--duration", 4, "--warmup", "500ms")
    between("offered", r["offered_rps"], 70, 130)
    between("warm-up", r["warmup"], 20, 80)
    assert r["ok"] == r["requests"]


def test_a_tester_that_stood_still(t, m):
    """Stopped just before its time is over: what it sends late is not taken for slow."""
    m.first_s, m.gap_s, m.tokens = 0.3, 0, 1
    p = t.start("--host", m.url, "--rps", 20, "--arrival", "constant", "--duration", 1, "--max-outstanding", 2, "--json")
    until("it has begun", lambda: m.requests)
    over = time.monotonic() + 1.2
    until("most of its second has gone", lambda: m.requests >= 5)  # two at a time, 0.3 s each
    p.send_signal(signal.SIGSTOP)
    until("its second is over", lambda: time.monotonic() > over)
    p.send_signal(signal.SIGCONT)
    out, err = p.communicate(timeout=LIMIT_S)
    assert p.returncode == 0, err
    r = json.loads(out)["runs"][0]
    assert r["requests"] == 20 and r["failed"] == 0 and r["ok"] + r["unsent"] == 20 and r["late"] > 0, r


def test_trace(t, m):
    (t.folder / "trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                        "2023-11-16 23:59:59.0000000,374,44\n2023-11-17 00:00:00.5000000,20,10\n"
                                        "2023-11-17 00:00:01.0000000,8,2\n2023-11-17 00:00:09.0000000,1,1\n")
    r = t.one("--host", m.url, "--trace", "trace.csv", "--trace-scale", 0.25, "--trace-tokens", 0.5, "--trace-limit", 3,
              "--save-requests", "all.jsonl")
    assert r["ok"] == 3
    assert [b["max_tokens"] for b in m.bodies] == [22, 5, 1]
    assert [len(b["messages"][0]["content"].split()) for b in m.bodies] == [187, 10, 4]
    due = sorted(json.loads(line)["due_ms"] for line in (t.folder / "all.jsonl").read_text().splitlines())
    assert [round(x) for x in due] == [0, 375, 500], due


def test_busy_answers_are_counted_apart(t, m):
    m.status_of = lambda i: 429 if i % 2 else 200
    m.headers = "Retry-After: 1\r\n"
    began = time.monotonic()
    r = t.one("--host", m.url, "-c", 1, "-n", 4)
    assert r["ok"] == 2 and r["failed"] == 2 and r["outcomes"]["busy_429"]["n"] == 2, r
    assert "no 429 today" in r["outcomes"]["busy_429"]["first_reason"]
    assert time.monotonic() - began >= 1, "a client that is sent away waits as long as it was told"


def test_failures_by_kind(t, m):
    m.status_of = lambda i: [500, 400, 503, 200][i % 4]
    r = t.one("--host", m.url, "-n", 8)
    assert {k: v["n"] for k, v in r["outcomes"].items()} == {"ok": 2, "status_5xx": 4, "status_4xx": 2}, r["outcomes"]
    m.status_of, m.cut_after = (lambda i: 200), 3
    r = t.one("--host", m.url, "-n", 2, code=1)
    assert r["outcomes"]["bad_stream"]["n"] == 2 and r["ok"] == 0
    m.cut_after, m.first_s = None, 30
    r = t.one("--host", m.url, "-n", 2, "-c", 2, "--timeout", "300ms", code=1)
    assert r["outcomes"]["timeout"]["n"] == 2


def test_no_server(t, m):
    del m
    _, err = t.run("--host", "http://127.0.0.1:1", "-n", 1, code=1)
    assert "cannot connect to 127.0.0.1 port 1" in err, err


def test_sweep_files_and_table(t, m):
    out, _ = t.run("--host", m.url, "--batch-sizes", 1, 4, "-n", 20, "--csv", "r.csv", "--plot", "r.svg", "--save-requests",
                   "r.jsonl", "--latency-percentiles", "50,99.9", "--goodput", "ttft:1,e2e:60000")
    asked = [b["messages"][0]["content"] for b in m.bodies]
    assert len(asked) == len(set(asked)) == 40, "no run asks what another has asked"
    assert len({b["max_tokens"] for b in m.bodies}) == 1
    assert "batch sizes are numbers of clients" in out and "closed loop" in out and "p99.9" in out and "goodput" in out
    rows = list(csv.DictReader((t.folder / "r.csv").open()))
    assert [r["at_a_time"] for r in rows] == ["1", "4"] and all(r["ok"] == "20" for r in rows)
    assert float(rows[0]["ttft_ms_p50"]) >= 20 and float(rows[0]["e2e_ms_p99.9"]) >= 55 and rows[0]["busy_429"] == "0"
    assert float(rows[0]["goodput_share"]) == 0 and None not in rows[0]
    assert float(rows[1]["output_tok_s"]) > 1.5 * float(rows[0]["output_tok_s"]), "four clients get more"
    lines = [json.loads(line) for line in (t.folder / "r.jsonl").read_text().splitlines()]
    assert len(lines) == 40 and all(line["outcome"] == "ok" and line["output_tokens"] == 8 for line in lines)
    xml.dom.minidom.parse(str(t.folder / "r.svg"))
    t.run("--host", m.url, "-n", 20, "--plot", "one.html")
    page = xml.dom.minidom.parseString((t.folder / "one.html").read_text().split("\n", 1)[1])
    assert len(page.getElementsByTagName("tbody")[0].getElementsByTagName("tr")) == 1, "a row for the run"
    assert "light-dark" in (t.folder / "one.html").read_text(), "colours for dark screens"
    t.run("--host", m.url, "-n", 20, "--plot", "one.svg")
    assert "Whole request" in (t.folder / "one.svg").read_text()
    xml.dom.minidom.parse(str(t.folder / "one.svg"))


def test_interrupt_reports_what_there_is(t, m):
    p = t.start("--host", m.url, "-c", 2, "--duration", "1h", "--json")
    until("requests have come", lambda: m.requests >= 20)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=LIMIT_S)
    assert p.returncode == 130, err
    r = json.loads(out)["runs"][0]
    assert r["interrupted"] and r["ok"] >= 10 and r["failed"] == 0, r


def test_memory_of_the_server(t, m):
    r = t.one("--host", m.url, "-c", 2, "--duration", 3, "--pid", os.getpid(), "--soak")
    s = r["server_memory"]
    assert s["samples"] >= 2 and s["first_bytes"] > 1e6 and abs(s["growth"]) < 1
    out, _ = t.run("--host", m.url, "-n", 2, "--pid", os.getpid())
    assert "server memory" in out


def test_tls(t, m):
    made = subprocess.run([find("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out", "c.pem",
                           "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                          cwd=t.folder, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(t.folder / "c.pem", t.folder / "k.pem")
    secure = Mock(tls=context)
    p = t.start("--host", secure.url, "-n", 3, "--insecure", "--json")
    out, err = p.communicate(timeout=LIMIT_S)
    if b"without TLS" in err:
        raise Missing("built without TLS")
    assert p.returncode == 0 and json.loads(out)["runs"][0]["ok"] == 3, err
    _, err = t.run("--host", secure.url, "-n", 1, code=1)
    assert "certificate verify failed" in err, err
    t.run("--host", secure.url, "-n", 1, env={"SSL_CERT_FILE": str(t.folder / "c.pem")})
    secure.close()


def test_wrong_options(t, m):
    for args, text in ((["--host", "ftp://x"], "--host"), (["--rps", 1, "-c", 2], "one of them"),
                       (["--duration", "soon"], "--duration"), (["--input-len", "9-3"], "--input-len"),
                       (["--goodput", "speed:3"], "--goodput"), (["--latency-percentiles", "101"], "percentiles"),
                       (["--header", "no colon"], "--header"), (["--burstiness", 2, "--arrival", "constant", "--rps", 1],
                                                                "--burstiness")):
        _, err = t.run(*args, code=2)
        assert text in err and len(err.splitlines()) == 1, err
    _, err = t.run("--host", m.url, "--trace", "none.csv", code=1)
    assert "none.csv" in err
    (t.folder / "bad.csv").write_text("a,b\n1,2\n")
    _, err = t.run("--host", m.url, "--trace", "bad.csv", code=1)
    assert "TIMESTAMP" in err


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    cases = [(n, f) for n, f in globals().items() if n.startswith("test_") and args.only in n]
    tap = Tap(len(cases))
    for name, case in cases:
        m = Mock()
        with tempfile.TemporaryDirectory() as folder:
            tap.case(name, case, Tool(args.program, folder), m)
        m.close()
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
