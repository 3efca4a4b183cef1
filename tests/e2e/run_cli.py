#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the bitnet program as its users do; checks its output, exit code and what it leaves behind.

    run_cli.py PATH/TO/bitnet [--only TEXT] [--list] [--keep]
    run_cli.py --groups

Cases are functions named test_* in cli/cases_GROUP.py. Each gets a Tool bound to an empty folder of its
own, in which the program runs. After a case the folder must hold exactly what the case said it
keeps: no program may leave half-written files. Manners that hold for every run (one error line, no
control characters in messages) are checked in Tool.run, so that no case repeats them. Output is TAP.
"""
import argparse
import fcntl
import importlib.util
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE.parent / "lib"), str(HERE / "cli")]
from serving import until
from tap import Skipped, Tap

LIMIT_S = 120  # for one run of the program; sanitizer builds are slow


class Failed(Exception):
    """A check that did not hold."""


class Result:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    @property
    def text(self):
        return self.out.decode("utf-8")

    @property
    def errors(self):
        return self.err.decode("utf-8")

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError as e:
            raise Failed(f"{self.args}: not JSON ({e}): {self.out[:300]!r}") from e


def catches(pid, number):
    """Has the process a handler of its own for this signal?"""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        caught = re.search(r"^SigCgt:\s+([0-9a-f]+)", f.read(), re.M)
    return bool(caught) and int(caught[1], 16) >> (number - 1) & 1


class Tool:
    """The program, a scratch folder, and the checks."""

    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), pathlib.Path(folder)
        self.kept = set()
        self.env = {k: v for k,
                    v in os.environ.items() if not k.startswith("BITNET_") and k != "NO_COLOR"}
        self.env.update(LC_ALL="C.UTF-8", TERM="xterm",
                        XDG_CONFIG_HOME=str(self.folder / "config"),
                        XDG_STATE_HOME="/dev/null",  # no history
                        HF_HUB_CACHE=str(self.folder / "hub"), OLLAMA_MODELS=str(self.folder / "ollama"))

    def path(self, name):
        return self.folder / name

    def write(self, name, data):
        """A file the case brings; it may stay."""
        self.kept.add(name)
        p = self.path(name)
        p.write_bytes(data if isinstance(data, bytes) else data.encode())
        return p

    def keeps(self, *names):
        """Files the program is meant to leave behind."""
        self.kept.update(names)

    def check(self, truth, what):
        if not truth:
            raise Failed(what)

    def equal(self, got, want, what="value"):
        if got != want:
            raise Failed(f"{what}: got {got!r:.600}, want {want!r:.600}")

    def run(self, *args, stdin=b"", code=0, env=None, program=None, one_error_line=True):
        """Runs the program and checks the exit code; a failure must be one line, 'bitnet: ...'."""
        args = [str(a) for a in args]
        done = subprocess.run([program or self.program, *args], input=stdin, cwd=self.folder,
                              timeout=LIMIT_S,
                              env={**self.env, **(env or {})}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              check=False)
        r = Result(args, done.returncode, done.stdout, done.stderr)
        if r.code != code:
            raise Failed(f"{args}: exit code {r.code}, want {code}; it said {r.err[-600:]!r}")
        if re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", r.err):
            raise Failed(f"{args}: control characters on standard error: {r.err[:300]!r}")
        if code in (1, 2) and one_error_line:
            # notes about the model may stand before the error
            lines = [x for x in r.errors.splitlines() if not x.startswith("bitnet: note: ")]
            if len(lines) != 1 or not lines[0].startswith("bitnet: ") or not r.err.endswith(b"\n"):
                raise Failed(f"{args}: want one line 'bitnet: ...', got {r.err[:600]!r}")
        return r

    def interrupted(self, *args):
        """Runs the program until it catches signals, then interrupts it: no output, exit code 130."""
        p = subprocess.Popen([self.program, *args], cwd=self.folder, env=self.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until("it catches SIGINT", lambda: catches(p.pid, signal.SIGINT) or p.poll() is not None)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=LIMIT_S)
        self.equal(p.returncode, 130, f"exit code of {args}; it said {err!r}")
        self.equal(out, b"", "standard output")
        return err

    def usage(self, *args, says=(), **more):
        """A usage error that names certain things and where to look."""
        r = self.run(*args, code=2, **more)
        self.says(r, *([says] if isinstance(says, str) else says), "--help")
        self.equal(r.out, b"", "standard output of a usage error")
        return r

    def fails(self, *args, says=(), **more):
        r = self.run(*args, code=1, **more)
        self.says(r, *([says] if isinstance(says, str) else says))
        return r

    def says(self, r, *parts):
        for part in parts:
            if part not in r.errors:
                raise Failed(f"{r.args}: {part!r} is not in {r.errors!r:.600}")

    def terminal(self, *args, env=None):
        return Terminal(self, [str(a) for a in args], {**self.env, **(env or {})})

    def left_over(self):
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*")
                      if str(p.relative_to(self.folder)) not in self.kept)


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, tool, args, env):
        self.args = args
        try:
            self.master, slave = pty.openpty()
        except OSError as e: # a bare root without /dev/pts
            raise Skipped("device", str(e)) from e
        self.process = subprocess.Popen(
            [tool.program, *args], stdin=slave, stdout=slave, stderr=slave, env=env,
            cwd=tool.folder, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # so that ^C reaches it
        os.close(slave)
        self.seen = b""

    def send(self, data):
        os.write(self.master, data)

    def pump(self, seconds):
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side is gone
            return False
        self.seen += data
        return bool(data)

    def until(self, pattern, seconds=LIMIT_S):
        """Reads until the pattern appears, and takes everything up to its end off the record."""
        end = time.monotonic() + seconds
        while True:
            m = re.search(pattern, self.seen, re.S)
            if m:
                head, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return head
            if time.monotonic() > end or (not self.pump(0.2) and self.process.poll() is not None
                                          and not self.pump(0)):
                self.process.kill()
                raise Failed(f"{self.args}: {pattern!r} did not appear in {self.seen[-600:]!r}")

    def interrupt(self):
        self.send(b"\x03")

    def end(self, code, poke=b""):
        """Waits for the end and checks the exit code. `poke` is typed every second until then: a
        character typed just when line editing takes over the terminal may be lost."""
        limit, next_poke = time.monotonic() + LIMIT_S, 0
        while self.pump(0.2) or self.process.poll() is None:
            if time.monotonic() > limit:
                self.process.kill()
            if poke and self.process.poll() is None and time.monotonic() > next_poke:
                self.send(poke)
                next_poke = time.monotonic() + 1
        got = self.process.wait(LIMIT_S)
        os.close(self.master)
        if got != code:
            raise Failed(f"{self.args}: exit code {got}, want {code}; it said {self.seen[-600:]!r}")
        return self.seen


def load_cases():
    cases = []
    for file in sorted((HERE / "cli").glob("cases_*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        group = file.stem.removeprefix("cases_")
        cases += [(f"{group}/{name[5:]}", fn) for name,
                  fn in vars(module).items() if name.startswith("test_")]
    return cases


def run_case(program, fn, keep):
    folder = tempfile.mkdtemp(prefix="bitnet-cli-")
    try:
        tool = Tool(program, folder)
        fn(tool)
        left = tool.left_over()
        if left:
            raise Failed(f"left behind: {left}")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def main():
    if sys.argv[1:] == ["--groups"]:
        return print("\n".join(sorted({name.split("/")[0] for name, _ in load_cases()})))
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program")
    p.add_argument("--only", default="", help="run only cases whose name contains this")
    p.add_argument("--list", action="store_true")
    p.add_argument("--keep", action="store_true", help="keep the scratch folders")
    o = p.parse_args()
    if not os.access(o.program, os.X_OK):
        p.error(f"{o.program} is not a program")
    cases = [c for c in load_cases() if o.only in c[0]]
    if not cases:
        p.error(f"no case has '{o.only}' in its name")
    if o.list:
        print("\n".join(name for name, _ in cases))
        return 0
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    tap = Tap(len(cases))
    for name, fn in cases:
        tap.case(name, run_case, o.program, fn, o.keep)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
