# SPDX-License-Identifier: Apache-2.0
"""Batches of ids as users have them: lists, numpy arrays, torch tensors. torch is used where it was given or asked
for, never required."""
from __future__ import annotations

import importlib
import sys
from typing import Any, List

import numpy as np
import numpy.typing as npt

from ._native import Error
from .model import Tokens, as_tokens


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def to_numpy(x: Any) -> Any:
    return x.detach().cpu().numpy() if is_torch(x) else x


def like(x: Any, array: npt.NDArray[Any]) -> Any:
    """The array as what x is: a tensor that shares its memory, or itself."""
    return sys.modules["torch"].from_numpy(array) if is_torch(x) else array


def tensor(array: npt.NDArray[Any], kind: str) -> Any:
    """kind: as return_tensors says it"""
    if kind == "np":
        return array
    if kind == "pt":
        try:
            return importlib.import_module("torch").from_numpy(array)
        except ImportError:
            raise Error("return_tensors='pt' needs torch, which is not installed", "unsupported") from None
    raise Error(f"return_tensors is 'np' or 'pt', not '{kind}'", "arg")


def rows(input_ids: Any, attention_mask: Any = None) -> List[Tokens]:
    """The prompts of a batch, without the places that the mask hides."""
    ids, mask = to_numpy(input_ids), to_numpy(attention_mask)
    if isinstance(ids, (str, bytes)):
        raise Error("input_ids are ids of tokens, not a text: tokenize it first", "arg")
    try:
        n = len(ids)
    except TypeError:  # None, a number, an array of no dimensions
        n = 0
    if n == 0:
        raise Error("input_ids are ids of tokens for one prompt or more; there are none", "arg")
    whole: Any = ids if isinstance(ids, np.ndarray) else list(ids)
    if np.ndim(whole[0]) == 0:  # a single prompt
        whole, mask = [whole], None if mask is None else [mask] if np.ndim(mask) == 1 else mask
    found = [as_tokens(to_numpy(row)) for row in whole]
    if mask is None:
        return found
    if len(mask) != len(found):
        raise Error(f"the attention mask has {len(mask)} rows, the batch {len(found)}", "arg")
    return [_shown(row, np.asarray(to_numpy(m))) for row, m in zip(found, mask)]


def _shown(row: Tokens, mask: npt.NDArray[Any]) -> Tokens:
    if mask.shape != row.shape:
        raise Error(f"a row of the attention mask has shape {mask.shape}, its ids {row.shape}", "arg")
    shown: Tokens = np.ascontiguousarray(row[mask.astype(bool)])
    return shown
