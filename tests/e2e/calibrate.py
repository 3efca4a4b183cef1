#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`bitnet calibrate` from outside. The harm it reports is computed once more from the logits of `bitnet logits`, with and
without the plan, by numpy; the entropy rule is checked against its own figures; a budget of 0 changes no bit; bad input is
one sentence and leaves nothing behind.

The text is what the model itself tells.

usage: calibrate.py BITNET"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from tap import Tap

import numpy

FACTOR = 2.5  # between the harm on the few samples here that a plan is chosen by and on those held out; docs: 1.5 with 256
SAMPLE, SAMPLES = 32, 24
program = os.path.abspath(sys.argv[1])
tap = Tap()
folder = tempfile.TemporaryDirectory()
data = pathlib.Path(folder.name)
text = data / "stories.txt"


def run(*args, rc=0, env=None):
    p = subprocess.run([program, *map(str, args)], capture_output=True, env=dict(os.environ, **(env or {})))
    if p.returncode != rc:
        raise AssertionError(f"{args}: exit {p.returncode}\n{p.stderr.decode()}")
    return p.stdout.decode() if rc == 0 else p.stderr.decode()


def calibrate(name, *args, dataset=text, samples=SAMPLES):
    out = data / name
    report = json.loads(run("calibrate", "--dataset", dataset, "--calibration-samples", samples, "--sample-tokens", SAMPLE,
                            "--output-dir", out, "--json", *args))
    return out, report, json.loads((out / "plan.json").read_text())


# ---------------------------------------------------------------- harm, independently

def encode(source):
    return list(map(int, subprocess.run([program, "tokenize", "--bos"], stdin=open(source, "rb"), capture_output=True,
                                        check=True).stdout.split()))


