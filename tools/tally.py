#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the results of tests. A program that speaks TAP counts once for each of its points, any other once.

usage: tally.py --meson testlog.json [--show]      what `meson test` wrote
       tally.py --tap FILE STATUS [--show]         the output and exit status of one TAP program
Prints "PASSED FAILED SKIPPED"; with --show, the failures and the end of what they said follow."""
import json
import re
import sys

POINT = re.compile(r"^(ok|not ok)\b(?:.*?#\s*(skip|todo)\b)?", re.I | re.M)
GOOD, SKIP = {"OK", "EXPECTEDFAIL"}, {"SKIP"}


def points(text):
    """(passed, failed, skipped) of TAP text; None if it is not TAP."""
    if not re.search(r"^1\.\.\d+", text, re.M):
        return None
    n = [0, 0, 0]
    for verdict, directive in POINT.findall(text):
        n[2 if directive.lower() == "skip" else 0 if verdict.lower() == "ok" or directive else 1] += 1
    return n


def judge(name, result, text):
    """One program: its counts, and the story of its failure or None."""
    n = points(text)
    tap = n is not None
    if result in SKIP:
        return [0, 0, max(1, n[2] if n else 0)], None
    if not tap:
        n = [int(result in GOOD), 0, 0]
    if result not in GOOD and not n[1]:
        n[1] = 1                                   # ended badly without naming a point
    if not n[1]:
        return n, None
    lines = text.splitlines()
    picked = [s for s in lines if tap and s.startswith(("not ok", "#"))]
    return n, f"--- {name}: {result}\n" + "\n".join((picked or lines)[-25:])


def main(argv):
    show = "--show" in argv
    argv = [a for a in argv if a != "--show"]
    programs = []
    if argv[0] == "--meson":
        for line in open(argv[1], errors="replace"):
            t = json.loads(line)
            programs.append((t["name"], t["result"], (t.get("stdout") or "") + "\n" + (t.get("stderr") or "")))
    else:
        status = int(argv[2])
        programs.append((argv[1], "OK" if status == 0 else "SKIP" if status == 77 else "FAIL",
                         open(argv[1], errors="replace").read()))
    total, stories = [0, 0, 0], []
    for p in programs:
        n, story = judge(*p)
        total = [a + b for a, b in zip(total, n)]
        if story:
            stories.append(story)
    print(*total)
    if show:
        print("\n".join(stories))
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
