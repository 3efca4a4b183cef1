#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bitnet serve from outside: every endpoint, errors, keys, browsers, a full queue, clients that go, shutting down.

usage: server.py BITNET [--only TEXT]      output is TAP
"""
import argparse
import base64
import concurrent.futures
import gzip
import json
import math
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import Reply, Server, until
from tap import Tap

STORY = "Once upon a time there was a"
SECRET = "xylophone-zebra-quartz"  # in prompts; must not be in the log
CHAT = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 12, "seed": 7}
TEXT = {"prompt": STORY, "max_tokens": 12, "seed": 7}
LONG = {"prompt": STORY, "max_tokens": 400, "ignore_eos": True, "temperature": 1}


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def shaped(reply, status, code=None, words=""):
    """An error as OpenAI words it."""
    equal(reply.status, status, f"status of {reply.body[:200]!r}")
    equal(reply.headers["Content-Type"], "application/json", "type")
    error = reply.json()["error"]
    lengths = {"n_ctx", "n_prompt_tokens"} if code == "context_length_exceeded" else set()
    equal(sorted(error.keys() - lengths), ["code", "message", "param", "type"], "members of the error")
    assert error["message"] and words in error["message"], error
    if code:
        equal(error["code"], code, "code")
    assert reply.headers["X-Request-Id"], "no request id"
    return error


def text_of(reply):
    return [c["text"] for c in reply.json()["choices"]]


def joined(reply):
    """Texts of the choices of a streamed chat or completion."""
    texts = {}
    for e in reply.events():
        for c in e["choices"]:
            piece = c["text"] if "text" in c else c["delta"].get("content") or ""
            texts[c["index"]] = texts.get(c["index"], "") + piece
    return [texts[i] for i in sorted(texts)]


# ---------------------------------------------------------------- one server for most of it

def endpoints(s, t):
    model = s.get("/v1/models").json()["data"][0]
    for member in ("n_params", "n_ctx_train", "n_vocab", "n_embd", "size"):
        assert model["meta"][member] > 0, member
    equal((model["object"], model["owned_by"]), ("model", "bitnet"), "model")
    equal(s.get("/v1/models/" + model["id"]).json()["id"], model["id"], "one model")
    equal(s.get("/models").json()["data"][0]["id"], model["id"], "without /v1")
    equal(s.get("/health").json(), {"status": "ok"}, "health")
    until("ready", lambda: s.get("/ready").status == 200)
    props = s.get("/props").json()
    for member in ("model", "engine", "default_generation_settings", "version", "build", "config"):
        assert member in props, member
    assert "bitnet_build_info" in s.get("/metrics").body.decode()
    assert s.get("/metrics.json").json()
    ids = s.post("/tokenize", {"content": STORY}).json()["tokens"]
    equal(s.post("/detokenize", {"tokens": ids}).json()["content"], STORY, "there and back")
    pieces = s.post("/tokenize", {"text": "caf\u00e9 \U0001f600", "with_pieces": True}).json()["tokens"]
    raw = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    equal(raw.decode(), "caf\u00e9 \U0001f600", "pieces")
    assert STORY in s.post("/apply-template", {"messages": CHAT["messages"]}).json()["prompt"]
    chat = s.post("/v1/chat/completions", CHAT).json()
    equal(chat["object"], "chat.completion", "object")
    equal(chat["usage"]["completion_tokens"], 12, "tokens")
    equal(s.post("/v1/completions", TEXT).json()["object"], "text_completion", "object")
    equal(s.post("/v1/completions", {**TEXT, "prompt": ids}).status, 200, "token ids")
    equal(len(text_of(s.post("/v1/completions", {**TEXT, "prompt": [STORY, "The"], "n": 2}))), 4, "choices")
    response = s.post("/v1/responses", {"input": STORY, "max_output_tokens": 12}).json()
    equal(response["object"], "response", "object")
    head = s.ask("HEAD", "/health")
    equal((head.status, head.body), (200, b""), "HEAD")
    page = s.get("/")
    equal(page.status, 200, "page")
    equal(s.get("/", {"If-None-Match": page.headers["ETag"]}).status, 304, "page again")
    equal(s.get("/dashboard").status, 200, "dashboard")


def embeddings(s, t):
    texts = ["A cat sat on the mat", "A dog ran"]
    reply = s.post("/v1/embeddings", {"input": texts}).json()
    want = [json.loads(l)["embedding"] for l in t.run("embed", *texts, "--json").splitlines()]
    equal([d["embedding"] for d in reply["data"]], want, "as bitnet embed")
    coded = s.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"}).json()["data"]
    for d, w in zip(coded, want):
        raw = base64.b64decode(d["embedding"])
        equal(list(struct.unpack(f"<{len(raw) // 4}f", raw)), [struct.unpack("f", struct.pack("f", x))[0] for x in w],
              "base64")
    n = len(want[0])
    short = s.post("/v1/embeddings", {"input": texts[0], "dimensions": n // 2, "poling": "last"})
    equal(short.headers["Warnings"], "ignored, as nothing here knows them: poling", "a header about what is not known")
    part = math.sqrt(sum(x * x for x in want[0][:n // 2]))
    for got, whole in zip(short.json()["data"][0]["embedding"], want[0][:n // 2], strict=True):
        assert abs(got - whole / part) < 1e-6, "the first dimensions, as long as all"
    equal(s.post("/v1/embeddings", {"input": [1, 2, 3], "dimensions": n}).json()["usage"]["prompt_tokens"], 3, "ids")
    equal(len(s.post("/v1/embeddings", {"input": [[1, 2], [3]]}).json()["data"]), 2, "lists of ids")
    last = s.post("/v1/embeddings", {"input": texts[0], "pooling": "last"}).json()["data"][0]["embedding"]
    assert last != want[0], "pooling has no effect"
    for bad in ({}, {"input": []}, {"input": [[]]}, {"input": "a", "dimensions": n + 1}, {"input": "a", "dimensions": 0},
                {"input": [1, None]}, {"input": "a", "encoding_format": "hex"}, {"input": [10 ** 8]},
                {"input": 5}, {"input": ["a"] * 2049}):
        shaped(s.post("/v1/embeddings", bad), 400)


def native(s, t):
    """llama-server's completions, whole and streamed."""
    body = {"prompt": STORY, "n_predict": 12, "seed": 7}
    whole = s.post("/completion", {**body, "return_tokens": True, "n_probs": 2}).json()
    equal((whole["stop_type"], whole["tokens_predicted"], len(whole["tokens"])), ("limit", 12, 12), "end")
    equal(whole["content"], s.post("/detokenize", {"tokens": whole["tokens"]}).json()["content"], "tokens are those of the text")
    equal([p["id"] for p in whole["completion_probabilities"]], whole["tokens"], "probabilities are of the tokens")
    assert all(len(p["top_logprobs"]) == 2 and p["logprob"] <= 0 for p in whole["completion_probabilities"])
    drawn = s.post("/completion", {**body, "return_tokens": True, "n_probs": 20, "post_sampling_probs": True, "temperature": 0.7, "top_k": 4,
                                   "top_p": 1, "min_p": 0}).json()
    for p in drawn["completion_probabilities"]:
        chances = [x["prob"] for x in p["top_probs"]]
        equal((len(chances), sorted(chances, reverse=True)), (4, chances), "what top-k has left, likeliest first")
        assert abs(sum(chances) - 1) < 1e-6 and p["prob"] in chances, p
    plain = s.post("/completion", {**body, "prompt": STORY, "n_predict": 1, "n_probs": 4}).json()["completion_probabilities"][0]["top_logprobs"]
    mass = sum(math.exp(x["logprob"] / 0.7) for x in plain)
    for x, y in zip(plain, drawn["completion_probabilities"][0]["top_probs"], strict=True):
        assert x["id"] == y["id"] and abs(math.exp(x["logprob"] / 0.7) / mass - y["prob"]) < 1e-5, (x, y)
    only = s.post("/completion", {**body, "n_probs": 3, "post_sampling_probs": True, "temperature": 0}).json()["completion_probabilities"]
    equal({(len(p["top_probs"]), p["prob"]) for p in only}, {(1, 1)}, "the likeliest alone")
    cut_off = s.post("/completion", {**body, "prompt": STORY, "n_predict": 1000, "ignore_eos": True}).json()
    equal((cut_off["truncated"], cut_off["stop_type"], whole["truncated"]), (True, "limit", False), "ended by the context")
    settings = whole["generation_settings"]
    equal((settings["seed"], settings["n_predict"], settings["top_k"]), (7, 12, 40), "settings")
    events = s.post("/completion", {**body, "stream": True, "timings_per_token": True}).events()
    equal("".join(e["content"] for e in events), whole["content"], "a stream says the same")
    equal([e["tokens"] for e in events[:-1]], [[t] for t in whole["tokens"]], "an event for each token")
    equal([e["stop"] for e in events], [False] * 12 + [True], "stop")
    assert all(e["timings"]["prompt_n"] + e["timings"]["cache_n"] == whole["tokens_evaluated"] for e in events)
    ids = s.post("/tokenize", {"content": STORY, "add_special": True}).json()["tokens"]
    for prompt in (ids, {"prompt_string": STORY}, ids[:-1] + [" a"]):
        equal(s.post("/completion", {**body, "prompt": prompt}).json()["content"], whole["content"], f"prompt {prompt}")
    both = s.post("/completion", {**body, "prompt": [STORY, ids]}).json()
    equal([c["index"] for c in both], [0, 1], "a list of prompts")
    word = whole["content"].split()[2]
    cut = s.post("/completion", {**body, "stop": ["zzz", word]}).json()
    equal((cut["stop_type"], cut["stopping_word"]), ("word", word), "stop text")
    equal(cut["content"], whole["content"][:whole["content"].index(word)], "cut text")
    fields = s.post("/completion", {**body, "response_fields": ["content", "generation_settings/n_predict", "nothing"]}).json()
    equal(fields, {"content": whole["content"], "generation_settings/n_predict": 12}, "fields")
    first = whole["tokens"][0]
    for bias in ([[first, False]], {str(first): -100}, [[whole["completion_probabilities"][0]["token"], -100]]):
        assert s.post("/completion", {**body, "logit_bias": bias, "return_tokens": True}).json()["tokens"][0] != first, bias
    greedy = s.post("/completion", {**body, "temperature": 0}).json()["content"]
    equal(s.post("/completion", {**body, "top_k": 1, "seed": 9}).json()["content"], greedy, "top-k 1")
    assert s.post("/completion", {**body, "top_k": 1, "seed": 9, "samplers": ["temperature"]}).json()["content"] != greedy
    object_ = json.loads(s.post("/completion", {**body, "n_predict": 60, "json_schema": {"type": "object", "properties": {
        "a": {"enum": ["x", "y"]}}, "required": ["a"]}}).json()["content"])
    assert object_["a"] in ("x", "y")
    equal(s.post("/completion", {**body, "n_predict": 0}).json()["tokens_predicted"], 0, "nothing is generated")
    equal("index" in s.post("/completions", body).json(), True, "at /completions, too")
    equal("choices" in s.post("/completions", {**TEXT, "model": "any"}).json(), True, "where OpenAI's bodies come as well")
    for bad in ({}, {**body, "mirostat": 2}, {**body, "prompt": {"prompt_string": "a", "multimodal_data": ["aGk="]}},
                {**body, "samplers": "kp"}, {**body, "logit_bias": [[1]]}, {**body, "post_sampling_probs": 1, "n_probs": 1}):
        error = s.post("/completion", bad)
        equal((error.status, error.json()["error"]["code"]), (400, 400), f"{bad}")


