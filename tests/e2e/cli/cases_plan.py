# SPDX-License-Identifier: Apache-2.0
"""--plan: plans from files, in GGUFs, and those that are refused."""
import json
import re

TIME = "Once upon a time"
LAYERS = 10


def plan(layer=None, **members):
    """A plan in which every layer is alike."""
    return json.dumps({"format": "bitnet-plan-1", "layers": [layer or {}] * LAYERS, **members})


def test_plan_of_nothing(t):
    """The same logits as without a plan; with savings others."""
    ids = "0,17,35,300,301,302,40,41,9,8,7"
    t.keeps("a.f32", "b.f32", "c.f32")
    t.write("none.json", plan())
    t.write("some.json", plan({"down_codes": 3, "gate_min": 0.5, "keys": "int8", "values": "int4"}))
    t.run("logits", "--ids", ids, "--out", "a.f32")
    t.run("logits", "--ids", ids, "--out", "b.f32", "--plan", "none.json")
    t.run("logits", "--ids", ids, "--out", "c.f32", "--plan", "some.json")
    t.equal(t.path("a.f32").read_bytes(), t.path("b.f32").read_bytes(), "a plan without savings")
    t.check(t.path("a.f32").read_bytes() != t.path("c.f32").read_bytes(), "a plan with savings")


def test_plan_same_bits(t):
    """Threads, kernels and chunks change nothing under a plan."""
    ids = ",".join(str(i * 37 % 900) for i in range(80))
    t.write("plan.json", plan({"down_codes": 2, "gate_min": 0.5, "keys": "int4", "values": "int8"}))
    options = ["logits", "--ids", ids, "--plan", "plan.json"]
    t.keeps("want.f32", *(f"{i}.f32" for i in range(4)))
    t.run(*options, "--out", "want.f32", "-t", "1")
    for i, args in enumerate((["-t", "2"], ["-t", "3", "--chunk", "1"], ["--chunk", "7"], ["--backend", "scalar"])):
        t.run(*options, "--out", f"{i}.f32", *args)
        t.equal(t.path(f"{i}.f32").read_bytes(), t.path("want.f32").read_bytes(), f"the same with {args}")


def test_plan_is_told(t):
    t.write("plan.json", plan({"values": "int8"}, head="int8"))
    r = t.run("run", TIME, "-n", "3", "--temp", "0", "--plan", "plan.json")
    t.check("The plan that was given is on and saves: values in 10 layers, head int8." in r.errors, r.errors)
    j = json.loads(t.run("run", TIME, "-n", "3", "--temp", "0", "--plan", "plan.json", "--json").out)
    t.equal(j["plan"], {"from": "given", "saves": "values in 10 layers, head int8"}, "in the report")
    t.equal((j["kv_type"], j["kv_type_v"], j["head"]["mode"]), ("f16", "int8", "int8"), "what is in use")
    j = json.loads(t.run("run", TIME, "-n", "3", "--plan", "plan.json", "--kv-type", "f32", "--head", "exact",
                         "--json").out)
    t.equal((j["kv_type"], j["kv_type_v"], j["head"]["mode"]), ("f32", "f32", "exact"), "options count more")
    t.equal(json.loads(t.run("run", TIME, "-n", "3", "--json").out)["plan"]["from"], "off", "without")


def test_plan_of_every_command(t):
    """All commands with a model take it and say so."""
    t.write("plan.json", plan({"down_codes": 1}))
    t.write("text.txt", TIME + ", there was a little girl named Lily. " * 8)
    t.keeps("out.jsonl")
    t.write("in.jsonl", json.dumps({"prompt": TIME, "max_tokens": 2}) + "\n")
    for args in (["perplexity", "-f", "text.txt"], ["batch", "-i", "in.jsonl", "-o", "out.jsonl"],
                 ["embed", TIME], ["bench", "--mode", "stream", "-n", "4", "--repeat", "1", "--warmup", "0"],
                 ["eval", "kl", "-", "--with", "--plan plan.json", "--text", "text.txt", "--ctx", "16"]):
        more = [] if args[0] == "eval" else ["--plan", "plan.json"]
        t.check("codes in 10 layers" in t.run(*args, *more).errors, f"{args[0]} says that a plan is on")


def test_plan_in_the_file(t):
    t.write("plan.json", plan({"down_codes": 2}))
    t.keeps("planned.gguf", "packed.gguf", "bare.gguf")
    options = ["-n", "20", "--temp", "0"]
    want = t.run("run", TIME, *options, "--plan", "plan.json").out
    t.run("convert", "-", "planned.gguf", "--type", "keep", "--head-type", "keep", "--plan", "plan.json")
    r = t.run("run", "planned.gguf", TIME, *options)
    t.equal(r.out, want, "by its own plan")
    t.check("The plan in the model's file is on and saves: codes in 10 layers" in r.errors, r.errors)
    t.check("bitnet.plan" in t.run("inspect", "planned.gguf").text, "inspect shows it")
    t.equal(t.run("run", "planned.gguf", TIME, *options, "--plan", "off").out, t.run("run", TIME, *options).out, "off")
    t.run("convert", "planned.gguf", "packed.gguf", "--packed")
    t.equal(t.run("run", "packed.gguf", TIME, *options).out, want, "packed")
    t.run("convert", "planned.gguf", "bare.gguf", "--plan", "off")
    t.check("bitnet.plan" not in t.run("inspect", "bare.gguf").text, "taken out")


def test_plan_refused(t):
    """One sentence each, and nothing is written."""
    other = {"name": "other", "checksum": "0123456789abcdef"}
    for name, text, words in (
            ("other", plan(model=other), r"the plan was made for another model, 'other' with the checksum "
             r"0123456789abcdef; this one has [0-9a-f]{16}"),
            ("version", '{"format": "bitnet-plan-9"}', r"the plan 'version' has the format 'bitnet-plan-9'; this "
             r"version reads bitnet-plan-1"),
            ("layers", '{"format": "bitnet-plan-1", "layers": [{}]}', r"the plan 'layers' is for 1 layers; this "
             r"model has 10"),
            ("text", "Once upon a time", r"the plan 'text'.*"),
            ("list", "[]", r"the plan 'list' is no plan: it is no JSON object"),
            ("member", plan({"down_code": 1}), r"the plan 'member', layer 0: the member 'down_code' is unknown.*")):
        t.write(name, text)
        r = t.run("run", TIME, "-n", "1", "--plan", name, code=1)
        t.check(re.fullmatch(f"bitnet: {words}\n", r.errors), f"{name}: {r.errors!r}")
        t.equal(r.out, b"", f"{name}: no text")
    r = t.run("run", TIME, "-n", "1", "--plan", "nowhere.json", code=1)
    t.check("nowhere.json" in r.errors and r.errors.count("\n") == 1, f"missing: {r.errors!r}")
    t.run("convert", "-", "out.gguf", "--plan", "layers", code=1)
    t.check(not t.path("out.gguf").exists(), "no partial file")
