# SPDX-License-Identifier: Apache-2.0
"""batch: requests from a file. What a line may be, what comes out, and going on after an interruption.
(Torn lines and being killed at random moments are the subject of ../batch.py.)"""
import json
import os
import subprocess
import time

PLAIN = [{"prompt": "Once upon a time", "max_tokens": 6},
         {"prompt": "The cat", "max_tokens": 9, "temperature": 0},
         {"messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 12},
         {"prompt": "One day", "max_tokens": 7, "seed": 5, "top_k": 40, "top_p": 0.9}]
LINE_MAX = 16 << 20


def lines_of(*requests):
    return "".join(json.dumps(r) + "\n" for r in requests)


def wrapped(custom_id, body, url="/v1/completions", **more):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more}


def answers(t, text, *options):
    """Input in, parsed output lines out, through the pipes."""
    data = text if isinstance(text, bytes) else text.encode()
    r = t.run("batch", "-i", "-", "-o", "-", *options, stdin=data)
    return [json.loads(x) for x in r.text.splitlines()]


def error_of(answer):
    return answer["response"]["body"]["error"]["message"]


def text_of(answer):
    choice = answer["response"]["body"]["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def test_form(t):
    out = answers(t, lines_of(*PLAIN))
    t.equal(len(out), 4, "a line a request")
    for i, (a, q) in enumerate(zip(out, PLAIN), 1):
        t.equal(list(a), ["id", "custom_id", "response", "error"], "members")
        t.equal((a["custom_id"], a["error"]), (f"request-{i}", None), "custom_id and error")
        body = a["response"]["body"]
        t.equal(a["response"]["status_code"], 200, "status")
        t.equal(a["response"]["request_id"], a["id"].replace("batch_req_", "req_"), "request id")
        kind = ("chatcmpl-", "chat.completion") if "messages" in q else ("cmpl-", "text_completion")
        t.check(body["id"].startswith(kind[0]), f"id {body['id']}")
        t.equal((body["object"], body["created"], body["model"]), (kind[1], 0, "stories-31m"), "kind")
        t.equal(body["usage"]["completion_tokens"], q["max_tokens"], "completion tokens")
        t.equal(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"] + q["max_tokens"], "sum")
        t.equal(body["choices"][0]["finish_reason"], "length", "finish")
        t.check(text_of(a), "text")
    t.equal(len({a["id"] for a in out}), 4, "ids differ")


def test_same_text_as_run(t):
    out = answers(t, lines_of(*PLAIN))
    run = ["run", "-n", "9", "--temp", "0", "--json", "-p", "The cat"]
    t.equal(text_of(out[1]), t.run(*run).json()["text"], "greedy")
    run = ["run", "-n", "7", "--temp", "1", "--top-k", "40", "--top-p", "0.9", "--min-p", "0",
           "--seed", "5", "--json", "-p", "One day"]
    t.equal(text_of(out[3]), t.run(*run).json()["text"], "sampled")
    run = ["run", "-n", "12", "--temp", "1", "--json", "--chat", "-p", "Tell a story."]
    t.equal(out[2]["response"]["body"]["usage"]["prompt_tokens"], t.run(*run).json()["prompt_tokens"], "chat")


def test_company_does_not_matter(t):
    many = lines_of(*(dict(q, custom_id=f"{i}-{k}") for k in range(5) for i, q in enumerate(PLAIN)))
    first = answers(t, many)
    for more in (["-j", "1"], ["-j", "3"], ["--max-num-seqs", "20"], ["-t", "1"], ["-t", "3"],
                 ["--max-num-batched-tokens", "32"], ["--backend", "scalar"], ["--kv-tokens", "512"],
                 ["--prefix-cache", "off"], ["--speculation", "on", "--draft-tokens", "8"],
                 ["--speculation", "off"]):
        t.equal(answers(t, many, *more), first, f"same output with {more}")
    t.check(len({text_of(a) for a in first if a["custom_id"][0] == "2"}) > 2,
            "seeds come from the custom_id: equal prompts get different texts")
    t.check(answers(t, many, "--seed", "1")[0] != first[0], "--seed changes what has no seed")
    a, b = answers(t, many)[3], answers(t, many, "--seed", "1")[3]
    t.equal(text_of(a), text_of(b), "but not what has one")


def test_openai_lines(t):
    chat = {"model": "some-model", "messages": [{"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "max_completion_tokens": 4}
    out = answers(t, lines_of(
        wrapped("first", {"prompt": "Once", "max_tokens": 3, "stop": ["zzz"]}),
        wrapped("second", chat, "/v1/chat/completions"),
        wrapped("third", {"prompt": [5, 6, 7], "max_tokens": 2})))
    t.equal([a["custom_id"] for a in out], ["first", "second", "third"], "custom ids, in order")
    t.equal([a["response"]["status_code"] for a in out], [200] * 3, "all served")
    t.equal(out[1]["response"]["body"]["model"], "some-model", "the model's name is echoed")
    t.equal(out[2]["response"]["body"]["usage"]["prompt_tokens"], 3, "token ids as they are")


def test_choices(t):
    q = dict(PLAIN[0], max_tokens=30, seed=3)
    choices = answers(t, lines_of(dict(q, n=3)), "-j", "2")[0]["response"]["body"]["choices"]
    t.equal([c["index"] for c in choices], [0, 1, 2], "in order")
    alone = [text_of(a) for a in answers(t, lines_of(*(dict(q, seed=3 + i) for i in range(3))))]
    t.equal([c["text"] for c in choices], alone, "choice i draws with seed + i")
    usage = answers(t, lines_of(dict(q, n=2, ignore_eos=True)))[0]["response"]["body"]["usage"]
    t.equal(usage["completion_tokens"], 60, "all of them are counted")


def test_prompts(t):
    prompts = ["Once upon a time", "The cat", [5, 6, 7]]
    q = {"prompt": prompts, "n": 2, "max_tokens": 12, "seed": 3}
    several, echoed, bad = answers(t, lines_of(q, dict(q, echo=True), dict(q, prompt=["a", [99999]])), "-j", "4")
    body = several["response"]["body"]
    t.equal([c["index"] for c in body["choices"]], list(range(6)), "in order")
    alone = answers(t, lines_of(*({"prompt": prompts[i // 2], "max_tokens": 12, "seed": 3 + i} for i in range(6))))
    t.equal([c["text"] for c in body["choices"]], [text_of(a) for a in alone], "answer i draws with seed + i")
    t.equal(body["usage"]["prompt_tokens"], sum(a["response"]["body"]["usage"]["prompt_tokens"] for a in alone[::2]),
            "a prompt counts once")
    echo = [c["text"] for c in echoed["response"]["body"]["choices"]]
    t.check(echo[3].startswith("The cat") and echo[3].endswith(text_of(alone[3])), "the prompt comes first")
    t.check("99999" in error_of(bad), "one bad prompt spoils them all")


def test_tools_and_responses(t):
    place = {"type": "object", "properties": {"place": {"enum": ["park"]}}, "required": ["place"]}
    out = answers(t, lines_of(
        {"messages": [{"role": "user", "content": "Look!"}], "tools": [
            {"type": "function", "function": {"name": "look", "parameters": place}}], "tool_choice": "required",
         "max_tokens": 120},
        wrapped("r", {"input": "Hello", "max_output_tokens": 3}, "/v1/responses")))
    choice = out[0]["response"]["body"]["choices"][0]
    call = choice["message"]["tool_calls"][0]
    t.equal((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None), "a call")
    t.equal((call["function"]["name"], json.loads(call["function"]["arguments"])), ("look", {"place": "park"}), "of look")
    response = out[1]["response"]["body"]
    t.equal((response["object"], response["status"], response["created_at"]), ("response", "incomplete", 0), "a response")
    t.check(response["output"][0]["content"][0]["text"], "with text")
    t.check("input_tokens_details" not in response["usage"], "and without what depends on caches")


def test_logprobs(t):
    text, chat = answers(t, lines_of(dict(PLAIN[0], logprobs=3), dict(PLAIN[2], logprobs=True, top_logprobs=2)))
    p = text["response"]["body"]["choices"][0]["logprobs"]
    t.equal("".join(p["tokens"]), text_of(text), "the tokens are the text")
    t.equal([len(p[k]) for k in ("token_logprobs", "top_logprobs", "text_offset")], [6] * 3, "lengths")
    t.check(all(len(x) == 3 and max(x.values()) < 0 for x in p["top_logprobs"]), "likeliest tokens")
    t.equal([text_of(text)[o:o + len(s)] for o, s in zip(p["text_offset"], p["tokens"])], p["tokens"], "offsets")
    p = chat["response"]["body"]["choices"][0]["logprobs"]["content"]
    t.equal(b"".join(bytes(x["bytes"]) for x in p).decode(), text_of(chat), "the bytes are the text")
    for x in p:
        top = [y["logprob"] for y in x["top_logprobs"]]
        t.check(len(top) == 2 and top[0] >= top[1] and top[0] >= x["logprob"], f"best first: {x}")


def test_forms(t):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 9},
              "ok": {"type": "boolean"}}, "required": ["age", "ok"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    out = answers(t, lines_of(
        *({"prompt": "Tom", "response_format": form, "seed": i} for i in range(5)),
        {"prompt": "Tom", "grammar": 'root ::= "yes" | "no"'}, {"prompt": "Tom", "grammar": "root ::= ["},
        {"prompt": "Tom", "response_format": {"type": "json_object"}, "grammar": "root ::= [a]"},
        {"prompt": "x", "logit_bias": {"5": 100}, "temperature": 0, "max_tokens": 3}))
    for a in out[:5]:
        j = json.loads(text_of(a))
        t.check(sorted(j) == ["age", "ok"] and 0 <= j["age"] <= 9 and isinstance(j["ok"], bool), f"{j}")
        t.equal(a["response"]["body"]["choices"][0]["finish_reason"], "stop", "reason")
    t.check(text_of(out[5]) in ("yes", "no"), "grammar")
    t.equal([a["response"]["status_code"] for a in out[6:8]], [400, 400], "bad ones")
    t.equal(text_of(out[8]), 3 * t.run("tokenize", "--decode", stdin=b"5").text, "bias")


def test_stop(t):
    whole = text_of(answers(t, lines_of(dict(PLAIN[1], max_tokens=40)))[0])
    word = whole.split()[4]
    a = answers(t, lines_of(dict(PLAIN[1], max_tokens=40, stop=word)))[0]
    t.equal(text_of(a), whole[:whole.index(word)], "cut before the stop string")
    t.equal(a["response"]["body"]["choices"][0]["finish_reason"], "stop", "reason")


def test_bad_lines(t):
    bad = [("not json", "bad JSON"), ("[1, 2]", "not a JSON object"), ('{"prompt": "x"', "bad JSON"),
           ('{"a": 1, "a": 2}', "bad JSON"), ("{}", "no 'prompt'"), ('{"prompt": 7}', "prompt"),
           ('{"prompt": "x", "temperature": 1000}', "'temperature' is 1000; 0 to 5 is possible"),
           ('{"prompt": "x", "temprature": 1}', "'temprature'"),
           ('{"prompt": "x", "stream": true}', "stream"),
           (json.dumps({"prompt": "word " * 2000}), "context of"),
           ('{"prompt": [2000000000]}', "2000000000"),
           ('{"custom_id": 5, "prompt": "x"}', "custom_id"),
           (json.dumps(wrapped("e", {"input": "x"}, "/v1/embeddings")), "/v1/embeddings"),
           (json.dumps(wrapped("g", {"prompt": "x"}, method="GET")), "'GET'"),
           (json.dumps({"custom_id": "u", "body": {"prompt": "x"}}), "url"),
           (json.dumps(wrapped("b", [])), "not an object")]
    good = json.dumps(PLAIN[1])
    out = answers(t, "".join(f"{line}\n{good}\n" for line, _ in bad).encode())
    t.equal(len(out), 2 * len(bad), "a bad line stops nothing")
    for (line, says), a, fine in zip(bad, out[0::2], out[1::2]):
        t.equal((a["response"]["status_code"], a["error"]), (400, None), f"status of {line[:60]}")
        t.check(says in error_of(a), f"{line[:60]}: {says!r} is not in {error_of(a)!r}")
        t.equal(a["response"]["body"]["error"]["type"], "invalid_request_error", "type")
        t.equal(text_of(fine), text_of(out[1]), "the good ones are answered")
    t.equal(out[24]["custom_id"], "e", "a line that can be read keeps its custom_id")
    t.equal(out[0]["custom_id"], None, "one that cannot has none")
    out = answers(t, b'{"prompt": "\xff"}\n\x00\n')
    t.check(all("bad JSON" in error_of(a) for a in out) and len(out) == 2, "bytes that are no text")


def test_line_ends(t):
    plain = answers(t, lines_of(*PLAIN))
    text = [json.dumps(q) for q in PLAIN]

    def same(data, what):
        # an id also covers the bytes of the line, and those are the same
        t.equal(answers(t, data), plain, what)

    same("\r\n".join(text) + "\r\n", "CR LF")
    same("\n\n  \n" + "\n\n\t\n".join(text) + "\n\n", "blank lines")
    same("\n".join(text), "no end of the last line")
    same(b"\xef\xbb\xbf" + "\n".join(text).encode(), "byte order mark")
    t.equal(answers(t, ""), [], "no lines")
    t.equal(answers(t, "\n \n\r\n"), [], "only blank ones")


def test_long_lines(t):
    def padded(n):  # a line of exactly n bytes
        return json.dumps(dict(PLAIN[1], user="")).replace('""', '"' + "x" * (n - len(json.dumps(
            dict(PLAIN[1], user="")))) + '"')
    good = json.dumps(PLAIN[1])
    for n, fits in ((LINE_MAX, True), (LINE_MAX + 1, False), (LINE_MAX + 70000, False), (3 * LINE_MAX, False)):
        for end in ("\n", "\n" + good, "\n" + good + "\n", ""):
            if n != LINE_MAX and not end:
                continue
            out = answers(t, good + "\n" + padded(n) + end)
            t.equal(len(out), 3 if good in end else 2, f"lines around one of {n} bytes")
            t.equal([text_of(a) for a in out[0::2]], [text_of(out[0])] * len(out[0::2]), "its neighbours")
            t.check(fits == (out[1]["response"]["status_code"] == 200), f"a line of {n} bytes")
            t.check(fits or str(LINE_MAX) in error_of(out[1]), "the limit is named")


def batch(t, *more, name="out.jsonl", **how):
    t.keeps(name)
    return t.run("batch", "-i", "in.jsonl", "-o", name, "-q", *more, **how)


def test_resume(t):
    t.write("in.jsonl", lines_of(*PLAIN, {"bad": 1}))
    batch(t)
    whole = t.path("out.jsonl").read_bytes()
    t.equal(whole.count(b"\n"), 5, "lines")
    batch(t)
    t.equal(t.path("out.jsonl").read_bytes(), whole, "nothing left to do")
    ends = [i + 1 for i, c in enumerate(whole) if c == 10]
    for cut in [0, 1, 10] + ends:
        t.path("out.jsonl").write_bytes(whole[:cut])
        j = batch(t, "--json").json()
        t.equal(t.path("out.jsonl").read_bytes(), whole, f"cut to {cut} bytes")
        t.equal((j["found"], j["requests"]), (whole[:cut].count(b"\n"), 5), "found")
    for n in range(1, 6):
        batch(t, "--limit", str(n), "-j", str(n), name="limited.jsonl")
        t.equal(t.path("limited.jsonl").read_bytes(), whole[:ends[n - 1]], f"--limit {n}")
    # a machine that went down may leave zeros
    t.path("out.jsonl").write_bytes(whole[:ends[2] + 20] + bytes(4096))
    batch(t)
    t.equal(t.path("out.jsonl").read_bytes(), whole, "zeros at the end")


def test_resume_knows_the_weights(t):
    """Another model under the same name and of the same size is refused; the same weights in another file are not."""
    t.write("in.jsonl", lines_of(*PLAIN[:2]))
    t.keeps(*"abc", *(f"{name}/m.gguf" for name in "abc"))
    for name in "abc":
        t.path(name).mkdir()
    for name in "ab":
        t.run("synth", "tiny", f"{name}/m.gguf", "--seed", str(ord(name)))
    t.run("convert", "a/m.gguf", "c/m.gguf", "--type", "tq2_0", "--head-type", "keep")
    t.equal(t.path("a/m.gguf").stat().st_size, t.path("b/m.gguf").stat().st_size, "sizes")
    batch(t, "-m", "a/m.gguf", "--limit", "1")
    t.says(batch(t, "-m", "b/m.gguf", code=1), "does not answer line 1", "--restart")
    t.equal(batch(t, "-m", "c/m.gguf", "--json").json()["found"], 1, "the same weights")


def test_scrub(t):
    """Weights that change under a long run, here because somebody writes to the packed file: it ends, and says since when."""
    t.write("in.jsonl", lines_of(*[{"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True}] * 5000))
    t.keeps("packed.gguf", "out.jsonl")
    t.run("convert", "embedded", "packed.gguf", "--packed")
    p = subprocess.Popen([t.program, "batch", "-m", "packed.gguf", "-i", "in.jsonl", "-o", "out.jsonl", "-q", "-j", "2",
                          "--scrub", "65536"], cwd=t.folder, env=t.env, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    with open(t.path("packed.gguf"), "r+b") as f:
        size = f.seek(0, os.SEEK_END)
        for at in range(size // 4, size - 4096, size // 16):
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 4]))
    said = p.communicate(timeout=60)[1]
    t.equal(p.returncode, 1, f"exit code; it said {said!r}")
    t.check(said.startswith("bitnet: the weights have changed in memory: ") and said.count("\n") == 1, said)


def test_resume_refused(t):
    t.write("in.jsonl", lines_of(*PLAIN))
    batch(t)
    whole = t.path("out.jsonl").read_bytes()

    def refused(*more, says="does not answer line"):
        r = batch(t, *more, code=1)
        t.says(r, says, "--restart")
        t.equal(t.path("out.jsonl").read_bytes(), whole, "the output is left alone")

    for more in (["-n", "3"], ["--seed", "3"], ["-c", "100"], ["--kv-type", "f32"], ["--kv-type-v", "int8"],
                 ["--kv-tokens", "100"],
                 ["--chat-template", "chatml"]):
        refused(*more)
    t.write("plan.json", json.dumps({"format": "bitnet-plan-1", "head": "int8"}))
    refused("--plan", "plan.json")
    for more in (["-t", "1"], ["-j", "2"], ["--backend", "scalar"], ["--head", "exact"],
                 ["--max-num-batched-tokens", "16"]):
        batch(t, *more)  # nothing that an answer depends on
    t.write("in.jsonl", lines_of(PLAIN[0], PLAIN[1], dict(PLAIN[2], max_tokens=4), PLAIN[3]))
    refused(says="line 3 of 'out.jsonl' does not answer line 3 of 'in.jsonl'")
    t.write("in.jsonl", lines_of(*PLAIN[:3]))
    refused(says="more answers")
    t.write("in.jsonl", lines_of(*PLAIN, PLAIN[0]))
    batch(t)
    t.check(t.path("out.jsonl").read_bytes().startswith(whole), "more requests may follow later")
    batch(t, "-n", "3", "--restart")
    t.check(t.path("out.jsonl").read_bytes() != whole, "--restart")
    for foreign in (b"precious\n", b"precious", b"\x00\x01", b"{", b'{"id":"x"}\n', b"\n"):
        t.path("out.jsonl").write_bytes(foreign)
        whole = foreign
        if b'{"id":"batch_req_'.startswith(foreign):
            continue  # could be the beginning of a torn line
        refused()


def test_files(t):
    t.write("in.jsonl", lines_of(*PLAIN))
    t.fails("batch", "-i", "none.jsonl", "-o", "out.jsonl", says="none.jsonl")
    t.fails("batch", "-i", "in.jsonl", "-o", "no/such/out.jsonl", says="no/such/out.jsonl")
    t.fails("batch", "-i", "in.jsonl", "-o", "in.jsonl", says="both input and output")
    t.equal(t.path("in.jsonl").read_text(), lines_of(*PLAIN), "the input is left alone")
    t.fails("batch", "-i", ".", "-o", "-", says="cannot read")
    t.run("batch", "-i", "in.jsonl", "-o", "/dev/null", "-q")
    t.usage("batch", "-o", "x", says="--input")
    t.usage("batch", "-i", "x", says="--output")
    t.usage("batch", "-i", "x", "-o", "-", "--json", says="--json")
    t.usage("batch", "-i", "x", "-o", "y", "-j", "0", says="-j expects")
    t.usage("batch", "-i", "x", "-o", "y", "--max-num-seqs", "1025", says="1 to 1024")
    r = t.run("batch", "-i", "in.jsonl", "-o", "out.jsonl")
    t.keeps("out.jsonl")
    t.equal((r.out, r.errors.count("\n")), (b"", 1), "the summary is one line")
    t.check(r.errors.startswith("4 requests answered; 34 tokens in"), f"summary {r.errors!r}")
    j = t.run("batch", "-i", "in.jsonl", "-o", "out.jsonl", "--json", "--restart").json()
    t.equal([j[k] for k in ("requests", "found", "failed", "answer_tokens")], [4, 0, 0, 34], "JSON")
    t.check(j["engine"]["steps"] >= 12 and j["engine"]["preemptions"] == 0, f"engine {j['engine']}")


def test_one_at_a_time(t):
    """A program that waits for each answer before it asks again gets it."""
    with subprocess.Popen([t.program, "batch", "-i", "-", "-o", "-", "-q"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, cwd=t.folder, env=t.env) as p:
        for i, q in enumerate(PLAIN, 1):
            p.stdin.write(lines_of(q).encode())
            p.stdin.flush()
            t.equal(json.loads(p.stdout.readline())["custom_id"], f"request-{i}", "its answer")
        p.stdin.close()
        t.equal((p.stdout.read(), p.wait()), (b"", 0), "the end")


def test_two_runs_on_one_output(t):
    t.write("in.jsonl", lines_of(*PLAIN))
    t.keeps("out.jsonl")
    with subprocess.Popen([t.program, "batch", "-i", "-", "-o", "out.jsonl", "-q"], cwd=t.folder,
                          stdin=subprocess.PIPE, env=t.env) as p:
        p.stdin.write(lines_of(PLAIN[0]).encode())
        p.stdin.flush()
        while not t.path("out.jsonl").exists() or not t.path("out.jsonl").read_bytes():
            pass  # until it has begun, and so has locked the file
        t.says(batch(t, code=1), "another run")
        p.stdin.close()
        t.equal(p.wait(), 0, "the first one is not disturbed")


def test_interrupt(t):
    t.write("in.jsonl", lines_of(*({"prompt": "Once", "max_tokens": 400, "ignore_eos": True}
                                   for _ in range(200))))
    term = t.terminal("batch", "-i", "in.jsonl", "-o", "out.jsonl", "-t", "1")
    t.keeps("out.jsonl")
    term.until(rb"batch \[[#.]+\] +\d+ % [1-9]\d*/200, \d+ tok/s, \d+:\d\d left")
    term.interrupt()
    seen = term.end(130)
    t.check(b"requests are answered; the same command goes on from here" in seen, f"said {seen!r}")
    part = t.path("out.jsonl").read_bytes()
    n = part.count(b"\n")
    t.check(0 < n < 200 and part.endswith(b"}\n"), f"{n} whole lines")
    j = batch(t, "--json", "--limit", str(n + 3)).json()
    t.equal((j["found"], j["requests"]), (n, n + 3), "it goes on from there")
    t.check(t.path("out.jsonl").read_bytes().startswith(part), "and keeps what was there")


def test_dry_run(t):
    t.write("in.jsonl", lines_of(*PLAIN, {"prompt": "x", "n": 3}, {"prompt": "x", "top_q": 1}) + "bad\n")
    j = t.run("batch", "-i", "in.jsonl", "--dry-run", "--json", "-j", "4", "-c", "128", "-n", "10").json()
    prompts = [a["response"]["body"]["usage"]["prompt_tokens"] for a in answers(t, lines_of(*PLAIN))]
    x = len(t.run("tokenize", "--bos", stdin=b"x").text.split())
    t.equal((j["requests"], j["bad"]), (7, 2), "requests")
    t.equal([(b["line"], b["custom_id"]) for b in j["bad_lines"]], [(6, "request-6"), (7, None)], "bad lines")
    t.check("'top_q'" in j["bad_lines"][0]["message"], "why it is bad")
    t.equal((j["prompt_tokens"], j["prompt_tokens_max"]), (sum(prompts) + x, max(prompts)), "prompts")
    t.equal(j["answer_tokens_max"], 6 + 9 + 12 + 7 + 3 * 10, "answers")
    m = j["memory"]
    t.equal((j["sequences"], j["ctx_tokens"]), (4, 128), "sizes")
    t.equal(m["total_bytes"], m["weights_bytes"] + m["kv_bytes"] + m["state_bytes"] + m["scratch_bytes"], "sum")
    t.equal(m["sequence_bytes"] * 4, m["kv_bytes"], "a sequence")
    run = t.run("run", "-n", "1", "-c", "128", "--json", "x").json()["memory"]
    t.equal(m["sequence_bytes"], run["kv_bytes"], "as much as run takes for one")
    t.check(abs(j["sequences_fit"] - (m["available_bytes"] - m["scratch_bytes"]) // m["sequence_bytes"]) <= 1,
            "how many fit")
    k = t.run("batch", "-i", "in.jsonl", "--dry-run", "--json", "-j", "8", "-c", "128").json()
    t.equal(k["memory"]["kv_bytes"], 2 * m["kv_bytes"], "twice as many sequences")
    r = t.run("batch", "-i", "in.jsonl", "--dry-run")
    t.check("requests  7, 2 bad" in r.text and "line 7: bad JSON" in r.text, f"text {r.text}")
    t.check(not os.path.exists(t.path("out.jsonl")), "nothing is written")


def shards(t, n, *options, again=()):
    """Runs the shards of in.jsonl; their files."""
    files = [f"part-{i}.jsonl" for i in range(1, n + 1)]
    for i, f in enumerate(files, 1):
        if not again or i in again:
            t.run("batch", "-i", "in.jsonl", "-o", f, "--shard", f"{i}/{n}", "-q", *options)
            t.keeps(f)
    return files


def merge(t, files, *options, **more):
    return t.run("batch", "merge", "-i", "in.jsonl", "-o", "out.jsonl", *files, *options, **more)


def test_shards(t):
    long = {"prompt": "Once upon a time " * 400, "max_tokens": 3, "temperature": 0}
    t.write("in.jsonl", lines_of(*PLAIN, long, {"bad": 1}) + "\n" + lines_of(*PLAIN[::-1]) + "nonsense\n"
            + lines_of({"prompt": "The end"}, PLAIN[0])[:-1])
    t.keeps("out.jsonl")
    whole = batch(t, "-n", "8") and t.path("out.jsonl").read_bytes()
    t.path("out.jsonl").unlink()
    for n in (1, 2, 3, 20):
        files = shards(t, n, "-n", "8")
        parts = [t.path(f).read_bytes() for f in files]
        t.equal(sorted(b"".join(parts).splitlines()), sorted(whole.splitlines()), f"{n} shards have every request once")
        j = merge(t, files, "--json", "--restart").json()
        t.equal((j["answers"], j["shards"]), (13, n), f"{n} shards")
        t.equal(t.path("out.jsonl").read_bytes(), whole, f"{n} shards, merged")
        t.equal(t.run("batch", "merge", "-i", "in.jsonl", "-o", "-", *files, "-q").out, whole, "to standard output")
        for f in files:
            t.path(f).unlink()
    sizes = [len(p.splitlines()) for p in parts if p]
    t.check(max(sizes) == 1, f"more shards than requests: one each, but {sizes}")
    t.write("in.jsonl", lines_of(*[long] * 2, *PLAIN[:2] * 10))
    counts = [len(t.path(f).read_text().splitlines()) for f in shards(t, 2, "-n", "1")]
    t.check(sum(counts) == 22 and min(counts) >= 9, f"long prompts count for more: {counts}")


def test_merge_finds_what_is_missing(t):
    t.write("in.jsonl", lines_of(*PLAIN * 3))
    files = shards(t, 3)
    t.keeps("out.jsonl")
    merge(t, files)
    whole = t.path("out.jsonl").read_bytes()
    t.says(merge(t, files, code=1), "exists already")
    t.path("out.jsonl").unlink()
    data = t.path(files[1]).read_bytes()
    t.path(files[1]).write_bytes(data[:len(data) - 40])  # the last answer is torn
    t.says(merge(t, files, code=1), "1 of 12 answers are missing, 1 of them of shard 2/3 in 'part-2.jsonl'; "
                                    "run it with --shard 2/3 again")
    t.check(not t.path("out.jsonl").exists(), "nothing is written")
    shards(t, 3, again=[2])
    merge(t, files)
    t.equal(t.path("out.jsonl").read_bytes(), whole, "after that shard went on")
    t.path("out.jsonl").unlink()
    t.says(merge(t, files[::-1], code=1), "does not answer line")
    t.says(merge(t, files[:2], code=1), "does not answer line")
    t.says(merge(t, [files[0], files[0], files[2]], code=1), "does not answer line")
    t.path(files[2]).unlink()
    shards(t, 3, "--seed", "5", again=[3])
    t.says(merge(t, files, code=1), "all shards in order, and answers made with one model and the same options")
    t.path(files[2]).unlink()
    t.write("in.jsonl", lines_of(*PLAIN * 4))
    shards(t, 3, again=[3])
    t.write("in.jsonl", lines_of(*PLAIN * 3))
    t.says(merge(t, files, code=1), "holds more answers than shard 3/3 has requests (4)")
    t.says(merge(t, [*files, "none.jsonl"], code=1), "cannot open 'none.jsonl'")
    t.write(files[0], "nonsense\n")
    t.says(merge(t, files, code=1), "line 1 of 'part-1.jsonl'")
    t.check(not t.path("out.jsonl").exists(), "nothing is written")


def test_shards_refused(t):
    t.write("in.jsonl", lines_of(*PLAIN))
    for typed in ("0/4", "5/4", "4", "1/", "/2", "1/4x", "1/1025", "-1/2", ""):
        t.says(batch(t, "--shard", typed, code=2), "is not a part of a batch: 1/4 is the first of four")
    t.says(merge(t, [], code=2), "the answers of all shards")
    t.says(merge(t, ["a"], "--shard", "1/2", code=2), "not --shard")
    t.says(batch(t, "embedded", "more", code=2), "'more' is one argument too many")
