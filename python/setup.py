# SPDX-License-Identifier: Apache-2.0
"""The wheel: one for every Python from 3.9 on (stable ABI), tagged by the glibc that its symbols really need."""
import pathlib
import re
import subprocess
import sys

from setuptools import setup
from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def version():
    return re.search(r"^project\(.*?version: '([\d.]+)'", (HERE.parent / "meson.build").read_text(), re.M)[1]


def glibc_needs(extensions):
    """The latest glibc whose symbols are used, as (2, n)."""
    found = [(2, 17)]  # older tags have other names
    for path in extensions:
        said = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
        found += [(int(a), int(b)) for a, b in re.findall(r"\(?GLIBC_(\d+)\.(\d+)", said)]
    return max(found)


def foreign(extensions):
    """Shared libraries that a plain Linux system may lack."""
    said = [subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout for path in extensions]
    needed = {name for text in said for name in re.findall(r"NEEDED +(\S+)", text)}
    return {n for n in needed if not re.match(r"(libc|libm|libpthread|libdl|librt|ld-linux[\w-]*)\.so", n)}


class Wheel(bdist_wheel):
    def get_tag(self):
        python, abi, platform = super().get_tag()
        extensions = sorted(pathlib.Path(self.get_finalized_command("build").build_lib).rglob("*.so"))
        if platform.startswith("linux_") and extensions and not foreign(extensions):
            major, minor = glibc_needs(extensions)
            platform = platform.replace("linux_", f"manylinux_{major}_{minor}_", 1)
        return python, abi, platform


setup(version=version(), cffi_modules=["build_ffi.py:builder"], cmdclass={"bdist_wheel": Wheel},
      options={"bdist_wheel": {"py_limited_api": "cp39"}})
