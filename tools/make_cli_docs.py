#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/use/cli.md from what the program says of itself; with --check it only tells whether the page is up to date.

usage: make_cli_docs.py BITNET [--check]
"""
import pathlib
import re
import subprocess
import sys

page = pathlib.Path(__file__).resolve().parent.parent / "docs" / "use" / "cli.md"


def said(*words):
    p = subprocess.run([sys.argv[1], *words], capture_output=True, text=True, check=True, env={"COLUMNS": "100"})
    return p.stdout.rstrip()


overview = said("help")
commands = re.findall(r"^  (\w+)  +\S", overview.split("Commands:")[1].split("\n\n")[0], re.M)
text = ["# The commands", "", "This page is made from the program's own help by `tools/make_cli_docs.py`.", "", "```", overview, "```", ""]
for name in commands:
    if name in ("help", "version"):
        continue
    text += [f"## bitnet {name}", "", "```", said("help", name), "```", ""]
text = "\n".join(text)
if "--check" not in sys.argv:
    page.write_text(text)
elif not page.exists() or page.read_text() != text:
    print("docs/use/cli.md is not what the program says; run tools/make_cli_docs.py BITNET")
    sys.exit(1)
