#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of the pages that src/server/pages.c puts into the program.

usage: list_pages.py OUT ROOT FILE...

FILEs below ROOT keep their paths; chat.html becomes "/", other .html files lose their ending. Others go to the top.
A line is PAGE(number, path, content type, ETag, bytes, file)."""
import hashlib
import pathlib
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def served_as(root, file):
    path = "/" + (file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name)
    if path == "/chat.html":
        return "/"
    return path.removesuffix(".html")


def main(out, root, *files):
    lines = []
    for i, name in enumerate(files):
        file = pathlib.Path(name)
        data = file.read_bytes()
        etag = hashlib.sha256(data).hexdigest()[:16]
        lines.append(f'PAGE({i}, "{served_as(pathlib.Path(root), file)}", "{TYPES[file.suffix]}", "\\"{etag}\\"", '
                     f'{len(data)}, "{file}")\n')
    pathlib.Path(out).write_text("".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
