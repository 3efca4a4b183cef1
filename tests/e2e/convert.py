#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts checkpoints through every storage type and checks each file with an oracle of its own.

    convert.py PATH/TO/bitnet      output is TAP

Checkpoints are made here, so their ternary values are known. Files that the program writes are read by
the GGUF reader and the decoders below, which were written from the descriptions of the formats and
share nothing with the library. Only Python's standard library is used.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from tap import Tap

BITNET = None
F32, F16, TQ1_0, TQ2_0, I2_S, BF16, Q1_0, Q2_0, IQ1_BN, IQ2_BN = 0, 1, 34, 35, 36, 30, 41, 42, 134, 135
PQ2_0, PTQ1_0 = 142, 143


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def f16(raw):
    return struct.unpack("<e", raw)[0]


def f32(raw):
    return struct.unpack("<f", raw)[0]


def as_f32(x):
    return f32(struct.pack("<f", x))


def as_f16(x):
    return f16(struct.pack("<e", x))


def bf16_bytes(x):
    """Round half to even, as every producer of bf16 does."""
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.pack("<H", (u + 0x7FFF + (u >> 16 & 1)) >> 16 & 0xFFFF)


def bf16(raw):
    return f32(b"\0\0" + raw)


# ---------------------------------------------------------------- decoders: codes 0, 1, 2 for -1, 0, +1

