#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which operation has a kernel for which instruction set, made from src/kernels/kernels.def.

usage: kernel_table.py [--write | --check | --json]

Without an option the tables are printed. --write puts them into docs/tune/cpus.md, --check compares them with that page.
A cell is "own" if there is a kernel, or a number: the reason why there is none (REASONS), and what runs instead is that of
the level below. Exit 1: the page is out of date, a cell has neither a kernel nor a reason, or a reason has become wrong.
"""
import json
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
kernels = root / "src" / "kernels"
page = root / "docs" / "tune" / "cpus.md"
BEGIN, END = "<!-- kernel_table.py: begin -->", "<!-- kernel_table.py: end -->"
WAYS = {"mul_i8": "int8", "mul_i8_many": "int8, many", "mul_planes": "planes", "mul_planes_many": "planes, many", "mul_f32": "float"}

# Why an instruction set has no kernel of its own for an operation. Patterns are matched with the names in the first
# column; the first one that fits holds.
REASONS = {
    "sse4.1": [
        (r"attn_fold", "a few multiplications for each block of keys: the compiler's code for the baseline does them"),
        (r"gemm_t5.*|gemm_g5.*", "never chosen here: T2 and G2 take fewer instructions"),
        (r"gemm_t[23], planes", "matrices for activations in planes lie in the G layouts"),
        (r"gemm_g\d, (int8|float)", "trained int8 and float activations have the layouts T2 and T3"),
    ],
    "avx2": [
        (r"attn_fold", "a few multiplications for each block of keys: the compiler's code for the baseline does them"),
        (r"gemm_t5.*|gemm_g5.*", "needs the 64-byte table lookups of AVX-512 VBMI; T3 and G3 are used instead"),
        (r"gemm_t[23], planes", "matrices for activations in planes lie in the G layouts"),
        (r"gemm_g\d, (int8|float)", "trained int8 and float activations have the layouts T2 and T3"),
    ],
    "avxvnni": [
        (r".*", "the AVX2 kernel, or what its row says: no sums of products of bytes, or none that take time"),
    ],
    "avx512": [
        (r"gemm_.*", "the AVX2 kernel, or what its row says"),
        (r".*", "the AVX2 kernel: little time is spent there, or memory is the limit"),
    ],
    "neon": [
        (r"attn_fold", "a few multiplications for each block of keys: the compiler's code for the baseline does them"),
        (r"gemm_t5.*|gemm_g5.*", "never chosen here: T2 and G2 take fewer instructions"),
        (r"gemm_t[23], planes", "matrices for activations in planes lie in the G layouts"),
        (r"gemm_g\d, (int8|float)", "trained int8 and float activations have the layouts T2 and T3"),
    ],
    "dotprod": [
        (r"gemm_(t2, int8|g2, planes), many", "no second way: its kernel multiplies many tokens as well"),
        (r"gemm_.*", "the NEON kernel, or what its row says"),
        (r".*", "the NEON kernel: floats, or no sums of products of bytes"),
    ],
    "i8mm": [
        (r".*", "the dotprod kernel, or what its row says"),
    ],
}
WIDE = ("sse41", "avx2", "avxvnni", "avx512", "neon")  # what src/kernels/wide is compiled for
BASE_OF_OTHERS = ("sse41", "avx2", "neon")
ISAS = ("c", "sse41", "avx2", "avxvnni", "avx512", "neon", "dotprod", "i8mm")
ARCHES = {"x86-64": "__x86_64__", "arm64": "__aarch64__"}


def read_list():
    """The lines of kernels.def: reference operations in order, and {arch: {isa: {op: object}}} in order."""
    ops, found, arch = [], {name: {} for name in ARCHES}, None
    for line in (kernels / "kernels.def").read_text().splitlines():
        if m := re.match(r"#if defined\((\w+)\)", line):
            arch = next(name for name, macro in ARCHES.items() if macro == m[1])
        elif line.startswith("#endif"):
            arch = None
        elif m := re.match(r"[KG]_REF\((\w+), +(\w+)\)", line):
            ops.append(m[1])
        elif arch and (m := re.match(r"[KG]\((\w+), +([\w.]+), +[^,]+, +(\w+)\)", line)):
            found[arch].setdefault(m[2], {})[m[1]] = m[3]
    return ops, found


def read_matrix_kernels():
    """{object: the ways to multiply that are its own, not the reference's or those of a lesser instruction set}."""
    own = {}
    for path in kernels.glob("*/**/*.c"):
        for m in re.finditer(r"const struct bn_gemm ([\w()]+) = \{(.*?)\};", path.read_text(), re.S):
            ways = re.findall(r"\.(mul_\w+) = (\w+)", m[2])
            wide = re.fullmatch(r"W_NAME\((\w+)\)", m[1])  # one source for several
            for name in [f"bn_{wide[1]}_{isa}" for isa in WIDE] if wide else [m[1]]:
                isa, below = name.rsplit("_", 1)[1], set(ISAS)
                below -= {isa}
                if wide and isa not in BASE_OF_OTHERS:
                    below.add("BASE")  # W_BASE(fn)
                elif not wide:
                    below |= {"BASE", "NAME"}
                own[name] = {way for way, fn in ways if fn.rsplit("_", 1)[1] not in below}
    return own


def rows():
    ops, found = read_list()
    ways = read_matrix_kernels()
    for arch, isas in found.items():
        table = {}
        for op in ops:
            if not op.startswith("gemm_"):
                table[op] = {isa: op in has for isa, has in isas.items()}
                continue
            for way, word in WAYS.items():
                table[f"{op}, {word}"] = {isa: op in has and way in ways.get(has[op], ()) for isa, has in isas.items()}
        yield arch, list(isas), table


def judge(arch, isas, table):
    """Cells as text, the reasons that were used, and what is wrong."""
    cells, notes, wrong = {}, [], []
    for op, has in table.items():
        if op.endswith(", many") and not any(has.values()):
            continue  # a second way that no instruction set has
        cells[op] = []
        for isa in isas:
            why = next((why for pattern, why in REASONS.get(isa, []) if re.fullmatch(pattern, op)), None)
            if has[isa]:
                cells[op].append("own")
            elif why is None:
                wrong.append(f"{arch}: {op} has no kernel for {isa}, and no reason why")
                cells[op].append("?")
            else:
                if why not in notes:
                    notes.append(why)
                cells[op].append(str(1 + notes.index(why)))
    for isa in isas:
        for pattern, _ in REASONS.get(isa, []):
            fits = [op for op in cells if re.fullmatch(pattern, op) and not table[op][isa]]
            if not fits:
                wrong.append(f"{arch}: the reason for '{pattern}' of {isa} fits no cell without a kernel")
    return cells, notes, wrong


def markdown():
    text, wrong = [], []
    for arch, isas, table in rows():
        cells, notes, bad = judge(arch, isas, table)
        wrong += bad
        text += [f"### {arch}", "", "| operation | " + " | ".join(isas) + " |", "|---" * (1 + len(isas)) + "|"]
        text += [f"| {op} | " + " | ".join(line) + " |" for op, line in cells.items()]
        text += [""] + [f"{i}. {why}" for i, why in enumerate(notes, 1)] + [""]
    return "\n".join(text), wrong


def main():
    text, wrong = markdown()
    if "--json" in sys.argv:
        print(json.dumps({arch: {op: [isa for isa in isas if has[isa]] for op, has in table.items()} for arch, isas, table in rows()}, indent=1))
        return 0
    whole = page.read_text() if page.exists() else f"{BEGIN}\n{END}\n"
    head, _, rest = whole.partition(BEGIN)
    new = f"{head}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}"
    if "--write" in sys.argv:
        page.write_text(new)
    elif "--check" in sys.argv:
        if new != whole:
            wrong.append("docs/tune/cpus.md is not what kernels.def says; run tools/kernel_table.py --write")
    else:
        print(text)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
