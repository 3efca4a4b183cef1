# SPDX-License-Identifier: Apache-2.0
"""The tests run against an importable package (PYTHONPATH, or installed) and compare with the program: BITNET_PROGRAM."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import bitnet

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ.get("BITNET_PROGRAM", str(ROOT / "build" / "bitnet"))


def pytest_configure(config):
    config.addinivalue_line("markers", "torch: needs torch")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def lora(tmp_path_factory):
    """A PEFT folder with an adapter for the embedded model."""
    sys.path[1:1] = [str(ROOT / "tests" / "golden")]
    import lora

    shape = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 10,
             "vocab_size": 4096, "head_dim": 64}
    made = lora.Adapter(shape, ("q_proj", "v_proj", "down_proj"), rank=4, alpha=20, seed=1)
    return str(made.write_peft(tmp_path_factory.mktemp("lora") / "a"))


@pytest.fixture
def python():
    """Runs Python code in a process of its own, which must end by itself with exit status 0."""
    def call(code, *args, timeout=120, rc=0):
        done = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=timeout)
        assert done.returncode == rc, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
    return call
