# SPDX-License-Identifier: Apache-2.0
"""bench --autotune, the file it writes, and commands that take options from it. Which options are the
fastest is the machine's affair: nothing here depends on it. Cases that need certain values write
them into the file themselves."""
import json
import re

QUICK = ["bench", "--autotune", "--budget", "2", "-n", "16", "--prompt-tokens", "64"]
RUN = ["run", "Once upon a time", "-n", "8", "--temperature", "0"]
FILE = "config/bitnet/tuning.json"  # run_cli.py: the user's folder is 'config'
NOTE = "bitnet: note: tuned for this machine: "


def tuned(t, use, name="t.json"):
    """A tuning file with an entry that says this, for the embedded model on this machine."""
    t.keeps(name)
    if not t.path(name).exists():
        t.run(*QUICK[:2], "--budget", "1", "-n", "4", "--prompt-tokens", "4", "--tuning", name)
    j = json.loads(t.path(name).read_text())
    t.equal(len(j["entries"]), 1, "entries")
    j["entries"][0].update(use=use, date="2026-11-15T10:00:00Z")
    t.path(name).write_text(json.dumps(j))
    return name


def notes(r):
    return [x for x in r.errors.splitlines() if x.startswith(NOTE)]


def settings(t, *args, **more):
    r = t.run("bench", "--warmup", "0", "--repeat", "1", "-n", "4", "--prompt-tokens", "600", "--json",
              *args, **more)
    j = r.json()
    return (j["settings"]["threads"], j["model"]["layout"], j["settings"]["tuned"])


def check_point(t, p, what):
    t.equal(sorted(p), ["batch", "layout", "pin", "prefetch", "threads"], what)
    t.check(p["threads"] >= 1 and p["batch"] >= 64 and p["layout"] in ("t2", "t3", "t5", "b1"), what)


def check_stage(t, g):
    name = g["name"]
    t.check(g["metric"] in ("decode", "prefill", "serve") and g["unit"] == "tok/s", f"{name}: unit")
    t.check(0 <= g["choice"] < len(g["candidates"]) > g["best"] >= 0, f"{name}: indices")
    rounds = max(len(c["repeats"]) for c in g["candidates"])
    for c in g["candidates"]:
        check_point(t, {k: c[k] for k in ("batch", "layout", "pin", "prefetch", "threads")}, name)
        t.check(all(x > 0 for x in c["repeats"]), f"{name}: speeds")
        t.check(not c["left"] or len(c["repeats"]) == rounds, f"{name}: all that are left")
    t.check(g["candidates"][g["choice"]]["left"], f"{name}: the choice is left")


def test_autotune(t):
    """What is found is written to the user's folder, shown, and taken by the next run."""
    t.keeps("config", "config/bitnet", FILE)
    j = t.run(*QUICK, "--json").json()
    t.equal(j["format"], "bitnet-autotune-1", "format")
    t.equal(list(j["machine"]), ["cpu", "cores", "cache_bytes"], "machine")
    check_point(t, j["default"], "default")
    check_point(t, j["choice"], "choice")
    for g in j["stages"]:
        check_stage(t, g)
    t.equal(j["stages"][0]["name"], "threads and layout", "the first question")
    file = json.loads(t.path(FILE).read_text())
    t.equal(file["format"], "bitnet-tuning-1", "format of the file")
    entry = file["entries"][0]
    for key in ("machine", "model", "options", "use", "date", "version", "for"):
        t.equal(entry[key], j[key], f"'{key}' of the file and the report")
    t.check(entry["measured"]["decode"]["default"] > 0, "what was measured")
    t.equal(j["choice"] == j["default"], entry["use"] == {}, "the default needs no words")
    r = t.run(*RUN)
    t.equal(len(notes(r)), int(entry["use"] != {}), "a note where something is taken")
    t.equal(t.run(*RUN, "--tuning", "off").out, r.out, "the same text")


def test_table(t):
    t.keeps("t.json", "r.json")
    r = t.run(*QUICK, "--tuning", "t.json", "--exhaustive", "--repeat", "1", "--for", "serve",
              "--json-report", "r.json")
    for part in ("threads and layout: serve", "sweep: serve", "sweep of batches: prefill",
                 "behind the best of all", "choice for serve"):
        t.check(part in r.text, f"'{part}' is in the table")
    t.says(r, "written to t.json")
    t.check(max(map(len, r.text.splitlines())) <= 110, "width")
    j = json.loads(t.path("r.json").read_text())
    sweeps = [g for g in j["stages"] if g["name"].startswith("sweep")]
    t.equal([g["metric"] for g in sweeps], ["serve", "prefill"], "sweeps")
    for g in sweeps:
        check_stage(t, g)
        t.check(all(len(c["repeats"]) == 1 for c in g["candidates"]), "all of a sweep are measured")
        best, choice = (g["candidates"][g[k]] for k in ("best", "preferred"))
        t.equal(best["median"], max(c["median"] for c in g["candidates"]), "best")
        t.check(abs(g["distance"] - (1 - choice["median"] / best["median"])) < 1e-9, "distance")
        for key, value in j["choice"].items():
            t.equal(choice[key], value, f"'{key}' of the choice in the sweep")
        keys = [tuple(c[k] for k in j["choice"]) for c in g["candidates"]]
        t.equal(len(set(keys)), len(keys), "every combination once")


