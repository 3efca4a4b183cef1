# SPDX-License-Identifier: Apache-2.0
"""The engine by the name that guides give it."""
from __future__ import annotations

from typing import Any, Optional

import numpy as np

from .._native import Error, PathLike
from ..arrays import like, to_numpy
from ..causal_lm import BitNetForCausalLM


class BitNetCPUInferenceEngine:
    """Logits and text for batches of ids; any number of threads may call it.

    >>> engine = BitNetCPUInferenceEngine(model_path="embedded", max_batch_size=2, max_seq_len=64)
    >>> logits = engine.forward(input_ids=[[0, 390, 389, 262, 365]], temperature=0.7, top_k=50)
    >>> logits.shape, int(logits[0][-1].argmax())
    ((1, 5, 4096), 15)
    """

    def __init__(self, model_path: PathLike = "embedded", *, max_batch_size: int = 8, max_seq_len: int = 0, num_threads: int = 0,
                 use_mmap: bool = True, activation_dtype: Optional[str] = None, kv_cache_dtype: Optional[str] = None) -> None:
        self.model = BitNetForCausalLM.from_pretrained(
            model_path, max_batch_size=max_batch_size, max_seq_len=max_seq_len, num_threads=num_threads, use_mmap=use_mmap,
            activation_dtype=activation_dtype, kv_cache_dtype=kv_cache_dtype)
        self.config = self.model.config

    def forward(self, input_ids: Any, attention_mask: Any = None, temperature: float = 1.0, top_k: int = 0) -> Any:
        """Logits [batch][tokens][vocabulary], divided by the temperature; with top_k all but the k largest are -inf."""
        if not temperature > 0 or top_k < 0:
            raise Error("the temperature is above 0, and top_k not negative", "arg")
        logits = to_numpy(self.model(input_ids, attention_mask).logits)
        if temperature != 1.0:
            logits /= np.float32(temperature)
        if 0 < top_k < logits.shape[-1]:
            least = -np.partition(-logits, top_k - 1, axis=-1)[..., top_k - 1:top_k]
            logits[logits < least] = -np.inf
        return like(input_ids, logits)

    def generate(self, input_ids: Any, **options: Any) -> Any:
        """As BitNetForCausalLM.generate."""
        return self.model.generate(input_ids, **options)

    def close(self) -> None:
        self.model.close()

    def __enter__(self) -> BitNetCPUInferenceEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
