#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the checks: each law of the house is broken once in a temporary copy, and the check must say so; on the
untouched tree and library it must be silent.

usage: test_checks.py rooms ROOT
       test_checks.py links ROOT
       test_checks.py parameters ROOT
       test_checks.py archive ROOT LIBBITNET.a LIBBITNET.so [--asserts] -- CC [ARG...]
Prints TAP."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from tap import Tap

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"

# name, file, text put at its end (the file is made where it is missing), words the complaint must contain
ROOMS = [
    ("upward include", "src/kernels/ref/planted.c", SPDX + '#include "model/config/config.h"\n', "kernels may not include model"),
    ("upward include in angle brackets", "src/base/planted.h", SPDX + "#include <model/config/config.h>\n",
     "base may not include model"),
    ("cli reaches behind the door", "src/cli/core/planted.c", SPDX + '#include "engine/engine.h"\n', "cli/core may not include engine"),
    ("path out of the room", "src/text/planted.c", SPDX + '#include "../model/config.h"\n', "text may not include .."),
    ("include without its room", "src/base/planted.c", SPDX + '#include "base.h"\n', "write the include from src/"),
    ("AVX intrinsics in the model", "src/model/planted.c", SPDX + "#include <immintrin.h>\n", "intrinsics"),
    ("NEON in the reference", "src/kernels/ref/planted.c", SPDX + "#include <arm_neon.h>\n", "intrinsics"),
    ("RVV beside the architectures", "src/kernels/planted.c", SPDX + "#include <riscv_vector.h>\n", "intrinsics"),
    ("threads in a kernel", "src/kernels/ref/planted.c", SPDX + "#include <pthread.h>\n", "kernels know no threads"),
    ("environment read in the library", "src/engine/planted.c", SPDX + 'const char *p(void) { return getenv("X"); }\n',
     "reads the environment"),
    ("no licence line", "src/base/planted.c", "int bn_planted;\n", "SPDX"),
    ("a folder nobody knows", "src/attic/planted.c", SPDX, "not in ROOMS"),
    ("a file in no room", "src/planted.c", SPDX, "lives in a room"),
    ("a neighbour inside the room", "src/model/head/planted.c", SPDX + '#include "model/attention/kv.h"\n',
     "model/head may not include model/attention"),
    ("a room inside another one", "src/base/os/planted.c", SPDX + '#include "model/files/source.h"\n',
     "base/os may not include model/files"),
    ("a private header from the roof", "src/model/planted.c", SPDX + '#include "model/head/head_impl.h"\n',
     "is for the files of its own folder"),
    ("a folder inside that nobody knows", "src/model/attic/planted.c", SPDX, "not in ROOMS"),
    ("ROOMS inside out", "src/ROOMS", "\nengine/planted: model\n", "belongs on that line"),
    ("ROOMS too exact", "src/ROOMS", "\nplanted: base/os\n", "base instead of base/os"),
    ("ROOMS opens the door", "src/ROOMS", "\ncli: base model\n", "through bitnet.h, not through model"),
    ("ROOMS in a circle", "src/ROOMS", "\nlow: high\nhigh: low\n", "above its line"),
]
ROOMS_FINE = [
    ("intrinsics where they belong", "src/kernels/x86/planted.c", SPDX + "#include <immintrin.h>\n"),
    ("public header anywhere", "src/text/planted.c", SPDX + "#include <bitnet/bitnet.h>\n"),
    ("downward include", "src/model/planted.c", SPDX + '#include "base/base.h"\n#include "kernels/kernels.h"\n'),
    ("the roof of a room sees what is inside", "src/model/planted.c", SPDX + '#include "model/attention/kv.h"\n'),
    ("a private header in its folder", "src/model/head/planted.c", SPDX + '#include "model/head/head_impl.h"\n'),
    ("a private header of the roof, inside", "src/engine/prefix/planted.c", SPDX + '#include "engine/engine_impl.h"\n'),
    ("a room inside sees the roof", "src/model/head/planted.c", SPDX + '#include "model/model.h"\n'),
    ("environment read by the program", "src/cli/core/planted.c", SPDX + 'const char *p(void) { return getenv("X"); }\n'),
]

