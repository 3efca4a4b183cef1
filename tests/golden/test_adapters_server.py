#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters of a server and of a batch: chosen by model name, by `lora` list and for all, beside each other, and coming and
going under load. What an adapter's numbers must be, tests/golden/test_adapters.py knows; here a server's answers are those of
`bitnet run --lora`.

Prints TAP. usage: test_adapters_server.py BITNET [HYBRID]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(here, "..", "lib"))
from serving import Server, until
from tap import Tap, need_module

need_module("numpy")
from lora import Adapter

bitnet = sys.argv[1]
STORY, WORDS = "Once upon a time", 14
SHAPE = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 10, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096}  # of the embedded model
HYBRID = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 128, "vocab_size": 4096, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64,
          "linear_value_head_dim": 64, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2}  # of hybrid-28m.gguf
SWAPS, CLIENTS = 24, 6
scratch = tempfile.TemporaryDirectory()
tap = Tap()


def place(name):
    return os.path.join(scratch.name, name)


def run(*lora):
    """Greedy, alone."""
    more = [x for a in lora for x in ("--lora", a)]
    got = subprocess.run([bitnet, "run", "-p", STORY, "-n", str(WORDS), "--temp", "0", "--json", *more], check=True,
                         capture_output=True, text=True)
    return json.loads(got.stdout)["text"]


def body(**more):
    return {"prompt": STORY, "max_tokens": WORDS, "temperature": 0, **more}


def text(reply):
    assert reply.status == 200, reply.body
    return reply.json()["choices"][0]["text"]


def equal(got, want, what):
    tap.point(f"{what}" + ("" if got == want else f": {got!r}, not {want!r}"), got == want)


def make():
    a = Adapter(SHAPE, ("q_proj", "v_proj", "down_proj"), rank=4, alpha=20, dtype="F16", seed=1).write_peft(place("a"))
    b = Adapter(SHAPE, ("v_proj", "o_proj", "gate_proj", "up_proj"), rank=3, alpha=20, seed=2).write_gguf(place("b.gguf"), "bitnet-b1.58")
    return a, b


def chosen(a, b, base):
    want_a, want_b, both = run(a), run(b), run(a, f"x={b}:-0.5")
    assert len({base, want_a, want_b, both}) == 4, "the adapters matter too little"
    with Server(bitnet, "--lora", f"a={a}", "--lora", f"b={b}", "--max-num-seqs", "6", "--metrics-compat", "vllm",
                "--alias", "base") as s:
        def ask(**more):
            return text(s.post("/v1/completions", body(**more)))

        equal(ask(), base, "no name: the model")
        equal(ask(model="base"), base, "the model's name")
        equal(ask(model="a"), want_a, "an adapter's name")
        equal(ask(model="b"), want_b, "another's")
        equal(ask(lora=[{"id": 0, "scale": 1.0}, {"id": 1, "scale": -0.5}]), both, "a list of both")
        equal(ask(model="a", lora=[]), base, "an empty list counts more than the name")
        equal(s.post("/v1/completions", body(model="b")).json()["model"], "b", "the reply names it")
        equal(ask(model="a"), want_a, "once more, from the prefix cache")
        for wrong, status in (({"lora": [{"id": 7}]}, 400), ({"lora": [{"scale": 1}]}, 400), ({"lora": {}}, 400),
                              ({"lora": [{"id": 0}, {"id": 0}]}, 400), ({"model": "c"}, 404)):
            equal(s.post("/v1/completions", body(**wrong)).status, status, f"{wrong}: refused")
        models = s.get("/v1/models").json()["data"]
        equal([(m["id"], m.get("parent")) for m in models], [("base", None), ("a", "base"), ("b", "base")], "models")
        equal(s.get("/v1/models/b").json()["root"], b, "one model")
        listed = s.get("/lora-adapters").json()
        equal([(x["id"], x["path"], x["scale"]) for x in listed], [(0, a, 0), (1, b, 0)], "/lora-adapters")
        equal(s.post("/lora-adapters", [{"id": 1, "scale": 1.0}]).status, 200, "a scale for all")
        equal(ask(), want_b, "it is for all")
        equal(ask(model="a"), want_a, "but not for those that name one")
        equal(s.post("/lora-adapters", [{"id": 9, "scale": 1.0}]).status, 400, "no such adapter")
        equal(ask(), want_b, "nothing has changed")
        equal(s.post("/lora-adapters", []).status, 200, "none for all")
        equal(ask(), base, "it is not for all any more")
        equal(s.post("/v1/load_lora_adapter", {"lora_name": "c", "lora_path": a}).status, 403, "updates are not allowed")
        metrics = s.get("/metrics").body.decode()
        tap.point("vllm:lora_requests_info", 'vllm:lora_requests_info{model_name="' in metrics
                  and 'running_lora_adapters="",waiting_lora_adapters=""} ' in metrics)
        company(s, {"a": want_a, "b": want_b, "base": base})
        equal(s.stop(), 0, "the server ends well")
    with Server(bitnet, "--lora", b) as s:
        equal(text(s.post("/v1/completions", body())), want_b, "without a name it is for all")
    batch(a, b, base, want_a, want_b)


