#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every allocation of a run fails in turn: the run ends with an error, or with the same bytes as without.

usage: allocations.py BITNET FAIL_ALLOC.so [--every N]      output is TAP; every N-th allocation fails [1]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from tap import Tap

LIMIT_S = 60
LEAST = 500  # allocations of any run that is tried here
PLACE = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "array", "items": {"type": "integer",
         "minimum": 3}}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "string"}}}}}
TALK = [{"role": "user", "content": "Tell me é"}, {"role": "user", "content": [{"type": "text", "text": "a"},
                                                                              {"type": "text", "text": "b"}]}]
BODIES = [
    ("/v1/chat/completions", {"messages": TALK, "temperature": 0.5, "logprobs": True, "top_logprobs": 2, "max_tokens": 3}),
    ("/v1/completions", {"prompt": "Once upon", "max_tokens": 2, "logprobs": 2, "stop": ["x"], "logit_bias": {"5": 1}}),
    ("/v1/responses", {"input": "One", "max_output_tokens": 2, "instructions": "Be brief"}),
    ("/v1/completions", {"prompt": "One", "max_tokens": 30, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": PLACE}}}),
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 60, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/completions", {"bad": 1}),
]


class Runs:
    def __init__(self, args, folder):
        self.args, self.count = args, folder / "count"
        self.input = folder / "in.jsonl"
        self.input.write_text("".join(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": url, "body": body}) + "\n"
                                      for i, (url, body) in enumerate(BODIES)))

    def batch(self):
        return ["batch", "-i", self.input, "-o", "-", "-t", "1", "--no-cache", "--chat-template", "chatml"]

    def one(self, command, fail):
        env = dict(os.environ, LD_PRELOAD=self.args.preload, FAIL_ALLOC=str(fail), FAIL_ALLOC_COUNT=str(self.count),
                   BITNET_TUNING="off")
        p = subprocess.run([self.args.bitnet, *command], env=env, capture_output=True, timeout=LIMIT_S, check=False)
        return p.returncode, p.stdout, p.stderr.decode(errors="replace")

    def loop(self, command):
        """How the runs ended."""
        code, right, said = self.one(command, -1)
        assert code == 0, f"undisturbed: status {code}: {said}"
        total, same, errors = int(self.count.read_text()), 0, 0
        assert total >= LEAST, f"only {total} allocations were seen"
        for n in range(0, total, self.args.every):
            code, out, said = self.one(command, n)
            if code == 0 and out == right:
                same += 1
            elif code == 1 and said.strip():
                errors += 1
            else:
                raise AssertionError(f"allocation {n} of {total}: status {code}: {said[-300:]}")
        return f"{total} allocations: {errors} errors, {same} the same bytes"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bitnet")
    p.add_argument("preload")
    p.add_argument("--every", type=int, default=1)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="bitnet-alloc-") as folder:
        runs = Runs(args, pathlib.Path(folder))
        cases = [("batch", runs.batch()),
                 ("inspect", ["inspect", "embedded", "--json"])]
        tap = Tap(len(cases))
        for name, command in cases:
            tap.case(name, runs.loop, command)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
