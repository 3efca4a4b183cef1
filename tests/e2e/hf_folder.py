#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the Hugging Face folder of the embedded model from its GGUF: packed U8 projections with weight_scale, bfloat16
for the rest. The repository holds the weights once; this gives tests the other form, by a reader and a packer that
share nothing with the library.

usage: hf_folder.py MODEL.gguf TEMPLATE_FOLDER OUT_FOLDER   (the template has config.json and tokenizer.json)
"""
import json
import pathlib
import shutil
import struct
import sys

F32, BF16, I2_S = 0, 30, 36
HF = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
      "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
      "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
      "attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"}


class Reader:
    """GGUF, as far as this file needs it: skips the metadata, lists the tensors."""

    def __init__(self, raw):
        self.raw, self.at = raw, 4

    def number(self, form):
        value = struct.unpack_from("<" + form, self.raw, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.raw[self.at - n : self.at].decode()

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            of, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip(of)
        else:
            self.at += {0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(kind, 4)

    def tensors(self):
        assert self.raw[:4] == b"GGUF" and self.number("I") == 3
        n_tensors, n_meta = self.number("Q"), self.number("Q")
        for _ in range(n_meta):
            self.text()
            self.skip(self.number("I"))
        found = []
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.number("Q") for _ in range(self.number("I"))]
            found.append((name, dims, self.number("I"), self.number("Q")))
        start = (self.at + 31) // 32 * 32
        return [(name, dims, kind, start + offset) for name, dims, kind, offset in found]


def codes_of_byte():
    """For each field of an I2_S byte, a table from bytes to codes: the first 32 weights of a block are on top."""
    return [bytes((b >> shift) & 3 for b in range(256)) for shift in (6, 4, 2, 0)]


def i2s_rows(raw, rows, cols):
    """Rows of codes (weight + 1), and the scale."""
    tables, n = codes_of_byte(), rows * cols // 4
    codes = bytearray()
    for block in range(0, n, 32):
        for table in tables:
            codes += raw[block : block + 32].translate(table)
    return [bytes(codes[r * cols : (r + 1) * cols]) for r in range(rows)], struct.unpack_from("<f", raw, n)[0]


def pack_quarters(rows):
    """Row p of the result holds rows p, P+p, 2P+p and 3P+p in its bits 0-1, 2-3, 4-5 and 6-7."""
    quarter = len(rows) // 4
    shifts = [bytes((c << (2 * i)) & 255 for c in range(4)) + bytes(252) for i in range(4)]
    out = bytearray()
    for p in range(quarter):
        total = 0
        for i in range(4):
            total |= int.from_bytes(rows[i * quarter + p].translate(shifts[i]), "little")
        out += total.to_bytes(len(rows[0]), "little")
    return bytes(out)


def bf16_of_f32(raw):
    assert not any(raw[0::4]) and not any(raw[1::4]), "the norms came from bfloat16"
    return b"".join(raw[i + 2 : i + 4] for i in range(0, len(raw), 4))


def convert(model, template, out):
    raw = pathlib.Path(model).read_bytes()
    tensors = {}
    for name, dims, kind, at in Reader(raw).tensors():
        parts = name.split(".")
        if name == "token_embd.weight":
            hf = "model.embed_tokens.weight"
        elif name == "output_norm.weight":
            hf = "model.norm.weight"
        else:
            hf = f"model.layers.{parts[1]}.{HF[parts[2]]}.weight"
        n = 1
        for d in dims:
            n *= d
        if kind == I2_S:
            rows, scale = i2s_rows(raw[at : at + n // 4 + 4], dims[1], dims[0])
            tensors[hf] = ("U8", [dims[1] // 4, dims[0]], pack_quarters(rows))
            tensors[hf + "_scale"] = ("F32", [1], struct.pack("<f", scale))
        elif kind == BF16:
            tensors[hf] = ("BF16", dims[::-1], raw[at : at + 2 * n])
        else:
            assert kind == F32, (name, kind)
            tensors[hf] = ("BF16", dims[::-1], bf16_of_f32(raw[at : at + 4 * n]))
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pathlib.Path(template) / file, out / file)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            f.write(tensors[name][2])


if __name__ == "__main__":
    convert(*sys.argv[1:4])
