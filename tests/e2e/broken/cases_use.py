# SPDX-License-Identifier: Apache-2.0
"""Paths, outputs and command lines that cannot work; and controls, which must."""
import json
import os

from files import *
from running import *



def path_cases(good):
    m = {"m.gguf": good}
    fifo = lambda name: lambda folder: os.mkfifo(folder / name)
    cases = [
        Case("path: nothing there", LOGITS, "m.gguf"), Case("path: nothing there, run", RUN, "m.gguf"),
        Case("path: empty file", LOGITS, "m.gguf", files={"m.gguf": b""}),
        Case("path: a file of 3 bytes", LOGITS, "m.gguf", files={"m.gguf": b"GGU"}),
        Case("path: text", LOGITS, "m.gguf", files={"m.gguf": b"Once upon a time there was no model.\n" * 9}),
        Case("path: a ZIP archive", LOGITS, "m.gguf", files={"m.gguf": b"PK\x03\x04" + bytes(100)}),
        Case("path: folder without a model", ["inspect", "d"], "'d'", files={"d": {"readme.txt": b"x"}}),
        Case("path: folder with two models", ["inspect", "d"], "2 .gguf",
             files={"d": {"a.gguf": good, "b.gguf": good}}),
        Case("path: folder named like a file", LOGITS, "m.gguf", files={"m.gguf": {}}),
        Case("path: FIFO", LOGITS, "m.gguf", prepare=fifo("m.gguf")),
        Case("path: FIFO to convert", CONVERT, "m.gguf", prepare=fifo("m.gguf")),
        Case("path: /dev/zero", ["inspect", "/dev/zero"], "/dev/zero"),
        Case("path: /dev/null", ["run", "/dev/null", "-p", "a"], "/dev/null"),
        Case("path: link to itself", LOGITS, "m.gguf", prepare=lambda f: os.symlink("m.gguf", f / "m.gguf")),
        Case("path: dangling link", LOGITS, "m.gguf", prepare=lambda f: os.symlink("nowhere", f / "m.gguf")),
        Case("path: longer than the system allows", ["inspect", "x" * 5000 + ".gguf"], "5005"),
        Case("path: control characters in a name", ["inspect", "\x1b[31mred\n.gguf"], "red"),
        Case("path: ids from a FIFO", ["logits", "m.gguf", "--ids", "@ids", "--out", "o"], "ids", files=m,
             prepare=fifo("ids")),
        Case("path: prompt from a folder", ["run", "m.gguf", "-f", "d"], "'d'", files={**m, "d": {}}),
        Case("path: prompt from nowhere", ["run", "m.gguf", "-f", "p.txt"], "p.txt", files=m),
        Case("path: text of perplexity missing", ["perplexity", "m.gguf", "--file", "t.txt"], "t.txt", files=m),
        Case("path: text of perplexity empty", ["perplexity", "m.gguf", "--file", "t.txt"], "",
             files={**m, "t.txt": b""}),
        Case("output: exists", CONVERT, "out.gguf", files={**m, "out.gguf": b"precious"}),
        Case("output: a folder", CONVERT, "out.gguf", files={**m, "out.gguf": {"x": b"y"}}),
        Case("output: a folder, forced", [*CONVERT, "--force"], "out.gguf", files={**m, "out.gguf": {"x": b"y"}}),
        Case("output: into a folder that is not there", ["convert", "m.gguf", "no/out.gguf"], "no/out.gguf", files=m),
        Case("output: onto the input", ["convert", "m.gguf", "m.gguf"], "m.gguf", files=m),
        Case("output: below a file", ["convert", "m.gguf", "m.gguf/out"], "m.gguf/out", files=m),
        Case("output: logits to a folder", ["logits", "m.gguf", "--ids", "1", "--out", "d"], "'d'",
             files={**m, "d": {}}),
        Case("output: logits into a folder that is not there", ["logits", "m.gguf", "--ids", "1", "--out", "no/o"],
             "no/o", files=m),
        Case("output: synth exists", ["synth", "2b-4t", "s.gguf"], "s.gguf", files={"s.gguf": b"x"}),
        Case("output: type that cannot hold the shapes", [*CONVERT, "--type", "tq2_0"], "TQ2_0", files=m),
        Case("output: conversion of a broken file leaves the old one", [*CONVERT, "--force"], "file ends",
             files={"m.gguf": good[:-64], "out.gguf": b"precious"}),
        Case("full disk: standard output, logits", ["logits", "m.gguf", "--ids", "1", "--out", "-"], "output", files=m,
             out="/dev/full"),
        Case("full disk: standard output, tokenize", TOKENIZE, "output", files=m, out="/dev/full", stdin=b"ab"),
        Case("full disk: standard output, inspect", INSPECT, "output", files=m, out="/dev/full"),
        Case("full disk: standard output, run", RUN, "output", files=m, out="/dev/full"),
    ]
    big_ids = ",".join(str(i % VOCAB) for i in range(60))
    synth = ["synth", "2b-4t", "full/s.gguf", "--layers", "1"]
    writers = [("convert", ["convert", "m.gguf", "full/o.gguf"]),
               ("logits", ["logits", "m.gguf", "--ids", big_ids, "--out", "full/o"]),
               ("synth", synth)]
    limit = ["sh", "-c", 'trap "" XFSZ; ulimit -f 32; exec "$@"', "sh"]
    mount = ["unshare", "-rm", "sh", "-c",
             'mount -t tmpfs -o size=16k none full || exit 98; "$@"; c=$?; [ -z "$(ls -A full)" ] || exit 99; exit $c',
             "sh"]
    for name, args in writers:
        cases.append(Case("full disk: file size limit, " + name, args, "full/", files={**m, "full": {}}, wrap=limit))
        cases.append(Case("full disk: small file system, " + name, args, "full/", files={**m, "full": {}}, wrap=mount))
    nobody = 65534
    locked = lambda name, mode: lambda folder: os.chmod(folder / name, mode)
    user = nobody if os.geteuid() == 0 else None
    for name, args, word, files, what, mode in (
            ("no permission: model", LOGITS, "m.gguf", m, "m.gguf", 0),
            ("no permission: folder", ["inspect", "d"], "'d'", {"d": {"m.gguf": good}}, "d", 0),
            ("no permission: output folder", ["convert", "m.gguf", "d/o.gguf"], "d/o.gguf", {**m, "d": {}}, "d", 0o555),
            ("no permission: ids", ["logits", "m.gguf", "--ids", "@ids", "--out", "o"], "ids", {**m, "ids": b"1 2"},
             "ids", 0)):
        cases.append(Case(name, args, word, files=files, prepare=locked(what, mode), user=user))
    return cases


