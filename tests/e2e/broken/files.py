# SPDX-License-Identifier: Apache-2.0
"""Model files made by hand, each field of which can be made wrong: a GGUF writer that shares nothing with the
library, a tiny model in it, and the golden Hugging Face folder."""
import json
import struct

NAN, INF = float("nan"), float("inf")


# ------------------------------------------------------------------ GGUF

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARRAY, U64, I64, F64 = range(13)
FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
T_F32, T_F16, T_Q4_0, T_I8, T_I32, T_TQ2_0, T_I2_S, T_PQ2_0 = 0, 1, 2, 24, 26, 35, 36, 142


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


def pq2_0(rows, cols, seed):
    """Blocks of 128 weights: the scale, then two bits a weight, never 3."""
    out, codes = b"", noise(rows * cols // 4, seed)
    for i in range(0, len(codes), 32):
        out += struct.pack("<e", 0.0625 + codes[i] / 2**21)
        out += bytes((c % 3) | (c // 3 % 3) << 2 | (c // 9 % 3) << 4 | (c // 27 % 3) << 6 for c in codes[i : i + 32])
    return out


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


# ------------------------------------------------------------------ a hybrid with rotated inputs

H, HADAMARD = "qwen35.", "prism.hadamard."
TAPS, CONV = 4, 2 * 64 + N  # one key head of 64, two value heads of 64
DELTA = [("attn_qkv", CONV, N), ("attn_gate", N, N), ("ssm_alpha", 2, N), ("ssm_beta", 2, N), ("ssm_out", N, N)]
ATTENTION = [("attn_q", 2 * N, N), *MATRICES[1:4]]  # queries and gates
ROTATED_NOT = ("ssm_alpha", "ssm_beta")


def hybrid():
    """A layer with a delta net, one with attention; inputs rotated in blocks of 64."""
    g = Gguf()
    keys = {"vocab_size": VOCAB, "context_length": 64, "embedding_length": N, "block_count": 2,
            "feed_forward_length": FF, "attention.head_count": 2, "attention.head_count_kv": 1,
            "attention.key_length": 64, "attention.value_length": 64, "rope.dimension_count": 16,
            "full_attention_interval": 2, "ssm.conv_kernel": TAPS, "ssm.state_size": 64, "ssm.group_count": 1,
            "ssm.time_step_rank": 2, "ssm.inner_size": N}
    g.meta = [("general.architecture", STR, "qwen35"), ("general.name", STR, "hybrid"),
              *((H + k, U32, v) for k, v in keys.items()),
              (H + "attention.layer_norm_rms_epsilon", F32, 1e-6), (H + "rope.freq_base", F32, 1e7),
              (H + "rope.dimension_sections", ARRAY, (I32, [3, 3, 2, 0])),
              *(m for m in tiny().meta if m[0].startswith("tokenizer."))]
    floats = lambda *v: struct.pack("<%df" % len(v), *v)
    add = lambda name, dims, kind, data: g.tensors.append(Tensor(name, dims, kind, data))
    add("token_embd.weight", (N, VOCAB), T_PQ2_0, PACKED[VOCAB])
    add("output.weight", (N, VOCAB), T_PQ2_0, PACKED[VOCAB])
    add("output_norm.weight", (N,), T_F32, floats(*[1.0] * N))
    for i, matrices in enumerate((DELTA, ATTENTION)):
        b = "blk.%d." % i
        for name in ("attn_norm", "post_attention_norm"):
            add(b + name + ".weight", (N,), T_F32, floats(*[1.0] * N))
        for name, rows, cols in [*matrices, *MATRICES[4:]]:
            add(b + name + ".weight", (cols, rows), T_PQ2_0, PACKED[rows])
    for name in ("attn_q_norm", "attn_k_norm"):
        add("blk.1.%s.weight" % name, (64,), T_F32, floats(*[1.0] * 64))
    add("blk.0.ssm_conv1d.weight", (TAPS, CONV), T_F32, floats(*[0.25] * (TAPS * CONV)))
    add("blk.0.ssm_dt.bias", (2,), T_F32, floats(-3.0, -5.0))
    add("blk.0.ssm_a", (2,), T_F32, floats(-1.0, -8.0))
    add("blk.0.ssm_norm.weight", (64,), T_F32, floats(*[1.0] * 64))
    rotated = [t.name for t in g.tensors if t.kind == T_PQ2_0 and t.name != "token_embd.weight"
               and not any(x in t.name for x in ROTATED_NOT)]
    for key, kind, v in (("version", U32, 1), ("block_size", U32, 64),
                         ("transform", STR, "normalized-sylvester-walsh-hadamard"),
                         ("axis", STR, "input-last-dimension"), ("sign_mode", STR, "explicit"),
                         ("sign_widths", ARRAY, (I32, [N])),
                         ("sign_values", ARRAY, (I32, [1 - 2 * (x & 1) for x in noise(N, 5)])),
                         ("weight_names", ARRAY, (STR, rotated)),
                         ("inverse_weight_names", ARRAY, (STR, ["token_embd.weight"])), ("gdn_v_grouped", BOOL, True)):
        g.meta.append((HADAMARD + key, kind, v))
    return g


PACKED = {rows: pq2_0(rows, N, rows + 7) for rows in (VOCAB, 2, KV, N, 2 * N)}


def made_hybrid(change):
    g = hybrid()
    change(g)
    return g.bytes()


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


def spm_model():
    """A vocabulary of SentencePiece's kind, without weights."""
    g = Gguf()
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)] + ["\u2581", "a", "b", "\u2581a"]
    g.meta = [("general.architecture", STR, "llama"), ("tokenizer.ggml.model", STR, "llama"),
              ("tokenizer.ggml.tokens", ARRAY, (STR, tokens)),
              ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0])),
              ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3] + [6] * 256 + [1] * 4))]
    return g.bytes()


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
