# SPDX-License-Identifier: Apache-2.0
"""Attacks by what bodies say: JSON, text, numbers, schemas and grammars; see abuse.py."""
import concurrent.futures
import http.client
import json
import time

from abuse_http import Raw, post
from serving import until

TEXT, CHAT, RESPONSE, EMBED = "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"
SHORT = {TEXT: {"prompt": "Once", "max_tokens": 1}, EMBED: {"input": "Once"},
         CHAT: {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 1},
         RESPONSE: {"input": "Once", "max_output_tokens": 1},
         "/tokenize": {"content": "Once"}, "/detokenize": {"tokens": [1]},
         "/apply-template": {"messages": [{"role": "user", "content": "Once"}]}}


class Asker:
    """Requests over one connection, with the time that each took; the slowest are told."""

    def __init__(self, s):
        self.c, self.s, self.times = s.connect(), s, []

    def status(self, path, body, name=""):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        start = time.monotonic()
        try:
            self.c.request("POST", path, body, self.s.headers())
            r = self.c.getresponse()
        except (ConnectionError, http.client.HTTPException):
            self.c.close()  # it was closed after the last reply, or while a large body was sent
            self.c.request("POST", path, body, self.s.headers())
            r = self.c.getresponse()
        text = r.read()
        self.times.append((time.monotonic() - start, name or path))
        if r.status >= 400:
            assert json.loads(text)["error"]["message"], text
        return r.status

    def slowest(self, n=3):
        return f"{len(self.times)} requests; slowest: " + ", ".join(f"{w} {t:.2f} s" for t, w in sorted(self.times)[:-n - 1:-1])


def nested(opening, n, inside=b"1", closing=None):
    return opening * n + inside + (closing if closing is not None else b"]") * n


MIB = 1 << 20
BAD_JSON = {
    "deep arrays": nested(b"[", 100000),
    "deep objects": nested(b'{"a":', 100000, closing=b"}"),
    "deep, no end": b"[" * (15 * MIB),
    "deep inside": b'{"prompt": ' + nested(b"[", 100000) + b"}",
    "digits": b'{"prompt": "a", "max_tokens": ' + b"9" * (15 * MIB) + b"}",
    "fraction": b'{"prompt": "a", "temperature": 0.' + b"1" * (15 * MIB) + b"}",
    "1e400": b'{"prompt": "a", "temperature": 1e400}',
    "-1e400": b'{"prompt": "a", "temperature": -1e400}',
    "NaN": b'{"prompt": "a", "temperature": NaN}',
    "2^64": b'{"prompt": "a", "max_tokens": 18446744073709551616}',
    "2^63": b'{"prompt": "a", "max_tokens": 9223372036854775808}',
    "empty": b"", "space": b" " * (15 * MIB), "a word": b"null", "an array": b"[]",
    "rest": b'{"prompt": "a"} {}', "NUL": b'{"prompt": "a"}\0', "BOM": b'\xef\xbb\xbf{"prompt": "a"}',
    "not UTF-8": b'{"prompt": "\xff\xfe"}', "overlong": b'{"prompt": "\xc0\x80"}', "cut UTF-8": b'{"prompt": "\xf0\x9f"}',
    "surrogate as UTF-8": b'{"prompt": "\xed\xa0\x80"}', "lone surrogate": b'{"prompt": "\\ud800"}',
    "second half": b'{"prompt": "\\udc00a"}', "reversed": b'{"prompt": "\\udc00\\ud800"}',
    "key with NUL": b'{"prom\\u0000pt": "a"}', "model with NUL": b'{"prompt": "a", "model": "a\\u0000b"}',
    "twice": b'{"prompt": 1, "prompt": 2}',
    "many small arrays": b'{"prompt": [' + b"[]," * (5 * MIB) + b"[]]}",
    "many objects": b'{"prompt": [' + b'{"a":1},' * MIB + b"[]]}",
    "many keys": b"{" + b",".join(b'"%d":1' % i for i in range(500000)) + b"}",
    "million ids": b'{"prompt": [' + b"1," * MIB + b"1]}",
    "million texts": b'{"prompt": [' + b'"",' * MIB + b'""]}',
    "long prompt": b'{"prompt": "' + b"a" * (15 * MIB) + b'"}',
    "escapes": b'{"prompt": "' + b"\\u00e4" * (2 * MIB) + b'"}',
    "16384 answers": json.dumps({"prompt": ["a"] * 128, "n": 128}).encode(),
    "n": b'{"prompt": "a", "n": 129}',
    "biases": json.dumps({"prompt": "a", "logit_bias": {str(i): 1 for i in range(100000)}}).encode(),
    "stops": json.dumps({"prompt": "a", "stop": ["x"] * 100000}).encode(),
    "long stop": json.dumps({"prompt": "a", "stop": "x" * MIB}).encode(),
    "breakers": json.dumps({"prompt": "a", "dry_breakers": ["x"] * 100000}).encode(),
    "messages": json.dumps({"messages": [{"role": "user", "content": "a"}] * 100000}).encode(),
}
FINE = {"fraction"}  # a number like any other


