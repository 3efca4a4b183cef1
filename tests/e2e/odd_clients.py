#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests as programs send them that were written for other servers: Claude Code, Codex, Continue, Cline, aider, Open WebUI,
LangChain. Their bodies hold more than the interface asks for, and sometimes less; none of it may be in the way.

usage: odd_clients.py BITNET MODEL [--only TEXT]      output is TAP; MODEL: with a context of a few thousand tokens
"""
import argparse
import json
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import Server
from tap import Tap

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
# shows what a template is given
SEEN = ("{# <tool_call> #}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% for c in m.tool_calls or [] %} {{ c.function.name }}={{ c.function.arguments.path }}"
        "{% endfor %}\n{% endfor %}{% if tools %}{{ tools | length }} tools, the first: {{ tools[0].function.name }}{% endif %}")
HELLO = [{"role": "user", "content": "Hello"}]
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
EDIT = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": False, "required": ["path", "edits"],
        "properties": {"path": {"type": "string", "description": "The file"}, "replace_all": {"type": "boolean", "default": False},
                       "limit": {"type": "integer", "exclusiveMinimum": 0}, "mode": {"type": "string", "enum": ["a", "b"]},
                       "edits": {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": False, "properties": {
                           "old": {"type": "string"}, "new": {"type": "string"}}, "required": ["old", "new"]}}}}

SHORT = {"type": "object", "properties": {"path": {"type": "string", "maxLength": 8}}, "required": ["path"]}


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def fine(reply, warned=()):
    """200, and only these members were passed over."""
    equal(reply.status, 200, reply.body[:400])
    said = reply.headers.get("Warnings", "")
    names = {n for n in said.removeprefix("ignored, as nothing here knows them: ").split(", ") if n}
    equal(names, set(warned), "members that were passed over")
    return reply


def refused(reply, *words):
    equal(reply.status, 400, reply.body[:300])
    missing = [w for w in words if w not in reply.body.decode()]
    assert not missing, f"{reply.body!r} lacks {missing}"


def functions(n):
    return [{"type": "function", "function": {"name": f"tool_{i}", "description": "It does things.", "parameters": SHORT}} for i in range(n)]


def claude_code(s):
    tools = [{"name": f"Tool{i}", "description": "It does things. " * 4, "input_schema": EDIT} for i in range(6)]
    tools[-1].update(CACHED)
    said = [{"type": "text", "text": "You are a coding agent.", **CACHED}, {"type": "text", "text": "Be short.", **CACHED}]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 24, "system": said, "tools": tools, "metadata": {"user_id": "user_1_session_2"},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"},
                                                      {"type": "text", "text": "hi", **CACHED}]}],
            "thinking": {"type": "enabled", "budget_tokens": 1024}}
    beta = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14"}
    fine(s.post(MESSAGES + "?beta=true", {"model": "claude-3-5-haiku", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}, beta))
    count = fine(s.post(MESSAGES + "/count_tokens", {k: body[k] for k in ("model", "system", "tools", "messages", "thinking")}, beta)).json()
    equal(list(count), ["input_tokens"], "what the count says")
    events = fine(s.post(MESSAGES, {**body, "stream": True}, beta)).body.decode().split("\n\n")
    kinds = [json.loads(e.split("data: ", 1)[1])["type"] for e in events if "data: " in e]
    equal((kinds[0], kinds[-1]), ("message_start", "message_stop"), "events")
    talk = [*body["messages"],
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "redacted_thinking", "data": "x"},
                                              {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "toolu_1", "name": "Tool0",
                                                                                    "input": {"path": "a", "edits": []}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False, **CACHED,
                                          "content": [{"type": "text", "text": "done"}]}, {"type": "text", "text": "go on"}]}]
    fine(s.post(MESSAGES, {**body, "messages": talk, "thinking": {"type": "adaptive"}}, beta))
    call = fine(s.post(MESSAGES, {**body, "max_tokens": 300, "tool_choice": {"type": "tool", "name": "Tool3"}}, beta)).json()["content"][-1]
    equal((call["type"], call["name"], sorted(call["input"])[0]), ("tool_use", "Tool3", "edits"), "a call")
    foreign = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}, {"type": "custom", **tools[0]}]
    fine(s.post(MESSAGES, {**body, "tools": foreign}), ["tools.web_search_20250305"])
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    refused(s.post(MESSAGES, {**body, "messages": [{"role": "user", "content": [picture]}]}), "image input is not supported", "text only")


def codex(s):
    shell = {"type": "function", "name": "shell", "description": "d", "strict": False,
             "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"]}}
    body = {"model": "gpt-5-codex", "instructions": "Be short.", "tools": [shell], "tool_choice": "auto", "parallel_tool_calls": False,
            "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k", "max_output_tokens": 8, "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
                {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{\"command\": []}", "id": "fc_1", "status": "completed"},
                {"type": "function_call_output", "call_id": "c1", "output": "ok"}]}
    fine(s.post(RESPONSES, body))
    last = fine(s.post(RESPONSES, {**body, "stream": True})).events()[-1]
    assert last["type"] in ("response.completed", "response.incomplete"), last["type"]
    own = [{"type": "web_search"}, {"type": "local_shell"}, {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}]
    fine(s.post(RESPONSES, {**body, "tools": [*own, shell]}), ["tools.web_search", "tools.local_shell", "tools.custom"])
    fine(s.post(RESPONSES, {**body, "tools": own}), ["tools.web_search", "tools.local_shell", "tools.custom"])


def editors(s):
    """Continue, Cline, Roo, aider."""
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "<task>hi</task>"},
                                                                               {"type": "text", "text": "<environment_details>"}]}]
    ask = {"model": "AUTODETECT", "messages": prompt, "max_tokens": 8, "stream": True}
    fine(s.post(CHAT, {**ask, "stop": ["<|im_end|>"], "prediction": {"type": "content", "content": "x"}, "tools": functions(1)}))
    usage = [e["usage"] for e in fine(s.post(CHAT, {**ask, "temperature": 0, "stream_options": {"include_usage": True}})).events() if e.get("usage")]
    assert usage and usage[-1]["completion_tokens"] > 0, usage
    fine(s.post(CHAT, {**ask, "reasoning_effort": "medium", "tools": functions(12), "tool_choice": "auto"}))
    fine(s.post(CHAT, {**ask, "extra_headers": {}, "num_retries": 0, "drop_params": True}), ["extra_headers", "num_retries", "drop_params"])
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}
    refused(s.post(CHAT, {**ask, "messages": [{"role": "user", "content": [picture]}]}), "image input is not supported", "text only")
    sound = {"type": "input_audio", "input_audio": {"data": "aa", "format": "wav"}}
    refused(s.post(CHAT, {**ask, "messages": [{"role": "user", "content": [sound]}]}), "sound input is not supported", "text only")
    refused(s.post(TEXT, {"prompt": "def f(", "suffix": ")", "max_tokens": 8}), "does not support insert")


def histories(s):
    """What frameworks make of earlier answers: without content, with calls whose arguments are JSON, or missing."""
    def seen(*messages, **more):
        return fine(s.post("/apply-template", {"messages": [*HELLO, *messages], **more})).json()["prompt"]

    call = lambda **f: {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "tool_0", **f}}]}
    result = {"role": "tool", "tool_call_id": "1", "name": "tool_0", "content": "ok"}
    as_text = seen(call(arguments='{"path": "a"}'), result, tools=functions(1))
    assert "tool_0=a" in as_text and "1 tools, the first: tool_0" in as_text, as_text
    equal(seen(call(arguments={"path": "a"}), result, tools=functions(1)), as_text, "arguments as JSON")
    none = seen(call(arguments="{}"), result)
    for without in (call(), call(arguments=None)):
        equal(seen(without, result), none, "a call without arguments")
    empty = seen({"role": "assistant", "content": ""}, HELLO[0])
    for nothing in ({"content": None}, {}, {"content": []}):
        equal(seen({"role": "assistant", **nothing}, HELLO[0]), empty, f"an answer with {nothing}")
    assert "[assistant] no" in seen({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, HELLO[0])
    for bad in ({"role": "user"}, {"role": "user", "content": None}, call(arguments=3), {"role": "tool", "tool_call_id": "1", "content": {"a": 1}}):
        equal(s.post("/apply-template", {"messages": [*HELLO, bad]}).status, 400, f"{bad}")


def numbers_and_words(s):
    ask = {"model": "m", "messages": HELLO}
    four = fine(s.post(CHAT, {**ask, "max_tokens": 4, "seed": 1})).json()
    equal(fine(s.post(CHAT, {**ask, "max_tokens": 4.0, "seed": 1})).json()["choices"], four["choices"], "4.0 tokens")
    refused(s.post(CHAT, {**ask, "max_tokens": 4.5}), "max_tokens")
    greedy = fine(s.post(CHAT, {**ask, "max_tokens": 8, "temperature": 0})).json()["choices"]
    equal(fine(s.post(CHAT, {**ask, "max_tokens": 8, "top_p": 0, "temperature": 1})).json()["choices"], greedy, "top_p 0")
    nulls = dict.fromkeys(("tools", "tool_choice", "functions", "response_format", "stop", "logprobs", "n", "seed", "user", "temperature"))
    fine(s.post(CHAT, {**ask, **nulls, "max_tokens": 4}))
    for choice, calls in (({"type": "required"}, True), ({"type": "none"}, False), ({"type": "auto"}, None)):
        got = fine(s.post(CHAT, {**ask, "tools": functions(1), "tool_choice": choice, "max_tokens": 60})).json()["choices"][0]["message"]
        assert calls is None or bool(got.get("tool_calls")) == calls, (choice, got)
    empty = [{"type": "function", "function": {"name": n, "parameters": p}} for n, p in (("f", {"type": "object", "properties": {}}), ("g", None), ("h", {}))]
    fine(s.post(CHAT, {**ask, "tools": empty, "max_tokens": 4}))


def open_webui(s):
    name = s.get("/api/tags").json()["models"][0]["name"]
    options = {"temperature": 0.5, "num_ctx": 2048, "num_predict": 8, "num_keep": 24, "stop": None, "seed": None, "num_gpu": 1, "num_thread": 2,
               "use_mmap": True, "repeat_last_n": 64}
    fine(s.post("/api/chat", {"model": name + ":latest", "messages": [{**HELLO[0], "images": None}], "options": options, "stream": False,
                              "keep_alive": "5m", "format": ""}))
    for load in ({}, {"prompt": ""}, {"keep_alive": 0}):
        equal(fine(s.post("/api/generate", {"model": name, "stream": False, **load})).json()["done"], True, f"{load}")
    said = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "tool_0", "arguments": {"path": "x"}}}]}
    fine(s.post("/api/chat", {"model": name, "stream": False, "options": {"num_predict": 8}, "tools": functions(1), "messages": [
        *HELLO, said, {"role": "tool", "content": "42", "tool_name": "tool_0"}]}))
    refused(s.post("/api/chat", {"model": name, "messages": [{**HELLO[0], "images": ["aGk="]}], "stream": False}), "text only")
    whole = fine(s.post("/api/embed", {"model": name, "input": "a"})).json()["embeddings"][0]
    short = fine(s.post("/api/embed", {"model": name, "input": ["a", "b"], "dimensions": 16})).json()["embeddings"][0]
    length = sum(x * x for x in whole[:16]) ** 0.5
    assert len(short) == 16 and all(abs(a - b / length) < 1e-6 for a, b in zip(short, whole)), short
    refused(s.post("/api/embed", {"model": name, "input": "a", "dimensions": len(whole) + 1}), "dimensions")


def strict(program, model):
    with Server(program, model, "--no-warm-up", "--strict") as s:
        refused(s.post(CHAT, {"messages": HELLO, "tools": [{"type": "web_search"}], "max_tokens": 2}), "tool 0 is of type 'web_search'", "cannot run")
        refused(s.post(RESPONSES, {"input": "a", "tools": [{"type": "mcp", "server_label": "x"}], "max_output_tokens": 2}), "'mcp'")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("--only", default="")
    o = p.parse_args()
    cases = [c for c in (claude_code, codex, editors, numbers_and_words, open_webui) if o.only in c.__name__]
    tap = Tap()
    with Server(o.program, o.model, "--no-warm-up", "--ctx-size", 4096, "--max-num-seqs", 2, "--alias", "m") as s:
        for case in cases:
            tap.case(case.__name__, case, s)
    with Server(o.program, o.model, "--no-warm-up", "--chat-template", SEEN) as s:
        tap.case("histories", histories, s)
    tap.case("strict", strict, o.program, o.model)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
