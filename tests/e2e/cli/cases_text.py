# SPDX-License-Identifier: Apache-2.0
"""tokenize, logits, perplexity on the embedded model."""
import array
import json
import math
import random

SAMPLES = [b"Once upon a time", b"Once upon a time\n", b"", b" ", b"\n\n\n",
           "Größe, 東京 und 🙂🙂".encode(),
           b"a  b   c\t\td\r\n", b"  leading and trailing  ", "e\u0301 \u0000 zero".encode()]
STORY = b"Once upon a time, there was a little girl. She liked to play with her dog in the park."


def ids_of(t, text, *options):
    return [int(x) for x in t.run("tokenize", *options, stdin=text).text.split()]


def floats(data):
    a = array.array("f")
    a.frombytes(data)
    return a


def test_tokenize_format(t):
    r = t.run("tokenize", stdin=b"Once upon a time")
    t.equal(r.err, b"", "standard error")
    t.check(r.text.endswith("\n") and r.text.count("\n") == 1, "one line")
    t.equal(r.text, " ".join(r.text.split()) + "\n", "one space between")
    t.equal(t.run("tokenize", stdin=b"").text, "\n", "no text, no ids")
    for name in ("embedded", "-"):
        t.equal(t.run("tokenize", name, stdin=b"Once upon a time").out, r.out, f"model {name}")
        t.equal(t.run("tokenize", "--model", name, stdin=b"Once upon a time").out, r.out,
                f"--model {name}")


def test_tokenize_words(t):
    want = t.run("tokenize", stdin=b"Once upon a time").out
    t.equal(t.run("tokenize", "Once upon a time").out, want, "one word")
    t.equal(t.run("tokenize", "embedded", "Once", "upon", "a", "time").out, want, "a model and words")
    t.equal(t.run("tokenize", "--decode", *want.decode().split()).text, "Once upon a time", "ids as words")
    t.fails("tokenize", "--decode", "12", "x", says="the words")
    t.fails("tokenize", "nosuch.gguf", says="nosuch.gguf")


def test_tokenize_bos(t):
    plain, bos = ids_of(t, b"Once upon"), ids_of(t, b"Once upon", "--bos")
    t.equal(bos[1:], plain, "--bos adds one id in front")


def test_tokenize_json(t):
    j = t.run("tokenize", "--json", stdin=STORY).json()
    t.equal(sorted(j), ["ids", "tokens"], "keys")
    t.equal(j["ids"], ids_of(t, STORY), "ids")
    t.equal(len(j["tokens"]), len(j["ids"]), "a token an id")


def test_decode_reverses(t):
    for text in SAMPLES:
        ids = t.run("tokenize", stdin=text)
        t.equal(t.run("tokenize", "--decode", stdin=ids.out).out, text, f"{text!r} and back")


def test_decode_forms(t):
    ids = ids_of(t, STORY)
    for form in (" ".join(map(str, ids)), ",".join(map(str, ids)), "\n".join(map(str, ids)),
                 json.dumps(ids),
                 "  " + ", ".join(map(str, ids)) + " \n"):
        t.equal(t.run("tokenize", "-d", stdin=form.encode()).out, STORY, f"ids as {form[:20]!r}")
    t.equal(t.run("tokenize", "-d", "--json", stdin=json.dumps(ids).encode()).json(),
            {"text": STORY.decode()}, "JSON")
    t.equal(t.run("tokenize", "-d", stdin=b"").out, b"", "no ids, no bytes")


def test_decode_bad_ids(t):
    for bad in ("x", "1 2 x", "1.5", "-1", "2147483648", "[1,2", "99999999999999999999"):
        t.fails("tokenize", "--decode", stdin=bad.encode(), says="not a token id")
    t.fails("tokenize", "--decode", stdin=b"2147483647", says="2147483647")


def test_tokenize_special(t):
    text = b"<|begin_of_text|>Once"
    t.check(len(ids_of(t, text, "--special")) < len(ids_of(t, text)), "a special token is one id")
    ids = t.run("tokenize", "--special", stdin=text)
    t.equal(t.run("tokenize", "--decode", "--special", stdin=ids.out).out, text, "and back")
    t.equal(t.run("tokenize", "--decode", stdin=ids.out).out, b"Once",
            "not shown without --special")


def test_tokenize_large(t):
    r = random.Random(1)
    words = STORY.decode().split() + ["東京", "🙂", "x" * 40]
    text = " ".join(r.choice(words) for _ in range(400000)).encode()
    ids = t.run("tokenize", stdin=text)
    t.equal(t.run("tokenize", "--decode", stdin=ids.out).out, text, "two megabytes and back")