def bad_json(s, long):
    """Bodies that are no request: each is told so, by an error in OpenAI's form."""
    asker = Asker(s)
    for name, body in BAD_JSON.items():
        code = asker.status(CHAT if name == "messages" else TEXT, body, name)
        assert code == (200 if name in FINE else 400), f"{name}: {code}"
    return asker.slowest()


def odd_texts(s, long):
    """Texts that are unusual, and fine."""
    asker = Asker(s)
    for text in ("\0", "a\0b", "\ufffd", "\U0010ffff", "\u202e", "\ufeff", "<|endoftext|>", "</s>", "%s%n", "a" * 1000, "\t\r\n"):
        for path in (TEXT, CHAT, RESPONSE, EMBED, "/tokenize", "/apply-template"):
            body = json.loads(json.dumps(SHORT[path]).replace('"Once"', json.dumps(text)))
            code = asker.status(path, body)
            assert code in (200, 400), f"{path} {text!r}: {code}"
    return asker.slowest(1)


FIELDS = """messages prompt input instructions model stream stream_options max_tokens max_completion_tokens max_output_tokens
n stop ignore_eos logprobs top_logprobs include echo response_format text grammar seed temperature top_p min_p top_k typical_p
top_n_sigma adaptive repetition_penalty presence_penalty frequency_penalty penalty_last_n dry_multiplier dry_base
dry_allowed_length dry_last_n dry_breakers logit_bias truncation previous_response_id conversation metadata reasoning store user
parallel_tool_calls tool_choice tools background best_of functions suffix content tokens add_special with_pieces
add_special_tokens return_token_strs
encoding_format dimensions pooling add_generation_prompt nothing""".split()
VALUES = [None, True, 0, -1, 1.5, 2 ** 63 - 1, 1e308, "", "x", "\0", [], {}, [None], [[]], [{}], {"": None}, {"type": {}},
          [{"type": "function", "function": []}], [{"role": 5, "content": {}}], {"5": "x"}, {"type": "json_schema", "schema": 3}]


def wrong_types(s, long):
    """Every member of every endpoint with values of every type: fine, or refused with a reason; never worse."""
    asker, fine = Asker(s), 0
    for path, whole in SHORT.items():
        for i, field in enumerate(FIELDS):
            for value in VALUES if long else VALUES[i % 3::3]:
                code = asker.status(path, {**whole, field: value}, f"{path} {field}")
                assert code in (200, 400), f"{path} {field} {value!r}: {code}"
                fine += code == 200
        for value in VALUES:
            code = asker.status(path, value)
            assert code == 400, f"{path} {value!r}: {code}"
    return f"{fine} were fine; {asker.slowest()}"


def schema_of(depth, wide):
    return {"type": "object", "properties": {f"p{i}": schema_of(depth - 1, wide) for i in range(wide)}} if depth else {}


def deep_schema(n):
    schema = {"type": "string"}
    for _ in range(n):
        schema = {"type": "array", "items": schema}
    return schema


RECURSIVE = {"$defs": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}}, {"$ref": "#/$defs/b"}]},
                       "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/b"}}]}},
             "$ref": "#/$defs/a"}
