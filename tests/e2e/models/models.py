#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server with several models: which one answers, how they come and go, and that nobody is lost meanwhile.

usage: models.py BITNET DENSE.gguf HYBRID.gguf [--only TEXT] [--swaps N]      output is TAP
"""
import argparse
import itertools
import json
import pathlib
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
from serving import Process, Server, until
from tap import Tap

PROMPTS = ["Once upon a time", "One day a girl", "The dog", "Tom and Sue went to the park"]
HYBRID_CTX = ("--model-option", "hybrid:ctx-size=512", "--model-option", "hybrid:max-num-seqs=4")


def body(model, i, **more):
    return {"model": model, "prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 6 + i % 11, "seed": i, "temperature": 0.8, **more}


def text(reply):
    assert reply.status == 200, (reply.status, reply.body)
    return reply.json()["choices"][0]["text"]


def states(s):
    return {m["id"]: m["status"]["value"] for m in s.get("/v1/models").json()["data"] if "status" in m}


class Tools:
    def __init__(self, program, dense, hybrid, swaps):
        self.program, self.swaps = program, swaps
        self.paths = {"dense": str(pathlib.Path(dense).resolve()), "hybrid": str(pathlib.Path(hybrid).resolve())}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bitnet-models-"))
        self.words = [f"{k}={v}" for k, v in self.paths.items()]
        self.alone_texts = {}

    def serve(self, *options):
        return Server(self.program, *self.words, *HYBRID_CTX, "--no-warm-up", "--no-cache", *options)

    def alone(self, n=24):
        """What each model says when it is the only one of its server."""
        for name in () if self.alone_texts else self.paths:
            own = ["--ctx-size", 512, "--max-num-seqs", 4] if name == "hybrid" else []
            with Server(self.program, self.paths[name], "--no-warm-up", "--no-cache", *own) as s:
                for i in range(n):
                    self.alone_texts[name, i] = text(s.post("/v1/completions", body("any name", i)))
        return self.alone_texts


def names(t):
    with t.serve("--model-option", "dense:alias=gpt-4o,small") as s:
        assert states(s) == {"dense": "unloaded", "hybrid": "unloaded"}, states(s)
        assert s.get("/ready").status == s.get("/health").status == 200
        for asked, who in (("dense", "dense"), ("hybrid", "hybrid"), ("gpt-4o", "dense"), ("small", "dense"), ("", "dense"),
                           ("hybrid:latest", "hybrid"), (None, "dense")):
            got = text(s.post("/v1/completions", body(asked, 3)))
            assert got == t.alone()[who, 3], (asked, got)
        assert states(s) == {"dense": "loaded", "hybrid": "loaded"}, states(s)
        wrong = s.post("/v1/chat/completions", {"model": "hybird", "messages": [{"role": "user", "content": "a"}]})
        error = wrong.json()["error"]
        assert (wrong.status, error["code"]) == (404, "model_not_found") and "'dense', 'hybrid'" in error["message"], error
        for path, ask in (("/v1/embeddings", {"input": "a"}), ("/tokenize", {"content": "a"}), ("/completion", {"prompt": "a"}),
                          ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}),
                          ("/api/chat", {"messages": [{"role": "user", "content": "a"}]}), ("/api/show", {})):
            assert s.post(path, {**ask, "model": "nobody"}).status == 404, path
        assert s.get("/props?model=nobody").status == 404
        assert s.post("/v1/completions", {"model": 5, "prompt": "a"}).status == 400
        vectors = [len(s.post("/v1/embeddings", {"model": m, "input": "a"}).json()["data"][0]["embedding"]) for m in t.paths]
        sizes = [s.get("/v1/models/" + m).json()["meta"]["n_embd"] for m in t.paths]
        assert vectors == sizes, "vectors are of the wrong model"
        props = {m: s.get(f"/props?model={m}").json() for m in t.paths}
        assert props["dense"]["model"]["architecture"] != props["hybrid"]["model"]["architecture"]
        assert props["hybrid"]["engine"]["ctx_tokens"] == 512, "an option of its own"
        assert s.get("/v1/models/gpt-4o").json()["id"] == "dense" and s.get("/v1/models/x").status == 404
        tokens = [s.post("/tokenize", {"model": m, "content": PROMPTS[3]}) for m in t.paths]
        assert [r.status for r in tokens] == [200, 200], [r.body for r in tokens]
        tags = [m["name"] for m in s.get("/api/tags").json()["models"]]
        assert tags == ["dense", "hybrid"], tags
        for m in t.paths:
            assert s.metric("bitnet_model_resident", model_name=m) == 1
            assert s.metric("bitnet_generation_tokens_total", model_name=m) > 0
            assert s.get(f"/metrics.json?model={m}").json()["model"] == m
        samples = [l.split(" ")[0] for l in s.get("/metrics").body.decode().splitlines() if not l.startswith("#")]
        assert len(samples) == len(set(samples)), "a sample is told twice"
        assert s.stop() == 0
    return f"{len(samples)} samples"


def both_at_once(t):
    """Two engines that share the cores say what they say alone."""
    with t.serve() as s:
        wrong = []

        def ask(m):
            for i in range(24):
                got = text(s.post("/v1/completions", body(m, i)))
                if got != t.alone()[m, i]:
                    wrong.append((m, i, got))

        crowd = [threading.Thread(target=ask, args=[m]) for m in t.paths for _ in range(3)]
        for c in crowd:
            c.start()
        for c in crowd:
            c.join()
        assert not wrong, wrong[:3]


def swaps(t):
    """One place for two models, and clients who want both all the time."""
    want = t.alone()
    with t.serve("--models-max", 1, "--max-queue", 64) as s:
        wrong, done, ended, p = [], [], threading.Event(), Process(s.process.pid)

        def ask(model, numbers, stream):
            while not ended.is_set():
                i = next(numbers) % 24
                try:
                    r = s.post("/v1/completions", body(model, i, stream=stream))
                    got = "".join(e["choices"][0]["text"] for e in r.events()) if stream else text(r)
                    if r.status != 200 or got != want[model, i]:
                        wrong.append((model, i, r.status, got))
                except Exception as e:
                    wrong.append((model, i, repr(e)))
                done.append(model)

        def n_loads():
            return s.metric("bitnet_model_loads_total")

        crowd = [threading.Thread(target=ask, args=[m, itertools.count(7 * k), k % 2 == 1]) for m in t.paths for k in range(3)]
        for c in crowd:
            c.start()
        rss = []
        for n in range(6, t.swaps + 1, 2):
            until(f"{n} models were loaded", lambda n=n: n_loads() >= n, 120)
            rss.append(p.rss_mib())
            assert not wrong, wrong[:3]
        ended.set()
        for c in crowd:
            c.join()
        assert not wrong, wrong[:3]
        third = max(1, len(rss) // 3)
        first, last = max(rss[:third]), max(rss[-third:])
        assert last < first * 1.1 + 10, f"memory grew from {first:.0f} to {last:.0f} MiB: {[round(x) for x in rss]}"
        loads, unloads = n_loads(), s.metric("bitnet_model_unloads_total")
        assert s.metric("bitnet_model_load_failures_total") == 0 and loads - unloads in (0, 1)
        assert s.stop() == 0
    return (f"{loads:.0f} loads, {len(done)} answers ({done.count('dense')} + {done.count('hybrid')}), none lost or different; "
            f"RSS MiB at most {first:.0f} in the first third, {last:.0f} in the last: {' '.join(f'{x:.0f}' for x in rss)}")


def idle(t):
    with t.serve("--idle-unload", "1s") as s:
        text(s.post("/v1/completions", body("dense", 1)))
        begun = time.monotonic()
        until("the idle model has left", lambda: states(s)["dense"] == "unloaded")
        assert time.monotonic() - begun > 0.8, "it left too soon"
        s.post("/api/generate", {"model": "dense", "keep_alive": -1})
        s.post("/api/generate", {"model": "hybrid", "keep_alive": "30m"})
        running = {m["name"]: m["expires_at"] for m in s.get("/api/ps").json()["models"]}
        assert running.keys() == t.paths.keys() and running["dense"].startswith("9999") and running["hybrid"] < "9999", running
        time.sleep(1.5)
        assert states(s) == {"dense": "loaded", "hybrid": "loaded"}, "kept as the requests said"
        told = s.post("/api/generate", {"model": "hybrid", "prompt": "", "keep_alive": 0}).json()
        assert told["done_reason"] == "unload", told
        until("it was let go of", lambda: states(s)["hybrid"] == "unloaded")
        assert s.post("/models/unload", {"model": "dense"}).json() == {"success": True}
        until("the other one, too", lambda: states(s)["dense"] == "unloaded")
        assert s.post("/models/load", {"model": "hybrid"}).json() == {"success": True}
        assert states(s)["hybrid"] == "loaded"
        assert s.post("/api/generate", {"model": "dense", "keep_alive": "soon"}).status == 400
    with Server(t.program, t.paths["dense"], "--no-warm-up", "--idle-unload", "1") as s:  # the only one
        first = text(s.post("/v1/completions", body("any name", 2)))
        name = s.get("/v1/models").json()["data"][0]["id"]
        until("the only one has left", lambda: states(s)[name] == "unloaded")
        assert text(s.post("/v1/completions", body("any name", 2))) == first
    with Server(t.program, t.paths["dense"], "--no-warm-up") as s:
        s.post("/api/generate", {"model": "any", "keep_alive": 0})
        assert list(states(s).values()) == ["loaded"], "the only model stays"
        assert s.post("/models/unload", {"model": "any"}).status == 501


def room(t):
    """Memory is bounded: what was used longest ago goes; what can never fit is refused."""
    with t.serve() as s:
        need = {}
        for m in t.paths:
            s.post("/models/load", {"model": m})
            need[m] = int(s.metric("bitnet_model_resident_bytes", model_name=m))
    with t.serve("--max-resident", max(need.values()) + min(need.values()) // 2) as s:
        for m in ("dense", "hybrid", "dense"):
            text(s.post("/v1/completions", body(m, 1)))
            until("the limit is kept", lambda m=m: list(states(s).values()).count("loaded") == 1 and states(s)[m] == "loaded")
    with t.serve("--max-resident", min(need.values()) - 1) as s:
        for _ in range(2):
            r = s.post("/v1/completions", body("dense", 1))
            assert (r.status, r.json()["error"]["code"]) == (503, "model_not_loaded"), r.body
            assert "--max-resident" in r.json()["error"]["message"]
    return f"{need['dense'] >> 20} and {need['hybrid'] >> 20} MiB"


def folder(t):
    """Every model of a folder by its name; one that cannot be loaded is told so, until it can."""
    models = t.folder / "models"
    (models / "not-a-model").mkdir(parents=True)
    shutil.copy(t.paths["dense"], models / "tiny.gguf")
    (models / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    (models / "big-00002-of-00002.gguf").write_bytes(b"GGUF")
    with Server(t.program, "--models-dir", models, "--no-warm-up") as s:
        assert list(states(s)) == ["broken", "tiny"], states(s)
        assert text(s.post("/v1/completions", body("tiny", 4))) == t.alone()["dense", 4]
        r = s.post("/v1/completions", body("broken", 4))
        assert (r.status, r.json()["error"]["code"]) == (503, "model_not_loaded") and "broken.gguf" in r.json()["error"]["message"], r.body
        shutil.copy(t.paths["dense"], models / "broken.gguf")
        assert text(s.post("/v1/completions", body("broken", 4))) == t.alone()["dense", 4]
        assert s.stop() == 0


def waiting(t):
    """Who waits for a model may go, run out of time, or be too many; an answer in progress is not cut short."""
    long = {"model": "dense", "prompt": PROMPTS[0], "max_tokens": 150, "ignore_eos": True, "seed": 1}
    with t.serve("--models-max", 1, "--timeout", 120, "--max-queue", 2) as s:
        want = text(s.post("/v1/completions", long))
        got, others = [], []
        first = threading.Thread(target=lambda: got.append(text(s.post("/v1/completions", long))))
        first.start()
        until("it runs", lambda: s.metric("bitnet_num_requests_running", model_name="dense") == 1)
        goes = s.connect()
        goes.request("POST", "/v1/completions", json.dumps(body("hybrid", 0)), s.headers())
        until("it waits", lambda: s.metric("bitnet_num_requests_waiting", model_name="hybrid") == 1 or got)
        goes.close()
        crowd = [threading.Thread(target=lambda i=i: others.append(s.post("/v1/completions", body("hybrid", i)))) for i in range(8)]
        for c in crowd:
            c.start()
        for c in [first, *crowd]:
            c.join()
        assert got == [want], "the answer in progress was disturbed"
        codes = sorted(r.status for r in others)
        assert set(codes) <= {200, 429} and 200 in codes, codes
        s.stop()
    with t.serve() as s:  # told to stop while a model is being loaded
        late = threading.Thread(target=lambda: others.append(s.post("/v1/completions", body("hybrid", 5))))
        late.start()
        until("it has come in", lambda: states(s)["hybrid"] != "unloaded")
        assert s.stop() == 0
        late.join()
        assert text(others[-1]) == t.alone()["hybrid", 5], "it was taken, and not answered"
    return f"{codes.count(200)} waited, {codes.count(429)} were too many"


CASES = [names, both_at_once, idle, room, folder, waiting, swaps]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("dense")
    p.add_argument("hybrid")
    p.add_argument("--only", default="")
    p.add_argument("--swaps", type=int, default=50)
    o = p.parse_args()
    cases = [c for c in CASES if o.only in c.__name__]
    t = Tools(o.program, o.dense, o.hybrid, o.swaps)
    tap = Tap(len(cases))
    for case in cases:
        tap.case(case.__name__, case, t)
    shutil.rmtree(t.folder)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
