#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lm_eval --model local-completions` against `bitnet serve`, without lm_eval: the requests that lm-evaluation-harness
sends (openai_completions.py, api_models.py and RemoteTokenizer in utils.py, at 4e7e0d4), read its way. Log-likelihoods
must be those of `bitnet logits` and `bitnet eval`, greedy flags the same; then what else `echo` can be asked for.

usage: harness.py BITNET HYBRID.gguf      output is TAP
"""
import array
import concurrent.futures
import json
import math
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import Healthy, Server
from tap import Tap

CLOSE = 1e-4  # of a log-likelihood
TEXT = "/v1/completions"
HEADERS = {"Authorization": "Bearer "}  # what it sends without OPENAI_API_KEY
program, hybrid = sys.argv[1:3]
scratch = tempfile.TemporaryDirectory()

ITEMS = [
    ("Once upon a time", [", there was a little girl named Lily.", " the king of the", " Once"]),
    ("Once upon a time there was a ", ["quadratic form", "girl named Lily."]),
    ("The little cat sat on the", [" mat.", " moon and sang loudly.", " car of the king."]),
    ("Tom was sad because his toy was", [" broken.", " happy.", " a very large number of birds.", " sun."]),
    ("Lily said, \"", ["Thank you, Mom.\"", "caf\u00e9 \U0001f600"]),
    ("", ["Once upon a time", "Zebra"]),
    ("One day a boy and his dog went to the park. " * 60, ["They", "He was happy."]),  # longer than the context
]
PAIRS = [(context, continuation) for context, all_of_it in ITEMS for continuation in all_of_it]


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


# ---------------------------------------------------------------- the client

class RemoteTokenizer:
    def __init__(self, server):
        self.s = server
        reply = self.s.get("/tokenizer_info")
        equal(reply.status, 200, "tokenizer_info")
        self.info = reply.json()
        assert "eos_token" in self.info, self.info
        self.eos_token_id = self.encode(self.info["eos_token"])[0]
        self.bos_token_id = self.encode(self.info["bos_token"])[0]

    def encode(self, text):
        reply = self.s.post("/tokenize", {"prompt": text, "add_special_tokens": False})
        equal(reply.status, 200, reply.body)
        return reply.json()["tokens"]

    def decode(self, tokens):
        return self.s.post("/detokenize", {"tokens": tokens}).json()["prompt"]


class LocalCompletions:
    def __init__(self, server, model="bitnet", batch_size=1, num_concurrent=1, max_length=512, max_gen_toks=256, seed=1234):
        self.s, self.model, self.batch_size, self.num_concurrent = server, model, batch_size, num_concurrent
        self.max_length, self.max_gen_toks, self.seed = max_length - 1, max_gen_toks, seed
        self.tokenizer = RemoteTokenizer(server)
        self.prefix_token_id = self.tokenizer.bos_token_id or self.tokenizer.eos_token_id

    def call(self, payload):
        reply = self.s.post(TEXT, payload, HEADERS)
        equal(reply.status, 200, reply.body[:300])
        return reply.json()

    def encode_pair(self, context, continuation):
        if context == "":
            rest = self.tokenizer.encode(continuation)
            return ([self.prefix_token_id], rest) if self.prefix_token_id != rest[0] else (rest[:1], rest[1:])
        n_spaces = len(context) - len(context.rstrip())
        if n_spaces > 0:
            continuation = context[-n_spaces:] + continuation
            context = context[:-n_spaces]
        whole, before = self.tokenizer.encode(context + continuation), self.tokenizer.encode(context)
        return before, whole[len(before):]

    def cut(self, before, rest):
        """What is sent, and how many of its tokens are context."""
        return (before + rest)[-self.max_length:], len(before) - max(0, len(before) + len(rest) - self.max_length)

    def score(self, chunk):
        inputs, ctxlens = zip(*(self.cut(*pair) for pair in chunk))
        out = self.call({"model": self.model, "prompt": list(inputs), "temperature": 0, "max_tokens": 1, "logprobs": 1,
                         "seed": self.seed, "echo": True})
        results = []
        for choice, ctxlen in zip(sorted(out["choices"], key=lambda c: c["index"]), ctxlens):
            assert ctxlen > 0
            logprobs = choice["logprobs"]["token_logprobs"][ctxlen:-1]
            tops = choice["logprobs"]["top_logprobs"][ctxlen:-1]
            results.append((sum(logprobs), all(one == max(top.values()) for one, top in zip(logprobs, tops))))
        return results

    def loglikelihood_tokens(self, pairs):
        order = sorted(range(len(pairs)), key=lambda i: (-len(pairs[i][0] + pairs[i][1]), tuple(pairs[i][0] + pairs[i][1])))
        chunks = [order[i:i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        with concurrent.futures.ThreadPoolExecutor(self.num_concurrent) as pool:
            scored = list(pool.map(lambda chunk: self.score([pairs[i] for i in chunk]), chunks))
        results = [None] * len(pairs)
        for chunk, some in zip(chunks, scored):
            equal(len(some), len(chunk), "choices")
            for i, one in zip(chunk, some):
                results[i] = one
        return results

    def loglikelihood(self, pairs):
        return self.loglikelihood_tokens([self.encode_pair(*p) for p in pairs])

    def loglikelihood_rolling(self, text):
        """Windows of max_length - 1 tokens, one token of context each."""
        tokens, size, windows = self.tokenizer.encode(text), self.max_length - 1, []
        windows.append(([self.prefix_token_id], tokens[:size]))
        for at in range(size, len(tokens), size):
            end = min(at + size, len(tokens))
            window = tokens[end - size - 1:end]
            windows.append((window[:len(window) - (end - at)], tokens[at:end]))
        return sum(one for one, _ in self.loglikelihood_tokens(windows)), windows

    def generate_until(self, contexts, until):
        sent = [self.tokenizer.encode(c)[-(self.max_length - self.max_gen_toks):] for c in contexts]
        out = self.call({"prompt": sent, "model": self.model, "max_tokens": self.max_gen_toks, "temperature": 0,
                         "stop": [*until, self.tokenizer.info["eos_token"]], "seed": self.seed})
        texts = [None] * len(contexts)
        for choice in out["choices"]:
            texts[choice["index"]] = choice["text"]
        return texts


# ---------------------------------------------------------------- what is right

rows_of = {}


def rows(ids, model="embedded"):
    """(logits, their largest, the logarithm of the sum of exponentials) behind each token."""
    key = model, tuple(ids)
    if key not in rows_of:
        out = pathlib.Path(scratch.name) / "logits"
        subprocess.run([program, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, "--kv-type", "f16"],
                       check=True, capture_output=True)
        x = array.array("f", out.read_bytes())
        n = len(x) // len(ids)
        rows_of[key] = []
        for row in (x[i * n:(i + 1) * n] for i in range(len(ids))):
            top = max(row)
            rows_of[key].append((row, top, top + math.log(math.fsum(math.exp(v - top) for v in row))))
    return rows_of[key]


def judged(lm, before, rest, model="embedded"):
    ids, ctxlen = lm.cut(before, rest)
    behind = rows(ids, model)[ctxlen - 1:-1]
    return (math.fsum(row[t] - log_sum for (row, _, log_sum), t in zip(behind, ids[ctxlen:])),
            all(row[t] == top for (row, top, _), t in zip(behind, ids[ctxlen:])))


def check_pairs(lm, pairs, model="embedded"):
    worst, n_greedy = 0, 0
    for pair, (got, greedy) in zip(pairs, lm.loglikelihood(pairs)):
        want, want_greedy = judged(lm, *lm.encode_pair(*pair), model)
        worst = max(worst, abs(got - want))
        assert abs(got - want) < CLOSE, f"{pair}: {got}, not {want}"
        equal(greedy, want_greedy, f"greedy of {pair}")
        n_greedy += greedy
    assert 0 < n_greedy < len(pairs), n_greedy
    return f"{len(pairs)} items, {n_greedy} greedy, at most {worst:.1e} off"


# ---------------------------------------------------------------- as the harness asks

def loglikelihoods(s, batch_size, num_concurrent):
    return check_pairs(LocalCompletions(s, batch_size=batch_size, num_concurrent=num_concurrent), PAIRS)


def in_company(s):
    healthy = Healthy(s)
    said = loglikelihoods(s, 3, 3)
    healthy.stop()
    assert not healthy.wrong and healthy.times, healthy.wrong[:3]
    return said + f"; {len(healthy.times)} other answers meanwhile"


def same_as_eval(s):
    items = [(q.rstrip(), [c.strip() for c in choices]) for q, choices in ITEMS if q]
    file = pathlib.Path(scratch.name) / "items.jsonl"
    file.write_text("".join(json.dumps({"query": q, "choices": c, "gold": 0}) + "\n" for q, c in items))
    p = subprocess.run([program, "eval", "--file", file, "--items", "--json"], check=True, capture_output=True)
    lm, worst = LocalCompletions(s, batch_size=8), 0
    for item, (q, choices) in zip(json.loads(p.stdout)["tasks"][0]["results"], items):
        if len(lm.tokenizer.encode(q)) > 400:
            continue  # eval keeps one token more of a text that is too long: it generates none
        for want, (got, _) in zip(item["logprobs"], lm.loglikelihood([(q, " " + c) for c in choices])):
            worst = max(worst, abs(got - want))
            assert abs(got - want) < CLOSE, f"{q}: {got}, not {want}"
    return f"at most {worst:.1e} off"


def rolling(s):
    lm = LocalCompletions(s, batch_size=2, max_length=200)
    got, windows = lm.loglikelihood_rolling("Once upon a time there was a boy named Tom. He had a red ball. " * 30)
    assert len(windows) > 2, len(windows)
    want = math.fsum(judged(lm, *w)[0] for w in windows)
    assert abs(got - want) < CLOSE * len(windows), (got, want)
    return f"{len(windows)} windows"


def generation(s):
    lm = LocalCompletions(s, batch_size=2, max_gen_toks=20)
    prompts = ["Once upon a time", "Tom and"]
    texts = lm.generate_until(prompts, ["."])
    for prompt, text in zip(prompts, texts):
        alone = s.post(TEXT, {"prompt": lm.tokenizer.encode(prompt), "max_tokens": 20, "temperature": 0, "stop": "."})
        equal(text, alone.json()["choices"][0]["text"], prompt)
        assert text and "." not in text, text


def tokenizer(s):
    t = RemoteTokenizer(s)
    for text in ("Once upon a time", "caf\u00e9 \U0001f600", t.info["bos_token"] + "Once" + t.info["eos_token"], ""):
        ids = t.encode(text)
        equal(s.post("/tokenize", {"content": text}).json()["tokens"], ids, "both forms")
        if ids:
            equal(t.decode(ids), text, "there and back")
    whole = s.post("/tokenize", {"model": "x", "prompt": "Once upon", "return_token_strs": True}).json()
    equal(whole["tokens"], [t.bos_token_id] + t.encode("Once upon"), "special tokens are added unless they are not wanted")
    equal((whole["count"], whole["max_model_len"], len(whole["token_strs"])), (3, 512, 3), "counts")
    equal((t.info["add_bos_token"], t.info["model_max_length"], t.info["vocab_size"]), (True, 512, 4096), "info")
    for body in ({"prompt": 5}, {"prompt": "a", "content": "a"}, {"prompt": "a", "add_special": True},
                 {"prompt": "a" * (3 << 20)}, {"prompt": "a", "add_special_tokens": 1}):
        equal(s.post("/tokenize", body).status, 400, str(body)[:60])


# ---------------------------------------------------------------- echo beyond the harness

def lists(reply, i=0):
    """The lists of a choice, which are of one length; each top is that of its own place."""
    choice = reply.json()["choices"][i]
    l = choice["logprobs"]
    equal({len(v) for v in l.values()}, {len(l["tokens"])}, "lengths of the lists")
    equal((l["token_logprobs"][0], l["top_logprobs"][0]), (None, None), "the first token")
    for at, token in enumerate(l["tokens"]):
        if not token.startswith("<|"):
            equal(choice["text"][l["text_offset"][at]:][:len(token)], token, "text_offset")
    return l


def prompt_only(s):
    body = {"prompt": "Once upon a time there was", "max_tokens": 0, "echo": True, "temperature": 0}
    plain = s.post(TEXT, body).json()
    equal(plain["choices"][0]["text"], body["prompt"], "text")
    equal(plain["choices"][0]["logprobs"], None, "logprobs that nobody asked for")
    equal(plain["usage"]["completion_tokens"], 0, "generated")
    for top in (0, 1, 5, 20):
        scored = s.post(TEXT, {**body, "logprobs": top})
        l = lists(scored)
        equal(len(l["tokens"]), plain["usage"]["prompt_tokens"], "tokens")
        equal({len(t) for t in l["top_logprobs"][1:]}, {top}, "likeliest")
        one_more = lists(s.post(TEXT, {**body, "logprobs": top, "max_tokens": 1}))
        equal([v[:-1] for v in one_more.values()], list(l.values()), "with a token behind it")
    for refused in ({**body, "echo": False}, {**body, "echo": "yes"}, {**body, "logprobs": 21}, {**body, "logprobs": -1},
                    {**body, "max_tokens": -2}):
        equal(s.post(TEXT, refused).status, 400, refused)


def several(s):
    """Prompts of every form, several choices, whole and streamed."""
    body = {"max_tokens": 3, "echo": True, "logprobs": 2, "seed": 3}
    for prompt in ("Once upon", ["Once upon", "One day, a"], [5, 6, 7], [[5, 6, 7], [8], list(range(300))]):
        for n in (1, 2):
            asked = {**body, "prompt": prompt, "n": n}
            whole = s.post(TEXT, asked).json()["choices"]
            n_prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
            equal([c["index"] for c in whole], list(range(n * n_prompts)), "indices")
            joined = [{"text": "", "logprobs": {}} for _ in whole]
            for event in s.post(TEXT, {**asked, "stream": True}).events():
                for piece in event["choices"]:
                    to = joined[piece["index"]]
                    to["text"] += piece["text"]
                    for name, list_ in (piece["logprobs"] or {}).items():
                        to["logprobs"].setdefault(name, []).extend(list_)
            equal(joined, [{"text": c["text"], "logprobs": c["logprobs"]} for c in whole], "the pieces together")
            for i, c in enumerate(whole):
                first = whole[i // n * n]["logprobs"]["token_logprobs"]
                equal(c["logprobs"]["token_logprobs"][:-3], first[:-3], "the prompt's, in every choice")


def same_floats(s):
    """Whatever is in the prefix cache and whoever else is there."""
    ids = list(range(100, 400))
    body = {"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 3, "temperature": 0, "cache_prompt": False}
    want = lists(s.post(TEXT, body))
    body["cache_prompt"] = True
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        asked = [body] * 4 + [{**body, "echo": False}] * 2 + [{**body, "prompt": [ids, ids[:150]]}] * 3
        for one, reply in zip(asked, pool.map(lambda b: s.post(TEXT, b), asked)):
            got = reply.json()["choices"][0]["logprobs"]
            for name in ("tokens", "token_logprobs", "top_logprobs"):
                equal(got[name], want[name] if one["echo"] else want[name][-1:], name)


def long_and_many(s):
    ctx = s.get("/props").json()["engine"]["ctx_tokens"]
    body = {"max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    full = s.post(TEXT, {**body, "prompt": [7] * (ctx - 1)})
    equal(len(lists(full)["tokens"]), ctx, "a full context")
    error = s.post(TEXT, {**body, "prompt": [7] * ctx})
    equal((error.status, error.json()["error"]["code"]), (400, "context_length_exceeded"), "one more")
    many = s.post(TEXT, {**body, "prompt": [[i] * (1 + i) for i in range(128)]}).json()["choices"]
    equal([len(c["logprobs"]["tokens"]) for c in many], [i + 2 for i in range(128)], "128 prompts")
    error = s.post(TEXT, {**body, "logprobs": 4, "prompt": [[7] * 500] * 128})
    equal(error.status, 400, "too many")
    assert "320000 log-probabilities" in error.json()["error"]["message"], error.body
    equal(s.post(TEXT, {**body, "prompt": [7, 10 ** 6]}).status, 400, "a token that is not there")


def a_hybrid(s):
    pairs = PAIRS[:8]
    return check_pairs(LocalCompletions(s, batch_size=4, num_concurrent=2), pairs, hybrid)


def little_memory(s):
    """Prompts that must give way to each other while they are scored."""
    lm = LocalCompletions(s, batch_size=6, num_concurrent=2)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        others = [pool.submit(s.post, TEXT, {"prompt": "Tom and", "max_tokens": 300, "ignore_eos": True, "seed": i})
                  for i in range(4)]
        said = check_pairs(lm, PAIRS)
        assert all(o.result().status == 200 for o in others)
    assert s.metric("bitnet_num_preemptions_total") > 0, "nobody gave way"
    return said


def main():
    t = Tap()
    with Server(program, "--max-num-seqs", 6) as s:
        t.case("tokenizer_info, tokenize, detokenize", tokenizer, s)
        for batch_size, num_concurrent in ((1, 1), (4, 1), (3, 4), (100, 1)):
            t.case(f"log-likelihoods, batch_size={batch_size},num_concurrent={num_concurrent}", loglikelihoods, s, batch_size,
                   num_concurrent)
        t.case("beside other answers", in_company, s)
        t.case("bitnet eval says the same", same_as_eval, s)
        t.case("rolling", rolling, s)
        t.case("generate_until", generation, s)
        t.case("max_tokens 0", prompt_only, s)
        t.case("several prompts and choices, streamed", several, s)
        t.case("the same floats in any company", same_floats, s)
        t.case("long and many prompts", long_and_many, s)
        equal(s.stop(), 0, "exit status")
    with Server(program, "--max-num-seqs", 6, "--kv-tokens", 1024) as s:
        t.case("little memory", little_memory, s)
    with Server(program, hybrid, "--max-num-seqs", 4, "--ctx", 512) as s:
        t.case("a hybrid", a_hybrid, s)
    sys.exit(t.end())


main()
