#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bitnet batch survives being killed: whatever the moment, going on gives the bytes of one undisturbed run.

usage: batch.py BITNET [--kills N] [--seed N]      output is TAP
"""
import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from tap import Tap, comment

WORDS = "once upon a time there was little girl who liked to play with her dog in the park and".split()
# nothing that an answer depends on
COMPANY = [[], ["--kv-tokens", "600"], ["--prefix-cache", "off"], ["--speculation", "off"],
           ["--speculation", "on", "--draft-tokens", "7"], ["--max-num-batched-tokens", "20"], ["-t", "1"]]
PLACE = {"type": "object", "properties": {"place": {"enum": ["park", "house"]}}, "required": ["place"]}
LIMIT_S = 300


def requests(rng, n):
    """Lengths, samplers and forms of all kinds, some of them bad."""
    for i in range(n):
        words = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 60)))
        body = {"max_tokens": rng.choice([1, 5, 20, 60, 120])}
        body.update(rng.choice([{}, {"temperature": 0}, {"top_k": 20}, {"top_p": 0.8, "seed": i}, {"min_p": 0.1},
                                {"stop": ["."]}, {"temperature": "hot"}]))
        chat = rng.random() < 0.3
        body.update(rng.choice([{}, {}, {}, {"n": 3}, {"repetition_penalty": 1.2}, {"grammar": "root ::= [a-z ]+"},
                                {"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2},
                                {"response_format": {"type": "json_object"}}]))
        if chat:
            body["messages"] = [{"role": "user", "content": words}]
            if rng.random() < 0.2:
                body["tools"] = [{"type": "function", "function": {"name": "look", "parameters": PLACE}}]
        else:
            body["prompt"] = rng.choice([words, words, [words, "Once", [5, 6, 7]]])
            body["echo"] = rng.random() < 0.1
        if chat and rng.random() < 0.2:
            body = {"custom_id": f"id {i}", "method": "POST", "url": "/v1/responses",
                    "body": {"input": words, "instructions": "Be brief.", "max_output_tokens": body["max_tokens"]}}
        elif rng.random() < 0.5:
            path = "chat/completions" if "messages" in body else "completions"
            body = {"custom_id": f"id {i}", "method": "POST", "url": "/v1/" + path, "body": body}
        yield json.dumps(body)
        if rng.random() < 0.1:
            yield rng.choice(["", "nonsense", "{}"])


class Runs:
    def __init__(self, program, folder):
        self.program, self.folder = pathlib.Path(program).resolve(), pathlib.Path(folder)
        self.out = self.folder / "out.jsonl"

    def start(self, *more):
        return subprocess.Popen([self.program, "batch", "-i", self.folder / "in.jsonl", "-o", self.out, "-q", *more])

    def finish(self, *more):
        assert self.start(*more).wait(LIMIT_S) == 0, "it failed"
        return self.out.read_bytes()


def torn_lines(runs):
    """Every length of the last line."""
    (runs.folder / "in.jsonl").write_text('{"prompt": "One", "max_tokens": 2}\n{"bad": 1}\n')
    whole = runs.finish("--restart")
    last = whole.index(b"\n") + 1
    for cut in range(last, len(whole)):
        runs.out.write_bytes(whole[:cut])
        assert runs.finish() == whole, f"cut to {cut} of {len(whole)} bytes"
    return f"{len(whole) - last} places"


def killed(runs, rng, n_kills):
    (runs.folder / "in.jsonl").write_text("\n".join(requests(rng, 100)))
    start = time.monotonic()
    whole = runs.finish("--restart")
    seconds = time.monotonic() - start
    for company in COMPANY:
        assert runs.finish("--restart", "-j", "5", *company) == whole, f"not the same with {company}"
    runs.out.unlink()
    done, marks = 0, []
    while done < n_kills:
        p = runs.start("-j", str(rng.choice([1, 3, 8, 16])), *rng.choice(COMPANY))
        try:
            p.wait(rng.uniform(0, 12 * seconds / n_kills))
            assert p.returncode == 0, "it failed"
            assert runs.out.read_bytes() == whole, f"after {done} kills"
            runs.out.unlink()
            continue
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
            p.wait()
        done += 1
        part = runs.out.read_bytes() if runs.out.exists() else b""
        marks.append(part.count(b"\n"))
        assert whole.startswith(part), f"kill {done}: what is there is no beginning of the whole"
    assert runs.finish() == whole, f"after {done} kills"
    return f"{len(whole.splitlines())} lines; killed after {' '.join(map(str, marks))}"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--kills", type=int, default=20)
    p.add_argument("--seed", type=int, default=time.time_ns() % 100000)
    o = p.parse_args()
    rng, tap = random.Random(o.seed), Tap(2)
    comment(f"seed {o.seed}")
    for name, case in (("torn lines", torn_lines), ("killed", lambda r: killed(r, rng, o.kills))):
        with tempfile.TemporaryDirectory(prefix="bitnet-batch-") as folder:
            tap.case(name, case, Runs(o.program, folder))
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
