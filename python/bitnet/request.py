# SPDX-License-Identifier: Apache-2.0
"""What to generate and how: Sampling and Request, and the C structs made of them."""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from ._ffi import ffi, lib
from ._native import Error, Handle, PathLike, encoded
from .schema import json_schema

Prompt = Union[str, Sequence[int], Any]  # Any: an array of integers


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a token is chosen; docs/use/sampling.md has the formulas. The defaults are the library's.

    >>> Sampling(temperature=0).temperature
    0
    >>> Sampling.greedy() == Sampling(temperature=0.0)
    True
    """

    temperature: float = 0.8
    top_p: float = 0.95
    min_p: float = 0.05
    top_k: int = 40
    seed: int = 0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    adaptive: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = 0
    dry_breakers: Optional[Tuple[str, ...]] = None
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def greedy(cls) -> Sampling:
        """The likeliest token each time."""
        return cls(temperature=0.0)

    @classmethod
    def plain(cls, seed: int = 0) -> Sampling:
        """Drawn from the model's own distribution, nothing cut off."""
        return cls(temperature=1.0, top_p=1.0, min_p=0.0, top_k=0, seed=seed)


@dataclasses.dataclass(frozen=True)
class Request:
    """One prompt and what is wanted of it. A prompt is a text or the ids of its tokens.

    json_schema: a dict, its JSON text, a dataclass, or a class with model_json_schema() as pydantic's have.
    stop_tokens: ids that end a choice. min_new_tokens: so many come before the end, or a stop token, may. show_stop: the
    text keeps the stop string that ended it.
    adapters: Adapters, or pairs of one and its scale; (): none, None: those of Engine.set_adapters().
    drawn_logprobs: log-probabilities are those of the distribution that tokens were drawn from, after all options.
    priority: the smaller one comes first. user, user_weight: whose request it is; users share the engine by their weights.
    """

    prompt: Prompt
    max_new_tokens: int = 0
    sampling: Sampling = Sampling()
    n_choices: int = 1
    stop: Tuple[str, ...] = ()
    grammar: Optional[str] = None
    json_schema: Any = None
    json_object: bool = False
    ignore_end: bool = False
    show_special: bool = False
    logprobs: bool = False
    n_top_logprobs: int = 0
    timeout_ms: int = 0
    prefix_cache: Optional[str] = None
    prompt_logprobs: bool = False
    n_top_prompt_logprobs: int = 0
    prompt_only: bool = False
    stop_tokens: Tuple[int, ...] = ()
    min_new_tokens: int = 0
    show_stop: bool = False
    adapters: Optional[Tuple[Any, ...]] = None
    user: int = 0
    user_weight: int = 0
    priority: int = 0
    drawn_logprobs: bool = False


def request_of(prompt: Prompt | Request, options: Mapping[str, Any]) -> Request:
    """A request from a prompt and options by name; single sampling options may stand among them."""
    own = {f.name for f in dataclasses.fields(Request)}
    drawing = {f.name for f in dataclasses.fields(Sampling)}
    request = prompt if isinstance(prompt, Request) else Request(prompt)
    for name in options:
        if name not in own and name not in drawing:
            raise TypeError(f"there is no option '{name}'")
    request = dataclasses.replace(request, **{k: v for k, v in options.items() if k in own})
    chosen = {k: v for k, v in options.items() if k in drawing}
    if chosen:
        request = dataclasses.replace(request, sampling=dataclasses.replace(request.sampling, **chosen))
    return request


