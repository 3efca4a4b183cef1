#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C example of README.md must compile without a warning, run, and say something.

usage: test_readme.py ROOT LIBBITNET.so -- CC [ARG...]"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def main(argv):
    root, so = (pathlib.Path(a).resolve() for a in argv[:2])
    cc = argv[argv.index("--") + 1:]
    text = re.search(r"^```c\n(.*?)^```", (root / "README.md").read_text(), re.S | re.M)[1]
    with tempfile.TemporaryDirectory() as t:
        src, exe = pathlib.Path(t) / "story.c", pathlib.Path(t) / "story"
        src.write_text(text)
        subprocess.run([*cc, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{root}/include", src, so, "-o", exe], check=True)
        out = subprocess.run([exe], env={**os.environ, "LD_LIBRARY_PATH": str(so.parent)}, capture_output=True, timeout=120)
    print(out.stdout.decode(), out.stderr.decode())
    return out.returncode or len(out.stdout) < 40


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
