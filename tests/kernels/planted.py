#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wrong lane in each kernel file is found: every file of every instruction set is compiled once more with lanes that
change places where it loads or stores (planted.h), linked into a check_kernels of its own, and that must fail.

usage: planted.py BUILD [--isa ISA]... [--file PART]... [--all] [EMULATOR...]

BUILD: a build folder with check_kernels. Of each file the first fault that changes its code is tried; --all: every kind. A
fault that nobody sees may be none (both factors of a product that change places), so a file passes with one that is found.
--isa, --file: only these. EMULATOR: what runs the build's programs. Prints TAP."""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(1, str(HERE.parent / "lib"))
from tap import Skipped, Tap

LANELESS = ("wide/gemm/planes.c",)  # calls the others, and touches no lane
FAULTS = {0: "stored floats", 1: "loaded bytes", 2: "loaded floats", 3: "stored integers"}


def call(*command, cwd=None):
    return subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)


def ops_of(isa, symbols):
    """Operations whose kernels are among these symbols."""
    text = (ROOT / "src" / "kernels" / "kernels.def").read_text()
    return [m[1] for m in re.finditer(r"^[KG]\((\w+), +([\w.]+), +[^,]+, +(\w+)\)", text, re.M) if m[2] == isa and m[3] in symbols]


class Planter:
    def __init__(self, build, emulator, folder):
        self.build, self.emulator, self.folder = build, emulator, folder
        commands = json.loads((build / "compile_commands.json").read_text())
        self.kernels = [c for c in commands if "libk_" in c["output"]]
        self.checks = [build / c["output"] for c in commands if c["output"].startswith("tests/kernels/check_kernels.p/")]
        self.linker = shlex.split(self.kernels[0]["command"])
        self.linker = self.linker[: next(i for i, word in enumerate(self.linker) if word.startswith("-"))]
        self.nm = re.sub(r"(gcc|clang|cc)(-\d+)?$", "nm", self.linker[-1])

    def compile(self, command, out, *more):
        words = shlex.split(command["command"])
        words[words.index("-o") + 1] = str(out)
        words = [w for w in words if w != "-Werror"]
        at = words.index("-MD")  # and -MQ, -MF with their words
        return call(*words[:at], *words[at + 5 :], *more, cwd=self.build)

    def link(self, planted, out):
        # the planted object comes before the archive, which then is not asked for the good one
        return call(*self.linker, "-o", out, *self.checks, planted, self.build / "src" / "libbitnet.a", "-lm", "-lpthread")

    def caught(self, program, isa, ops):
        for op in ops or [None]:
            p = call(*self.emulator, program, "--quick", "--isa", isa, *(["--op", op] if op else []))
            if re.search(r"^not ok", p.stdout, re.M) or p.returncode < 0:
                return True
        return False

    def judge(self, command, isa, every):
        """{fault: found or not} of those that change the code; what went wrong otherwise."""
        good, bad, program = (self.folder / name for name in ("good.o", "bad.o", "check"))
        found = {}
        p = self.compile(command, good)
        if p.returncode:
            return found, p.stderr[-400:]
        symbols = call(self.nm, "--defined-only", "-g", good).stdout.split()
        ops = ops_of(isa, symbols)
        for fault, what in FAULTS.items():
            p = self.compile(command, bad, f"-DPLANT={fault}", "-include", HERE / "planted.h")
            if p.returncode:
                return found, f"{what}: {p.stderr[-400:]}"
            if good.read_bytes() == bad.read_bytes():
                continue
            p = self.link(bad, program)
            if p.returncode:
                return found, f"{what}: {p.stderr[-400:]}"
            found[what] = self.caught(program, isa, ops)
            if found[what] and not every:
                break
        return found, ""


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("build", type=lambda s: pathlib.Path(s).resolve())
    a.add_argument("--isa", action="append", default=[])
    a.add_argument("--file", action="append", default=[])
    a.add_argument("--all", action="store_true")
    a.add_argument("emulator", nargs="*")
    a = a.parse_args()
    tap = Tap()
    have = call(*a.emulator, a.build / "tests" / "kernels" / "check_kernels", "--quick", "--op", "gemm_t2")
    with tempfile.TemporaryDirectory() as folder:
        planter = Planter(a.build, a.emulator, pathlib.Path(folder))
        for command in planter.kernels:
            isa = re.search(r"libk_([\w.]+?)(_wide)?\.a\.p", command["output"])[1]
            name = command["file"].rsplit("src/kernels/", 1)[-1]
            if name in LANELESS or a.isa and isa not in a.isa or a.file and not any(part in name for part in a.file):
                continue
            if f"_{isa} # SKIP" in have.stdout:
                tap.skip(f"{isa}: {name}", Skipped("isa"))
                continue
            found, wrong = planter.judge(command, isa, a.all)
            said = ", ".join(f"{what}: {'found' if yes else 'not seen'}" for what, yes in found.items())
            tap.point(f"{isa}: {name} ({said or 'no such access'})", not wrong and any(found.values()), wrong)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
