# SPDX-License-Identifier: Apache-2.0
"""Switches of memory: the text is the same with every one, and what cannot be had is said."""
import json
import sys

TIME = "Once upon a time"
# a child that may lock this much, even if it is root's (PR_CAPBSET_DROP, CAP_IPC_LOCK)
LIMITED = """
import ctypes, os, resource, sys
ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
os.execv(sys.argv[1], sys.argv[1:])
"""
SWITCHES = (["--hugepages", "off"], ["--hugepages", "thp"], ["--no-mmap"], ["--warm-up"],
            ["--prefetch-distance", "1"], ["--prefetch-distance", "512"],
            ["--no-mmap", "--warm-up", "--prefetch-distance=65536", "--hugepages=off"])


def model_file(t):
    t.run("synth", "tiny", "m.gguf", "--seed", "3")
    t.keeps("m.gguf")
    return "m.gguf"


def test_the_same_text(t):
    for model in ("embedded", model_file(t)):
        args = ["run", "-m", model, TIME, "-n", "24", "--seed", "5", "-q"]
        want = t.run(*args).out
        for switch in SWITCHES:
            r = t.run(*args, *switch)
            t.equal(r.out, want, f"text with {switch}")
            t.equal(r.err, b"", f"notes with {switch}")


def test_reserved_pages(t):
    """They are there, or a note says that they are not; either way it works."""
    want = t.run("run", TIME, "-n", "8", "--temp", "0", "-q").out
    for pages in ("2m", "1g"):
        r = t.run("run", TIME, "-n", "8", "--temp", "0", "-q", "--hugepages", pages)
        t.equal(r.out, want, f"text with pages of {pages}")
        if r.err:
            t.says(r, f"bitnet: note: {pages} pages were asked for", "transparent huge pages")


def test_mlock(t):
    limited = ["-c", LIMITED, t.program]
    args = ["run", TIME, "-n", "8", "--temp", "0", "-q"]
    t.equal(t.run(*limited, *args, program=sys.executable).out, t.run(*args).out, "without --mlock")
    t.fails(*limited, *args, "--mlock", program=sys.executable,
            says=("cannot be locked", "RLIMIT_MEMLOCK is 65536 bytes", "ulimit -l",
                  "LimitMEMLOCK=infinity", "CAP_IPC_LOCK"))


def test_other_commands(t):
    t.write("in.jsonl", json.dumps({"prompt": TIME, "temperature": 0}) + "\n")
    t.keeps("a.jsonl", "b.jsonl")
    base = ["batch", "embedded", "--input", "in.jsonl", "-n", "6", "-q", "--output"]
    t.run(*base, "a.jsonl")
    t.run(*base, "b.jsonl", "--warm-up", "--hugepages", "off", "--no-mmap")
    t.equal(t.path("a.jsonl").read_text(), t.path("b.jsonl").read_text(), "answers of a batch")
    said = t.run("chat", "-n", "6", "--temp", "0", "-q", stdin=b"hello\n").out
    t.equal(t.run("chat", "-n", "6", "--temp", "0", "-q", "--warm-up", stdin=b"hello\n").out, said,
            "chat")


def test_bench(t):
    base = ["bench", "--warmup", "0", "--repeat", "1", "-n", "4", "--mode", "stream", "-t", "1"]
    t.keeps("off.json", "on.json")
    t.run(*base, "--json-report", "off.json")
    t.run(*base, "--json-report", "on.json", "--hugepages", "off", "--no-mmap", "--warm-up",
          "--prefetch-distance", "1")
    keys = ("hugepages", "hugepages_engine", "no_mmap", "engine_warmup", "prefetch_bytes",
            "locked_bytes")
    for name, want in (("off.json", ["thp", "thp", "off", "off", 4096, 0]),
                       ("on.json", ["off", "off", "on", "on", 0, 0])):
        settings = json.loads(t.path(name).read_text())["settings"]
        t.equal([settings[k] for k in keys], want, name)
    r = t.run("bench", "diff", "off.json", "on.json")
    t.says(r, "the kind of pages differs: thp, off", "the prefetch distance differs: 4096, 0",
           "the switch --no-mmap differs: off, on", "the switch --warm-up differs: off, on")


def test_state_cache(t):
    for given, want in (("3K", 3072), ("2g", 2 << 30), ("512", 512), ("off", "off"), ("auto", "auto")):
        j = t.run("serve", "--print-config", "--state-cache", given).json()
        t.equal(j["state-cache"], want, f"--state-cache {given}")
    args = ["run", TIME, "-n", "8", "--seed", "5", "-q"]
    t.equal(t.run(*args, "--state-cache", "1M").out, t.run(*args).out, "a model without states")
    t.run("synth", "qwen35-tiny", "hybrid.gguf")
    t.keeps("hybrid.gguf")
    args = ["run", "-m", "hybrid.gguf", TIME * 8, "-n", "40", "--temp", "0", "--ignore-eos", "--json"]
    auto, off = t.run(*args).json(), t.run(*args, "--state-cache", "off").json()
    t.equal(auto["tokens"], off["tokens"], "the same text")
    one = auto["states"]["sequence_bytes"]
    t.check(one > 0 and auto["states"]["bytes"] >= one * (1 + auto["states"]["snapshots"]), "room for all")
    t.check(2 < auto["states"]["snapshots_used"] <= auto["states"]["snapshots"], "states are put aside")
    t.equal((off["states"]["snapshots"], off["states"]["snapshots_used"]), (0, 0), "none without")
    some = t.run(*args, "--state-cache", str(3 * one)).json()
    t.equal((some["tokens"], some["states"]["snapshots"]), (off["tokens"], 3), "as many as fit")
    t.write("in.jsonl", '{"prompt": "hello"}\n')
    j = t.run("batch", "-m", "hybrid.gguf", "-i", "in.jsonl", "--dry-run", "--json", "-j", "4", "-c", "128").json()
    kv = j["memory"]["kv_bytes"] // 4
    t.equal(j["memory"]["sequence_bytes"], kv + one, "a sequence with its state")


def test_usage(t):
    t.usage("run", TIME, "--hugepages", "4m", says="4m")
    for bad in ("12x", "M", "-1", "1.5G", "9999999T", "4GB", ""):
        t.usage("run", TIME, "--state-cache", bad, says="--state-cache expects bytes")
    t.usage("run", TIME, "--prefetch-distance", "65537", says="65537")
