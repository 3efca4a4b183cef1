# SPDX-License-Identifier: Apache-2.0
"""The extension itself: stable ABI, no stray symbols, declarations out of the header."""
import pathlib
import re
import subprocess

import bitnet
import bitnet._ffi as _ffi

# What cffi's generated code asks of Python. Each has been in the stable ABI since it began with 3.2 (PEP 384).
STABLE = {
    "PyArg_UnpackTuple", "PyErr_Occurred", "PyEval_RestoreThread", "PyEval_SaveThread", "PyFloat_AsDouble", "PyFloat_FromDouble",
    "PyImport_ImportModule", "PyLong_FromLong", "PyLong_FromUnsignedLong", "PyLong_FromVoidPtr", "PyObject_CallMethod",
    "PyObject_Free", "PyObject_Malloc", "_Py_Dealloc", "_Py_NoneStruct",
}


def symbols(*options):
    said = subprocess.run(["nm", "-D", *options, _ffi.__file__], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines()}


def test_stable_abi():
    asked = {s for s in symbols("--undefined-only") if re.match(r"_?Py", s)}
    assert asked and asked <= STABLE, asked - STABLE
    assert _ffi.__file__.endswith(".abi3.so")


def test_only_the_module_is_exported():
    assert symbols("--defined-only") - {"_init", "_fini"} == {"PyInit__ffi"}


def test_every_function_of_the_header_is_there():
    header = pathlib.Path(__file__).resolve().parents[2] / "include" / "bitnet" / "bitnet.h"
    names = set(re.findall(r"BITNET_API [\w *]*?\b(bitnet_\w+)\(", header.read_text()))
    assert len(names) > 60
    for name in names:
        assert hasattr(_ffi.lib, name), name
    assert _ffi.lib.BITNET_OFF == -1
    assert bitnet.__version__ == ".".join(
        str(getattr(_ffi.lib, f"BITNET_VERSION_{part}")) for part in ("MAJOR", "MINOR", "PATCH"))
