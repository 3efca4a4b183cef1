# SPDX-License-Identifier: Apache-2.0
"""A program in a pane of tmux: what a person sees of it, and keys for it."""
import os
import re
import shutil
import subprocess
import time

from tap import Missing

LIMIT_S = 120


class Pane:
    """Its server ends with it; nothing of the user's own tmux is touched."""
    count = 0

    def __init__(self, args, cwd, env, width=80, height=24):
        if not shutil.which("tmux"):
            raise Missing("tmux (Debian: tmux)")
        Pane.count += 1
        self.name = f"bitnet-{os.getpid()}-{Pane.count}"
        self.socket = os.path.join(cwd, ".tmux")
        clean = {k: v for k, v in env.items() if k not in ("TMUX", "TMUX_PANE")}
        conf = "/dev/null"
        pairs = [f"{k}={v}" for k, v in clean.items() if k != "TERM"]
        self.env = {**clean, "TMUX_TMPDIR": cwd, "TERM": "xterm"}
        # the pane stays after the program's end, so that its last words can be read
        self.tmux("-f", conf, "new-session", "-d", "-x", str(width), "-y", str(height), "-c", cwd,
                  "env", *pairs, f"TERM={env.get('TERM', 'screen')}", *args, ";", "set-option", "-g",
                  "remain-on-exit", "on", ";", "set-option", "-g", "history-limit", "5000")

    def tmux(self, *args):
        done = subprocess.run(["tmux", "-u", "-S", self.socket, *args], env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S,
                              check=False)
        if done.returncode:
            raise RuntimeError(f"tmux {args}: {done.stderr.decode()}")
        return done.stdout.decode()

    def keys(self, *keys):
        """Names as tmux knows them: 'Enter', 'C-c', 'Up'."""
        self.tmux("send-keys", *keys)

    def type(self, text, enter=True):
        self.tmux("send-keys", "-l", "--", text)
        if enter:
            self.keys("Enter")

    def paste(self, text):
        """As a terminal does it when the program has asked for brackets."""
        self.tmux("set-buffer", "--", text)
        self.tmux("paste-buffer", "-p")

    def screen(self, styles=False):
        """All lines so far, without empty ones at the end."""
        out = self.tmux("capture-pane", "-p", "-S", "-", *(["-e"] if styles else []))
        return out.rstrip("\n")

    def until(self, pattern, seconds=LIMIT_S):
        end = time.monotonic() + seconds
        while True:
            seen = self.screen()
            if re.search(pattern, seen, re.S | re.M):
                return seen
            if time.monotonic() > end:
                raise AssertionError(f"{pattern!r} did not appear in:\n{seen}")
            time.sleep(0.05)

    def ended(self, seconds=LIMIT_S):
        """Waits for the program's end. What tmux writes into the pane then is sometimes lost."""
        end = time.monotonic() + seconds
        while self.tmux("list-panes", "-F", "#{pane_dead}").strip() != "1":
            if time.monotonic() > end:
                raise AssertionError(f"the program goes on:\n{self.screen()}")
            time.sleep(0.05)

    def prompt(self, count):
        """Waits until the program asks for the n-th time."""
        return self.until(r"(?:^> .*?){%d}\Z" % count if count > 1 else r"^>\s*\Z")

    def close(self):
        try:
            self.tmux("kill-server")
        except RuntimeError:
            pass
        if os.path.exists(self.socket):
            os.unlink(self.socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