# name, file, text put at its end, words the complaint must contain (None: no complaint)
LINKS = [
    ("a link to no page", "README.md", "\n[a](docs/planted.md)\n", "no such file: docs/planted.md"),
    ("a link written from the root", "docs/serve/api.md", "\n[a](docs/serve/api.md)\n", "no such file: docs/serve/api.md"),
    ("a picture that is gone", "README.md", "\n![a](docs/img/planted.png)\n", "no such file: docs/img/planted.png"),
    ("a picture in HTML that is gone", "README.md", '\n<img src="docs/img/planted.png">\n', "no such file: docs/img/planted.png"),
    ("a heading of another page", "README.md", "\n[a](docs/serve/api.md#planted)\n", "no heading for #planted"),
    ("a heading of the same page", "docs/serve/api.md", "\n[a](#planted)\n", "this page has no heading for #planted"),
    ("a heading in a code block", "README.md", "\n```\n# Planted\n```\n[a](#planted)\n", "no heading for #planted"),
    ("a path in backticks", "docs/serve/api.md", "\n`tools/planted.py`\n", "no such file: tools/planted.py"),
    ("a path in a command", "CONTRIBUTING.md", "\n`python3 tools/planted.py build`\n", "no such file: tools/planted.py"),
    ("a path of a room", "ARCHITECTURE.md", "\n`model/planted`\n", "no such file: model/planted"),
    ("a pattern without files", "ARCHITECTURE.md", "\n`server/planted_*.c`\n", "no such file: server/planted_*.c"),
    ("a page named in a comment", "src/base/planted.c", SPDX + "/* docs/planted.md */\n", "no such page: docs/planted.md"),
    ("good links and paths", "README.md", "\n## It's here: `x`, twice\n[a](#its-here-x-twice) [b](docs/serve/api.md) [c](https://example.org/x) "
     "`src/ROOMS` `model/forward` `model/forward.c` `src/kernels/<arch>/x.c` `a/b`\n", None),
    ("an old path in the log", "CHANGELOG.md", "\n`src/planted.c`\n", None),
]

NINE = "int a, int b, int c, int d, int e, int f, int g, int h, int i"
EIGHT = "int a, int b, int c, int d, int e, int f, int g, int h"

# name, file, its text, words the complaint must contain (None: no complaint)
PARAMETERS = [
    ("a long definition", "src/base/planted.c", f"void bn_planted({NINE}) {{ }}\n", "bn_planted has 9 parameters"),
    ("a static one in a kernel", "src/kernels/ref/planted.c", f"static inline int *planted({NINE})\n{{\n}}\n", "planted has 9"),
    ("one with an attribute before it", "src/base/planted.c",
     f"static __attribute__((noinline)) void planted({NINE})\n{{\n}}\n", "planted has 9"),
    ("a declaration", "src/base/planted.h", f"struct x *bn_planted({NINE});\n", "bn_planted has 9"),
    ("one in the public header", "include/bitnet/planted.h", f"BITNET_API int bitnet_planted({NINE});\n", "bitnet_planted has 9"),
    ("a kernel's contract", "src/kernels/planted.h", f"typedef void bn_planted_fn({NINE});\n", "bn_planted_fn has 9"),
    ("a pointer to a function", "src/base/planted.h", f"typedef int (*planted_fn)({NINE});\n", "planted_fn has 9"),
    ("a member", "src/base/planted.h", f"struct s {{\n    int (*call)({NINE});\n}};\n", "call has 9"),
    ("a parameter that is a function", "src/base/planted.h", f"void bn_planted(int a, void (*call)({NINE}));\n", "call has 9"),
    ("a macro's function", "src/base/planted.c", f"#define F(n) \\\n    void bn_##n##_f({NINE}) \\\n    {{ }}\n", "_f has 9"),
    ("the second of two functions", "src/base/planted.c",
     f"int one(void)\n{{\n    return 1;\n}}\nint two({NINE})\n{{\n    return 2;\n}}\n", "planted.c:6: two has 9"),
    ("eight parameters", "src/base/planted.c", f"void bn_planted({EIGHT}) {{ }}\n", None),
    ("commas inside of a parameter", "src/base/planted.h", f"void bn_planted({EIGHT}, ...);\n".replace(
        "int h, ...", "void (*h)(int, int)"), None),
    ("a long call, comment and string", "src/base/planted.c",
     f'/* void f({NINE}); */\nint one(void)\n{{\n    return f(1, 2, 3, 4, 5, 6, 7, 8, 9, "({NINE})");\n}}\n', None),
    ("a long list of values", "src/base/planted.c", "static const int t[] = {F(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)};\n", None),
    ("a line of a list", "src/base/planted.def", "K(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)\n", None),
]

# name, C text, words the complaint must contain (None: no complaint)
ARCHIVE = [
    ("a decent function and constant", "const int bn_planted_k = 3; int bn_planted(void); int bn_planted(void) { return 1; }",
     None),
    ("call of abort", "void abort(void); void bn_planted(void) { abort(); }", "calls abort"),
    ("call of exit", "void exit(int); void bn_planted(void) { exit(1); }", "calls exit"),
    ("print", "int printf(const char *, ...); void bn_planted(int i) { printf(\"%d\", i); }", "calls printf"),
    ("print, hardened", "int __printf_chk(int, const char *, ...); void bn_planted(int i) { __printf_chk(1, \"%d\", i); }",
     "calls printf"),
    ("stderr", "extern void *stderr; void *bn_planted(void) { return stderr; }", "calls stderr"),
    ("environment", "char *getenv(const char *); char *bn_planted(void) { return getenv(\"X\"); }", "calls getenv"),
    ("failed assertion", "void __assert_fail(void); void bn_planted(void) { __assert_fail(); }", "assert()"),
    ("static counter", "int bn_planted(void) { static int n; return ++n; }", "writable data"),
    ("initialised static", "int bn_planted(void) { static int n = 7; return ++n; }", "writable data"),
    ("thread-local", "int bn_planted(void) { static _Thread_local int n; return ++n; }", "writable data"),
    ("constructor", "void bn_q(void); __attribute__((constructor)) static void run(void) { bn_q(); }", "writable data"),
    ("unprefixed extern", "int planted(void) { return 1; }", "lacks the prefix"),
    ("undeclared export", "__attribute__((visibility(\"default\"))) int bitnet_planted(void) { return 1; }",
     "exported but not declared"),
]

