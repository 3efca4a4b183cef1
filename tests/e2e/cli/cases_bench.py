# SPDX-License-Identifier: Apache-2.0
"""bench: what is measured, the report, the plot, and the comparison of reports. Nothing here asserts
how long anything takes: speeds are only ever numbers above zero."""
import json
import os
import random
import re
import xml.etree.ElementTree as ElementTree

SHORT = ["--warmup", "0", "--repeat", "2", "-n", "4", "-t", "2"]
SVG = "{http://www.w3.org/2000/svg}"


def names(report):
    return [m["name"] for m in report["measurements"]]


def check_measurement(t, m, repeats):
    name = m["name"]
    t.equal(m["unit"], "tok/s", f"{name}: unit")
    t.equal(len(m["repeats"]), repeats, f"{name}: repeats")
    t.check(all(x > 0 for x in m["repeats"]), f"{name}: speeds")
    t.check(m["min"] <= m["q1"] <= m["median"] <= m["q3"] <= m["max"], f"{name}: order")
    t.equal((m["min"], m["max"]), (min(m["repeats"]), max(m["repeats"])), f"{name}: ends")
    t.check(m["mad"] >= 0 and m["spread"] >= 0 and m["mean"] > 0, f"{name}: spread")
    if m["mode"] in ("stream", "prefill"):
        t.equal(len(m["ttft_ms_repeats"]), repeats, f"{name}: first tokens")
        t.check(m["ttft_ms"] > 0, f"{name}: time to first token")
    if m["mode"] == "prefill":
        t.check("roofline_share" not in m, f"{name}: no share of the bandwidth")
        return
    s = m["step_ms"]
    t.check(0 < s["p50"] <= s["p95"] <= s["p99"] <= s["max"], f"{name}: percentiles {s}")
    t.check(s["n"] > 0 and s["mean"] > 0, f"{name}: steps")
    t.check(m["bytes_per_step"] >= m["bytes_per_token"] > 0, f"{name}: bytes")
    t.check(m["roofline_share"] > 0, f"{name}: share of the bandwidth")


def test_report(t):
    r = t.run("bench", *SHORT, "--mode", "all", "--json", "--prompt-tokens", "8,16", "--depths",
              "0,20", "--batch-sizes", "1,3")
    j = r.json()
    t.equal(r.err, b"", "standard error with --json")
    t.equal(j["format"], "bitnet-bench-1", "format")
    t.equal(names(j), ["stream", "prefill 8", "prefill 16", "batch 1", "batch 3", "depth 0",
                       "depth 20"], "measurements")
    for m in j["measurements"]:
        check_measurement(t, m, 2)
    t.check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", j["date"]), f"date {j['date']}")
    t.equal("bitnet " + j["version"] + "\n", t.run("--version").text, "version")
    t.check(j["commit"], "commit")
    t.check(j["load_ms"] > 0 and j["peak_rss_bytes"] > 1 << 20, "load time and memory")
    machine, settings, model = j["machine"], j["settings"], j["model"]
    t.check(machine["cpu"] and machine["cpus"] and machine["usable_cores"] >= 1, "machine")
    t.check(machine["read_bandwidth_gb_s"] > 0, "bandwidth")
    t.equal(len(machine["read_bandwidth_gb_s_repeats"]), 2, "bandwidth of every round")
    t.equal([settings[k] for k in ("threads", "warmup", "repeat", "max_new_tokens", "kv_type")],
            [2, 0, 2, 4, "f16"], "settings")
    t.check(settings["backend"] and model["layout"] and model["head_type"], "kernels and layout")
    t.check(isinstance(j["notes"], list) and isinstance(machine["disturbed"], bool), "notes")
    # a token reads the layers, the head, and what is in the cache so far
    stream = j["measurements"][0]
    fixed = model["layer_bytes"] + model["head_bytes"]
    t.check(fixed < stream["bytes_per_token"] < fixed * 1.05, "bytes a token")
    batch = j["measurements"][4]
    t.check(abs(batch["bytes_per_token"] * 3 - batch["bytes_per_step"]) < 1, "bytes in a batch")
    shallow, deep = j["measurements"][5:7]
    t.check(deep["bytes_per_token"] > shallow["bytes_per_token"], "a deeper cache is more to read")
    t.equal(stream["step_ms"]["n"], 2 * 3, "the first of 4 tokens falls out of the prompt")


