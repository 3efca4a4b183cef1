# SPDX-License-Identifier: Apache-2.0
"""Makes the extension bitnet._ffi from the public header and libbitnet.a. cffi reads the declarations out of the header
itself, so there is no second copy of them; gcc compiles the same header, so a layout cannot differ.

The library comes from a meson build: BITNET_BUILD names one, else build-python/ is configured here, with everything in
one file: static libraries, no hwloc, the embedded model."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import cffi

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include" / "bitnet" / "bitnet.h"
OPTIONS = ["-Dstatic=true", "-Dminimal=true", "-Dtext=enabled"]

CALLBACKS = """
extern "Python" int bitnet_py_progress(void *user, const char *what, uint64_t done, uint64_t total);
"""


def declarations(header):
    """The header as cffi's parser takes it: no comments, no preprocessor but constants."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
    text = re.sub(r'#ifdef __cplusplus\n.*?#endif\n', "", text, flags=re.S)
    text = text.replace("BITNET_API ", "")
    constants = re.findall(r"^#define (BITNET_\w+) +[(\-\d]", text, flags=re.M)
    text = re.sub(r"^#.*\n", "", text.replace("\\\n", " "), flags=re.M)
    return "".join(f"#define {name} ...\n" for name in constants) + text


def run(*command):
    # pip's isolated environment hides the system's packages from Python programs, meson among them
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONHOME")}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\n{' '.join(map(str, command))} failed")


def meson_build():
    """The folder of a meson build with an up-to-date libbitnet.a."""
    if "BITNET_BUILD" in os.environ:
        return pathlib.Path(os.environ["BITNET_BUILD"]).resolve()
    for program in ("meson", "ninja"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is not installed; sh tools/install_deps.sh python installs what is missing")
    folder = ROOT / "build-python"
    if not (folder / "build.ninja").exists():
        run("meson", "setup", folder, ROOT, *OPTIONS)
    run("ninja", "-C", folder, "src/libbitnet.a")
    return folder


def link(folder):
    """What the extension is linked with: the library and, as meson found them, the libraries that it needs."""
    known = {d["name"]: d["link_args"] for d in json.loads((folder / "meson-info" / "intro-dependencies.json").read_text())}
    needed = [arg for name in ("libpcre2-8", "libutf8proc", "hwloc") for arg in known.get(name, [])]
    options = {o["name"]: o["value"] for o in json.loads((folder / "meson-info" / "intro-buildoptions.json").read_text())}
    sanitize = options.get("b_sanitize", "none")
    flags = [] if sanitize == "none" else [f"-fsanitize={sanitize}"]
    # none of their symbols is for others: another copy of the library in the process stays apart
    return [str(folder / "src" / "libbitnet.a"), *needed, "-lm", "-lpthread", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", *flags]


def builder():
    ffi = cffi.FFI()
    ffi.cdef(declarations(HEADER.read_text()))
    ffi.cdef(CALLBACKS)
    folder = meson_build()
    ffi.set_source("bitnet._ffi", "#include <bitnet/bitnet.h>", include_dirs=[str(HEADER.parent.parent)],
                   extra_link_args=link(folder), depends=[str(HEADER), str(folder / "src" / "libbitnet.a")],
                   py_limited_api=True)
    return ffi
