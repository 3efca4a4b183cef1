# SPDX-License-Identifier: Apache-2.0
"""Model files: what is really in them, and new ones made of them. All of it is the library's."""
from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from . import info as _info
from ._ffi import ffi, lib
from ._native import PathLike, Progress, Watch, check, fill, struct, text
from .model import EMBEDDED, sized_bytes
from .names import find_model
from .request import Keep

META_BYTES = 256  # of most values of metadata


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a file. stats: what its weights really are, if they were counted."""

    info: _info.TensorInfo
    stats: Optional[_info.TensorStats]

    @property
    def shape(self) -> Tuple[int, ...]:
        """As numpy writes it: rows first."""
        return tuple(reversed(self.info.dims[:self.info.n_dims]))


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """What inspect() has found. model is None if the file cannot be run here; problem says why."""

    path: str
    format: str
    bytes: int
    metadata: Dict[str, Any]
    model: Optional[_info.FileModel]
    problem: str
    tensors: List[Tensor]

    def kinds(self) -> Dict[str, int]:
        """How many matrices hold what: {"ternary": 70}. Empty if the weights were not read."""
        found: Dict[str, int] = {}
        for t in self.tensors:
            if t.info.is_matrix and t.stats is not None:
                found[t.stats.dtype] = found.get(t.stats.dtype, 0) + 1
        return found

    def _repr_html_(self) -> str:
        said = ", ".join(f"{n} × {kind}" for kind, n in self.kinds().items())
        facts = [("format", self.format), ("bytes", f"{self.bytes:,}"), ("matrices", said or "not read"), ("problem", self.problem)]
        rows = [[t.info.name, t.info.type, "×".join(map(str, t.shape)), f"{t.info.bytes:,}", t.stats.values if t.stats else "",
                 f"{100 * t.stats.zero_share:.1f} %" if t.stats else ""] for t in self.tensors]
        return (_info.table(self.path, [(k, v) for k, v in facts if v])
                + _info.grid("Tensors", ["name", "type", "shape", "bytes", "values", "zeros"], rows))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    keep, err, out = Keep(), ffi.new("bitnet_error *"), ffi.new("bitnet_file **")
    check(lib.bitnet_file_open(out, ffi.NULL if path == EMBEDDED else keep.path(path), err), err)
    try:
        yield out[0]
    finally:
        lib.bitnet_file_close(out[0])


def inspect(model: PathLike = EMBEDDED, *, weights: bool = True) -> FileInfo:
    """What a model file says about itself, and what is really in it: weights are read and counted, not believed.

    >>> found = inspect("embedded")
    >>> found.format, found.kinds(), found.metadata["general.architecture"]
    ('GGUF v3', {'ternary': 70}, 'bitnet-b1.58')
    """
    path = find_model(model)
    with _opened(path) as f:
        c, err = struct("bitnet_file_model"), ffi.new("bitnet_error *")
        known = lib.bitnet_file_get_model(f, c, err) == lib.BITNET_OK
        return FileInfo(path, text(lib.bitnet_file_format(f)), int(lib.bitnet_file_bytes(f)),
                        dict(_meta(f, i) for i in range(lib.bitnet_file_n_meta(f))), fill(_info.FileModel, c) if known else None,
                        "" if known else text(err.text), [_tensor(f, i, weights) for i in range(lib.bitnet_file_n_tensors(f))])


def _meta(f: Any, i: int) -> Tuple[str, Any]:
    key, kind = ffi.new("const char **"), ffi.new("const char **")
    value = sized_bytes(META_BYTES, lambda out, n, _: lib.bitnet_file_meta(f, i, key, kind, out, n)).decode("utf-8", "replace")
    try:
        return text(key[0]), json.loads(value)
    except ValueError:  # a long array, cut
        return text(key[0]), value


def _tensor(f: Any, i: int, weights: bool) -> Tensor:
    c, err = struct("bitnet_tensor_info"), ffi.new("bitnet_error *")
    check(lib.bitnet_file_tensor(f, i, c), err)
    info = fill(_info.TensorInfo, c)
    if not weights or info.is_packed or not (info.is_matrix or info.is_ternary_type):
        return Tensor(info, None)
    stats = struct("bitnet_tensor_stats")
    check(lib.bitnet_file_tensor_stats(f, i, stats, err), err)
    return Tensor(info, fill(_info.TensorStats, stats))


def source(model: PathLike, keep: Keep) -> Any:
    """A model's path for the library; NULL is the one in the package."""
    path = find_model(model)
    return ffi.NULL if path == EMBEDDED else keep.path(path)


def convert(model: PathLike, target: PathLike, *, type: Optional[str] = None, head_type: Optional[str] = None,
            i2s_layout: Optional[str] = None, name: Optional[str] = None, overwrite: bool = False, allow_scale_rounding: bool = False,
            packed: bool = False, threads: int = 0, layout: Optional[str] = None, backend: Optional[str] = None,
            plan: Optional[PathLike] = None, merge_lora: Optional[Mapping[PathLike, float]] = None,
            progress: Optional[Progress] = None) -> None:
    """A GGUF of a model in any format. It appears whole or not at all; the options are those of bitnet_convert_options.
    merge_lora: adapters and their scales that go into the weights, where these are floats."""
    keep, watch, err = Keep(), Watch(progress), ffi.new("bitnet_error *")
    words = {"type": type, "head_type": head_type, "i2s_layout": i2s_layout, "layout": layout, "backend": backend,
             "plan": None if plan is None else os.fspath(plan)}
    options = struct("bitnet_convert_options", overwrite=int(overwrite), allow_scale_rounding=int(allow_scale_rounding),
                     packed=int(packed), threads=threads, progress=lib.bitnet_py_progress, progress_user=watch.handle,
                     **{k: keep.string(v, k) for k, v in words.items()})
    options.name = keep.string(name, "a name")
    if merge_lora:
        options.adapters = keep.new("const char *[]", [keep.path(path) for path in merge_lora])
        options.adapter_scales = keep.new("float[]", list(merge_lora.values()))
        options.n_adapters = len(merge_lora)
    watch.check(lib.bitnet_convert(source(model, keep), keep.path(target), options, err), err)


def synth_shapes() -> Dict[str, str]:
    """The shapes of models that synth() knows, and what they are."""
    found: Dict[str, str] = {}
    said = ffi.new("const char **")
    while True:
        shape = lib.bitnet_synth_shape(len(found), said)
        if shape == ffi.NULL:
            return found
        found[text(shape)] = text(said[0])


def synth(shape: str, target: PathLike, *, type: Optional[str] = None, head_type: Optional[str] = None, vocab: Optional[PathLike] = None,
          ffn_density: Optional[str] = None, seed: int = 0, layers: int = 0, mtp: bool = False, overwrite: bool = False,
          progress: Optional[Progress] = None) -> None:
    """A model of random weights with the dimensions of a real one; vocab: a GGUF or tokenizer.json to take the tokenizer
    from."""
    keep, watch, err = Keep(), Watch(progress), ffi.new("bitnet_error *")
    words = {"type": type, "head_type": head_type, "ffn_density": ffn_density}
    options = struct("bitnet_synth_options", seed=seed, n_layer=layers, mtp=int(mtp), overwrite=int(overwrite),
                     progress=lib.bitnet_py_progress, progress_user=watch.handle, **{k: keep.string(v, k) for k, v in words.items()})
    if vocab is not None:
        options.vocab_path = keep.path(vocab)
    watch.check(lib.bitnet_synth(keep.string(shape, "a shape"), keep.path(target), options, err), err)
