#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of functions by the embedded model, through `bitnet batch`, sampled with limits that many of them run into: with
the model's template, which knows no tools, and with templates that tell the two forms of calls and, as the model reads
512 tokens at most, nothing else. Every answer that must be a call is one, all arguments parse and validate by
jsonschema, which is not ours. Prints TAP.

usage: tools.py BITNET DATA [ANSWERS_A_FUNCTION]
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from grammar_check import faults, jsonschema
from tap import Missing, Tap

LIMITS = [180, 240, 400]
LIMIT_S = 540
WAYS = ["one", "named", "free"]
QUESTION = [{"role": "user", "content": "Tell me a story about a dragon."}]

program, data = sys.argv[1:3]
answers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
schemas = {}
for name in sorted(os.listdir(os.path.join(data, "schemas"))):
    schema = json.load(open(os.path.join(data, "schemas", name)))
    if schema.get("type", "object") == "object" and name != "19-expression.json":  # others allow more than objects
        schemas[name.removesuffix(".json")] = schema
SHOW = "{% for m in messages %}User: {{ m.content }}<|eot_id|>{% endfor %}Assistant: "
templates = {"own": None, "tags": "{# <tool_call> #}" + SHOW, "bare": '{# {"name": "parameters": #}' + SHOW}
SHORT = ["02-weather", "15-additional", "16-map"]  # whose descriptions leave room for an answer


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": schemas[name]}}


def one(name, k):
    """A function by itself: it must be called, once or several times."""
    return {"tools": [tool(name)], "tool_choice": "required"}


def named(name, k):
    """One of two, by name."""
    other = "16-map" if name != "16-map" else "15-additional"
    return {"tools": [tool(other), tool(name)], "tool_choice": {"type": "function", "function": {"name": name}}}


def free(name, k):
    """As the model likes: this one tells its story."""
    return {"tools": [tool(name)], "parallel_tool_calls": False}


def request(way, name, k):
    body = {"messages": QUESTION, "temperature": 1, "seed": k, "max_tokens": LIMITS[k % len(LIMITS)], **way(name, k)}
    return json.dumps({"custom_id": f"{way.__name__} {name} {k}", "method": "POST", "url": "/v1/chat/completions",
                       "body": body})


def run(scratch, template):
    source, out = os.path.join(scratch, "in.jsonl"), os.path.join(scratch, "out.jsonl")
    text = templates[template]
    with open(source, "w") as f:
        f.writelines(request(way, name, k) + "\n" for way in (one, named, free)
                     for name in (schemas if text and way != free else SHORT) for k in range(answers))
    extra = ["--chat-template", text] if text else []
    subprocess.run([program, "batch", "-i", source, "-o", out, "-q", "-j", "16", "--restart", *extra], check=True,
                   timeout=LIMIT_S)
    for line in open(out):
        reply = json.loads(line)
        yield *reply["custom_id"].split(), reply["response"]["status_code"], reply["response"]["body"]


tap = Tap()


def check(way, name, k, status, body):
    """What is wrong with an answer, and its calls."""
    if status != 200:
        return [json.dumps(body)], []
    choice = body["choices"][0]
    message = choice["message"]
    calls = [c["function"] for c in message.get("tool_calls", [])]
    used, limit = body["usage"]["completion_tokens"], LIMITS[int(k) % len(LIMITS)]
    reason = "tool_calls" if calls else "stop" if used < limit else "length"
    wrong = [] if choice["finish_reason"] == reason else [f"ends with {choice['finish_reason']}, not {reason}"]
    if used > limit:
        wrong.append(f"{used} tokens")
    if bool(message["content"]) != (way == "free") or bool(calls) == (way == "free"):
        wrong.append(f"not what was asked for: {json.dumps(message)[:200]}")
    if way != "one" and len(calls) > 1:
        wrong.append(f"{len(calls)} calls")
    wrong += [f"calls {c['name']}" for c in calls if c["name"] != name]
    return wrong + list(faults(schemas[name], [c["arguments"] for c in calls])), calls


with tempfile.TemporaryDirectory() as scratch:
    for template in templates:
        wrong, n, n_calls = {way: [] for way in WAYS}, dict.fromkeys(WAYS, 0), dict.fromkeys(WAYS, 0)
        for way, name, k, status, body in run(scratch, template):
            bad, calls = check(way, name, k, status, body)
            wrong[way] += [f"{name} {k}: {line}" for line in bad]
            n_calls[way] += len(calls)
            n[way] += 1
        for way, lines in wrong.items():
            tap.point(f"{template}, {way}: {n_calls[way]} calls in {n[way]} answers "
                      f"{'validate' if jsonschema else 'parse'}", not lines, "\n".join(lines[:5]))
if not jsonschema:
    tap.skip("validation", Missing("no python3-jsonschema: the arguments were only parsed"))
sys.exit(tap.end())