def argument_cases(good, spm):
    m = {"m.gguf": good}
    cases = []

    def usage(name, args, word, code=USAGE, files=m, **more):
        cases.append(Case("usage: " + name, args, word, code=code, files=files, **more))

    usage("unknown command", ["frobnicate"], "frobnicate")
    usage("mistyped command", ["rnu"], "run")
    usage("option for a command", ["--json"], "--json")
    usage("planned command", ["eval"], "eval")
    for args, word in (
            (["--frobnicate"], "frobnicate"), (["-Z"], "-Z"), (["--temp"], "--temp"), (["--temp", "-q"], "--temp"),
            (["--temp", "nan"], "nan"), (["--temp", "-1"], "-1"), (["--temp", "1e999"], "1e999"),
            (["--temp", ""], "--temp"),
            (["--top-p", "1.5"], "1.5"), (["--min-p", "0x1"], "0x1"), (["--top-k", "-1"], "-1"),
            (["-n", "many"], "many"),
            (["-n", "99999999999999999999"], "99999999999999999999"), (["-n", "1.5"], "1.5"),
            (["--seed", "-1"], "-1"),
            (["--threads", "100000"], "100000"), (["--threads", "-1"], "-1"), (["--threads", "two"], "two"),
            (["--ctx-size", "4294967296"], "4294967296"), (["--backend", "mmx"], "mmx"),
            (["--activations", "int4"], "int4"),
            (["--i2s-layout", "7"], "7"), (["--quiet=often"], "--quiet"), (["--raw", "--system", "x"], "--raw"),
            (["-f", "x"], "once"), (["--kv-type", "f8"], "f8"), ([*["--stop", "x"] * 33], "--stop")):
        usage("run " + " ".join(args)[:40], ["run", "m.gguf", "-p", "a", *args], word)
    for args, word in ((["--out", "o"], "--ids"), (["--ids", "1"], "--out"), (["--ids", "", "--out", "o"], "ids"),
                       (["--ids", "1,x,3", "--out", "o"], "'x'"), (["--ids", "-1", "--out", "o"], "-1"),
                       (["--ids", "1.5", "--out", "o"], "1.5"),
                       (["--ids", "99999999999", "--out", "o"], "99999999999"), (["--ids", " , ", "--out", "o"], "ids"),
                       (["--ids", "1", "--out", "o", "--chunk", "0"], "--chunk"),
                       (["--ids", "1", "--out", "o", "second"], "second")):
        usage("logits " + " ".join(args)[:40], ["logits", "m.gguf", *args], word)
    usage("logits, two models", ["logits", "m.gguf", "-m", "m.gguf", "--ids", "1", "--out", "o"], "once")
    usage("inspect --require fp16", ["inspect", "m.gguf", "--require", "fp16"], "fp16")
    usage("inspect --require ternary --no-stats", ["inspect", "m.gguf", "--require", "ternary", "--no-stats"],
          "--no-stats")
    usage("convert with one path", ["convert", "m.gguf"], "IN OUT")
    usage("convert with three", ["convert", "m.gguf", "a", "b"], "'b'")
    usage("convert --type fp4", [*CONVERT, "--type", "fp4"], "fp4")
    usage("convert --head-type i2_s", [*CONVERT, "--head-type", "i2_s"], "i2_s")
    usage("synth of no such shape", ["synth", "9000b", "o.gguf"], "9000b")
    usage("synth --layers 100000", ["synth", "2b-4t", "o.gguf", "--layers", "100000"], "100000")
    usage("tokenize --decode --bos", ["tokenize", "m.gguf", "--decode", "--bos"], "--bos")
    usage("perplexity without a file", ["perplexity", "m.gguf"], "--file")
    usage("perplexity --protocol best", ["perplexity", "m.gguf", "--file", "m.gguf", "--protocol", "best"], "best")

    def fails(name, args, word, **more):
        cases.append(Case("argument: " + name, args, word, files={**m, **more.pop("files", {})}, **more))

    fails("id outside the vocabulary", ["logits", "m.gguf", "--ids", "1,260", "--out", "o"], "260")
    fails("more ids than the context", ["logits", "m.gguf", "--ids", ",".join(["1"] * 65), "--out", "o"], "65")
    fails("a million ids", ["logits", "m.gguf", "--ids", "@-", "--out", "o"], "1000000", stdin=b"1 " * 10**6)
    fails("ids from a file that is not there", ["logits", "m.gguf", "--ids", "@ids", "--out", "o"], "ids")
    fails("ids from a file of words", ["logits", "m.gguf", "--ids", "@ids", "--out", "o"], "'one'",
          files={"ids": b"one two"})
    fails("context larger than the model's", [*RUN, "--ctx-size", "65"], "65")
    fails("prompt longer than the context", ["run", "m.gguf", "--raw", "-n", "2", "-q", "-p", "x" * 100], "101")
    fails("prompt of 1 MB", ["run", "m.gguf", "-n", "2", "-q", "-f", "-"], "context", stdin=b"once upon " * 104858)
    fails("message of 1 MB", ["chat", "m.gguf"], "", stdin=b"x" * (1 << 20) + b"\n")
    fails("batch larger than the most", [*RUN, "--batch-size", "65536"], "")
    fails("stop string of 300 bytes", [*RUN, "--stop", "x" * 300], "stop")
    fails("empty stop string", [*RUN, "--stop", ""], "stop")
    fails("template that is neither name nor file", [*CHAT, "--chat-template", "nonesuch"], "nonesuch")
    fails("broken template as text", [*CHAT, "--chat-template", "{% if %}"], "template")
    fails("broken template, chat", ["chat", "m.gguf", "--chat-template", "{{ 1 +"], "template", stdin=b"hello\n")
    fails("--require binary of ternary weights", ["inspect", "m.gguf", "--require", "binary", "--json"], "binary",
          report=True)
    fails("decoding what is no id", ["tokenize", "m.gguf", "--decode"], "'x'", stdin=b"1 x")
    fails("decoding an id outside the vocabulary", ["tokenize", "m.gguf", "--decode"], "260", stdin=b"1 260")
    fails("broken UTF-8 with SentencePiece", ["tokenize", "s.gguf"], "UTF-8", stdin=b"a\xffb", files={"s.gguf": spm})
    return cases