def test_table(t):
    r = t.run("bench", *SHORT, "--prompt-tokens", "16")
    lines = r.text.splitlines()
    t.check(lines[0].startswith("bitnet "), "the program comes first")
    t.check("GB/s" in r.text and "2 threads" in r.text, "machine")
    at = next(i for i, x in enumerate(lines) if x.split()[:1] == ["tok/s"])
    t.equal([re.split(r"  +", x)[0] for x in lines[at + 1:]], ["stream", "prefill 16"], "lines")
    t.equal(len({len(x) for x in lines[at:]}), 1, "columns are aligned")
    t.check(max(map(len, lines)) <= 100, "fits 100 columns")
    t.check(all(x.startswith("bitnet: note: ") for x in r.errors.splitlines()), "only notes")


def test_int8_head(t):
    j = t.run("bench", *SHORT, "--mode", "stream", "--head", "int8", "--json").json()
    t.equal(j["settings"]["head"], "int8", "settings")
    fixed = j["model"]["layer_bytes"] + j["model"]["head_copy_bytes"]
    t.check(fixed < j["measurements"][0]["bytes_per_token"] < fixed * 1.05, "the copy is what is read")
    t.check(j["model"]["head_copy_bytes"] < j["model"]["head_bytes"] * 0.6, "half of 16 bits")
    text = t.run("bench", *SHORT, "--mode", "stream", "--head", "int8").text
    t.check(" int8, file" in text, "the table names the head")


def test_lists(t):
    """Both separators, and a model after the numbers."""
    base = ["bench", *SHORT, "--mode", "batch", "--json"]
    want = ["batch 1", "batch 2", "batch 3"]
    for args in (["--batch-sizes", "1,2,3"], ["--batch-sizes", "1", "2", "3"],
                 ["--batch-sizes=1,2,3"], ["--batch_sizes", "1 2 3"], ["--batch-sizes", "1,2", "3"],
                 ["--batch-sizes", "1", "2", "3", "embedded"], ["--batch-sizes", "1", "2", "1", "3"]):
        t.equal(names(t.run(*base, *args).json()), want, f"{args}")
    for bad in ("", "1,,2", "1,", "x", "0", "1;2", "99999999999999999999"):
        t.usage(*base, "--batch-sizes", bad, says=["--batch-sizes", "expects whole numbers"])
    t.usage(*base, "--batch-sizes", *["1"] * 40, says="at most 32 numbers")


def test_context_is_respected(t):
    j = t.run("bench", *SHORT, "--mode", "all", "-c", "64", "--prompt-tokens", "64,65", "--depths",
              "0,30,1000,2000", "--batch-sizes", "2", "--json").json()
    t.equal(names(j), ["stream", "prefill 64", "batch 2", "depth 0", "depth 30", "depth 60"],
            "what fits 64 tokens")
    t.check(any("65" in n for n in j["notes"]), f"a note about what did not fit: {j['notes']}")
    j = t.run("bench", "--warmup", "0", "--repeat", "1", "-n", "500", "--mode", "stream", "-c",
              "32", "--json").json()
    t.equal(j["measurements"][0]["new_tokens"], 24, "new tokens that fit")
    t.fails("bench", *SHORT, "-c", "4", says="context of 4")
    t.fails("bench", *SHORT, "--mode", "prefill", "-c", "16", "--prompt-tokens", "17", says="16")