def log_softmax(ids, plan):
    out = data / "logits"
    run("logits", "--ids", ",".join(map(str, ids)), "--out", out, "--plan", plan, "--kv-type", "f16")
    x = numpy.fromfile(out, dtype="<f4").reshape(len(ids), -1).astype(numpy.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - numpy.log(numpy.exp(x).sum(axis=1, keepdims=True))


def held_out(ids):
    """Every second sample, as the program takes them: at equal distances, from the first on."""
    ids = ids[:SAMPLES * SAMPLE * 4]
    step = len(ids) // SAMPLES
    return [ids[i * step:i * step + SAMPLE] for i in range(1, SAMPLES, 2)]


def tell_stories():
    said = [run("run", "-p", start, "-n", 220, "--seed", seed, "--temp", 0.8, "--ignore-eos", "--no-echo")
            for seed, start in enumerate(["Once upon a time", "One day, a little girl", "Tom had a big red", "The old dog"] * 2)]
    text.write_text("\n".join(said))


def harm():
    """Thresholds and head only: `logits` has one type for all keys and values, in both runs the same."""
    out, report, plan = calibrate("harm", "--kl-budget", 0.01, "--savings", "gates,head")
    kl, same, diffs = [], [], []
    for ids in held_out(encode(text)):
        p, q = (log_softmax(ids, x)[SAMPLE // 4:-1] for x in ("off", out / "plan.json"))
        kl += list((numpy.exp(p) * (p - q)).sum(axis=1))
        same += list(p.argmax(axis=1) == q.argmax(axis=1))
        following = ids[SAMPLE // 4 + 1:]
        diffs += [a[t] - b[t] for a, b, t in zip(p, q, following)]
    kl, diffs = numpy.array(kl), numpy.array(diffs)
    got, n = report["heldout"], len(kl)
    want = {"positions": n, "kl_mean": kl.mean(), "kl_stderr": kl.std(ddof=1) / n ** 0.5, "kl_median": numpy.median(kl),
            "kl_p99": numpy.quantile(kl, 0.99), "kl_max": kl.max(), "top1_agreement": numpy.mean(same),
            "perplexity_ratio": numpy.exp(diffs.mean()),
            "perplexity_ratio_stderr": numpy.exp(diffs.mean()) * diffs.std() / (n - 1) ** 0.5}
    for name, value in want.items():
        assert abs(got[name] / value - 1) < 1e-4, (name, got[name], value)
    assert abs(plan["notes"]["heldout"]["kl_mean"] - got["kl_mean"]) < 1e-9
    assert any("down_codes" in l or "gate_min" in l for l in plan["layers"]), plan
    assert report["bytes"] < report["bytes_before"]
    return f"mean KL {got['kl_mean']:.5f} over {n} positions, numpy {kl.mean():.5f}"


def promise():
    out, report, plan = calibrate("promise", "--kl-budget", 0.01, "--savings", "codes,keys,values,head")
    promised, got = report["promised"]["kl_mean"], report["heldout"]["kl_mean"]
    assert 0 < promised <= 0.01, promised
    assert promised / FACTOR < got < promised * FACTOR, (promised, got)
    assert "svg" in (out / "report.html").read_text()
    assert abs(json.loads((out / "report.json").read_text())["heldout"]["kl_mean"] - got) < 1e-9
    for layer in report["layers"]:
        for name, i in layer["inputs"].items():
            assert 0 < i["entropy_bits"] < 8 and 0 <= i["zero_share"] < 1 and i["range_max"] >= i["range_mean"] > 0, (name, i)
        for s in layer["savings"]:
            kls = [v["kl"] for v in s["levels"]]
            assert kls == sorted(kls) and all(v["bytes_saved"] > 0 for v in s["levels"]), s
    return f"promised {promised:.5f}, held out {got:.5f}"


def nothing():
    out, report, plan = calibrate("zero", "--kl-budget", 0)
    assert all(set(l) == {"layer"} for l in plan["layers"]) and "head" not in plan, plan
    assert report["heldout"]["kl_max"] == 0 and report["bytes"] == report["bytes_before"]
    ask = ["run", "-p", "Once upon a time", "-n", 40, "--temp", 0, "--json"]
    a, b = (json.loads(run(*ask, "--plan", x)) for x in ("off", out / "plan.json"))
    assert a["text"] == b["text"]
    ids = encode(text)[:SAMPLE]
    assert (log_softmax(ids, "off") == log_softmax(ids, out / "plan.json")).all()


def baked():
    out, report, plan = calibrate("baked", "--kl-budget", 0.01, "--savings", "head", "--bake")
    ids = encode(text)[:SAMPLE]

    def logits(*model):
        run("logits", *model, "--ids", ",".join(map(str, ids)), "--out", data / "logits", "--kv-type", "f16")
        return (data / "logits").read_bytes()
    assert logits(out / "model.gguf") == logits("--plan", out / "plan.json") != logits("--plan", "off")
    assert logits(out / "model.gguf", "--plan", "off") == logits("--plan", "off")


def curve():
    _, report, _ = calibrate("curve", "--kl-budget", 0.01, "--savings", "codes", "--curve", "0.002,0.02", samples=8)
    few, many = report["curve"]
    assert few["bytes"] >= many["bytes"] and few["plan"]["format"] == "bitnet-plan-1"
    steps = report["uniform"]
    assert len(steps) > 1 and all(a["bytes"] > b["bytes"] for a, b in zip(steps, steps[1:]))
    for t in report["curve"] + steps:
        assert len(t["density"]) == len(report["layers"]) and t["heldout"]["kl_mean"] > 0


def names():
    """A data set by its name, through the program's other name, by the rule of entropy, as guides have it."""
    link = data / "bitnet-calibrate"
    link.symlink_to(program)
    (data / "c4.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in text.read_text().split("\n") if t))
    args = [link, "--model", "embedded", "--dataset", "c4", "--calibration-samples", "12", "--sample-tokens", "32",
            "--entropy-threshold", "2.1", "--savings", "codes", "--output-dir", data / "hybrid-ckpt"]
    env = dict(os.environ, BITNET_EVAL_DATA=str(data / "nowhere"))
    p = subprocess.run(args, capture_output=True, text=True, env=env)
    assert p.returncode == 1 and "c4.jsonl" in p.stderr and "nowhere" in p.stderr and p.stderr.count("\n") == 1, p.stderr
    p = subprocess.run(args, capture_output=True, text=True, env=dict(env, BITNET_EVAL_DATA=str(data)))
    assert p.returncode == 0 and "layer" in p.stdout, p.stderr
    report, plan = (json.loads((data / "hybrid-ckpt" / name).read_text()) for name in ("report.json", "plan.json"))
    for l, p in zip(report["layers"], plan["layers"]):
        low = l["inputs"]["down"]["entropy_bits"] < 2.1
        assert low or "down_codes" not in p, (l, p)
    assert any("down_codes" in p for p in plan["layers"])
    return f"KL {report['heldout']['kl_mean']:.5f}"


# ---------------------------------------------------------------- what goes wrong

def refused(name, says, *args, rc=1, dataset=None):
    """One sentence, and no file."""
    out = data / "bad"
    error = run("calibrate", "--dataset", dataset or text, "--output-dir", out, *args, rc=rc)
    assert error.count("\n") == 1 and says in error, (name, error)
    assert not out.exists(), (name, list(out.iterdir()))


def bad_input():
    (data / "empty.txt").write_text("")
    (data / "tiny.txt").write_text("Once upon a time there was a dog. " * 12)
    (data / "latin1.txt").write_bytes("Der Käse war schön. ".encode("latin-1") * 200)
    (data / "broken.jsonl").write_text('{"text": "Once upon a time"}\n{"text": 5}\n')
    budget = ["--kl-budget", "0.01"]
    refused("empty", "too little", *budget, dataset=data / "empty.txt")
    refused("tiny", "at least 8", *budget, dataset=data / "tiny.txt")
    refused("encoding", "not UTF-8", *budget, dataset=data / "latin1.txt")
    refused("JSONL", "line 2", *budget, dataset=data / "broken.jsonl")
    refused("no file", "no file", *budget, dataset=data / "missing.txt")
    refused("too few samples", "--calibration-samples", *budget, "--calibration-samples", "2", rc=2)
    refused("long samples", "context", *budget, "--sample-tokens", "8000")
    refused("unknown saving", "no saving", *budget, "--savings", "codes,nothing", "--calibration-samples", "8")
    refused("both rules", "exclude", *budget, "--entropy-threshold", "2", rc=2)
    refused("no rule", "missing", rc=2)
    (data / "own.json").write_text('{"format": "bitnet-plan-1", "head": "int8"}')
    refused("a plan", "--plan", *budget, "--plan", data / "own.json", rc=2)
    refused("no data set", "Nothing is downloaded", *budget, dataset="c5")
    refused("a folder", "folder", *budget, dataset=data)
    refused("negative", "--kl-budget", "--kl-budget", "-1", rc=2)


def existing_files():
    out = data / "kept"
    out.mkdir()
    (out / "plan.json").write_text("mine")
    error = run("calibrate", "--dataset", text, "--kl-budget", "0", "--output-dir", out, rc=1)
    assert "--force" in error and (out / "plan.json").read_text() == "mine" and len(list(out.iterdir())) == 1, error
    file = data / "file"
    file.write_text("")
    error = run("calibrate", "--dataset", text, "--kl-budget", "0", "--output-dir", file, rc=1)
    assert error.count("\n") == 1 and "file" in error, error


def interrupted():
    out = data / "stopped"
    p = subprocess.Popen([program, "calibrate", "--dataset", str(text), "--kl-budget", "0.01", "--output-dir", str(out)],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # ignored in the background
    until = time.monotonic() + 60
    while time.monotonic() < until and not (out.exists() and list(out.iterdir())):
        time.sleep(0.02)
    time.sleep(1)
    p.send_signal(signal.SIGINT)
    _, errors = p.communicate(timeout=60)
    assert p.returncode == 130 and errors.strip().endswith("interrupted"), (p.returncode, errors)
    assert not out.exists(), list(out.iterdir())


def full_disk():
    """A file may grow to no more than 4 KiB, which the report exceeds: what was begun goes."""
    out = data / "full"
    command = ["bash", "-c", f'trap "" XFSZ; ulimit -f 4; exec "$@"', "bash", program, "calibrate", "--dataset", text,
               "--calibration-samples", "8", "--sample-tokens", "16", "--kl-budget", "0", "--output-dir", out]
    p = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert p.returncode == 1 and p.stderr.count("\n") == 1 and "report" in p.stderr, (p.returncode, p.stderr)
    assert not out.exists(), list(out.iterdir())


tell_stories()
for name, case in (("the harm, by numpy", harm), ("the promise, on text that was held out", promise),
                   ("a budget of 0 changes no bit", nothing),
                   ("a model with its plan in it", baked), ("a curve and even steps", curve),
                   ("as the guides have it", names), ("bad input", bad_input), ("files that are there", existing_files),
                   ("Ctrl-C", interrupted), ("a full disk", full_disk)):
    tap.case(name, case)
sys.exit(tap.end())