SCHEMAS = {
    "wide": schema_of(2, 60), "wider": schema_of(3, 30), "deep": deep_schema(200), "too deep": deep_schema(300),
    "recursive": RECURSIVE, "itself": {"$ref": "#"}, "circle": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "enum": {"enum": [f"word{i}" * 5 for i in range(20000)]}, "long const": {"const": "x" * 500000},
    "repeats": {"type": "string", "minLength": 10000, "maxLength": 16000},
    "items": {"type": "array", "items": {"type": "array", "items": {"enum": list(range(100))}, "maxItems": 100}, "maxItems": 100},
    "pattern": {"type": "string", "pattern": "^(a|a)*(a|aa)*(a?){100}a{100}$"},
    "pattern nest": {"type": "string", "pattern": "^" + "(" * 200 + "a" + ")*" * 200 + "$"},
    "classes": {"type": "string", "pattern": "^" + "".join(f"[\\u{i:04x}-\\uffff]" for i in range(256, 1000)) + "$"},
    "anyOf": {"anyOf": [{"type": "object", "properties": {"a" * i: {}}, "required": ["a" * i]} for i in range(1, 500)]},
    "allOf": {"allOf": [{"properties": {f"a{i}": {"type": "integer"}}} for i in range(1000)]},
    "numbers": {"type": "integer", "minimum": -10 ** 18, "maximum": 10 ** 18},
    "required": {"type": "object", "properties": {f"p{i}": {} for i in range(500)}, "required": []},
}
GRAMMARS = {
    "doubling": "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)) + '\nr60 ::= "a"\n',
    "doubling choice": "root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} r{i + 1} | "a"' for i in range(60)) + '\nr60 ::= "b"\n',
    "left": 'root ::= root "a" | "b"', "left around": 'root ::= a\na ::= b "x"\nb ::= a | "y"', "empty left": 'root ::= e root "a" | "b"\ne ::= ""',
    "never ends": "root ::= a\na ::= [a-z] a", "stars": "root ::= " + "(" * 200 + "[a-z]" + ")*" * 200,
    "ambiguous": 'root ::= a*\na ::= b | c | d\nb ::= [a-z]*\nc ::= [a-z]+\nd ::= [a-z]? [a-z]?', "repeats": "root ::= [a-z]{16000}",
    "repeats twice": "root ::= ([a-z]{100}){100}", "repeats thrice": "root ::= (([a-z]{0,100}){0,100}){0,100}",
    "classes": "root ::= " + " ".join(f"[\\u{i:04X}-\\uFFFF]" for i in range(256, 1500)),
    "rules": "root ::= r0\n" + "\n".join(f'r{i} ::= "a" r{i + 1} | [b-y] r{i // 2}' for i in range(8000)) + '\nr8000 ::= "z"\n',
    "megabyte": "root ::= " + " | ".join(f'"{i:08d}"' for i in range(80000)), "open": "root ::= " + "(" * 100000,
    "words": "root ::= w*\nw ::= " + " | ".join(f'"{chr(97 + i % 26)}{chr(97 + i // 26)}" w' for i in range(600)),
    "anything": "root ::= [^x]* " * 50,
    "circles": 'root ::= "x" r0 | "z"\nr0 ::= "x" r1 | "y" root\n' +
               "".join(f'r{i} ::= "x" r{i + 1} | "y" r{i - 1}\n' for i in range(1, 8000)) + 'r8000 ::= "y" r7999\n',
    "palindrome": 'root ::= "a" root "a" | "b" root "b" | [a-z]*',
}


def hard_forms(s, long):
    """Schemas and grammars that are enormous, endless or exponential. Others are computed meanwhile."""
    asker, fine = Asker(s), 0
    for name, schema in SCHEMAS.items():
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        code = asker.status(CHAT, {**SHORT[CHAT], "max_tokens": 30, "response_format": form}, f"schema '{name}'")
        assert code in (200, 400), f"{name}: {code}"
        fine += code == 200
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        code = asker.status(CHAT, {**SHORT[CHAT], "tools": [tool], "tool_choice": "required"}, f"tool '{name}'")
        assert code in (200, 400), f"tool {name}: {code}"
    for name, grammar in GRAMMARS.items():
        code = asker.status(TEXT, {**SHORT[TEXT], "max_tokens": 30, "grammar": grammar}, f"grammar '{name}'")
        assert code in (200, 400), f"{name}: {code}"
        fine += code == 200
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": schema_of(1, 10)}} for i in range(128)]
    code = asker.status(CHAT, {**SHORT[CHAT], "tools": tools}, "128 tools")
    assert code in (200, 400), code
    return f"{fine} were fine; {asker.slowest(5)}"


def greedy(s, long):
    """Much work in few requests: 128 answers to a long prompt, 16 prompts with 8 answers each, 1,000 embeddings."""
    ids = s.post("/tokenize", {"content": "One day a boy and his dog went to the park. " * 20}).json()["tokens"]
    bodies = [(TEXT, {"prompt": ids[:200], "n": 128, "max_tokens": 4}), (TEXT, {"prompt": [ids[:50]] * 16, "n": 8, "max_tokens": 4}),
              (EMBED, {"input": [ids[:20]] * 1000}), (EMBED, {"input": ["A cat sat on the mat. " * 10] * 200}),
              (EMBED, {"input": ids[:200]})]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        replies = [f.result() for f in [pool.submit(s.post, *b) for b in bodies]]
    # slow builds may run into --timeout
    assert all(r.status in (200, 504) for r in replies), [r.body[:300] for r in replies]
    request = post(EMBED, {"input": [ids[:200]] * 2000})
    had = s.metric("bitnet_received_bytes_total")
    with Raw(s) as c:  # goes before they are computed
        c.send(request)
        until("the server has it", lambda: s.metric("bitnet_received_bytes_total") >= had + len(request))
    return f"{len(bodies)} requests"


