#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Client packages of npm against a server of our own: each NAME.test.mjs in tests/e2e/clients is one. The packages, in the
versions and with the hashes of package-lock.json, are installed into a build folder and stay there.

usage: openai_client.py BITNET FOLDER [NAME...]      output is TAP
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import npm
from serving import Server
from tap import Tap, comment

TEST_S = 300
KEY = "sk-test-of-clients"
SOURCE = pathlib.Path(__file__).resolve().parent / "clients"


def package(program, folder, test):
    node = npm.install(SOURCE, folder)
    with tempfile.TemporaryDirectory() as scratch:
        keys = pathlib.Path(scratch, "keys")
        keys.write_text(KEY + "\n")
        keys.chmod(0o600)
        with Server(program, "--api-key-file", keys, key=KEY) as server:
            env = {**os.environ, "BITNET_URL": server.url, "BITNET_KEY": KEY,
                   "BITNET_DATA": str(SOURCE.parents[1] / "data")}
            done = subprocess.run([node, "--test", test.name], cwd=folder, env=env, timeout=TEST_S, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            status = server.stop()
    comment(done.stdout)
    assert done.returncode == 0, f"node ended with {done.returncode}"
    assert status == 0, f"the server ended with {status}: {''.join(server.errors[-20:])}"


names = sys.argv[3:] or sorted(p.name.split(".")[0] for p in SOURCE.glob("*.test.mjs"))
tap = Tap(len(names))
for name in names:
    tap.case(f"the {name} package", package, sys.argv[1], pathlib.Path(sys.argv[2]), SOURCE / f"{name}.test.mjs")
sys.exit(tap.end())
