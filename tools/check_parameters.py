#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No function has more than MOST parameters: what needs more takes a struct whose members are described one by one.

Read are the sources below src/ and include/: definitions (static ones too), declarations, types of functions and of
pointers to them, members that are such pointers, and functions that a macro's text defines. The contracts of kernels
are such types: bn_OP_fn of the operations in kernels.def.

usage: check_parameters.py [--most N] ROOT      prints one line a place; exit status 1 if there is any."""
import argparse
import pathlib
import re
import sys

MOST = 8
# {name: why it may have more}; CONTRIBUTING.md defends each of them by name.
ALLOWED = {}
C_FILES = {".c", ".h", ".def", ".inc"}

NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.M)
DEFINE = re.compile(r"\s*#\s*define\s+\w+(?:\([^)]*\))?")
TOKEN = re.compile(r"##|\w+|\S")
ATTRIBUTES = {"__attribute__", "_Alignas"}
NOT_A_TYPE = {"return", "else", "case", "goto", "sizeof", "do", "if", "while", "for", "switch"}


def blank(text):
    """Spaces of the same shape, so that lines keep their numbers."""
    return re.sub(r"[^\n]", " ", text)


def tokens_of(text):
    """[(token, line)] lists: the file without its directives, and the text of each macro by itself."""
    text = NOISE.sub(lambda m: blank(m[0]), text)
    macros = []
    for m in DIRECTIVE.finditer(text):
        d = DEFINE.match(m[0])
        if d:
            macros.append((m.start() + d.end(), m[0][d.end():].replace("\\\n", " \n")))
    text = DIRECTIVE.sub(lambda m: blank(m[0]), text)
    for start, part in [(0, text), *macros]:
        line, out = 1 + text.count("\n", 0, start), []
        for row in part.split("\n"):
            out += [(t, line) for t in TOKEN.findall(row)]
            line += 1
        yield out


def closing(t, i):
    """The place of what closes the parenthesis, bracket or brace at i."""
    depth = 0
    for j in range(i, len(t)):
        depth += (t[j][0] in "([{") - (t[j][0] in ")]}")
        if depth == 0:
            return j
    return len(t) - 1


def without_attributes(t):
    out, i = [], 0
    while i < len(t):
        if t[i][0] in ATTRIBUTES and i + 1 < len(t):
            i = closing(t, i + 1)
        else:
            out.append(t[i])
        i += 1
    return out


def count(t, i, end):
    """Parameters of the list whose parentheses stand at i and end."""
    inside, n, j = t[i + 1:end], 1, i + 1
    if not inside or [x[0] for x in inside] == ["void"]:
        return 0
    while j < end:
        if t[j][0] in "([{":
            j = closing(t, j)
        n += t[j][0] == ","
        j += 1
    return n


def declared(t, start, i):
    """The name that a declaration from start on gives to the list at i, or None: it is a call or no list at all."""
    if i == start:
        return None
    before = t[i - 1][0]
    if before == ")":                                       # (*name)(...)
        names = [x[0] for x in t[start:i - 1] if re.match(r"[A-Za-z_]", x[0])]
        return names[-1] if "*" in {x[0] for x in t[start:i - 1]} and names else None
    head = [x[0] for x in t[start:i - 1]]
    if not re.match(r"[A-Za-z_]", before) or not head or NOT_A_TYPE & {*head, before}:
        return None
    ok = all(re.match(r"\w+$|[*]$|##$", x) for x in head)
    return before if ok and re.match(r"[A-Za-z_]", head[0]) else None


def lists(t, start, end):
    """(name, line, parameters) of the declarations at places start .. end, those inside of parameter lists too."""
    i = first = start
    while i < end:
        tok = t[i][0]
        if tok == "(":
            stop = closing(t, i)
            name = declared(t, first, i)
            if name:
                yield name, t[i][1], count(t, i, stop)
                yield from lists(t, i + 1, stop)
            i = stop
        elif tok == "{":
            stop, head = closing(t, i), {x[0] for x in t[first:i]}
            if head & {"struct", "union"} and t[i - 1][0] not in (")", "="):
                yield from lists(t, i + 1, stop)
            i = stop
            first = i + 1
        elif tok in (";", ","):
            first = i + 1
        i += 1


def too_long(root, most):
    """{(file, name): (line, parameters)}"""
    found = {}
    for f in sorted(p for top in ("src", "include") for p in (root / top).rglob("*") if p.suffix in C_FILES):
        for t in map(without_attributes, tokens_of(f.read_text())):
            for name, line, n in lists(t, 0, len(t)):
                if n > most and name not in ALLOWED:
                    found.setdefault((f, name), (line, n))
    return found


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("root", type=pathlib.Path)
    args = parser.parse_args(argv)
    found = too_long(args.root, args.most)
    for (f, name), (line, n) in found.items():
        print(f"{f}:{line}: {name} has {n} parameters; more than {args.most} belong in a described struct")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
