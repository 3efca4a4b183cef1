# SPDX-License-Identifier: Apache-2.0
"""The tests run against an importable package (PYTHONPATH, or installed) and compare with the program: BITNET_PROGRAM."""
import os
import pathlib
import subprocess
import sys

import pytest

import bitnet

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("BITNET_PROGRAM", str(ROOT / "build" / "bitnet"))


def pytest_configure(config):
    config.addinivalue_line("markers", "torch: needs torch")


@pytest.fixture(scope="session")
def model():
    with bitnet.Model() as m:
        yield m


@pytest.fixture(scope="session")
def engine(model):
    with bitnet.Engine(model, max_seqs=8) as e:
        yield e


@pytest.fixture(scope="session")
def program():
    """Calls the program; its output as bytes."""
    def call(*args, stdin=b""):
        done = subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, timeout=600)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout
    return call


@pytest.fixture
def python():
    """Runs Python code in a process of its own, which must end by itself with exit status 0."""
    def call(code, *args, timeout=120, rc=0):
        done = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=timeout)
        assert done.returncode == rc, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
    return call