tap = Tap()


def run(*args):
    p = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return p.returncode, p.stdout


def judge(name, rc, out, words):
    if words is None:
        tap.point(name + " passes", rc == 0, out)
    else:
        tap.point(name + " is found", rc == 1 and words in out, f"exit {rc}, wanted {words!r}:\n{out}")


def plant(check, copy, cases):
    """Each case's text at the end of its file, the check, and the file as it was."""
    for name, path, text, words in cases:
        f = copy / path
        old, made = f.read_bytes() if f.exists() else None, not f.parent.exists()
        f.parent.mkdir(parents=True, exist_ok=True)
        f.write_bytes((old or b"") + text.encode())
        judge(name, *run(*check, copy), words)
        f.unlink() if old is None else f.write_bytes(old)
        if made:
            f.parent.rmdir()


def test_links(root):
    check = [sys.executable, root / "tools/check_links.py"]
    judge("the documents as they are", *run(*check, root), None)
    with tempfile.TemporaryDirectory() as t:
        copy = pathlib.Path(t)
        for entry in root.iterdir():
            if entry.name in ("docs", "src", "include"):
                shutil.copytree(entry, copy / entry.name)
            elif entry.suffix == ".md":
                shutil.copy(entry, copy)
            elif not entry.name.startswith((".", "build")):
                (copy / entry.name).symlink_to(entry)
        plant(check, copy, LINKS)


def test_rooms(root):
    check = [sys.executable, root / "tools/check_rooms.py"]
    judge("the tree as it is", *run(*check, root), None)
    with tempfile.TemporaryDirectory() as t:
        copy = pathlib.Path(t)
        shutil.copytree(root / "src", copy / "src")
        shutil.copytree(root / "include", copy / "include")
        plant(check, copy, ROOMS + [(*f, None) for f in ROOMS_FINE])
        for i in range(30):
            (copy / f"src/json/planted{i}.h").write_text(SPDX)
        judge("a full folder", *run(*check, copy), "find a place in one folder")


def test_parameters(root):
    check = [sys.executable, root / "tools/check_parameters.py"]
    judge("the tree as it is", *run(*check, root), None)
    for name, path, text, words in PARAMETERS:
        with tempfile.TemporaryDirectory() as t:
            f = pathlib.Path(t) / path
            f.parent.mkdir(parents=True)
            f.write_text(SPDX + text)
            judge(name, *run(*check, t), words)


def test_archive(root, lib, so, asserts, cc):
    check = [sys.executable, root / "tools/check_archive.py", *asserts]
    headers = [root / "include/bitnet" / name for name in ("bitnet.h", "ranks.h")]
    judge("the library as it is", *run(*check, lib, so, *headers), None)
    with tempfile.TemporaryDirectory() as t:
        dir = pathlib.Path(t)
        src, obj, a, s = dir / "planted.c", dir / "planted.o", dir / "libplanted.a", dir / "libplanted.so"
        for name, text, words in ARCHIVE:
            if asserts and words == "assert()":
                continue
            src.write_text(text + "\n")
            rc, out = run(*cc, "-w", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-builtin", "-c", src, "-o", obj)
            if rc == 0:
                a.unlink(missing_ok=True)
                members = [obj]
                if lib.read_bytes()[:7] == b"!<thin>":
                    members += run("ar", "t", lib)[1].split()
                else:
                    shutil.copy(lib, a)
                rc, out = run("ar", "rcs", a, *members)
            if rc == 0:
                rc, out = run(*cc, "-shared", "-o", s, "-Wl,--whole-archive", a, "-Wl,--no-whole-archive")
            if rc:
                tap.point(name, False, out)
                continue
            judge(name, *run(*check, a, s, *headers), words)


def main(argv):
    root = pathlib.Path(argv[1]).resolve()
    if argv[0] == "rooms":
        test_rooms(root)
    elif argv[0] == "links":
        test_links(root)
    elif argv[0] == "parameters":
        test_parameters(root)
    else:
        lib, so = (pathlib.Path(p).resolve() for p in argv[2:4])
        split = argv.index("--")
        test_archive(root, lib, so, argv[4:split], argv[split + 1:])
    return tap.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
