#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chat page and the dashboard of `bitnet serve`, and what `bitnet profile` writes, in Chromium (browser/*.mjs).

usage: browser.py BITNET FOLDER [--only TEXT] [--shots DIR] [--profile ARGS] [--url URL]      output is TAP

FOLDER is for the packages that the tests need and for a profile; it may be there already. --shots takes the pictures of the documentation
instead. --profile: arguments of the profile. --url: a server that runs already."""
import argparse
import contextlib
import os
import pathlib
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import npm
from serving import Server
from tap import Missing, Tap, find

HERE = pathlib.Path(__file__).resolve().parent / "browser"
MODEL = HERE.parents[2] / "models" / "stories-31m.gguf"
CHROMIUM = ["chromium", "chromium-browser", "google-chrome"]


def profile(bitnet, folder, *more):
    """A run with all its files; returns their folder."""
    out = folder / "profile"
    out.mkdir(exist_ok=True)
    files = ["--html", out / "profile.html", "--json-report", out / "profile.json", "--trace", out / "trace.json"]
    subprocess.run([bitnet, "profile", *more, *files], check=True, capture_output=True)
    return out.resolve()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bitnet")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--only")
    p.add_argument("--shots")
    p.add_argument("--profile", default="--prompt-tokens 32 -n 8")
    p.add_argument("--url")
    a = p.parse_args()
    try:
        chromium = find(*CHROMIUM)
        node = npm.install(HERE, a.folder)
    except Missing as e:
        tap = Tap(1)
        tap.skip("pages", e)
        return tap.end()
    files = profile(a.bitnet, a.folder, *a.profile.split())
    more = ["--only", a.only] if a.only else []
    if a.shots:
        os.makedirs(a.shots, exist_ok=True)
        more += ["--shots", str(pathlib.Path(a.shots).resolve())]
    with contextlib.ExitStack() as stack:
        url = a.url or stack.enter_context(Server(a.bitnet)).url
        several = stack.enter_context(Server(a.bitnet, f"one={MODEL}", f"two={MODEL}", "--no-warm-up")).url
        sys.stdout.flush()
        words = [node, "test.mjs", url, chromium, str(files), "--several", several, *more]
        return subprocess.run(words, cwd=a.folder).returncode


if __name__ == "__main__":
    sys.exit(main())
