#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers of the embedded model in the form of a JSON Schema, through `bitnet batch`: for every schema of
tests/data/schemas, sampled with limits that many of them run into. Each must end by itself ("stop"), parse and validate
by jsonschema (Debian: python3-jsonschema), which is not ours. Prints TAP.

usage: constrained.py BITNET DATA [ANSWERS_A_SCHEMA]      50 a schema make 1,000
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from grammar_check import faults, jsonschema
from tap import Missing, Tap

PROMPTS = ["Tell me a story about a dragon.", "Who lives in the forest?", "What did Lily find in the park?"]
LIMITS = [140, 180, 240, 400]
LIMIT_S = 540

program, data = sys.argv[1:3]
answers = int(sys.argv[3]) if len(sys.argv) > 3 else 5
folder = os.path.join(data, "schemas")
names = sorted(os.listdir(folder))
schemas = {name: json.load(open(os.path.join(folder, name))) for name in names}


def request(name, k):
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schemas[name]}}
    body = {"messages": [{"role": "user", "content": PROMPTS[k % len(PROMPTS)]}], "temperature": 1, "seed": k,
            "max_tokens": LIMITS[k % len(LIMITS)], "response_format": form}
    return json.dumps({"custom_id": f"{name} {k}", "method": "POST", "url": "/v1/chat/completions", "body": body})


def run(scratch):
    """What each schema's answers were: [limit, finish reason, tokens, text]."""
    source, out = os.path.join(scratch, "in.jsonl"), os.path.join(scratch, "out.jsonl")
    with open(source, "w") as f:
        f.writelines(request(name, k) + "\n" for name in names for k in range(answers))
    subprocess.run([program, "batch", "-i", source, "-o", out, "-q", "-j", "16"], check=True, timeout=LIMIT_S)
    got = {name: [] for name in names}
    for line in open(out):
        reply = json.loads(line)
        name, k = reply["custom_id"].split()
        body = reply["response"]["body"]
        if reply["response"]["status_code"] != 200:
            got[name].append((0, json.dumps(body), 0, ""))
            continue
        choice = body["choices"][0]
        got[name].append((LIMITS[int(k) % len(LIMITS)], choice["finish_reason"], body["usage"]["completion_tokens"],
                          choice["message"]["content"]))
    return got


tap, at_limit = Tap(), 0


with tempfile.TemporaryDirectory() as scratch:
    for name, got in run(scratch).items():
        wrong = [f"{why}, {n} of {limit} tokens: {text[-100:]}" for limit, why, n, text in got
                 if why != "stop" or n > limit]
        wrong += faults(schemas[name], [text for _, _, _, text in got])
        at_limit += sum(n == limit for limit, _, n, _ in got)
        tap.point(f"{name}: {answers} answers end and {'validate' if jsonschema else 'parse'}",
                  not wrong and len(got) == answers, "\n".join(wrong[:5]))
tap.point("20 schemas", len(names) == 20)
tap.point(f"{at_limit} answers took all the tokens they had", at_limit > 0)
if not jsonschema:
    tap.skip("validation", Missing("no python3-jsonschema: the answers were only parsed"))
sys.exit(tap.end())
