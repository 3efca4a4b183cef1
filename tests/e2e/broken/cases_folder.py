# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders in which one thing is wrong."""
import json

from files import *
from running import *


def folder_cases(golden):
    cases = []
    logits = ["logits", "hf", "--ids", "1,2", "--out", "out.f32"]
    E, NRM, S = "model.embed_tokens.weight", "model.norm.weight", "model.layers.0.mlp.up_proj.weight_scale"

    def add(name, word, change, args=logits, code=FAILED):
        f = Folder(golden)
        change(f)
        cases.append(Case("folder: " + name, args, word, files={"hf": f.files()}, code=code))

    def conf(**fields):
        return lambda f: f.config.update(fields)

    def quant(**fields):
        return lambda f: f.config["quantization_config"].update(fields)

    def entry(name, **fields):
        return lambda f: f.entries[name].update(fields)

    def entry_of(f):
        f.data += bytes(2)
        return {"dtype": "BF16", "shape": [1], "data_offsets": [len(f.data) - 2, len(f.data)]}

    def data(name, raw):
        def change(f):
            at = f.entries[name]["data_offsets"][0]
            f.data = f.data[:at] + raw + f.data[at + len(raw) :]
        return change

    add("no config.json", "config.json", lambda f: setattr(f, "config", None))
    for name, raw in (
            ("empty", b""), ("not JSON", b"{"), ("an array", b"[]"), ("a number", b"7"),
            ("broken UTF-8", b'{"a": "\xff"}'),
            ("100000 deep", b"[" * 100000), ("2 MB of spaces", b" " * (2 << 20))):
        add("config.json is " + name, "config.json", lambda f, raw=raw: setattr(f, "config", raw))
    for key, v, word in (
            ("hidden_size", "16", "hidden_size"), ("hidden_size", -16, "hidden_size"),
            ("hidden_size", 2**31, str(2**31)),
            ("hidden_size", 10**30, "config.json"), ("hidden_size", 0, "width"),
            ("num_hidden_layers", 0, "layers"),
            ("num_hidden_layers", 10**6, "layers"), ("num_hidden_layers", 5, "layers.4"),
            ("num_attention_heads", 0, "heads"),
            ("num_key_value_heads", 3, "KV heads"), ("vocab_size", 2**40, "vocab_size"),
            ("vocab_size", 171, "embed_tokens"),
            ("rms_norm_eps", 0, "epsilon"), ("rms_norm_eps", "x", "rms_norm_eps"),
            ("rope_theta", -1, "rotation"),
            ("head_dim", 15, "rotated"), ("hidden_act", "gelu", "gelu"), ("hidden_act", 1, "hidden_act"),
            ("architectures", ["GPT2LMHeadModel"], "GPT2LMHeadModel"), ("attention_bias", True, "bias"),
            ("mlp_bias", True, "bias"), ("tie_word_embeddings", False, "lm_head"),
            ("tie_word_embeddings", 1, "tie_word"),
            ("rope_scaling", {"rope_type": "dynamic", "factor": 2}, "dynamic"),
            ("rope_scaling", {"rope_type": "yarn", "factor": 0.5}, "factor"),
            ("rope_scaling", {"rope_type": "yarn", "factor": 2, "attention_factor": -1}, "attention factor"),
            ("rope_scaling", {"rope_type": "yarn", "factor": 2, "beta_slow": 40}, "turns"),
            ("rope_scaling", {"rope_type": "yarn", "factor": 2, "truncate": 1}, "truncate"),
            ("partial_rotary_factor", 0, "partial_rotary_factor"), ("partial_rotary_factor", 0.01, "rotated"),
            ("rope_parameters", {"mrope_section": [99]}, "sections"),
            ("rope_scaling", {"rope_type": "linear", "factor": 0}, "factor"),
            ("rope_scaling", {"rope_type": "llama3", "low_freq_factor": 4, "high_freq_factor": 1},
             "llama3"),
            ("quantization_config", None, "quantization_config")):
        add("%s = %.40s" % (key, json.dumps(v)), word, conf(**{key: v}))
    add("unknown quant_method", "awq", quant(quant_method="awq"))
    add("unknown linear_class", "fancy", quant(linear_class="fancy"))
    add("unknown quantization_mode", "sometimes", quant(quantization_mode="sometimes"))
    for name, n in (("2^60", 1 << 60), ("2^64-1", 2**64 - 1), ("past the end", 30000), ("zero", 0)):
        add("header length " + name, "safetensors", lambda f, n=n: setattr(f, "n_header", n))
    for name, raw in (
            ("not JSON", b"{not json}"), ("an array", b"[1, 2]  "), ("100000 deep", b'{"a":' * 100000),
            ("duplicate names",
             b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
             b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}')):
        add("header is " + name, "safetensors", lambda f, raw=raw: setattr(f, "header", raw))
    for name, fields in (
            ("unknown dtype", {"dtype": "F8_E4M3"}), ("dtype is a number", {"dtype": 7}),
            ("negative shape", {"shape": [-172, 16]}),
            ("shape of 5", {"shape": [172, 2, 2, 2, 2]}), ("shape that overflows", {"shape": [2**62, 16]}),
            ("shape is a string", {"shape": "172x16"}), ("shape of floats", {"shape": [172.0, 16.0]}),
            ("shape that disagrees with its bytes", {"shape": [171, 16]}),
            ("no offsets", {"data_offsets": None}),
            ("one offset", {"data_offsets": [0]}), ("offsets reversed", {"data_offsets": [5504, 0]}),
            ("offsets past the end", {"data_offsets": [0, 1 << 60]}),
            ("negative offset", {"data_offsets": [-8, 5496]}),
            ("overlap", {"data_offsets": [16, 5520]})):
        add(name, "embed_tokens", entry(E, **fields))
    add("entry is no object", NRM, lambda f: f.entries.update({NRM: 3}))
    add("cut short", "safetensors", lambda f: setattr(f, "data", f.data[:5000]))
    add("no weight_scale", "up_proj", lambda f: f.entries.pop(S))
    add("no norm", NRM, lambda f: f.entries.pop(NRM))
    add("unknown tensor", "mlp.extra", lambda f: f.entries.update({"model.layers.0.mlp.extra": entry_of(f)}))
    add("NaN weight_scale", S, data(S, b"\xc0\x7f"))
    add("zero weight_scale", S, data(S, b"\0\0"))
    add("negative weight_scale", S, data(S, b"\x80\xbf"))
    add("NaN in a norm", NRM, data(NRM, b"\xc0\x7f"))
    add("code 3 in packed weights", "q_proj", data("model.layers.0.self_attn.q_proj.weight", b"\xff"))
    add("packed shape that disagrees", "q_proj", entry("model.layers.0.self_attn.q_proj.weight", shape=[2, 32]))

    def index(content):
        def change(f):
            files = f.files()
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            f.more = {"model.safetensors.index.json": raw, "a.safetensors": files["model.safetensors"]}
            f.header, f.n_header, f.data = b"", 0, b""
        return change

    one = {"weight_map": {NRM: "a.safetensors"}}
    for name, word, content in (("outside the folder", "../a", {"weight_map": {NRM: "../a.safetensors"}}),
                                ("absolute path", "/etc/passwd", {"weight_map": {NRM: "/etc/passwd"}}),
                                ("missing shard", "b.safetensors", {"weight_map": {NRM: "b.safetensors"}}),
                                ("shard is the index itself", "safetensors",
                                 {"weight_map": {NRM: "model.safetensors.index.json"}}),
                                ("tensor that no shard has", "nowhere",
                                 {"weight_map": {**one["weight_map"], "nowhere": "a.safetensors"}}),
                                ("no object", "weight_map", [1]), ("map is a list", "weight_map", {"weight_map": []}),
                                ("shard is a number", NRM, {"weight_map": {NRM: 7}}), ("not JSON", "index.json", b"{"),
                                ("300 shards", "s0", {"weight_map": {"t%d" % i: "s%d" % i for i in range(300)}})):
        f = Folder(golden)
        index(content)(f)
        files = {k: v for k, v in f.files().items() if k != "model.safetensors"}
        cases.append(Case("index: " + name, logits, word, files={"hf": files}))

    def tok(name, word, change, args=("tokenize", "hf"), stdin=b"ab aab"):
        f, t = Folder(golden), small_tokenizer()
        t = change(t) or t
        f.more["tokenizer.json"] = t if isinstance(t, bytes) else json.dumps(t).encode()
        cases.append(Case("tokenizer.json: " + name, list(args), word, files={"hf": f.files()}, stdin=stdin))

    def at(*path, to):
        def change(t):
            for p in path[:-1]:
                t = t[p]
            t[path[-1]] = to
        return change

    def split(pattern):
        return at("pre_tokenizer", to={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]})

    tok("not JSON", "tokenizer.json", lambda t: b"{,}")
    tok("empty", "tokenizer.json", lambda t: b" ")
    tok("an array", "tokenizer.json", lambda t: b"[]")
    tok("100000 deep", "tokenizer.json", lambda t: b'{"model":' * 100000)
    tok("Unigram", "Unigram", at("model", "type", to="Unigram"))
    tok("no vocabulary", "vocabulary", at("model", "vocab", to=None))
    tok("no merges", "merges", at("model", "merges", to=[]))
    tok("merge of one", "merge", at("model", "merges", to=["ab"]))
    tok("merge of numbers", "merge", at("model", "merges", to=[[1, 2]]))
    tok("id 2^40", "'ab'", at("model", "vocab", "ab", to=2**40))
    tok("id -1", "'ab'", at("model", "vocab", "ab", to=-1))
    tok("id is a string", "'ab'", at("model", "vocab", "ab", to="7"))
    tok("added token without content", "content", at("added_tokens", to=[{"id": 1}]))
    tok("dropout", "dropout", at("model", "dropout", to=0.5))
    tok("unknown pre-tokenizer", "Whitespaces", at("pre_tokenizer", to={"type": "Whitespaces"}))
    tok("unknown normalizer", "Lowercase", at("normalizer", to={"type": "Lowercase"}))
    tok("broken pattern", "pattern", split("(a"))
    tok("pattern of 100 KB", "pattern", split("a" * 100000))
    tok("pattern that never ends", "pattern", split("(a+)+$"), stdin=b"a" * 5000 + b"!")
    tok("pattern that backtracks", "pattern", split("(a|aa)+$"), stdin=b"a" * 200 + b"!")
    tok("65 steps", "steps", at("normalizer", to={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 65}))
    for name in ("tokenizer_config.json", "generation_config.json"):
        f = Folder(golden)
        f.more = {"tokenizer.json": json.dumps(small_tokenizer()).encode(), name: b"[1,"}
        cases.append(Case("folder: broken " + name, ["tokenize", "hf"], name, files={"hf": f.files()}, stdin=b"a"))
    return cases
