# SPDX-License-Identifier: Apache-2.0
"""Completion of command lines: what the scripts ask, and the scripts in real shells."""
import os
import pathlib
import pty
import re
import select
import subprocess
import tempfile
import time

from cases_usage import COMMANDS, options
from tap import find


def ask(t, *words):
    """Candidates, and what may stand there besides."""
    lines = t.run("completion", "--line", "--", *words).text.splitlines()
    t.check(lines and re.fullmatch(":(files|dirs|models|none)", lines[-1]), f"last line for {words}: {lines[-1:]}")
    return [x.split("\t")[0] for x in lines[:-1]], lines[-1]


def test_commands(t):
    t.equal(ask(t, ""), (COMMANDS + ["help"], ":none"), "nothing typed")
    t.equal(ask(t), (COMMANDS + ["help"], ":none"), "no words")
    t.equal(ask(t, "pr"), (["prune", "profile"], ":none"), "pr")
    t.equal(ask(t, "help", "ben"), (["bench"], ":none"), "help ben")
    t.equal(ask(t, "nosuch", ""), ([], ":none"), "an unknown command")
    described = dict(x.split("\t") for x in t.run("completion", "--line", "--", "").text.splitlines()[:-1])
    t.equal(described["chat"], "talk to a model", "summary of a command")


def test_every_option(t):
    for name in COMMANDS:
        known = [f"--{o}" for o, _, _ in options(t.run(name, "--help-all").text) if o not in ("help", "help-all")]
        t.equal(ask(t, name, "--")[0], known + ["--help", "--help-all"], f"options of {name}")


def test_values(t):
    t.equal(ask(t, "run", "--kv-type", "int"), (["int8", "int4", "int2"], ":none"), "choices")
    t.equal(ask(t, "run", "--kv_type=int"), (["--kv_type=int8", "--kv_type=int4", "--kv_type=int2"], ":none"), "attached")
    t.equal(ask(t, "run", "--kv-type", "=", "int8"), (["int8"], ":none"), "parted as bash does")
    t.equal(ask(t, "run", "--kv-type", "="), (ask(t, "run", "--kv-type", "")[0], ":none"), "nothing behind =")
    t.check("scalar" in ask(t, "run", "--backend", "")[0], "backends")
    t.equal(ask(t, "run", "-m", ""), ([], ":models"), "a model by its letter")
    t.equal(ask(t, "run", "-f", ""), ([], ":files"), "a file")
    t.equal(ask(t, "serve", "--cache", ""), ([], ":dirs"), "a folder")
    t.equal(ask(t, "run", "-n", ""), ([], ":none"), "a number")


def test_words(t):
    t.equal(ask(t, "cache", ""), (["list", "verify", "clear"], ":none"), "verbs")
    t.equal(ask(t, "serve", ""), (["embedded"], ":models"), "a model")
    t.equal(ask(t, "run", "-n", "3", "--json", "emb"), (["embedded"], ":models"), "behind options")
    t.equal(ask(t, "eval", ""), (["kl", "diff", "embedded"], ":models"), "verbs or a model")
    t.equal(ask(t, "pull", "bonsai-2"), (["bonsai-27b", "bonsai-2-27b"], ":none"), "short names")
    t.equal(ask(t, "rm", ""), ([], ":none"), "nothing to remove")
    repo = t.folder / "hub/models--org--tiny-gguf"
    (repo / f"snapshots/{'a' * 40}").mkdir(parents=True)
    (repo / f"snapshots/{'a' * 40}/tiny.gguf").write_bytes(b"GGUF")
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("a" * 40)
    t.keeps("hub")
    for words in (["run", "-m"], ["chat"], ["rm"], ["show"]):
        t.equal(ask(t, *words, "org")[0], ["org/tiny-gguf"], f"a model that is here, for {words}")
    t.run("rm", "-y", "org/tiny-gguf")
    t.equal(ask(t, "convert", "a.gguf", ""), ([], ":files"), "the file to write")
    t.equal(ask(t, "version", ""), ([], ":none"), "no words")
    t.usage("completion", says="bash, zsh or fish")
    t.usage("completion", "tcsh", says="tcsh")