class Keep:
    """C memory that must live until the call that reads it has returned."""

    def __init__(self) -> None:
        self.things: List[Any] = []
        self.handles: List[Handle] = []

    def __del__(self) -> None:
        for handle in self.handles:
            handle.leave()

    def pointer(self, handle: Handle) -> Any:
        """Of something that is not closed while this lives."""
        pointer = handle.enter()
        self.handles.append(handle)
        return pointer

    def string(self, value: str | None, what: str) -> Any:
        return ffi.NULL if value is None else self.new("char[]", encoded(value, what))

    def path(self, value: PathLike) -> Any:
        """Names of files are bytes to the system, and need not be UTF-8."""
        data = os.fsencode(value)
        if b"\0" in data:
            raise Error("a path must not hold the character U+0000", "arg")
        return self.new("char[]", data)

    def strings(self, values: Sequence[str], what: str) -> Any:
        return self.new("const char *[]", [self.string(v, what) for v in values])

    def new(self, kind: str, init: Any) -> Any:
        try:
            thing = ffi.new(kind, init)
        except (OverflowError, TypeError) as e:
            raise Error(str(e), "arg") from None
        self.things.append(thing)
        return thing


def write_sampling(c: Any, s: Sampling, keep: Keep) -> None:
    """c: a bitnet_sampling that was initialised"""
    for f in dataclasses.fields(s):
        value = getattr(s, f.name)
        try:
            if f.name == "dry_breakers":
                if value is not None:
                    c.dry_breakers = keep.strings(value, "a breaker")
                    c.n_dry_breakers = len(value)
            elif f.name == "logit_bias":
                c.logit_bias = keep.new("bitnet_logit_bias[]", [(int(t), float(b)) for t, b in value.items()])
                c.n_logit_bias = len(value)
            else:
                setattr(c, f.name, value)
        except (OverflowError, TypeError, AttributeError) as e:
            raise Error(f"{f.name}: {e}", "arg") from None


def write_request(c: Any, r: Request, tokens: Any, keep: Keep) -> None:
    """c: a bitnet_request that was initialised; tokens: an int32 array"""
    c.tokens = ffi.from_buffer("int32_t[]", tokens)
    keep.things.append(tokens)
    c.n_tokens = len(tokens)
    write_sampling(c.sampling, r.sampling, keep)
    stop = (r.stop,) if isinstance(r.stop, str) else tuple(r.stop)
    c.stop = keep.strings(stop, "a stop string")
    c.n_stop = len(stop)
    c.grammar = keep.string(r.grammar, "a grammar")
    if r.json_schema is not None:
        schema = r.json_schema if isinstance(r.json_schema, str) else json.dumps(json_schema(r.json_schema))
        c.json_schema = keep.string(schema, "a JSON Schema")
    c.stop_tokens = keep.new("int32_t[]", list(r.stop_tokens))
    c.n_stop_tokens = len(r.stop_tokens)
    if r.adapters is not None:
        c.adapters, c.n_adapters = adapter_uses(r.adapters, keep)
    c.prefix_cache = keep.string(r.prefix_cache, "prefix_cache")
    for name in ("max_new_tokens", "n_choices", "n_top_logprobs", "timeout_ms", "n_top_prompt_logprobs", "min_new_tokens", "user",
                 "user_weight", "priority"):
        try:
            setattr(c, name, getattr(r, name))
        except (OverflowError, TypeError) as e:
            raise Error(f"{name}: {e}", "arg") from None
    for name in ("json_object", "ignore_end", "show_special", "logprobs", "prompt_logprobs", "prompt_only", "show_stop",
                 "drawn_logprobs"):
        setattr(c, name, int(bool(getattr(r, name))))


def adapter_uses(adapters: Sequence[Any], keep: Keep) -> Tuple[Any, int]:
    """Adapters, or pairs of one and its scale, as C takes them, and how many they are."""
    pairs = [a if isinstance(a, (tuple, list)) else (a, 1.0) for a in adapters]
    return keep.new("bitnet_adapter_use[]", [(keep.pointer(a._handle), float(scale), 0) for a, scale in pairs]), len(pairs)


def read_sampling(c: Any) -> Sampling:
    """The plain numbers of a bitnet_sampling."""
    plain = [f.name for f in dataclasses.fields(Sampling) if f.name not in ("dry_breakers", "logit_bias", "adaptive")]
    return Sampling(**{n: getattr(c, n) for n in plain}, adaptive=bool(c.adaptive))


def default_sampling() -> Any:
    c = ffi.new("bitnet_sampling *")
    lib.bitnet_sampling_init(c, ffi.sizeof("bitnet_sampling"))
    return c
