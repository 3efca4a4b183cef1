# SPDX-License-Identifier: Apache-2.0
"""A `bitnet serve` of one's own on a free port, and plain requests to it."""
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse

START_S = 60  # sanitizer builds are slow
CALL_S = 120


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The data of server-sent events, the end mark left out."""
        lines = [l[6:] for l in self.body.decode().split("\n") if l.startswith("data: ")]
        return [json.loads(l) for l in lines if l != "[DONE]"]


class Server:
    """with Server(program, "--max-num-seqs", "4") as s: s.post("/v1/completions", {...})
    program: its path, or a list of words that starts it"""

    def __init__(self, program, *options, key=None):
        self.key = key
        self.errors = []
        words = program if isinstance(program, list) else [program]
        self.process = subprocess.Popen([*words, "serve", "--port", "0", *map(str, options)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        found = threading.Event()
        threading.Thread(target=self._read, args=[found], daemon=True).start()
        if not found.wait(START_S) or not self.url:
            self.process.kill()
            raise AssertionError("the server did not start: " + "".join(self.errors))

    def _read(self, found):
        self.url = None
        for line in self.process.stdout:
            self.errors.append(line)
            m = re.search(r"https?://[\w.:\[\]-]+", line)
            if m and not self.url:
                self.url = m[0]
                found.set()
        found.set()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self, how=signal.SIGTERM, limit_s=60):
        """The exit status."""
        self.process.send_signal(how)
        return self.process.wait(limit_s)

    def connect(self, timeout=CALL_S):
        at = urllib.parse.urlparse(self.url)
        return http.client.HTTPConnection(at.hostname, at.port, timeout=timeout)

    def headers(self, more=None):
        h = {"Content-Type": "application/json", **(more or {})}
        if self.key and "Authorization" not in h:
            h["Authorization"] = "Bearer " + self.key
        return {k: v for k, v in h.items() if v is not None}

    def ask(self, method, path, body=None, headers=None):
        c = self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        c.request(method, path, body, self.headers(headers))
        r = c.getresponse()
        reply = Reply(r.status, r.headers, r.read())
        c.close()
        return reply

    def get(self, path, headers=None):
        return self.ask("GET", path, None, headers)

    def post(self, path, body, headers=None):
        return self.ask("POST", path, body, headers)

    def metric(self, *names, **labels):
        """The sum of the samples of these metrics that have these labels, at one moment."""
        total = 0.0
        for line in self.get("/metrics").body.decode().splitlines():
            m = re.match(r"([\w:]+)(?:\{(.*)\})? (\S+)$", line)
            if m and m[1] in names and all(f'{k}="{v}"' in (m[2] or "") for k, v in labels.items()):
                total += float(m[3])
        return total


def until(what, holds, limit_s=60):
    """Waits for a condition; the limit is far beyond what a busy machine takes."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"after {limit_s} s still not: {what}"
        time.sleep(0.02)


class Healthy:
    """A client that asks all the time, as if nothing were wrong: short greedy answers, each over a connection of its
    own, and beside them a stream whose gaps between tokens are measured. Every answer must be the right one."""

    SHORT = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    STREAM = {"prompt": "One day", "max_tokens": 100, "temperature": 0, "ignore_eos": True, "stream": True}

    def __init__(self, server):
        self.s = server
        self.times, self.gaps, self.wrong = [], [], []
        self.want, self.want_stream = (self.s.post("/v1/completions", {**b, "stream": False}).json()["choices"][0]["text"]
                                       for b in (self.SHORT, self.STREAM))
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._repeat, args=[what], daemon=True) for what in (self._ask, self._stream)]
        for t in self.threads:
            t.start()

    def _repeat(self, what):
        while not self.ended.is_set():
            try:
                what()
            except Exception as e:
                self.wrong.append(f"{what.__name__}: {e!r}")
                time.sleep(0.1)

    def _ask(self):
        start = time.monotonic()
        reply = self.s.post("/v1/completions", self.SHORT)
        self.times.append(time.monotonic() - start)
        assert reply.status == 200, reply.body
        text = reply.json()["choices"][0]["text"]
        assert text == self.want, f"{text!r}, not {self.want!r}"

    def _stream(self):
        c = self.s.connect()
        c.request("POST", "/v1/completions", json.dumps(self.STREAM), self.s.headers())
        r = c.getresponse()
        assert r.status == 200, r.read()
        last, text = None, ""
        while line := r.readline():
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            if last:
                self.gaps.append(now - last)
            last = now
            text += json.loads(line[6:])["choices"][0]["text"]
        assert text == self.want_stream, f"a stream of {text!r}, not {self.want_stream!r}"
        c.close()

    def since_last(self):
        """What happened since the last call, as words; errors are raised."""
        times, self.times = sorted(self.times), []
        gaps, self.gaps = self.gaps, []
        wrong, self.wrong = self.wrong, []
        assert not wrong, f"a healthy client had {len(wrong)} errors; the first: {wrong[0]}"
        assert times and max(times) < CALL_S / 2, f"a healthy client waited {max(times, default=0):.1f} s"
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        return (f"healthy: {len(times)} answers, {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f}, max {times[-1] * 1e3:.0f}; "
                f"longest gap of a stream {max(gaps, default=0) * 1e3:.0f} ms")

    def stop(self):
        self.ended.set()
        for t in self.threads:
            t.join(CALL_S)


class Process:
    """What a process holds, as the kernel counts it."""

    def __init__(self, pid):
        self.folder = f"/proc/{pid}"

    def _mib(self, name):
        with open(self.folder + "/status") as f:
            return int(re.search(name + r":\s+(\d+)", f.read())[1]) / 1024

    def rss_mib(self):
        return self._mib("VmRSS")

    def peak_mib(self):
        """The most since forget_peak."""
        return self._mib("VmHWM")

    def forget_peak(self):
        with open(self.folder + "/clear_refs", "w") as f:
            f.write("5")

    def descriptors(self):
        return len(os.listdir(self.folder + "/fd"))