def company(s, want):
    """All at once."""
    got, names = {}, list(want) * 4

    def ask(i):
        got[i] = text(s.post("/v1/completions", body(model=names[i])))

    threads = [threading.Thread(target=ask, args=[i]) for i in range(len(names))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal([got.get(i) for i in range(len(names))], [want[n] for n in names], "twelve at a time, each with its own")


def sixteen(model, shape, modules, what):
    """Eight adapters in a batch of 16, two requests each: every number is as when the request is alone."""
    names = [f"n{i}" for i in range(8)]
    ranks, dtypes = (1, 2, 3, 4, 5, 8, 16, 33), ("F32", "F16", "BF16")
    lora = [x for i, n in enumerate(names) for x in ("--lora", f"{n}=" + Adapter(
        shape, modules[i % len(modules)], rank=ranks[i], alpha=12, dtype=dtypes[i % 3], seed=20 + i).write_peft(place(what + n)))]
    bodies = [body(model=names[i % 8], max_tokens=48, temperature=1, seed=i, ignore_eos=True, logprobs=5) for i in range(16)]
    with Server(bitnet, *model, *lora, "--max-num-seqs", "16", "--prefix-cache", "off", "--no-warm-up") as s:
        def ask(i):
            got[i] = s.post("/v1/completions", bodies[i]).json()["choices"][0]

        got = {}
        for i in range(16):
            ask(i)
        alone, got = got, {}
        texts = {c["text"] for c in alone.values()}
        crowded = lambda: s.metric("bitnet_batch_size_count") - s.metric("bitnet_batch_size_bucket", le="12")
        equal(crowded(), 0, f"{what}: alone at first")
        threads = [threading.Thread(target=ask, args=[i]) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        until("its metrics are told", lambda: s.metric("bitnet_num_requests_running") == 0)
        tap.point(f"{what}: sixteen texts differ", len(texts) == 16)
        tap.point(f"{what}: steps with 13 to 16 requests: {crowded():.0f}", crowded() > 0)
        tap.point(f"{what}: eight adapters in it, texts and log-probabilities as alone", got == alone)
        equal(s.stop(), 0, f"{what}: the server ends well")


def batch(a, b, base, want_a, want_b):
    lines = [body(model=m) if m else body() for m in ("a", "b", "", "a")]
    open(place("in.jsonl"), "w").write("".join(json.dumps(x) + "\n" for x in lines))
    subprocess.run([bitnet, "batch", "-i", place("in.jsonl"), "-o", place("out.jsonl"), "--lora", f"a={a}", "--lora", f"b={b}"],
                   check=True, capture_output=True)
    rows = [json.loads(l) for l in open(place("out.jsonl"))]
    equal([r["response"]["body"]["choices"][0]["text"] for r in rows], [want_a, want_b, base, want_a], "a batch, line by line")


def swapped(a, b, base):
    """An adapter is loaded, replaced and unloaded while clients ask: no request is lost, every answer is that of what was
    there."""
    allowed = {"base": {base}, "hot": {run(a), run(b)}}
    counts, wrong, stop = {200: 0, 404: 0}, [], threading.Event()
    with Server(bitnet, "--lora-updates", "--max-num-seqs", "4", "--alias", "base", "--lora", f"b={b}") as s:
        def client(i):
            while not stop.is_set():
                name = "hot" if i % 3 else "base"
                try:
                    got = s.post("/v1/completions", body(model=name, stream=False))
                    if got.status == 404 and name == "hot":
                        counts[404] += 1
                    elif got.status != 200 or text(got) not in allowed[name]:
                        wrong.append((name, got.status, got.body[:200]))
                    else:
                        counts[200] += 1
                except Exception as e:
                    wrong.append((name, repr(e)))

        threads = [threading.Thread(target=client, args=[i]) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        statuses = []
        for i in range(SWAPS):
            answered = sum(counts.values())
            until("answers in between", lambda: wrong or sum(counts.values()) > answered + 1)
            load = {"lora_name": "hot", "lora_path": (a, b)[i % 2], "load_inplace": True}
            statuses.append(s.post("/v1/load_lora_adapter", load).status)
            if i % 3 == 2:
                statuses.append(s.post("/v1/unload_lora_adapter", {"lora_name": "hot"}).status)
        stop.set()
        for t in threads:
            t.join()
        equal(set(statuses), {200}, f"{SWAPS} loads under load")
        tap.point(f"{counts[200]} answers, {counts[404]} without an adapter, none lost or wrong {wrong[:2]}",
                  not wrong and counts[200] > SWAPS)
        for load, status in (({"lora_name": "b", "lora_path": b}, 400), ({"lora_name": "x", "lora_path": place("nowhere")}, 400),
                             ({"lora_name": "base", "lora_path": a}, 400), ({"lora_name": "x"}, 400), ({"lora_path": a}, 400),
                             ({"lora_name": "", "lora_path": a}, 400), ({"lora_name": "x", "lora_path": scratch.name}, 400)):
            got = s.post("/v1/load_lora_adapter", load)
            tap.point(f"refused: {got.body.decode()}", got.status == status)
        equal(s.post("/v1/unload_lora_adapter", {"lora_name": "x"}).status, 404, "no such adapter")
        equal(s.stop(), 0, "the server ends well")


def returned(a, b, base):
    """A model that was unloaded comes back with the adapters that it had, whoever has loaded them."""
    want_a, half = run(a), run(f"{b}:0.5")
    with Server(bitnet, "--lora-updates", "--idle-unload", "1h", "--alias", "base", "--lora", f"b={b}") as s:
        def ask(**more):
            return text(s.post("/v1/completions", body(**more)))

        def unload():
            s.post("/models/unload", {"model": "base"})
            until("the model has left", lambda: s.get("/v1/models").json()["data"][0]["status"]["value"] == "unloaded")

        def load(name, path):
            assert s.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}).status == 200

        load("old", a)
        load("hot", a)
        s.post("/v1/unload_lora_adapter", {"lora_name": "old"})
        s.post("/lora-adapters", [{"id": 0, "scale": 0.5}])
        before = s.get("/lora-adapters").json()
        unload()
        names = [m["id"] for m in s.get("/v1/models").json()["data"]]
        equal(names, ["base", "b", "hot"], "an unloaded model's adapters are told")
        equal(ask(model="hot"), want_a, "the name of a loaded adapter loads its model")
        equal(s.get("/lora-adapters").json(), before, "adapters, numbers and scales are those from before")
        equal(ask(), half, "what all requests use is so again")
        shutil.copytree(a, place("brief"))
        load("brief", place("brief"))
        unload()
        shutil.move(place("brief"), place("elsewhere"))
        equal(ask(model="hot"), want_a, "an adapter whose file has gone does not keep the model away")
        equal(s.post("/v1/completions", body(model="brief")).status, 404, "whoever names it is told")
        load("brief", place("elsewhere"))
        brief = s.get("/lora-adapters").json()[-1]["id"]
        s.post("/lora-adapters", [{"id": brief, "scale": 1}])
        unload()
        shutil.move(place("elsewhere"), place("brief"))
        got = s.post("/v1/completions", body())
        tap.point(f"one that all requests use does: {got.json()['error']['message'][:120]}",
                  got.status == 503 and "elsewhere" in got.json()["error"]["message"])
        shutil.move(place("brief"), place("elsewhere"))
        equal(ask(), want_a, "until it is there again")


if __name__ == "__main__":
    files = *make(), run()
    chosen(*files)
    swapped(*files)
    returned(*files)
    sixteen((), SHAPE, (("q_proj", "v_proj", "down_proj"), ("o_proj", "gate_proj", "embed_tokens"), ("k_proj", "up_proj", "lm_head")), "dense")
    if len(sys.argv) > 2:
        sixteen((sys.argv[2],), HYBRID, (("in_proj_qkv", "out_proj", "down_proj"), ("q_proj", "in_proj_a", "lm_head"),
                                         ("in_proj_z", "o_proj", "embed_tokens")), "hybrid")
    sys.exit(tap.end())
