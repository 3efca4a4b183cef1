#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The laws of the house that can be read off the sources (src/ROOMS, ARCHITECTURE.md):

  - an include names the file's own room or a room on its line of src/ROOMS, and is written from src/;
  - a room may only build on rooms that stand above it in src/ROOMS; app, server, hub and cli see base, json, each other
    in this order, and bitnet.h only;
  - rooms inside a room see what the room sees, the headers of its roof (the files that lie in the room itself), and
    of their neighbours inside only those on their lines; every folder is a room with a line;
  - x.h is for whoever may see its room; x_impl.h, what the parts of one thing share, is included by files of its own
    folder only (that of a roof: and of the rooms inside);
  - a folder holds at most FULL files;
  - intrinsics headers appear only under src/kernels/<arch>/;
  - kernels know no threads, no allocation and no files;
  - the environment is read by the program (src/app, src/cli), never by the library;
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
OUTER = {"app", "server", "hub", "cli"}     # these reach the model through bitnet.h only
OUTER_MAY = {"base", "json"} | OUTER
LONG = 1000
FULL = 30                            # about 25 is the aim


def top(room):
    return room.partition("/")[0]


def read_rooms(path):
    """{room: rooms it may include, itself among them} and the list of what is wrong with the file itself."""
    allow, bad = {}, []
    for n, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        room, _, rest = line.partition(":")
        if "/" in room and top(room) not in allow:
            bad.append(f"{path}:{n}: the line of {top(room)} comes before that of {room}")
        for other in rest.split():
            if other not in allow:
                bad.append(f"{path}:{n}: {room} may only build on rooms above its line, not on {other}")
            elif "/" in room and top(other) != top(room):
                bad.append(f"{path}:{n}: {room} sees other rooms as {top(room)} does; {other} belongs on that line")
            elif "/" not in room and "/" in other:
                bad.append(f"{path}:{n}: {room} sees rooms, not rooms inside others: {top(other)} instead of {other}")
            if room in OUTER and other not in OUTER_MAY:
                bad.append(f"{path}:{n}: {room} speaks to the model through bitnet.h, not through {other}")
        allow[room] = {room, *rest.split()}
    return allow, bad


def home(path):
    """The room of a file below src/: the innermost folder with a line, or in kernels the room itself."""
    parts = path.split("/")[:-1]
    return parts[0] if parts[:1] == ["kernels"] else "/".join(parts)


def may_see(allow, room, other):
    """May a file of `room` include one of `other`?"""
    if top(room) != top(other):
        return top(other) in allow[top(room)]
    return "/" not in room or "/" not in other or other in allow[room]


def check_file(src, f, allow):
    path = f.relative_to(src).as_posix()
    room, bad = home(path), []
    if room not in allow:
        return [f"{f}: room {room!r} is not in ROOMS"]
    parts = path.split("/")
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
            elif first != "bitnet" and (quoted or first in allow) and slash and not may_see(allow, room, home(name)):
                bad.append(f"{f}:{n}: {room} may not include {home(name)}")
            elif quoted and name.endswith("_impl.h") and not path.startswith(name.rpartition("/")[0] + "/"):
                bad.append(f"{f}:{n}: {name} is for the files of its own folder")
            elif room == "kernels" and name in NOT_IN_KERNELS:
                bad.append(f"{f}:{n}: kernels know no threads, allocation or files: <{name}>")
        if top(room) not in ("app", "cli") and re.search(r"\bgetenv\s*\(", line):
            bad.append(f"{f}:{n}: only the program (src/app, src/cli) reads the environment")
    return bad


def check_folders(root, allow):
    """Every folder of src/ has its line, no folder of src/ and tests/ is too full."""
    bad = []
    for d in sorted(p for p in (root / "src").rglob("*") if p.is_dir()):
        room = home(d.relative_to(root / "src").as_posix() + "/")
        if room not in allow:
            bad.append(f"{d}: the folder is not in ROOMS")
    for d in sorted(p for t in ("src", "tests") for p in (root / t).rglob("*") if p.is_dir()):
        inside = d.relative_to(root).as_posix()
        if inside.startswith(("tests/data/", "tests/fuzz/corpus/")) or "__pycache__" in inside:
            continue
        n = sum(p.is_file() for p in d.iterdir())
        if n > FULL:
            bad.append(f"{d}: {n} files; at most {FULL} find a place in one folder")
    return bad


def main(root):
    root = pathlib.Path(root)
    src = root / "src"
    allow, bad = read_rooms(src / "ROOMS")
    bad += check_folders(root, allow)
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
