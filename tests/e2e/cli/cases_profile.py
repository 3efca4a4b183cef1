# SPDX-License-Identifier: Apache-2.0
"""profile: the account adds up, in the report, the trace and the folded stacks alike. Nothing here
asserts how long anything takes."""
import collections
import json
import os
import re

SHORT = ["-n", "16", "--prompt-tokens", "24", "-t", "2"]
MISSED = 0.03  # of the time by the clock may lie outside of the engine's account of its steps


def near(t, got, want, what, tolerance=1e-6):
    t.check(abs(got - want) <= tolerance * max(abs(want), 1), f"{what}: {got} is not {want}")


def check_phase(t, name, p):
    ops, kinds, workers = p["ops"], p["kinds"], p["workers"]
    per_token = p["parts_ns"] / p["tokens"]
    t.check(p["parts_share"] <= 1 + 1e-9, f"{name}: parts are part of the time {p['parts_share']}")
    near(t, p["parts_ns"] / p["wall_ns"], p["parts_share"], f"{name}: their share")
    near(t, p["tok_per_s"] * p["wall_ns"] / 1e9, p["tokens"], f"{name}: speed")
    for what, parts in (("operations", ops), ("kinds", kinds)):
        near(t, sum(x["ns_per_token"] for x in parts), per_token, f"{name}: {what} add up")
        near(t, sum(x["share"] for x in parts), 1, f"{name}: shares of {what}")
        near(t, sum(x["bytes_per_token"] for x in parts), p["bytes_per_token"], f"{name}: bytes")
    for k in kinds:
        near(t, sum(x["ns_per_token"] for x in ops if x["kind"] == k["kind"]), k["ns_per_token"],
             f"{name}: operations of the kind {k['kind']}")
    names = [x["op"] for x in ops]
    t.equal(len(names), len(set(names)), f"{name}: each operation once")
    t.equal("wait" in names, len(workers) > 1, f"{name}: one alone waits for nobody")
    t.check({"norm", "q", "down", "attention", "sample"} <= set(names), f"{name}: {names}")
    t.check({"matrix", "head", "engine"} <= {k["kind"] for k in kinds}, f"{name}: {kinds}")
    for i, w in enumerate(workers):
        t.equal(w["worker"], i, f"{name}: worker")
        all_ns = sum(w[k] for k in ("busy_ns_per_token", "wait_ns_per_token", "idle_ns_per_token"))
        near(t, sum(w["kinds"].values()), all_ns, f"{name}: worker {i}")
        near(t, all_ns, per_token, f"{name}: worker {i} has the same time as all")
        near(t, w["wait_share"] * all_ns, all_ns - w["busy_ns_per_token"], f"{name}: its waiting")
    for i, layer in enumerate(p["layers"]):
        t.equal(layer["layer"], i, f"{name}: layer")
        near(t, sum(layer["ops"].values()), layer["ns_per_token"], f"{name}: layer {i}")
    for op in ("gate", "attention"):
        near(t, sum(x["ops"].get(op, 0) for x in p["layers"]),
             next(x["ns_per_token"] for x in ops if x["op"] == op), f"{name}: {op} is in layers only")
    s = p["step_ms"]
    t.check(0 < s["p50"] <= s["p90"] <= s["p99"] <= s["max"], f"{name}: steps {s}")
    for event, c in p["counters"].items():
        t.check("per_token" in c or c["unavailable"], f"{name}: {event} is counted, or why not")
    t.check("watts" in p["energy"] or p["energy"]["unavailable"], f"{name}: energy, or why not")
    t.equal(p["heap_allocations_per_token"], 0, f"{name}: heap allocations")