def test_files(t):
    t.keeps("r.json", "p.svg", "p.html")
    r = t.run("bench", *SHORT, "--mode", "all", "--batch-sizes", "1,2", "--depths", "0,9",
              "--prompt-tokens", "5", "--json-report", "r.json", "--plot", "p.svg")
    report = json.loads(t.path("r.json").read_text())
    t.check("stream" in r.text, "the table is printed all the same")
    root = ElementTree.parse(t.path("p.svg")).getroot()
    t.equal(root.tag, SVG + "svg", "root of the drawing")
    t.equal(len(root.findall(SVG + "circle")), len(report["measurements"]), "one point each")
    t.equal(len([p for p in root.findall(SVG + "path") if p.get("class") == "bar"]),
            len(report["measurements"]), "one error bar each")
    text = " ".join(x.text or "" for x in root.iter(SVG + "text"))
    for word in ("requests at a time", "tokens in the cache", "tok/s"):
        t.check(word in text, f"'{word}' is in the drawing")
    t.check("href" not in t.path("p.svg").read_text(), "nothing from outside")
    t.run("bench", *SHORT, "--mode", "stream", "--json-report", "r.json", "--plot", "p.html")
    t.equal(names(json.loads(t.path("r.json").read_text())), ["stream"], "replaced")
    page = t.path("p.html").read_text()
    t.check(page.startswith("<!DOCTYPE html>"), "a page")
    page = ElementTree.fromstring(page.split("\n", 1)[1])
    t.check(page.find(f".//{SVG}svg") is not None, "with the drawing in it")
    t.equal([x.text for x in page.findall(".//tbody/tr/th")], ["stream"], "a table of the measurements")
    t.check("light-dark" in page.find(".//head/style").text, "colours for dark screens")
    t.fails("bench", "--json-report", "no/such/folder/r.json", says="no/such/folder")
    t.fails("bench", "--plot", ".", says="folder")


def test_synthetic(t):
    j = t.run("bench", *SHORT, "--synthetic", "tiny", "--layers", "1", "--head-type", "q4_0",
              "--prompt-tokens", "3", "--json").json()
    t.equal(j["model"]["layers"], 1, "layers")
    t.equal(j["model"]["head_type"].lower(), "q4_0", "head")
    t.check("tiny" in j["model"]["name"], "name")
    j = t.run("bench", *SHORT, "--synthetic", "qwen35-tiny-rotated", "--prompt-tokens", "3", "--json").json()
    t.equal(j["model"]["head_type"], "PTQ1_0", "types of the published model")
    t.usage("bench", "--synthetic", "2b-4x", says="did you mean '2b-4t'?")
    t.usage("bench", "--synthetic", "2b-4t", "embedded", says="not both")
    t.usage("bench", "--layers", "2", says="--synthetic")


def test_ffn(t):
    """What feed-forward layers leave out is not counted as read."""
    def run(ffn):
        return t.run("bench", *SHORT, "--mode", "all", "--prompt-tokens", "4", "--batch-sizes", "1,2", "--depths", "5",
                     "--synthetic", "tiny", "--ffn-density", "0.2:0.1", "--ffn", ffn, "--json").json()

    dense, skip = run("dense"), run("skip")
    t.equal([dense["settings"]["ffn"], skip["settings"]["ffn"]], ["dense", "skip"], "mode")
    t.equal([len(skip["ffn"]["gates_open"]), dense["ffn"]["tokens"]], [2, 0], "shares")
    t.check(skip["model"]["ffn_copy_bytes"] > 0 == dense["model"]["ffn_copy_bytes"], "copies")
    for a, b in zip(dense["measurements"], skip["measurements"]):
        if a["name"] in ("stream", "batch 1", "depth 5"):
            t.check(b["bytes_per_token"] < a["bytes_per_token"], f"{a['name']}: fewer bytes")
        elif a["name"] == "batch 2":
            t.equal(b["bytes_per_token"], a["bytes_per_token"], "a batch reads all")
    text = t.run("bench", *SHORT, "--mode", "stream", "--ffn", "skip").text
    t.check("ffn skip (open gates" in text and max(map(len, text.splitlines())) <= 100, "the table's head")
    t.usage("bench", "--ffn-density", "trained", says="--synthetic")


