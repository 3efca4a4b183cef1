#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes seeds of the fuzzers, one folder of corpus/ a target: tiny inputs that are right, so that a
fuzzer starts behind the first checks. Run in this folder. Files of other names in these folders are
templates as they are published, and inputs that once broke something: they stay."""
import json
import os
import random
import struct

rnd = random.Random(4)
U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9
# id: weights in a block, bytes of a block, bytes before a row
BLOCKS = {0: (1, 4, 0), 1: (1, 2, 0), 2: (32, 18, 0), 8: (32, 34, 0), 12: (256, 144, 0),
          14: (256, 210, 0), 24: (1, 1, 0), 25: (1, 2, 0), 26: (1, 4, 0), 27: (1, 8, 0),
          28: (1, 8, 0), 30: (1, 2, 0), 34: (256, 54, 0), 35: (256, 66, 0), 41: (128, 18, 0),
          42: (64, 18, 0), 142: (128, 34, 0), 143: (128, 28, 0), 134: (64, 13, 2), 135: (64, 16, 4), 335: (64, 16, 4)}
Q2_0_128 = -42  # the older format that shares id 42
BLOCKS[Q2_0_128] = (128, 34, 0)


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STR:
        return string(v)
    if kind == ARRAY:
        elem, items = v
        return struct.pack("<IQ", elem, len(items)) + b"".join(value(elem, x) for x in items)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def gguf(meta, tensors, align=32, version=3):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(meta))
    for key, kind, v in meta:
        out += string(key) + struct.pack("<I", kind) + value(kind, v)
    data = b""
    for name, type_id, dims in tensors:
        n = 1
        for d in dims:
            n *= d
        if type_id == 36:
            size = n // 4 + 32
        else:
            block, n_bytes, head = BLOCKS[type_id]
            size = n // dims[0] * (head + dims[0] // block * n_bytes)
        out += string(name) + struct.pack("<I", len(dims))
        out += struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", abs(type_id), len(data))
        data += rnd.randbytes(size)
        data += bytes(-len(data) % align)
    return out + bytes(-len(out) % align) + data


def vocab(model, **more):
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "<|eot_id|>", "<0x0A>"]
    meta = [("general.architecture", STR, "bitnet-b1.58"), ("tokenizer.ggml.model", STR, model),
            ("tokenizer.ggml.tokens", ARRAY, (STR, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3, 1, 1, 1, 3, 6])),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.add_bos_token", BOOL, True)]
    if model == "llama":
        meta.append(("tokenizer.ggml.scores", ARRAY, (F32, [-0.5 * i for i in range(8)])))
    else:
        meta.append(("tokenizer.ggml.merges", ARRAY, (STR, ["a b", "ab a"])))
    return meta + [(k.replace("__", "."), STR, v) for k, v in more.items()]


def safetensors(entries, size, **meta):
    head = {"__metadata__": meta} if meta else {}
    for name, dtype, shape, begin, end in entries:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + rnd.randbytes(size)


def save(folder, name, data):
    os.makedirs("corpus/" + folder, exist_ok=True)
    with open("corpus/%s/%s" % (folder, name), "wb") as f:
        f.write(data)


arch = [("general.architecture", STR, "bitnet-b1.58")]
save("gguf", "empty", gguf([], []))
save("gguf", "plain", gguf(arch, [("a", i, [3]) for i in (0,)] +
                           [("t%d" % i, i, [4, 2]) for i in (1, 24, 25, 26, 27, 28, 30)]))
save("gguf", "dense", gguf(arch, [("t%d" % i, i, [256, 1]) for i in (2, 8, 12, 14)]))
save("gguf", "ternary", gguf(arch, [("t%d" % i, i, [256, 1])
                                     for i in (34, 35, 36, 41, 42, 134, 135)]))
save("gguf", "rows", gguf(arch, [("r4", 335, [64, 4]), ("straddle", 36, [32, 4]),
                                 ("d4", 0, [1, 2, 1, 2])]))
save("gguf", "q2_128", gguf(arch, [("q", Q2_0_128, [128, 16])]))
# blocks of 128, and the three formats of type 42, whose scales must look like scales
state = rnd.getstate()


def blocks(size, scale_at, n, zeros=True):
    out = b""
    for _ in range(n):
        codes = bytes(sum(rnd.choice((0, 1, 2) if zeros else (0, 2)) << 2 * k for k in range(4)) for _ in range(size - 2))
        out += codes[:scale_at] + struct.pack("<e", rnd.choice((0.02, 0.03, 0.05))) + codes[scale_at:]
    return out


def with_data(meta, tensors, made):
    whole = gguf(meta, tensors)
    data = b"".join(m + bytes(-len(m) % 32) for m in made)
    return whole[:len(whole) - len(data)] + data


g128 = [("general.quantization_version", STR, "TQ2_0_G128")]
save("gguf", "pq2_0", with_data(arch, [("p", 142, [256, 2]), ("t", 143, [256, 2])],
                                [blocks(34, 0, 4), blocks(28, 26, 4)]))
save("gguf", "pq2_0-binary", with_data(arch, [("p", 142, [128, 4])], [blocks(34, 0, 4, zeros=False)]))
save("gguf", "q2_64", with_data(arch, [("q", 42, [128, 16])], [blocks(18, 0, 32)]))
save("gguf", "q2_legacy", with_data(arch, [("q", Q2_0_128, [128, 16])], [blocks(34, 0, 16)]))
save("gguf", "tq2_0_g128", with_data(arch + g128, [("q", Q2_0_128, [128, 16])], [blocks(34, 32, 16)]))
save("gguf", "values", with_data(arch, [("v", 1, [128, 2])], [struct.pack(
    "<256e", *(rnd.choice((-1, 0, 1)) * (0.5, 0.25, 2, 1)[i // 64] for i in range(256)))]))
rnd.setstate(state)
save("gguf", "align", gguf(arch + [("general.alignment", U32, 64)],
                           [("a", 0, [4]), ("b", 1, [4])], 64))
save("gguf", "v2", gguf(arch, [("a", 0, [4])], version=2))
save("gguf", "bpe", gguf(vocab("gpt2", tokenizer__ggml__pre="llama-bpe",
                               tokenizer__chat_template="{{ x }}"), []))
save("gguf", "spm", gguf(vocab("llama"), []))
save("gguf", "ours", gguf(vocab("gpt2") + [
    ("tokenizer.bitnet.patterns", ARRAY, (STR, ["\\p{L}+", "[0-9]"])),
    ("tokenizer.bitnet.end_token_ids", ARRAY, (I32, [6, 7])),
    ("tokenizer.bitnet.normalizer", STR, "nfc")], []))


def hybrid():
    """A delta net and an attention, inputs rotated: the configuration and every kind of tensor."""
    n, conv, key, rotation = 128, 256, "qwen35.", "prism.hadamard."
    numbers = {"vocab_size": 8, "context_length": 64, "embedding_length": n, "block_count": 2,
               "feed_forward_length": n, "attention.head_count": 2, "attention.head_count_kv": 1,
               "attention.key_length": 64, "attention.value_length": 64, "rope.dimension_count": 16,
               "full_attention_interval": 2, "nextn_predict_layers": 0, "ssm.conv_kernel": 4,
               "ssm.state_size": 64, "ssm.group_count": 1, "ssm.time_step_rank": 2, "ssm.inner_size": n}
    ffn = [("ffn_gate", n), ("ffn_up", n), ("ffn_down", n)]
    delta = [("attn_qkv", conv), ("attn_gate", n), ("ssm_out", n)] + ffn
    attention = [("attn_q", 2 * n), ("attn_k", 64), ("attn_v", 64), ("attn_output", n)] + ffn
    tensors = [("token_embd.weight", 143, [n, 8]), ("output.weight", 142, [n, 8]), ("output_norm.weight", 0, [n])]
    names = ["output.weight"]
    for i, matrices in enumerate((delta, attention)):
        tensors += [("blk.%d.%s.weight" % (i, x), 0, [n]) for x in ("attn_norm", "post_attention_norm")]
        tensors += [("blk.%d.%s.weight" % (i, x), 143, [n, rows]) for x, rows in matrices]
        names += ["blk.%d.%s.weight" % (i, x) for x, _ in matrices]
    tensors += [("blk.0.ssm_%s.weight" % x, 30, [n, 2]) for x in ("alpha", "beta")]
    tensors += [("blk.0.ssm_conv1d.weight", 0, [4, conv]), ("blk.0.ssm_a", 0, [2]), ("blk.0.ssm_dt.bias", 0, [2]),
                ("blk.0.ssm_norm.weight", 0, [64]), ("blk.1.attn_q_norm.weight", 0, [64]),
                ("blk.1.attn_k_norm.weight", 0, [64])]
    return gguf([("general.architecture", STR, "qwen35"), *((key + k, U32, v) for k, v in numbers.items()),
                 (key + "attention.layer_norm_rms_epsilon", F32, 1e-6), (key + "rope.freq_base", F32, 1e7),
                 (key + "rope.dimension_sections", ARRAY, (I32, [3, 3, 2, 0])), (rotation + "version", U32, 1),
                 (rotation + "block_size", U32, 64), (rotation + "transform", STR, "normalized-sylvester-walsh-hadamard"),
                 (rotation + "axis", STR, "input-last-dimension"), (rotation + "sign_mode", STR, "explicit"),
                 (rotation + "sign_widths", ARRAY, (I32, [n])), (rotation + "sign_values", ARRAY, (I32, [1, -1] * (n // 2))),
                 (rotation + "weight_names", ARRAY, (STR, names)),
                 (rotation + "inverse_weight_names", ARRAY, (STR, ["token_embd.weight"])),
                 (rotation + "gdn_v_grouped", BOOL, True)], tensors)


save("safetensors", "empty", safetensors([], 0))
save("safetensors", "dtypes", safetensors(
    [(d, d, [2], 16 * i, 16 * i + 2 * n) for i, (d, n) in enumerate(
        [("F32", 4), ("F16", 2), ("BF16", 2), ("U8", 1), ("I8", 1), ("BOOL", 1), ("I16", 2),
         ("I32", 4), ("I64", 8), ("F64", 8)])], 160, format="pt"))
save("safetensors", "shapes", safetensors(
    [("s", "F32", [], 0, 4), ("z", "F32", [0, 3], 4, 4), ("m", "U8", [2, 3], 4, 10),
     ("d", "I8", [1, 2, 1, 2], 10, 14)], 14))
save("safetensors", "layer", safetensors(
    [("model.layers.0.mlp.up_proj.weight", "U8", [2, 8], 0, 16),
     ("model.layers.0.mlp.up_proj.weight_scale", "BF16", [1], 16, 18)], 18))


# ---- tokenizer.json
BPE_VOCAB = {c: i for i, c in enumerate(["a", "b", "l", "o", "H", "e", "\u0120", "\u010a", "1",
                                         "ab", "aab", "\u0120a", "ll", "\u00c3", "\u00a9"])}
SPM_VOCAB = {"<unk>": 0, "<s>": 1, "</s>": 2, "\u2581": 3, "a": 4, "b": 5, "ab": 6, "\u2581a": 7,
             "l": 8, "ll": 9, **{"<0x%02X>" % i: 10 + i for i in range(256)}}
PATTERN = "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"


def tokenizer(vocab, merges, pre, normalizer=None, added=(), post=None, **model):
    return json.dumps({"added_tokens": list(added), "normalizer": normalizer, "pre_tokenizer": pre,
                       "post_processor": post,
                       "model": {"type": "BPE", "vocab": vocab, "merges": merges, **model}},
                      separators=(",", ":")).encode()


def added(i, text, **flags):
    return {"id": i, "content": text, **flags}


def steps(kind, *items):
    return {"type": "Sequence", kind: list(items)}


byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
bpe_merges = ["a b", "a ab", "\u0120 a", "l l"]
for name, pre in (("bytelevel", {"type": "ByteLevel"}),
                  ("split", steps("pretokenizers", split, byte_level)),
                  ("digits", steps("pretokenizers", {"type": "Digits", "individual_digits": True},
                                   {"type": "Punctuation", "behavior": "Contiguous"},
                                   byte_level))):
    save("tokenizer_json", name, tokenizer(BPE_VOCAB, bpe_merges, pre))
save("tokenizer_json", "special", tokenizer(
    BPE_VOCAB, [m.split() for m in bpe_merges], byte_level, {"type": "NFC"},
    [added(20, "<s>", special=True, lstrip=True), added(21, "world", rstrip=True),
     added(22, "it", single_word=True)], {"type": "TemplateProcessing", "single": [
         {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
    ignore_merges=True, unk_token="a"))
mark = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
save("tokenizer_json", "spm", tokenizer(
    SPM_VOCAB, ["a b", "\u2581 a", "l l"], None,
    steps("normalizers", {"type": "Prepend", "prepend": "\u2581"}, mark),
    [added(1, "<s>", special=True)], byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
save("tokenizer_json", "metaspace", tokenizer(
    SPM_VOCAB, ["a b", "\u2581 a"], {"type": "Metaspace", "replacement": "\u2581",
                                    "prepend_scheme": "first", "split": True},
    byte_fallback=True, fuse_unk=True, unk_token="<unk>"))

# ---- tokenizer: the first byte chooses vocabulary and flags, see fuzz_tokenizer.c
words = "Once upon a time, Lily's cat saw 123 b\u00e9b\u00e9s \u65e5\u672c \U0001f600\n\n\tab aab abab  "
for mode in (0, 1, 2, 3, 6, 7):
    save("tokenizer", "text-%d" % mode, bytes([mode]) + words.encode())
save("tokenizer", "special", b"\x02<|begin_of_text|>a<|eot_id|>  <|end_of_text|>")
save("tokenizer", "tool", b"\x01<tool>a <tool> <s>\xe2\x96\x81b")
save("tokenizer", "broken", b"\x00\xff\xc3 \xe2\x96 \xf0\x9f\x98\x80\xed\xa0\x80")
save("tokenizer", "spaces", b"\x01" + b" " * 99)
save("tokenizer", "ids", b"\x08" + struct.pack("<20h", *range(-2, 400, 21)))
save("tokenizer", "spm-ids", b"\x09" + struct.pack("<40h", *range(250, 290)))

# ---- gbnf, schema
for name, text in (
        ("list", 'root ::= "- " item ("\\n- " item)* # list\nitem ::= [a-zA-Z ]{2,20} | \'x\'?\n'),
        ("expr", 'root ::= sum\nsum ::= atom ([+*] atom)*\natom ::= [0-9]+ | "(" sum ")"\n'),
        ("string", 'root ::= "\\"" ([^"\\\\\\x00-\\x1f] | "\\\\" .)* "\\""\n'),
        ("unicode", 'root ::= [\u00e4-\u00f6\u4e00-\u9fff] "\\u00e9"{3} .{0,9} (a |\n b)+\na ::= "a"\nb ::= ""\n'),
        ("ambiguous", 'root ::= "a" root "x" | "a" root "y" | "ab" root | "b"\n'),
        ("unclosed", 'root ::= a\nsum ::= a (ro"'),
        ("left", 'root ::= a? root "x"\na ::= "a" a | "b"\n')):
    save("gbnf", name, text.encode())
for name in sorted(os.listdir("../data/schemas")):
    with open("../data/schemas/" + name) as f:
        save("schema", name[:2], json.dumps(json.load(f), separators=(",", ":")).encode())
for name, schema in (
        ("pattern", {"pattern": "^(a|[^b-d\\d]{2,}|\\u00e9.*x?)+$|\\s\\W"}),
        ("merge", {"allOf": [{"$ref": "#/$defs/a"}, {"minimum": 2}], "$defs": {"a": {"type": "integer", "maximum": 9}}}),
        ("loop", {"$ref": "#", "minimum": 1}), ("itself", {"$ref": "#"}), ("any", {}),
        ("refused", {"properties": {"a": {"not": {"multipleOf": 3}}}}),
        ("ahead", {"pattern": "^(?!^[-+.]*$)(?=.*\\bx\\b)(?:(?!--)[\\p{Lu}a-z-])+$", "maxLength": 30, "format": "email"}),
        ("keys", {"patternProperties": {"^a": {"type": "null"}, "b$": {"enum": [1, None]}}, "minProperties": 1,
                  "propertyNames": {"maxLength": 3}, "properties": {"ab": {"not": {"const": 1}}},
                  "dependentRequired": {"ab": ["a"]}, "unevaluatedProperties": False}),
        ("numbers", {"multipleOf": 0.15, "minimum": -9, "exclusiveMaximum": 1e300, "not": {"maximum": -3}}),
        ("choice", {"if": {"required": ["a"]}, "then": {"items": {"enum": [1, 2]}, "uniqueItems": True},
                    "else": {"contains": {"type": "integer"}, "maxContains": 2},
                    "oneOf": [{"type": "array"}, {"minItems": 2}, {"$ref": "#/else"}]})):
    save("schema", name, json.dumps(schema).encode())

# ---- http: the first byte says which side is read, the second how it is cut, see fuzz_http.c
POST = "POST /v1/%41?q=1 HTTP/1.1\r\nHost: a\r\n"
for name, side, text in (
        ("get", 0, "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n"),
        ("old", 0, "GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
        ("absolute", 0, "GET http://a:80/b?c HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("length", 0, POST + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"),
        ("chunked", 0, POST + "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n"),
        ("pipelined", 0, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" + POST + "Content-Length: 1\r\n\r\n2"
         "HEAD /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        ("both", 0, POST + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("folded", 0, "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"),
        ("reply", 1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 204 No Content\r\n\r\n"),
        ("events", 1, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
         "9\r\ndata: a\n\n\r\n0\r\n\r\n"),
        ("until-close", 1, "HTTP/1.0 200 OK\r\n\r\nall the rest")):
    save("http", name, bytes([side, 6]) + text.encode())
# ---- openai: bodies of all kinds, as JSON
hello = [{"role": "user", "content": "Hello"}]
function = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
for name, body in (
        ("chat", {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [
            {"type": "text", "text": "H\u00e9"}, {"type": "text", "text": "llo"}], "name": "a"}], "n": 2, "model": "m",
            "max_completion_tokens": 5, "logprobs": True, "top_logprobs": 2, "stop": ["."], "stream": True,
            "stream_options": {"include_usage": True}, "user": "u", "logit_bias": {"12": -100}}),
        ("samplers", {"messages": hello, "temperature": 0.5, "top_p": 0.9, "min_p": 0.1, "top_k": -1, "seed": -3,
                      "typical_p": 0.5, "top_n_sigma": 1, "adaptive": True, "repetition_penalty": 1.1,
                      "presence_penalty": 1, "frequency_penalty": -1, "penalty_last_n": 9, "dry_multiplier": 0.5,
                      "dry_base": 1.5, "dry_allowed_length": 3, "dry_last_n": 7, "dry_breakers": ["\n"],
                      "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}),
        ("tools", {"messages": hello + [
            {"role": "assistant", "content": None, "refusal": None, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "2"}],
            "tools": [{"type": "function", "function": function}], "tool_choice": "required", "parallel_tool_calls": False}),
        ("call", {"messages": [{"role": "user", "content": "<tool_call>\n{"}],
                  "tools": [{"type": "function", "function": {"name": "f"}}],
                  "tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ("completion", {"prompt": "Once upon", "echo": True, "max_tokens": 3, "grammar": "root ::= [a-z]+", "suffix": ""}),
        ("prompts", {"prompt": ["Once", [5, 6, 7], ""], "n": 3, "logprobs": 2, "ignore_eos": True}),
        ("ids", {"prompt": [1, 2, 4095], "response_format": {"type": "json_object"}}),
        ("response", {"input": "Hi", "instructions": "Be brief.", "max_output_tokens": 9, "metadata": {"a": "b"},
                      "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}, "truncation": "disabled",
                      "include": ["message.output_text.logprobs"], "top_logprobs": 1, "reasoning": {"effort": "low"}}),
        ("items", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                             {"type": "message", "id": "m", "status": "completed", "role": "assistant",
                              "content": [{"type": "output_text", "text": "b", "annotations": []}]},
                             {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                             {"type": "function_call_output", "call_id": "c", "output": "1"}],
                   "tools": [dict(function, type="function", strict=True)], "tool_choice": "auto"}),
        ("misspelt", {"prompt": "a", "temprature": 0})):
    save("openai", name, json.dumps(body, separators=(",", ":")).encode())
# what a model writes to call the function, as the answer to such a request: the bytes are both
save("openai", "called", b'{"messages":[{"role":"user","content":"<tool_call>\\n{\\"name\\": \\"f\\"}"}],'
     b'"tools":[{"type":"function","function":{"name":"f"}}]}')
save("gguf", "hybrid", hybrid())  # the last one that asks for chance: the others stay as they are