def check_report(t, j, new_tokens=16, prompt_tokens=24, batch=1):
    prefill, decode = j["phases"]["prefill"], j["phases"]["decode"]
    t.equal(j["format"], "bitnet-profile-1", "format")
    t.equal((decode["tokens"], decode["steps"]), (new_tokens * batch, new_tokens), "decode")
    t.check(prefill["tokens"] >= prompt_tokens * batch, "prefill")
    for name in ("prefill", "decode"):
        check_phase(t, name, j["phases"][name])
        t.equal(len(j["phases"][name]["workers"]), j["machine"]["threads"], "workers")
        t.equal(len(j["phases"][name]["layers"]), j["model"]["layers"], "layers")
    t.equal(decode["page_faults"], {"minor_per_token": 0, "major_per_token": 0}, "page faults")
    t.check(j["machine"]["cpu"] and j["machine"]["bandwidth_bytes_per_s"] > 0, "machine")
    t.check("mean_mhz" in j["frequency"] or j["frequency"]["unavailable"], "clock, or why not")
    t.check(j["overhead"]["mark_ns"] > 0 and j["overhead"]["marks_per_token"] > 0, "overhead")
    t.check(j["verdict"].startswith("Decode reads "), "verdict")
    t.check(isinstance(j["notes"], list) and j["commit"] and j["memory"]["kv_bytes"] > 0, "the rest")


def test_report(t):
    for last in (False, False, True):  # another program may come in between two steps
        r = t.run("profile", *SHORT, "--json")
        j = r.json()
        t.equal(r.err, b"", "standard error with --json")
        check_report(t, j)
        shares = [p["parts_share"] for p in j["phases"].values()]
        if min(shares) >= 1 - MISSED:
            break
        t.check(not last, f"parts add up to {shares} of the time")
    # a token reads the layers, the head, and what is in the cache so far
    fixed = j["model"]["layer_bytes"] + j["model"]["head_bytes"]
    read = j["phases"]["decode"]["bytes_per_token"]
    t.check(fixed < read < fixed * 1.05, f"bytes a token: {read}, weights {fixed}")
    near(t, read * j["phases"]["decode"]["tok_per_s"], j["phases"]["decode"]["bytes_per_s"], "speed")
    t.check("kernel_share" in j["phases"]["prefill"], "prefill beside its kernel")
    t.equal([j["settings"][k] for k in ("threads", "prompt_tokens", "max_new_tokens", "batch")],
            [2, 24, 16, 1], "settings")


def test_batch(t):
    j = t.run("profile", *SHORT, "--batch", "3", "--json").json()
    check_report(t, j, batch=3)
    one = t.run("profile", *SHORT, "--json").json()["phases"]["decode"]
    t.check(j["phases"]["decode"]["bytes_per_token"] < one["bytes_per_token"] / 2, "weights are shared")


def test_prompts_in_pieces(t):
    """Prompts that are read in several steps: the engine's word counts for what is prefill."""
    j = t.run("profile", *SHORT, "--batch", "2", "--batch-size", "10", "--json").json()
    check_report(t, j, batch=2)
    t.check(j["phases"]["prefill"]["steps"] >= 5, "48 tokens, at most 10 in a step")


def test_files(t):
    t.keeps("trace.json", "stacks.txt", "report.json")
    r = t.run("profile", *SHORT, "--trace", "trace.json", "--folded", "stacks.txt", "--json-report",
              "report.json")
    t.check("prefill" in r.text and "Decode reads" in r.text, "tables as well")
    report = json.loads(t.path("report.json").read_text())
    check_report(t, report)
    check_folded(t, report, t.path("stacks.txt").read_text())
    check_trace(t, report, json.loads(t.path("trace.json").read_text()))


def check_folded(t, report, text):
    """Nanoseconds of all workers: exactly the report's times, which are means over them."""
    sums = collections.Counter()
    for line in text.splitlines():
        m = re.fullmatch(r"bitnet;(prefill|decode);(?:layer (\d\d+);)?([\w ]+);([\w+ ]+) (\d+)", line)
        t.check(m, f"a line of folded stacks: {line!r}")
        sums[m[1]] += int(m[5])
        sums[m[1], m[4]] += int(m[5])
    for name, p in report["phases"].items():
        n = len(p["workers"])
        near(t, sums[name], p["parts_ns"] * n, f"folded: {name}", 1e-9)
        for op in p["ops"]:
            near(t, sums[name, op["op"]], op["ns_per_token"] * p["tokens"] * n,
                 f"folded: {name}, {op['op']}", 1e-9)