def peers(s, t):
    """What llama-server and vLLM have beside completions."""
    slots = s.get("/slots").json()
    equal([x["id"] for x in slots], list(range(len(slots))), "slots")
    props = s.get("/props").json()
    equal(props["total_slots"], len(slots), "total_slots")
    equal(props["default_generation_settings"]["params"]["temperature"] > 0, True, "settings")
    equal(s.get("/version").json(), {"version": props["version"]}, "version")
    equal(s.get("/load").json(), {"server_load": 0}, "load")
    for method in ("GET", "POST"):
        equal(s.ask(method, "/ping").status, 200, "ping")
    equal(s.post("/infill", {"input_prefix": "a", "input_suffix": "b"}).status, 501, "no such tokens")
    plain = s.post("/v1/embeddings", {"input": ["A cat", "A dog ran"]}).json()["data"]
    theirs = s.post("/embedding", {"content": ["A cat", "A dog ran"]}).json()
    equal([x["embedding"] for x in theirs], [[x["embedding"]] for x in plain], "vectors")
    rows = s.post("/embeddings", {"content": "A dog ran", "pooling": "none"}).json()[0]["embedding"]
    last = s.post("/embedding", {"content": "A dog ran", "pooling": "last", "embd_normalize": -1}).json()[0]["embedding"][0]
    equal(rows[-1], last, "the last token's vector")
    shaped(s.post("/v1/embeddings", {"input": "a", "pooling": "none"}), 400)
    texts = ["A cat sat on the mat", "One two three", "The cat sat on a mat"]
    ranked = s.post("/v1/rerank", {"query": texts[0], "documents": texts, "top_n": 2, "return_documents": True}).json()["results"]
    equal([(r["index"], r["document"]["text"]) for r in ranked], [(0, texts[0]), (2, texts[2])], "ranking")
    tei = s.post("/rerank", {"query": texts[0], "texts": texts}).json()
    equal([r["index"] for r in tei], [0, 2, 1], "the same in other words")
    scores = s.post("/score", {"text_1": texts[0], "text_2": texts}).json()["data"]
    equal([scores[r["index"]]["score"] for r in tei], [r["score"] for r in tei], "scores")
    assert abs(scores[0]["score"] - 1) < 1e-6
    for path, bad in (("/rerank", {"query": "a", "documents": []}), ("/rerank", {"documents": ["a"]}), ("/rerank", {"query": "a", "texts": [1]}),
                      ("/score", {"text_1": ["a", "b"], "text_2": ["a"]}), ("/embedding", {"content": "a", "embd_normalize": 1})):
        equal(s.post(path, bad).status, 400, f"{path} {bad}")


