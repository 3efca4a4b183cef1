#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`bitnet eval` beside a scorer that is not ours to mend in the same place: prompts are written down here once more, after
the task files of lm-evaluation-harness, tokens come from `bitnet tokenize`, log-likelihoods from `bitnet logits` and numpy,
one text at a time. Every log-likelihood and every verdict must agree. Then chance, divergence, comparison, bad input.

usage: eval.py BITNET"""
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from tap import Tap

import numpy

CLOSE = 1e-4  # of a log-likelihood
program = sys.argv[1]
tap = Tap()
folder = tempfile.TemporaryDirectory()
data = pathlib.Path(folder.name)


def run(*args, rc=0, stdin=None):
    p = subprocess.run([program, *map(str, args)], input=stdin, capture_output=True)
    if p.returncode != rc:
        raise AssertionError(f"{args}: exit {p.returncode}\n{p.stderr.decode()}")
    return p.stdout if rc == 0 else p.stderr.decode()


# ---------------------------------------------------------------- the scorer

tokens_of, rows_of = {}, {}


def encode(text):
    if text not in tokens_of:
        tokens_of[text] = list(map(int, run("tokenize", "--special", stdin=text.encode()).split()))
    return tokens_of[text]


def log_softmax(ids):
    """The log-probabilities behind each of the tokens."""
    key = tuple(ids)
    if key not in rows_of:
        out = data / "logits"
        run("logits", "--ids", ",".join(map(str, ids)), "--out", out, "--kv-type", "f16")
        x = numpy.fromfile(out, dtype="<f4").reshape(len(ids), -1).astype(numpy.float64)
        top = x.max(axis=1, keepdims=True)
        rows_of[key] = x - top - numpy.log(numpy.exp(x - top).sum(axis=1, keepdims=True))
    return rows_of[key]


def score(context, continuation):
    kept = context.rstrip()
    continuation = context[len(kept):] + continuation
    before = encode(kept)
    rest = encode(kept + continuation)[len(before):]
    rows = log_softmax(before + rest)[len(before) - 1:-1]
    return sum(r[t] for r, t in zip(rows, rest)), all(r.argmax() == t for r, t in zip(rows, rest))


# ---------------------------------------------------------------- the tasks, in the forms that are published

STORIES = [
    ("The little cat sat on the", ["mat.", "moon and sang loudly.", "car of the king."], 0),
    ("Once upon a time there was a", ["quadratic form", "girl named Lily."], 1),
    ("Tom was sad because his toy was", ["broken.", "happy.", "a very large number of birds.", "sun."], 0),
    ("They went to the park to", ["play with the ball.", "fly"], 0),
]


def write(name, rows):
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
    return path


def choices(items):
    """(context, choices, gold, lengths) of items with one context."""
    return [([c] * len(o), [" " + x for x in o], g, [len(x) for x in o]) for c, o, g in items]


def arc():
    letters = "ABCD"
    write("arc_easy.jsonl", [{"id": str(i), "question": q, "choices": {"text": o, "label": list(letters[:len(o)])},
                              "answerKey": letters[g]} for i, (q, o, g) in enumerate(STORIES)])
    return "arc_easy", choices((f"Question: {q}\nAnswer:", o, g) for q, o, g in STORIES)


def openbookqa():
    write("openbookqa.jsonl", [{"question_stem": q, "choices": {"text": o, "label": list("ABCD"[:len(o)])},
                                "answerKey": "ABCD"[g]} for q, o, g in STORIES])
    return "openbookqa", choices(STORIES)


def piqa():
    two = [(q, o[:2], g) for q, o, g in STORIES]
    write("piqa.jsonl", [{"goal": q, "sol1": o[0], "sol2": o[1], "label": g} for q, o, g in two])
    return "piqa", choices((f"Question: {q}\nAnswer:", o, g) for q, o, g in two)


def boolq():
    rows = [("Lily had a red ball. She liked it.", "did lily have a ball", True), ("Tom ran home.", "did tom sleep", False)]
    write("boolq.jsonl", [{"passage": p, "question": q, "answer": a} for p, q, a in rows])
    return "boolq", choices((f"{p}\nQuestion: {q}?\nAnswer:", ["no", "yes"], int(a)) for p, q, a in rows)


def winogrande():
    rows = [("Sara gave the cake to Tom because _ was hungry.", "Sara", "Tom", "2"),
            ("The dog did not fit in the box because _ was too big.", "the dog", "the box", "1")]
    write("winogrande.jsonl", [{"sentence": s, "option1": a, "option2": b, "answer": n} for s, a, b, n in rows])
    items = []
    for s, a, b, n in rows:
        at = s.index("_")
        rest = s[at + 1:].strip()
        items.append(([s[:at] + a, s[:at] + b], [" " + rest] * 2, int(n) - 1, [len(rest)] * 2))
    return "winogrande", items


def preprocess(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def hellaswag():
    rows = [("Baking a cake", "A girl is in a kitchen.", "she", ["puts flour in a bowl.", "flies away [header] to the sun.",
                                                            "is a  large   stone.", "sings [title] the end"], 0),
            ("Playing ball", "[header] Boys are in the park. [title] Fun ", "the BOYS", ["run.", "eat the ball ", "x", "y z"], 0)]
    write("hellaswag.jsonl", [{"activity_label": l, "ctx_a": a, "ctx_b": b, "endings": e, "label": str(g)}
                              for l, a, b, e, g in rows])
    return "hellaswag", choices((preprocess(f"{l}: {a} {b.capitalize()}"), [preprocess(x) for x in e], g)
                                for l, a, b, e, g in rows)


def mmlu():
    def csv(rows):
        return "".join(",".join('"' + str(f).replace('"', '""') + '"' for f in r) + "\n" for r in rows)
    dev = [(f"What is {i} and \"one\"?", "a, b", "c\nd", "e", "f", "ABCD"[i % 4]) for i in range(5)]
    test = [(f" Who has {i} cats?", "Tom", "Lily", "the dog", "no one, really", "BADC"[i]) for i in range(4)]
    for part, rows in (("dev", dev), ("test", test)):
        for subject in ("small_animals", "toys"):
            path = data / "mmlu" / part / f"{subject}_{part}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(csv(rows))

    def ask(r):
        return f"{r[0].strip()}\nA. {r[1]}\nB. {r[2]}\nC. {r[3]}\nD. {r[4]}\nAnswer:"
    items = []
    for subject in ("small animals", "toys"):
        head = f"The following are multiple choice questions (with answers) about {subject}.\n\n"
        head += "".join(ask(r) + f" {r[5]}\n\n" for r in dev)
        items += [(head + ask(r), list("ABCD"), "ABCD".index(r[5])) for r in test]
    return "mmlu", choices(items)


def open_form():
    path = write("own.jsonl", [{"query": q, "choices": o, "gold": g} for q, o, g in STORIES])
    return path, choices(STORIES)


def hellaswag_text():
    path = data / "hellaswag.txt"
    rows = [(q, o + ["", "the end"][:4 - len(o)] + ["and so on"] * 4, g) for q, o, g in STORIES]
    rows = [(q, [x or "nothing" for x in o][:4], g) for q, o, g in rows]
    path.write_text("".join(f"{q}\n{g}\n" + "".join(x + "\n" for x in o) for q, o, g in rows))
    return "--hellaswag", path, choices(rows)


def winogrande_csv():
    """Number, sentence, two names, which; a sentence with a comma is quoted."""
    path = data / "winogrande.csv"
    rows = [("Sara gave the cake, a big one, to Tom because _ was hungry.", "Sara", "Tom", 2),
            ("The dog did not fit in the box because _ was too big.", "the dog", "the box", 1),
            ("The \"red\" ball hit the car, so _ was broken.", "the ball", "the car", 2)]
    quoted = [['"' + s.replace('"', '""') + '"', *rest] for s, *rest in rows]
    path.write_text("".join(",".join(map(str, [i, *r])) + "\n" for i, r in enumerate(quoted)))
    items = []
    for sentence, a, b, answer in rows:
        before, after = sentence.split("_")
        items.append(([before + a, before + b], [" " + after.strip()] * 2, answer - 1, [len(after.strip())] * 2))
    return "--winogrande", path, items


def binary():
    def text(s):
        return struct.pack("<I", len(s.encode())) + s.encode()

    def answers(options, gold):
        return struct.pack("<I", len(options)) + b"".join(map(text, options)) + struct.pack(
            f"<{len(options)}i", *(int(i == gold) for i in range(len(options))))
    tasks = [text(q) + answers(o, g) + answers(o, g) for q, o, g in STORIES]
    places = [sum(map(len, tasks[:i])) for i in range(len(tasks))]
    path = data / "tasks.bin"
    path.write_bytes(struct.pack(f"<{len(tasks) + 1}I", len(tasks), *places) + b"".join(tasks))
    return "--multiple-choice", path, choices(STORIES)


# ---------------------------------------------------------------- beside it

def compare(name, report, items):
    got = report["results"]
    assert len(got) == len(items), f"{len(got)} items instead of {len(items)}"
    right = right_norm = 0
    worst = 0
    for g, (contexts, rests, gold, lengths) in zip(got, items):
        want = [score(c, r)[0] for c, r in zip(contexts, rests)]
        worst = max(worst, *(abs(a - b) for a, b in zip(want, g["logprobs"])))
        best = max(range(len(want)), key=lambda i: want[i])
        best_norm = max(range(len(want)), key=lambda i: want[i] / max(lengths[i], 1))
        assert g["gold"] == gold and g["right"] == (best == gold) and g["right_norm"] == (best_norm == gold), g
        right, right_norm = right + (best == gold), right_norm + (best_norm == gold)
    assert worst < CLOSE, f"log-likelihoods differ by {worst}"
    n = len(items)
    for figure, k in (("acc", right), ("acc_norm", right_norm)):
        assert abs(report[figure]["value"] - k / n) < 1e-12
        assert abs(report[figure]["stderr"] - math.sqrt(k / n * (1 - k / n) / (n - 1))) < 1e-12
    return f"{n} items, largest difference {worst:.1e}"


def evaluate(*args):
    return json.loads(run("eval", *args, "--json", "--items", "--data", data))["tasks"]


def test_tasks():
    pairs = [f() for f in (arc, openbookqa, piqa, boolq, winogrande, hellaswag, mmlu)]
    reports = evaluate("--tasks", ",".join(name for name, _ in pairs))
    for (name, items), report in zip(pairs, reports):
        tap.case(f"{name}: item by item", lambda: compare(name, report, items))
    shots = reports[-1]
    tap.point("examples are computed once", shots["tokens_computed"] < shots["tokens"] / 3,
              f"{shots['tokens_computed']} of {shots['tokens']} tokens")


def test_files():
    path, items = open_form()
    tap.case("a file of one's own", lambda: compare("own", evaluate("--file", path)[0], items))
    for make in (hellaswag_text, winogrande_csv, binary):
        option, path, items = make()
        tap.case(f"{option}", lambda: compare(option, evaluate(option, path)[0], items))


def cloze():
    rows = [("Once upon a time, there was a little girl named", "Lily."), ("The sun was", "shining"), ("He said", "zebra")]
    write("lambada_openai.jsonl", [{"text": f"{c} {r}"} for c, r in rows])
    report = evaluate("--tasks", "lambada_openai")[0]
    want = [score(c, " " + r) for c, r in rows]
    for g, (logprob, greedy) in zip(report["results"], want):
        assert abs(g["logprobs"][0] - logprob) < CLOSE and g["right"] == greedy, (g, logprob, greedy)
    assert abs(report["perplexity"]["value"] / math.exp(-sum(w for w, _ in want) / len(want)) - 1) < 1e-4
    return f"accuracy {report['acc']['value']:.2f}"


def written():
    write("gsm8k_test.jsonl", [{"question": "What is 2 and 2?", "answer": "It is 4.\n#### 4"}])
    assert "gsm8k_train.jsonl" in run("eval", "--tasks", "gsm8k", "--data", data, rc=1)
    write("gsm8k_train.jsonl", [{"question": f"What is {i} and 1?", "answer": f"#### {i + 1}"} for i in range(5)])
    report = json.loads(run("eval", "--tasks", "gsm8k", "--data", data, "--json", "-n", "16"))["tasks"][0]
    assert report["kind"] == "written" and 0 <= report["exact_match"]["value"] <= 1


def chance():
    """Random weights know nothing: they are right as often as a die."""
    model = data / "random.gguf"
    run("synth", "tiny", model, "--seed", "3")
    items = [{"query": f"Number {i} is", "choices": [f"the {w} one" for w in ("red", "big", "old", "odd")], "gold": i % 4}
             for i in range(240)]
    path = write("chance.jsonl", items)
    report = json.loads(run("eval", model, "--file", path, "--json"))["tasks"][0]
    acc, error = report["acc"]["value"], report["acc"]["stderr"]
    assert abs(acc - 0.25) < 4 * error, f"{acc} +/- {error}"
    return f"{acc:.3f} +/- {error:.3f}"


# ---------------------------------------------------------------- divergence

BOS = 0  # of the embedded model, which asks for it: every window begins with it, as in llama-perplexity
TEXT = "Once upon a time, there was a little dog named Max. Max liked to play in the park with his friends. " * 40


def divergence():
    text = data / "text"
    text.write_text(TEXT)
    same = json.loads(run("eval", "kl", "embedded", "--with", "--threads 2", "--text", text, "--ctx", "128", "--json"))
    assert same["kl_max"] == 0 and same["top1_agreement"] == 1 and same["perplexity_ratio"] == 1, same
    other = json.loads(run("eval", "kl", "embedded", "--with", "--kv-type int4", "--text", text, "--ctx", "128", "--json"))
    ids = [int(i) for i in run("tokenize", "--bos", stdin=TEXT.encode()).split()]
    assert ids[0] == BOS, ids[0]
    kl, n = 0.0, 0
    for at in range(0, len(ids) - 127, 128):
        window = [BOS] + ids[at + 1:at + 128]
        rows = []
        for kv in ("f16", "int4"):
            out = data / "logits"
            run("logits", "--ids", ",".join(map(str, window)), "--out", out, "--kv-type", kv)
            x = numpy.fromfile(out, dtype="<f4").reshape(128, -1).astype(numpy.float64)[64:127]
            x -= x.max(axis=1, keepdims=True)
            rows.append(x - numpy.log(numpy.exp(x).sum(axis=1, keepdims=True)))
        p, q = rows
        kl, n = kl + (numpy.exp(p) * (p - q)).sum(), n + len(p)
    assert other["positions"] == n, (other["positions"], n)
    assert abs(other["kl_mean"] / (kl / n) - 1) < 1e-6, (other["kl_mean"], kl / n)
    return f"int4 cache: mean KL {other['kl_mean']:.2e} over {n} positions"


def divergence_report():
    """The text may be JSONL; the report goes to a file, too; what would not be looked at is refused."""
    lines = write("text.jsonl", [{"text": TEXT}])
    args = ["eval", "kl", "embedded", "--with", "--head int8", "--ctx", "128", "--json"]
    plain = json.loads(run(*args, "--text", data / "text", "--json-report", data / "kl.json"))
    kept = json.loads((data / "kl.json").read_text())
    assert kept.keys() == plain.keys() and all(abs(kept[k] - plain[k]) <= 1e-9 * abs(plain[k]) for k in plain), (kept, plain)
    assert json.loads(run(*args, "--text", lines))["kl_mean"] == plain["kl_mean"]
    (data / "latin1").write_bytes(("caf\u00e9 " * 100).encode("latin-1"))
    (data / "few").write_text("Once")
    for args, rc, words in [(["--text", data / "latin1"], 1, "not UTF-8"), (["--text", data / "few"], 1, "too little"),
                            (["--text", data / "text", "--tasks", "piqa"], 2, "'eval kl' has no --tasks"),
                            (["--text", data / "text", "--page", "p.html"], 2, "'eval kl' has no --page"),
                            (["--text", data / "text", "--base", "b"], 2, "--text is not read"),
                            (["--text", data / "text", "--json-report", data / "no" / "a"], 1, "a'")]:
        said = run("eval", "kl", "embedded", "--with", "--head int8", *args, rc=rc)
        assert words in said and said.count("\n") == 1, said
    for options, words in [("--text x", "unknown option '--text'"), ("--ctx 9", "unknown option '--ctx'"), ("x", "not 'x'"),
                           ("--pin off " * 40, "more than 64 words")]:
        said = run("eval", "kl", "embedded", "--with", options, "--text", data / "text", rc=2)
        assert words in said and said.count("\n") == 1, said
    assert "only 'eval kl' has --with" in run("eval", "--tasks", "piqa", "--with", "--head int8", rc=2)
    assert "'eval diff' has no --json-report" in run("eval", "diff", "a", "b", "--json-report", "c", rc=2)


def base_file():
    """The form that llama-perplexity writes: 16 bits a log-probability, over a range of its own."""
    ids = encode(TEXT)[:256]
    vocab = len(log_softmax(ids[:128])[0])
    out = [b"_logits_", struct.pack("<III", 128, vocab, 2), struct.pack("<256i", *ids)]
    for chunk in (ids[:128], ids[128:256]):
        for row in log_softmax([BOS] + chunk[1:])[64:127]:
            low = max(row.min(), row.max() - 16)
            scale = (row.max() - low) / 65535
            codes = numpy.clip(numpy.round((row - low) / scale), 0, 65535).astype("<u2")
            out += [struct.pack("<ff", scale, low), codes.tobytes(), b"\0\0" * (vocab % 2)]
    path = data / "base"
    path.write_bytes(b"".join(out))
    r = json.loads(run("eval", "kl", "embedded", "--base", path, "--json"))
    assert r["positions"] == 126 and r["kl_mean"] < 1e-5 and r["top1_agreement"] > 0.98, r
    path.write_bytes(path.read_bytes()[:-100])
    assert "cut off" in run("eval", "kl", "embedded", "--base", path, rc=1)
    return f"mean KL {r['kl_mean']:.1e}"


# ---------------------------------------------------------------- comparison

def bars_are_those_of(task):
    """The page: a bar for each figure, as wide as the figure, with its error beside."""
    page = (data / "page.html").read_text()
    bars = re.findall(r"<td>(\w+)</td>.*?<span style=\"width:([\d.]+)%\"></span><i style=\"left:([\d.]+)%;width:([\d.]+)%\">", page)
    assert "own.jsonl" in page and [b[0] for b in bars] == ["acc", "acc_norm"], page[-500:]
    for name, *places in bars:
        value, error = task[name]["value"] * 100, task[name]["stderr"] * 100
        for got, want in zip(map(float, places), (value, max(value - error, 0), 2 * error)):
            assert abs(got - want) < 0.006, (name, got, want)


def diff():
    path, _ = open_form()
    a, b = data / "a.json", data / "b.json"
    run("eval", "--file", path, "--json-report", a, "--page", data / "page.html")
    report = json.loads(a.read_text())
    bars_are_those_of(report["tasks"][0])
    same = json.loads(run("eval", "diff", a, a, "--json"))["tasks"][0]
    assert same["p_value"] == 1 and same["verdict"] == "noise"
    many = {"format": report["format"], "tasks": [dict(report["tasks"][0], results=[
        {"item": i, "gold": 0, "right": i % 4 != 0, "right_norm": False} for i in range(40)])]}
    few = json.loads(json.dumps(many))
    for r in few["tasks"][0]["results"][:12]:
        r["right"] = False
    a.write_text(json.dumps(many))
    b.write_text(json.dumps(few))
    row = json.loads(run("eval", "diff", a, b, "--json"))["tasks"][0]
    # 9 items only a has right, none only b: twice the chance of 9 heads in a row
    assert row["only_a"] == 9 and row["only_b"] == 0 and abs(row["p_value"] - 2 / 2**9) < 1e-9
    assert row["verdict"] == "a is better"


CHOICE = json.dumps({"query": "a", "choices": ["b", "c"], "gold": 0}) + "\n"
CLOZE = json.dumps({"context": "a", "continuation": "b"}) + "\n"


def refused():
    for args, words in [(["--tasks", "nonsense"], "no task 'nonsense'"), (["--tasks", "arc_challenge"], "allenai/ai2_arc"),
                        ([], "nothing to run"), (["--file", data / "nowhere"], "nowhere")]:
        rc = 2 if words in ("no task 'nonsense'", "nothing to run") else 1
        said = run("eval", *args, "--data", data, rc=rc)
        assert words in said, said
    # a report that cannot be written is noticed before the model is looked for
    said = run("eval", "no-such-model.gguf", "--file", data / "own.jsonl", "--json-report", data / "no" / "a.json", rc=1)
    assert "a.json" in said and "no-such-model" not in said, said
    # a device stays one
    os.symlink("/dev/full", data / "full")
    said = run("eval", "--file", data / "own.jsonl", "--json-report", data / "full", rc=1)
    assert "full" in said and said.count("\n") == 1 and (data / "full").is_char_device(), said
    assert b"acc" in run("eval", "--file", data / "own.jsonl", "--json-report", "/dev/null") and pathlib.Path("/dev/null").is_char_device()
    long = write("long.jsonl", [{"query": "word " * 3000, "choices": ["a", "b"], "gold": 0}])
    assert b"long.jsonl: 2 texts were longer than the context" in run("eval", "--file", long)
    bad = data / "bad.jsonl"
    for text, words in [("{\"query\": 1}\n", "line 1"), ("", "no items"), ("{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 3}\n",
                        "number 3 of 1"), ("nonsense\n", "line 1"),
                        (CHOICE + CLOZE, "item 2 has nothing to choose from"), (CLOZE + CHOICE, "item 2 has choices")]:
        bad.write_text(text)
        said = run("eval", "--file", bad, rc=1)
        assert words in said and said.count("\n") == 1, said


test_tasks()
test_files()
tap.case("lambada_openai: the last word", cloze)
tap.case("gsm8k: what the model writes", written)
tap.case("chance", chance)
tap.case("divergence of an int4 cache", divergence)
tap.case("divergence: its report, its options", divergence_report)
tap.case("a base file of llama-perplexity", base_file)
tap.case("diff", diff)
tap.case("what is refused", refused)
sys.exit(tap.end())
