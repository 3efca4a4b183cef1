#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Broken files, folders and command lines: the program must say what is wrong and leave nothing behind.

    broken.py PATH/TO/bitnet MODEL.gguf TEST_DATA [--only TEXT] [--list]

Every case runs in an empty folder of its own. What must hold: exit code 1 (2 for usage), exactly one line on standard
error, which begins with "bitnet: " and names the thing; nothing on standard output; no file new, changed or gone; done
within seconds; no report of a sanitizer. Controls must succeed, so that a program which refuses everything fails here.
Models are made below by a writer that shares nothing with the library; each case makes one thing wrong. Output is TAP.
"""
import concurrent.futures
import copy
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60  # for one run; sanitizer builds on a busy machine are slow
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
NAN, INF = float("nan"), float("inf")

# ------------------------------------------------------------------ GGUF

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARRAY, U64, I64, F64 = range(13)
FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
T_F32, T_F16, T_Q4_0, T_I8, T_I32, T_TQ2_0, T_I2_S = 0, 1, 2, 24, 26, 35, 36


def text(s):
    raw = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    """A metadata value; bytes stand for themselves, whatever the kind."""
    if isinstance(v, bytes):
        return v
    if kind == STR:
        return text(v)
    if kind == ARRAY:
        of, items = v
        return struct.pack("<IQ", of, len(items)) + b"".join(value(of, x) for x in items)
    return struct.pack("<" + FORMS[kind], v)


class Tensor:
    def __init__(self, name, dims, kind, data):
        self.name, self.dims, self.kind, self.data = name, list(dims), kind, data
        self.n_dims = self.offset = None  # None: the right one


class Gguf:
    """A GGUF file of which every field can be made wrong before it is written."""

    def __init__(self):
        self.magic, self.version, self.align = b"GGUF", 3, 32
        self.n_tensors = self.n_meta = None
        self.meta, self.tensors = [], []
        self.cut = None  # keep so many bytes only

    def __getitem__(self, name):
        return next(t for t in self.tensors if t.name == name)

    def set(self, key, kind, v):
        """Replaces an entry, or adds it."""
        self.drop(key)
        self.meta.append((key, kind, v))

    def drop(self, key):
        self.meta = [m for m in self.meta if m[0] != key]

    def drop_tensor(self, name):
        self.tensors = [t for t in self.tensors if t.name != name]

    def header(self):
        out = self.magic + struct.pack("<IQQ", self.version,
                                       len(self.tensors) if self.n_tensors is None else self.n_tensors,
                                       len(self.meta) if self.n_meta is None else self.n_meta)
        return out

    def sections(self):
        """header, metadata, directory (padded), data"""
        meta = b"".join(text(k) + struct.pack("<I", kind) + value(kind, v) for k, kind, v in self.meta)
        directory, data = b"", b""
        for t in self.tensors:
            data += bytes(-len(data) % self.align)
            offset = len(data) if t.offset is None else t.offset
            directory += text(t.name) + struct.pack("<I", len(t.dims) if t.n_dims is None else t.n_dims)
            directory += struct.pack("<%dQ" % len(t.dims), *t.dims) + struct.pack("<IQ", t.kind, offset)
            data += t.data
        head = self.header()
        directory += bytes(-(len(head) + len(meta) + len(directory)) % self.align)
        return head, meta, directory, data

    def bytes(self):
        return b"".join(self.sections())[: self.cut]


def byte_alphabet():
    """GPT-2's printable character for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    free = iter(range(256, 512))
    return [chr(b if b in plain else next(free)) for b in range(256)]


N, FF, KV, VOCAB, LAYERS = 128, 128, 64, 260, 1  # hidden, feed-forward, KV width
TOKENS = byte_alphabet() + ["ab", "aab", "<|begin|>", "<|end|>"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
NORMS = ["attn_norm", "ffn_norm", "attn_sub_norm", "ffn_sub_norm"]
MATRICES = [("attn_q", N, N), ("attn_k", KV, N), ("attn_v", KV, N), ("attn_output", N, N),
            ("ffn_gate", FF, N), ("ffn_up", FF, N), ("ffn_down", N, FF)]
A = "bitnet-b1.58."


def noise(n, seed):
    """n numbers in 0..2**16, the same ones every time"""
    state, out = seed * 2654435761 % 2**32, []
    for _ in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 16)
    return out


