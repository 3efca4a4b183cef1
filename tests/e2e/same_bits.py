#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Same bits everywhere: one SHA-256 of the logits of a fixed prompt (tests/cross/bits.c) for every kernel set, number of
threads, chunking and company, layout of the weights in memory, for every file type that holds the model without loss, and for
other CPUs.

usage: same_bits.py --bits BITS [--uneven BITS] --bitnet BITNET --model MODEL.gguf [--folder DIR] [--hybrid TINY.gguf]
                    [--families DIR] [--foreign NAME 'COMMAND...']... [--cpu NAME 'COMMAND...']... [--skipped NAME REASON]...
                    [--only-foreign] [--jobs N]

--bits, --bitnet: this machine's build. --folder: config.json and tokenizer.json of the same model as a Hugging Face
folder; its weights are made from MODEL by hf_folder.py. --hybrid: a small model with delta nets and rotated matrices.
--uneven: a `bits` with one worker of half the speed.
--families: folders with small checkpoints, one of each kind of model; every row of the table has them, those of --cpu as
GGUF, made by --bitnet.
--foreign: a `bits` for another CPU or from another compiler, with the emulator it needs in front.
--cpu: the same with an emulator that stands for one CPU: a few runs, in which a newer instruction would end it. These and the
backends of this machine are printed as a table.
--skipped: something that could not be built; shown and counted as skipped. --jobs: runs of foreign builds side by side.
tests/e2e/same_bits.sha256, when there, pins the hashes: a change of one is a change of the numbers and must be explained.
Prints TAP."""
import argparse
import concurrent.futures
import lzma
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import hf_folder
from effort import full_effort
from tap import Skipped, Tap, comment

KV_TYPES = ("f16", "f32", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "int2")
PINNED = pathlib.Path(__file__).with_suffix(".sha256")
# The small model's scales are 32-bit numbers, so these hold it without loss. Types with 16-bit scales are compared among
# themselves: the scales are rounded once (ROUNDED[0]), and from then on every type holds the model exactly.
LOSSLESS = [("i2_s", []), ("iq2_bn", []), ("i2_s, head f32", ["--head-type", "f32"])]
ROUNDED = ["iq1_bn", "i2_s", "iq2_bn", "q2_0"]
PERHAPS = ["tq2_0", "tq1_0"]  # blocks of 256, which the small model's FFN width does not fill
Q1_0 = 41  # the GGUF type
GROUPED = ("g2", "g3", "g5")  # for activations in planes
FAMILY_IDS = ",".join(str(i) for i in range(1, 100, 7))
HYBRID_IDS = ["--ids", ",".join(str(i * 71 % 160) for i in range(150))]  # several pages of keys

tap = Tap()


class Judge:
    """Holds the first hash seen for a kind of KV cache, of head or of answers; every later one must be the same."""

    def __init__(self, pinned, jobs=0):
        """jobs: so many runs side by side, which settle() waits for and judges in their order; 0: each one at once."""
        self.want = pinned
        self.first = {}
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs) if jobs else None
        self.running = []
        self.table = {}  # name: {kind: (kernels, hash)}

    def see(self, name, command, model, *options, kv="f16"):
        options = ["--kv", kv, *options] if kv in KV_TYPES else options
        call = [*command, str(model), *options]
        if self.pool:
            self.running.append((name, kv, self.pool.submit(subprocess.run, call, capture_output=True, text=True)))
        else:
            self.judge(name, kv, subprocess.run(call, capture_output=True, text=True))

    def settle(self):
        for name, kv, run in self.running:
            self.judge(name, kv, run.result())
        self.running = []

    def judge(self, name, kv, p):
        got = p.stdout.strip()
        used = re.findall(r"^bits: (?:kernels|layout) (\S+)$", p.stderr, re.M)
        name += f" [{', '.join(used)}]" if used else ""  # what really ran, not what was asked for
        want = self.want.setdefault(kv, got if p.returncode == 0 else None)
        self.first.setdefault(kv, got)
        if ", row " in name:
            row, kind = name.split(" [")[0].split(", row ")
            said = got[:16] if p.returncode == 0 else "failed"
            cells = self.table.setdefault(row, {})
            if kind.startswith("family "):
                kind, said = "families", self.count_family(cells, p.returncode == 0 and got == want)
            cells[kind] = (used[0] if used else "?", said)
        tap.point(name, p.returncode == 0 and got == want,
                  f"exit {p.returncode}, {got}, expected {want}\n{p.stderr}\n{shlex.join(p.args)}")


    @staticmethod
    def count_family(cells, same):
        right, all_of_them = map(int, cells["families"][1].split(" of ")) if "families" in cells else (0, 0)
        return f"{right + same} of {all_of_them + 1}"


def read_pinned():
    if not PINNED.exists():
        return {}
    return dict(reversed(line.split()[:2]) for line in PINNED.read_text().splitlines() if line and line[0] != "#")


def backends(bits, model):
    """auto and scalar, and of the named levels those whose kernels really run here. A level this CPU or build lacks is
    skipped, but AVX2 kernels must be there on a CPU that has AVX2."""
    yield from ("auto", "scalar")
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    flags = set(re.findall(r"\w+", pathlib.Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0]))
    for name in ("sse4.1", "avx2", "avxvnni", "avx512"):
        p = subprocess.run([*bits, str(model), "--ids", "1", "--backend", name], capture_output=True, text=True)
        why = (p.stderr.strip().splitlines() or ["?"])[-1].replace("bits: ", "")[:100]
        if p.returncode == 0:
            yield name
        elif name == "avx2" and {"avx2", "fma", "f16c", "bmi2"} <= flags:
            tap.point(f"{name} kernels", False, why)
        else:
            tap.skip(f"{name} kernels", Skipped("isa", why))


def layouts(judge, bits, model, names):
    """Every layout of weights in memory, with the kernels for one and for several tokens."""
    for layout in ("t2", "t3", "t5"):
        for backend in names:
            for threads, chunk in ((1, 0), (3, 7), (2, 1)):
                judge.see(f"layout {layout}, {backend}, threads {threads}, chunks of {chunk or 'all'}", bits, model, "--layout",
                          layout, "--backend", backend, "--threads", str(threads), "--chunk", str(chunk))
        judge.see(f"layout {layout}, kv f32", bits, model, "--layout", layout, kv="f32")


def skipping(judge, bits, model):
    """Feed-forward layers without their zeros, which single tokens can have."""
    for layout, backend, threads in (("t2", "auto", 1), ("t2", "auto", 3), ("t3", "auto", 2), ("t5", "auto", 2), ("t2", "scalar", 2)):
        judge.see(f"ffn skip, layout {layout}, {backend}, threads {threads}, token by token", bits, model, "--ffn", "skip",
                  "--layout", layout, "--backend", backend, "--threads", str(threads), "--chunk", "1")
    judge.see("ffn skip, kv f32, token by token", bits, model, "--ffn", "skip", "--chunk", "1", kv="f32")
    judge.see("ffn skip, in company, token by token", bits, model, "--ffn", "skip", "--chunk", "1", "--company")


def here(judge, bits, model):
    names = list(backends(bits, model))
    for kv in ("f16", "f32"):
        for backend in names if kv == "f16" else ("auto", "scalar"):
            for threads in (1, 2, 3):
                for chunk, word in ((0, "in one go"), (7, "in chunks of 7"), (1, "token by token")):
                    if kv == "f32" and threads == 2:
                        continue
                    judge.see(f"kv {kv}, {backend}, threads {threads}, {word}", bits, model, "--backend", backend,
                              "--threads", str(threads), "--chunk", str(chunk), kv=kv)
    layouts(judge, bits, model, names)
    skipping(judge, bits, model)
    for kv in KV_TYPES[2:]:
        for backend, threads, chunk in (("auto", 1, 0), ("scalar", 2, 7), ("auto", 3, 1)):
            judge.see(f"kv {kv}, {backend}, threads {threads}, chunks of {chunk or 'all'}", bits, model, "--backend", backend,
                      "--threads", str(threads), "--chunk", str(chunk), kv=kv)
        judge.see(f"kv {kv}, in company", bits, model, "--chunk", "7", "--company", kv=kv)
    judge.see("steps of 5 tokens", bits, model, "--batch", "5")
    judge.see("in the company of another sequence", bits, model, "--chunk", "7", "--company")
    judge.see("in company, token by token, steps of 16", bits, model, "--chunk", "1", "--batch", "16", "--company")


def uneven(judge, bits, model, hybrid):
    """One worker has half the speed, and others do most of its share."""
    for threads in (2, 3):
        for options in ([], ["--chunk", "1"], ["--chunk", "1", "--ffn", "skip"], ["--chunk", "1", "--head", "exact"]):
            judge.see(f"uneven, threads {threads} {' '.join(options)}", bits, model, "--threads", str(threads), *options)
        judge.see(f"uneven, threads {threads}, int8 head", bits, model, "--threads", str(threads), "--head", "int8", kv="int8-head")
        if hybrid:
            judge.see(f"uneven, threads {threads}, hybrid", bits, hybrid, *HYBRID_IDS, "--threads", str(threads), "--chunk", "7",
                      kv="hybrid")


def answers(judge, bits, model):
    """Tokens of greedy and sampled requests: those of the exact head, also with the screened one, everywhere."""
    judge.see("answers, exact head", bits, model, "--answer", "64", "--head", "exact", kv="answer")
    for backend in ("auto", "scalar"):
        for threads in ("1", "2", "3"):
            judge.see(f"answers, screened head, {backend}, threads {threads}", bits, model, "--answer", "64", "--head",
                      "screened", "--backend", backend, "--threads", threads, kv="answer")
    judge.see("answers, screened head, in company", bits, model, "--answer", "64", "--head", "screened", "--company",
              kv="answer")


def int8_head(judge, bits, model):
    """Its logits are its own, and as much the same everywhere."""
    for backend in ("auto", "scalar"):
        for threads, chunk in ((1, 0), (3, 7), (2, 1)):
            judge.see(f"int8 head, {backend}, threads {threads}, chunks of {chunk or 'all'}", bits, model, "--head", "int8",
                      "--backend", backend, "--threads", str(threads), "--chunk", str(chunk), kv="int8-head")


def files(judge, bits, bitnet, model, folder):
    with tempfile.TemporaryDirectory() as t:
        if folder:
            hf_folder.convert(model, folder, pathlib.Path(t) / "folder")
            judge.see("from the safetensors folder", bits, pathlib.Path(t) / "folder")
        out, rounded = pathlib.Path(t) / "out.gguf", pathlib.Path(t) / "rounded.gguf"

        def convert(name, source, target, *options):
            p = subprocess.run([*bitnet, "convert", source, target, *options], capture_output=True, text=True)
            if p.returncode:
                why = p.stderr.strip()
                tap.skip(name, Skipped("shape", why[:120])) if name[5:] in PERHAPS else tap.point(name, False, f"exit {p.returncode}\n{why}")
            return p.returncode == 0

        def both(name, judge, path):
            judge.see(name, bits, path)
            judge.see(f"{name}, scalar, 3 threads", bits, path, "--backend", "scalar", "--threads", "3")
            for layout in ("t3", "t5"):
                judge.see(f"{name}, layout {layout} where it can be", bits, path, "--layout", layout)

        for name, options in LOSSLESS:
            if convert(f"from {name}", model, out, "--type", name.split(",")[0], *options):
                both(f"from {name}", judge, out)
                out.unlink()
        if not convert("round the scales", model, rounded, "--type", ROUNDED[0], "--allow-scale-rounding"):
            return
        second = Judge({})
        both(f"16-bit scales, {ROUNDED[0]}", second, rounded)
        for kind in ROUNDED[1:] + PERHAPS:
            if convert(f"from {kind}", rounded, out, "--type", kind):
                both(f"16-bit scales, {kind}", second, out)
                out.unlink()


def binary(pinned, bits, bitnet):
    """A small binary model with a scale of its own for every block, with all kinds of activations: the bits of t2."""
    with tempfile.TemporaryDirectory() as t:
        path = pathlib.Path(t) / "binary.gguf"
        subprocess.run([*bitnet, "synth", "tiny", path, "--type", "q1_0"], check=True, capture_output=True)
        raw = bytearray(path.read_bytes())
        for _, dims, kind, at in hf_folder.Reader(bytes(raw)).tensors():
            for block in range(dims[0] * dims[1] // 128 if kind == Q1_0 else 0):
                raw[at + 18 * block] ^= block * 37 & 255  # low bits of the scale
        path.write_bytes(raw)
        ids = ",".join(str(i * 71 % 512) for i in range(70))
        for activations in ("int16", "int8", "f32"):
            judge = Judge({"f16": pinned[f"q1_0-{activations}"]})
            for layout in ("t2", "t3", "t5", "b1", "auto") + (GROUPED if activations != "f32" else ()):
                for backend in ("auto", "avx2", "scalar"):
                    for threads, chunk in ((1, 0), (3, 7), (2, 1))[:1 if backend == "scalar" else 3]:
                        judge.see(f"binary, {activations}, layout {layout}, {backend}, threads {threads}, chunks of "
                                  f"{chunk or 'all'}", bits, path, "--ids", ids, "--activations", activations, "--layout",
                                  layout, "--backend", backend, "--threads", str(threads), "--chunk", str(chunk))
        p = subprocess.run([*bits, path, "--ids", "1"], capture_output=True, text=True)
        tap.point("binary matrices are in b1 where it has kernels",
                  ("kernels avx" in p.stderr) == ("layout b1" in p.stderr), p.stderr)


def hybrid_here(judge, bits, model):
    """Delta nets, gated attention, rotated inputs; all kinds of activations, of which int16 is the default."""
    names = list(backends(bits, model))
    for backend in names:
        for threads in (1, 2, 3):
            for chunk in (0, 7, 1):
                judge.see(f"hybrid, {backend}, threads {threads}, chunks of {chunk or 'all'}", bits, model, *HYBRID_IDS,
                          "--backend", backend, "--threads", str(threads), "--chunk", str(chunk), kv="hybrid")
    for activations in ("int16", "int8", "f32"):
        kind = "hybrid" + ("" if activations == "int16" else "-" + activations)
        for layout in ("auto", "t2", "t3", "t5") + (GROUPED if activations != "f32" else ()):
            for backend, threads, chunk in (("auto", 1, 0), ("scalar", 2, 7), ("avx2", 2, 40), ("avx2", 3, 1)):
                if backend in names:
                    judge.see(f"hybrid, {activations}, layout {layout}, {backend}, threads {threads}, chunks of {chunk or 'all'}",
                              bits, model, *HYBRID_IDS, "--activations", activations, "--layout", layout, "--backend", backend,
                              "--threads", str(threads), "--chunk", str(chunk), kv=kind)
    judge.see("hybrid, steps of 5 tokens", bits, model, *HYBRID_IDS, "--batch", "5", kv="hybrid")
    for chunk, batch in (("7", "0"), ("1", "16"), ("40", "64")):
        judge.see(f"hybrid, in company, chunks of {chunk}", bits, model, *HYBRID_IDS, "--chunk", chunk, "--batch", batch,
                  "--company", kv="hybrid")
    for backend, threads in (("auto", "1"), ("scalar", "2"), ("auto", "3")):
        judge.see(f"hybrid, answers, {backend}, threads {threads}", bits, model, *HYBRID_IDS, "--answer", "64", "--backend",
                  backend, "--threads", threads, kv="hybrid-answer")
    judge.see("hybrid, answers, in company", bits, model, *HYBRID_IDS, "--answer", "64", "--company", kv="hybrid-answer")


def hybrid_foreign(judge, name, command, model):
    command = shlex.split(command)
    judge.see(f"{name}, hybrid, 2 threads, in one go", command, model, *HYBRID_IDS, "--threads", "2", kv="hybrid")
    judge.see(f"{name}, hybrid, 1 thread, in chunks of 7", command, model, *HYBRID_IDS, "--threads", "1", "--chunk", "7",
              kv="hybrid")
    judge.see(f"{name}, hybrid, scalar, token by token", command, model, *HYBRID_IDS, "--backend", "scalar", "--chunk", "1",
              kv="hybrid")
    judge.see(f"{name}, hybrid, int8", command, model, *HYBRID_IDS, "--activations", "int8", "--chunk", "7", kv="hybrid-int8")
    judge.see(f"{name}, hybrid, f32", command, model, *HYBRID_IDS, "--activations", "f32", "--chunk", "7", kv="hybrid-f32")


def foreign(judge, name, command, model):
    command = shlex.split(command)
    judge.see(f"{name}, 2 threads, in one go", command, model, "--threads", "2")
    judge.see(f"{name}, 1 thread, in chunks of 7", command, model, "--threads", "1", "--chunk", "7")
    judge.see(f"{name}, 2 threads, ffn skip, token by token", command, model, "--threads", "2", "--ffn", "skip", "--chunk",
              "1")
    judge.see(f"{name}, scalar, 2 threads, kv f32", command, model, "--threads", "2", "--backend", "scalar", kv="f32")
    for kv in KV_TYPES[2:]:
        judge.see(f"{name}, kv {kv}", command, model, "--threads", "2", "--chunk", "7", kv=kv)
    judge.see(f"{name}, int8 head", command, model, "--head", "int8", kv="int8-head")
    judge.see(f"{name}, answers, screened head", command, model, "--answer", "12", "--head", "screened", kv="answer")


def unpack_families(source, target):
    """The checkpoints, by name, with the packed ones unpacked."""
    found = {}
    for folder in sorted(f for f in source.iterdir() if (f / "config.json").exists()):
        out = target / folder.name
        out.mkdir()
        for file in folder.iterdir():
            if file.suffix == ".xz":
                (out / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
            elif file.suffix != ".bin":
                (out / file.name).write_bytes(file.read_bytes())
        found[folder.name] = out
    return found


def convert_families(folders, bitnet):
    """The same as GGUF, which builds for other CPUs read; one without a type that fits its rows is left out."""
    found = {}
    for name, folder in folders.items():
        out = folder.with_suffix(".gguf")
        p = subprocess.run([*bitnet, "convert", folder, out], capture_output=True, text=True)
        if p.returncode == 0:
            found[name] = out
        else:
            tap.skip(f"{name} as GGUF", Skipped("shape", p.stderr.strip()[:120]))
    return found


def rows(judge, name, command, model, hybrid, families, *options):
    """A row of the table: prompt, single tokens, answers with a screened head, delta nets with activations in planes, and all
    kinds of models."""
    for family, path in families.items():
        judge.see(f"{name}, row family {family}", command, path, "--ids", FAMILY_IDS, "--chunk", "7", *options,
                  kv=f"family {family}")
    judge.see(f"{name}, row prompt", command, model, *options)
    judge.see(f"{name}, row token by token", command, model, "--chunk", "1", "--threads", "2", *options)
    judge.see(f"{name}, row int8 cache", command, model, "--chunk", "7", *options, kv="int8")
    judge.see(f"{name}, row answers", command, model, "--answer", "12", "--head", "screened", *options, kv="answer")
    if hybrid:
        judge.see(f"{name}, row hybrid", command, hybrid, *HYBRID_IDS, "--chunk", "40", *options, kv="hybrid")


def print_table(table):
    kinds = list(dict.fromkeys(kind for row in table.values() for kind in row))
    comment("table: CPU or backend | kernels | " + " | ".join(kinds))
    for name, row in table.items():
        comment(f"table: {name} | {next(iter(row.values()))[0]} | " + " | ".join(row.get(kind, ("", ""))[1] for kind in kinds))


def this_machine(judge, a, families):
    """To compare others with."""
    for kv in KV_TYPES:
        judge.see(f"this machine, kv {kv}", a.bits, a.model, kv=kv)
    for backend in backends(a.bits, a.model):
        rows(judge, f"this machine, {backend}", a.bits, a.model, a.hybrid, families, "--backend", backend)
    judge.see("this machine, answers", a.bits, a.model, "--answer", "12", "--head", "exact", kv="answer")
    if a.hybrid:
        hybrid_foreign(judge, "this machine", shlex.join(a.bits), a.hybrid)


def everything(judge, a):
    here(judge, a.bits, a.model)
    answers(judge, a.bits, a.model)
    int8_head(judge, a.bits, a.model)
    if a.uneven:
        uneven(judge, a.uneven, a.model, a.hybrid)
    if a.bitnet:
        files(judge, a.bits, a.bitnet, a.model, a.folder)
        binary(read_pinned(), a.bits, a.bitnet)
    if a.hybrid:
        hybrid_here(judge, a.bits, a.hybrid)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--bits", type=shlex.split)
    a.add_argument("--uneven", type=shlex.split)
    a.add_argument("--bitnet", type=shlex.split)
    a.add_argument("--model", type=pathlib.Path, required=True)
    a.add_argument("--folder", type=pathlib.Path)
    a.add_argument("--hybrid", type=pathlib.Path)
    a.add_argument("--families", type=pathlib.Path)
    a.add_argument("--foreign", nargs=2, action="append", default=[])
    a.add_argument("--cpu", nargs=2, action="append", default=[])
    a.add_argument("--skipped", nargs=2, action="append", default=[])
    a.add_argument("--only-foreign", action="store_true", help="of this machine's build one run only, to compare with")
    a.add_argument("--jobs", type=int, default=1)
    a = a.parse_args()
    a.only_foreign = a.only_foreign or not full_effort()
    judge = Judge(read_pinned(), a.jobs if a.only_foreign else 0)
    with tempfile.TemporaryDirectory() as folder:
        families = unpack_families(a.families, pathlib.Path(folder)) if a.families else {}
        if a.bits and a.only_foreign:
            this_machine(judge, a, families)
        elif a.bits:
            everything(judge, a)
        for name, command in a.foreign:
            foreign(judge, name, command, a.model)
            if a.hybrid:
                hybrid_foreign(judge, name, command, a.hybrid)
        if a.cpu:
            families = convert_families(families, a.bitnet)
        for name, command in a.cpu:
            rows(judge, name, shlex.split(command), a.model, a.hybrid, families)
        judge.settle()
    print_table(judge.table)
    for name, why in a.skipped:
        tap.skip(name, Skipped("build", why))
    for kv, got in judge.first.items():
        if not kv.startswith("family "):
            comment(f"kv {kv}: {got}")
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