class Shell:
    """A shell, and a folder with the program on its path and files to be found."""

    def __init__(self, t, name):
        self.path, self.t = find(name), t

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.temporary.name)
        (self.home / "bin").mkdir()
        (self.home / "folder").mkdir()
        (self.home / "bin" / "bitnet").symlink_to(self.t.program)
        for file in ("model.gguf", "notes.txt", "a b.gguf"):
            (self.home / file).touch()
        self.env = {k: v for k, v in self.t.env.items() if not k.startswith("XDG_")}
        self.env.update(PATH=f"{self.home / 'bin'}:{self.env['PATH']}", HOME=str(self.home), ZDOTDIR=str(self.home))
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()

    def run(self, *args):
        return subprocess.run([self.path, *args], capture_output=True, text=True, env=self.env, cwd=self.home, timeout=60)


def test_bash(t):
    script = """
        source <(bitnet completion bash)
        ask() {  # the words as bash parts them; the last one is completed
            COMP_WORDS=(bitnet "$@") COMP_CWORD=$#
            _bitnet 2>/dev/null
            printf '%s|' "${COMPREPLY[@]}"; echo
        }
        ask ru
        ask run --kv-type = int
        ask run --model m
        ask run --model a
        ask cache ''
        ask serve fol
        complete -p bitnet
    """
    with Shell(t, "bash") as bash:
        done = bash.run("--norc", "-c", script)
    t.equal(done.stdout.splitlines(), ["run|", "int8|int4|int2|", "model.gguf|", "a b.gguf|", "list|verify|clear|", "folder|",
                                       "complete -F _bitnet bitnet"], f"bash; it said {done.stderr!r}")


def test_fish(t):
    script = """
        bitnet completion fish | source
        complete -C 'bitnet ru'
        complete -C 'bitnet run --kv-type int'
        complete -C 'bitnet run --kv-type=int'
        complete -C 'bitnet serve mod'
        complete -C 'bitnet serve not'
    """
    with Shell(t, "fish") as fish:
        done = fish.run("--no-config", "-c", script)
    t.equal(sorted(done.stdout.splitlines()),
            sorted(["run\tcontinue a text, or answer one question", "int8", "int4", "int2",
                    "--kv-type=int8", "--kv-type=int4", "--kv-type=int2", "model.gguf"]), f"fish; it said {done.stderr!r}")


def typed(argv, env, folder, steps):
    """Types into a program on a terminal: (keys, what must appear on the screen then)."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(argv[0], argv, env)
    screen, seen = "", []

    def found(pattern, mark):  # without what only moves the cursor or changes colours
        return bool(re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\0", "", screen[mark:])))

    try:
        for keys, wanted in steps:
            os.write(fd, keys.encode())
            mark, end = len(screen), time.monotonic() + 60
            while not found(wanted, mark) and time.monotonic() < end:
                if select.select([fd], [], [], 0.2)[0]:
                    screen += os.read(fd, 65536).decode(errors="replace")
            seen.append(found(wanted, mark))
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    return seen, screen


def test_zsh(t):
    steps = [("", "ready> "), ("bitnet vers\t", "version "), ("\x15bitnet run --kv-type int2\t", "int2 "),
             ("\x15bitnet serve model.g\t", r"model\.gguf "), ("\x15bitnet profile --by\t", "--by-layer "),
             ("\x15bitnet cache \t", "(?s)list.*verify|verify.*list"), ("\x15exit\n", "")]
    with Shell(t, "zsh") as zsh:
        (zsh.home / ".zshrc").write_text("PS1='ready> '\nautoload -Uz compinit && compinit -u\n"
                                         "source <(bitnet completion zsh)\n")
        seen, screen = typed([zsh.path, "-i"], zsh.env, zsh.home, steps)
    t.equal(seen, [True] * len(steps), f"zsh: {screen[-1500:]!r}")


def test_man_pages(t):
    man = find("man")
    for name in [None, *COMMANDS]:
        r = t.run("help", "--man", *([name] if name else []))
        title = f"BITNET\\-{name.upper()}" if name else "BITNET"
        t.check(r.text.startswith(f'.TH "{title}" "1"'), f"man page of {name}")
        page = t.write("page.1", r.out)
        done = subprocess.run([man, "--warnings", "-l", str(page)], capture_output=True, text=True,
                              env={**t.env, "MANPAGER": "cat", "MANWIDTH": "80"}, timeout=60)
        t.equal((done.returncode, done.stderr), (0, ""), f"man -l of {name}")
        if name:
            for option, _, _ in options(t.run("help", name).text):
                if option not in ("help", "help-all"):
                    t.check(f"--{option}" in re.sub(r".\x08", "", done.stdout), f"--{option} stands in the man page of {name}")
    t.usage("help", "--man", "nosuch", says="nosuch")