def i2_s(rows, cols, seed, scale=0.05):
    data = bytes((a % 3) | (b % 3) << 2 | (c % 3) << 4 | (a // 3 % 3) << 6
                 for a, b, c in zip(*[iter(noise(rows * cols * 3 // 4, seed))] * 3))
    return data + struct.pack("<f", scale) + bytes(28)


def f16(rows, cols, seed):
    return struct.pack("<%de" % (rows * cols), *((x / 32768 - 1) for x in noise(rows * cols, seed)))


def tiny():
    """A whole model of 130,000 weights."""
    g = Gguf()
    g.meta = [("general.architecture", STR, "bitnet-b1.58"), ("general.name", STR, "tiny"),
              (A + "vocab_size", U32, VOCAB), (A + "context_length", U32, 64), (A + "embedding_length", U32, N),
              (A + "block_count", U32, LAYERS), (A + "feed_forward_length", U32, FF),
              (A + "attention.head_count", U32, 2), (A + "attention.head_count_kv", U32, 1),
              (A + "attention.layer_norm_rms_epsilon", F32, 1e-5), (A + "rope.dimension_count", U32, 64),
              (A + "rope.freq_base", F32, 10000.0),
              ("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "llama-bpe"),
              ("tokenizer.ggml.tokens", ARRAY, (STR, list(TOKENS))),
              ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * 258 + [3, 3])),
              ("tokenizer.ggml.merges", ARRAY, (STR, ["a b", "a ab"])),
              ("tokenizer.ggml.bos_token_id", U32, 258), ("tokenizer.ggml.eos_token_id", U32, 259),
              ("tokenizer.chat_template", STR, TEMPLATE)]
    ones = struct.pack("<%df" % N, *[1.0] * N)
    g.tensors = [Tensor("token_embd.weight", (N, VOCAB), T_F16, EMBEDDING), Tensor("output_norm.weight", (N,), 0, ones)]
    for k, name in enumerate(NORMS):
        g.tensors.append(Tensor("blk.0.%s.weight" % name, (N,), T_F32, ones))
    for name, rows, cols in MATRICES:
        g.tensors.append(Tensor("blk.0.%s.weight" % name, (cols, rows), T_I2_S, WEIGHTS[rows]))
    return g


EMBEDDING = f16(VOCAB, N, 1)
WEIGHTS = {rows: i2_s(rows, N, rows) for rows in (N, KV)}
Q, NORM = "blk.0.attn_q.weight", "blk.0.attn_norm.weight"


def made(change):
    """The tiny model after one change, as bytes."""
    g = tiny()
    change(g)
    return g.bytes()


def put(name, v):
    """attribute of the file"""
    return lambda g: setattr(g, name, v)


def meta(key, kind, v):
    return lambda g: g.set(key, kind, v)


def config(key, kind, v):
    return lambda g: g.set(A + key, kind, v)


def tensor(name, **fields):
    def change(g):
        for k, v in fields.items():
            setattr(g[name], k, v)
    return change


def with_scale(raw):
    return lambda g: setattr(g[Q], "data", g[Q].data[: N * N // 4] + raw + bytes(28))


def extra(t):
    return lambda g: g.tensors.append(t)


# ------------------------------------------------------------------ safetensors


class Folder:
    """The golden Hugging Face folder, to be made wrong."""

    def __init__(self, path):
        raw = (path / "model.safetensors").read_bytes()
        n = struct.unpack("<Q", raw[:8])[0]
        self.entries, self.data = json.loads(raw[8 : 8 + n]), raw[8 + n :]
        self.config = json.loads((path / "config.json").read_text())
        self.header = self.n_header = None  # None: the right ones
        self.more = {}

    def files(self):
        head = json.dumps(self.entries).encode() if self.header is None else self.header
        n = len(head) if self.n_header is None else self.n_header
        files = {"model.safetensors": struct.pack("<Q", n) + head + self.data}
        if self.config is not None:
            raw = isinstance(self.config, bytes)
            files["config.json"] = self.config if raw else json.dumps(self.config).encode()
        return {**files, **self.more}


def small_tokenizer():
    """A tokenizer.json with the vocabulary of the tiny model."""
    return {"added_tokens": [{"id": 258, "content": "<|begin|>", "special": True}], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(TOKENS[:258])}, "merges": ["a b", "a ab"]}}


# ------------------------------------------------------------------ running


class Case:
    def __init__(self, name, args, words=(), code=FAILED, files=None, stdin=b"", wrap=(), prepare=None, out=None,
                 same_folder=True, user=None, check=None, report=False):
        self.name, self.args, self.code = name, args, code
        self.words = [words] if isinstance(words, str) else list(words)
        self.files, self.stdin, self.wrap, self.prepare = files or {}, stdin, list(wrap), prepare
        self.out, self.same_folder, self.user, self.check = out, same_folder, user, check
        self.report = report  # what was found goes to standard output all the same


class Skipped(Exception):
    """A case that cannot run here."""


def write_files(folder, files):
    for name, data in files.items():
        path = folder / name
        if isinstance(data, dict):
            path.mkdir()
            write_files(path, data)
        else:
            path.write_bytes(data)


def snapshot(folder):
    """What lies there: kinds, sizes, times of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        st = path.lstat()
        folder_only = path.is_dir() and not path.is_symlink()  # its times tell of files that came and went
        found[str(path.relative_to(folder))] = (st.st_mode,) if folder_only else (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ino)
    return found


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("BITNET_", "ASAN_", "UBSAN_"))}
    # a single allocation that a broken file could cause is far below this
    env["ASAN_OPTIONS"] = ":".join(filter(None, ["max_allocation_size_mb=3000", os.environ.get("ASAN_OPTIONS")]))
    env["UBSAN_OPTIONS"] = os.environ.get("UBSAN_OPTIONS") or "halt_on_error=1:abort_on_error=1:print_stacktrace=1"
    env["NO_COLOR"] = "1"
    return env


def run(bitnet, case, folder):
    """One run; returns what is wrong with it, "" if nothing."""
    write_files(folder, case.files)
    if case.prepare:
        case.prepare(folder)
    before = snapshot(folder)
    extra_args = {"user": case.user, "group": case.user, "extra_groups": []} if case.user is not None else {}
    out = open(case.out, "wb") if case.out else subprocess.PIPE
    began = time.monotonic()
    try:
        done = subprocess.run([*case.wrap, bitnet, *case.args], cwd=folder, input=case.stdin, stdout=out,
                              stderr=subprocess.PIPE, env=environment(), timeout=LIMIT_S, **extra_args)
    except subprocess.TimeoutExpired:
        return "not done after %d seconds" % LIMIT_S
    except PermissionError as e:
        raise Skipped("the program cannot be started as another user") from e
    finally:
        if case.out:
            out.close()
    case.seconds = time.monotonic() - began
    if done.returncode == 77 and case.wrap:
        raise Skipped("no private mounts here")
    errors = done.stderr.decode("utf-8", "replace")
    if "Sanitizer" in errors or "runtime error:" in errors:
        return "a sanitizer reports:\n" + errors[:4000]
    if done.returncode != case.code:
        return "exit code %d, not %d: %s" % (done.returncode, case.code, errors[:600])
    if case.same_folder and snapshot(folder) != before:
        return "the folder has changed: %s" % sorted(set(snapshot(folder)) ^ set(before))
    if case.code == OK:
        return case.check(done.stdout or b"", folder) or "" if case.check else ""
    if done.stdout and not case.report:
        return "standard output is not empty: %r" % done.stdout[:200]
    if errors.count("\n") != 1 or not errors.endswith("\n") or not errors.startswith("bitnet: ") or len(errors) < 16:
        return "not one line that begins with 'bitnet: ': %r" % errors[:600]
    if any(ord(c) < 32 or ord(c) == 127 for c in errors[:-1]):
        return "control characters: %r" % errors[:600]
    missing = [w for w in case.words if w not in errors]
    return "%s not in: %s" % (missing, errors) if missing else ""


# ------------------------------------------------------------------ cases

LOGITS = ["logits", "m.gguf", "--ids", "1,2", "--out", "out.f32"]
CONVERT = ["convert", "m.gguf", "out.gguf"]
RUN = ["run", "m.gguf", "-p", "ab", "-n", "2", "--temp", "0", "-q"]
CHAT = ["run", "m.gguf", "--chat", "-p", "ab", "-n", "2", "--temp", "0", "-q"]
TOKENIZE = ["tokenize", "m.gguf"]
INSPECT = ["inspect", "m.gguf", "--no-stats"]


# what convert copies as it is, without judging it: the loader does that
COPIED = ("unknown extra tensor", "NaN in a norm", "infinity in a norm", "code 3")


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
        ("value of unknown type", "x.y", meta("x.y", 13, b"")), ("value of type 2^31", "x.y", meta("x.y", 1 << 31, b"")),
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
        ("tensor without dimensions", Q, tensor(Q, dims=[])), ("tensor of 5 dimensions", Q, tensor(Q, dims=[N, N, 1, 1, 1])),
        ("2^31 dimensions", Q, tensor(Q, n_dims=1 << 31)),
        ("dimension 0", Q, tensor(Q, dims=[N, 0])), ("dimension 2^63", Q, tensor(Q, dims=[N, 1 << 63])),
        ("dimensions that overflow", Q, tensor(Q, dims=[1 << 32, 1 << 32])),
        ("dimensions that overflow to a small size", Q, tensor(Q, dims=[1 << 31, 1 << 31, 4])),
        ("bytes that overflow", Q, tensor(Q, dims=[1 << 31, 1 << 31], kind=T_F32)),
        ("unknown type", "99", tensor(Q, kind=99)), ("type 2^32-1", Q, tensor(Q, kind=2**32 - 1)),
        ("type TL1", "TL1", tensor(Q, kind=38)), ("type TL2", "TL2", tensor(Q, kind=39)),
        ("type Q5_K", "Q5_K", tensor(Q, kind=13)), ("type of an old format", Q, tensor(Q, kind=4)),
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
        ("no layers", "layers", config("block_count", U32, 0)), ("a million layers", "1000000", config("block_count", U32, 10**6)),
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
        ("unknown rotation scaling", "yarn", config("rope.scaling.type", STR, "yarn")),
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
        ("infinity in a norm", "output_norm", lambda g: tensor("output_norm.weight", data=g[NORM].data[4:] + struct.pack("<f", INF))(g)),
        ("NaN scale", Q, with_scale(struct.pack("<f", NAN))), ("infinite scale", Q, with_scale(struct.pack("<f", INF))),
        ("negative scale", Q, with_scale(struct.pack("<f", -0.5))),
        ("code 3", Q, lambda g: tensor(Q, data=b"\x01\x0c" + g[Q].data[2:])(g)),
        ("ternary embedding", "token_embd", lambda g: tensor("token_embd.weight", kind=T_I2_S)(g)),
        ("integer embedding", "token_embd", lambda g: tensor("token_embd.weight", kind=T_I8)(g)),
        ("integer projection", Q, tensor(Q, kind=T_I8, data=bytes(N * N))),
        ("head of another width", "output.weight", extra(Tensor("output.weight", (64, VOCAB), T_F16, EMBEDDING))),
        ("a scale beside a matrix that is NaN", "attn_q.scale", extra(Tensor("blk.0.attn_q.scale", (1,), T_F32, struct.pack("<f", NAN)))),
    ]
    for t in tiny().tensors:
        word = "embed" if t.name == "token_embd.weight" else t.name
        model.append(("no %s" % t.name, t.name if word != "embed" else "token_embd", lambda g, n=t.name: g.drop_tensor(n)))
    tok = "tokenizer.ggml."
    tokenizer = [
        ("unknown tokenizer", "unigram", meta(tok + "model", STR, "unigram")),
        ("tokenizer is a number", "model", meta(tok + "model", U32, 1)),
        ("unknown pre-tokenizer", "klingon", meta(tok + "pre", STR, "klingon")),
        ("no tokens", "tokens", lambda g: g.drop(tok + "tokens")), ("empty tokens", "tokens", meta(tok + "tokens", ARRAY, (STR, []))),
        ("tokens are numbers", "tokens", meta(tok + "tokens", ARRAY, (U32, [1] * VOCAB))),
        ("tokens are one string", "tokens", meta(tok + "tokens", STR, "a b c")),
        ("fewer types than tokens", "token_type", meta(tok + "token_type", ARRAY, (I32, [1] * 259))),
        ("unknown token type", "type 9", meta(tok + "token_type", ARRAY, (I32, [9] * VOCAB))),
        ("token of 1 MB", "1048576", meta(tok + "tokens", ARRAY, (STR, TOKENS[:-1] + ["x" * 2**20]))),
        ("more tokens than the embedding has", "261", lambda g: (meta(tok + "tokens", ARRAY, (STR, TOKENS + ["zz"]))(g),
                                                               g.drop(tok + "token_type"))),
        ("merge of one token", "merge", meta(tok + "merges", ARRAY, (STR, ["ab"]))),
        ("empty merge", "merge", meta(tok + "merges", ARRAY, (STR, [""]))),
        ("no merges", "merges", lambda g: g.drop(tok + "merges")), ("merges are numbers", "merges", meta(tok + "merges", ARRAY, (U8, [1]))),
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
        ("unterminated expression", "line 1", "{{ messages"), ("unterminated block", "'for'", "{% for m in messages %}x"),
        ("unknown block", "frobnicate", "{% frobnicate %}"), ("unknown filter", "frobnicate", "{{ 1|frobnicate }}"),
        ("unknown name", "nowhere", "{{ nowhere.to.be.found }}"),
        ("macro that calls itself", "", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
        ("range that never ends", "range", "{% for i in range(999999999999) %}x{% endfor %}"),
        ("loops in loops", "", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
        ("output without end", "", "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}"),
        ("string that doubles", "", "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}"),
        ("division by zero", "", "{{ 1 // 0 }}"), ("nesting of 100000", "", "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}"),
        ("nested lists", "", "{{ " + "[" * 5000 + "]" * 5000 + " }}"), ("nested ifs", "", "{% if 1 %}" * 5000 + "{% endif %}" * 5000),
        ("source of 300 KB", "", "x" * 300000 + "{{ 1 }}"), ("raise_exception", "no such role", "{{ raise_exception('no such role') }}"),
    ]
    cases = []
    for name, word, change in header:
        data = {"m.gguf": made(change)}
        cases += [Case("gguf: " + name, LOGITS, word, files=data), Case("gguf, inspect: " + name, INSPECT, word, files=data)]
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
    cases.append(Case("gguf: key of 2^60 bytes", LOGITS, str(big), files={"m.gguf": head + key + entries[8:] + directory + data}))
    for name, at in (("in the header", 20), ("in the metadata", len(head) + len(entries) // 2),
                     ("behind the metadata", len(head) + len(entries)), ("in the directory", len(head) + len(entries) + 100),
                     ("before the data", len(head) + len(entries) + len(directory)),
                     ("in the data", len(head) + len(entries) + len(directory) + len(data) // 2)):
        for args in (LOGITS, CONVERT):
            cases.append(Case("gguf, %s: cut short %s" % (args[0], name), args, "m.gguf", files={"m.gguf": g.bytes()[:at]}))
    bad = made(lambda g: tensor("token_embd.weight", data=struct.pack("<e", NAN) * (N * VOCAB))(g))
    cases += [Case("model: NaN in the embedding", LOGITS, "finite", files={"m.gguf": bad}),
              Case("model: NaN in the embedding, run", [*RUN, "--no-echo"], "finite", files={"m.gguf": bad}),
              Case("model, convert: code 3 to another type", [*CONVERT, "--type", "iq2_bn"], Q,
                   files={"m.gguf": made(lambda g: tensor(Q, data=b"\x01\x0c" + g[Q].data[2:])(g))}),
              Case("model: only a vocabulary", LOGITS, "vocabulary", files={"m.gguf": made(put("tensors", []))}),
              Case("model: no tokenizer, run", RUN, "tokenizer", files={"m.gguf": made(lambda g: g.drop(tok + "model"))})]
    return cases


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
    for name, raw in (("empty", b""), ("not JSON", b"{"), ("an array", b"[]"), ("a number", b"7"), ("broken UTF-8", b'{"a": "\xff"}'),
                      ("100000 deep", b"[" * 100000), ("2 MB of spaces", b" " * (2 << 20))):
        add("config.json is " + name, "config.json", lambda f, raw=raw: setattr(f, "config", raw))
    for key, v, word in (("hidden_size", "16", "hidden_size"), ("hidden_size", -16, "hidden_size"), ("hidden_size", 2**31, str(2**31)),
                         ("hidden_size", 10**30, "config.json"), ("hidden_size", 0, "width"), ("num_hidden_layers", 0, "layers"),
                         ("num_hidden_layers", 10**6, "layers"), ("num_hidden_layers", 5, "layers.4"), ("num_attention_heads", 0, "heads"),
                         ("num_key_value_heads", 3, "KV heads"), ("vocab_size", 2**40, "vocab_size"), ("vocab_size", 171, "embed_tokens"),
                         ("rms_norm_eps", 0, "epsilon"), ("rms_norm_eps", "x", "rms_norm_eps"), ("rope_theta", -1, "rotation"),
                         ("head_dim", 15, "rotated"), ("hidden_act", "gelu", "gelu"), ("hidden_act", 1, "hidden_act"),
                         ("architectures", ["GPT2LMHeadModel"], "GPT2LMHeadModel"), ("attention_bias", True, "bias"),
                         ("mlp_bias", True, "bias"), ("tie_word_embeddings", False, "lm_head"), ("tie_word_embeddings", 1, "tie_word"),
                         ("rope_scaling", {"rope_type": "yarn", "factor": 2}, "yarn"),
                         ("rope_scaling", {"rope_type": "linear", "factor": 0}, "factor"),
                         ("rope_scaling", {"rope_type": "llama3", "low_freq_factor": 4, "high_freq_factor": 1}, "llama3"),
                         ("quantization_config", None, "quantization_config")):
        add("%s = %.40s" % (key, json.dumps(v)), word, conf(**{key: v}))
    add("unknown quant_method", "awq", quant(quant_method="awq"))
    add("unknown linear_class", "fancy", quant(linear_class="fancy"))
    add("unknown quantization_mode", "sometimes", quant(quantization_mode="sometimes"))
    for name, n in (("2^60", 1 << 60), ("2^64-1", 2**64 - 1), ("past the end", 30000), ("zero", 0)):
        add("header length " + name, "safetensors", lambda f, n=n: setattr(f, "n_header", n))
    for name, raw in (("not JSON", b"{not json}"), ("an array", b"[1, 2]  "), ("100000 deep", b'{"a":' * 100000), ("duplicate names",
                      b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}')):
        add("header is " + name, "safetensors", lambda f, raw=raw: setattr(f, "header", raw))
    for name, fields in (("unknown dtype", {"dtype": "F8_E4M3"}), ("dtype is a number", {"dtype": 7}), ("negative shape", {"shape": [-172, 16]}),
                         ("shape of 5", {"shape": [172, 2, 2, 2, 2]}), ("shape that overflows", {"shape": [2**62, 16]}),
                         ("shape is a string", {"shape": "172x16"}), ("shape of floats", {"shape": [172.0, 16.0]}),
                         ("shape that disagrees with its bytes", {"shape": [171, 16]}), ("no offsets", {"data_offsets": None}),
                         ("one offset", {"data_offsets": [0]}), ("offsets reversed", {"data_offsets": [5504, 0]}),
                         ("offsets past the end", {"data_offsets": [0, 1 << 60]}), ("negative offset", {"data_offsets": [-8, 5496]}),
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

    def index(content, shard=None):
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
                                ("shard is the index itself", "safetensors", {"weight_map": {NRM: "model.safetensors.index.json"}}),
                                ("tensor that no shard has", "nowhere", {"weight_map": {**one["weight_map"], "nowhere": "a.safetensors"}}),
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


def path_cases(bitnet, model, data, good):
    m = {"m.gguf": good}
    fifo = lambda name: lambda folder: os.mkfifo(folder / name)
    cases = [
        Case("path: nothing there", LOGITS, "m.gguf"), Case("path: nothing there, run", RUN, "m.gguf"),
        Case("path: empty file", LOGITS, "m.gguf", files={"m.gguf": b""}),
        Case("path: a file of 3 bytes", LOGITS, "m.gguf", files={"m.gguf": b"GGU"}),
        Case("path: text", LOGITS, "m.gguf", files={"m.gguf": b"Once upon a time there was no model.\n" * 9}),
        Case("path: a ZIP archive", LOGITS, "m.gguf", files={"m.gguf": b"PK\x03\x04" + bytes(100)}),
        Case("path: folder without a model", ["inspect", "d"], "'d'", files={"d": {"readme.txt": b"x"}}),
        Case("path: folder with two models", ["inspect", "d"], "2 .gguf", files={"d": {"a.gguf": good, "b.gguf": good}}),
        Case("path: folder named like a file", LOGITS, "m.gguf", files={"m.gguf": {}}),
        Case("path: FIFO", LOGITS, "m.gguf", prepare=fifo("m.gguf")), Case("path: FIFO to convert", CONVERT, "m.gguf", prepare=fifo("m.gguf")),
        Case("path: /dev/zero", ["inspect", "/dev/zero"], "/dev/zero"), Case("path: /dev/null", ["run", "/dev/null", "-p", "a"], "/dev/null"),
        Case("path: link to itself", LOGITS, "m.gguf", prepare=lambda f: os.symlink("m.gguf", f / "m.gguf")),
        Case("path: dangling link", LOGITS, "m.gguf", prepare=lambda f: os.symlink("nowhere", f / "m.gguf")),
        Case("path: longer than the system allows", ["inspect", "x" * 5000 + ".gguf"], "5005"),
        Case("path: control characters in a name", ["inspect", "\x1b[31mred\n.gguf"], "red"),
        Case("path: ids from a FIFO", ["logits", "m.gguf", "--ids", "@ids", "--out", "o"], "ids", files=m, prepare=fifo("ids")),
        Case("path: prompt from a folder", ["run", "m.gguf", "-f", "d"], "'d'", files={**m, "d": {}}),
        Case("path: prompt from nowhere", ["run", "m.gguf", "-f", "p.txt"], "p.txt", files=m),
        Case("path: text of perplexity missing", ["perplexity", "m.gguf", "--file", "t.txt"], "t.txt", files=m),
        Case("path: text of perplexity empty", ["perplexity", "m.gguf", "--file", "t.txt"], "", files={**m, "t.txt": b""}),
        Case("output: exists", CONVERT, "out.gguf", files={**m, "out.gguf": b"precious"}),
        Case("output: a folder", CONVERT, "out.gguf", files={**m, "out.gguf": {"x": b"y"}}),
        Case("output: a folder, forced", [*CONVERT, "--force"], "out.gguf", files={**m, "out.gguf": {"x": b"y"}}),
        Case("output: into a folder that is not there", ["convert", "m.gguf", "no/out.gguf"], "no/out.gguf", files=m),
        Case("output: onto the input", ["convert", "m.gguf", "m.gguf"], "m.gguf", files=m),
        Case("output: below a file", ["convert", "m.gguf", "m.gguf/out"], "m.gguf/out", files=m),
        Case("output: logits to a folder", ["logits", "m.gguf", "--ids", "1", "--out", "d"], "'d'", files={**m, "d": {}}),
        Case("output: logits into a folder that is not there", ["logits", "m.gguf", "--ids", "1", "--out", "no/o"], "no/o", files=m),
        Case("output: synth exists", ["synth", "2b-4t", "s.gguf"], "s.gguf", files={"s.gguf": b"x"}),
        Case("output: type that cannot hold the shapes", [*CONVERT, "--type", "tq2_0"], "TQ2_0", files=m),
        Case("output: conversion of a broken file leaves the old one", [*CONVERT, "--force"], "file ends",
             files={"m.gguf": good[:-64], "out.gguf": b"precious"}),
        Case("full disk: standard output, logits", ["logits", "m.gguf", "--ids", "1", "--out", "-"], "output", files=m, out="/dev/full"),
        Case("full disk: standard output, tokenize", TOKENIZE, "output", files=m, out="/dev/full", stdin=b"ab"),
        Case("full disk: standard output, inspect", INSPECT, "output", files=m, out="/dev/full"),
        Case("full disk: standard output, run", RUN, "output", files=m, out="/dev/full"),
    ]
    big_ids = ",".join(str(i % VOCAB) for i in range(60))
    synth = ["synth", "2b-4t", "full/s.gguf", "--layers", "1"]
    writers = [("convert", ["convert", "m.gguf", "full/o.gguf"]), ("logits", ["logits", "m.gguf", "--ids", big_ids, "--out", "full/o"]),
               ("synth", synth)]
    limit = ["sh", "-c", 'trap "" XFSZ; ulimit -f 32; exec "$@"', "sh"]
    mount = ["unshare", "-rm", "sh", "-c",
             'mount -t tmpfs -o size=16k none full 2>/dev/null || exit 77; "$@"; c=$?; [ -z "$(ls -A full)" ] || exit 99; exit $c', "sh"]
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
            ("no permission: ids", ["logits", "m.gguf", "--ids", "@ids", "--out", "o"], "ids", {**m, "ids": b"1 2"}, "ids", 0)):
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
    usage("planned command", ["serve"], "serve")
    for args, word in ((["--frobnicate"], "frobnicate"), (["-Z"], "-Z"), (["--temp"], "--temp"), (["--temp", "-q"], "--temp"),
                       (["--temp", "nan"], "nan"), (["--temp", "-1"], "-1"), (["--temp", "1e999"], "1e999"), (["--temp", ""], "--temp"),
                       (["--top-p", "1.5"], "1.5"), (["--min-p", "0x1"], "0x1"), (["--top-k", "-1"], "-1"), (["-n", "many"], "many"),
                       (["-n", "99999999999999999999"], "99999999999999999999"), (["-n", "1.5"], "1.5"), (["--seed", "-1"], "-1"),
                       (["--threads", "100000"], "100000"), (["--threads", "-1"], "-1"), (["--threads", "two"], "two"),
                       (["--ctx-size", "4294967296"], "4294967296"), (["--backend", "mmx"], "mmx"), (["--activations", "int4"], "int4"),
                       (["--i2s-layout", "7"], "7"), (["--quiet=yes"], "--quiet"), (["--system", "x"], "--chat"),
                       (["-f", "x"], "once"), (["--kv-type", "f8"], "f8"), ([*["--stop", "x"] * 33], "--stop")):
        usage("run " + " ".join(args)[:40], ["run", "m.gguf", "-p", "a", *args], word)
    for args, word in ((["--out", "o"], "--ids"), (["--ids", "1"], "--out"), (["--ids", "", "--out", "o"], "ids"),
                       (["--ids", "1,x,3", "--out", "o"], "'x'"), (["--ids", "-1", "--out", "o"], "-1"), (["--ids", "1.5", "--out", "o"], "1.5"),
                       (["--ids", "99999999999", "--out", "o"], "99999999999"), (["--ids", " , ", "--out", "o"], "ids"),
                       (["--ids", "1", "--out", "o", "--chunk", "0"], "--chunk"), (["--ids", "1", "--out", "o", "second"], "second")):
        usage("logits " + " ".join(args)[:40], ["logits", "m.gguf", *args], word)
    usage("logits, two models", ["logits", "m.gguf", "-m", "m.gguf", "--ids", "1", "--out", "o"], "once")
    usage("inspect --require fp16", ["inspect", "m.gguf", "--require", "fp16"], "fp16")
    usage("inspect --require ternary --no-stats", ["inspect", "m.gguf", "--require", "ternary", "--no-stats"], "--no-stats")
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
    fails("ids from a file of words", ["logits", "m.gguf", "--ids", "@ids", "--out", "o"], "'one'", files={"ids": b"one two"})
    fails("context larger than the model's", [*RUN, "--ctx-size", "65"], "65")
    fails("prompt longer than the context", ["run", "m.gguf", "-n", "2", "-q", "-p", "x" * 100], "100")
    fails("prompt of 1 MB", ["run", "m.gguf", "-n", "2", "-q", "-f", "-"], "context", stdin=b"once upon " * 104858)
    fails("message of 1 MB", ["chat", "m.gguf"], "", stdin=b"x" * (1 << 20) + b"\n")
    fails("batch larger than the most", [*RUN, "--batch-size", "65536"], "")
    fails("stop string of 300 bytes", [*RUN, "--stop", "x" * 300], "stop")
    fails("empty stop string", [*RUN, "--stop", ""], "stop")
    fails("17 stop strings", [*RUN, *["--stop", "x"] * 17], "17")
    fails("template that is neither name nor file", [*CHAT, "--chat-template", "nonesuch"], "nonesuch")
    fails("broken template as text", [*CHAT, "--chat-template", "{% if %}"], "template")
    fails("broken template, chat", ["chat", "m.gguf", "--chat-template", "{{ 1 +"], "template", stdin=b"hello\n")
    fails("--require binary of ternary weights", ["inspect", "m.gguf", "--require", "binary", "--json"], "binary", report=True)
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

    case = lambda name, args, files=m, check=None, **more: Case("control: " + name, args, code=OK, files=files, check=check, **more)
    odd = made(lambda g: (g.meta.append(("x.unknown", ARRAY, (F64, [1.0]))), config("attention.layer_norm_rms_epsilon", F64, 1e-5)(g),
                          g.drop("tokenizer.chat_template"), meta("tokenizer.ggml.merges", ARRAY, (STR, ["a b", "q zzz"]))(g),
                          meta("tokenizer.ggml.tokens", ARRAY, (STR, TOKENS[:255] + ["a"] + TOKENS[256:]))(g)))
    return [
        case("logits", LOGITS, check=holds("out.f32", 2 * VOCAB * 4), same_folder=False),
        case("logits, one thread", [*LOGITS, "--threads", "1"], check=holds("out.f32", 2 * VOCAB * 4), same_folder=False),
        case("logits over an old file", LOGITS, {**m, "out.f32": b"old"}, holds("out.f32", 2 * VOCAB * 4), same_folder=False),
        case("threads 0 takes the cores", [*RUN, "--threads", "0"]), case("inspect", ["inspect", "m.gguf", "--weights"], check=says("I2_S")),
        case("inspect --require ternary", ["inspect", "m.gguf", "--require", "ternary"]),
        case("convert", CONVERT, check=only("m.gguf", "out.gguf"), same_folder=False),
        case("convert over a file, forced", [*CONVERT, "--force"], {**m, "out.gguf": b"old"}, only("m.gguf", "out.gguf"), same_folder=False),
        case("run", RUN, check=says("ab")), case("chat template", CHAT), case("context of the model's size", [*RUN, "--ctx-size", "64"]),
        case("tokenize", TOKENIZE, check=says("256"), stdin=b"ab"),
        case("decode", [*TOKENIZE, "--decode"], check=says("ab"), stdin=b"256"),
        case("broken UTF-8 with byte-level BPE", TOKENIZE, check=says(str(TOKENS.index("a"))), stdin=b"a\xff\xc3"),
        case("a prompt that is broken UTF-8", ["run", "m.gguf", "-n", "1", "-q", "-f", "-"], stdin=b"a\xff\xc3"),
        case("1 MB of text, tokenized", TOKENIZE, stdin=b"once upon " * 104858),
        case("a megabyte of one letter, tokenized", TOKENIZE, stdin=b"a" * (1 << 20)),
        case("SentencePiece", ["tokenize", "s.gguf"], {"s.gguf": spm}, stdin="a\u00e9 b".encode()),
        case("unknown keys, duplicate tokens, merges of unknown tokens", RUN, {"m.gguf": odd}),
        case("version 2", LOGITS, {"m.gguf": made(put("version", 2))}, holds("out.f32", 2 * VOCAB * 4), same_folder=False),
        case("folder: logits", ["logits", "hf", "--ids", "1,2", "--out", "o"], {"hf": Folder(golden).files()}, holds("o", 2 * 172 * 4), same_folder=False),
        case("folder: convert", ["convert", "hf", "o.gguf"], {"hf": Folder(golden).files()}, only("hf", "o.gguf"), same_folder=False),
        case("folder: tokenize", ["tokenize", "hf"], hf, says("256"), stdin=b"ab"),
        case("the model given", ["run", str(model), "-p", "Once", "-n", "2", "--temp", "0", "-q"], {}, says("Once")),
        case("a single GGUF in a folder", ["inspect", "d"], {"d": {"x.gguf": good}}), case("version", ["version"], {}, says("bitnet")),
    ]


def spm_model():
    """A vocabulary of SentencePiece's kind, without weights."""
    g = Gguf()
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)] + ["\u2581", "a", "b", "\u2581a"]
    g.meta = [("general.architecture", STR, "llama"), ("tokenizer.ggml.model", STR, "llama"),
              ("tokenizer.ggml.tokens", ARRAY, (STR, tokens)),
              ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0])),
              ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3] + [6] * 256 + [1] * 4))]
    return g.bytes()


