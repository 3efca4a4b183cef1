# SPDX-License-Identifier: Apache-2.0
"""Where things are: a model by its path, "embedded", or a name as on Hugging Face; and the program `bitnet`."""
from __future__ import annotations

import os
import pathlib
import shutil
from typing import Iterator, Optional

from ._native import Error, PathLike
from .model import EMBEDDED

MODELS = "BITNET_MODELS"  # a folder of models
PROGRAM = "BITNET_PROGRAM"  # the program's path, if it is not in PATH


def find_model(name: PathLike) -> str:
    """The path of a model. Looked for: the path itself; the name in the folder $BITNET_MODELS, as file, folder, or with
    .gguf behind it; what Hugging Face's tools have downloaded. Nothing is downloaded.

    >>> find_model("embedded")
    'embedded'
    """
    name = os.fsdecode(name)
    if name == EMBEDDED or os.path.exists(name):
        return name
    for place in _places(name):
        if place.exists():
            return str(place)
    raise Error(f"there is no model '{name}': neither a path nor in ${MODELS} nor in Hugging Face's cache; "
                "'embedded' is the one in the package", "io")


def _places(name: str) -> Iterator[pathlib.Path]:
    if os.environ.get(MODELS):
        for found in (name, name.rsplit("/", 1)[-1]):
            yield pathlib.Path(os.environ[MODELS], found)
            yield pathlib.Path(os.environ[MODELS], found + ".gguf")
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    downloaded = pathlib.Path(home, "hub", "models--" + name.replace("/", "--"), "snapshots")
    if "/" in name and downloaded.is_dir():
        yield from sorted(downloaded.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)


def find_program(program: Optional[PathLike] = None) -> str:
    """The program `bitnet`: this path, or $BITNET_PROGRAM, or what PATH has."""
    found = os.fspath(program) if program else os.environ.get(PROGRAM) or "bitnet"
    path = shutil.which(found)
    if path is None:
        raise Error(f"the program '{found}' was not found: it is no part of the package; install it, or name it in ${PROGRAM}", "io")
    return path
