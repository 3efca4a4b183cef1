#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package, built with the library of a meson build: mypy --strict, the examples in docstrings and pages, and
the tests of python/tests, a point for each.

torch: what needs torch itself, which is large. hostile: what programs should not do, with 10,000 models opened and closed.

In a build with the address sanitizer (gcc's) Python runs with it, too; what pip builds is left out there.

usage: python.py BITNET BUILD quick|slow|torch|hostile"""
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
from tap import Tap, need_module

PYTHON = HERE.parent.parent / "python"
PACKAGES = sorted(p.parent.name for p in PYTHON.glob("*/__init__.py"))
SLOW = [f"test_{name}.py" for name in (
    "bits", "cost", "engine", "examples", "forge", "hostile", "install", "lm_eval", "report", "serve", "snippets", "transformers", "vllm")]
TORCH = "test_torch.py"
program, build, tier = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
for module in ("cffi", "numpy", "setuptools", "wheel", "pytest", "mypy", "build", "pydantic", *(["torch"] if tier == "torch" else [])):
    need_module(module)
tap = Tap()


def sanitizer():
    """What a sanitized extension needs of the Python that loads it."""
    options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
    kinds = next(o["value"] for o in options if o["name"] == "b_sanitize").split(",")
    wanted = [f"lib{short}.so" for short, kind in (("asan", "address"), ("ubsan", "undefined")) if kind in kinds]
    found = [subprocess.run(["gcc", f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True).stdout.strip() for name in wanted]
    return {"LD_PRELOAD": " ".join(found), "PYTHONMALLOC": "malloc",  # each object apart; freed memory is not kept, which would look like a leak
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:quarantine_size_mb=1", "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1"
            } if found else {}


sanitized = sanitizer()


def run(*command, env=(), cwd=PYTHON):
    p = subprocess.run(list(map(str, command)), cwd=cwd, env={**os.environ, **dict(env)}, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0, p.stdout[-6000:]
    return p.stdout


def make():
    with open(build / "python.lock", "w") as lock:  # quick and slow may run at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(sys.executable, "setup.py", "-q", "build", "--build-base", build / "python-objects", "--build-lib", build / "python",
            env={"BITNET_BUILD": str(build)})


def pytest(*args, env=()):
    """A point for each test; the command must run from elsewhere, since python/ holds packages without the extension."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        p = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *map(str, args)],
                           cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           env={**os.environ, "PYTHONPATH": str(build / "python"), "BITNET_PROGRAM": str(program), **sanitized, **dict(env)})
        cases = list(xml.parse(report).iter("testcase")) if report.exists() else []
    for case in cases:
        wrong = [e for e in case if e.tag in ("failure", "error", "skipped")]
        tap.point(f"{case.get('classname')} {case.get('name')}", not wrong, "".join(e.text or e.get("message", "") for e in wrong))
    tap.point(f"pytest ran {len(cases)} tests", cases and p.returncode == 0, p.stdout[-3000:])


tap.case("builds", make)
tests = sorted((PYTHON / "tests").glob("test_*.py"))
if tier == "quick":
    tap.case("mypy --strict", run, sys.executable, "-m", "mypy", "--cache-dir", build / "mypy",
             *(word for name in PACKAGES for word in ("-p", name)))
    pytest("--doctest-modules", "--pyargs", *PACKAGES)
    pytest(*(t for t in tests if t.name not in SLOW and t.name != TORCH))
elif tier == "slow":
    pytest("-m", "not torch", *(t for t in tests if t.name in SLOW and not (sanitized and t.name == "test_install.py")))
elif tier == "hostile":
    pytest(PYTHON / "tests" / "test_hostile.py", env={"BITNET_CYCLES": "10000"})
else:
    pytest("-m", "torch", PYTHON / "tests" / "test_snippets.py", PYTHON / "tests" / TORCH)
sys.exit(tap.end())
