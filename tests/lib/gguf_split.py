# SPDX-License-Identifier: Apache-2.0
"""Splits a GGUF as llama.cpp's gguf-split does: all metadata in the first part, each part with a directory and data of
its own, and three entries that say which part it is."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U16, I32, STR, ARRAY = 2, 5, 8, 9
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip_value(self, kind):
        if kind == STR:
            self.text()
        elif kind == ARRAY:
            of, n = self.take("IQ")
            for _ in range(n if of in (STR, ARRAY) else 0):
                self.skip_value(of)
            self.at += n * SIZES.get(of, 0)
        else:
            self.at += SIZES[kind]


def text(raw):
    return struct.pack("<Q", len(raw)) + raw


def padded(raw):
    return raw + bytes(-len(raw) % ALIGNMENT)


def read(data):
    """The metadata as bytes, how many there are, and [(name, dims and type as bytes, bytes of data)]."""
    r = Reader(data)
    magic, version, n_tensors, n_meta = r.take("4sIQQ")
    assert (magic, version) == (b"GGUF", 3)
    start, alignment = r.at, ALIGNMENT
    for _ in range(n_meta):
        key, kind = r.text(), r.take("I")
        if key == b"general.alignment":
            alignment = struct.unpack_from("<I", data, r.at)[0]
        r.skip_value(kind)
    meta, entries = data[start:r.at], []
    for _ in range(n_tensors):
        name, at = r.text(), r.at
        n_dims = r.take("I")
        r.at += 8 * n_dims + 4
        entries.append((name, data[at:r.at], r.take("Q")))
    assert alignment == ALIGNMENT
    base = -(-r.at // alignment) * alignment
    ends = sorted(offset for _, _, offset in entries)[1:] + [len(data) - base]
    end_of = dict(zip(sorted(offset for _, _, offset in entries), ends))
    return meta, n_meta, [(name, shape, data[base + at:base + end_of[at]]) for name, shape, at in entries]


def part(no, count, n_tensors, meta, n_meta, tensors):
    """The bytes of one part."""
    for key, kind, value in ((b"split.no", U16, struct.pack("<H", no)), (b"split.count", U16, struct.pack("<H", count)),
                             (b"split.tensors.count", I32, struct.pack("<i", n_tensors))):
        meta += text(key) + struct.pack("<I", kind) + value
    directory, data = b"", b""
    for name, shape, raw in tensors:
        directory += text(name) + shape + struct.pack("<Q", len(data))
        data += padded(raw)
    return padded(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), n_meta + 3) + meta + directory) + data


def split(data, count, no_tensor_first=False):
    """The parts, in order; their names end in names(count)."""
    meta, n_meta, tensors = read(data)
    full = count - no_tensor_first
    shares = [tensors[i * len(tensors) // full:(i + 1) * len(tensors) // full] for i in range(full)]
    shares = [[]] * no_tensor_first + shares
    return [part(no, count, len(tensors), b"" if no else meta, 0 if no else n_meta, share)
            for no, share in enumerate(shares)]


def names(stem, count):
    return [f"{stem}-{no:05}-of-{count:05}.gguf" for no in range(1, count + 1)]
