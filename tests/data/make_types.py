#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes types/types.json: random blocks of every storage type and the values they stand for.

Written from the descriptions of the formats and not from the C code, element by element and as slow
as it likes, so that the two can be held against each other. Needs the standard library only; f32
products are rounded through struct. Run: python3 make_types.py > types/types.json
"""
import json
import random
import struct
import sys

rnd = random.Random(158)


def f32(x):
    """Rounds a double to f32."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f32_bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def half(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def half_bits(x):
    return struct.unpack("<H", struct.pack("<e", x))[0]


def random_half():
    return half_bits(rnd.choice([1, -1]) * rnd.uniform(0.001, 2.0))


def trits(n, top=1):
    return [rnd.randint(-1, top) for _ in range(n)]


def base3(digits):
    """Digits, most significant first, as ggml's byte: ceil(256 v / 243)."""
    v = 0
    for d in digits:
        v = 3 * v + d
    return -(-256 * v // 243)


# ---------------------------------------------------------------- ternary: rows -> bytes

def i2_s(rows, cols, block):
    """One block sequence over the whole tensor, `block` weights in block / 4 bytes."""
    w = [trits(cols) for _ in range(rows)]
    flat = [x for row in w for x in row]
    data = bytearray(len(flat) // 4)
    quarter = block // 4
    for e, x in enumerate(flat):
        b, j = divmod(e, block)
        data[b * quarter + j % quarter] |= (x + 1) << (6 - 2 * (j // quarter))
    scale = f32(rnd.uniform(0.01, 3))
    data += struct.pack("<f", scale) + bytes(28)
    return bytes(data), w, [[scale]] * rows


def i2_s_rows4(rows, cols):
    w = [trits(cols) for _ in range(rows)]
    data = bytearray()
    for r in range(0, rows, 4):
        for c in range(cols):
            q = [w[r + i][c] + 1 for i in range(4)]
            data.append(q[0] << 6 | q[1] << 4 | q[2] << 2 | q[3])
    scale = f32(rnd.uniform(0.01, 3))
    return bytes(data) + struct.pack("<f", scale) + bytes(28), w, [[scale]] * rows


def hf_u8(rows, cols):
    """w[i * P + p][k] = ((packed[p][k] >> 2 i) & 3) - 1 with P = ceil(rows / 4)"""
    w = [trits(cols) for _ in range(rows)]
    quarter = (rows + 3) // 4
    data = bytearray(quarter * cols)
    for r in range(rows):
        i, p = divmod(r, quarter)
        for k in range(cols):
            data[p * cols + k] |= (w[r][k] + 1) << 2 * i
    return bytes(data), w, [[1.0]] * rows


def blocks(rows, cols, size, pack, top=1):
    """Types whose blocks carry an f16 scale: pack(weights, scale bits) -> bytes."""
    data, w, scales = b"", [], []
    for _ in range(rows):
        row, row_scales = [], []
        for _ in range(cols // size):
            x, d = trits(size, top), random_half()
            if size == 128 and top == 0:  # binary
                x = [1 if v else -1 for v in x]
            data += pack(x, struct.pack("<H", d))
            row += x
            row_scales.append(half(d))
        w.append(row)
        scales.append(row_scales)
    return data, w, scales


def tq1_0(x, d):
    q = [v + 1 for v in x]
    out = [base3([q[n * 32 + m] for n in range(5)]) for m in range(32)]
    out += [base3([q[160 + n * 16 + m] for n in range(5)]) for m in range(16)]
    out += [base3([q[240 + n * 4 + j] for n in range(4)] + [0]) for j in range(4)]
    return bytes(out) + d


def tq2_0(x, d):
    out = bytearray(64)
    for h in range(2):
        for l in range(4):
            for m in range(32):
                out[h * 32 + m] |= (x[h * 128 + l * 32 + m] + 1) << 2 * l
    return bytes(out) + d


def q1_0(x, d):
    out = bytearray(16)
    for j, v in enumerate(x):
        out[j // 8] |= (v > 0) << j % 8
    return d + bytes(out)


def q2_0(x, d):
    out = bytearray(len(x) // 4)
    for j, v in enumerate(x):
        out[j // 4] |= (v + 1) << 2 * (j % 4)
    return d + bytes(out)


def ptq1_0(x, d):
    """28 bytes for 128: qs[24], qh[2], f16 d. Elements in the order in which a reader meets them:
    qs[0:16] trit 0 of each byte, then trit 1, ..., qs[16:24] likewise, qh with four trits."""
    q, at, out = [v + 1 for v in x], 0, []
    for width, digits in ((16, 5), (8, 5), (2, 4)):
        columns = [[] for _ in range(width)]
        for _ in range(digits):
            for m in range(width):
                columns[m].append(q[at])
                at += 1
        out += [base3(c + [0] * (5 - digits)) for c in columns]
    assert at == len(x) == 128 and len(out) == 26
    return bytes(out) + d


def tq2_0_g128(x, d):
    """34 bytes for 128: qs[32], four codes a byte from the bottom, f16 d behind them."""
    return bytes(sum((x[4 * k + i] + 1) << 2 * i for i in range(4)) for k in range(32)) + d


def read_ptq1_0(b):
    """The reader's side of the description: trit n of a byte is the top digit of byte * 3^n."""
    out = []
    for begin, end, digits in ((0, 16, 5), (16, 24, 5), (24, 26, 4)):
        for n in range(digits):
            out += [((byte * 3**n & 255) * 3 >> 8) - 1 for byte in b[begin:end]]
    return out, half(struct.unpack_from("<H", b, 26)[0])


def read_pq2_0(b):
    return [(b[2 + j // 4] >> 2 * (j % 4) & 3) - 1 for j in range(128)], half(struct.unpack_from("<H", b)[0])


def read_tq2_0_g128(b):
    return [(b[j // 4] >> 2 * (j % 4) & 3) - 1 for j in range(128)], half(struct.unpack_from("<H", b, 32)[0])


def checked(pack, read):
    """A packer whose every block is read back by the other half of the description."""
    def both(x, d):
        b = pack(x, d)
        assert read(b) == (x, half(struct.unpack("<H", d)[0]))
        return b
    return both


def iq2_bn_block(x):
    out = bytearray(16)
    for j in range(16):
        for i in range(4):
            out[j] |= (x[j + 16 * i] + 1) << 2 * i
    return bytes(out)


def iq2_bn(rows, cols):
    data, w, scales = b"", [], []
    for _ in range(rows):
        x, d = trits(cols), f32(rnd.uniform(0.01, 3))
        data += struct.pack("<f", d)
        for b in range(0, cols, 64):
            data += iq2_bn_block(x[b:b + 64])
        w.append(x)
        scales.append([d])
    return data, w, scales


def iq1_bn(rows, cols):
    data, w, scales = b"", [], []
    for _ in range(rows):
        x, d = trits(cols), random_half()
        data += struct.pack("<H", d)
        for b in range(0, cols, 64):
            q = [v + 1 for v in x[b:b + 64]]
            out = []
            for g in range(4):
                for k in range(3):
                    five = q[16 * g + 5 * k:16 * g + 5 * k + 5]
                    out.append(base3(five[::-1]))
            out.append(base3([0] + [q[16 * g + 15] for g in range(4)][::-1]))
            data += bytes(out)
        w.append(x)
        scales.append([half(d)])
    return data, w, scales


def iq2_bn_r4(rows, cols):
    """Four rows: 4 f32 scales, then 64 bytes for 64 columns; byte 16 l + 4 k + i of row k holds
    elements 16 l + i + 4 s at bits 2 s."""
    data, w, scales = b"", [], []
    for _ in range(0, rows, 4):
        x = [trits(cols) for _ in range(4)]
        d = [f32(rnd.uniform(0.01, 3)) for _ in range(4)]
        data += struct.pack("<4f", *d)
        for b in range(0, cols, 64):
            out = bytearray(64)
            for k in range(4):
                for e in range(64):
                    l, rest = divmod(e, 16)
                    s, i = divmod(rest, 4)
                    out[16 * l + 4 * k + i] |= (x[k][b + e] + 1) << 2 * s
            data += bytes(out)
        w += x
        scales += [[v] for v in d]
    return data, w, scales


# ---------------------------------------------------------------- dense: bytes -> values

def q8_0(b):
    d = half(struct.unpack_from("<H", b)[0])
    return [f32(d * q) for q in struct.unpack_from("<32b", b, 2)]


def q4_0(b):
    d = half(struct.unpack_from("<H", b)[0])
    low = [f32(d * ((q & 15) - 8)) for q in b[2:]]
    return low + [f32(d * ((q >> 4) - 8)) for q in b[2:]]


def q4_k(b):
    d, dmin = (half(v) for v in struct.unpack_from("<2H", b))
    s, q, out = b[4:16], b[16:], []
    scale = [s[i] & 63 for i in range(4)]
    scale += [s[8 + i] & 15 | (s[i] >> 6) << 4 for i in range(4)]
    low = [s[4 + i] & 63 for i in range(4)]
    low += [s[8 + i] >> 4 | (s[4 + i] >> 6) << 4 for i in range(4)]
    for pair in range(4):
        part = q[32 * pair:32 * pair + 32]
        for side in range(2):
            g = 2 * pair + side
            a, m = f32(d * scale[g]), f32(dmin * low[g])
            out += [f32(f32(a * (v >> 4 * side & 15)) - m) for v in part]
    return out


def q6_k(b):
    ql, qh, sc = b[:128], b[128:192], struct.unpack_from("<16b", b, 192)
    d = half(struct.unpack_from("<H", b, 208)[0])
    out = [0.0] * 256
    for n in range(2):
        low, high, scale = ql[64 * n:64 * n + 64], qh[32 * n:32 * n + 32], sc[8 * n:8 * n + 8]
        for l in range(32):
            i = l // 16
            four = [(low[l] & 15) | (high[l] & 3) << 4,
                    (low[l + 32] & 15) | (high[l] >> 2 & 3) << 4,
                    (low[l] >> 4) | (high[l] >> 4 & 3) << 4,
                    (low[l + 32] >> 4) | (high[l] >> 6) << 4]
            for k, q in enumerate(four):
                out[128 * n + 32 * k + l] = f32(f32(d * scale[i + 2 * k]) * (q - 32))
    return out


def dense(name, size, n_bytes, halves, decode, rows=2, count=2):
    data, values = b"", []
    for _ in range(rows):
        row = []
        for _ in range(count):
            b = bytearray(rnd.randbytes(n_bytes))
            for at in halves:
                b[at:at + 2] = struct.pack("<H", random_half())
            data += bytes(b)
            row += decode(bytes(b))
        values.append([f32_bits(v) for v in row])
    return {"type": name, "rows": rows, "cols": size * count, "data": data.hex(), "values": values}


def plain(name, fmt, numbers):
    data = b"".join(struct.pack("<" + fmt, v) for v in numbers)
    stored = [struct.unpack("<" + fmt, struct.pack("<" + fmt, v))[0] for v in numbers]
    values = [[f32_bits(f32(v)) for v in stored]]
    return {"type": name, "rows": 1, "cols": len(numbers), "data": data.hex(), "values": values}


def main():
    out = {"ternary": [], "dense": []}

    def ternary(name, rows, cols, made):
        data, w, scales = made
        out["ternary"].append({"type": name, "rows": rows, "cols": cols, "data": data.hex(),
                               "trits": ["".join("-0+2"[v + 1] for v in row) for row in w],
                               "scales": [[f32_bits(v) for v in row] for row in scales]})

    ternary("I2_S", 3, 256, i2_s(3, 256, 128))
    ternary("I2_S", 8, 80, i2_s(8, 80, 128))       # rows that begin inside a block
    ternary("I2_S", 32, 4, i2_s(32, 4, 128))       # rows that are parts of one block
    ternary("I2_S_64", 4, 96, i2_s(4, 96, 64))
    ternary("I2_S_ROWS4", 8, 37, i2_s_rows4(8, 37))
    ternary("U8 packed", 8, 33, hf_u8(8, 33))
    ternary("U8 packed", 6, 16, hf_u8(6, 16))      # rows not a multiple of four: rounded up
    ternary("TQ1_0", 2, 512, blocks(2, 512, 256, tq1_0))
    ternary("TQ2_0", 2, 512, blocks(2, 512, 256, tq2_0))
    ternary("IQ2_BN", 3, 128, iq2_bn(3, 128))
    ternary("IQ1_BN", 3, 128, iq1_bn(3, 128))
    ternary("IQ2_BN_R4", 8, 128, iq2_bn_r4(8, 128))
    ternary("Q1_0", 2, 256, blocks(2, 256, 128, q1_0, top=0))
    ternary("Q2_0", 2, 192, blocks(2, 192, 64, q2_0, top=2))
    ternary("Q2_0_128", 2, 256, blocks(2, 256, 128, q2_0, top=2))
    state = rnd.getstate()  # what follows keeps its numbers
    ternary("PQ2_0", 3, 384, blocks(3, 384, 128, checked(q2_0, read_pq2_0), top=2))
    ternary("PTQ1_0", 3, 384, blocks(3, 384, 128, checked(ptq1_0, read_ptq1_0)))
    ternary("TQ2_0_G128", 3, 384, blocks(3, 384, 128, checked(tq2_0_g128, read_tq2_0_g128)))
    rnd.setstate(state)
    out["dense"] = [
        dense("Q8_0", 32, 34, [0], q8_0), dense("Q4_0", 32, 18, [0], q4_0),
        dense("Q4_K", 256, 144, [0, 2], q4_k), dense("Q6_K", 256, 210, [208], q6_k),
        plain("F32", "f", [0.0, -1.5, 3.25e-20, 7e30]),
        plain("F16", "e", [0.0, -1.5, 65504.0, 6e-8, 0.333]),
        plain("F64", "d", [0.1, -1e300 * 0, 123456789.123]),
        plain("I8", "b", [-128, 0, 127]), plain("U8", "B", [0, 200, 255]),
        plain("I16", "h", [-32768, 5]), plain("I32", "i", [-2**31, 16777217]),
        plain("I64", "q", [-2**63, 2**53 + 1]),
    ]
    # bfloat16: the upper half of an f32
    bf = [0x3F80, 0xC2F7, 0x0001, 0x7F7F]
    out["dense"].append({"type": "BF16", "rows": 1, "cols": 4,
                         "data": struct.pack("<4H", *bf).hex(), "values": [[v << 16 for v in bf]]})
    # every byte that stands for five trits in TQ1_0, first digit most significant
    out["base3"] = [base3([v // 3**k % 3 for k in (4, 3, 2, 1, 0)]) for v in range(243)]
    json.dump(out, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
