#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`bitnet prune` from outside: the embedded model to 9 and 8 layers, whose files have the perplexity and the divergence
that the report promised; other criteria, lists, budgets; names under which guides call it; and bad input: one sentence
each, nothing left behind.

usage: prune.py BITNET"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from tap import Skipped, Tap

program = os.path.abspath(sys.argv[1])
tap = Tap()
holder = tempfile.TemporaryDirectory()
data = pathlib.Path(holder.name)
TEXT, TOKENS, WINDOW = data / "text.txt", 512, 128


def run(*args, rc=0, name=program, folder=".", **more):
    p = subprocess.run([name, *map(str, args)], capture_output=True, cwd=data / folder, **more)
    if p.returncode != rc:
        raise AssertionError(f"{args}: exit {p.returncode}\n{p.stderr.decode()}")
    return p.stdout.decode() if rc == 0 else p.stderr.decode()


def prune(*args, **more):
    return run("prune", "--calibration-data", TEXT, "--limit", TOKENS, "--ctx", WINDOW, *args, **more)


def report(*args):
    return json.loads(prune(*args, "--json"))


def perplexity(model):
    return json.loads(run("perplexity", model, "--file", TEXT, "--limit", TOKENS, "--ctx", WINDOW, "--json"))["nll_per_token"]


def meta(model):
    return json.loads(run("inspect", model, "--json"))["metadata"]


def write_text():
    TEXT.write_text("\n".join(run("run", "Once upon a time", "-n", "300", "--temp", "0.9", "--seed", seed, "-q")
                              for seed in (1, 2, 3)))


def promised():
    r = report("--target-layers", 8, "--output", "8.gguf", "--json-report", "r.json", "--page", "p.html")
    steps = r["steps"]
    assert [s["layers_left"] for s in steps] == [10, 9, 8], steps
    assert steps[0]["nll_per_token"] == perplexity("embedded")
    assert steps[2]["nll_per_token"] == perplexity("8.gguf")
    first, second = steps[1]["removed"][0], steps[2]["removed"][0]
    assert r["removed"] == [first, second] and r["scores"][first] == min(r["scores"])
    assert steps[0]["tok_s"] > 0 and steps[2]["tok_s"] > 0 and steps[2]["tok_s_predicted"] > steps[0]["tok_s"]
    assert steps[2]["bytes"] < steps[0]["bytes"] and r["output_bytes"] == os.path.getsize(data / "8.gguf")
    m = meta("8.gguf")
    assert m["bitnet.pruned_layers"] == sorted(r["removed"]), m["bitnet.pruned_layers"]
    assert m["bitnet.prune.criterion"] == "ppl" and m["bitnet-b1.58.block_count"] == 8
    assert abs(m["bitnet.prune.ppl_after"] - steps[2]["perplexity"]) < 1e-4
    assert json.loads((data / "r.json").read_text())["removed"] == r["removed"]
    page = (data / "p.html").read_text()
    assert page.count("<circle") == 9 and "<svg" in page and page.endswith("</html>\n")
    prune("--layers", first, "--output", "9.gguf", "--no-speed")
    assert steps[1]["nll_per_token"] == perplexity("9.gguf")
    assert "Once upon a time" in run("run", "8.gguf", "Once upon a time", "-n", 8, "-q")
    return f"layers {r['removed']}, perplexity {steps[0]['perplexity']:.3f} to {steps[2]['perplexity']:.3f}"


def divergence():
    """KL of the report beside `eval kl`, which scores the second half of each window: about the same."""
    promised_kl = json.loads((data / "r.json").read_text())["steps"][2]["kl"]
    k = json.loads(run("eval", "kl", "embedded", "8.gguf", "--text", TEXT, "--ctx", WINDOW, "--json"))
    assert 0.5 < promised_kl / k["kl_mean"] < 2, (promised_kl, k)


def criteria():
    ppl = {c: report("--drop", 2, "--criterion", c, "--dry-run", "--no-speed") for c in ("ppl", "kl", "bi", "variance")}
    first = {c: r["steps"][1]["perplexity"] for c, r in ppl.items()}
    assert first["ppl"] == min(first.values()), first
    assert ppl["kl"]["steps"][1]["kl"] == min(r["steps"][1]["kl"] for r in ppl.values())
    for c in ("bi", "variance"):  # one pass orders them all
        r = ppl[c]
        order = sorted(range(10), key=lambda i: r["scores"][i])
        assert r["removed"] == order[:2], (r["removed"], r["scores"])
    kept = report("--drop", 3, "--protect", ",".join(map(str, ppl["ppl"]["removed"])), "--dry-run", "--no-speed")
    assert not set(kept["removed"]) & set(ppl["ppl"]["removed"]), kept["removed"]