def scored_prompts(s, long):
    """Log-probabilities of long prompts, as many as a reply may hold, whole and streamed; and clients that leave."""
    asker, ids = Asker(s), [7 + i % 500 for i in range(400)]
    scored = {"max_tokens": 0, "echo": True, "temperature": 0}
    for name, body, codes in (("20 of the likeliest", {"prompt": [ids] * 8, "logprobs": 20}, (200, 504)),
                              ("streamed", {"prompt": [ids] * 8, "logprobs": 20, "stream": True}, (200, 504)),
                              ("in 128 choices", {"prompt": ids[:95], "logprobs": 20, "n": 128}, (200, 504)),
                              ("too many choices", {"prompt": ids[:100], "logprobs": 20, "n": 128}, (400,)),
                              ("too many prompts", {"prompt": [ids] * 128, "logprobs": 5}, (400,)),
                              ("one token", {"prompt": [7], "logprobs": 20}, (200,)),
                              ("no token", {"prompt": [], "logprobs": 1}, (400,)),
                              ("no text", {"prompt": "", "logprobs": 1}, (200, 400))):
        code = asker.status(TEXT, {**scored, **body}, name)
        assert code in codes, f"{name}: {code}"
    for stream in (False, True):
        request = post(TEXT, {**scored, "prompt": [ids] * 20, "logprobs": 5, "stream": stream})
        had = s.metric("bitnet_received_bytes_total")
        with Raw(s) as c:
            c.send(request)
            until("the server has it", lambda: s.metric("bitnet_received_bytes_total") >= had + len(request))
    until("they are gone", lambda: s.metric("bitnet_num_requests_running", "bitnet_num_requests_waiting") == 0)
    return asker.slowest()


def large_json(s, long):
    """The largest bodies, of every kind, one after the other over four connections; and clients that go before theirs are
    read. Each is answered, in the order of its connection."""
    words, message = b"One day a boy and his dog went to the park. ", b'{"role": "user", "content": "%s"}'
    tool = b'{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {%s}}}}'
    member = b'"p": {"type": "string", "description": "' + words * 4 + b'"}'
    members = b", ".join(member.replace(b'"p"', b'"p%d"' % i) for i in range(4000))
    # as bytes: a client that makes JSON of so much holds up the healthy one beside it
    bodies = [("text", TEXT, b'{"prompt": "' + words * 300000 + b'"}', (400,)),
              ("ids", TEXT, b'{"prompt": [' + b"7," * 1000000 + b"7]}", (400,)),
              ("chat", CHAT, b'{"messages": [' + b",".join([message % b"a"] * 4096) + b'], "x": [' + b"1," * 900000 + b"1]}", (400,)),
              ("tools", CHAT, b'{"messages": [' + message % b"Once" + b'], "max_tokens": 1, "tools": [' + tool % members + b"]}",
               (200, 400)),
              ("tokenize", "/tokenize", b'{"content": "' + words * 45000 + b'"}', (200,)),
              ("embed", EMBED, b'{"input": [' + b'"%s",' % (words * 20) * 1900 + b'"%s"]}' % (words * 60), (400,)),
              ("template", "/apply-template", b'{"messages": [' + b",".join([message % (words * 8)] * 4000) + b"]}", (200,)),
              ("ignored", TEXT, b'{"prompt": "Once", "max_tokens": 1, "x": [' + b'"%s",' % (b"y" * 1000) * 15000 + b"1]}", (200,))]

    def ask(k):
        asker = Asker(s)
        for n, path, body, codes in bodies[k:] + bodies[:k]:
            code = asker.status(path, body, n)
            assert code in codes, f"{n}: {code}"
        return asker.times

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        times = sorted(t for f in [pool.submit(ask, 2 * k) for k in range(4)] for t in f.result())
    for _, path, body, _ in bodies:
        request, had = post(path, body), s.metric("bitnet_received_bytes_total")
        with Raw(s) as c:
            c.send(request)
            until("the server has it", lambda: s.metric("bitnet_received_bytes_total") >= had + len(request))
    with Raw(s) as c:  # a large one, and a small one behind it
        c.send(post(TEXT, bodies[-1][2]) + post("/tokenize", SHORT["/tokenize"]))
        first, second = c.reply(), c.reply()
        assert b'"choices"' in first[1] and b'"tokens"' in second[1], "replies in another order"
    until("they are gone", lambda: s.metric("bitnet_num_requests_running", "bitnet_num_requests_waiting") == 0)
    return f"{len(times)} bodies of up to {max(len(b[2]) for b in bodies) / MIB:.0f} MiB; slowest: {times[-1][1]} {times[-1][0]:.2f} s"


ATTACKS = [large_json, bad_json, odd_texts, wrong_types, hard_forms, greedy, scored_prompts]