def check_trace(t, report, trace):
    events = trace["traceEvents"]
    t.equal(trace["otherData"]["spans_lost"], 0, "spans lost")
    workers = report["machine"]["threads"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    t.equal(names, {0: "steps", **{i + 1: f"worker {i}" for i in range(workers)}}, "tracks")
    tracks = collections.defaultdict(list)
    for e in events:
        t.check(e["ph"] in "XMC" and e["pid"] == 1 and e["name"], f"event {e}")
        if e["ph"] == "X":
            t.check(e["dur"] >= 0 and e["cat"] and e["args"]["step"] >= 0, f"event {e}")
            tracks[e["tid"]].append(e)
    steps = tracks.pop(0)
    t.equal([e["args"]["step"] for e in steps], list(range(len(steps))), "steps")
    for name, p in report["phases"].items():
        mine = [e for e in steps if e["name"] == name]
        t.equal((len(mine), sum(e["args"]["tokens"] for e in mine)), (p["steps"], p["tokens"]), name)
        near(t, sum(e["dur"] for e in mine) * 1e3, p["wall_ns"], f"{name} by the clock")
    phase_of = [e["name"] for e in steps]
    sums = collections.Counter()
    for tid, spans in tracks.items():
        t.check(1 <= tid <= workers, f"track {tid}")
        for a, b in zip(spans, spans[1:]):
            t.check(abs(a["ts"] + a["dur"] - b["ts"]) < 2e-3, f"worker {tid - 1}: {b} follows {a}")
        for e in spans:
            sums[phase_of[e["args"]["step"]], e["name"]] += e["dur"] * 1e3
            t.check("layer" not in e["args"] or 0 <= e["args"]["layer"] < report["model"]["layers"],
                    f"layer of {e}")
    for name, p in report["phases"].items():
        for op in p["ops"]:
            if op["op"] != "idle":  # which in the trace is also the time between steps
                near(t, sums[name, op["op"]], op["ns_per_token"] * p["tokens"] * workers,
                     f"trace: {name}, {op['op']}", 1e-3)


def test_table(t):
    r = t.run("profile", *SHORT, "--by-layer")
    for part in ("prefill: 24 tokens", "decode: 16 tokens in 16 steps", "of the wall time", "us/token",
                 "roofline", "layer 00", "worker", "heap allocations", "energy:", "clock:", "noting:"):
        t.check(part in r.text, f"{part!r} is not in the tables")
    rows = re.findall(r"^  ([a-z+ ]+?)  +[a-z]+ +([\d.]+) +([\d.]+) %", r.text.split("decode:")[1], re.M)
    cost = [float(x[1]) for x in rows]
    t.check(len(rows) > 15 and cost == sorted(cost, reverse=True), f"dearest first: {rows}")
    t.check("layer 00" not in t.run("profile", *SHORT).text, "layers only where asked for")


def test_synthetic(t):
    j = t.run("profile", *SHORT, "--synthetic", "tiny", "--layers", "1", "--json").json()
    check_report(t, j)
    t.equal(j["model"]["layers"], 1, "layers")
    check_report(t, t.run("profile", *SHORT, "--synthetic", "qwen35-tiny-rotated", "--json").json())


def test_cpus(t):
    last = str(max(os.sched_getaffinity(0)))
    j = t.run("profile", "-n", "4", "--prompt-tokens", "8", "--cpus", last, "--json").json()
    t.equal((j["machine"]["cpus"], j["machine"]["usable_cpus"]), (last, 1), "CPUs")
    check_report(t, j, 4, 8)


def test_interrupt(t):
    """No tables, no files of half a run."""
    t.interrupted("profile", "-n", "300", "--batch", "200", "--trace", "t.json")


def test_usage(t):
    t.usage("profile", "--layers", "2", says="need --synthetic")
    t.usage("profile", "embedded", "--synthetic", "2b-4t", says="not both")
    t.usage("profile", "--synthetic", "3b-4t", says="2b-4t")
    t.usage("profile", "--cpus", "x", says="--cpus")
    t.usage("profile", "--batch", "0", says="--batch")
    t.usage("profile", "a.gguf", "b.gguf", says="b.gguf")
    t.fails("profile", "--prompt-tokens", "5000", says=["5000 tokens", "do not fit a context of"])
    t.fails("profile", "-c", "32", says=["128 tokens", "a context of 32"])
    t.fails("profile", "--trace", "no/such/folder/x", says="no/such/folder")
    t.fails("profile", "no.gguf", "--trace", "x.json", says="no.gguf")  # and leaves no x.json