def budget():
    r = report("--max-ppl-increase", 15, "--output", "b.gguf", "--no-speed")
    last = r["steps"][-1]
    assert 1 < len(r["steps"]) < 10 and last["ppl_ratio"] <= 1.15 < r["over_budget"] / r["steps"][0]["perplexity"]
    assert last["nll_per_token"] == perplexity("b.gguf")
    said = prune("--max-ppl-increase", "0.001", "--output", "none.gguf", "--no-speed", rc=1)
    assert "no layer can go" in said and not (data / "none.gguf").exists(), said


def widths():
    """Feed-forward layers by budget and by a share, with layers and without; figures are the file's."""
    r = report("--layers", 5, "--ffn-width", "80%", "--output", "w.gguf", "--page", "w.html")
    steps = r["steps"]
    assert [(s["layers_left"], s["ffn_width"]) for s in steps] == [(10, 1408), (9, 1408), (9, 1280), (9, 1152)], steps
    assert steps[-1]["nll_per_token"] == perplexity("w.gguf") and steps[-1]["tok_s"] > 0
    assert abs(steps[-1]["bytes"] / r["output_bytes"] - 1) < 0.02, (steps[-1]["bytes"], r["output_bytes"])
    assert r["ffn"]["width"] == 1152 and 0 < r["ffn"]["active_share"] < 1
    m = meta("w.gguf")
    assert m["bitnet.ffn_norm_width"] == 1408 and m["bitnet-b1.58.feed_forward_length"] == 1152, m
    assert m["bitnet.prune.ffn_width_before"] == 1408 and m["bitnet.pruned_layers"] == [5]
    assert "this engine" in r["readers"] and (data / "w.html").read_text().count("<circle") == 12
    r = report("--ffn-width", "auto", "--max-ppl-increase", 10, "--output", "p.gguf", "--portable", "--no-speed")
    assert r["steps"][-1]["ppl_ratio"] <= 1.1 and r["removed"] == [] and "every engine" in r["readers"], r
    assert abs(r["steps"][-1]["nll_per_token"] - perplexity("p.gguf")) < 0.01
    assert "bitnet.ffn_norm_width" not in meta("p.gguf")


def checkpoints():
    """Safetensors out of a GGUF: the same figures, tokens and words as the GGUF."""
    (data / "hf").mkdir()
    said = prune("--layers", "5,6", "--output", "hf/model.safetensors", "--no-speed")
    assert "hf/model.safetensors" in said, said
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} < set(os.listdir(data / "hf"))
    prune("--layers", "5,6", "--output", "gguf.gguf", "--no-speed")
    assert perplexity("hf") == perplexity("gguf.gguf")
    words = ["run", "Once upon a time", "-n", 24, "-q", "--temp", 0]
    assert run(*words, "-m", "hf") == run(*words, "-m", "gguf.gguf")
    text = TEXT.read_bytes() + "\u4f60\u597d, na\u00efve caf\u00e9! 12345 <|eot_id|>\n\n\t x".encode()
    assert run("tokenize", "hf", "--special", input=text) == run("tokenize", "gguf.gguf", "--special", input=text)
    config = json.loads((data / "hf" / "config.json").read_text())
    assert config["num_hidden_layers"] == 8 and config["bitnet_prune"]["pruned_layers"] == [5, 6], config


def other_names():
    for link in ("bitnet-prune", "main"):
        os.symlink(program, data / link)
    lines = [json.dumps({"text": t}) for t in TEXT.read_text().split("\n") if t]
    (data / "wiki-calib.jsonl").write_text("\n".join(lines) + "\n")
    run("--model", "8.gguf", "--calibration-data", "wiki-calib.jsonl", "--target-layers", 6, "--output", "6.gguf",
        "--limit", TOKENS, "--no-speed", name=str(data / "bitnet-prune"))
    (data / "guide").mkdir()
    run("--model", "../8.gguf", "--calibration-data", "../wiki-calib.jsonl", "--target-layers", 6, "--output", "pruned.safetensors",
        name=str(data / "bitnet-prune"), folder="guide")
    assert perplexity("guide/pruned.safetensors") == perplexity("6.gguf")
    assert meta("6.gguf")["bitnet-b1.58.block_count"] == 6
    assert len(meta("6.gguf")["bitnet.pruned_layers"]) == 4  # those of both times
    said = run("-m", "6.gguf", "-p", "Hello", "-n", 4, "-t", 2, "--no-mmap", name=str(data / "main"))
    assert said.startswith("Hello"), said


