#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The openai package of npm against a server of our own: tests/e2e/clients. The package, in the version and with the
hash of package-lock.json, is installed into a build folder and stays there. Without node, npm or a way to the package:
exit status 77.

usage: openai_client.py BITNET FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from serving import Server

INSTALL_S, TEST_S = 240, 300
KEY = "sk-test-of-clients"
SKIP = 77

program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
source = pathlib.Path(__file__).parent / "clients"
tools = [shutil.which(name) for name in ("node", "npm")]
if not all(tools):
    print("skipped: node and npm are needed (Debian: nodejs, npm)")
    sys.exit(SKIP)
node, npm = tools


def install():
    """What is installed is kept as long as the lock file is the same."""
    lock, stamp = (source / "package-lock.json").read_text(), folder / "installed.json"
    if stamp.exists() and stamp.read_text() == lock:
        return
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, folder)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S)
    stamp.write_text(lock)


folder.mkdir(parents=True, exist_ok=True)
try:
    install()
except (subprocess.SubprocessError, OSError) as e:
    print(f"skipped: the openai package cannot be installed: {e}")
    sys.exit(SKIP)
shutil.copy(source / "test.mjs", folder)
with tempfile.TemporaryDirectory() as scratch:
    keys = pathlib.Path(scratch, "keys")
    keys.write_text(KEY + "\n")
    keys.chmod(0o600)
    with Server(program, "--api-key-file", keys, key=KEY) as server:
        env = {**os.environ, "BITNET_URL": server.url, "BITNET_KEY": KEY}
        done = subprocess.run([node, "--test", "test.mjs"], cwd=folder, env=env, timeout=TEST_S)
        status = server.stop()
if status != 0:
    print(f"the server ended with {status}: {''.join(server.errors[-20:])}")
sys.exit(done.returncode or status)