def streams(s, t):
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
        for more in ({}, {"n": 3}, {"stop": ["a"]}, {"logprobs": True if "chat" in path else 2}):
            whole, stream = s.post(path, {**body, **more}), s.post(path, {**body, **more, "stream": True})
            texts = [c["text"] if "text" in c else c["message"]["content"] for c in whole.json()["choices"]]
            equal(joined(stream), texts, f"{path} {more}")
            assert stream.body.endswith(b"data: [DONE]\n\n"), "no end mark"
            equal(stream.headers["Content-Type"].split(";")[0], "text/event-stream", "type")
            equal(stream.headers["Cache-Control"], "no-cache", "cache")
    last = s.post("/v1/completions", {**TEXT, "stream": True, "stream_options": {"include_usage": True}}).events()[-1]
    equal(last["usage"]["completion_tokens"], 12, "usage")
    body = {"input": STORY, "max_output_tokens": 12, "temperature": 0}
    whole = s.post("/v1/responses", body).json()["output"][0]["content"][0]["text"]
    events = s.post("/v1/responses", {**body, "stream": True}).events()
    equal("".join(e["delta"] for e in events if e["type"] == "response.output_text.delta"), whole, "response")
    equal(events[-1]["type"] in ("response.completed", "response.incomplete"), True, "last event")


def seeds(s, t):
    free = {"prompt": STORY, "max_tokens": 20}
    first = s.post("/v1/completions", free)
    seed = int(first.headers["X-Bitnet-Seed"])
    again = s.post("/v1/completions", {**free, "seed": seed})
    equal(text_of(again), text_of(first), "with the seed of the header")
    equal(again.headers["X-Bitnet-Seed"], None, "a seed that the client knows")
    assert len({s.post("/v1/completions", free).headers["X-Bitnet-Seed"] for _ in range(8)}) == 8, "seeds repeat"


def same_as_run(s, t):
    """In a crowd of 32 others."""
    want = {seed: json.loads(t.run("run", STORY, "-n", "40", "--seed", str(seed), "--json"))["text"]
            for seed in range(1, 9)}  # the same sampling where nothing is said
    stop = threading.Event()

    def crowd(i):
        n = 0
        while not stop.is_set():
            body = {"prompt": STORY + " " + str(i + n), "max_tokens": 30, "temperature": 1}
            equal(s.post("/v1/completions", body).status, 200, "one of the crowd")
            n += 1
        return n

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        others = [pool.submit(crowd, i) for i in range(32)]
        try:
            body = {"prompt": STORY, "max_tokens": 40}
            replies = {seed: pool.submit(s.post, "/v1/completions", {**body, "seed": seed}) for seed in want}
            for seed, r in replies.items():
                equal(text_of(r.result())[0], want[seed], f"seed {seed}")
        finally:
            stop.set()
        return f"{sum(o.result() for o in others)} others"


