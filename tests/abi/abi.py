#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promises of bitnet.h to programs that were built before or after the library they run with.

usage: abi.py sizes ROOT BUILD LIBBITNET.so     programs and libraries of two versions, and a library that breaks the rule
       abi.py interface ROOT BUILD LIBBITNET.so the interface beside the recorded one (abidiff), and planted breaks
       abi.py record ROOT BUILD LIBBITNET.so    records it anew, in tests/abi/libbitnet.abi, and shows what has changed
Objects are made by the commands that made the library, as ninja knows them. Prints TAP."""
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# what knows the layout of structs of bitnet.h; objects of other rooms are taken as they are
ROOMS = ("api", "engine", "forge", "model")
NEVER_CHANGE = {"bitnet_error", "bitnet_message", "bitnet_logit_bias", "bitnet_logprob", "bitnet_embed_input",
                "bitnet_score_input", "bitnet_adapter_use"}
# set by the library, and passed to a callback
GIVEN = {"bitnet_cache_entry"}
XML = ["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed"]


class Tap:
    def __init__(self):
        self.n = self.failed = 0

    def check(self, ok, name, *details):
        self.n += 1
        self.failed += not ok
        print(("ok" if ok else "not ok"), self.n, "-", name)
        for line in "\n".join(str(d) for d in details if not ok).splitlines():
            print("  #", line)
        sys.stdout.flush()

    def end(self):
        print(f"1..{self.n}")
        return self.failed > 0


def structs(header):
    """Name and members of every struct, in the order of the header."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    return re.findall(r"^(?:typedef )?struct (\w+) \{\n(.*?)^\}[^;]*;", text, re.S | re.M)


def grown(header):
    """The header of a later version: every struct has a member more, in a reserved word or at its end."""
    def more(m):
        body, n = re.subn(r"    uint64_t reserved\[(\d+)\];",
                          lambda r: f"    uint64_t grown_number;\n    uint64_t reserved[{int(r[1]) - 1}];", m[2])
        if not n and "    size_t size;" in body:
            body += "    uint64_t grown_number;\n    const char *grown_text;\n"
        return m[1] + body + m[3]
    text = re.sub(r"(^(?:typedef )?struct \w+ \{\n)(.*?)(^\}[^;]*;)", more, header, flags=re.S | re.M)
    return text.replace("#define BITNET_H\n", "#define BITNET_H\n#define BITNET_GROWN 1\n")


def replaced(text, old, new):
    if text.count(old) != 1:
        sys.exit(f"abi.py: {text.count(old)} of '{old}'; this test must follow the header")
    return text.replace(old, new)


class Library:
    """Makes other versions of the library, by the commands that made this one."""

    def __init__(self, root, build, so):
        self.root, self.build = root, build
        target = os.path.relpath(so, build)
        lines = subprocess.run(["ninja", "-t", "commands", target], cwd=build, capture_output=True, text=True,
                               check=True).stdout.splitlines()
        commands = [shlex.split(s) for s in lines]
        self.compile = {c[c.index("-o") + 1]: c for c in commands if "-c" in c}
        self.link = [c for c in commands if "-o" in c and c[c.index("-o") + 1] == target][-1]

    def room(self, obj):
        source = (self.build / self.compile[obj][-1]).resolve()
        path = source.relative_to(self.root / "src") if self.root / "src" in source.parents else pathlib.Path("-")
        return path.parts[0]

    def objects(self, to, rooms, include, flags):
        """Compiles the files of these rooms once more; a dict of the old objects and the new ones."""
        def one(obj):
            c, new = list(self.compile[obj]), str(to / obj.replace("/", "_"))
            for name in ("-MQ", "-MF"):
                if name in c:
                    del c[c.index(name):c.index(name) + 2]
            c = [a for a in c if a != "-MD" and not re.fullmatch(r"-(O.|g)", a)]
            c[c.index("-o") + 1] = new
            at = next(i for i, a in enumerate(c) if a.startswith("-"))
            subprocess.run(c[:at] + [f"-I{i}" for i in include] + flags + c[at:], cwd=self.build, check=True)
            return obj, new
        which = [o for o in self.link if o in self.compile and self.room(o) in rooms]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return dict(pool.map(one, which))

    def make(self, to, objects):
        c = [objects.get(a, a) for a in self.link]
        c[c.index("-o") + 1] = str(to)
        subprocess.run(c, cwd=self.build, check=True)
        return to

    def make_door(self, to, include, flags=("-g", "-O0")):
        """Only the room that exports, with what a debugger knows; what it calls is left open."""
        made = self.objects(to, ("api",), include, list(flags))
        so = to / "libdoor.so"
        cc = self.link[:self.link.index("-o")]
        subprocess.run([*cc, "-shared", "-o", so, *made.values()], check=True)
        return so

    def program(self, to, include, so):
        cc = self.link[:self.link.index("-o")]
        subprocess.run([*cc, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{include}",
                        self.root / "tests/abi/program.c", so, f"-Wl,-rpath,{so.parent}", "-o", to], check=True)
        return to


RANKS = "include/bitnet/ranks.h"  # includes bitnet.h