def refused():
    before = set(os.listdir(data))
    bad = {"empty.txt": b"", "tiny.txt": b"Once upon a time.", "latin.txt": "caf\u00e9 ".encode("latin-1") * 100,
           "wide.txt": ("story " * 100).encode("utf-16"), "bad.jsonl": b'{"text": "a"}\n{"tex": "b"}\n', "broken.jsonl": b"{\n"}
    words = {"empty.txt": "too little", "tiny.txt": "too little", "latin.txt": "not UTF-8", "wide.txt": "not UTF-8",
             "bad.jsonl": "line 2", "broken.jsonl": "line 1"}
    for name, content in bad.items():
        (data / name).write_bytes(content)
        said = run("prune", "--calibration-data", name, "--drop", 1, "--output", "x.gguf", rc=1)
        assert words[name] in said and said.count("\n") == 1, said
        os.unlink(data / name)
    for args, rc, says in [(["--target-layers", 10], 1, "has 10"), (["--target-layers", 11], 1, "has 10"),
                           (["--drop", 10], 1, "one must stay"), (["--target-layers", 0], 2, "--target-layers"),
                           (["--layers", 10], 1, "no layer 10"), (["--layers", "3,3"], 1, "twice"),
                           (["--drop", 2, "--protect", "0,1,2,3,4,5,6,7,8"], 1, "protected"),
                           (["--drop", 1, "--target-layers", 9], 2, "one of them"), ([], 2, "how many layers"),
                           (["--drop", 3, "--periods"], 1, "periods of 4"), (["--drop", 1, "--portable"], 2, "--ffn-dead")]:
        said = prune(*args, "--output", "x.gguf", rc=rc)
        assert says in said and said.count("\n") == 1, (args, said)
    assert "--output" in prune("--drop", 1, rc=2)
    assert "standard output" in prune("--drop", 1, "--output", "-", rc=1)
    said = run("prune", "--calibration-data", TEXT, "--drop", 1, "--ctx", 1, "--output", "x.gguf", rc=1)
    assert "at least 2" in said and said.count("\n") == 1, said
    assert "--dry-run" in prune("--drop", 1, "--dry-run", "--output", "x.gguf", rc=2)
    assert "exists already" in prune("--drop", 1, "--output", "8.gguf", rc=1)
    for args, rc, says in [(["--ffn-width", 1408], 1, "1408 channels"), (["--ffn-width", "100%"], 1, "1408 channels"),
                           (["--ffn-width", "0"], 1, "at least 2"), (["--ffn-width", "wide"], 1, "'wide'"),
                           (["--ffn-width", "1e99"], 1, "1408"), (["--ffn-width", 1400], 1, "128 at a time"),
                           (["--ffn-width", "auto"], 2, "how far"), (["--ffn-width", "50%", "--ffn-dead"], 2, "--ffn-dead")]:
        said = prune(*args, "--output", "x.gguf", "--no-speed", rc=rc)
        assert says in said and said.count("\n") == 1, (args, said)
    (data / "config.json").write_text("{}")
    assert "config.json" in prune("--drop", 1, "--output", "x.safetensors", rc=1)
    (data / "config.json").unlink()
    assert "no/x.gguf" in prune("--drop", 1, "--output", "no/x.gguf", "--no-speed", rc=1)
    said = run("prune", "--calibration-data", "nothing.txt", "--drop", 1, "--output", "x.gguf", rc=1)
    assert "nothing.txt" in said, said
    assert set(os.listdir(data)) == before, set(os.listdir(data)) - before


def full_disk():
    """The file may not grow beyond 1 MB."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    before = set(os.listdir(data))
    said = prune("--layers", 4, "--output", "full.gguf", "--no-speed", rc=1, preexec_fn=limit)
    assert "full.gguf" in said and said.count("\n") == 1, said
    assert set(os.listdir(data)) == before, "something was left"


def interrupted():
    before = set(os.listdir(data))
    p = subprocess.Popen([program, "prune", "--calibration-data", TEXT, "--target-layers", "2", "--output", "stop.gguf",
                          "--limit", "0"], cwd=data, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    time.sleep(1)
    if p.poll() is not None:
        raise Skipped("speed", "it was over before it could be stopped")
    p.send_signal(signal.SIGINT)
    said = p.communicate(timeout=60)[1].decode()
    assert p.returncode == 130 and said == "bitnet: interrupted\n", (p.returncode, said)
    assert set(os.listdir(data)) == before, "something was left"


tap.case("a text to measure on", write_text)
tap.case("files keep what the report promised", promised)
tap.case("divergence beside eval kl", divergence)
tap.case("criteria", criteria)
tap.case("a budget", budget)
tap.case("widths", widths)
tap.case("checkpoints", checkpoints)
tap.case("names in guides", other_names)
tap.case("bad input", refused)
tap.case("a full disk", full_disk)
tap.case("Ctrl-C", interrupted)
sys.exit(tap.end())
