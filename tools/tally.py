#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the results of tests. A program that speaks TAP counts once for each of its points, any other once. A program
that was skipped as a whole without a word why has failed.

usage: tally.py --meson testlog.json [--show | --skips]      what `meson test` wrote
       tally.py --tap FILE STATUS [--show | --skips]         the output and exit status of one TAP program
Prints "PASSED FAILED SKIPPED". --show: the failures and the end of what they said follow. --skips: one line a point that
was skipped, with its reason, instead."""
import json
import re
import sys

POINT = re.compile(r"^(ok|not ok)\b(?:.*?#\s*(skip|todo)\b[ \t]*(.*))?", re.I | re.M)
PLAN = re.compile(r"^1\.\.\d+(?:\s*#\s*skip\b[ \t]*(.*))?", re.I | re.M)
GOOD = {"OK", "EXPECTEDFAIL"}
TAIL = 25  # lines of what a failure said


class Program:
    def __init__(self, name, result, text):
        self.name = name.rpartition(" / ")[2]  # meson writes project:suite / name
        self.lines, plan = text.splitlines(), PLAN.search(text)
        self.is_tap = plan is not None
        self.passed = self.failed = 0
        self.reasons = []
        for verdict, directive, why in POINT.findall(text) if plan else ():
            if directive.lower() == "skip":
                self.reasons.append(why)
            elif verdict.lower() == "ok" or directive:
                self.passed += 1
            else:
                self.failed += 1
        self.is_skipped = result == "SKIP"
        if self.is_skipped and not self.reasons:
            said = plan[1] if plan else next((s for s in reversed(self.lines) if s.strip()), "")
            self.reasons = [said] if said else []
        if not plan and result in GOOD:
            self.passed = 1
        if self.is_skipped:
            self.failed += not self.reasons
        elif result not in GOOD and not self.failed:
            self.failed = 1  # ended badly without naming a point
        self.result = "skipped without a reason" if self.is_skipped else result

    def story(self):
        picked = [s for s in self.lines if self.is_tap and s.startswith(("not ok", "#"))]
        return f"--- {self.name}: {self.result}\n" + "\n".join((picked or self.lines)[-TAIL:])


def read_meson(path):
    for line in open(path, errors="replace"):
        t = json.loads(line)
        yield Program(t["name"], t["result"], (t.get("stdout") or "") + "\n" + (t.get("stderr") or ""))


def read_tap(path, status):
    yield Program(path, "OK" if status == 0 else "FAIL", open(path, errors="replace").read())


def main(argv):
    options = {a for a in argv if a in ("--show", "--skips")}
    argv = [a for a in argv if a not in options]
    programs = list(read_meson(argv[1]) if argv[0] == "--meson" else read_tap(argv[1], int(argv[2])))
    if "--skips" in options:
        for p in programs:
            for why in p.reasons:
                print(f"{p.name}: {why}")
        return 0
    print(sum(p.passed for p in programs), sum(p.failed for p in programs), sum(len(p.reasons) for p in programs))
    if "--show" in options:
        print("\n".join(p.story() for p in programs if p.failed))
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
