# SPDX-License-Identifier: Apache-2.0
"""What comes back from an engine: events, streams of them, and whole results."""
from __future__ import annotations

import asyncio
import collections
import dataclasses
from typing import TYPE_CHECKING, Any, AsyncIterator, Deque, Iterator, List, NamedTuple, Optional, Tuple

from ._ffi import ffi
from ._native import Error, process

if TYPE_CHECKING:
    from .engine import Engine

FINISH = (None, "end", "stop", "length", "cancelled", "error", "timeout")


Scored = Tuple[Tuple[int, float], ...]  # a token with its log-probability, then the likeliest in its place


class Event(NamedTuple):
    """A piece of a prompt was read (token None), or there is a new token with the text it completes, or a choice ended.
    Text is whole characters; the members are those of bitnet_event. scored: with prompt_logprobs, tokens of the prompt in
    their order, from the second on."""

    id: int
    choice: int
    token: Optional[int]
    text: str
    finish: Optional[str]
    error: str
    n_prompt: int
    n_read: int
    n_generated: int
    n_cached: int
    logprob: float
    top: Tuple[Tuple[int, float], ...]
    queue_ns: int
    prefill_ns: int
    decode_ns: int
    repetition: float
    scored: Tuple[Scored, ...]


def read_event(c: Any) -> Event:
    """Copies a C event, whose strings live until the next step only."""
    n = c.text_bytes
    token = c.token
    finish = FINISH[c.finish]
    return Event(
        c.id, c.choice, token if token >= 0 else None, ffi.unpack(c.text, n).decode() if n else "", finish,
        _error(c) if finish == "error" else "", c.n_prompt, c.n_read, c.n_generated,
        c.n_cached, c.logprob, _top(c) if c.n_top else (), c.queue_ns, c.prefill_ns, c.decode_ns, c.repetition,
        _scored(c) if c.n_scored else ())


def _error(c: Any) -> str:
    return str(ffi.string(c.error).decode("utf-8", "replace"))


def _top(c: Any) -> Tuple[Tuple[int, float], ...]:
    return tuple((c.top[i].token, c.top[i].logprob) for i in range(c.n_top))


def _scored(c: Any) -> Tuple[Scored, ...]:
    width = 1 + c.n_top_scored
    return tuple(tuple((c.scored[i].token, c.scored[i].logprob) for i in range(row * width, (row + 1) * width))
                 for row in range(c.n_scored))


@dataclasses.dataclass
class Choice:
    """One continuation of a prompt. logprobs and tops are there if they were asked for, one for each token."""

    text: str = ""
    tokens: List[int] = dataclasses.field(default_factory=list)
    finish: Optional[str] = None
    logprobs: List[float] = dataclasses.field(default_factory=list)
    tops: List[Tuple[Tuple[int, float], ...]] = dataclasses.field(default_factory=list)
    repetition: float = 0.0


@dataclasses.dataclass
class Result:
    """All that a request gave. text, tokens and finish are those of the first choice. prompt_logprobs, if asked for: of
    every token of the prompt but the first, itself and the likeliest in its place."""

    choices: List[Choice]
    n_prompt: int = 0
    n_cached: int = 0
    queue_ns: int = 0
    prefill_ns: int = 0
    decode_ns: int = 0
    prompt_logprobs: List[Scored] = dataclasses.field(default_factory=list)

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def tokens(self) -> List[int]:
        return self.choices[0].tokens

    @property
    def finish(self) -> Optional[str]:
        return self.choices[0].finish

    @property
    def logprobs(self) -> List[float]:
        return self.choices[0].logprobs

    def __str__(self) -> str:
        return self.text

    def add(self, e: Event, wants_logprobs: bool) -> None:
        choice = self.choices[e.choice]
        if e.token is not None:
            choice.tokens.append(e.token)
            if wants_logprobs:
                choice.logprobs.append(e.logprob)
                choice.tops.append(e.top)
        if e.scored:
            self.prompt_logprobs.extend(e.scored)
        choice.text += e.text
        choice.finish = e.finish
        choice.repetition = e.repetition
        self.n_prompt, self.n_cached = e.n_prompt, e.n_cached
        self.queue_ns, self.prefill_ns, self.decode_ns = e.queue_ns, e.prefill_ns, e.decode_ns


    def take(self, c: Any, wants_logprobs: bool) -> Optional[Error]:
        """add() straight from a C event: what does not come with every token is read at the end only. What went wrong, if
        the request ends so."""
        choice = self.choices[c.choice]
        n, token, finish = c.text_bytes, c.token, c.finish
        if n:
            choice.text += ffi.unpack(c.text, n).decode()
        if token >= 0:
            choice.tokens.append(token)
            if wants_logprobs:
                choice.logprobs.append(c.logprob)
                choice.tops.append(_top(c))
        if c.n_scored:
            self.prompt_logprobs.extend(_scored(c))
        if finish:
            choice.finish, choice.repetition = FINISH[finish], c.repetition
            self.n_prompt, self.n_cached = c.n_prompt, c.n_cached
            self.queue_ns, self.prefill_ns, self.decode_ns = c.queue_ns, c.prefill_ns, c.decode_ns
            if choice.finish == "error":
                return Error(_error(c), "internal")
        return None