def test_cpus(t):
    mine = sorted(os.sched_getaffinity(0))
    j = t.run("bench", *SHORT, "--mode", "stream", "--cpus", mine[-1], "-t", "0", "--json").json()
    t.equal(j["machine"]["cpus"], str(mine[-1]), "CPUs")
    t.equal(j["settings"]["threads"], 1, "one core, one thread")
    for bad in ("", "x", "0-", "1-0", "0,,1", "0,", "99999", "0 1", "-1"):
        t.usage("bench", "--cpus=" + bad, says=["--cpus", f"'{bad}'"])
    absent = next((c for c in range(1023, -1, -1) if c not in mine and c >= os.cpu_count()), None)
    if absent is not None:
        t.fails("bench", "--cpus", absent, says=str(absent))


def test_usage(t):
    t.usage("bench", "--mode", "fast", says=["--mode", "stream|prefill"])
    t.usage("bench", "--repeat", "0", says="--repeat")
    t.usage("bench", "-n", "1", says="from 2")
    t.usage("bench", "a", "b", says="'b'")
    t.usage("bench", "-m", "a", "b", says="once")
    t.usage("bench", "--fail-over", "3%", says="diff")
    t.usage("bench", "diff", "a", says="OLD NEW")
    for bad in ("x", "-1%", "%", "100%", "3%%"):
        t.usage("bench", "diff", "a", "b", f"--fail-over={bad}", says=f"'{bad}'")
    t.fails("bench", "nosuch.gguf", says="nosuch.gguf")


def test_interrupt(t):
    """No table, no file of half a run."""
    t.interrupted("bench", "--repeat", "1000", "--json-report", "r.json")


