# SPDX-License-Identifier: Apache-2.0
"""The ways users install it, without a network."""
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT

STORY = "import bitnet; print(bitnet.Engine().generate('Once upon a time', max_new_tokens=3, temperature=0))"


def run(*command, **more):
    p = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, **more)
    assert p.returncode == 0, p.stdout[-4000:]
    return p.stdout


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An environment without the package that these tests run with."""
    import os
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "BITNET_BUILD")}


def environment(folder):
    run(sys.executable, "-m", "venv", "--system-site-packages", folder)
    return folder / "bin" / "python"


def test_pip_install(tmp_path, clean):
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", "--no-index", ROOT / "python", env=clean)
    assert run(python, "-c", STORY, cwd=tmp_path, env=clean) == ", there was\n"


def manylinux(extension, name):
    """The tag is that of the newest glibc that a symbol asks for (never older than such tags are), and no other library is needed."""
    asked = [int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", run("readelf", "--version-info", extension))]
    assert int(re.search(r"manylinux_2_(\d+)_", name)[1]) == max(17, *asked), sorted(set(asked))
    needed = set(re.findall(r"\(NEEDED\).*\[(\S+)\]", run("readelf", "--dynamic", extension)))
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, needed


def test_wheel(tmp_path, clean):
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, cwd=ROOT / "python", env=clean)
    wheel, = tmp_path.glob("*.whl")
    assert re.fullmatch(r"bitnet-[\d.]+-cp39-abi3-manylinux_2_\d+_\w+\.whl", wheel.name), wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    manylinux(zipfile.ZipFile(wheel).extract("bitnet/_ffi.abi3.so", tmp_path), wheel.name)
    assert [n for n in names if n.endswith(".so")] == ["bitnet/_ffi.abi3.so"]
    assert {"bitnet/py.typed", "bitnet/_ffi.pyi", "bitnet/cpu/engine.py", "bitnet_core/__init__.py", "bitnet_vllm/__init__.py"} <= set(names)
    said = zipfile.ZipFile(wheel).read(next(n for n in names if n.endswith("METADATA"))).decode()
    assert set(re.findall(r"^Requires-Dist: (\w+)", said, re.M)) == {"numpy", "cffi"} and "Requires-Python: >=3.9" in said
    python = environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", "--no-index", wheel, env=clean)
    assert run(python, "-c", STORY, cwd=tmp_path, env=clean) == ", there was\n"