def decode_i2_s(data, rows, cols):
    n = rows * cols
    out = bytearray(n)
    for e in range(n):
        block, j = divmod(e, 128)
        out[e] = data[block * 32 + j % 32] >> (6 - 2 * (j // 32)) & 3
    scale = f32(data[n // 4:n // 4 + 4])
    return out, {scale}


def base3(byte, power):
    return ((byte * power & 255) * 3) >> 8


def decode_tq2_0(data, rows, cols):
    out, scales = bytearray(), set()
    for at in range(0, rows * cols // 256 * 66, 66):
        qs, block = data[at:at + 64], bytearray(256)
        for half in range(2):
            for plane in range(4):
                for m in range(32):
                    block[half * 128 + plane * 32 + m] = qs[half * 32 + m] >> (2 * plane) & 3
        out += block
        scales.add(f16(data[at + 64:at + 66]))
    return out, scales


def decode_tq1_0(data, rows, cols):
    out, scales = bytearray(), set()
    for at in range(0, rows * cols // 256 * 54, 54):
        block = bytearray(256)
        for n in range(5):
            for m in range(32):
                block[n * 32 + m] = base3(data[at + m], 3 ** n)
            for m in range(16):
                block[160 + n * 16 + m] = base3(data[at + 32 + m], 3 ** n)
        for n in range(4):
            for j in range(4):
                block[240 + n * 4 + j] = base3(data[at + 48 + j], 3 ** n)
        out += block
        scales.add(f16(data[at + 52:at + 54]))
    return out, scales


def decode_iq2_bn(data, rows, cols):
    out, scales, at = bytearray(), set(), 0
    for _ in range(rows):
        scales.add(f32(data[at:at + 4]))
        at += 4
        for _ in range(cols // 64):
            for i in range(4):
                out += bytes(b >> (2 * i) & 3 for b in data[at:at + 16])
            at += 16
    return out, scales


def decode_iq1_bn(data, rows, cols):
    out, scales, at = bytearray(), set(), 0
    for _ in range(rows):
        scales.add(f16(data[at:at + 2]))
        at += 2
        for _ in range(cols // 64):
            for g in range(4):
                for k in range(3):
                    for j in range(5):
                        out.append(base3(data[at + 3 * g + k], 3 ** (4 - j)))
                out.append(base3(data[at + 12], 3 ** (4 - g)))
            at += 13
    return out, scales


def decode_q2_0(data, rows, cols, group=64):
    out, scales, size = bytearray(), set(), 2 + group // 4
    for at in range(0, rows * cols // group * size, size):
        scales.add(f16(data[at:at + 2]))
        for byte in data[at + 2:at + size]:
            out += bytes((byte & 3, byte >> 2 & 3, byte >> 4 & 3, byte >> 6))
    return out, scales


def decode_pq2_0(data, rows, cols):
    return decode_q2_0(data, rows, cols, 128)


def decode_ptq1_0(data, rows, cols):
    out, scales = bytearray(), set()
    for at in range(0, rows * cols // 128 * 28, 28):
        for begin, end, trits in ((0, 16, 5), (16, 24, 5), (24, 26, 4)):
            for n in range(trits):
                out += bytes(base3(byte, 3 ** n) for byte in data[at + begin:at + end])
        scales.add(f16(data[at + 26:at + 28]))
    return out, scales


def decode_q1_0(data, rows, cols):
    out, scales = bytearray(), set()
    for at in range(0, rows * cols // 128 * 18, 18):
        scales.add(f16(data[at:at + 2]))
        for byte in data[at + 2:at + 18]:
            out += bytes(2 * (byte >> j & 1) for j in range(8))
    return out, scales


DECODERS = {I2_S: decode_i2_s, TQ2_0: decode_tq2_0, TQ1_0: decode_tq1_0, IQ2_BN: decode_iq2_bn,
            IQ1_BN: decode_iq1_bn, Q2_0: decode_q2_0, Q1_0: decode_q1_0, PQ2_0: decode_pq2_0, PTQ1_0: decode_ptq1_0}
# columns, bytes and place of the scale of a block
BLOCKS = {TQ2_0: (256, 66, 64), TQ1_0: (256, 54, 52), Q2_0: (64, 18, 0), Q1_0: (128, 18, 0), PQ2_0: (128, 34, 0),
          PTQ1_0: (128, 28, 26)}
NAMES = {I2_S: "I2_S", TQ2_0: "TQ2_0", TQ1_0: "TQ1_0", IQ2_BN: "IQ2_BN", IQ1_BN: "IQ1_BN",
         Q2_0: "Q2_0", Q1_0: "Q1_0", PQ2_0: "PQ2_0", PTQ1_0: "PTQ1_0"}


# ---------------------------------------------------------------- GGUF

class Gguf:
    """Metadata and tensors of a GGUF v3 file."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.raw = f.read()
        self.at = 0
        magic, version, n_tensors, n_meta = self.take("<4sIQQ")
        check(magic == b"GGUF" and version == 3, path + " is GGUF v3")
        self.meta = {}
        for _ in range(n_meta):
            key = self.string()
            check(key not in self.meta, "no key stands twice: " + key)
            self.meta[key] = self.value(self.take("<I")[0])
        directory = []
        for _ in range(n_tensors):
            name = self.string()
            dims = self.take("<%dQ" % self.take("<I")[0])
            directory.append((name, dims) + self.take("<IQ"))
        align = self.meta.get("general.alignment", 32)
        start = -(-self.at // align) * align
        self.tensors = {}
        for name, dims, kind, offset in directory:
            check(offset % align == 0, name + " is aligned")
            self.tensors[name] = (kind, dims, start + offset)

    def take(self, fmt):
        size = struct.calcsize(fmt)
        self.at += size
        return struct.unpack(fmt, self.raw[self.at - size:self.at])

    def string(self):
        n = self.take("<Q")[0]
        self.at += n
        return self.raw[self.at - n:self.at].decode()

    def value(self, kind):
        plain = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
                 11: "<q", 12: "<d"}
        if kind == 8:
            return self.string()
        if kind == 9:
            elem, n = self.take("<IQ")
            return [self.value(elem) for _ in range(n)]
        return self.take(plain[kind])[0]

    def matrix(self, name):
        """Type id, codes in row order, set of scales."""
        kind, dims, at = self.tensors[name]
        codes, scales = DECODERS[kind](self.raw[at:], dims[1], dims[0])
        return kind, bytes(codes), scales

    def values(self, name):
        """Every value of a matrix whose type has blocks."""
        kind, dims, at = self.tensors[name]
        cols, size, place = BLOCKS[kind]
        codes = DECODERS[kind](self.raw[at:], dims[1], dims[0])[0]
        scales = [f16(self.raw[b + place:b + place + 2]) for b in range(at, at + len(codes) // cols * size, size)]
        return [(c - 1) * scales[i // cols] for i, c in enumerate(codes)]

    def floats(self, name):
        kind, dims, at = self.tensors[name]
        check(kind == F32, name + " is F32")
        return list(struct.unpack("<%df" % dims[0], self.raw[at:at + 4 * dims[0]]))


# ---------------------------------------------------------------- checkpoints

PROJECTIONS = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
               "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
               "ffn_down": "mlp.down_proj"}


def pack_quarters(codes, rows, cols):
    """Four contiguous row quarters in the four 2-bit fields of a byte."""
    quarter = rows // 4
    out = bytearray(quarter * cols)
    for i in range(4):
        part = codes[i * quarter * cols:(i + 1) * quarter * cols]
        for k, c in enumerate(part):
            out[k] |= c << 2 * i
    return bytes(out)


def write_safetensors(path, tensors):
    header, data = {}, bytearray()
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


class Checkpoint:
    """A Hugging Face folder whose ternary values are kept beside it in `codes` and `scales`."""

    def __init__(self, folder, kind, hidden, ffn, layers, heads, kv, seed):
        self.path, self.kind, self.layers, self.heads, self.kv = folder, kind, layers, heads, kv
        self.rng = random.Random(seed)
        self.tensors, self.codes, self.scales, self.norms = [], {}, {}, {}
        head_dim = hidden // heads
        self.shapes = {"attn_q": (hidden, hidden), "attn_k": (kv * head_dim, hidden),
                       "attn_v": (kv * head_dim, hidden), "attn_output": (hidden, hidden),
                       "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
        bitnet = kind != "llama"
        self.dense("model.embed_tokens.weight", (64, hidden))
        self.norm("output_norm", "model.norm.weight", hidden)
        if not bitnet:
            self.dense("lm_head.weight", (64, hidden))
        for n in range(layers):
            stem = "model.layers.%d." % n
            self.norm("blk.%d.attn_norm" % n, stem + "input_layernorm.weight", hidden)
            self.norm("blk.%d.ffn_norm" % n, stem + "post_attention_layernorm.weight", hidden)
            if bitnet:
                self.norm("blk.%d.attn_sub_norm" % n, stem + "self_attn.attn_sub_norm.weight", hidden)
                self.norm("blk.%d.ffn_sub_norm" % n, stem + "mlp.ffn_sub_norm.weight", ffn)
            for part, name in PROJECTIONS.items():
                self.projection("blk.%d.%s" % (n, part), stem + name + ".weight", *self.shapes[part])
        quant = {"quant_method": "bitnet"}
        if bitnet:
            quant.update(linear_class="autobitlinear",
                         quantization_mode="online" if kind == "master" else "offline")
        config = {
            "architectures": ["BitNetForCausalLM" if bitnet else "LlamaForCausalLM"],
            "model_type": "bitnet" if bitnet else "llama", "hidden_size": hidden,
            "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "vocab_size": 64, "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "relu2" if bitnet else "silu",
            "tie_word_embeddings": bitnet, "quantization_config": quant}
        os.mkdir(folder)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        write_safetensors(os.path.join(folder, "model.safetensors"), self.tensors)

    def dense(self, name, shape):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data = b"".join(bf16_bytes(self.rng.gauss(0, 0.5)) for _ in range(n))
        self.tensors.append((name, "BF16", shape, data))
        return data

    def norm(self, gguf, name, width):
        data = self.dense(name, (width,))
        self.norms[gguf + ".weight"] = [bf16(data[i:i + 2]) for i in range(0, len(data), 2)]

    def projection(self, gguf, name, rows, cols):
        n = rows * cols
        if self.kind == "master":
            data = b"".join(bf16_bytes(self.rng.gauss(0, 0.05)) for _ in range(n))
            self.tensors.append((name, "BF16", (rows, cols), data))
            self.absmean(gguf + ".weight", [bf16(data[i:i + 2]) for i in range(0, 2 * n, 2)])
            return
        codes = bytearray(self.rng.choices((0, 1, 2), weights=(29, 42, 29), k=n))
        codes[cols:2 * cols] = b"\1" * cols  # a dead row
        packed = pack_quarters(codes, rows, cols)
        self.tensors.append((name, "U8", (rows // 4, cols), packed))
        raw = bf16_bytes(self.rng.uniform(1.2, 2.0) if self.kind == "packed" else self.rng.uniform(20, 30))
        self.tensors.append((name + "_scale", "BF16", (1,), raw))
        self.codes[gguf + ".weight"] = bytes(codes)
        self.scales[gguf + ".weight"] = bf16(raw) if self.kind == "packed" else as_f32(1 / bf16(raw))

    def absmean(self, gguf, w):
        mean = sum(abs(x) for x in w) / len(w)
        codes = bytearray()
        for x in w:
            v = x / mean
            # too near to a tie for another order of rounding: no opinion
            codes.append(255 if abs(abs(v) - 0.5) < 1e-5 else 1 + max(-1, min(1, round(v))))
        self.codes[gguf], self.scales[gguf] = bytes(codes), mean

    def expected(self, name):
        """Codes as a GGUF must hold them: the `llama` architecture wants rotated rows interleaved."""
        codes, part = self.codes[name], name.split(".")[2]
        if self.kind != "llama" or part not in ("attn_q", "attn_k"):
            return codes
        rows, cols = self.shapes[part]
        heads = self.heads if part == "attn_q" else self.kv
        width, order = rows // heads, []
        for h in range(heads):
            for j in range(width // 2):
                order += [h * width + j, h * width + width // 2 + j]
        return b"".join(codes[r * cols:(r + 1) * cols] for r in order)


# ---------------------------------------------------------------- the program

def bitnet(*args, code=0):
    run = subprocess.run([BITNET, *args], capture_output=True, text=True)
    check(run.returncode == code, "bitnet %s: exit %d, not %d\n%s" %
          (" ".join(args), run.returncode, code, run.stderr))
    return run.stdout if code == 0 else run.stderr


def same_codes(found, wanted, where):
    check(len(found) == len(wanted), where + ": size")
    if found != wanted:
        for i, (a, b) in enumerate(zip(found, wanted)):
            check(a == b or b == 255, "%s: weight %d is %d, not %d" % (where, i, a - 1, b - 1))


def check_file(path, checkpoint, types, rounded=False):
    """Every projection, scale and norm of a converted file against the checkpoint, then inspect."""
    g = Gguf(path)
    for name in checkpoint.codes:
        kind, codes, scales = g.matrix(name)
        check(kind in types, "%s of %s has type %d" % (name, path, kind))
        same_codes(codes, checkpoint.expected(name), os.path.basename(path) + ": " + name)
        want = as_f16(checkpoint.scales[name]) if rounded else checkpoint.scales[name]
        check(len(scales) == 1, name + " has one scale")
        got = scales.pop()
        near = checkpoint.kind == "master"  # its mean is a sum in an order of our own
        check(abs(got - want) <= 1e-5 * want if near else got == want, "%s: scale %r, not %r" % (name, got, want))
    for name, values in checkpoint.norms.items():
        check(g.floats(name) == values, name + " is kept")
    check_report(path, g, checkpoint)
    return g


def check_report(path, g, checkpoint):
    report = json.loads(bitnet("inspect", path, "--json"))
    check(report["weight_dtype"] == "ternary" and abs(report["bit_width"] - 1.58) < 0.01 and
          report["has_zero_point"] is False, "inspect sums up " + path)
    by_name = {t["name"]: t for t in report["tensors"]}
    check(set(by_name) == set(g.tensors), "inspect lists every tensor of " + path)
    for name in checkpoint.codes:
        kind, codes, _ = g.matrix(name)
        t = by_name[name]
        check(t["type"] == NAMES[kind] and t["is_matrix"] and t["dtype"] == "ternary", "inspect of " + name)
        check(t["counts"] == [codes.count(i) for i in range(4)], "inspect counts " + name)
        check(t["dims"] == list(g.tensors[name][1]), "inspect's shape of " + name)
        if checkpoint.kind == "packed":
            check(t["dead_rows"] == 1, "inspect finds the dead row of " + name)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def refused(checkpoint, words, *args):
    out = os.path.join(os.path.dirname(checkpoint), "refused.gguf")
    text = bitnet("convert", checkpoint, out, *args, code=1)
    check(words in text, "'%s' is not in: %s" % (words, text))
    check(not os.path.exists(out), "a refused conversion leaves no file")


def packed_checkpoint(folder):
    """Scales that fit 16 bits: every type is lossless, and the way back gives the same file."""
    c = Checkpoint(os.path.join(folder, "packed"), "packed", 256, 512, 1, 4, 2, seed=1)
    first = os.path.join(folder, "packed-i2_s.gguf")
    bitnet("convert", c.path, first)
    g = check_file(first, c, {I2_S})
    check(g.meta["general.architecture"] == "bitnet-b1.58" and g.meta["general.file_type"] == 40,
          "metadata of " + first)
    check(g.tensors["token_embd.weight"][0] == BF16, "the embedding is kept")
    check("output.weight" not in g.tensors, "a tied head is not stored")
    before = first
    for name, kind in (("tq2_0", TQ2_0), ("tq1_0", TQ1_0), ("iq2_bn", IQ2_BN), ("iq1_bn", IQ1_BN),
                       ("q2_0", Q2_0), ("pq2_0", PQ2_0), ("ptq1_0", PTQ1_0), ("i2_s", I2_S)):
        after = os.path.join(folder, "packed-via-%s.gguf" % name)
        bitnet("convert", before, after, "--type", name)
        check_file(after, c, {kind})
        before = after
    check(content(before) == content(first), "back in I2_S the file is the one it was")
    bitnet("convert", first, first, code=1)  # exists
    check(content(before) == content(first), "an existing file is left alone")
    refused(first, "zeros", "--type", "q1_0")
    report = json.loads(bitnet("inspect", c.path, "--json"))
    check(report["weight_dtype"] == "ternary" and report["format"] == "safetensors", "inspect of the folder")


def llama_checkpoint(folder):
    """Divided scales do not fit 16 bits; 192 columns do not fit blocks of 128 or 256."""
    c = Checkpoint(os.path.join(folder, "llama"), "llama", 128, 192, 2, 2, 1, seed=2)
    out = os.path.join(folder, "llama.gguf")
    bitnet("convert", c.path, out, "--head-type", "f16")
    g = check_file(out, c, {I2_S, IQ2_BN})
    check(g.meta["general.architecture"] == "llama" and g.tensors["output.weight"][0] == F16, "head of " + out)
    refused(c.path, "256", "--type", "tq2_0")
    refused(c.path, "allow-scale-rounding", "--type", "iq1_bn")
    out = os.path.join(folder, "llama-rounded.gguf")
    bitnet("convert", c.path, out, "--type", "iq1_bn", "--allow-scale-rounding")
    check_file(out, c, {IQ1_BN}, rounded=True)


def master_checkpoint(folder):
    """Master weights are rounded to ternary on the way."""
    c = Checkpoint(os.path.join(folder, "master"), "master", 256, 256, 1, 4, 4, seed=3)
    out = os.path.join(folder, "master.gguf")
    bitnet("convert", c.path, out)
    check_file(out, c, {I2_S})
    report = json.loads(bitnet("inspect", c.path, "--json"))
    check(report["weight_dtype"] == "float", "inspect of master weights")
    again = os.path.join(folder, "master-tq1_0.gguf")
    refused(out, "allow-scale-rounding", "--type", "tq1_0")
    bitnet("convert", out, again, "--type", "tq1_0", "--allow-scale-rounding")
    for name in c.codes:
        check(Gguf(again).matrix(name)[1] == Gguf(out).matrix(name)[1], name + " through TQ1_0")


def binary_model(folder):
    """A synthetic model of -1 and +1 only."""
    first, second, third = (os.path.join(folder, "binary%d.gguf" % i) for i in range(3))
    bitnet("synth", "tiny", first, "--type", "q1_0")
    bitnet("convert", first, second, "--type", "iq2_bn")
    bitnet("convert", second, third, "--type", "q1_0")
    check(content(first) == content(third), "Q1_0 through IQ2_BN")
    a, b = Gguf(first), Gguf(second)
    names = [n for n in a.tensors if a.tensors[n][0] == Q1_0]
    check(len(names) == 14, "fourteen matrices")
    for name in names:
        check(a.matrix(name)[1:] == b.matrix(name)[1:], name + " is the same")
        check(1 not in a.matrix(name)[1], name + " has no zeros")
    report = json.loads(bitnet("inspect", second, "--json"))
    check(report["weight_dtype"] == "binary" and report["bit_width"] == 1, "inspect of a binary model")


class Grouped:
    """A Qwen3 folder with plain values that are codes times a scale for every `group` columns."""

    def __init__(self, folder, group, dtype, codes, seed):
        rng, self.path, self.values, tensors = random.Random(seed), folder, {}, []
        hidden, ffn, heads, kv, dim = 256, 384, 4, 2, 64
        shapes = {"attn_q": (heads * dim, hidden), "attn_k": (kv * dim, hidden), "attn_v": (kv * dim, hidden),
                  "attn_output": (hidden, heads * dim), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden),
                  "ffn_down": (hidden, ffn)}

        def add(name, shape, values, kind="BF16"):
            raw = (b"".join(map(bf16_bytes, values)) if kind == "BF16" else
                   struct.pack("<%d%s" % (len(values), {"F16": "e", "F32": "f"}[kind]), *values))
            tensors.append((name, kind, shape, raw))

        add("model.embed_tokens.weight", (64, hidden), [rng.gauss(0, 0.5) for _ in range(64 * hidden)])
        add("model.norm.weight", (hidden,), [1.0] * hidden)
        for n in range(2):
            stem = "model.layers.%d." % n
            for name, width in (("input_layernorm", hidden), ("post_attention_layernorm", hidden),
                                ("self_attn.q_norm", dim), ("self_attn.k_norm", dim)):
                add(stem + name + ".weight", (width,), [1.0] * width)
            for part, name in PROJECTIONS.items():
                rows, cols = shapes[part]
                values = []
                for _ in range(rows * cols // group):  # eight bits: exact in every type of float
                    scale = rng.randrange(128, 256) / 8192
                    values += [scale * c for c in rng.choices(codes, k=group)]
                add(stem + name + ".weight", shapes[part], values, dtype)
                self.values["blk.%d.%s.weight" % (n, part)] = values
        os.mkdir(folder)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": hidden,
                       "intermediate_size": ffn, "num_hidden_layers": 2, "num_attention_heads": heads,
                       "num_key_value_heads": kv, "head_dim": dim, "vocab_size": 64, "max_position_embeddings": 128,
                       "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
                       "tie_word_embeddings": True}, f)
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)

    def check(self, path, kind):
        g = Gguf(path)
        for name, values in self.values.items():
            check(g.tensors[name][0] == kind, "%s of %s has type %d" % (name, path, g.tensors[name][0]))
            check(g.values(name) == values, "%s: the values of %s" % (path, name))


def logits(model):
    out = os.path.join(os.path.dirname(model), "logits.f32")
    bitnet("logits", model, "--ids", "1,2,3,4,5,60", "--out", out)
    raw = content(out)
    os.remove(out)
    return raw


def through(folder, c, first, types):
    """The checkpoint into `first` by default, then from each type into the next; all compute the same."""
    want, before = logits(c.path), os.path.join(folder, "auto.gguf")
    bitnet("convert", c.path, before)
    c.check(before, first)
    check(logits(before) == want, "the logits of " + before)
    for name, kind in types:
        after = os.path.join(folder, name + ".gguf")
        bitnet("convert", before, after, "--type", name)
        c.check(after, kind)
        check(logits(after) == want, "the logits of " + after)
        before = after


def grouped_checkpoints(folder):
    """Plain values that are ternary or binary in groups: packed without loss, and the same bits everywhere."""
    for i, (group, dtype, codes, first, types, dtype_word) in enumerate((
            (128, "F16", (-1, 0, 1), PQ2_0, (("q2_0", Q2_0), ("ptq1_0", PTQ1_0), ("pq2_0", PQ2_0)), "ternary"),
            (128, "BF16", (-1, 1), Q1_0, (("pq2_0", PQ2_0), ("ptq1_0", PTQ1_0), ("q2_0", Q2_0), ("q1_0", Q1_0)), "binary"),
            (64, "F32", (-1, 0, 1), Q2_0, (("q2_0", Q2_0),), "ternary"))):
        part = os.path.join(folder, str(i))
        os.mkdir(part)
        c = Grouped(os.path.join(part, "hf"), group, dtype, codes, seed=i)
        through(part, c, first, types)
        report = json.loads(bitnet("inspect", c.path, "--json"))
        check(report["weight_dtype"] == dtype_word, "inspect of groups of %d" % group)
        refused(c.path, "scales that differ", "--type", "iq2_bn")
        if group == 64:
            refused(c.path, "scales that differ", "--type", "pq2_0")
    # no type has a scale for 32 columns: the values stay as they are, and are computed in their groups
    c = Grouped(os.path.join(folder, "hf32"), 32, "F16", (-1, 0, 1), seed=9)
    out = os.path.join(folder, "kept.gguf")
    bitnet("convert", c.path, out)
    check(Gguf(out).tensors["blk.0.attn_q.weight"][0] == F16, "groups of 32 are kept")
    check(logits(out) == logits(c.path), "the logits of groups of 32")


def type_42(folder):
    """The two formats of 34 bytes that share the number 42 are read, and become PQ2_0."""
    c = Grouped(os.path.join(folder, "hf"), 128, "F16", (-1, 0, 1), seed=4)
    first = os.path.join(folder, "first.gguf")
    bitnet("convert", c.path, first)
    want, g = logits(first), Gguf(first)
    raw = bytearray(g.raw)
    for name in c.values:  # the number in the directory
        at = raw.index(struct.pack("<Q", len(name)) + name.encode()) + 8 + len(name) + 4 + 16
        check(raw[at:at + 4] == struct.pack("<I", PQ2_0), "the number of " + name)
        raw[at:at + 4] = struct.pack("<I", 42)
    legacy = os.path.join(folder, "legacy.gguf")
    with open(legacy, "wb") as f:
        f.write(raw)
    types = {t["type"] for t in json.loads(bitnet("inspect", legacy, "--json"))["tensors"] if t["is_matrix"]}
    check(types == {"Q2_0_128"} and logits(legacy) == want, "the older format of 42")
    # the codes first, and marked as OxiBonsai does
    key = struct.pack("<Q", 28) + b"general.quantization_version"
    at = raw.index(key) + len(key)
    mark = struct.pack("<IQ", 8, 10) + b"TQ2_0_G128"
    data = min(t[2] for t in g.tensors.values())
    end = g.at + len(mark) - 8
    for name in c.values:
        begin, size = g.tensors[name][2], 34
        for b in range(begin, begin + len(c.values[name]) // 128 * size, size):
            raw[b:b + size] = raw[b + 2:b + size] + raw[b:b + 2]
    unmarked = os.path.join(folder, "unmarked.gguf")
    with open(unmarked, "wb") as f:
        f.write(raw)
    text = bitnet("inspect", unmarked, code=1)
    check("do not name TQ2_0_G128" in text and "plausible" in text, "without its mark: " + text)
    marked = os.path.join(folder, "marked.gguf")
    with open(marked, "wb") as f:
        f.write(raw[:at] + mark + raw[at + 8:g.at] + bytes(-end % 32) + raw[data:])
    types = {t["type"] for t in json.loads(bitnet("inspect", marked, "--json"))["tensors"] if t["is_matrix"]}
    check(types == {"TQ2_0_G128"} and logits(marked) == want, "the codes first")
    for source in (legacy, marked):
        for how in ([], ["--type", "keep"]):
            out = os.path.join(folder, "out.gguf")
            bitnet("convert", source, out, "--force", *how)
            check(content(out) == content(first), "%s %s is PQ2_0 again" % (source, how))


def main():
    global BITNET
    if len(sys.argv) != 2:
        raise SystemExit("usage: convert.py PATH/TO/bitnet")
    BITNET = os.path.abspath(sys.argv[1])
    cases = (packed_checkpoint, llama_checkpoint, master_checkpoint, binary_model, grouped_checkpoints, type_42)
    tap = Tap(len(cases))
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="bitnet-convert-") as folder:
            tap.case(case.__name__.replace("_", " "), case, folder)
    sys.exit(tap.end())


if __name__ == "__main__":
    main()
