# SPDX-License-Identifier: Apache-2.0
"""The name under which some guides know the model.

>>> model = BitNetModel.from_pretrained("embedded", kv_cache_dtype="fp8", use_fast_kernels=True)
>>> model.config.kv_cache_dtype
'fp8_e4m3'
"""
from bitnet.causal_lm import BitNetForCausalLM

__all__ = ["BitNetModel"]


class BitNetModel(BitNetForCausalLM):
    """See bitnet.BitNetForCausalLM."""
