# SPDX-License-Identifier: Apache-2.0
"""run, inspect, convert, synth on the embedded model."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

TIMING = r"stories-31m: load \d+ ms, first token \d+ ms, prompt \d+ tok at [\d.]+ tok/s, " \
         r"generated \d+ tok at [\d.]+ tok/s, peak [\d.]+ [kMG]B, \d+ threads?, \w+, seed \d+\n"
TIME = "Once upon a time"
TOOLS = pathlib.Path(__file__).resolve().parents[3] / "tools"


def test_run_story(t):
    r = t.run("run", TIME, "-n", "20", "--temp", "0")
    t.check(r.text.startswith(TIME) and len(r.text) > len(TIME) + 10, f"a story: {r.text!r}")
    t.check(r.text.endswith("\n"), "ends with a line end")
    t.check(re.fullmatch(TIMING, r.errors), f"timing line {r.errors!r}")
    quiet = t.run("run", TIME, "-n", "20", "--temp", "0", "-q")
    t.equal(quiet.err, b"", "--quiet")
    t.equal(quiet.out, r.out, "the same text again")
    bare = t.run("run", TIME, "-n", "20", "--temp", "0", "--no-echo")
    t.equal(TIME + bare.text, r.text, "--no-echo")


def test_run_names_that_are_no_files(t):
    options = ["-n", "1", "--temp", "0"]
    for name in ("llama3", "qwen3:8b", "bitnet-7", "Falcon3-5B"):
        r = t.run("run", name, "hi", *options)
        t.check(f"note: '{name}' is no file" in r.errors, f"a hint for {name}: {r.errors!r}")
    t.check("did you mean 'bitnet-2b'?" in t.run("run", "bitnet-2", "hi", *options).errors, "the name that was meant")
    for words in (["Once", "upon"], ["Llamas are animals"], ["falcon", "flew"], ["1984", "is a book"]):
        t.check("note" not in t.run("run", *words, *options).errors, f"no hint for {words}")
    t.check("note" not in t.run("run", "-p", "llama3", *options).errors, "no hint for --prompt")


def test_run_another_text_begins(t):
    """A model that writes the token with which texts begin is done with this one."""
    forced = ["run", TIME, "-n", "5", "--temp", "0", "--json", "--logit-bias", "0+100"]
    j = t.run(*forced).json()
    t.equal((j["finish_reason"], j["text"]), ("end", ""), "it ends there")
    t.equal(t.run(*forced, "--ignore-eos").json()["generated_tokens"], 5, "--ignore-eos goes on")


def test_run_prompt_forms(t):
    want = t.run("run", TIME, "-n", "5", "--temp", "0").out
    t.write("prompt.txt", TIME + "\n")
    options = ["-n", "5", "--temp", "0"]
    for args, stdin in ([["Once", "upon", "a", "time"], b""], [["-p", TIME], b""],
                        [["--prompt=" + TIME], b""],
                        [["-f", "prompt.txt"], b""], [["--file", "-"], TIME.encode()],
                        [[], TIME.encode() + b"\n"],
                        [["embedded", TIME], b""], [["-m", "embedded", TIME], b""],
                        [["-", TIME], b""],
                        [["--model=-", "-p", TIME], b""], [["--", TIME], b""]):
        t.equal(t.run("run", *options, *args, stdin=stdin).out, want, f"prompt as {args}")
    # numbers under all their names
    for args in (["-n5"], ["--max-new-tokens", "5"], ["--max_new_tokens=5"], ["--max_tokens", "5"],
                 ["--n-predict", "5"]):
        t.equal(t.run("run", TIME, "--temp", "0", *args).out, want, f"length as {args}")


def test_run_numa(t):
    """Every mode tells the same story; on a machine with one node a note says that it does nothing."""
    options = ["run", TIME, "-n", "8", "--temp", "0", "--numa"]
    want = t.run(*options, "off")
    t.check("numa" not in want.errors, f"off says nothing: {want.errors!r}")
    probe = subprocess.run([t.program, *options, "isolate"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    for mode in ("distribute", "isolate", "replicate"):
        if b"has no hwloc" in probe.stderr:
            t.says(t.run(*options, mode, code=1), f"numa '{mode}' is not possible: this build has no hwloc")
            continue
        r = t.run(*options, mode)
        t.equal(r.out, want.out, f"the story with {mode}")
        t.check(f"numa '{mode}' changes nothing" in r.errors or "numa" not in r.errors,
                f"a note or none: {r.errors!r}")
    t.usage(*options, "everywhere", says="off|distribute|isolate|replicate")


def test_run_slash_in_prompt(t):
    text = t.run("run", "now and/or later", "-n", "2", "--temp", "0").text
    t.check(text.startswith("now and/or later"), "a sentence with a slash is a prompt")


def test_run_json(t):
    r = t.run("run", TIME, "-n", "12", "--temp", "0", "--json", "--threads", "1")
    j = r.json()
    t.equal(r.err, b"", "standard error with --json")
    for key in ("text", "tokens", "prompt_tokens", "generated_tokens", "finish_reason", "seed",
                "timings", "memory",
                "model", "threads", "backend"):
        t.check(key in j, f"key {key}")
    t.equal(sorted(j["timings"]), ["engine_ms", "gen_tok_s", "load_ms", "prompt_tok_s", "total_ms",
                                   "ttft_ms"], "timings")
    t.check({"peak_rss_bytes", "kv_bytes", "packed_bytes"} <= set(j["memory"]), "memory")
    t.equal(j["threads"], 1, "threads")
    t.equal(j["generated_tokens"], 12, "generated tokens")
    t.equal(len(j["tokens"]), 12, "token list")
    t.equal(j["finish_reason"], "length", "finish reason")
    t.check(not j["text"].startswith(TIME), "the prompt is not in the text")
    t.check(j["timings"]["ttft_ms"] > 0 and j["memory"]["peak_rss_bytes"] > 1e6, "measured")
    t.check(j["timings"]["load_ms"] > 0 and j["timings"]["engine_ms"] > 0, "opening measured")
    bos = t.run("tokenize", "--bos", stdin=TIME.encode()).text.split()
    t.equal(j["prompt_tokens"], len(bos), "prompt tokens")


def test_run_cold_start(t):
    r = t.run(TOOLS / "cold_start.py", t.program, "--runs", "2", "--json", "--", "-t", "1",
              program=sys.executable)
    for x in r.json()["rounds"]:
        parts = [x[k] for k in ("start", "load", "engine", "first token")]
        t.check(all(p > 0 for p in parts) and x["version"] > 0, f"all of it takes time: {x}")
        t.check(abs(sum(parts) - x["answer"]) < 1e-6, f"the parts add up: {x}")


def test_run_head(t):
    def run(head, *args):
        return t.run("run", TIME, "-n", "24", "--ignore-eos", "--seed", "3", "--json", "--head", head, *args).json()

    for args in (["--temp", "0"], []):
        exact, screened = run("exact", *args), run("screened", *args)
        t.equal(screened["tokens"], exact["tokens"], f"tokens of the screened head {args}")
        t.equal(exact["head"]["mode"], "exact", "exact mode")
        t.equal(screened["head"]["mode"], "screened", "screened mode")
        h = screened["head"]
        t.equal(h["tokens_screened"] + h["fallbacks"], 24, "every token is counted")
        t.equal(sum(h["histogram"]), h["tokens_screened"], "the histogram counts them too")
        t.check(h["tokens_screened"] > 0 and h["mean_survivors"] >= 1, "survivors")
        t.check(h["mean_refined"] >= h["mean_survivors"], "they were refined before")
    t.equal(run("auto")["head"]["mode"], "exact", "a small head is not screened by itself")
    plain = ["--temp", "1", "--top-k", "0", "--top-p", "1"]
    int8 = run("int8", *plain)
    t.equal(int8["head"]["mode"], "int8", "int8 mode")
    t.equal(int8["head"]["tokens_full"], 24, "all logits are made")
    t.equal(run("int8", *plain, "-t", "1")["tokens"], int8["tokens"], "the same with one thread")
    t.check(int8["memory"]["packed_bytes"] > run("exact", *plain)["memory"]["packed_bytes"], "memory of the copy")


def test_run_ffn(t):
    def run(ffn):
        return t.run("run", TIME, "-n", "24", "--ignore-eos", "--temp", "0", "--json", "--ffn", ffn).json()

    dense, skip, auto = run("dense"), run("skip"), run("auto")
    t.equal(skip["tokens"], dense["tokens"], "the tokens are the same")
    t.equal([x["ffn"]["mode"] for x in (dense, skip, auto)], ["dense", "skip", "dense"],
            "modes; a small model is not copied by itself")
    f = skip["ffn"]
    t.equal(f["tokens"], 23, "tokens after the prompt")
    layers = len(f["gates_open"])
    t.equal([f["up_in_part"], f["down_in_part"], len(f["inputs_nonzero"])], [23 * layers, 23 * layers, layers], "layers")
    t.check(all(0 < i < g < 0.6 for g, i in zip(f["gates_open"], f["inputs_nonzero"])), f"shares {f}")
    t.check(0 < f["read_bytes"] < f["dense_bytes"], "bytes")
    t.equal(dense["ffn"]["gates_open"], [None] * layers, "nothing is looked at")
    t.check(skip["memory"]["packed_bytes"] > dense["memory"]["packed_bytes"], "the copies take memory")
    t.usage("run", TIME, "--ffn", "sparse", says="--ffn")


def test_run_seed(t):
    args = ["run", TIME, "-n", "24", "--temp", "1", "--json"]
    a, b = t.run(*args, "--seed", "7").json(), t.run(*args, "--seed", "7", "-t", "1").json()
    t.equal(a["text"], b["text"], "same seed, same text")
    others = [t.run(*args).json() for _ in range(3)]
    t.check(len({o["seed"] for o in others}) == 3, "a seed is chosen by chance")
    t.equal(t.run(*args, "--seed", others[0]["seed"]).json()["text"], others[0]["text"],
            "and can be used again")


def test_run_ends_by_itself(t):
    j = t.run("run", TIME, "-n", "0", "--seed", "1", "--json").json()
    t.check(j["finish_reason"] in ("end", "length"), "finish reason")
    t.check(j["prompt_tokens"] + j["generated_tokens"] <= j["ctx_size"], "inside the context")


def test_run_stop(t):
    whole = t.run("run", TIME, "-n", "60", "--temp", "0", "--json").json()["text"]
    word = whole.split()[5]
    j = t.run("run", TIME, "-n", "60", "--temp", "0", "--json", "--stop", "@@", "--stop",
              word).json()
    t.equal(j["finish_reason"], "stop", "finish reason")
    t.equal(j["text"], whole[:whole.index(word)], "text before the stop string")


def test_run_limits(t):
    t.fails("run", "word " * 100, "-c", "32", says="32")
    t.usage("run", *["--stop", "x"] * 33, "y", says="at most 32 times")
    j = t.run("run", TIME, "--json", "-c", "16", "-n", "0", "--ignore-eos").json()
    t.equal(j["prompt_tokens"] + j["generated_tokens"], 16, "filled context")
    t.equal(j["finish_reason"], "length", "finish reason")


def test_run_kv_and_batch(t):
    a = t.run("run", TIME, "-n", "8", "--temp", "0", "--json", "--kv-type", "f32").json()
    b = t.run("run", TIME, "-n", "8", "--temp", "0", "--json", "--kv-type", "f32", "--batch-size",
              "2").json()
    t.equal(a["text"], b["text"], "the same text in pieces of two")
    t.equal(a["kv_type"], "f32", "kv type")


def test_run_kv_types(t):
    base = ["run", TIME, "-n", "40", "--temp", "0", "--ignore-eos", "--json"]
    bytes_of = {}
    for name in ("f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "int2"):
        a = t.run(*base, "--kv-type", name).json()
        b = t.run(*base, "--kv-type", name, "--batch-size", "3", "-t", "1").json()
        t.equal(a["tokens"], b["tokens"], f"{name}: the same text in pieces of three")
        t.equal((a["kv_type"], a["kv_type_v"]), (name, name), "both types")
        bytes_of[name] = a["memory"]["kv_bytes"]
    t.equal(bytes_of["f32"], 4 * bytes_of["fp8_e5m2"], "memory of fp8")
    t.equal(bytes_of["f16"] * 17, bytes_of["int8"] * 32, "memory of int8: 8.5 bits")
    t.check(bytes_of["int2"] < bytes_of["int4"] < bytes_of["int8"], "memory of blocks")
    for options, types in ((["--kv-int2"], ("int2", "int2")),
                           (["--kv-type", "fp8", "--kv-type-v", "q8_0"], ("fp8_e4m3", "int8")),
                           (["--cache-type-k", "q8_0", "--cache-type-v", "q4_0"], ("int8", "int4"))):
        j = t.run(*base, *options).json()
        t.equal((j["kv_type"], j["kv_type_v"]), types, " ".join(options))


def test_run_interrupt(t):
    p = subprocess.Popen([t.program, "run", TIME, "-n", "0", "--ignore-eos", "-t", "1"],
                         cwd=t.folder, env=t.env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(len(TIME) + 1)  # the first character of the answer
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    t.equal(p.returncode, 130, "exit code")
    t.check(re.fullmatch(TIMING, err.decode()), f"timing line {err!r}")
    t.check(out.endswith(b"\n"), "the line is ended")


def test_run_closed_pipe(t):
    p = subprocess.Popen([t.program, "run", TIME, "-n", "0", "--ignore-eos"], cwd=t.folder,
                         env=t.env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(4)
    p.stdout.close()
    t.equal(p.stderr.read(), b"", "a reader that leaves is no error to talk about")
    t.equal(p.wait(60), -signal.SIGPIPE, "ended by the closed pipe")


def test_inspect(t):
    r = t.run("inspect")
    t.check("weight_dtype    ternary" in r.text and "general.architecture" in r.text,
            f"report {r.text[:300]!r}")
    meta = t.run("inspect", "--meta").text
    t.check("general.architecture" in meta and "weight_dtype" not in meta, "--meta")
    table = t.run("inspect", "--weights").text
    t.check(re.search(r"blk\.0\.attn_q\.weight +\S+ +\d+ x \d+ +[\d.]+ +\{-1,0,\+1\} +[\d.]+ % ",
                      table), "--weights")
    t.check("unread" in t.run("inspect", "--no-stats").text, "--no-stats")


def test_inspect_json(t):
    j = t.run("inspect", "--json").json()
    for key in ("format", "file_bytes", "weight_dtype", "bit_width", "has_zero_point", "tensors",
                "metadata"):
        t.check(key in j, f"key {key}")
    t.equal([j["weight_dtype"], j["bit_width"], j["has_zero_point"]], ["ternary", 1.58, False],
            "summary")
    t.equal(j["metadata"]["tokenizer.ggml.bos_token_id"], 0, "numbers are numbers")
    matrices = [x for x in j["tensors"] if x["is_matrix"]]
    t.equal(len(matrices), 70, "ten layers of seven matrices")
    for m in matrices:
        t.equal(m["values"], "{-1,0,+1}", m["name"])
        t.equal(sum(m["counts"]), m["dims"][0] * m["dims"][1], f"counts of {m['name']}")
        t.check(0 < m["zero_share"] < 1 and m["scale_min"] > 0, f"zeros and scale of {m['name']}")
    bare = t.run("inspect", "--json", "--no-stats").json()
    t.check(bare["bit_width"] is None and "values" not in bare["tensors"][0], "--no-stats")


def test_inspect_require(t):
    t.run("inspect", "--require", "ternary")
    t.fails("inspect", "--require", "binary", says=["not binary", "{-1,0,+1}"])
    r = t.fails("inspect", "--require", "binary", "--json")
    t.equal(r.json()["weight_dtype"], "ternary", "the report comes all the same")


def test_convert_and_back(t):
    j = t.run("convert", "embedded", "a.gguf", "--type", "i2_s", "--json").json()
    t.keeps("a.gguf")
    t.equal(j["file_bytes"], t.path("a.gguf").stat().st_size, "size")
    t.check("I2_S" in j["types"], f"types {list(j['types'])}")
    counts = {x["name"]: x["counts"] for x in t.run("inspect", "a.gguf",
                                                    "--json").json()["tensors"] if x["is_matrix"]}
    want = t.run("logits", "--ids", "1,2,3,4,5", "--out", "-").out
    def same_values(name):
        j = t.run("inspect", name, "--json", "--require", "ternary").json()
        t.equal({x["name"]: x["counts"] for x in j["tensors"] if x["is_matrix"]}, counts,
                f"values in {name}")

    t.run("convert", "a.gguf", "iq2_bn.gguf", "--type", "iq2_bn")
    t.keeps("iq2_bn.gguf")
    same_values("iq2_bn.gguf")
    t.check(t.run("logits", "iq2_bn.gguf", "--ids", "1,2,3,4,5", "--out", "-").out == want,
            "same bits from iq2_bn")
    t.run("convert", "iq2_bn.gguf", "back.gguf", "--type", "i2_s")
    t.keeps("back.gguf")
    same_values("back.gguf")
    t.check(t.path("back.gguf").read_bytes() == t.path("a.gguf").read_bytes(),
            "and back to the same file")
    # 16-bit scales lose a little: only when asked for; other types do not fit these shapes at all
    t.fails("convert", "a.gguf", "o.gguf", "--type", "iq1_bn", says="--allow-scale-rounding")
    t.run("convert", "a.gguf", "iq1_bn.gguf", "--type", "iq1_bn", "--allow-scale-rounding")
    t.keeps("iq1_bn.gguf")
    same_values("iq1_bn.gguf")
    t.fails("convert", "a.gguf", "o.gguf", "--type", "tq2_0", "--allow-scale-rounding",
            says="multiple of 256")
    t.equal(t.run("run", "a.gguf", "Once", "-n", "5", "--temp", "0").out,
            t.run("run", "Once", "-n", "5", "--temp", "0").out, "the same story")


def test_convert_errors(t):
    t.write("exists.gguf", b"precious")
    t.fails("convert", "embedded", "exists.gguf", says=["exists.gguf", "--force"])
    t.equal(t.path("exists.gguf").read_bytes(), b"precious", "not touched")
    t.run("convert", "embedded", "exists.gguf", "--force")
    t.write("junk.gguf", b"GGUF junk")
    t.fails("convert", "junk.gguf", "o.gguf", says="junk.gguf")
    t.fails("convert", "embedded", "no/such/folder/o.gguf", says="no/such/folder")
    t.usage("convert", "embedded", "o.gguf", "--type", "q5_k", says="--type")


def test_convert_names_all_obstacles(t):
    """What stands in the way is told at once, with the tensors; when all of it is away, it works."""
    r = t.fails("convert", "embedded", "o.gguf", "--type", "tq2_0",
                says=["2 things are in the way", "rows of 1408 weights, and TQ2_0 needs a multiple of 256", "'blk.1.ffn_down.weight'",
                      "--allow-scale-rounding", "'blk.0.attn_k.weight'"])
    more = [int(n) for n in re.findall(r"and (\d+) more", r.errors)]
    t.equal(len(more), 2, f"others are counted in {r.errors!r}")
    t.check(more[0] < 10 < 60 < more[1] < 70, f"10 matrices have the shape, 70 the scale: {more}")
    r = t.fails("convert", "embedded", "o.gguf", "--type", "tq2_0", "--allow-scale-rounding", says="rows of 1408")
    t.check("in the way" not in r.errors and "scale" not in r.errors, "one is left")
    t.run("convert", "embedded", "o.gguf", "--type", "q2_0", "--allow-scale-rounding")
    t.keeps("o.gguf")


def test_convert_interrupt(t):
    t.run("synth", "2b-4t", "big.gguf", "--layers", "2")
    t.keeps("big.gguf")
    p = subprocess.Popen([t.program, "convert", "big.gguf", "o.gguf", "--type", "iq2_bn"],
                         cwd=t.folder, env=t.env,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while p.poll() is None and not any(n.endswith(".part") for n in os.listdir(t.folder)):
        time.sleep(0.001)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=120)
    if p.returncode == 0:  # it was quicker than us
        t.keeps("o.gguf")
        return
    t.equal(p.returncode, 130, "exit code")
    t.equal(err, b"bitnet: interrupted\n", "message")


def test_synth(t):
    a = t.run("synth", "2b-4t", "a.gguf", "--layers", "1", "--seed", "5", "--json").json()
    t.run("synth", "2b-4t", "b.gguf", "--layers", "1", "--seed", "5")
    t.keeps("a.gguf", "b.gguf")
    t.check(t.path("a.gguf").read_bytes() == t.path("b.gguf").read_bytes(), "same seed, same file")
    t.equal(a["file_bytes"], t.path("a.gguf").stat().st_size, "size")
    t.fails("synth", "2b-4t", "a.gguf", "--layers", "1", says=["a.gguf", "--force"])
    t.check(t.run("run", "a.gguf", "x", "-n", "2", "-c", "32").out, "it answers")
    t.run("synth", "tiny", "c.gguf", "--ffn-density", "0.3:0.1,0.1:0.05")
    t.keeps("c.gguf")
    f = t.run("run", "c.gguf", "x", "-n", "32", "--ignore-eos", "--temp", "0", "--json", "--ffn", "skip").json()["ffn"]
    for got, want in zip(f["gates_open"] + f["inputs_nonzero"], (0.3, 0.1, 0.1, 0.05)):
        t.check(want * 0.6 < got < want * 1.4, f"a share of {got} where {want} was asked for")
    t.fails("synth", "tiny", "d.gguf", "--ffn-density", "0.3", says="GATES:INPUTS")


def test_synth_hybrid(t):
    """Models with delta nets: made, looked into, run, converted."""
    t.run("synth", "qwen35-tiny", "a.gguf")
    t.run("synth", "qwen35-tiny-rotated", "b.gguf", "--mtp", "--layers", "6")
    t.keeps("a.gguf", "b.gguf")
    report = t.run("inspect", "b.gguf").text
    for line in ("6: 5 delta net, 1 attention (every 4th), and 1 to draft tokens (MTP)", "2 of keys and values",
                 "2 key heads of 64, 6 value heads of 64, convolution of 4; state", "Hadamard, blocks of 128, before 45 "
                 "matrices and behind the embedding; 1152 signs", "gates in floats 10", "weight_dtype    ternary"):
        t.check(line in report, f"'{line}' in {report[-900:]}")
    j = t.run("inspect", "b.gguf", "--json", "--require", "ternary").json()
    m = j["model"]
    t.equal([m["delta_layers"], m["attention_layers"], m["attention_every"], m["mtp_layers"]], [5, 1, 4, 1], "layers")
    t.equal(m["delta_net"], {"key_heads": 2, "key_dim": 64, "value_heads": 6, "value_dim": 64, "taps": 4,
                             "state_bytes": 5 * 4 * (3 * 640 + 6 * 64 * 64)}, "delta net")
    t.equal(m["rotation"], {"block": 128, "matrices": 45, "embedding": True, "signs": 1152}, "rotation")
    t.equal([m["kv_token_bytes"], j["model_error"], j["float_gates"]], [1024, None, 10], "the rest")
    plain = t.run("inspect", "a.gguf", "--json").json()
    t.equal([plain["model"]["rotation"], plain["float_gates"], plain["matrices"]], [None, 0, 39], "the first generation")
    dense = t.run("inspect", "--json", "--no-stats").json()["model"]
    t.equal([dense["delta_net"], dense["layers"], dense["attention_every"]], [None, 10, 1], "a model without delta nets")
    for name in ("a.gguf", "b.gguf"):
        r = t.run("run", name, "Hello", "-n", "40", "--temp", "0", "--ignore-eos", "--json").json()
        t.check(len(set(r["tokens"])) > 10, f"tokens {r['tokens']}")
        logits = t.run("logits", name, "--ids", "1,2,3,4,5,6,7", "--out", "-").out
        t.run("convert", name, "again.gguf", "--force")
        t.keeps("again.gguf")
        t.check(t.run("logits", "again.gguf", "--ids", "1,2,3,4,5,6,7", "--out", "-").out == logits,
                f"the same bits after convert of {name}")
    t.fails("synth", "tiny", "c.gguf", "--mtp", says="drafts")