def extensions(s, t):
    """What other servers have beside OpenAI's options, against answers without it."""
    chat, text = "/v1/chat/completions", "/v1/completions"
    whole = s.post(text, {**TEXT, "n": 4, "logprobs": 0, "temperature": 1}).json()["choices"]
    means = [sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"]) for c in whole]
    ranks = sorted(range(4), key=lambda i: -means[i])
    best = s.post(text, {**TEXT, "n": 2, "best_of": 4, "temperature": 1}).json()
    equal([c["text"] for c in best["choices"]], [whole[i]["text"] for i in ranks[:2]], "the two likeliest of four")
    equal([c["index"] for c in best["choices"]], [0, 1], "indexes")
    equal(best["choices"][0]["logprobs"], None, "log-probabilities that nobody asked for")
    echo = s.post(text, {"prompt": STORY, "echo": True, "logprobs": 2, "max_tokens": 0}).json()["choices"][0]["logprobs"]
    scores = s.post(text, {**TEXT, "prompt_logprobs": 2}).json()["choices"][0]["prompt_logprobs"]
    equal(len(scores), len(echo["tokens"]), "scores")
    equal(scores[0], None, "nothing stands before the first")
    for one, token, logprob in list(zip(scores, echo["tokens"], echo["token_logprobs"], strict=True))[1:]:
        assert any(v["decoded_token"] == token and v["logprob"] == logprob for v in one.values()), (one, token, logprob)
        assert {1, 2} <= {v["rank"] for v in one.values()}, one
    timed = s.post(chat, {**CHAT, "timings_per_token": True}).json()
    equal(timed["timings"]["predicted_n"], 12, "tokens")
    equal(timed["timings"]["prompt_n"] + timed["timings"]["cache_n"], timed["usage"]["prompt_tokens"], "tokens of the prompt")
    seen = s.post(chat, {**CHAT, "verbose": True}).json()
    prompt = s.post("/apply-template", {"messages": CHAT["messages"]}).json()["prompt"]
    equal(seen["__verbose"]["prompt"], "<|begin_of_text|>" + prompt, "what the model saw")
    equal((seen["__verbose"]["content"], seen["__verbose"]["generation_settings"]["seed"]),
          (seen["choices"][0]["message"]["content"], CHAT["seed"]), "and said, by which settings")
    equal("__verbose" in timed, False, "unasked it is not told")
    equal("__verbose" in s.post(text, {**TEXT, "verbose": True}).json(), True, "of a text, too")
    told = [e["prompt_progress"] for e in s.post(chat, {**CHAT, "stream": True, "return_progress": True}).events()
            if "prompt_progress" in e]
    equal(told[0]["processed"], told[0]["cache"], "what was there before")
    equal(told[-1]["processed"], timed["usage"]["prompt_tokens"], "all of it")
    shaped(s.post(text, {**TEXT, "suffix": "The end"}), 400)
    talk = [{"role": r, "content": STORY * 8} for r in ("user", "assistant") * 20] + [{"role": "user", "content": "Hello"}]
    shaped(s.post(chat, {**CHAT, "messages": talk}), 400, "context_length_exceeded")
    long = s.post(chat, {**CHAT, "messages": [{"role": "user", "content": STORY * 200}]}).json()["error"]
    equal((long["n_ctx"], long["n_prompt_tokens"] > 512), (512, True), "how long it is")
    cut = s.post(chat, {**CHAT, "messages": talk, "truncation": "auto"})
    equal(cut.status, 200, cut.body)
    n = cut.json()["dropped_messages"]
    assert n > 0 and n % 2 == 0, n
    equal(cut.headers["X-Bitnet-Dropped-Messages"], str(n), "header")
    same = s.post(chat, {**CHAT, "messages": talk[n:]}).json()
    equal(same["choices"], cut.json()["choices"], "as if they had not been there")
    assert "dropped_messages" not in same
    events = s.post("/v1/messages", {"max_tokens": 12, "seed": 7, "messages": talk, "truncation": "auto", "stream": True}).events()
    equal(events[0]["message"]["dropped_messages"], n, "in a stream")


def errors(s, t):
    chat, text = "/v1/chat/completions", "/v1/completions"
    post = s.post
    shaped(post(chat, b""), 400, words="no body")
    shaped(post(chat, b"{"), 400, words="JSON")
    shaped(post(chat, b"[]"), 400, words="object")
    shaped(post(chat, b'{"messages": "\xff"}'), 400, words="UTF-8")
    shaped(post(chat, b"[" * 100000), 400)
    shaped(post(chat, b'{"messages": [], "messages": []}'), 400, words="twice")
    shaped(post(text, {**TEXT, "temperature": 9}), 400, words="0 to 5")
    shaped(post(chat, {"messages": [{"role": "usr", "content": "a"}]}), 400, words="role 'usr'")
    zipped = s.ask("POST", text, gzip.compress(json.dumps(TEXT).encode()), {"Content-Encoding": "gzip"})
    shaped(zipped, 415, words="gzip")
    shaped(post(text, {**TEXT, "temperature": "hot"}), 400, words="temperature")
    shaped(post(text, {"max_tokens": 3}), 400, words="prompt")
    shaped(post(chat, {"messages": []}), 400)
    shaped(post(text, {**TEXT, "prompt": [1] * 100000}), 400, "context_length_exceeded")
    shaped(post(text, {**TEXT, "prompt": [1] * 100000, "stream": True}), 400, "context_length_exceeded")
    shaped(post(text, {**TEXT, "prompt": STORY * 100}), 400, "context_length_exceeded", "tokens")
    shaped(post(text, {**TEXT, "prompt": STORY * 100000}), 400, "context_length_exceeded", "bytes")
    shaped(post(chat, {"messages": [{"role": "user", "content": STORY * 10000}] * 10}), 400, "context_length_exceeded")
    shaped(post(text, {**TEXT, "prompt": [10 ** 7]}), 400)
    shaped(post(text, {**TEXT, "prompt": [10 ** 7], "stream": True}), 400)
    shaped(post(text, {**TEXT, "grammar": "root ::= ("}), 400)
    shaped(post(text, {**TEXT, "grammar": "root ::= (", "stream": True}), 400)
    form = {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}
    shaped(post(chat, {**CHAT, "response_format": form}), 400)
    shaped(post("/v1/responses", {"input": STORY, "previous_response_id": "resp_1"}), 400, words="previous_response_id")
    shaped(post("/tokenize", {"content": 5}), 400)
    shaped(post("/tokenize", {"content": "a", "addspecial": True}), 400, words="addspecial")
    shaped(post("/tokenize", {"content": "a" * (3 << 20)}), 400, words="bytes")
    shaped(post("/detokenize", {"tokens": [-1]}), 400)
    shaped(post("/detokenize", {"tokens": [10 ** 7]}), 400)
    shaped(post("/apply-template", {}), 400)
    shaped(post("/v1/chat/completion", CHAT), 404, words="/v1/chat/completions")
    shaped(s.get("/no/such/thing/at/all"), 404)
    shaped(s.get("/v1/models/gpt-4"), 404, "model_not_found")
    wrong = s.get(chat)
    shaped(wrong, 405)
    assert "POST" in wrong.headers["Allow"], "Allow"
    shaped(post("/health", {}), 405)
    shaped(s.ask("DELETE", text), 405)
    equal(s.get("/health", {"X-Request-Id": "mine-1.2_3"}).headers["X-Request-Id"], "mine-1.2_3", "id taken over")
    for bad in ("a b", "x" * 65, "<b>"):
        assert s.get("/health", {"X-Request-Id": bad}).headers["X-Request-Id"] != bad, "id taken over"
    equal(s.post(text, {**TEXT}).status, 200, "it goes on")


def browsers(s, t):
    origin = {"Origin": "http://page.example"}
    allowed = s.get("/v1/models", origin)
    equal(allowed.headers["Access-Control-Allow-Origin"], "http://page.example", "allowed")
    assert "X-Bitnet-Seed" in allowed.headers["Access-Control-Expose-Headers"]
    equal(s.get("/v1/models", {"Origin": "http://localhost:3000"}).headers["Access-Control-Allow-Origin"], None,
          "not asked to allow this machine's pages")
    equal(s.get("/v1/models", {"Origin": "http://other.example"}).headers["Access-Control-Allow-Origin"], None, "other")
    asked = s.ask("OPTIONS", "/v1/chat/completions", None,
                  {**origin, "Access-Control-Request-Method": "POST",
                   "Access-Control-Request-Headers": "authorization,x-stainless-os"})
    equal((asked.status, asked.body), (200, b""), "preflight")
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]
    equal(asked.headers["Access-Control-Allow-Headers"], "authorization,x-stainless-os", "headers")
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8080", "a.localhost"):
        equal(s.get("/health", {"Host": host}).status, 200, host)
    for host in ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "",
                 "localhostx"):
        shaped(s.get("/v1/models", {"Host": host}), 403, "host_not_allowed", "--allowed-host")
    wrong = s.post("/v1/completions", {}, origin)
    shaped(wrong, 400)
    equal(wrong.headers["Access-Control-Allow-Origin"], "http://page.example", "errors")


