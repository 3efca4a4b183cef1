# SPDX-License-Identifier: Apache-2.0
"""Small functions that guides to 1-bit models name."""
from __future__ import annotations

import re
from typing import Any, Sequence

import numpy as np
import numpy.typing as npt

from ._native import Error
from .arrays import like, to_numpy

Floats = npt.NDArray[np.float32]

_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")


def bitnet_safe_preprocess(text: str) -> str:
    """Drops what is invisible and confuses small tokenizers (zero-width joiners, soft hyphens, variation selectors) and
    makes one space of all white space.

    >>> bitnet_safe_preprocess("a\\u200db\\u00ad  c\\n")
    'ab c'
    """
    return " ".join(_INVISIBLE.sub("", text).split())


def adaptive_topk(logits: Any, k: int = 50, p: float = 0.92) -> Any:
    """Logits with all but the likeliest tokens at -inf: the smaller of the k best and of the fewest whose probabilities
    reach p. The last dimension is the vocabulary.

    >>> adaptive_topk(np.array([3.0, 1.0, 2.9, -5.0]), k=3, p=0.8).tolist()
    [3.0, -inf, 2.9, -inf]
    """
    x = np.asarray(to_numpy(logits))
    if x.dtype.kind != "f" or x.ndim == 0 or x.shape[-1] == 0:
        raise Error("logits are an array of floats, the vocabulary in its last dimension", "arg")
    if k < 1 or not 0 < p <= 1:
        raise Error("k is at least 1, and p between 0 and 1", "arg")
    order = np.argsort(-x, axis=-1, kind="stable")
    best = np.take_along_axis(x, order, -1).astype(np.float64)
    weights = np.exp(best - best[..., :1])
    shares = weights / weights.sum(-1, keepdims=True)
    before = np.cumsum(shares, -1) - shares  # probability of all that are likelier
    kept = (before < p) & (np.arange(x.shape[-1]) < k)
    out = np.full_like(x, -np.inf)
    np.put_along_axis(out, order, np.where(kept, best, -np.inf).astype(x.dtype), -1)
    return like(logits, out)


def bitlinear_fast_forward(x: Any, weight_packed: Any, in_features: int, out_features: int) -> Any:
    """A linear layer as BitNet b1.58 has it: the input rounded to int8 by its largest value, row by row, times ternary
    weights packed as on Hugging Face: uint8 [out_features / 4][in_features], two bits a weight, the first quarter of the
    rows in the lowest bits. The weights' scale is left to the caller.

    >>> packed = np.array([[0b10_00_01_10, 0b01_01_10_00]], np.uint8)  # rows (1, -1), (0, 1), (-1, 0), (1, 0)
    >>> bitlinear_fast_forward(np.array([[127.0, 2.0]], np.float32), packed, 2, 4).tolist()
    [[125.0, 2.0, -127.0, 127.0]]
    """
    values, packed = np.asarray(to_numpy(x), np.float32), np.asarray(to_numpy(weight_packed))
    if packed.dtype != np.uint8 or packed.shape != (-(-out_features // 4), in_features):
        raise Error(f"packed weights are uint8 [{-(-out_features // 4)}][{in_features}], not {packed.dtype} {list(packed.shape)}", "arg")
    if values.ndim == 0 or values.shape[-1] != in_features:
        raise Error(f"the input has {values.shape[-1] if values.ndim else 0} features, not {in_features}", "arg")
    weights = np.concatenate([(packed >> (2 * i)) & 3 for i in range(4)])[:out_features].astype(np.int32) - 1
    unit = np.maximum(np.abs(values).max(-1, keepdims=True), 1e-5) / 127
    codes = np.clip(np.rint(values / unit), -128, 127).astype(np.int32)
    return like(x, ((codes @ weights.T) * unit).astype(np.float32))


def repeated_share(tokens: Sequence[int] | npt.NDArray[Any]) -> float:
    """The share of 3-grams that stood in the sequence before, as events count it."""
    ids = [int(t) for t in tokens]
    grams = list(zip(ids, ids[1:], ids[2:]))
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
