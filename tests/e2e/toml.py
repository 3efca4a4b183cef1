#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The TOML reader of the settings file beside Python's own, tomllib: texts put together at random, right and damaged.

usage: toml.py APP_TOML_TEST [--texts N] [--seed N] [--suite CHECKOUT]

CHECKOUT: a copy of github.com/toml-lang/toml-test, of which every case for TOML 1.0 is tried. Output is TAP."""
import argparse
import concurrent.futures
import datetime
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import tomllib

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from tap import Tap

VALUES = ["1", "-7", "+0", "1_000", "0xff", "0o17", "0b10", "1.5", "-0.0", "6e3", "1_0.2_5e-3", "inf", "-nan", "true", "false",
          '"a"', '"\\u00e9\\n"', "'C:\\dir'", '"""two\nlines"""', "'''it's'''", '"""a\\\n  b"""', "1979-05-27", "07:32:00.25",
          "1979-05-27T07:32:00Z", "1979-05-27 07:32:00-07:00", "[]", "[1, 2,]", "[[1], ['a']]", "{}", "{a = 1, b.c = 2}",
          "[ # one\n 1,\n 2 ]", "{x = [1], 'y z' = {}}", '"#"', "'é'"]
DAMAGED = ["01", "1__0", "_1", "1_", "0x", "0xg", "1.", ".5", "1e", "tru", "nul", '"a', "'a", "[1", "[1 2]", "{a=1,}", "{a}", "2001-02-29",
           "25:00:00", "1979-05-27T", '"\\x"', "hello", "", "+ 1", "1.5.2", "0b2", "--1", "{a=1\n}"]
NAMES = ["a", "b", "c", "a.b", "a.c", "b.a", "c.a.b", '"x y"', "'q'.a", "a-1", "1"]


def text_of(rng):
    lines = []
    for _ in range(rng.randrange(1, 9)):
        kind = rng.random()
        if kind < 0.25:
            name = rng.choice(NAMES)
            lines.append(f"[[{name}]]" if rng.random() < 0.3 else f"[{name}]")
        elif kind < 0.93:
            lines.append(f"{rng.choice(NAMES)} = {rng.choice(VALUES if rng.random() < 0.97 else DAMAGED)}")
        else:
            lines.append(rng.choice(["# note", "", " ", "a", "= 1", "[a", "[]", "a = 1 2"]))
    text = rng.choice(["\n", "\n", "\r\n"]).join(lines)
    if rng.random() < 0.1 and text:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("[]{}\"'=.,#\\ \n\x01x0-_") + text[at + 1:]
    return text


def tagged(value):
    """A value of tomllib in toml-test's form."""
    if isinstance(value, dict):
        return {k: tagged(v) for k, v in value.items()}
    if isinstance(value, list):
        return [tagged(v) for v in value]
    kinds = [(bool, "bool"), (int, "integer"), (float, "float"), (str, "string"), (datetime.date, "date-local"), (datetime.time, "time-local")]
    kind = next(name for of, name in kinds if isinstance(value, of))
    if isinstance(value, datetime.datetime):
        kind = "datetime" if value.tzinfo else "datetime-local"
    return {"type": kind, "value": str(value).lower() if kind == "bool" else str(value)}


def moment(text):
    return datetime.datetime.fromisoformat(text.upper().replace("Z", "+00:00").replace(" ", "T"))


def same(a, b):
    if isinstance(a, list) or isinstance(b, list):
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if set(a) != {"type", "value"} or not isinstance(a["type"], str):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if a["type"] != b.get("type"):
        return False
    if a["type"] == "float":
        x, y = float(a["value"]), float(b["value"])
        return x == y or (math.isnan(x) and math.isnan(y))
    if a["type"].startswith("datetime"):
        return moment(a["value"]) == moment(b["value"])
    if a["type"] == "time-local":
        return datetime.time.fromisoformat(a["value"]) == datetime.time.fromisoformat(b["value"])
    return a["value"] == b["value"]


def ours(reader, path):
    done = subprocess.run([reader, path], capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, 1), f"{path}: exit code {done.returncode}: {done.stderr!r}"
    assert bool(done.stdout) == (done.returncode == 0), f"{path}: half an answer"
    return json.loads(done.stdout) if done.returncode == 0 else None


def compare(reader, folder, i, text):
    path = folder / f"{i}.toml"
    path.write_bytes(text.encode())
    got = ours(reader, path)
    try:
        want = tagged(tomllib.loads(text.replace("\r\n", "\n") if "\r" in text else text))
    except tomllib.TOMLDecodeError:
        want = None
    assert (got is None) == (want is None), f"taken by {'us' if got is not None else 'tomllib'} only: {text!r}"
    assert want is None or same(want, got), f"{text!r}: got {got}, want {want}"
    return want is not None


def at_random(args):
    rng = random.Random(args.seed)
    texts = [text_of(rng) for _ in range(args.texts)]
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda one: compare(args.reader, pathlib.Path(name), *one), enumerate(texts)))
    right = sum(taken)
    print(f"# seed {args.seed}: {right} of {len(texts)} texts are TOML")
    assert len(texts) / 10 < right < len(texts) * 9 / 10, "both kinds of texts"


def suite(args):
    tests = args.suite / "tests"
    names = (tests / "files-toml-1.0.0").read_text().split("\n")
    n = 0
    for name in sorted(x for x in names if x.endswith(".toml")):
        got = ours(args.reader, tests / name)
        if name.startswith("invalid/"):
            assert got is None, f"{name} was taken"
        else:
            # the test program's names end at a 0
            want = json.loads((tests / name).with_suffix(".json").read_text(), object_hook=lambda o: {k.split("\0")[0]: v for k, v in o.items()})
            assert got is not None and same(want, got), f"{name}: got {got}, want {want}"
        n += 1
    print(f"# {n} cases of toml-test")
    assert n > 500, n


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("reader")
    p.add_argument("--texts", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--suite", type=pathlib.Path)
    args = p.parse_args()
    tap = Tap(2 if args.suite else 1)
    tap.case("texts at random, beside tomllib", at_random, args)
    if args.suite:
        tap.case("toml-test", suite, args)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