def controls(good, spm, golden, model):
    """What must work, or all the rest proves nothing."""
    m = {"m.gguf": good}
    f = Folder(golden)
    f.more["tokenizer.json"] = json.dumps(small_tokenizer()).encode()
    hf = {"hf": f.files()}

    def says(*words):
        return lambda out, folder: "" if all(w.encode() in out for w in words) else "output: %r" % out[:300]

    def holds(name, size):
        def check(out, folder):
            n = (folder / name).stat().st_size if (folder / name).exists() else -1
            return "" if n == size else "%s has %d bytes, not %d" % (name, n, size)
        return check

    def only(*names):
        return lambda out, folder: "" if sorted(os.listdir(folder)) == sorted(names) else str(os.listdir(folder))

    def case(name, args, files=m, check=None, **more):
        return Case("control: " + name, args, code=OK, files=files, check=check, **more)

    odd = made(lambda g: (g.meta.append(("x.unknown", ARRAY, (F64, [1.0]))),
                          config("attention.layer_norm_rms_epsilon", F64, 1e-5)(g),
                          g.drop("tokenizer.chat_template"),
                          meta("tokenizer.ggml.merges", ARRAY, (STR, ["a b", "q zzz"]))(g),
                          meta("tokenizer.ggml.tokens", ARRAY, (STR, TOKENS[:255] + ["a"] + TOKENS[256:]))(g)))
    return [
        case("logits", LOGITS, check=holds("out.f32", 2 * VOCAB * 4), same_folder=False),
        case("logits, one thread", [*LOGITS, "--threads", "1"], check=holds("out.f32", 2 * VOCAB * 4),
             same_folder=False),
        case("logits over an old file", LOGITS, {**m, "out.f32": b"old"}, holds("out.f32", 2 * VOCAB * 4),
             same_folder=False),
        case("threads 0 takes the cores", [*RUN, "--threads", "0"]),
        case("inspect", ["inspect", "m.gguf", "--weights"], check=says("I2_S")),
        case("inspect --require ternary", ["inspect", "m.gguf", "--require", "ternary"]),
        case("convert", CONVERT, check=only("m.gguf", "out.gguf"), same_folder=False),
        case("convert over a file, forced", [*CONVERT, "--force"], {**m, "out.gguf": b"old"},
             only("m.gguf", "out.gguf"), same_folder=False),
        case("run", RUN, check=says("ab")), case("chat template", CHAT),
        case("context of the model's size", [*RUN, "--ctx-size", "64"]),
        case("tokenize", TOKENIZE, check=says("256"), stdin=b"ab"),
        case("decode", [*TOKENIZE, "--decode"], check=says("ab"), stdin=b"256"),
        case("broken UTF-8 with byte-level BPE", TOKENIZE, check=says(str(TOKENS.index("a"))), stdin=b"a\xff\xc3"),
        case("a prompt that is broken UTF-8", ["run", "m.gguf", "-n", "1", "-q", "-f", "-"], stdin=b"a\xff\xc3"),
        case("1 MB of text, tokenized", TOKENIZE, stdin=b"once upon " * 104858),
        case("a megabyte of one letter, tokenized", TOKENIZE, stdin=b"a" * (1 << 20)),
        case("SentencePiece", ["tokenize", "s.gguf"], {"s.gguf": spm}, stdin="a\u00e9 b".encode()),
        case("unknown keys, duplicate tokens, merges of unknown tokens", RUN, {"m.gguf": odd}),
        case("version 2", LOGITS, {"m.gguf": made(put("version", 2))}, holds("out.f32", 2 * VOCAB * 4),
             same_folder=False),
        case("folder: logits", ["logits", "hf", "--ids", "1,2", "--out", "o"], {"hf": Folder(golden).files()},
             holds("o", 2 * 172 * 4), same_folder=False),
        case("folder: convert", ["convert", "hf", "o.gguf"], {"hf": Folder(golden).files()}, only("hf", "o.gguf"),
             same_folder=False),
        case("folder: tokenize", ["tokenize", "hf"], hf, says("256"), stdin=b"ab"),
        case("the model given", ["run", str(model), "-p", "Once", "-n", "2", "--temp", "0", "-q"], {}, says("Once")),
        case("a single GGUF in a folder", ["inspect", "d"], {"d": {"x.gguf": good}}),
        case("version", ["version"], {}, says("bitnet")),
    ]
