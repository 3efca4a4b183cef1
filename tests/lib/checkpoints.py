# SPDX-License-Identifier: Apache-2.0
"""The tiny checkpoints of tests/data/golden."""
import lzma
import pathlib
import shutil

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "data" / "golden"


def unpacked(folder, scratch):
    """The checkpoint's folder; one with a compressed file in it, as a copy in the folder `scratch`, made once."""
    folder, copy = pathlib.Path(folder), pathlib.Path(scratch) / pathlib.Path(folder).name
    if copy.is_dir() or not any(folder.glob("*.xz")):
        return str(copy if copy.is_dir() else folder)
    copy.mkdir()
    for path in folder.iterdir():
        opener = lzma.open if path.suffix == ".xz" else open
        with opener(path, "rb") as f, open(copy / path.name.removesuffix(".xz"), "wb") as to:
            shutil.copyfileobj(f, to)
    return str(copy)
