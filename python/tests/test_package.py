# SPDX-License-Identifier: Apache-2.0
"""The extension itself: stable ABI, no stray symbols, declarations out of the header."""
import re
import subprocess
import sysconfig
import tomllib

from conftest import ROOT

import bitnet
import bitnet._ffi as _ffi

def symbols(*options):
    said = subprocess.run(["nm", "-D", *options, _ffi.__file__], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines()}


def declared(limit):
    """The names that Python's own headers declare to extensions that keep to the stable ABI of a version."""
    headers = subprocess.run(["gcc", "-E", "-P", f"-DPy_LIMITED_API={limit}", f"-I{sysconfig.get_path('include')}", "-x", "c", "-"],
                             input="#include <Python.h>\n", capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\b_?Py\w+", headers))


def test_stable_abi():
    """Of 3.9, the oldest Python that the package is for."""
    asked, stable = {s for s in symbols("--undefined-only") if re.match(r"_?Py", s)}, declared("0x03090000")
    assert len(asked) > 5 and asked <= stable, asked - stable
    assert "PyUnicode_AsUTF8AndSize" in declared("0x030a0000") - stable  # which came with 3.10
    assert _ffi.__file__.endswith(".abi3.so")


def test_only_the_module_is_exported():
    assert symbols("--defined-only") - {"_init", "_fini"} == {"PyInit__ffi"}


def test_what_it_imports(python):
    """numpy, and what cffi's extensions import when they are loaded: the module _cffi_backend of cffi, and no more of it."""
    made = set(python("""
import sys, numpy
before = set(sys.modules)
import bitnet, bitnet.lm_eval, bitnet.cpu.engine, bitnet_core, bitnet_vllm
print(*{name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names) - {"numpy"})
""").split())
    assert made == {"bitnet", "bitnet_core", "bitnet_vllm", "_cffi_backend"}


def test_what_it_says_it_needs():
    """The metadata that pip reads: those two, and the Python that the extension's symbols allow."""
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
    assert {re.match(r"\w+", d)[0] for d in project["dependencies"]} == {"numpy", "cffi"}
    assert project["requires-python"] == ">=3.9"


def test_every_function_of_the_header_is_there():
    header = ROOT / "include" / "bitnet" / "bitnet.h"
    names = set(re.findall(r"BITNET_API [\w *]*?\b(bitnet_\w+)\(", header.read_text()))
    assert len(names) > 60
    for name in names:
        assert hasattr(_ffi.lib, name), name
    assert _ffi.lib.BITNET_OFF == -1
    assert bitnet.__version__ == ".".join(
        str(getattr(_ffi.lib, f"BITNET_VERSION_{part}")) for part in ("MAJOR", "MINOR", "PATCH"))
