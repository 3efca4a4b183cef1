#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every allocation of a command fails in turn: it ends with an error, or with the same bytes as without. A file that it
writes is whole, or is not there.

usage: allocations.py BITNET FAIL_ALLOC.so DATA [--most N]      output is TAP; N allocations of a case are tried [all]
"""
import json
import pathlib
import re
import subprocess
import tempfile

import fail_alloc

LIMIT_S = 60
LEAST = 300  # allocations of any run that is tried here
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


def words_of(out):
    """JSON without its numbers, which are times and memory."""
    return re.sub(rb"(?<=[ \[])(-?[\d.]+(e[-+]?\d+)?|null)(?=[,\]}])", b"0", out)


class Case:
    """A command. file: what it makes, instead of what it writes; read: to what is compared of it. prepare: before each run;
    left: what a run has left, which is compared as well. least: allocations that a run has at least;
    most: allocations that are tried."""

    def __init__(self, name, *command, stdin=b"", clean=lambda out: out, file=None, read=pathlib.Path.read_bytes, env=None,
                 prepare=lambda: None, left=None, least=LEAST, most=None):
        self.name, self.command, self.stdin, self.clean, self.file, self.read = name, command, stdin, clean, file, read
        self.env, self.prepare, self.left, self.least, self.most = env or {}, prepare, left, least, most

    def run(self, args, fail, at):
        """Status, what came out, None if it is a file that is not there, and what was said."""
        if self.file:
            self.file.unlink(missing_ok=True)
        self.prepare()
        fail.arm(at, args.n)
        p = subprocess.run([args.bitnet, *self.command], env={**fail.env(), **self.env}, input=self.stdin, capture_output=True,
                           timeout=LIMIT_S, check=False)
        out = self.clean(p.stdout)
        if self.file:
            out = self.read(self.file) if self.file.exists() else None
        if self.left:
            out = (out, self.left())
        return p.returncode, out, p.stderr.decode(errors="replace")

    def end(self, right, code, out, said):
        if code < 0 or code > 128:
            return "crashed"
        if code == 0 and out == right:
            return "same"
        whole = out[1] in (None, right[1]) if self.left else not self.file or out in (None, right)
        return "errors" if code == 1 and said.strip() and whole else "wrong"

    def loop(self, args, fail, table):
        code, right, said = self.run(args, fail, -1)
        total, ends, faults = fail.seen(), {}, []
        if code or total < self.least:
            faults = [f"undisturbed: status {code}, {total} allocations: {said[-300:]}"]
        for n in fail_alloc.some(total if not faults else 0, args.most or self.most):
            code, out, said = self.run(args, fail, n)
            end = self.end(right, code, out, said)
            ends[end] = ends.get(end, 0) + 1
            if end in ("wrong", "crashed"):
                faults.append(f"allocation {n} of {total}: {end}, status {code}: {said[-300:]}")
        table.case(self.name, total, ends, faults)


def batch(folder):
    lines = folder / "in.jsonl"
    lines.write_text("".join(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": url, "body": body}) + "\n"
                             for i, (url, body) in enumerate(BODIES)))
    return Case("batch", "batch", "-i", lines, "-o", "-", "-t", "1", "--no-cache", "--chat-template", "chatml")


def calibrate(folder, model):
    text, out = folder / "text.txt", folder / "plan"
    text.write_text("Once upon a time there was a dog. " * 80)
    return Case("calibrate", "calibrate", model, "--dataset", text, "--calibration-samples", "8", "--sample-tokens", "16",
                "--kl-budget", "0.05", "--savings", "codes", "--curve", "0.1", "--output-dir", out, "--force", "-t", "1",
                "--no-cache", file=out / "plan.json", read=lambda file: json.loads(file.read_text())["layers"])


def cases(bitnet, folder, data):
    small, made = fail_alloc.small_folder(data, folder / "small"), folder / "made.gguf"
    gguf = data.parents[1] / "models" / "stories-31m.gguf"
    text = ["-p", "Tell me é", "-n", "6", "--temp", "1", "--seed", "7", "-t", "1", "--no-cache"]

    def logits(file):  # packed files are told apart by a random number, so their bytes say little
        return subprocess.run([bitnet, "logits", file, "--ids", "1,2,3", "-o", "-", "-t", "1"], capture_output=True, check=True).stdout

    return [
        batch(folder),
        Case("inspect", "inspect", "embedded", "--json"),
        Case("inspect a folder", "inspect", small, "--json"),
        Case("inspect a folder, text", "inspect", small, "--meta", "--weights"),
        Case("run a folder", "run", small, *text),
        Case("run a folder, JSON", "run", small, *text, "--json", clean=words_of),
        Case("run a folder, chat", "run", small, *text, "--chat"),
        Case("run a folder, built-in chat", "run", small, *text, "--chat", "--chat-template", "chatml"),
        Case("run a GGUF", "run", gguf, *text),
        Case("run a GGUF, no mmap", "run", gguf, *text, "--no-mmap"),
        Case("logits of a folder", "logits", small, "--ids", "1,2,3", "-o", "-", "-t", "1"),
        Case("tokenize by a folder", "tokenize", small, "--json", stdin="Tell me é".encode()),
        calibrate(folder, small),
        Case("convert a folder", "convert", small, made, file=made),
        Case("convert a folder, packed", "convert", small, made, "--packed", "-t", "1", file=made, read=logits),
    ]


def main():
    args = fail_alloc.arguments()
    with tempfile.TemporaryDirectory(prefix="bitnet-alloc-") as folder:
        folder = pathlib.Path(folder)
        fail = fail_alloc.FailAlloc(args.preload, folder / "orders")
        chosen = [c for c in cases(args.bitnet, folder, args.data) if args.only in c.name]
        table = fail_alloc.Table(len(chosen))
        for case in chosen:
            case.loop(args, fail, table)
        return table.end()


if __name__ == "__main__":
    raise SystemExit(main())
