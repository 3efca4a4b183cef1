# SPDX-License-Identifier: Apache-2.0
"""The asynchronous engine with the interface of vLLM.

>>> import asyncio
>>> async def story():
...     engine = BitNetAsyncLLMEngine(model="embedded", max_num_seqs=8)
...     async for output in engine.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=3), "1"):
...         text = output.outputs[0].text
...     engine.shutdown()
...     return text
>>> asyncio.run(story())
', there was'
"""
from __future__ import annotations

from typing import AsyncIterator, Dict, Optional, Union

from bitnet import Error, Model
from bitnet._native import PathLike
from bitnet.llm import LLM, CompletionOutput, LLMPrompt, LoRARequest, RequestOutput, SamplingParams
from bitnet.stream import Stream

__all__ = ["BitNetAsyncLLMEngine", "CompletionOutput", "LoRARequest", "RequestOutput", "SamplingParams"]


class BitNetAsyncLLMEngine:
    """Requests of one event loop or several, computed together."""

    def __init__(self, model: Union[Model, PathLike], *, tensor_parallel_size: int = 1, max_num_seqs: int = 8,
                 max_num_batched_tokens: int = 0, enable_chunked_prefill: bool = True, max_model_len: int = 0,
                 kv_cache_dtype: Optional[str] = None, num_threads: int = 0, seed: int = 0) -> None:
        self._llm = LLM(model, tensor_parallel_size=tensor_parallel_size, max_num_seqs=max_num_seqs,
                        max_num_batched_tokens=max_num_batched_tokens, enable_chunked_prefill=enable_chunked_prefill,
                        max_model_len=max_model_len, kv_cache_dtype=kv_cache_dtype, num_threads=num_threads, seed=seed)
        self._streams: Dict[str, Stream] = {}

    async def generate(self, prompt: LLMPrompt, sampling_params: Optional[SamplingParams] = None,
                       request_id: Optional[str] = None, lora_request: Optional[LoRARequest] = None,
                       priority: int = 0) -> AsyncIterator[RequestOutput]:
        """Outputs with all that there is so far, one for each new token. Leaving the loop cancels the request."""
        job = self._llm.job(prompt, sampling_params or SamplingParams(), request_id, lora_request, priority)
        if job.request_id in self._streams:
            raise Error(f"there is a request '{job.request_id}' already", "arg")
        stream = self._llm.engine.stream(job.request)
        self._streams[job.request_id] = stream
        result = stream._empty_result()
        try:
            async for event in stream:
                result.add(event, job.request.logprobs)
                if event.token is not None or event.finish is not None:
                    yield job.output(result)
        finally:
            del self._streams[job.request_id]
            stream.abandon()

    async def abort(self, request_id: str) -> None:
        """Ends a request, if there is one of this name; its last output says "abort"."""
        stream = self._streams.get(request_id)
        if stream is not None:
            self._llm.engine.cancel(stream.id)

    def shutdown(self) -> None:
        self._llm.close()