def vanishing(s, t):
    """A client that goes is not computed for."""
    before = s.metric("bitnet_request_success_total", finished_reason="abort")
    for stream in (True, False):
        c = s.connect()
        c.request("POST", "/v1/completions", json.dumps({**LONG, "n": 8, "stream": stream}), s.headers())
        if stream:
            assert c.getresponse().read(100), "no beginning"
        else:
            until("it runs", lambda: s.metric("bitnet_num_requests_running") > 0)
        c.sock.shutdown(socket.SHUT_RDWR)
        c.close()
        until("nothing runs", lambda: s.metric("bitnet_num_requests_running") == 0)
    after = s.metric("bitnet_request_success_total", finished_reason="abort")
    equal(after - before, 16, "cancelled answers")


def slow_reader(s, t):
    """What a client does not read waits as text; it gets all of it in the end."""
    body = {**LONG, "n": 16, "logprobs": 20, "seed": 5, "max_tokens": 80}
    want = text_of(s.post("/v1/completions", body))
    c = s.connect()
    c.sock = socket.socket()
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.sock.connect((c.host, c.port))
    done = s.metric("bitnet_request_success_total")
    c.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), s.headers())
    until("it is computed", lambda: s.metric("bitnet_num_requests_running") == 0 and
          s.metric("bitnet_generation_tokens_total") >= 2 * 16 * 80, 60)
    r = c.getresponse()
    reply = Reply(r.status, r.headers, r.read())
    equal(joined(reply), want, "texts")
    until("it is counted", lambda: s.metric("bitnet_request_success_total") == done + 16)
    return f"{len(reply.body)} bytes"


def steady(x):
    """Without what differs from call to call."""
    if isinstance(x, list):
        return [steady(v) for v in x]
    if not isinstance(x, dict):
        return x
    varying = ("created", "created_at", "cached_tokens", "input_tokens", "cache_read_input_tokens")
    return {k: steady(v) for k, v in x.items() if k not in varying and not k.endswith("_duration")
            and not (k == "id" and re.search("[-_][0-9a-f]{16}", str(v)))}


