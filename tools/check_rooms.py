#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The laws of the house that can be read off the sources (src/ROOMS, ARCHITECTURE.md):

  - an include names the file's own room or a room on its line of src/ROOMS, and is written from src/;
  - a room may only build on rooms that stand above it in src/ROOMS; server and cli see base, json and bitnet.h only;
  - intrinsics headers appear only under src/kernels/<arch>/;
  - kernels know no threads, no allocation and no files;
  - the environment is read by the program (src/cli), never by the library;
  - every source file carries its SPDX line (tests/data, which is data, apart).

usage: check_rooms.py ROOT        prints one line a violation; exit status 1 if there is any.
Files above 1,000 lines are mentioned as a warning, which is no violation."""
import pathlib
import re
import sys

C_FILES = {".c", ".h", ".def", ".inc", ".S"}
SPDX_FILES = C_FILES | {".py", ".sh"}
INCLUDE = re.compile(r'\s*#\s*include\s+(["<])([^">]+)[">]')
SIMD = re.compile(r"(\w*intrin|arm_(neon|sve|sme|acle|fp16|bf16)|riscv_\w+|altivec)\.h$")
NOT_IN_KERNELS = {"pthread.h", "threads.h", "stdio.h", "stdlib.h", "unistd.h", "fcntl.h", "malloc.h", "sys/mman.h"}
OUTER = {"server", "cli"}            # these reach the model through bitnet.h only
OUTER_MAY = {"base", "json", "server", "cli"}
LONG = 1000


def read_rooms(path):
    """{room: rooms it may include, itself among them} and the list of what is wrong with the file itself."""
    allow, bad = {}, []
    for n, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        room, _, rest = line.partition(":")
        for other in rest.split():
            if other not in allow:
                bad.append(f"{path}:{n}: {room} may only build on rooms above its line, not on {other}")
            if room in OUTER and other not in OUTER_MAY:
                bad.append(f"{path}:{n}: {room} speaks to the model through bitnet.h, not through {other}")
        allow[room] = {room, *rest.split()}
    return allow, bad


def check_file(src, f, allow):
    parts = f.relative_to(src).parts
    room, bad = parts[0], []
    if room not in allow:
        return [f"{f}: room {room!r} is not in ROOMS"]
    in_arch = room == "kernels" and len(parts) > 2 and parts[1] != "ref"
    for n, line in enumerate(f.read_text().splitlines(), 1):
        m = INCLUDE.match(line)
        if m:
            quoted, name = m[1] == '"', m[2]
            first, slash, _ = name.partition("/")
            if SIMD.search(name) and not in_arch:
                bad.append(f"{f}:{n}: intrinsics ({name}) belong in src/kernels/<arch>/")
            elif quoted and not slash:
                bad.append(f'{f}:{n}: write the include from src/, with its room: "{room}/{name}"')
            elif first != "bitnet" and (quoted or first in allow) and slash and first not in allow[room]:
                bad.append(f"{f}:{n}: {room} may not include {first}")
            elif room == "kernels" and name in NOT_IN_KERNELS:
                bad.append(f"{f}:{n}: kernels know no threads, allocation or files: <{name}>")
        if room != "cli" and re.search(r"\bgetenv\s*\(", line):
            bad.append(f"{f}:{n}: only the program (src/cli) reads the environment")
    return bad


def main(root):
    root = pathlib.Path(root)
    src = root / "src"
    allow, bad = read_rooms(src / "ROOMS")
    for d in sorted(p for p in src.iterdir() if p.is_dir()):
        if d.name not in allow:
            bad.append(f"{d}: the folder is not in ROOMS")
    for f in sorted(p for p in src.rglob("*") if p.suffix in C_FILES):
        if f.parent == src:
            bad.append(f"{f}: a source file lives in a room, not in src/ itself")
            continue
        bad += check_file(src, f, allow)
    for top in ("src", "include", "tests", "tools", "examples"):
        for f in sorted(p for p in (root / top).rglob("*") if p.suffix in SPDX_FILES and p.is_file()):
            if f.is_relative_to(root / "tests/data"):
                continue
            lines = f.read_text(errors="replace").splitlines()
            if not any("SPDX-License-Identifier: Apache-2.0" in s for s in lines[:3]):
                bad.append(f"{f}: no SPDX-License-Identifier line at its head")
            if top != "tests" and len(lines) > LONG:
                print(f"warning: {f}: {len(lines)} lines; are there two subjects in it?")
    for line in bad:
        print(line)
    return bool(bad)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
