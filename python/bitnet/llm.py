# SPDX-License-Identifier: Apache-2.0
"""Batches with the interface of vLLM: LLM, SamplingParams and the outputs."""
from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from ._native import Error, PathLike
from .engine import Engine
from .model import Message, Model
from .names import find_model
from .request import Request, Sampling
from .stream import Choice, Result
from .tokenizer import Tokenizer

LLMPrompt = Union[str, Sequence[int], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """How to sample, by vLLM's names and with its defaults. json_schema and grammar constrain the text, as in Request."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    seed: Optional[int] = None
    max_tokens: Optional[int] = 16
    stop: Union[str, Sequence[str], None] = None
    ignore_eos: bool = False
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Optional[Mapping[int, float]] = None
    skip_special_tokens: bool = True
    json_schema: Any = None
    grammar: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Logprob:
    logprob: float
    rank: Optional[int]
    decoded_token: str


@dataclasses.dataclass(frozen=True)
class CompletionOutput:
    index: int
    text: str
    token_ids: List[int]
    cumulative_logprob: Optional[float]
    logprobs: Optional[List[Dict[int, Logprob]]]
    finish_reason: Optional[str]


@dataclasses.dataclass(frozen=True)
class RequestOutput:
    request_id: str
    prompt: Optional[str]
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]] = None


class Job:
    """One prompt on its way through an engine: the request for it, and outputs from its results."""

    def __init__(self, model: Model, prompt: LLMPrompt, params: SamplingParams, request_id: str, seed: int) -> None:
        self.model, self.params, self.request_id = model, params, request_id
        whole: Any = prompt if isinstance(prompt, Mapping) else {"prompt" if isinstance(prompt, str) else "prompt_token_ids": prompt}
        if "prompt_token_ids" not in whole and "prompt" not in whole:
            raise Error("a prompt is a text, a list of ids, or a dict with 'prompt' or 'prompt_token_ids'", "arg")
        self.prompt: Optional[str] = whole.get("prompt")
        ids = whole.get("prompt_token_ids")
        self.ids = model.prompt_tokens(self.prompt if ids is None and self.prompt is not None else ids)
        stop = () if params.stop is None else (params.stop,) if isinstance(params.stop, str) else tuple(params.stop)
        sampling = Sampling(
            temperature=params.temperature, top_p=params.top_p, top_k=max(0, params.top_k), min_p=params.min_p,
            seed=seed if params.seed is None else params.seed, presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty, repetition_penalty=params.repetition_penalty,
            logit_bias=params.logit_bias or {})
        self.request = Request(
            self.ids, params.max_tokens or 0, sampling, n_choices=params.n, stop=stop, grammar=params.grammar,
            json_schema=params.json_schema, ignore_end=params.ignore_eos, show_special=not params.skip_special_tokens,
            logprobs=params.logprobs is not None, n_top_logprobs=params.logprobs or 0,
            prompt_logprobs=params.prompt_logprobs is not None, n_top_prompt_logprobs=params.prompt_logprobs or 0)

    def output(self, result: Result) -> RequestOutput:
        choices = [self._completion(i, c) for i, c in enumerate(result.choices)]
        scored: Optional[List[Optional[Dict[int, Logprob]]]] = None
        if self.params.prompt_logprobs is not None:  # nothing stands before the first token
            scored = [None, *(self._tops(*row[0], row[1:]) for row in result.prompt_logprobs)]
        return RequestOutput(self.request_id, self.prompt, self.ids.tolist(), choices,
                             all(c.finish is not None for c in result.choices), result.n_cached, scored)

    def _completion(self, index: int, c: Choice) -> CompletionOutput:
        reason = {"end": "stop", "cancelled": "abort", "timeout": "abort"}.get(c.finish or "", c.finish)
        if self.params.logprobs is None:
            return CompletionOutput(index, c.text, list(c.tokens), None, None, reason)
        tops = [self._tops(t, p, top) for t, p, top in zip(c.tokens, c.logprobs, c.tops)]
        return CompletionOutput(index, c.text, list(c.tokens), sum(c.logprobs), tops, reason)

    def _tops(self, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> Dict[int, Logprob]:
        ranked = {t: Logprob(p, i + 1, self.model.detokenize([t], special=True)) for i, (t, p) in enumerate(top)}
        ranked.setdefault(token, Logprob(logprob, None, self.model.detokenize([token], special=True)))
        return ranked


class LLM:
    """Many prompts at once.

    >>> with LLM("embedded") as llm:
    ...     outputs = llm.generate(["Once upon a time", "The cat"], SamplingParams(temperature=0, max_tokens=3))
    >>> [o.outputs[0].text for o in outputs]
    [', there was', ' and the dog']

    Requests without a seed get one from `seed` and their number, so that a run can be repeated.
    """

    def __init__(self, model: Union[Model, PathLike] = "embedded", *, tensor_parallel_size: int = 1, max_num_seqs: int = 32,
                 max_num_batched_tokens: int = 0, max_model_len: int = 0, kv_cache_dtype: Optional[str] = None,
                 enable_prefix_caching: bool = True, enable_chunked_prefill: bool = True, num_threads: int = 0,
                 seed: int = 0) -> None:
        """enable_chunked_prefill: prompts are always read in pieces of max_num_batched_tokens; False only says that a
        piece should hold a whole prompt."""
        if tensor_parallel_size != 1:
            raise Error("there is one process for a model: tensor_parallel_size is 1", "unsupported")
        opened = model if isinstance(model, Model) else Model(find_model(model), threads=num_threads)
        context = max_model_len or min(opened.info.shape.n_ctx_train, 4096)
        piece = max_num_batched_tokens if enable_chunked_prefill else max(max_num_batched_tokens, context)
        self.engine = Engine(opened, threads=num_threads, max_seqs=max_num_seqs, max_batch_tokens=piece, ctx_tokens=max_model_len,
                             kv_type=kv_cache_dtype, prefix_cache=None if enable_prefix_caching else "off")
        self.engine._owns_model = opened is not model
        self.model = opened
        self._seed = seed
        self._count = itertools.count()

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer(self.model)

    def job(self, prompt: LLMPrompt, params: SamplingParams, request_id: Optional[str] = None) -> Job:
        number = next(self._count)
        return Job(self.model, prompt, params, str(number) if request_id is None else request_id, (self._seed + number) % 2**64)

    def generate(self, prompts: Union[LLMPrompt, Sequence[LLMPrompt]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
                 use_tqdm: bool = False) -> List[RequestOutput]:
        """Outputs in the order of the prompts: texts, lists of ids, or dicts with "prompt" or "prompt_token_ids"."""
        several = isinstance(prompts, Sequence) and not isinstance(prompts, str) and not (
            len(prompts) > 0 and isinstance(prompts[0], int))
        asked: List[Any] = list(prompts) if several else [prompts]
        params: Iterator[SamplingParams]
        if isinstance(sampling_params, SamplingParams) or sampling_params is None:
            params = itertools.repeat(sampling_params or SamplingParams())
        elif len(sampling_params) != len(asked):
            raise Error(f"{len(asked)} prompts came with {len(sampling_params)} sampling parameters", "arg")
        else:
            params = iter(sampling_params)
        jobs = [self.job(prompt, p) for prompt, p in zip(asked, params)]
        results = self.engine.generate_many(job.request for job in jobs)
        return [job.output(result) for job, result in zip(jobs, results)]

    def chat(self, messages: Any, sampling_params: Optional[SamplingParams] = None,
             chat_template: Optional[str] = None) -> List[RequestOutput]:
        """The answer to a conversation, or to each of several."""
        several: List[Sequence[Message]] = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        return self.generate([{"prompt_token_ids": self.model.chat_tokens(m, template=chat_template)} for m in several],
                             sampling_params)