def documented(s, t):
    """The transcripts of docs/serve/api.md."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "serve" / "api.md").read_text()
    blocks = re.findall(r"```console\n\$ curl -s localhost:8080(\S+)(?: -d '(.*?)')?\n(.*?)\n```", text, re.S)
    for path, body, want in blocks:
        got = s.post(path, body.encode()) if body else s.get(path)
        equal(steady(got.json()), steady(json.loads(want)), f"docs/serve/api.md, {path}")
    equal(len(blocks), text.count("```console"), "transcripts understood")
    return f"{len(blocks)} transcripts"


def log_lines(s, t):
    s.post("/v1/completions", {"prompt": SECRET, "max_tokens": 5}, {"X-Request-Id": "for-the-log"})
    until("the line is there", lambda: "for-the-log" in t.log.read_text())
    lines = [json.loads(l) for l in t.log.read_text().splitlines()]
    assert SECRET not in t.log.read_text() and STORY not in t.log.read_text(), "prompts are in the log"
    line = next(l for l in lines if l["request_id"] == "for-the-log")
    equal((line["status"], line["method"], line["path"]), (200, "POST", "/v1/completions"), "line")
    moved = t.log.with_suffix(".1")
    t.log.rename(moved)
    s.process.send_signal(signal.SIGHUP)
    until("a new log", t.log.exists)
    s.get("/health", {"X-Request-Id": "in-the-new-one"})
    until("the line is there", lambda: "in-the-new-one" in t.log.read_text())
    return f"{len(lines)} lines"


SHARED = [endpoints, embeddings, native, peers, streams, seeds, same_as_run, extensions, errors, browsers, vanishing, slow_reader, documented,
          log_lines]


# ---------------------------------------------------------------- servers of their own

def keys(t):
    file = t.folder / "keys"
    file.write_text("# keys\nfirst-key\n")
    file.chmod(0o600)
    with Server(t.program, "--no-warm-up", "--api-key-file", file, "--alias", "tiny") as s:
        missing = s.post("/v1/completions", TEXT)
        shaped(missing, 401, "invalid_api_key", "needed")
        assert missing.headers["WWW-Authenticate"].startswith("Bearer")

        def code(key, path="/v1/models"):
            return s.get(path, {"Authorization": "Bearer " + key}).status

        shaped(s.get("/v1/models", {"Authorization": "Bearer wrong"}), 401, "invalid_api_key")
        for wrong in ("", "first-ke", "first-keyy", "x" * 5000, "# keys"):
            equal(code(wrong), 401, f"key {wrong[:20]!r}")
        equal(s.get("/v1/models", {"Authorization": "Basic first-key"}).status, 401, "another scheme")
        equal(code("first-key"), 200, "the right key")
        named = s.post("/v1/completions", TEXT, {"Authorization": "bearer first-key"}).json()
        equal(named["model"], "tiny", "the model's name")
        equal(code("first-key", "/v1/models/tiny"), 200, "the model by its name")
        for path in ("/health", "/ready", "/", "/dashboard"):
            assert s.get(path).status in (200, 503), path
        for path in ("/props", "/metrics", "/metrics.json", "/v1/models/x"):
            equal(s.get(path).status, 401, path)
        equal(s.get("/nothing").status, 404, "no such path")
        file.write_text("second-key\n")
        s.process.send_signal(signal.SIGHUP)
        until("the second key is known", lambda: code("second-key") == 200)
        equal(code("first-key"), 401, "the old key")
        for n, bad in enumerate(("", "x" * 10000), 1):
            file.write_text(bad)
            s.process.send_signal(signal.SIGHUP)
            until("it says that the file is bad", lambda: sum("keys stay" in line for line in s.errors) == n)
            equal((code("second-key"), code("")), (200, 401), "after a bad file")
        equal(s.stop(), 0, "exit status")
        assert "second-key" not in "".join(s.errors), "a key was printed"


def full_queue(t):
    with Server(t.program, "--no-warm-up", "--max-num-seqs", 1, "--max-queue", 2) as s:
        shaped(s.post("/v1/completions", {**TEXT, "n": 4}), 400, words="3")
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(s.post, "/v1/completions", LONG) for _ in range(16)]
            until("answers wait", lambda: s.metric("bitnet_num_requests_waiting") > 0)
            equal(s.get("/health").status, 200, "health")
            replies = [f.result() for f in asked]
        full = [r for r in replies if r.status != 200]
        assert 1 <= len(full) <= 13, f"{len(full)} of 16 were refused"
        for r in full:
            shaped(r, 429, "queue_full")
            assert 1 <= int(r.headers["Retry-After"]) <= 60, "Retry-After"
        equal(s.post("/v1/completions", TEXT).status, 200, "there is room again")
        equal(s.metric("bitnet_rejected_total", reason="queue_full"), len(full), "refused ones counted")


def as_llamacpp(t):
    """llama-server's replies at OpenAI's paths, where the two contradict each other."""
    with Server(t.program, "--no-warm-up", "--compat", "llamacpp", "--max-num-batched-tokens", 64) as s:
        chat = "/v1/chat/completions"
        events = s.post(chat, {**CHAT, "stream": True, "timings_per_token": True}).events()
        equal(events[0]["choices"][0]["delta"], {"role": "assistant", "content": None}, "the first delta")
        equal(["timings" in e for e in events[:2]], [False, True], "times come with a token")
        error = s.post(chat, {**CHAT, "messages": [{"role": "user", "content": STORY * 200}]}).json()["error"]
        equal((error["code"], error["type"], error["n_ctx"]), (400, "exceed_context_size_error", 512), "an error")
        assert "exceeds the available context size" in error["message"] and error["n_prompt_tokens"] > 512, error
        equal(s.post(chat, {**CHAT, "model": 5}).json()["error"]["code"], 400, "errors are numbers")
        told = [e["prompt_progress"] for e in s.post("/v1/completions", {**TEXT, "prompt": STORY * 40, "stream": True,
                                                                        "return_progress": True}).events() if "prompt_progress" in e]
        steps = [*range(told[0]["cache"], told[0]["total"], 64), told[0]["total"]]
        equal([p["processed"] for p in told], steps, "an event for each step of 64 tokens")


def told_otherwise(t):
    """Options that change what requests mean."""
    template = ("{{ strftime_now('%d %b %Y') }} {{ enable_thinking }}:{% for m in messages %} {{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %} >{% endif %}")
    options = ["--strict", "--allowed-host", "my.name", "--cors", "localhost", "--date", "2026-03-09", "--reasoning", "off",
               "--context-shift", "--chat-template", template, "--temp", 0.5, "--top-k", 7, "--top-p", 0.8, "--min-p", 0.1, "--seed", 9]
    talk = [{"role": "user", "content": "Hello"}]
    with Server(t.program, "--no-warm-up", *options) as s:
        seen = lambda **more: s.post("/apply-template", {"messages": talk, **more}).json()["prompt"]
        equal(seen(), "09 Mar 2026 False: Hello >", "a date, no thinking")
        equal(seen(enable_thinking=True), "09 Mar 2026 True: Hello >", "the request's own word")
        equal(seen(add_generation_prompt=False), "09 Mar 2026 False: Hello", "no beginning of a reply")
        shaped(s.post("/v1/completions", {**TEXT, "temprature": 1}), 400, words="temprature")
        shaped(s.post("/v1/chat/completions", {**CHAT, "messages": [{**talk[0], "mood": 1}]}), 400, words="mood")
        usual = s.get("/props").json()["default_generation_settings"]
        equal([round(usual[k], 3) for k in ("temperature", "top_k", "top_p", "min_p")], [0.5, 7, 0.8, 0.1], "sampling by options")
        drawn = [s.post("/v1/completions", {"prompt": STORY, "max_tokens": 20, **more}) for more in ({}, {}, {"seed": 9, "temperature": 0.5})]
        equal([text_of(r) for r in drawn], [text_of(drawn[0])] * 3, "one seed for all")
        equal(drawn[0].headers["X-Bitnet-Seed"], "9", "the seed")
        equal(s.get("/health", {"Host": "my.name:80"}).status, 200, "a name that is allowed")
        shaped(s.get("/health", {"Host": "other.name"}), 403, "host_not_allowed")
        for origin, want in (("http://localhost:3000", True), ("https://127.0.0.1", True), ("http://evil.example", False),
                             ("http://localhost.evil.example", False)):
            equal(s.get("/health", {"Origin": origin}).headers["Access-Control-Allow-Origin"], origin if want else None, origin)
        long = [{"role": "user", "content": STORY * 8}] * 40
        assert s.post("/v1/chat/completions", {**CHAT, "messages": long}).json()["dropped_messages"] > 0
        shaped(s.post("/v1/chat/completions", {**CHAT, "messages": long, "truncation": "disabled"}), 400, "context_length_exceeded")
    for option in ("--date", "--reasoning"):
        done = subprocess.run([t.program, "serve", "--no-warm-up", "--port", "0", option, "maybe"], capture_output=True, text=True)
        assert done.returncode != 0 and "maybe" in done.stderr, done


def slots(t):
    """A slot's text saved and restored, by a server of its own: nothing is read again, and answers are the same."""
    hybrid = pathlib.Path(__file__).resolve().parents[1] / "data/hybrid/hybrid-28m.gguf"
    ask = lambda s, slot, **more: s.post("/completion", {"prompt": STORY * 5, "n_predict": 40, "seed": 3, "temperature": 1,
                                                         "id_slot": slot, "ignore_eos": True, **more}).json()
    act = lambda s, slot, action, **body: s.post(f"/slots/{slot}?action={action}", body)
    with Server(t.program, "--no-warm-up") as s:
        equal(act(s, 0, "save", filename="a").status, 501, "not allowed")
    for model in ([], [hybrid]):
        options = [*model, "--no-warm-up", "--max-num-seqs", 2, "--slot-save-path", t.folder, "--ctx-size", 256]
        with Server(t.program, *options) as s:
            first, second = ask(s, 1), ask(s, 1, prompt=STORY * 5 + " cat", return_tokens=True)
            text = s.post("/tokenize", {"content": STORY * 5 + " cat", "add_special": True}).json()["tokens"] + second["tokens"]
            equal(act(s, 0, "save", filename="a").status, 400, "a slot without a text")
            saved = act(s, 1, "save", filename="text one.bin").json()
            assert saved.get("n_saved", 0) >= 64 and saved["n_written"] == (t.folder / "text one.bin").stat().st_size, saved
            for body, words in (({}, "filename"), ({"filename": "../a"}, "filename"), ({"filename": ".a"}, "filename"),
                                ({"filename": ""}, "filename"), ({"filename": "a\nb"}, "filename"), ({"filename": "a" * 201}, "filename")):
                error = act(s, 1, "save", **body)
                assert error.status == 400 and words in error.json()["error"]["message"], (body, error.body)
            for path in ("/slots/2?action=save", "/slots/-1?action=save", "/slots/x?action=save", "/slots/?action=save", "/slots/1",
                         "/slots/1?action=sav", "/slots/1?xaction=save", "/slots/1?action="):
                equal(s.post(path, {"filename": "a"}).status, 400, path)
            third = ask(s, 0, prompt=text)
            missing = act(s, 0, "restore", filename="missing").json()["error"]["message"]
            assert "missing" in missing and str(t.folder) not in missing, missing
            (t.folder / "not one.bin").write_bytes(b"BITNETKV" + bytes(500))
            equal(act(s, 0, "restore", filename="not one.bin").status, 400, "a made-up file")
            equal(act(s, 0, "restore", filename="text one.bin", lora=[{"id": 7}]).status, 400, "an adapter that is not there")
            equal(s.stop(), 0, "exit status")
        with Server(t.program, *options) as s:
            restored = act(s, 0, "restore", filename="text one.bin").json()
            equal((restored["n_restored"], restored["n_read"]), (saved["n_saved"], saved["n_written"]), "what came back")
            again = ask(s, 0, prompt=text)
            equal(again["content"], third["content"], "an answer behind the restored text")
            equal(again["timings"]["cache_n"], saved["n_saved"], "tokens that were not read again")
            for prompt, want in ((" cat", second), ("", first)):  # which leave it earlier; a hybrid knows its end only
                equal(ask(s, 0, prompt=STORY * 5 + prompt)["content"], want["content"], prompt)
            equal(act(s, 0, "save", filename="text one.bin").status, 200, "over a file that is there")
            for slot in (0, 1):
                act(s, slot, "erase")
            with concurrent.futures.ThreadPoolExecutor(6) as pool:  # beside answers that run
                busy = [pool.submit(ask, s, -1, n_predict=60) for _ in range(4)]
                for _ in range(6):
                    equal(act(s, 1, "restore", filename="text one.bin").status, 200, "restored while answers run")
                assert len({f.result()["content"][:20] for f in busy}) == 1
            equal(s.stop(), 0, "exit status")


