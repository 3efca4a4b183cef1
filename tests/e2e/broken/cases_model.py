# SPDX-License-Identifier: Apache-2.0
"""GGUF files in which one thing is wrong: header, model, weights, tokenizer, chat template."""
import copy
import struct

from files import *
from running import *


# what convert copies as it is, without judging it: the loader does that
COPIED = ("ternary embedding with wrong codes", "unknown extra tensor", "NaN in a norm", "infinity in a norm", "code 3")


def gguf_cases():
    """name, word, change"""
    big = 1 << 60
    array = lambda of, n, rest=b"": struct.pack("<IQ", of, n) + rest
    header = [
        ("magic", "m.gguf", put("magic", b"GGML")), ("magic in small letters", "m.gguf", put("magic", b"gguf")),
        ("version 0", "version 0", put("version", 0)), ("version 1", "version 1", put("version", 1)),
        ("version 4", "version 4", put("version", 4)), ("big-endian", "big-endian", put("version", 3 << 24)),
        ("2^60 tensors", str(big), put("n_tensors", big)), ("2^63 tensors", str(1 << 63), put("n_tensors", 1 << 63)),
        ("2^60 keys", str(big), put("n_meta", big)), ("2^64-1 keys", str(2**64 - 1), put("n_meta", 2**64 - 1)),
        ("more keys than there are", "m.gguf", lambda g: setattr(g, "n_meta", len(g.meta) + 1)),
        ("fewer keys than there are", "m.gguf", lambda g: setattr(g, "n_meta", 3)),
        ("more tensors than there are", "m.gguf", lambda g: setattr(g, "n_tensors", len(g.tensors) + 1)),
        ("empty key", "empty", meta("", U32, 1)), ("key with a zero byte", "zero byte", meta("a\0b", U32, 1)),
        ("key of 4 KB", "4096", meta("k" * 4096, U32, 1)),
        ("duplicate key", "general.name", lambda g: g.meta.append(("general.name", STR, "again"))),
        ("value of unknown type", "x.y", meta("x.y", 13, b"")),
        ("value of type 2^31", "x.y", meta("x.y", 1 << 31, b"")),
        ("string of 2^60 bytes", "x.y", meta("x.y", STR, struct.pack("<Q", big))),
        ("string of 2^64-1 bytes", "x.y", meta("x.y", STR, struct.pack("<Q", 2**64 - 1))),
        ("array of 2^60", "x.y", meta("x.y", ARRAY, array(U8, big))),
        ("array of 2^61 u64: the bytes overflow", "x.y", meta("x.y", ARRAY, array(U64, 1 << 61))),
        ("array of 2^24 numbers that are not there", "x.y", meta("x.y", ARRAY, array(U64, 1 << 24))),
        ("array of strings, cut short", "x.y", meta("x.y", ARRAY, array(STR, 1 << 20, bytes(8)))),
        ("array of unknown type", "x.y", meta("x.y", ARRAY, array(99, 1))),
        ("array of arrays", "arrays", meta("x.y", ARRAY, array(ARRAY, 1, array(U8, 0)))),
        ("one part of a split model", "split", meta("split.count", U16, 2)),
        ("alignment 0", "alignment", meta("general.alignment", U32, 0)),
        ("alignment 3", "alignment", meta("general.alignment", U32, 3)),
        ("alignment 2^31", "alignment", meta("general.alignment", U32, 1 << 31)),
        ("alignment is a string", "alignment", meta("general.alignment", STR, "32")),
        ("tensor without dimensions", Q, tensor(Q, dims=[])),
        ("tensor of 5 dimensions", Q, tensor(Q, dims=[N, N, 1, 1, 1])),
        ("2^31 dimensions", Q, tensor(Q, n_dims=1 << 31)),
        ("dimension 0", Q, tensor(Q, dims=[N, 0])), ("dimension 2^63", Q, tensor(Q, dims=[N, 1 << 63])),
        ("dimensions that overflow", Q, tensor(Q, dims=[1 << 32, 1 << 32])),
        ("dimensions that overflow to a small size", Q, tensor(Q, dims=[1 << 31, 1 << 31, 4])),
        ("bytes that overflow", Q, tensor(Q, dims=[1 << 31, 1 << 31], kind=T_F32)),
        ("unknown type", "99", tensor(Q, kind=99)), ("type 2^32-1", Q, tensor(Q, kind=2**32 - 1)),
        ("type TL1", "TL1", tensor(Q, kind=38)), ("type TL2", "TL2", tensor(Q, kind=39)),
        ("type MXFP4", "MXFP4", lambda g: (meta("general.architecture", STR, "llama")(g), tensor(Q, kind=39)(g))),
        ("type Q5_K", "Q5_K", tensor(Q, kind=13)), ("type of an old format", Q, tensor(Q, kind=4)),
        ("type 142 without its bytes", Q, tensor(Q, kind=142)), ("type 42 without its bytes", Q, tensor(Q, kind=42)),
        ("type 143 of another engine", "another format", tensor(Q, kind=143)),
        ("row that is no whole blocks", "TQ2_0", tensor(Q, kind=T_TQ2_0)),
        ("misaligned offset", Q, tensor(Q, offset=8)), ("offset behind the end", Q, tensor(Q, offset=1 << 40)),
        ("offset 2^64-32", Q, tensor(Q, offset=2**64 - 32)),
        ("overlapping tensors", "overlaps", tensor(Q, offset=0)),
        ("duplicate tensor", Q, lambda g: g.tensors.append(copy.copy(g[Q]))),
        ("tensor with an empty name", "empty", extra(Tensor("", (1,), T_F32, bytes(4)))),
        ("tensor with a name of 1 KB", "1024", extra(Tensor("t" * 1024, (1,), T_F32, bytes(4)))),
        ("last tensor reaches over the end", "file ends", lambda g: setattr(g, "cut", len(g.bytes()) - 64)),
    ]
    model = [
        ("no architecture", "architecture", lambda g: g.drop("general.architecture")),
        ("unknown architecture", "gpt-j", meta("general.architecture", STR, "gpt-j")),
        ("architecture of 1 MB", "architecture", meta("general.architecture", STR, "x" * 2**20)),
        ("architecture is a number", "architecture", meta("general.architecture", U32, 7)),
        ("no layers", "layers", config("block_count", U32, 0)),
        ("a million layers", "1000000", config("block_count", U32, 10**6)),
        ("layers are a string", "block_count", config("block_count", STR, "1")),
        ("more layers than tensors", "blk.1.", config("block_count", U32, 2)),
        ("no layer count", "block_count", lambda g: g.drop(A + "block_count")),
        ("no heads", "heads", config("attention.head_count", U32, 0)),
        ("65536 heads", "65536", config("attention.head_count", U32, 65536)),
        ("no KV heads", "KV heads", config("attention.head_count_kv", U32, 0)),
        ("more KV heads than heads", "KV heads", config("attention.head_count_kv", U32, 4)),
        ("heads that do not share evenly", "evenly",
         lambda g: (config("attention.head_count", U32, 4)(g), config("attention.head_count_kv", U32, 3)(g))),
        ("KV heads are an array", "head_count_kv", config("attention.head_count_kv", ARRAY, (U32, [1]))),
        ("width 0", "width", config("embedding_length", U32, 0)),
        ("width 2^31", str(1 << 31), config("embedding_length", U32, 1 << 31)),
        ("feed-forward width 0", "feed-forward", config("feed_forward_length", U32, 0)),
        ("feed-forward width 2^31", str(1 << 31), config("feed_forward_length", U32, 1 << 31)),
        ("feed-forward width that disagrees", "ffn_", config("feed_forward_length", U32, 256)),
        ("negative width", "embedding_length", config("embedding_length", I32, -128)),
        ("width above 2^32", "embedding_length", config("embedding_length", U64, (1 << 32) + N)),
        ("head width 0", "head width", config("attention.key_length", U32, 0)),
        ("head width 2^20", str(1 << 20), config("attention.key_length", U32, 1 << 20)),
        ("keys and values of unlike widths", "values", config("attention.value_length", U32, 32)),
        ("context 0", "context", config("context_length", U32, 0)),
        ("vocabulary size too small", "token_embd", config("vocab_size", U32, 259)),
        ("vocabulary size 2^31", "vocabulary", config("vocab_size", U32, 1 << 31)),
        ("epsilon 0", "epsilon", config("attention.layer_norm_rms_epsilon", F32, 0.0)),
        ("epsilon NaN", "epsilon", config("attention.layer_norm_rms_epsilon", F32, NAN)),
        ("no epsilon", "epsilon", lambda g: g.drop(A + "attention.layer_norm_rms_epsilon")),
        ("rotation base -1", "rotation", config("rope.freq_base", F32, -1.0)),
        ("rotation base NaN", "rotation", config("rope.freq_base", F32, NAN)),
        ("rotation base is a string", "freq_base", config("rope.freq_base", STR, "10000")),
        ("rotated dimensions odd", "rotated", config("rope.dimension_count", U32, 63)),
        ("rotated dimensions too many", "rotated", config("rope.dimension_count", U32, 128)),
        ("unknown rotation scaling", "longrope", config("rope.scaling.type", STR, "longrope")),
        ("rotation scaling is a number", "rope.scaling.type", config("rope.scaling.type", U32, 1)),
        ("rotation scaled by 0", "factor", lambda g: (config("rope.scaling.type", STR, "linear")(g),
                                                     config("rope.scaling.factor", F32, 0.0)(g))),
        ("unknown activation", "gelu", config("hidden_activation", STR, "gelu")),
        ("unknown extra tensor", "blk.0.attn_q.bias", extra(Tensor("blk.0.attn_q.bias", (N,), T_F32, bytes(4 * N)))),
        ("shapes that disagree", Q, tensor(Q, dims=[N, N // 2])), ("transposed matrix", "ffn_", lambda g: (
            config("feed_forward_length", U32, 64)(g), tensor("blk.0.ffn_up.weight", dims=[KV, N])(g))),
        ("norm of another width", NORM, tensor(NORM, dims=[N // 2])),
        ("norm of integers", NORM, tensor(NORM, kind=T_I32)),
        ("NaN in a norm", NORM, lambda g: tensor(NORM, data=struct.pack("<f", NAN) + g[NORM].data[4:])(g)),
        ("infinity in a norm", "output_norm",
         lambda g: tensor("output_norm.weight", data=g[NORM].data[4:] + struct.pack("<f", INF))(g)),
        ("NaN scale", Q, with_scale(struct.pack("<f", NAN))), ("infinite scale", Q, with_scale(struct.pack("<f", INF))),
        ("negative scale", Q, with_scale(struct.pack("<f", -0.5))),
        ("code 3", Q, lambda g: tensor(Q, data=b"\x01\x0c" + g[Q].data[2:])(g)),
        ("ternary embedding with wrong codes", "token_embd", lambda g: tensor("token_embd.weight", kind=T_I2_S)(g)),
        ("integer embedding", "token_embd", lambda g: tensor("token_embd.weight", kind=T_I8)(g)),
        ("integer projection", Q, tensor(Q, kind=T_I8, data=bytes(N * N))),
        ("head of another width", "output.weight", extra(Tensor("output.weight", (64, VOCAB), T_F16, EMBEDDING))),
        ("a scale beside a matrix that is NaN", "attn_q.scale",
         extra(Tensor("blk.0.attn_q.scale", (1,), T_F32, struct.pack("<f", NAN)))),
    ]
    for t in tiny().tensors:
        word = "embed" if t.name == "token_embd.weight" else t.name
        model.append(("no %s" % t.name, t.name if word != "embed" else "token_embd", lambda g,
                      n=t.name: g.drop_tensor(n)))
    tok = "tokenizer.ggml."
    tokenizer = [
        ("unknown tokenizer", "unigram", meta(tok + "model", STR, "unigram")),
        ("tokenizer is a number", "model", meta(tok + "model", U32, 1)),
        ("unknown pre-tokenizer", "klingon", meta(tok + "pre", STR, "klingon")),
        ("no tokens", "tokens", lambda g: g.drop(tok + "tokens")),
        ("empty tokens", "tokens", meta(tok + "tokens", ARRAY, (STR, []))),
        ("tokens are numbers", "tokens", meta(tok + "tokens", ARRAY, (U32, [1] * VOCAB))),
        ("tokens are one string", "tokens", meta(tok + "tokens", STR, "a b c")),
        ("fewer types than tokens", "token_type", meta(tok + "token_type", ARRAY, (I32, [1] * 259))),
        ("unknown token type", "type 9", meta(tok + "token_type", ARRAY, (I32, [9] * VOCAB))),
        ("token of 1 MB", "1048576", meta(tok + "tokens", ARRAY, (STR, TOKENS[:-1] + ["x" * 2**20]))),
        ("more tokens than the embedding has", "261", lambda g: (meta(tok + "tokens", ARRAY, (STR, TOKENS + ["zz"]))(g),
                                                               g.drop(tok + "token_type"))),
        ("merge of one token", "merge", meta(tok + "merges", ARRAY, (STR, ["ab"]))),
        ("empty merge", "merge", meta(tok + "merges", ARRAY, (STR, [""]))),
        ("no merges", "merges", lambda g: g.drop(tok + "merges")),
        ("merges are numbers", "merges", meta(tok + "merges", ARRAY, (U8, [1]))),
        ("BOS out of range", "bos_token_id", meta(tok + "bos_token_id", U32, 260)),
        ("EOS out of range", "eos_token_id", meta(tok + "eos_token_id", U32, 1 << 30)),
        ("SentencePiece without scores", "scores", lambda g: (meta(tok + "model", STR, "llama")(g),
                                                            g.drop(tok + "merges"))),
        ("NaN score", "score", lambda g: (meta(tok + "model", STR, "llama")(g),
                                          meta(tok + "scores", ARRAY, (F32, [NAN] * VOCAB))(g))),
        ("17 patterns", "pattern", meta("tokenizer.bitnet.patterns", ARRAY, (STR, ["a"] * 17))),
        ("pattern that is none", "pattern", meta("tokenizer.bitnet.patterns", ARRAY, (STR, ["(a"]))),
        ("unknown normalizer", "nfkd", meta("tokenizer.bitnet.normalizer", STR, "nfkd")),
    ]
    template = [
        ("unterminated expression", "line 1", "{{ messages"),
        ("unterminated block", "'for'", "{% for m in messages %}x"),
        ("unknown block", "frobnicate", "{% frobnicate %}"), ("unknown filter", "frobnicate", "{{ 1|frobnicate }}"),
        ("unknown name", "nowhere", "{{ nowhere.to.be.found }}"),
        ("macro that calls itself", "", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
        ("range that never ends", "range", "{% for i in range(999999999999) %}x{% endfor %}"),
        ("loops in loops", "", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
        ("output without end", "", "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}"),
        ("string that doubles", "",
         "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}"),
        ("division by zero", "", "{{ 1 // 0 }}"),
        ("nesting of 100000", "", "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}"),
        ("nested lists", "", "{{ " + "[" * 5000 + "]" * 5000 + " }}"),
        ("nested ifs", "", "{% if 1 %}" * 5000 + "{% endif %}" * 5000),
        ("source of 300 KB", "", "x" * 300000 + "{{ 1 }}"),
        ("raise_exception", "no such role", "{{ raise_exception('no such role') }}"),
    ]
    cases = []
    for name, word, change in header:
        data = {"m.gguf": made(change)}
        cases += [Case("gguf: " + name, LOGITS, word, files=data),
                  Case("gguf, inspect: " + name, INSPECT, word, files=data)]
    for name, word, change in model:
        data = {"m.gguf": made(change)}
        cases.append(Case("model: " + name, LOGITS, word, files=data))
        if name not in COPIED and not name.startswith("no blk"):
            cases.append(Case("model, convert: " + name, CONVERT, word, files=data))
    for name, word, change in tokenizer:
        cases.append(Case("tokenizer: " + name, RUN, word, files={"m.gguf": made(change)}))
    for name, word, source in template:
        data = {"m.gguf": made(meta("tokenizer.chat_template", STR, source))}
        cases.append(Case("template: " + name, CHAT, word or "template", files=data))
    # a key that is never read may be of any length; its length must not lead out of the file
    g = tiny()
    head, entries, directory, data = g.sections()
    key = struct.pack("<Q", big)
    cases.append(Case("gguf: key of 2^60 bytes", LOGITS, str(big),
                      files={"m.gguf": head + key + entries[8:] + directory + data}))
    for name, at in (("in the header", 20), ("in the metadata", len(head) + len(entries) // 2),
                     ("behind the metadata", len(head) + len(entries)),
                     ("in the directory", len(head) + len(entries) + 100),
                     ("before the data", len(head) + len(entries) + len(directory)),
                     ("in the data", len(head) + len(entries) + len(directory) + len(data) // 2)):
        for args in (LOGITS, CONVERT):
            cases.append(Case("gguf, %s: cut short %s" % (args[0], name), args, "m.gguf",
                              files={"m.gguf": g.bytes()[:at]}))
    bad = made(lambda g: tensor("token_embd.weight", data=struct.pack("<e", NAN) * (N * VOCAB))(g))
    cases += [Case("model: NaN in the embedding", LOGITS, "finite", files={"m.gguf": bad}),
              Case("model: NaN in the embedding, run", [*RUN, "--no-echo"], "finite", files={"m.gguf": bad}),
              Case("model, convert: code 3 to another type", [*CONVERT, "--type", "iq2_bn"], Q,
                   files={"m.gguf": made(lambda g: tensor(Q, data=b"\x01\x0c" + g[Q].data[2:])(g))}),
              Case("model: only a vocabulary", LOGITS, "vocabulary", files={"m.gguf": made(put("tensors", []))}),
              Case("model: no tokenizer, run", RUN, "tokenizer",
                   files={"m.gguf": made(lambda g: g.drop(tok + "model"))})]
    return cases