# ------------------------------------------------------------------ cases that are more than one run


def every_length(bitnet, folder, good):
    """The first 300 bytes and every shorter beginning of them."""
    for n in range(301):
        what = run(bitnet, Case("", INSPECT, "m.gguf", files={"m.gguf": good[:n]}), folder)
        if what:
            return "%d bytes: %s" % (n, what)
    return ""


def interrupted(bitnet, folder, args, files, number, code):
    """A signal as soon as the output is being written: no file, the right code."""
    write_files(folder, files)
    before = snapshot(folder)
    for _ in range(5):
        p = subprocess.Popen([bitnet, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        began = time.monotonic()
        while p.poll() is None and not list(folder.glob("*.part")) and time.monotonic() - began < LIMIT_S:
            time.sleep(0.001)
        p.send_signal(number)
        try:
            out, err = p.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            return "not done %d seconds after the signal" % LIMIT_S
        if p.returncode == OK:  # it was faster than the signal
            for path in set(snapshot(folder)) - set(before):
                (folder / path).unlink()
            continue
        if p.returncode != code:
            return "exit code %d, not %d: %s" % (p.returncode, code, err[:500])
        if snapshot(folder) != before:
            return "left behind: %s" % sorted(set(snapshot(folder)) ^ set(before))
        if out or err.count(b"\n") > 1:
            return "output %r, errors %r" % (out[:100], err[:300])
        return ""
    raise Skipped("the work is always done before the signal comes")


def special_cases(bitnet, model, good):
    stop = lambda name, args, number, code: (name, lambda d: interrupted(bitnet, d, args, {"m.gguf": good}, number, code))
    return [
        ("gguf: every length up to 300 bytes", lambda d: every_length(bitnet, d, good)),
        stop("interrupted: synth", ["synth", "2b-4t", "o.gguf"], signal.SIGINT, INTERRUPTED),
        stop("terminated: synth", ["synth", "2b-4t", "o.gguf"], signal.SIGTERM, 128 + signal.SIGTERM),
        stop("interrupted: convert", ["convert", str(model), "o.gguf", "--head-type", "q6_k"], signal.SIGINT, INTERRUPTED),
    ]


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    only = next((a.split("=", 1)[1] for a in sys.argv if a.startswith("--only=")), "")
    bitnet, model, data = (pathlib.Path(a).resolve() for a in args)
    golden, good, spm = data / "golden" / "bitnet-packed-mul", tiny().bytes(), spm_model()
    cases = [*controls(good, spm, golden, model), *gguf_cases(), *folder_cases(golden),
             *path_cases(bitnet, model, data, good), *argument_cases(good, spm)]
    work = [(c.name, lambda d, c=c: run(str(bitnet), c, d)) for c in cases]
    work = special_cases(str(bitnet), model, good) + work  # the longest ones first
    work = [(name, job) for name, job in work if only in name]
    assert len({name for name, _ in work}) == len(work), "names must differ"
    if "--list" in sys.argv:
        return print("\n".join(name for name, _ in work))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="bitnet-broken-") as top:
        os.chmod(top, 0o755)

        def one(i):
            folder = pathlib.Path(top) / str(i)
            folder.mkdir()
            os.chmod(folder, 0o777)
            try:
                return work[i][1](folder)
            except Skipped as e:
                return e
            except Exception as e:  # a fault of this file is a failure too
                return "%s: %s" % (type(e).__name__, e)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        print("TAP version 13\n1..%d" % len(work), flush=True)
        with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for i, what in enumerate(pool.map(one, range(len(work)))):
                name = work[i][0].replace("#", "")
                if isinstance(what, Skipped):
                    print("ok %d - %s # SKIP %s" % (i + 1, name, what), flush=True)
                    continue
                failed += bool(what)
                print("%s %d - %s" % ("not ok" if what else "ok", i + 1, name), flush=True)
                for line in what.splitlines():
                    print("# " + line, flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