class Channel:
    """Where the engine puts the events of one request: a queue, or a result that is wanted as a whole. It belongs to the
    engine's lock until it has an event loop, whose thread then takes them."""

    __slots__ = ("events", "whole", "logprobs", "left", "failure", "loop", "wake")

    def __init__(self, n_choices: int, whole: Optional[Result], logprobs: bool) -> None:
        self.events: Deque[Event] = collections.deque()
        self.whole = whole
        self.logprobs = logprobs
        self.left = n_choices  # choices that go on
        self.failure: Error | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.wake: asyncio.Event | None = None


def empty_result(n_choices: int) -> Result:
    return Result([Choice() for _ in range(n_choices)])


class Stream:
    """The events of one request, as they come: `for event in stream` or `async for event in stream`, one of the two.

    Leaving it early cancels the request: close(), the end of a `with` block, an exception, Ctrl-C, or losing the last
    reference to it."""

    def __init__(self, engine: Engine, id: int, channel: Channel) -> None:
        self.id = id
        self._engine = engine
        self._channel = channel
        self._n_choices = channel.left
        self._forks = process.forks
        self._done = False

    # ------------------------------------------------------------------ plain iteration

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if self._done:
            raise StopIteration
        if self._channel.loop is not None:
            raise Error("this stream is read by an event loop")
        try:
            event = self._engine._next_event(self._channel)
        except BaseException:
            self.close()
            raise
        if event is None:
            self._done = True
            raise StopIteration
        return self._checked(event)

    def _checked(self, event: Event) -> Event:
        if event.finish == "error":
            self.close()
            raise Error(event.error, "internal")
        return event

    def result(self) -> Result:
        """Waits for the end; events that were read before are not in it."""
        result = self._channel.whole or self._empty_result()
        for event in self:  # none, if the channel makes the result
            result.add(event, self._channel.logprobs)
        return result

    def _empty_result(self) -> Result:
        return empty_result(self._n_choices)

    # ------------------------------------------------------------------ in an event loop

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        channel = self._channel
        if self._done:
            raise StopAsyncIteration
        if channel.loop is None:
            self._engine._attach(channel, asyncio.get_running_loop())
        assert channel.wake is not None
        try:
            while not channel.events:
                if channel.failure is not None:
                    raise channel.failure
                if channel.left == 0:
                    self._done = True
                    raise StopAsyncIteration
                channel.wake.clear()
                await channel.wake.wait()
        except StopAsyncIteration:
            raise
        except BaseException:
            self.abandon()
            raise
        return self._checked(channel.events.popleft())

    async def collect(self) -> Result:
        """result() in an event loop."""
        result = self._empty_result()
        async for event in self:
            result.add(event, self._channel.logprobs)
        return result

    async def aclose(self) -> None:
        self.abandon()

    # ------------------------------------------------------------------ life

    def close(self) -> None:
        """Cancels the request, unless it has ended; what it holds in the engine is free when this returns."""
        if not self._done:
            self._done = True
            if self._channel.loop is None:
                self._engine._cancel(self.id)
            else:
                self._engine._abandon(self.id)

    def abandon(self) -> None:
        """Cancels the request without waiting: it ends with the engine's next step."""
        if not self._done:
            self._done = True
            self._engine._abandon(self.id)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abandon()

    def __del__(self) -> None:
        if self._forks == process.forks:
            self.abandon()
