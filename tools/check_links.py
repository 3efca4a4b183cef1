#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for dead ends in the documents:

- a relative link or picture of a Markdown page leads to a file, and its #anchor to a heading or an id;
- a path in backticks exists: from the root (`src/ROOMS`), or from src/ or tests/unit/ with or without its ending
  (`model/forward`, `server/metrics/metrics.def`); with `*` at least one such file does. Names with <gaps> are left
  alone, and so are the pages that tell what was (CHANGELOG.md, docs/log);
- a page of docs/ that a source file names exists.

usage: check_links.py ROOT
Prints one complaint a line; exit status 1 if there is any."""
import os
import pathlib
import re
import sys

HISTORY = ("CHANGELOG.md", "docs/log/")
FOLDERS = ("deploy", "docs", "examples", "include", "models", "src", "tests", "tools", "web")
SOURCES = (".c", ".h", ".def", ".py", ".sh", ".js", ".css", ".html", ".build", ".yaml", ".service", "")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ ]*$", re.S | re.M)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)|(?:src|srcset|href)=\"([^\"]+)\"")
CODE = re.compile(r"`([^`\n]+)`")
PAGE = re.compile(r"\bdocs/[\w./-]+\.md\b")


def walk(root):
    """Files of the tree, without hidden folders, builds and packages."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build")) and f not in ("node_modules", "__pycache__"))
        for name in sorted(names):
            yield pathlib.Path(folder, name)


def blank(text, pattern):
    """The text with all matches as spaces: line numbers stay."""
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def anchors(page):
    """What GitHub makes of a page's headings, and ids in HTML."""
    text = page.read_text()
    found, seen = set(re.findall(r"\bid=\"([^\"]+)\"", text)), {}
    for title in re.findall(r"^#+ +(.+?) *#*$", blank(text, FENCE), re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
    return found


def link_fault(root, page, url):
    if re.match(r"[a-z][a-z+.-]*:", url):
        return None
    path, _, anchor = url.partition("#")
    target = (page.parent / path) if path else page
    if not target.exists():
        return f"no such file: {path}"
    if root not in pathlib.Path(os.path.normpath(target), "x").parents:
        return f"{path} is outside the tree"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{path or 'this page'} has no heading for #{anchor}"
    return None


def names_file(root, word, rooms):
    """Whether the word is no path of this tree, or one that exists."""
    word = re.sub(r":\d+$", "", word).rstrip("/")
    first = word.split("/")[0]
    if "/" not in word or not re.fullmatch(r"[\w./*-]+", word) or ".." in word or first not in {*FOLDERS, *rooms}:
        return True
    bases = ("",) if first in FOLDERS else ("src/", "tests/unit/")
    return any(any(root.glob(base + word + end)) for base in bases for end in (("",) if first in FOLDERS else ("", ".*")))


def check_page(root, page, rooms):
    name = page.relative_to(root).as_posix()
    text = blank(page.read_text(), FENCE)
    for n, line in enumerate(text.splitlines(), 1):
        for m in LINK.finditer(CODE.sub("``", line)):
            fault = link_fault(root, page, m[1] or m[2])
            if fault:
                yield f"{name}:{n}: {fault}"
        if name.startswith(HISTORY):
            continue
        for m in CODE.finditer(line):
            if not names_file(root, m[1], rooms):
                yield f"{name}:{n}: no such file: {m[1]}"


def check_source(root, file):
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        return
    for m in PAGE.finditer(text):
        if not (root / m[0]).exists():
            line = text.count("\n", 0, m.start()) + 1
            yield f"{file.relative_to(root).as_posix()}:{line}: no such page: {m[0]}"


def main(argv):
    root = pathlib.Path(argv[0]).resolve()
    rooms = {line.split(":")[0].split("/")[0] for line in (root / "src/ROOMS").read_text().splitlines() if ":" in line and line[0] != "#"}
    faults = []
    for file in walk(root):
        if file.suffix == ".md":
            faults += check_page(root, file, rooms)
        elif file.suffix in SOURCES and file.name != "test_checks.py":
            faults += check_source(root, file)
    print("\n".join(faults))
    return len(faults) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