def test_logits_shape(t):
    ids = ids_of(t, STORY, "--bos")
    t.run("logits", "--ids", ",".join(map(str, ids)), "--out", "all.f32")
    t.keeps("all.f32")
    all_values = floats(t.path("all.f32").read_bytes())
    vocab = len(all_values) // len(ids)
    t.equal(len(all_values), vocab * len(ids), "whole rows")
    t.check(all(map(math.isfinite, all_values)), "finite")
    t.run("logits", "--ids", ",".join(map(str, ids)), "--out", "last.f32", "--last")
    t.keeps("last.f32")
    t.equal(t.path("last.f32").read_bytes(), all_values[-vocab:].tobytes(),
            "--last is the last row")


def test_logits_same_bits(t):
    ids = ids_of(t, STORY, "--bos")
    t.write("ids.txt", json.dumps(ids))
    first = t.run("logits", "--ids", "@ids.txt", "--out", "-").out
    for more in (["--chunk", "1"], ["--chunk", "7"], ["--threads", "1"], ["--threads", "3"],
                 ["--backend", "scalar"]):
        t.check(t.run("logits", "--ids", "@ids.txt", "--out", "-", *more).out == first,
                f"same bits with {more}")
    t.check(t.run("logits", "--ids", "@-", "--out", "-",
                  stdin=json.dumps(ids).encode()).out == first, "ids from stdin")
    env = {"BITNET_BACKEND": "scalar"}
    t.check(t.run("logits", "--ids", "@ids.txt", "--out", "-", env=env).out == first,
            "same bits by environment")


def test_logits_errors(t):
    t.fails("logits", "--ids", "1,2147483647", "--out", "o.f32", says="2147483647")
    t.fails("logits", "--ids", "1", "--out", "no/such/folder/o.f32", says="no/such/folder")
    t.fails("logits", "--ids", "@nosuch.txt", "--out", "o.f32", says="nosuch.txt")
    t.write("bad.txt", "1 2 three")
    t.fails("logits", "--ids", "@bad.txt", "--out", "o.f32", says="'three'")
    t.write("old.f32", b"old")
    t.run("logits", "--ids", "1,2", "--out", "old.f32")
    t.check(t.path("old.f32").read_bytes() != b"old", "an existing file is replaced")
    before = t.path("old.f32").read_bytes()
    t.fails("logits", "--ids", "1,2147483647", "--out", "old.f32")
    t.equal(t.path("old.f32").read_bytes(), before, "an error leaves the old file alone")


def test_perplexity(t):
    t.write("story.txt", STORY * 4)
    j = t.run("perplexity", "--file", "story.txt", "--json").json()
    for key in ("tokens", "nll_per_token", "perplexity", "std_error", "windows", "seconds",
                "tok_s"):
        t.check(key in j, f"key {key}")
    t.check(abs(math.exp(j["nll_per_token"]) - j["perplexity"]) < 1e-6 * j["perplexity"],
            "perplexity = exp(nll)")
    t.check(1 < j["perplexity"] < 200, f"a story is no surprise to this model: {j['perplexity']}")
    by_stdin = t.run("perplexity", "--file", "-", "--json", stdin=STORY * 4).json()
    t.equal(by_stdin["nll_per_token"], j["nll_per_token"], "text from standard input")
    ids = ids_of(t, STORY * 4, "--bos")
    by_ids = t.run("perplexity", "--file", "-", "--ids", "--json",
                   stdin=json.dumps(ids).encode()).json()
    t.equal(by_ids["nll_per_token"], j["nll_per_token"], "ids instead of text")
    t.check("perplexity" in t.run("perplexity", "--file", "story.txt").text, "text report")


def test_perplexity_windows(t):
    t.write("story.txt", STORY * 8)
    n = len(ids_of(t, STORY * 8)) + 1
    j = t.run("perplexity", "--file", "story.txt", "--ctx", "32", "--json").json()
    t.check(j["windows"] >= n // 32, "windows of 32")
    k = t.run("perplexity", "--file", "story.txt", "--ctx", "32", "--protocol", "llama.cpp",
              "--json").json()
    t.check(k["tokens"] < j["tokens"], "llama.cpp scores half of each window")
    short = t.run("perplexity", "--file", "story.txt", "--limit", "40", "--json").json()
    t.check(short["tokens"] < 40, "--max-tokens")


def test_perplexity_errors(t):
    t.fails("perplexity", "--file", "nosuch.txt", says="nosuch.txt")
    t.write("empty.txt", b"")
    t.fails("perplexity", "--file", "empty.txt", "--ids", says="empty.txt")
    t.usage("perplexity", "--file", "x", "--protocol", "strided", says="windows|llama.cpp")