def late_answers(t):
    with Server(t.program, "--no-warm-up", "--timeout", 1, "--max-num-seqs", 1) as s:
        many = {k: v for k, v in LONG.items() if k != "max_tokens"}
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            replies = [f.result() for f in [pool.submit(s.post, "/v1/completions", many) for _ in range(24)]]
        assert time.monotonic() - start < 10, "answers go on after the deadline"
        late = [r for r in replies if r.status == 504]
        assert late, "nothing was late"
        shaped(late[0], 504, "timeout")
        one = s.post("/v1/completions", {**many, "n": 24})
        equal(one.status, 200, "an answer that has begun")
        choices = one.json()["choices"]
        equal(choices[-1]["finish_reason"], "timeout", "the last of 24 choices")
        assert choices[0]["text"], "the first one's text is lost"
        shaped(s.post("/v1/embeddings", {"input": [[5] * 500] * 2048}), 504, "timeout")
        until("the engine is free again", lambda: s.metric("bitnet_num_requests_running") == 0)
        equal(s.post("/v1/completions", TEXT).status, 200, "it goes on")
        return f"{len(late)} of {len(replies)} were late"


def drain(t):
    with Server(t.program, "--no-warm-up", "--max-num-seqs", 4, "--drain", 300) as s:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            body = {**LONG, "max_tokens": 250, "n": 3, "seed": 3}
            whole = [pool.submit(s.post, "/v1/completions", body) for _ in range(4)]
            parts = [pool.submit(s.post, "/v1/completions", {**body, "stream": True}) for _ in range(4)]
            until("all were taken", lambda: s.metric("bitnet_num_requests_running") +
                  s.metric("bitnet_num_requests_waiting") == 24)
            s.process.send_signal(signal.SIGTERM)
            until("it is not ready", lambda: s.get("/ready").status == 503)
            refused = s.post("/v1/completions", TEXT)
            shaped(refused, 503, "draining")
            assert int(refused.headers["Retry-After"]) >= 1
            equal(s.get("/health").status, 200, "alive")
            texts = [text_of(f.result()) for f in whole] + [joined(f.result()) for f in parts]
            equal(texts, [texts[0]] * 8, "texts with the same seed")
        equal(s.process.wait(30), 0, "exit status")
    with Server(t.program, "--no-warm-up", "--drain", 60) as s:
        c = s.connect()
        c.request("POST", "/v1/completions", json.dumps({**LONG, "n": 32}), s.headers())
        until("it runs", lambda: s.metric("bitnet_num_requests_running") > 0)
        s.process.send_signal(signal.SIGINT)
        s.process.send_signal(signal.SIGTERM)
        equal(s.process.wait(5), 0, "exit status after two signals")