def put(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def run(program, so, model, folder):
    """With this library, whatever the program was linked with."""
    folder.mkdir(exist_ok=True)
    named = folder / "libbitnet.so.0"
    named.unlink(missing_ok=True)
    named.symlink_to(so)
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    return subprocess.run([program, model, folder], env=env, capture_output=True, text=True, timeout=300)


def check_header(t, header, table, cc, root):
    found = structs(header)
    t.check(len(found) > 30, "the structs of bitnet.h are found", len(found))
    loose = [n for n, body in found if not body.lstrip().startswith("size_t size;") and "reserved[" not in body
             and n not in NEVER_CHANGE]
    t.check(not loose, "every struct starts with its size, has words in reserve or is one that never changes", loose)
    sized = {n for n, body in found if body.lstrip().startswith("size_t size;")} - GIVEN
    listed = set(re.findall(r"X\((bitnet_\w+),", table))
    t.check(sized == listed, "sized.h lists every struct with a size", sized ^ listed)
    # a member added in the padding of an older struct would be read from bytes that nobody has set
    p = subprocess.run([*cc, "-std=c11", "-Wpadded", "-Werror", "-fsyntax-only", "-x", "c", "-I", root / "include",
                        root / RANKS], capture_output=True, text=True)
    t.check(p.returncode == 0, "no struct has padding", p.stderr)


def test_sizes(root, build, so):
    t, lib = Tap(), Library(root, build, so)
    header = (root / "include/bitnet/bitnet.h").read_text()
    table = (root / "src/api/sized.h").read_text()
    check_header(t, header + (root / RANKS).read_text(), table, lib.link[:lib.link.index("-o")], root)
    model = root / "models/stories-31m.gguf"
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        later = put(tmp / "later", "bitnet/bitnet.h", grown(header))
        objects = lib.objects(tmp, ROOMS, [later], ["-O0", "-w"])
        later_so = lib.make(tmp / "later.so", objects)
        blind = put(tmp / "blind", "api/sized.h", replaced(table, "return size < t->known ? size : t->known;",
                                                           "(void)size;\n    return t->known;"))
        (tmp / "door").mkdir()
        door = lib.objects(tmp / "door", ("api",), [blind, later], ["-O0", "-w"])
        blind_so = lib.make(tmp / "blind.so", {**objects, **door})
        now = lib.program(tmp / "now", root / "include", so)
        new = lib.program(tmp / "new", later, so)
        want = run(now, so, model, tmp / "a")
        t.check(want.returncode == 0 and len(want.stdout) > 500, "the program runs with its own library",
                want.returncode, want.stderr)
        for name, program, library in (("with a later library", now, later_so), ("of a later version with this library", new, so)):
            got = run(program, library, model, tmp / "b")
            t.check(got.returncode == 0 and got.stdout == want.stdout, f"a program {name} says the same", got.returncode,
                    got.stderr, got.stdout)
        got = run(now, blind_so, model, tmp / "c")
        t.check(got.returncode < 0, "a library that does not look at sizes ends the program", got.returncode, got.stdout)
    return t.end()


def write_interface(out, so, headers):
    """What of the library bitnet.h shows; the rest of it is its own business."""
    subprocess.run(["abidw", *XML, "--drop-private-types", "--headers-dir", headers, "--out-file", out, so], check=True)
    return out


def abidiff(root, so, headers):
    new = write_interface(so.with_suffix(".abi"), so, headers)
    return subprocess.run(["abidiff", "--harmless", root / "tests/abi/libbitnet.abi", new], capture_output=True, text=True)


def test_interface(root, build, so):
    t, lib = Tap(), Library(root, build, so)
    header = (root / "include/bitnet/bitnet.h").read_text()
    cases = [
        ("the interface is the recorded one", header, False),
        ("a member at the end is noticed, to be recorded",
         replaced(header, "    bitnet_kv_type kv_type_otherwise;\n    uint32_t reserved_word;\n};",
                  "    bitnet_kv_type kv_type_otherwise;\n    uint32_t reserved_word;\n    uint64_t planted;\n};"), True),
        ("a member in the middle is noticed", replaced(header, "    uint32_t kv_tokens;\n",
                                                       "    uint32_t kv_tokens;\n    uint64_t planted;\n"), True),
        ("two members in the other order are noticed",
         replaced(header, "    const char *prefix_cache;\n    /* of models", "    /* of models")
         .replace("    const char *state_type;\n", "    const char *state_type;\n    const char *prefix_cache;\n"), True),
        ("a member of another type is noticed", replaced(header, "    uint64_t queue_ns;\n", "    double queue_ns;\n"), True),
        ("a function that is gone is noticed",
         replaced(header, "BITNET_API bitnet_status bitnet_cancel(", "bitnet_status bitnet_cancel("), True),
        ("another value of a constant is noticed", replaced(header, "    BITNET_FINISH_STOP = 2,", "    BITNET_FINISH_STOP = 12,"),
         True),
    ]
    for name, text, is_change in cases:
        with tempfile.TemporaryDirectory() as tmp:
            include = put(pathlib.Path(tmp) / "include", "bitnet/bitnet.h", text)
            put(include, "bitnet/ranks.h", (root / RANKS).read_text())
            got = abidiff(root, lib.make_door(pathlib.Path(tmp), [include], ["-g", "-O0", "-w"]), include)
            # bit 0 and 1: abidiff failed; bit 2: there is a change
            t.check(got.returncode & 3 == 0 and (got.returncode != 0) == is_change, name, got.returncode, got.stdout, got.stderr)
    return t.end()


def record(root, build, so):
    with tempfile.TemporaryDirectory() as tmp:
        door = Library(root, build, so).make_door(pathlib.Path(tmp), [])
        if (root / "tests/abi/libbitnet.abi").exists():
            print(abidiff(root, door, root / "include").stdout)
        write_interface(root / "tests/abi/libbitnet.abi", door, root / "include")
    return 0


def main(argv):
    what = {"sizes": test_sizes, "interface": test_interface, "record": record}[argv[0]]
    return what(*(pathlib.Path(a).resolve() for a in argv[1:4]))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
