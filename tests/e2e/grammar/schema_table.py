#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Schemas as they come in practice, and what becomes of them: how many are taken, how long compiling takes (time on a core),
and whether texts fit, judged by ajv. Texts are drawn at random from what the masks allow, and answers are the embedded
model's, through `bitnet batch`. Prints a table, and TAP.

usage: schema_table.py BITNET GRAMMAR_DRAW DATA FOLDER [--suite CHECKOUT] [--every N] [--texts N] [--answers N]

DATA/dialects has schemas of zod 3 and 4, of the openai package's helpers and of pydantic; DATA/schemas our own. CHECKOUT: a copy
of github.com/json-schema-org/JSON-Schema-Test-Suite, of which every schema of draft 2020-12 is tried. "Valid refused" are instances
that its tests call valid and the masks do not allow, as they need not allow all that fits (docs/use/constrained.md). FOLDER gets the packages of npm. --every N: each N-th schema only."""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
import npm
from tap import Missing, Tap, comment, find

CLIENTS = pathlib.Path(__file__).resolve().parents[1] / "clients"
LIMIT_S = 3000
ANSWER_TOKENS = 400
PROMPTS = ["Tell me a story about a dragon.", "Who lives in the forest?", "What did Lily find in the park?"]
# Where ajv is wrong, by the suite's own tests of the same schema; their texts are not judged.
AJV_IS_WRONG = {
    "dynamicRef 0": "takes a $dynamicRef to an anchor of the same document for the document",
    "dynamicRef 1": "the same",
    "unevaluatedItems 8": "looks for items that 'true' has evaluated as if it were a number of them",
    "multipleOf 2": "divides in floats: 82426.9 is a multiple of 0.0001",
}
# of each source at least this share is taken
LEAST = {"zod": 0.99, "pydantic": 1, "own": 1, "suite": 0.7}


def forms(args):
    """(source, name, schema, instances that fit)"""
    for source in ("zod", "pydantic"):
        for line in (args.data / f"dialects/{source}.jsonl").read_text().splitlines():
            one = json.loads(line)
            yield source, one["name"], one["schema"], []
    for path in sorted((args.data / "schemas").iterdir()):
        yield "own", path.stem, json.loads(path.read_text()), []
    for path in sorted((args.suite / "tests/draft2020-12").glob("*.json")) if args.suite else []:
        for i, group in enumerate(json.loads(path.read_text())):
            fit = [t["data"] for t in group["tests"] if t["valid"]]
            yield "suite", f"{path.stem} {i}", group["schema"], fit


def spellings(instance):
    """An instance as texts of which one has to be possible."""
    return list(dict.fromkeys(json.dumps(instance, ensure_ascii=a, separators=s)
                              for a in (False, True) for s in ((", ", ": "), (",", ":"))))


def compile_and_draw(args, schemas, scratch):
    lines = scratch / "lines"
    with open(lines, "w") as f:
        for _, _, schema, fit in schemas:
            f.write(json.dumps({"schema": schema, "instances": [spellings(i) for i in fit]}) + "\n")
    out = subprocess.run([args.draw, "many", args.data / "stories/tokenizer.json", lines, str(args.texts), "5"],
                         check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    return [json.loads(line) for line in out.splitlines()]


def answers(args, schemas, scratch):
    """{name: texts} of the model; schemas whose shortest text is too long for it give none."""
    source, out, got = scratch / "in.jsonl", scratch / "out.jsonl", collections.defaultdict(list)
    with open(source, "w") as f:
        for _, name, schema, _ in schemas:
            for k in range(args.answers):
                form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
                body = {"messages": [{"role": "user", "content": PROMPTS[k % len(PROMPTS)]}], "temperature": 1, "seed": k,
                        "max_tokens": ANSWER_TOKENS, "response_format": form}
                f.write(json.dumps({"custom_id": f"{name}/{k}", "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n")
    subprocess.run([args.bitnet, "batch", "-i", source, "-o", out, "-q", "-j", "16"], check=True, timeout=LIMIT_S)
    for line in open(out):
        reply = json.loads(line)
        body = reply["response"]["body"]
        if reply["response"]["status_code"] == 200:
            choice = body["choices"][0]
            assert choice["finish_reason"] == "stop", f"{reply['custom_id']}: {choice}"
            got[reply["custom_id"].rsplit("/", 1)[0]].append(choice["message"]["content"])
        elif "room for" not in json.dumps(body) and "context" not in json.dumps(body):
            raise AssertionError(f"{reply['custom_id']}: {body}")
    return got


def judged(args, rows, scratch):
    file = scratch / "texts"
    with open(file, "w") as f:
        for name, schema, texts in rows:
            f.write(json.dumps({"name": name, "schema": schema, "texts": texts}) + "\n")
    out = subprocess.run([find("node"), "judge.mjs", file], cwd=args.folder, check=True, capture_output=True, text=True,
                         timeout=LIMIT_S).stdout
    verdicts = [json.loads(line) for line in out.splitlines()]
    return [{"error": AJV_IS_WRONG[v["name"]]} if v["name"] in AJV_IS_WRONG else v for v in verdicts]


def share(sorted_values, p):
    return sorted_values[min(len(sorted_values) - 1, int(p * len(sorted_values)))]


def table(schemas, made, texts_of, verdicts):
    sources, wrong, why = collections.OrderedDict(), [], collections.Counter()
    for (source, name, _, _), m, texts, v in zip(schemas, made, texts_of, verdicts):
        r = sources.setdefault(source, collections.Counter(us=[]))
        r["schemas"] += 1
        if "error" in m:
            why[f"{source}: {m['error'][:110]}"] += 1
            continue
        r["taken"] += 1
        r["us"].append(m["us"])
        r["texts"] += len(texts) if "error" not in v else 0
        r["not judged"] += "error" in v
        r["invalid"] += len(v.get("invalid", []))
        r["refused"] += len(m["rejected"])
        wrong += [f"{name}: {t['text'][:150]}: {t['why'][:200]}" for t in v.get("invalid", [])]
    comment(f"{'source':10} {'schemas':>8} {'taken':>6} {'share':>7} {'texts':>6} {'invalid':>8} {'valid refused':>14}"
            f" {'P50 ms':>8} {'P99 ms':>8} {'worst':>8}")
    total = collections.Counter(us=[])
    for source, r in [*sources.items(), ("all", total)]:
        us = sorted(r["us"])
        comment(f"{source:10} {r['schemas']:8} {r['taken']:6} {r['taken'] / r['schemas']:7.1%} {r['texts']:6} {r['invalid']:8}"
                f" {r['refused']:14} {share(us, 0.5) / 1e3:8.2f} {share(us, 0.99) / 1e3:8.1f} {us[-1] / 1e3:8.1f}")
        if r is not total:
            for key, value in r.items():
                total[key] = total[key] + value
    if total["not judged"]:
        comment(f"texts of {total['not judged']} schemas are not judged: ajv does not take these, or is wrong about them")
    return sources, wrong, why


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("bitnet", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("draw", type=pathlib.Path)
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--suite", type=pathlib.Path)
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--texts", type=int, default=3)
    p.add_argument("--answers", type=int, default=3)
    args = p.parse_args()
    tap = Tap()
    try:
        npm.install(CLIENTS, args.folder)
    except Missing as e:
        tap.skip("schemas", e)
        return tap.end()
    schemas = list(forms(args))[::args.every]
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        made = compile_and_draw(args, schemas, scratch)
        assert len(made) == len(schemas), f"{len(made)} of {len(schemas)} schemas"
        taken = [s for s, m in zip(schemas, made) if "error" not in m]
        said = answers(args, taken, scratch) if args.answers else {}
        texts = [m["texts"] + said.get(s[1], []) for s, m in zip(schemas, made)]
        verdicts = judged(args, [(s[1], s[2], t) for s, t in zip(schemas, texts)], scratch)
    sources, wrong, why = table(schemas, made, texts, verdicts)
    for reason, n in why.most_common(40):
        comment(f"not taken, {n}: {reason}")
    tap.point(f"{sum(map(len, texts))} texts are valid, {sum(map(len, said.values()))} of them the model's answers", not wrong,
              "\n".join(wrong[:20]))
    for source, r in sources.items():
        tap.point(f"{source}: {r['taken']} of {r['schemas']} are taken", r["taken"] >= LEAST[source] * r["schemas"] - 1)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
