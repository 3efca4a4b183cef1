# SPDX-License-Identifier: Apache-2.0
"""Packages of npm for a test: those of the package-lock.json in its folder, with the versions and hashes written there,
installed into a build folder, where they stay as long as the lock file is the same."""
import fcntl
import pathlib
import shutil
import subprocess

from tap import Missing, find

INSTALL_S = 240


def install(source, folder):
    """Tests and packages side by side: modules are looked for beside the file that names them. Returns node."""
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    node, npm = find("node"), find("npm")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:  # several tests may have the same folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_here(source, folder, npm)
    return node


def install_here(source, folder, npm):
    for f in source.iterdir():
        if f.is_file():
            shutil.copy(f, folder)
    lock, stamp = (source / "package-lock.json").read_text(), folder / "installed.json"
    if stamp.exists() and stamp.read_text() == lock:
        return
    try:
        r = subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, timeout=INSTALL_S, text=True,
                           capture_output=True)
    except (subprocess.SubprocessError, OSError) as e:
        raise Missing(f"npm could not install the packages: {e}") from e
    if r.returncode != 0:
        raise Missing("npm could not install the packages: " + (r.stderr.strip().splitlines() or ["it says nothing"])[-1])
    stamp.write_text(lock)
