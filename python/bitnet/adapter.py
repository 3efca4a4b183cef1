# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA) beside a model's weights."""
from __future__ import annotations

import dataclasses
import os
from typing import Any

from ._ffi import ffi, lib
from ._native import Handle, PathLike, check, fill, process, struct
from .info import _Html
from .model import Model
from .request import Keep


@dataclasses.dataclass(frozen=True)
class AdapterInfo(_Html):
    path: str
    format: str
    rank_max: int
    n_matrices: int
    n_params: int
    bytes: int


class Adapter:
    """A PEFT folder or a GGUF adapter, opened over a model.

        adapter = bitnet.Adapter(model, "my-lora")
        engine.generate("Once upon a time", adapters=[adapter])           # or [(adapter, 0.5)]

    Requests keep it until they end, so it may be closed at any time.
    """

    def __init__(self, model: Model, path: PathLike) -> None:
        out, err = ffi.new("bitnet_adapter **"), ffi.new("bitnet_error *")
        self.path = os.fsdecode(path)
        m = model._handle.enter()  # left when the adapter is closed: the model outlives it
        try:
            check(lib.bitnet_adapter_open(out, m, Keep().path(self.path), err), err)
        except BaseException:
            model._handle.leave()
            raise

        def close(pointer: Any) -> None:
            lib.bitnet_adapter_close(pointer)
            model._handle.leave()

        self._handle = Handle(out[0], close, "adapter")
        process.open.add(self)

    def close(self) -> None:
        """No new requests can use it. A second time does nothing."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.is_closed

    @property
    def info(self) -> AdapterInfo:
        c = struct("bitnet_adapter_info")
        pointer = self._handle.enter()
        try:
            check(lib.bitnet_adapter_get_info(pointer, c), ffi.NULL)
            return fill(AdapterInfo, c)
        finally:
            self._handle.leave()

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.close()

    def __repr__(self) -> str:
        return f"<bitnet.Adapter {self.path!r}{' closed' if self.closed else ''}>"
