#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C examples of README.md, docs/use/library.md and the public header must compile without a warning, run, and say something.

usage: test_readme.py ROOT LIBBITNET.so -- CC [ARG...]"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(text, root, so, cc):
    with tempfile.TemporaryDirectory() as t:
        src, exe = pathlib.Path(t) / "story.c", pathlib.Path(t) / "story"
        src.write_text(text)
        subprocess.run([*cc, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{root}/include", src, so, "-o", exe], check=True)
        return subprocess.run([exe], env={**os.environ, "LD_LIBRARY_PATH": str(so.parent)}, capture_output=True, timeout=120)


def in_header(root):
    """The lines of its first comment from the first #include to the brace that ends main."""
    text = (root / "include/bitnet/bitnet.h").read_text()
    lines = re.search(r"^ \*     #include.*?^ \*     }\n", text, re.S | re.M)[0].splitlines()
    return "\n".join(line[7:] for line in lines) + "\n"


def main(argv):
    root, so = (pathlib.Path(a).resolve() for a in argv[:2])
    cc = argv[argv.index("--") + 1:]
    pages = [(root / page).read_text() for page in ("README.md", "docs/use/library.md")]
    programs = [text for page in pages for text in re.findall(r"^```c\n(.*?)^```", page, re.S | re.M)]
    for text in [*programs, in_header(root)]:
        out = run(text, root, so, cc)
        print(out.stdout.decode(), out.stderr.decode())
        if out.returncode or len(out.stdout) < 40:
            return 1
    return len(programs) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
