# SPDX-License-Identifier: Apache-2.0
"""embed, and run --health, on the embedded model."""
import json
import math

TEXTS = ["Once upon a time there was a cat.", "A cat lived in a small house.", "Größe, 東京 🙂", "x"]


def vectors(r):
    return [[float(x) for x in line.split()] for line in r.text.splitlines()]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def test_embed(t):
    r = t.run("embed", *TEXTS)
    t.equal(r.err, b"", "standard error")
    v = vectors(r)
    t.equal(len(v), len(TEXTS), "a line a text")
    t.equal(len({len(x) for x in v}), 1, "one width")
    for x in v:
        t.check(abs(dot(x, x) - 1) < 1e-6, "length 1")
    t.check(dot(v[0], v[1]) > dot(v[0], v[2]), "two sentences about cats are nearer")
    for name in (["embedded"], ["-m", "embedded"]):
        t.equal(t.run("embed", *name, *TEXTS).out, r.out, f"model {name}")


def test_embed_json(t):
    plain = vectors(t.run("embed", *TEXTS))
    r = t.run("embed", "--json", *TEXTS)
    t.equal(t.run("embed", "--format", "json", *TEXTS).out, r.out, "--format json")
    for i, line in enumerate(r.text.splitlines()):
        j = json.loads(line)
        t.equal(sorted(j), ["embedding", "index", "object"], "keys")
        t.equal((j["object"], j["index"]), ("embedding", i), "object and index")
        t.equal(j["embedding"], plain[i], "the same numbers")


def test_embed_input(t):
    words = t.run("embed", *TEXTS).out
    t.write("lines.txt", "\n".join(TEXTS) + "\n")
    t.write("crlf.txt", "\r\n".join(TEXTS))
    t.equal(t.run("embed", "--input", "lines.txt").out, words, "lines of a file")
    t.equal(t.run("embed", "--input", "crlf.txt").out, words, "lines with CR, no end at the end")
    t.equal(t.run("embed", "--input", "-", stdin="\n".join(TEXTS).encode()).out, words, "stdin")
    t.write("empty.txt", b"")
    t.equal(t.run("embed", "--input", "empty.txt").out, b"", "no lines, no vectors")
    ids = [t.run("tokenize", "--bos", stdin=x.encode()).text.strip().replace(" ", ",")
           for x in TEXTS]
    t.equal(t.run("embed", "--ids", *ids).out, words, "token ids")


def test_embed_same_bits(t):
    texts = [f"{x} {y}" for x in TEXTS for y in TEXTS] * 5
    t.write("lines.txt", "\n".join(texts))
    first = t.run("embed", "--input", "lines.txt").out
    for more in (["--batch-size", "1"], ["--batch-size", "7"], ["--threads", "1"],
                 ["--threads", "3"], ["--backend", "scalar"]):
        t.check(t.run("embed", "--input", "lines.txt", *more).out == first, f"same bits: {more}")


def test_embed_pooling(t):
    ids = t.run("tokenize", "--bos", stdin=TEXTS[0].encode()).text.split()
    last = vectors(t.run("embed", "--pooling", "last", "--no-normalize", TEXTS[0]))[0]
    mean = vectors(t.run("embed", "--no-normalize", TEXTS[0]))[0]
    unit = vectors(t.run("embed", TEXTS[0]))[0]
    parts = vectors(t.run("embed", "--ids", "--pooling", "last", "--no-normalize",
                          *[",".join(ids[:n]) for n in range(1, len(ids) + 1)]))
    t.equal(parts[-1], last, "the last state")
    for i, m in enumerate(mean):
        t.check(abs(m - sum(p[i] for p in parts) / len(parts)) < 1e-5 * (1 + abs(m)), "the mean")
    length = math.sqrt(dot(mean, mean))
    t.check(all(abs(m / length - u) < 1e-6 for m, u in zip(mean, unit)), "the length")


def test_embed_errors(t):
    t.usage("embed", says="no text")
    t.usage("embed", "a", "--input", "lines.txt", says="once")
    t.usage("embed", "a", "--pooling", "max", says="mean|last")
    t.fails("embed", "--input", "nosuch.txt", says="nosuch.txt")
    t.fails("embed", "--ids", "1,x", says="'x'")
    t.fails("embed", "--ids", "1", "", says="text 1 has no tokens")
    t.fails("embed", "word " * 9000, says="this model knows")


def test_health(t):
    args = ["run", "Once upon a time", "-n", "60", "--temp", "0"]
    plain, r = t.run(*args), t.run(*args, "--health")
    t.equal(r.out, plain.out, "the same text")
    for word in ("repetitions", "not finite", "0 blocks changed", "layer"):
        t.check(word in r.err.decode(), f"table: {word}")
    j = t.run(*args, "--health", "--json").json()
    ids, h = j["tokens"], j["health"]
    grams = [tuple(ids[i:i + 3]) for i in range(len(ids) - 2)]
    t.check(abs(h["repetition"] - (1 - len(set(grams)) / len(grams))) < 1e-9, "repetition")
    t.equal(h["nonfinite_rows"], 0, "finite")
    t.equal((h["weights"]["passes"], h["weights"]["mismatches"]), (2, 0), "weights")
    t.check(h["ffn_samples"] >= 3, "samples")
    for y in h["layers"]:
        t.check(0 < y["gates_open"] < 1 and 0 < y["inputs_zero"] < 1, "feed-forward")
        for side in (y["keys"], y["values"]):
            t.check(3 < side["entropy_bits"] < 8 and side["saturated"] == 0, "KV cache")
    t.check("health" not in t.run(*args, "--json").json(), "only when asked for")
