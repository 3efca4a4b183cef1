# SPDX-License-Identifier: Apache-2.0
"""Batches with the interface of vLLM: LLM, SamplingParams and the outputs."""
from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union, cast

from ._native import Error, PathLike
from .adapter import Adapter
from .engine import Engine
from .model import Message, Model
from .names import find_model
from .request import Request, Sampling
from .stream import Choice, Result
from .tokenizer import Tokenizer

LLMPrompt = Union[str, Sequence[int], Mapping[str, Any]]
T = TypeVar("T")


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
    stop_token_ids: Optional[Sequence[int]] = None
    include_stop_str_in_output: bool = False
    min_tokens: int = 0
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
class LoRARequest:
    """An adapter by vLLM's names. Only its path counts: what lies there is opened once."""

    lora_name: str
    lora_int_id: int
    lora_path: str


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

    def __init__(self, model: Model, prompt: LLMPrompt, params: SamplingParams, request_id: str, seed: int,
                 adapters: Optional[Tuple[Adapter, ...]] = None, priority: int = 0) -> None:
        self.model, self.params, self.request_id = model, params, request_id
        whole: Any = prompt if isinstance(prompt, Mapping) else {"prompt" if isinstance(prompt, str) else "prompt_token_ids": prompt}
        if "prompt_token_ids" not in whole and "prompt" not in whole:
            raise Error("a prompt is a text, a list of ids, or a dict with 'prompt' or 'prompt_token_ids'", "arg")
        self.prompt: Optional[str] = whole.get("prompt")
        if params.n < 1 or (params.max_tokens is not None and params.max_tokens < 1):
            raise Error(f"n ({params.n}) and max_tokens ({params.max_tokens}) are at least 1; max_tokens=None is as many as fit", "arg")
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
            prompt_logprobs=params.prompt_logprobs is not None, n_top_prompt_logprobs=params.prompt_logprobs or 0,
            stop_tokens=tuple(params.stop_token_ids or ()), min_new_tokens=params.min_tokens,
            show_stop=params.include_stop_str_in_output, adapters=adapters, priority=priority)

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
        self._adapters: Dict[str, Adapter] = {}

    def close(self) -> None:
        for adapter in self._adapters.values():
            adapter.close()
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_tokenizer(self) -> Tokenizer:
        return Tokenizer(self.model)

    def job(self, prompt: LLMPrompt, params: SamplingParams, request_id: Optional[str] = None,
            lora_request: Optional[LoRARequest] = None, priority: int = 0) -> Job:
        number = next(self._count)
        adapters = None if lora_request is None else (self._adapter(lora_request.lora_path),)
        return Job(self.model, prompt, params, str(number) if request_id is None else request_id, (self._seed + number) % 2**64,
                   adapters, priority)

    def _adapter(self, path: str) -> Adapter:
        if path not in self._adapters:
            self._adapters[path] = Adapter(self.model, path)
        return self._adapters[path]

    def generate(self, prompts: Union[LLMPrompt, Sequence[LLMPrompt]],
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
                 use_tqdm: bool = False, lora_request: Union[LoRARequest, Sequence[Optional[LoRARequest]], None] = None,
                 priority: Optional[Sequence[int]] = None) -> List[RequestOutput]:
        """Outputs in the order of the prompts: texts, lists of ids, or dicts with "prompt" or "prompt_token_ids".
        sampling_params and lora_request: one for all prompts, or a list of them. priority: the smaller ones come first."""
        several = isinstance(prompts, Sequence) and not isinstance(prompts, str) and not (
            len(prompts) > 0 and isinstance(prompts[0], int))
        asked: List[Any] = list(prompts) if several else [prompts]
        params = _for_each(sampling_params, SamplingParams, len(asked), "sampling parameters")
        loras = _for_each(lora_request, LoRARequest, len(asked), "adapters")
        priorities = _for_each(priority, int, len(asked), "priorities")
        jobs = [self.job(prompt, p or SamplingParams(), None, lora, first or 0)
                for prompt, p, lora, first in zip(asked, params, loras, priorities)]
        results = self.engine.generate_many(job.request for job in jobs)
        return [job.output(result) for job, result in zip(jobs, results)]

    def chat(self, messages: Any, sampling_params: Optional[SamplingParams] = None,
             chat_template: Optional[str] = None, lora_request: Optional[LoRARequest] = None) -> List[RequestOutput]:
        """The answer to a conversation, or to each of several."""
        several: List[Sequence[Message]] = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        return self.generate([{"prompt_token_ids": self.model.chat_tokens(m, template=chat_template)} for m in several],
                             sampling_params, lora_request=lora_request)


def _for_each(given: Union[T, Sequence[Optional[T]], None], kind: Type[T], n: int, what: str) -> Iterable[Optional[T]]:
    """One for all n prompts, or a list with one for each."""
    if given is None or isinstance(given, kind):
        return itertools.repeat(given, n)
    several = list(cast(Sequence[Optional[T]], given))
    if len(several) != n:
        raise Error(f"{n} prompts came with {len(several)} {what}", "arg")
    return several