def test_kv(t):
    """One line a type of the KV cache; changes are those from f16."""
    text = t.write("text.txt", b"Once upon a time there was a little dog. " * 20)
    base = ["bench", *SHORT, "--mode", "kv", "--depths", "40"]
    j = t.run(*base, "--text", text, "--json").json()
    types = ["f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "int2"]
    t.equal([m["kv_type"] for m in j["measurements"]], types, "types")
    for m in j["measurements"]:
        check_measurement(t, m, 2)
        t.equal(m["at"], 40, "depth")
        t.check(abs(m["perplexity_change"]) < 0.5 and m["ppl_tokens"] > 50, "perplexity")
    t.equal([m["bits_per_value"] for m in j["measurements"]], [32, 16, 16, 8, 8, 8.5, 5, 3], "bits")
    base_line = j["measurements"][1]
    t.equal((base_line["speed_change"], base_line["perplexity_change"]), (0, 0), "the base")
    lines = t.run(*base, "--synthetic", "2b-4t", "--layers", "1", "--text", text).text.splitlines()
    t.equal([x.split()[0] for x in lines[-10:-2]], types, "the table")
    t.usage("bench", "--text", text, says="--text needs --mode kv")
    t.fails("bench", "--mode", "kv", "-c", "16", says="too small")
    t.fails(*base, "--text", "nothing.txt", says="nothing.txt")


def test_kv_random(t):
    """With random keys every depth has a line, for f16 and the type that was asked for, and attention its own time."""
    base = ["bench", *SHORT, "--mode", "kv", "--random-keys", "--depths", "0,64,100"]
    j = t.run(*base, "--kv-type", "int4", "--json").json()
    t.equal([(m["name"], m["at"]) for m in j["measurements"]],
            [(f"kv {k} {d}", d) for k in ("f16", "int4") for d in (1, 64, 100)], "lines")
    for m in j["measurements"]:
        check_measurement(t, m, 2)
        t.check(0 < m["attention_ms"] < m["step_ms"]["p99"], "attention")
    t.equal([m["speed_change"] for m in j["measurements"][:3]], [0, 0, 0], "each depth has its base")
    t.check("attention" in t.run(*base, "--kv-type", "int8").text, "the table")
    t.usage("bench", "--random-keys", says="--random-keys needs --mode kv")


def test_kernels(t):
    """Every variant that this CPU can run is timed, and one of each operation is the chosen one."""
    t.keeps("k.json")
    base = ["bench", "--mode", "kernels", "--warmup", "0"]
    j = t.run(*base, "--repeat", "1", "--json").json()
    t.equal(len(set(names(j))), len(names(j)), "names are unique")
    have = {b["name"] for b in t.run("version", "--json").json()["backends"] if b["supported"]}
    t.equal({m["isa"] for m in j["measurements"]}, have, "variants")
    for op in {m["op"] for m in j["measurements"]}:
        t.equal(len({m["isa"] for m in j["measurements"] if m["op"] == op and m["chosen"]}), 1,
                f"{op}: one is chosen")
    for m in j["measurements"]:
        t.check(m["mode"] == "kernels" and m["unit"] in ("GMAC/s", "GB/s"), f"{m['name']}: kind")
        t.check(m["ns"] > 0 and m["gb_s"] > 0 and m["repeats"][0] > 0, f"{m['name']}: speeds")
        t.check(m["isa"] != "scalar" or m["ratio_to_scalar"] == 1, f"{m['name']}: ratio")
    work = [m["work"] for m in j["measurements"] if m["op"] == "gemm_t2" and m["isa"] == "scalar"]
    for tok in ("1 token", "4 tokens", "8 tokens", "32 tokens", "128 tokens"):
        for place in ("cache", "memory"):
            t.check(any(w.endswith(f", {tok}, {place}") for w in work), f"gemm: {tok}, {place}")
    r = t.run(*base, "--repeat", "2", "--op", "add", "--json-report", "k.json", "--synthetic",
              "2b-4t", "--head-type", "q4_0")
    t.check("2560" in r.text and "rmsnorm" not in r.text and "*" in r.text, "table")
    r = t.run("bench", "diff", "k.json", "k.json")
    t.check("add scalar 2560" in r.text and "GB/s" in r.text, "diff of kernels")
    t.fails(*base, "--op", "nosuch", says="'nosuch'")
    t.usage("bench", "--op", "add", says="--mode kernels")
    t.usage(*base, "--plot", "k.svg", says="--plot")


def test_pin(t):
    """The caller's own CPUs do not change; crowded pools are not bound."""
    for how, threads in (("on", "2"), ("off", "2"), ("auto", "2"), ("on", "64")):
        j = t.run("bench", "--warmup", "0", "--repeat", "1", "-n", "4", "--mode", "stream", "--json",
                  "--pin", how, "-t", threads).json()
        room = j["machine"]["usable_cores"] >= int(threads)
        t.equal(j["settings"]["pinned"], 1 if how == "on" and room else 0, f"{how} {threads}")
        t.check("-" in j["machine"]["cpus"] or j["machine"]["usable_cores"] <= 2, "CPUs of the caller")
    t.usage("bench", "--pin", "never", says="auto|on|off")


# ------------------------------------------------------------------ diff

def made(lines, **more):
    """A report by hand: {name: repeats}."""
    items = [{"name": n, "mode": n.split()[0], "unit": "tok/s", "repeats": x}
             for n, x in lines.items()]
    return json.dumps({"format": "bitnet-bench-1", "load_ms": 10, "peak_rss_bytes": 1000000,
                       "measurements": items, **more})


def noisy(rng, mean, share, n=5):
    return [mean * (1 + rng.uniform(-share, share)) for _ in range(n)]


def test_diff_of_itself(t):
    t.keeps("r.json")
    t.run("bench", *SHORT, "--mode", "all", "--repeat", "5", "--prompt-tokens", "8", "--depths",
          "0", "--batch-sizes", "2", "--json-report", "r.json")
    r = t.run("bench", "diff", "r.json", "r.json")
    t.equal(r.err, b"", "no notes")
    t.check("0 of 5 slower" in r.text, f"nothing is slower: {r.text}")
    j = t.run("bench", "diff", "r.json", "r.json", "--json").json()
    t.equal({c["verdict"] for c in j["comparisons"]}, {"same"}, "verdicts")
    t.equal({c["speed_ratio"] for c in j["comparisons"]}, {1.0}, "ratios")
    t.equal(j["regression"], False, "regression")


def test_diff_finds_a_planted_slow_down(t):
    rng = random.Random(1)
    good = {"stream": noisy(rng, 30, 0.01), "batch 8": noisy(rng, 90, 0.01)}
    bad = {"stream": noisy(rng, 30 * 0.95, 0.01), "batch 8": noisy(rng, 90, 0.01)}
    t.write("old.json", made(good))
    t.write("new.json", made(bad))
    r = t.run("bench", "diff", "old.json", "new.json", code=1, one_error_line=False)
    verdicts = {re.split(r"  +", x)[0]: x.split()[-1] for x in r.text.splitlines() if "tok/s" in x}
    t.equal(verdicts, {"stream": "slower", "batch 8": "same"}, "verdicts")
    j = t.run("bench", "diff", "old.json", "new.json", "--json", code=1,
              one_error_line=False).json()
    t.equal([j["regression"], j["fail_over"]], [True, 0.03], "regression")
    # the other way round it is a gain, and above the threshold it is nothing
    t.check("faster" in t.run("bench", "diff", "new.json", "old.json").text, "faster")
    for over in ("8%", "8", "8 %", "8.0%"):
        t.run("bench", "diff", "old.json", "new.json", "--fail-over", over)
    # too few repeats prove nothing, and say so
    t.write("few.json", made({"stream": bad["stream"][:3]}))
    t.check("too few repeats" in t.run("bench", "diff", "old.json", "few.json").text, "too few")


def test_diff_stays_quiet_on_noise(t):
    rng = random.Random(2)
    lines = {"stream": 30, "prefill 128": 100, "prefill 512": 80, "batch 1": 30, "batch 8": 90,
             "depth 4096": 20}
    for i in range(10):
        share = (0.01, 0.03, 0.05, 0.10)[i % 4]
        for side in ("old.json", "new.json"):
            t.write(side, made({n: noisy(rng, mean, share) for n, mean in lines.items()}))
        t.run("bench", "diff", "old.json", "new.json")


def test_diff_notes(t):
    steady = {"stream": [10.0, 10.1, 10.2, 10.1, 10.0]}
    bandwidth = [30.0, 30.1, 30.2, 30.1, 30.0]
    t.write("old.json", made(steady, settings={"threads": 2}, machine={
        "cpu": "A", "read_bandwidth_gb_s_repeats": bandwidth}))
    t.write("new.json", made(steady, settings={"threads": 4}, machine={
        "cpu": "B\x1b[31m", "read_bandwidth_gb_s_repeats": [x / 2 for x in bandwidth]}))
    r = t.run("bench", "diff", "old.json", "new.json")
    t.says(r, "the CPU differs", "the number of threads differs: 2, 4", "memory itself was slower")


def test_diff_of_a_busy_machine(t):
    """What a busy machine did is not called a regression, and not kept quiet either."""
    fast, slow = {"stream": [10.0, 10.1, 10.2, 10.1, 10.0]}, {"stream": [5.0, 5.1, 5.2, 5.1, 5.0]}
    for name, lines, busy in (("a", fast, False), ("b", slow, True), ("c", slow, False)):
        t.write(name + ".json", made(lines, machine={"disturbed": busy}))
    for old, new, who in (("a", "b", "the new run"), ("b", "a", "the old run"),
                          ("b", "b", None)):
        r = t.run("bench", "diff", old + ".json", new + ".json")
        t.equal("disturbed" in r.text, who is not None, "verdict")
        if who:
            t.says(r, f"in the way of {who}:")
    t.equal(t.run("bench", "diff", "a.json", "b.json", "--json").json()["disturbed"], True, "JSON")
    t.run("bench", "diff", "a.json", "c.json", code=1, one_error_line=False)


def test_diff_of_slower_memory(t):
    """What the memory's own speed may explain is no regression; what it cannot explain is one."""
    steady = [30.0, 30.1, 30.2, 30.1, 30.0]

    def report(name, speed, memory):
        t.write(name, made({"stream": [x * speed for x in steady]},
                           machine={"read_bandwidth_gb_s_repeats": [x * memory for x in steady]}))
    report("old.json", 1, 1)
    report("slower.json", 0.9, 0.9)
    report("worse.json", 0.8, 0.9)
    r = t.run("bench", "diff", "old.json", "slower.json")
    t.check("disturbed" in r.text, "verdict")
    t.says(r, "memory itself was slower", "--run")
    t.check("disturbed" in t.run("bench", "diff", "slower.json", "old.json").text, "other way")
    t.run("bench", "diff", "old.json", "worse.json", code=1, one_error_line=False)


def test_diff_of_programs(t):
    """Stand-ins for programs, each of which prints a report; the machine's speed drifts by far more
    than the difference."""
    program = """#!/usr/bin/env python3
import json, pathlib, sys
assert sys.argv[1] == "bench" and sys.argv[-1] == "--json", sys.argv
log = pathlib.Path("log")
n = len(log.read_text()) if log.exists() else 0
log.write_text((log.read_text() if n else "") + "%s")
v = 100 / (1 + 0.05 * n) * %s * (1 + n %% 3 / 1000)
print(json.dumps({"format": "bitnet-bench-1", "machine": {"disturbed": True}, "measurements": [
    {"name": "stream", "mode": "stream", "unit": "tok/s", "median": v, "ttft_ms": 1000 / v,
     "repeats": [v, v + 1], "ttft_ms_repeats": [1]}], "args": sys.argv}))
"""
    t.keeps("log")
    for name, letter, speed in (("old", "o", "1"), ("same", "n", "1.0"), ("slow", "n", "0.9")):
        t.write(name, program % (letter, speed))
        t.path(name).chmod(0o755)

    def compare(new, *more, **how):
        t.path("log").unlink(missing_ok=True)
        r = t.run("bench", "diff", "--run", "./old", "./" + new, *more, **how)
        return r, t.path("log").read_text()
    r, order = compare("same", "--json", "--pairs", "12", "--", "--mode", "stream")
    j = r.json()
    t.equal(order, "onno" * 6, "in turn")
    t.equal({c["verdict"] for c in j["comparisons"]}, {"same"}, "verdicts")
    t.equal({c["old_repeats"] for c in j["comparisons"]}, {12}, "values")
    r, _ = compare("slow", "--pairs", "12", code=1, one_error_line=False)
    t.check("stream, first token" in r.text and "slower" in r.text, "the difference is found")
    t.check("too few" in compare("slow", "--pairs", "5")[0].text, "too few")
    t.says(t.run("bench", "diff", "--run", "./old", "./nosuch", code=1), "./nosuch")
    t.says(t.run("bench", "diff", "--run", "./old", "/bin/false", code=1), "/bin/false")
    t.says(t.run("bench", "diff", "--run", "./old", "/bin/true", code=1), "no report")
    t.usage("bench", "diff", "--run", "a", says="two programs")
    t.usage("bench", "--run", says="diff")


def test_diff_of_what_is_no_report(t):
    t.write("good.json", made({"stream": [1, 2, 3]}))
    t.write("other.json", made({"batch 4": [1, 2, 3]}))
    broken = {"empty.json": "", "text.json": "hello", "array.json": "[]", "foreign.json": "{}",
              "cut.json": made({"stream": [1]})[:-5], "zero.json": made({"stream": [1, 0]}),
              "word.json": made({"stream": ["x"]}), "none.json": made({"stream": []}),
              "shape.json": json.dumps({"format": "bitnet-bench-1", "measurements": {"a": 1}})}
    for name, text in broken.items():
        t.write(name, text)
        for pair in ((name, "good.json"), ("good.json", name)):
            t.says(t.run("bench", "diff", *pair, code=2), name)
    t.says(t.run("bench", "diff", "good.json", "nosuch.json", code=2), "nosuch.json")
    t.says(t.run("bench", "diff", "good.json", "other.json", code=2), "in common")