def fair(t):
    """One key with 24 answers of 150 tokens; another key's short ones do not wait behind them."""
    file = t.folder / "two-keys"
    file.write_text("sk-greedy\nsk-small\n")
    greedy, small = ({"Authorization": "Bearer " + k} for k in ("sk-greedy", "sk-small"))
    with Server(t.program, "--no-warm-up", "--api-key-file", file, "--public-metrics", "--max-num-seqs", 4) as s:
        alone = s.post("/v1/completions", TEXT, small).json()["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            many = [pool.submit(s.post, "/v1/completions", {**LONG, "max_tokens": 150, "seed": 5}, greedy) for _ in range(24)]
            until("all were taken", lambda: s.metric("bitnet_num_requests_running") +
                  s.metric("bitnet_num_requests_waiting") == 24)
            for _ in range(5):
                equal(s.post("/v1/completions", TEXT, small).json()["choices"][0]["text"], alone, "the answer")
            ended = sum(f.done() for f in many)
            assert ended < 12, f"5 short answers waited for {ended} long ones"
            texts = [text_of(f.result()) for f in many]
            equal(texts, [texts[0]] * 24, "texts of answers that gave way and of others")


def quotas(t):
    """Requests, tokens and answers at a time by key; headers; a reload that changes them under way."""
    file = t.folder / "quotas"
    file.write_text("sk-ask name=asker requests=5\nsk-tok name=teller tokens=400\n"
                    "sk-one name=single concurrent=2 priority=3\nsk-vip best-priority=-5 weight=4\nsk-free\n")
    file.chmod(0o600)
    ask, tok, one, vip, free = ({"Authorization": f"Bearer sk-{k}"} for k in ("ask", "tok", "one", "vip", "free"))
    with Server(t.program, "--no-warm-up", "--api-key-file", file, "--public-metrics", "--max-num-seqs", 8) as s:
        replies = [s.post("/v1/completions", TEXT, ask) for _ in range(9)]
        equal([r.status for r in replies], [200] * 5 + [429] * 4, "nine requests with a quota of five")
        equal([r.headers["x-ratelimit-remaining-requests"] for r in replies], list("432100000"), "left")
        shaped(replies[5], 429, "rate_limit_exceeded", "5 times a minute")
        assert 50 < int(replies[8].headers["Retry-After"]) <= 61, replies[8].headers
        equal(s.metric("bitnet_key_requests_total", key="asker"), 5, "requests by key")
        equal(s.metric("bitnet_key_rejected_total", key="asker", reason="requests"), 4, "refused by key")
        equal(s.get("/v1/models", ask).status, 200, "what takes no place has no quota")

        plain = s.post("/v1/completions", TEXT, free)
        assert not any(h.lower().startswith("x-ratelimit") for h in plain.headers), plain.headers
        usage = plain.json()["usage"]["total_tokens"]
        first = s.post("/v1/completions", TEXT, tok)
        equal(first.headers["x-ratelimit-limit-tokens"], "400", "limit of tokens")
        shaped(s.post("/v1/completions", {**TEXT, "max_tokens": 600}, tok), 400, "tokens_exceed_quota", "400")
        silent = s.post("/v1/completions", {"prompt": STORY, "ignore_eos": True}, tok).json()
        equal(silent["usage"]["completion_tokens"], 100, "a quarter of the quota for those who say nothing")
        left = 400 - first.json()["usage"]["total_tokens"] - silent["usage"]["total_tokens"]
        fits = s.post("/v1/completions", {"prompt": STORY, "ignore_eos": True, "max_tokens": left - 8}, tok)
        over = s.post("/v1/completions", {**TEXT, "n": 2, "max_tokens": 3}, tok)
        equal(fits.json()["usage"]["total_tokens"] <= left, True, "the rest")
        equal(over.status, 429, "the quota of tokens is used up")
        shaped(over, 429, "rate_limit_exceeded", "tokens a minute")
        taken = sum(r["usage"]["total_tokens"] for r in (first.json(), silent, fits.json()))
        equal(s.metric("bitnet_key_tokens_total", key="teller"), taken, "tokens by key")
        vectors = s.post("/v1/embeddings", {"input": STORY * 8}, tok)
        equal(vectors.status, 429, "vectors are of tokens, too")

        shaped(s.post("/v1/completions", {**TEXT, "n": 3}, one), 400, None, "2 at a time")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            long = [pool.submit(s.post, "/v1/completions", LONG, one) for _ in range(2)]
            until("both run", lambda: s.metric("bitnet_key_answers_running", key="single") == 2)
            third = s.post("/v1/completions", TEXT, one)
            shaped(third, 429, "rate_limit_exceeded", "2 answers at a time")
            equal(s.post("/v1/completions", TEXT, free).status, 200, "another key")
            equal([f.result().status for f in long], [200, 200], "the two")
        equal(s.post("/v1/completions", TEXT, one).status, 200, "when they have ended")
        equal(s.metric("bitnet_key_answers_running", key="single"), 0, "answers that run")

        shaped(s.post("/v1/completions", {**TEXT, "priority": -1}, free), 400, "priority_not_allowed", "0 and more")
        shaped(s.post("/v1/completions", {**TEXT, "priority": 2}, one), 400, "priority_not_allowed", "3 and more")
        equal(s.post("/v1/completions", {**TEXT, "priority": 9}, free).status, 200, "behind others")
        equal(s.post("/v1/completions", {**TEXT, "priority": -5}, vip).json()["usage"]["total_tokens"], usage, "before")

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(s.post, "/v1/completions", LONG, free)
            until("it runs", lambda: s.metric("bitnet_num_requests_running") > 0)
            file.write_text("sk-ask name=asker requests=7\n")
            s.process.send_signal(signal.SIGHUP)
            until("it was read", lambda: any("1 keys were loaded" in line for line in s.errors))
            equal(under_way.result().status, 200, "an answer whose key has gone")
        equal([s.post("/v1/completions", TEXT, ask).status for _ in range(3)], [200, 200, 429], "two more of seven")
        equal(s.post("/v1/completions", TEXT, free).status, 401, "the key that has gone")
        equal(s.stop(), 0, "exit status")


OWN = [keys, quotas, as_llamacpp, told_otherwise, slots, fair, full_queue, late_answers, drain]


class Tools:
    def __init__(self, program, folder):
        self.program, self.folder = str(pathlib.Path(program).resolve()), pathlib.Path(folder)
        self.log = self.folder / "access.log"

    def run(self, *args):
        return subprocess.run([self.program, *args], capture_output=True, text=True, check=True).stdout


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--only", default="")
    o = p.parse_args()
    shared = [c for c in SHARED if o.only in c.__name__]
    own = [c for c in OWN if o.only in c.__name__]
    with tempfile.TemporaryDirectory(prefix="bitnet-serve-") as folder:
        t = Tools(o.program, folder)
        tap = Tap(len(shared) + len(own) + 1)
        with Server(t.program, "--access-log", t.log, "--max-num-seqs", 16, "--cors", "http://page.example") as s:
            for case in shared:
                tap.case(case.__name__, case, s, t)
            tap.case("ends", lambda: equal(s.stop(), 0, "exit status"))
        for case in own:
            tap.case(case.__name__, case, t)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