def test_off_writes_nothing(t):
    t.says(t.run(*QUICK, "--tuning", "off"), "written nowhere")
    t.says(t.run(*QUICK, env={"BITNET_TUNING": "off"}), "written nowhere")


def test_others_are_kept(t):
    name = tuned(t, {})
    j = json.loads(t.path(name).read_text())
    other = {**j["entries"][0], "machine": {"cpu": "another"}, "use": {"threads": 77}}
    t.path(name).write_text(json.dumps({**j, "entries": [other, *j["entries"]]}))
    t.run(*QUICK, "--tuning", name, "--synthetic", "tiny")
    entries = json.loads(t.path(name).read_text())["entries"]
    t.equal(entries[0], other, "the other machine's")
    t.equal(len(entries), 3, "the other machine's, this model's and the new one's")
    t.check(entries[1]["model"]["shapes"] != entries[2]["model"]["shapes"], "models differ")


def test_values_are_taken(t):
    """Option before environment before file before default; and the text is the same."""
    plain = t.run(*RUN)
    t.equal(notes(plain), [], "no file, no note")
    name = tuned(t, {"threads": 1, "layout": "t3", "pin": "on", "batch": 64})
    r = t.run(*RUN, "--tuning", name)
    t.equal(notes(r), [NOTE + "1 thread, t3, pinned, batch 64 (bench --autotune, 2026-11-15); options "
                       "count more, --tuning off ignores it"], "note")
    t.equal(r.out, plain.out, "the same text")
    t.equal(t.run(*RUN, env={"BITNET_TUNING": name}).errors.splitlines()[0], notes(r)[0],
            "the file from the environment")
    t.equal(notes(t.run(*RUN, "--tuning", "off", env={"BITNET_TUNING": name})), [], "off counts more")
    t.equal(settings(t, "--tuning", name), (1, "t3", "1 thread, t3, pinned, batch 64"), "bench")
    t.equal(settings(t, "--tuning", name, "-t", "2")[0::2], (2, "pinned, batch 64"),
            "layout and threads were found together")
    t.equal(settings(t, "--tuning", name, "--layout", "t2")[1:], ("t2", "pinned, batch 64"), "layout")
    t.equal(settings(t, "--tuning", "off")[2], "", "off")
    t.equal(settings(t, "--tuning", name, "--backend", "scalar")[2], "", "found with other kernels")
    t.equal(settings(t, "--tuning", name, "--synthetic", "tiny")[2], "", "found with another model")


def test_batch(t):
    name = tuned(t, {"batch": 128})
    base = ["bench", "--warmup", "0", "--repeat", "1", "-n", "4", "--prompt-tokens", "500", "--json",
            "--tuning", name]
    for args, want in (([], 128), (["--batch-size", "200"], 200), (["--tuning", "off"], 500)):
        got = t.run(*base, *args).json()["settings"]["max_batch_tokens"]
        t.equal(min(got, 500), want, f"{args}")


def test_damaged(t):
    """An error for autotune before it measures, a note for others."""
    t.write("t.json", "{")
    t.fails(*QUICK, "--tuning", "t.json", says="t.json")
    t.equal(t.path("t.json").read_text(), "{", "the file is left alone")
    r = t.run(*RUN, "--tuning", "t.json")
    t.says(r, "note: ", "t.json", "nothing is taken from it")
    t.says(t.run(*RUN, "--tuning", "missing.json"), "missing.json", "nothing is taken from it")
    tuned(t, {"threads": 5000}, "u.json")
    t.says(t.run(*RUN, "--tuning", "u.json"), "5000", "nothing is taken from it")


def test_usage(t):
    for given in (["-t", "2"], ["--layout", "t2"], ["--pin", "on"], ["--batch-size", "64"]):
        t.usage(*QUICK, *given, says="chooses threads, layout")
    t.usage(*QUICK, "--mode", "all", says="--mode")
    t.usage(*QUICK, "--exhaustive", "--repeat", "25", says="at most 24")
    t.usage("bench", "--exhaustive", says="needs --autotune")
    t.usage(*QUICK, "--for", "speed", says="decode|prefill|serve")
    t.usage(*QUICK, "--backend", "fast", says="no backend 'fast'")
    t.usage(*QUICK, "--budget", "0", says="--budget")


def test_interrupt(t):
    """Then nothing is written."""
    err = t.interrupted("bench", "--autotune", "--budget", "600", "--tuning", "t.json")
    t.check(re.search(rb"interrupted", err), f"{err!r}")
