#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels whose instructions this CPU promises and does not run: the program takes lesser ones, says so, and tells the same
story. usage: illegal.py BITNET libillegal.so

The trial of a backend is a forked process; illegal.c lets the first ones end with a real illegal instruction. Prints TAP."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
from tap import Skipped, Tap

STORY = ["run", "-p", "Once upon a time", "-n", "12", "--temp", "0", "-t", "1", "--json"]


def main():
    bitnet, preload = sys.argv[1:3]
    tap = Tap()

    def run(illegal, *command):
        env = {**os.environ, "LD_PRELOAD": preload, "ILLEGAL_FORKS": str(illegal)}
        p = subprocess.run([bitnet, *command], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return p.returncode, p.stdout, p.stderr

    have = [b["name"] for b in json.loads(run(0, "doctor", "--isa", "--json")[1])["compiled"] if b["supported"]]

    def falls_back():
        code, right, said = run(0, *STORY)
        right = json.loads(right)
        assert code == 0 and right["backend"] == have[-1] and "illegal" not in said, f"{code} {said}"
        for n in range(1, len(have)):
            code, out, said = run(n, *STORY)
            out = json.loads(out)
            assert code == 0 and out["backend"] == have[-1 - n], f"{n}: {code} {out} {said}"
            assert out["text"] == right["text"], f"{n}: another text"
            assert f"says that it has {have[-1]}" in said and f"{have[-1 - n]} is used" in said, f"{n}: {said}"
        return f"{have[-1]} to {have[0]}"

    def asked_for():
        code, out, said = run(1, *STORY, "--backend", have[1])
        assert code == 0 and json.loads(out)["backend"] == have[0] and f"{have[0]} is used" in said, f"{code} {said}"
        code, out, said = run(0, *STORY, "--backend", have[1])
        assert code == 0 and json.loads(out)["backend"] == have[1] and "illegal" not in said, f"{code} {said}"

    def others():
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder) / "made.gguf"
            assert run(0, "synth", "tiny", made, "--type", "i2_s")[0] == 0
            for command in (["convert", made, pathlib.Path(folder) / "packed", "--packed"],
                            ["logits", made, "--ids", "1,2", "--out", pathlib.Path(folder) / "logits"], ["inspect", made]):
                code, _, said = run(1, *command)
                assert code == 0, f"{command[0]}: {code} {said}"
                assert ("illegal instruction" in said) == (command[0] != "inspect"), f"{command[0]}: {said}"

    def doctor():
        found = json.loads(run(1, "doctor", "--no-measure", "--json")[1])["findings"]
        backend = next(f for f in found if f["id"] == "backend")
        assert have[-1] in backend["what"] and "illegal instruction" in backend["what"], backend
        assert next(f for f in found if f["id"] == "selftest")["severity"] == "ok", found

    for name, case in (("lesser kernels, the same story", falls_back), ("a backend that was asked for", asked_for),
                       ("convert and logits; inspect has no need of kernels", others), ("doctor", doctor)):
        if len(have) < 2:
            tap.skip(name, Skipped("isa", "there is only one"))
        else:
            tap.case(name, case)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
