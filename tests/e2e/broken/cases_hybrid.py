# SPDX-License-Identifier: Apache-2.0
"""GGUF files of a model with delta nets and rotated inputs in which one thing is wrong; and 300 in which chance has
changed bytes of the header, the metadata or the directory: those work, or are refused with a sentence."""
import os
import random
import struct

from files import *
from running import *

MUTATIONS = max(300 * int(os.environ.get("BITNET_TEST_EFFORT", "100")) // 100, 60)


def names(g, key="weight_names"):
    return next(v[1] for k, _, v in g.meta if k == HADAMARD + key)


def rotation(key, kind, v):
    return lambda g: g.set(HADAMARD + key, kind, v)


def listed(change, key="weight_names"):
    """The list of names after a change of it."""
    return lambda g: g.set(HADAMARD + key, ARRAY, (STR, change(list(names(g, key)))))


def without(key):
    return lambda g: g.drop(HADAMARD + key)


def hybrid_cases():
    shape = lambda key, kind, v: lambda g: g.set(H + key, kind, v)
    a = "blk.0.ssm_a"
    signs = [1] * N
    rotations = [
        ("version 0", "version", rotation("version", U32, 0)), ("version 2", "version", rotation("version", U32, 2)),
        ("no version", "version", without("version")),
        ("version is a string", "version", rotation("version", STR, "1")),
        ("block 0", "block_size", rotation("block_size", U32, 0)),
        ("block 1", "block_size", rotation("block_size", U32, 1)),
        ("block 96", "block_size", rotation("block_size", U32, 96)),
        ("block 2^31", "block_size", rotation("block_size", U32, 1 << 31)),
        ("block that does not divide the width", "sign_widths", rotation("block_size", U32, 256)),
        ("block that does not divide, without signs", "rotated", lambda g: (
            rotation("block_size", U32, 256)(g), rotation("sign_mode", STR, "identity")(g),
            without("sign_widths")(g), without("sign_values")(g))),
        ("negative block", "block_size", rotation("block_size", I32, -64)), ("no block", "block_size", without("block_size")),
        ("another transform", "transform", rotation("transform", STR, "hadamard")),
        ("no transform", "transform", without("transform")),
        ("transform is a number", "transform", rotation("transform", U32, 1)),
        ("another axis", "axis", rotation("axis", STR, "output-first-dimension")), ("no axis", "axis", without("axis")),
        ("another sign mode", "sign_mode", rotation("sign_mode", STR, "seeded")),
        ("no sign mode", "sign_mode", without("sign_mode")),
        ("no sign widths", "sign_widths", without("sign_widths")),
        ("sign widths are one number", "sign_widths", rotation("sign_widths", U32, N)),
        ("sign widths are strings", "sign_widths", rotation("sign_widths", ARRAY, (STR, ["128"]))),
        ("no width", "sign_widths", rotation("sign_widths", ARRAY, (I32, []))),
        ("nine widths", "sign_widths", rotation("sign_widths", ARRAY, (I32, [N] * 9))),
        ("a negative width", "sign_widths", rotation("sign_widths", ARRAY, (I32, [-N]))),
        ("a width of 2^31 - 64", "sign_widths", rotation("sign_widths", ARRAY, (I32, [2**31 - 64]))),
        ("signs for another width", "128 columns", lambda g: (
            rotation("sign_widths", ARRAY, (I32, [192]))(g), rotation("sign_values", ARRAY, (I32, [1] * 192))(g))),
        ("no signs", "sign_values", without("sign_values")),
        ("fewer signs", "sign_values", rotation("sign_values", ARRAY, (I32, signs[1:]))),
        ("more signs", "sign_values", rotation("sign_values", ARRAY, (I32, [*signs, 1]))),
        ("a sign of 0", "sign_values", rotation("sign_values", ARRAY, (I32, [*signs[1:], 0]))),
        ("a sign of 255", "sign_values", rotation("sign_values", ARRAY, (U8, [*signs[1:], 255]))),
        ("signs are strings", "sign_values", rotation("sign_values", ARRAY, (STR, ["1"] * N))),
        ("signs are a string", "sign_values", rotation("sign_values", STR, "1" * N)),
        ("no names", "weight_names", without("weight_names")),
        ("names are one string", "weight_names", rotation("weight_names", STR, "output.weight")),
        ("names are numbers", "weight_names", rotation("weight_names", ARRAY, (U32, [1, 2]))),
        ("name of an absent tensor", "blk.7.attn_q.weight", listed(lambda n: [*n, "blk.7.attn_q.weight"])),
        ("name of 1 KB", "weight_names", listed(lambda n: [*n, "x" * 1024])),
        ("empty name", "weight_names", listed(lambda n: [*n, ""])),
        ("name of a norm", "weight_names", listed(lambda n: [*n, "output_norm.weight"])),
        ("name of the embedding", "weight_names", listed(lambda n: [*n, "token_embd.weight"])),
        ("a name twice", "weight_names", listed(lambda n: [*n, n[0]])),
        ("ssm_out is not rotated", "ssm_out", listed(lambda n: [x for x in n if "ssm_out" not in x])),
        ("inverse name of an absent tensor", "nowhere", rotation("inverse_weight_names", ARRAY, (STR, ["nowhere"]))),
        ("inverse name of a matrix", "inverse_weight_names", listed(lambda n: [*n, "output.weight"], "inverse_weight_names")),
        ("inverse names are a number", "inverse_weight_names", rotation("inverse_weight_names", U32, 1)),
        ("grouping is a number", "gdn_v_grouped", rotation("gdn_v_grouped", U32, 1)),
        ("an unknown key", "prism.hadamard.seed", rotation("seed", U32, 7)),
    ]
    shapes = [
        ("no taps", "ssm.conv_kernel", lambda g: g.drop(H + "ssm.conv_kernel")),
        ("1 tap", "convolution", shape("ssm.conv_kernel", U32, 1)),
        ("2^20 taps", "convolution", shape("ssm.conv_kernel", U32, 1 << 20)),
        ("3 taps, and 4 stored", "ssm_conv1d", shape("ssm.conv_kernel", U32, 3)),
        ("key heads of 0", "key head", shape("ssm.state_size", U32, 0)),
        ("key heads of 2^20", "key head", shape("ssm.state_size", U32, 1 << 20)),
        ("no key heads", "key heads", shape("ssm.group_count", U32, 0)),
        ("more key heads than value heads", "key heads", shape("ssm.group_count", U32, 4)),
        ("heads that do not share evenly", "evenly", lambda g: (
            shape("ssm.group_count", U32, 2)(g), shape("ssm.time_step_rank", U32, 3)(g), shape("ssm.inner_size", U32, 192)(g))),
        ("no value heads", "heads", shape("ssm.time_step_rank", U32, 0)),
        ("values that cannot be cut into heads", "heads", shape("ssm.time_step_rank", U32, 3)),
        ("2^31 value heads", "heads", shape("ssm.time_step_rank", U32, 1 << 31)),
        ("no values", "value head", shape("ssm.inner_size", U32, 0)),
        ("2^31 values", "value head", shape("ssm.inner_size", U32, 1 << 31)),
        ("sections of more pairs than there are", "sections", shape("rope.dimension_sections", ARRAY, (I32, [9, 9, 9, 0]))),
        ("five sections", "rope.dimension_sections", shape("rope.dimension_sections", ARRAY, (I32, [1] * 5))),
        ("negative section", "rope.dimension_sections", shape("rope.dimension_sections", ARRAY, (I32, [-1, 1, 1, 1]))),
        ("every layer has attention", "blk.0.attn_q", shape("full_attention_interval", U32, 1)),
        ("no layer has attention", "blk.1.ssm_", shape("full_attention_interval", U32, 3)),
        ("interval is a string", "full_attention_interval", shape("full_attention_interval", STR, "2")),
        ("kinds of fewer layers", "recurrent_layers", shape("attention.recurrent_layers", ARRAY, (U32, [1]))),
        ("kinds are strings", "recurrent_layers", shape("attention.recurrent_layers", ARRAY, (STR, ["a", "b"]))),
        ("all layers draft", "draft", shape("nextn_predict_layers", U32, 2)),
        ("2^32-1 layers draft", "draft", shape("nextn_predict_layers", U32, 2**32 - 1)),
        ("a layer that drafts without its parts", "blk.1.", shape("nextn_predict_layers", U32, 1)),
        ("NaN in ssm_a", a, lambda g: tensor(a, data=struct.pack("<2f", -1, NAN))(g)),
        ("infinity in ssm_dt", "ssm_dt", tensor("blk.0.ssm_dt.bias", data=struct.pack("<2f", INF, 0))),
        ("NaN in the convolution", "ssm_conv1d", lambda g: tensor(
            "blk.0.ssm_conv1d.weight", data=g["blk.0.ssm_conv1d.weight"].data[4:] + struct.pack("<f", NAN))(g)),
        ("ssm_a of another width", a, tensor(a, dims=[1])), ("ssm_a of integers", a, tensor(a, kind=T_I32)),
        ("NaN scale of a block", "blk.0.ssm_out", lambda g: tensor(
            "blk.0.ssm_out.weight", data=struct.pack("<e", NAN) + g["blk.0.ssm_out.weight"].data[2:])(g)),
        ("queries without gates", "blk.1.attn_q", lambda g: tensor("blk.1.attn_q.weight", dims=[N, N])(g)),
        ("gate of another shape", "blk.0.attn_gate", tensor("blk.0.attn_gate.weight", dims=[N, N // 2])),
    ]
    for t in hybrid().tensors:
        if t.name.startswith("blk.") and "ffn_" not in t.name:
            shapes.append(("no " + t.name, t.name, lambda g, n=t.name: (
                g.drop_tensor(n), listed(lambda names: [x for x in names if x != n])(g))))
    good = hybrid().bytes()
    cases = [Case("control: hybrid, " + args[0], args, code=OK, files={"m.gguf": good}, same_folder=False)
             for args in (LOGITS, RUN, CONVERT, INSPECT)]
    cases += [Case("rotation: " + name, LOGITS, word, files={"m.gguf": made_hybrid(change)})
              for name, word, change in rotations]
    cases += [Case("hybrid: " + name, LOGITS, word, files={"m.gguf": made_hybrid(change)})
              for name, word, change in shapes]
    # inspect shows a file that cannot be run, and says why
    cases.append(Case("inspect: a rotation that is not known", INSPECT, code=OK,
                      files={"m.gguf": made_hybrid(rotation("version", U32, 2))},
                      check=lambda out, folder: "" if b"cannot be run" in out and b"version" in out else repr(out[-300:])))
    return cases


def mutated(bitnet, folder):
    """Bytes of the header, the metadata and the directory that chance changes."""
    head, meta, directory, data = hybrid().sections()
    chance, ran = random.Random(35), 0
    prism = (head + meta).index(b"prism.hadamard.version")
    for i in range(MUTATIONS):
        whole = bytearray(head + meta + directory)
        begin, end = chance.choice(((0, 24), (24, prism), (prism, len(head + meta)), (prism, len(head + meta)),
                                    (len(head + meta), len(whole))))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(begin, end)
            whole[at] = chance.choice((whole[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0, 255))
        case = Case("", LOGITS, files={"m.gguf": bytes(whole) + data}, same_folder=False)
        what = run(bitnet, case, folder)
        if what.startswith("exit code 0"):
            ran, what = ran + 1, ""
        if what:
            return "file %d: %s" % (i, what)
        for path in folder.iterdir():
            path.unlink()
    return "" if 0 < ran < MUTATIONS else "%d of %d ran" % (ran, MUTATIONS)
