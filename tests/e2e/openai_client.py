#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The openai package of npm against a server of our own: tests/e2e/clients. The package, in the version and with the
hash of package-lock.json, is installed into a build folder and stays there.

usage: openai_client.py BITNET FOLDER      output is TAP
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import Server
from tap import Missing, Tap, comment, find

INSTALL_S, TEST_S = 240, 300
KEY = "sk-test-of-clients"
SOURCE = pathlib.Path(__file__).resolve().parent / "clients"


def install(folder, npm):
    """What is installed is kept as long as the lock file is the same."""
    folder.mkdir(parents=True, exist_ok=True)
    lock, stamp = (SOURCE / "package-lock.json").read_text(), folder / "installed.json"
    if stamp.exists() and stamp.read_text() == lock:
        return
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, folder)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S, stdout=sys.stderr)
    except (subprocess.SubprocessError, OSError) as e:
        raise Missing(f"the openai package cannot be installed: {e}") from e
    stamp.write_text(lock)


def openai_package(program, folder):
    node, npm = find("node"), find("npm")
    install(folder, npm)
    shutil.copy(SOURCE / "test.mjs", folder)
    with tempfile.TemporaryDirectory() as scratch:
        keys = pathlib.Path(scratch, "keys")
        keys.write_text(KEY + "\n")
        keys.chmod(0o600)
        with Server(program, "--api-key-file", keys, key=KEY) as server:
            env = {**os.environ, "BITNET_URL": server.url, "BITNET_KEY": KEY}
            done = subprocess.run([node, "--test", "test.mjs"], cwd=folder, env=env, timeout=TEST_S, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            status = server.stop()
    comment(done.stdout)
    assert done.returncode == 0, f"node ended with {done.returncode}"
    assert status == 0, f"the server ended with {status}: {''.join(server.errors[-20:])}"


tap = Tap(1)
tap.case("the openai package", openai_package, sys.argv[1], pathlib.Path(sys.argv[2]))
sys.exit(tap.end())
