# SPDX-License-Identifier: Apache-2.0
"""An engine: threads, a KV cache and a scheduler over one model.

The C engine belongs to one thread at a time and works only while somebody calls bitnet_step. Here a lock says whose turn
it is, and whoever waits for an event of its own request computes a step for all: the events of others go to their
channels. For event loops a thread does it, which lives as long as such requests do. cffi gives up the GIL during every
call, so other Python threads go on meanwhile.

Ctrl-C can strike anywhere between two bytecodes. A signal during a step is raised when the step returns, before its
events were delivered; they stay where C wrote them and the next call delivers them, so no other request loses any."""
from __future__ import annotations

import asyncio
import collections
import os
import threading
import time
from typing import Any, Callable, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, TypeVar, Union

import numpy as np
import numpy.typing as npt

from . import info as _info
from ._ffi import ffi, lib
from ._native import Error, PathLike, Progress, Watch, check, fill, process, struct, text
from .model import EMBEDDED, Message, Model, as_tokens, open_model
from .report import Profile
from .request import Keep, Prompt, Request, Sampling, adapter_uses, request_of, write_request
from .stream import Channel, Event, Result, Stream, empty_result, read_event

Floats = npt.NDArray[np.float32]
T = TypeVar("T")

ROOM = 64  # events that one call of bitnet_step can report
PIECE = 64  # tokens that logits() computes in one call, so that Ctrl-C is noticed in between
TEXTS = 1024  # tokens of the texts that embed() computes in one call, but for a longer text
MAKE_WAY_S = 2e-5


class Score(NamedTuple):
    """How likely a text is behind a context: the sum of the log-probabilities, and whether each token is the likeliest."""

    logprob: float
    greedy: bool


class Engine:
    """Generates, scores and embeds. Any number of threads may use it; they take turns.

    >>> with Engine() as engine:
    ...     print(engine.generate("Once upon a time", max_new_tokens=10, temperature=0))
    , there was a little girl named Lily. She

    model: a Model, or a path as Model takes it, which is then closed with the engine. The options are those of
    bitnet_engine_options in bitnet.h; kv_type by name: "f16", "fp8_e4m3", "int8", ...
    """

    def __init__(self, model: Union[Model, PathLike] = EMBEDDED, *, threads: int = 0, ctx_tokens: int = 0, max_seqs: int = 0,
                 max_batch_tokens: int = 0, itl_target_ms: int = 0, kv_tokens: int = 0, kv_type: str | None = None,
                 kv_type_v: str | None = None, prefix_cache: str | None = None, state_type: str | None = None,
                 state_cache_bytes: int = 0, head: str | None = None, ffn: str | None = None, draft: str | None = None,
                 pin: str | None = None, profile: str | None = None, draft_tokens: int = 0,
                 plan: PathLike | None = None, kv_type_otherwise: str | None = None) -> None:
        keep = Keep()
        words = {"prefix_cache": prefix_cache, "state_type": state_type, "head": head, "ffn": ffn, "draft": draft, "pin": pin,
                 "profile": profile, "plan": None if plan is None else os.fspath(plan)}
        options = struct("bitnet_engine_options", threads=threads, ctx_tokens=ctx_tokens, max_seqs=max_seqs,
                         max_batch_tokens=max_batch_tokens, itl_target_ms=itl_target_ms, kv_tokens=kv_tokens,
                         kv_type=_kv_type(kv_type), kv_type_v=_kv_type(kv_type_v), state_cache_bytes=state_cache_bytes,
                         draft_tokens=draft_tokens, kv_type_otherwise=_kv_type(kv_type_otherwise),
                         **{k: keep.string(v, k) for k, v in words.items()})
        self._engine: Any = None
        self._forks = process.forks
        self.model, self._owns_model = open_model(model)
        out, err = ffi.new("bitnet_engine **"), ffi.new("bitnet_error *")
        m = self.model._handle.enter()  # left when the engine is closed: the model outlives it
        try:
            check(lib.bitnet_engine_open(out, m, options, err), err)
        except BaseException:
            self.model._handle.leave()
            raise
        self._engine = out[0]
        self._lock = threading.Lock()
        self._owner = 0  # the thread that has the lock
        self._waiting: Deque[None] = collections.deque()  # one for each call that wants the lock between two steps
        self._closing = False
        self._events = ffi.new("bitnet_event[]", ROOM)
        self._n = ffi.new("size_t *")
        self._err = ffi.new("bitnet_error *")
        self._at = 0  # events that were delivered, of those that the last step reported
        self._channels: Dict[int, Channel] = {}
        self._abandoned: Deque[int] = collections.deque()
        self._driver: threading.Thread | None = None
        self._event_bytes = int(ffi.sizeof("bitnet_event"))
        process.open.add(self)

    # ------------------------------------------------------------------ life

    def close(self) -> None:
        """Ends all requests and gives the memory back, with that of a model it has opened. A second time does nothing."""
        self._close_engine()
        if self._owns_model:
            self.model.close()

    def _close_engine(self) -> None:
        if self._engine is None or self._forks != process.forks:
            return
        if self._owner == threading.get_ident():
            raise Error("the engine is computing: it cannot be closed from a callback or a signal handler")
        self._closing = True  # whoever computes stops after this step
        with self._lock:
            engine, self._engine = self._engine, None
            if engine is None:
                return
            self._fail_all(Error("the engine is closed"))
            lib.bitnet_engine_close(engine)
        self.model._handle.leave()

    @property
    def closed(self) -> bool:
        return self._engine is None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_engine", None) is not None and self._forks == process.forks:
            self._close_engine()  # the model goes when nobody has it any more

    def __reduce__(self) -> Any:
        raise TypeError("an engine cannot be pickled: open one in each process")

    def __repr__(self) -> str:
        return f"<bitnet.Engine over {self.model.path!r}{' closed' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        return self.info._repr_html_()

    def _pointer(self) -> Any:
        if self._forks != process.forks:
            raise Error("the engine was opened before fork() and belongs to the parent process: open one in this process")
        if self._engine is None or self._closing:
            raise Error("the engine is closed")
        return self._engine

    def _exclusive(self, work: Callable[[Any], T]) -> T:
        """Calls work with the C engine, while no other thread uses it."""
        self._pointer()
        me = threading.get_ident()
        if self._owner == me:
            raise Error("the engine is computing: it cannot be used from a callback or a signal handler")
        self._waiting.append(None)
        try:
            with self._lock:
                engine = self._pointer()
                self._owner = me
                try:
                    return work(engine)
                finally:
                    self._owner = 0
        finally:
            self._waiting.pop()

    def _idle(self, work: Callable[[Any], T]) -> T:
        """The same, when requests whose streams were lost are out of the way."""

        def settled(engine: Any) -> T:
            while self._abandoned:
                self._retire(engine, self._abandoned.popleft())
            return work(engine)

        return self._exclusive(settled)

    # ------------------------------------------------------------------ steps; all of these hold the lock

    def _step(self, engine: Any) -> bool:
        """Computes a step, unless events of the last one are left, and delivers. False: there was nothing to do."""
        events, n = self._events, self._n
        if self._at >= (n[0] if events[0].id else 0):
            while self._abandoned:
                self._give_up(engine, self._abandoned.popleft())
            events[0].id = 0  # set by the library; still 0 if a signal comes before the call
            self._at = 0
            events[0].size = self._event_bytes
            n[0] = ROOM
            status = lib.bitnet_step(engine, events, n, self._err)
            if status:
                events[0].id = 0
                check(status, self._err)
            if n[0] == 0:
                return False
        loops: Dict[Any, List[asyncio.Event]] = {}
        for i in range(self._at, n[0]):
            self._deliver(events[i], loops)
            self._at = i + 1
        for loop, wakes in loops.items():
            _wake(loop, wakes)
        return True

    def _deliver(self, c: Any, loops: Dict[Any, List[asyncio.Event]]) -> None:
        channel = self._channels.get(c.id)
        if channel is None:  # cancelled, and nobody listens any more
            return
        if channel.whole is None:
            channel.events.append(read_event(c))
        else:
            channel.failure = channel.whole.take(c, channel.logprobs) or channel.failure
        if c.finish:
            channel.left -= 1
            if channel.left == 0:
                del self._channels[c.id]
        if channel.loop is not None and channel.wake is not None:
            loops.setdefault(channel.loop, []).append(channel.wake)

    def _give_up(self, engine: Any, id: int) -> bool:
        """The request ends with the next step. False: there is none."""
        self._channels.pop(id, None)
        return bool(lib.bitnet_cancel(engine, id) == lib.BITNET_OK)

    def _retire(self, engine: Any, id: int) -> None:
        """The request has ended when this returns."""
        while self._give_up(engine, id):
            if not self._step(engine):
                break

    def _fail_all(self, failure: Error) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.failure = failure
            if channel.loop is not None and channel.wake is not None:
                _wake(channel.loop, [channel.wake])

    # ------------------------------------------------------------------ streams

    def stream(self, prompt: Union[Prompt, Request], **options: Any) -> Stream:
        """Submits a request; its events come as they are made. Options are the members of Request and Sampling.

        >>> with Engine() as engine:
        ...     "".join(event.text for event in engine.stream("Once upon a time", max_new_tokens=3, temperature=0))
        ', there was'
        """
        return self._submit(request_of(prompt, options), False)

    def _submit(self, request: Request, whole: bool) -> Stream:
        """whole: the stream has no events, only a result."""
        keep = Keep()
        c = ffi.new("bitnet_request *")
        lib.bitnet_request_init(c, ffi.sizeof("bitnet_request"))
        write_request(c, request, self.model.prompt_tokens(request.prompt), keep)
        id, err = ffi.new("uint64_t *"), ffi.new("bitnet_error *")
        n_choices = max(1, int(request.n_choices))

        def submit(engine: Any) -> Stream:
            check(lib.bitnet_submit(engine, c, id, err), err)
            channel = Channel(n_choices, empty_result(n_choices) if whole else None, bool(request.logprobs))
            self._channels[id[0]] = channel
            return Stream(self, id[0], channel)

        return self._exclusive(submit)

    def _next_event(self, channel: Channel) -> Optional[Event]:
        """The next event of a request; computes steps until there is one. None: it has ended."""
        events = channel.events
        me = threading.get_ident()
        while not events:
            if channel.failure is not None:
                raise channel.failure
            if channel.left == 0:
                return None
            engine = self._pointer()
            if self._owner == me:
                raise Error("the engine is computing: it cannot be used from a callback or a signal handler")
            with self._lock:
                if events or channel.left == 0:
                    continue
                engine = self._pointer()
                self._owner = me
                try:
                    if not self._step(engine) and not events:
                        raise Error("the request is not known to the engine any more")
                finally:
                    self._owner = 0
            if self._waiting:
                time.sleep(MAKE_WAY_S)
        return events.popleft()

    def cancel(self, id: int) -> None:
        """Ends a request with the next step; its stream says so. An unknown one is let be."""
        self._exclusive(lambda engine: bool(lib.bitnet_cancel(engine, id)))

    def _cancel(self, id: int) -> None:
        if self._engine is not None and not self._closing and self._forks == process.forks:
            if self._owner == threading.get_ident():
                self._abandoned.append(id)
            else:
                self._exclusive(lambda engine: self._retire(engine, id))

    def _abandon(self, id: int) -> None:
        """From anywhere, a garbage collection above all: no lock is taken."""
        self._abandoned.append(id)

    # ------------------------------------------------------------------ event loops

    def _attach(self, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        """Its events go to this loop from now on; a thread computes the steps."""

        def attach(engine: Any) -> None:
            channel.wake = asyncio.Event()
            channel.loop = loop
            if self._driver is None and channel.left:
                self._driver = threading.Thread(target=self._drive, name="bitnet-engine", daemon=True)
                self._driver.start()

        self._exclusive(attach)

    def _drive(self) -> None:
        me = threading.get_ident()
        while True:
            with self._lock:
                if self._closing or not any(c.loop is not None for c in self._channels.values()):
                    self._driver = None
                    return
                self._owner = me
                try:
                    if not self._step(self._engine):
                        raise Error("requests are not known to the engine any more")
                except Error as e:
                    self._fail_all(e)
                finally:
                    self._owner = 0
            if self._waiting:
                time.sleep(MAKE_WAY_S)

    # ------------------------------------------------------------------ whole results

    def generate(self, prompt: Union[Prompt, Request], **options: Any) -> Result:
        """A whole result; print it, or look at its text, tokens, finish and choices."""
        return self._submit(request_of(prompt, options), True).result()

    def generate_many(self, prompts: Iterable[Union[Prompt, Request]], **options: Any) -> List[Result]:
        """Results in the order of the prompts, as many computed at a time as the engine has sequences.

        >>> with Engine(max_seqs=2) as engine:
        ...     [r.text for r in engine.generate_many(["Once upon", "The cat"], max_new_tokens=2, temperature=0)]
        [' a time', ' and the']
        """
        room = 2 * self.info.max_seqs  # so that there is always one to go on with
        results: List[Result] = []
        running: Deque[Stream] = collections.deque()
        try:
            for prompt in prompts:
                if len(running) >= room:
                    results.append(running.popleft().result())
                running.append(self._submit(request_of(prompt, options), True))
            while running:
                results.append(running.popleft().result())
        finally:
            for stream in running:
                stream.close()
        return results

    async def agenerate(self, prompt: Union[Prompt, Request], **options: Any) -> Result:
        """generate() in an event loop."""
        return await self.stream(prompt, **options).collect()

    def chat(self, messages: Sequence[Message], *, template: str | None = None, **options: Any) -> Result:
        """The answer to a conversation: a list of {"role": ..., "content": ...}."""
        return self.generate(self.model.chat_tokens(messages, template=template), **options)

    # ------------------------------------------------------------------ logits, vectors, scores

    def logits(self, prompt: Prompt, *, last_only: bool = False, out: Floats | None = None) -> Floats:
        """The logits behind each token of a text, [n][n_vocab], or behind the last one, [n_vocab]. C writes into the array:
        a new one, or `out`.

        >>> with Engine() as engine:
        ...     engine.logits("Once upon a time").shape
        (5, 4096)
        """
        ids = self.model.prompt_tokens(prompt)
        n_vocab = self.model.info.shape.n_vocab
        shape = (n_vocab,) if last_only else (len(ids), n_vocab)
        if out is None:
            out = np.empty(shape, np.float32)
        elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
            raise Error(f"out must be a contiguous float32 array that can be written, of shape {shape}", "arg")
        rows = ffi.from_buffer("float[]", out) if out.size else ffi.NULL
        err = ffi.new("bitnet_error *")

        def compute(engine: Any) -> None:
            if len(ids) == 0:
                raise Error("logits of no tokens were asked for", "arg")
            check(lib.bitnet_eval_reset(engine, 0, err), err)
            try:
                for begin in range(0, len(ids), PIECE):
                    piece = ids[begin:begin + PIECE]
                    last = begin + PIECE >= len(ids)
                    target = rows if last_only and last else ffi.NULL if last_only else rows + begin * n_vocab
                    check(lib.bitnet_eval(engine, 0, ffi.from_buffer("int32_t[]", piece), len(piece), int(last_only), target, err),
                          err)
            finally:
                lib.bitnet_eval_reset(engine, 0, err)

        self._idle(compute)
        return out

    def embed(self, texts: Union[str, Sequence[Prompt]], *, pooling: str = "mean", normalize: bool = True) -> Floats:
        """Texts as vectors, [n][n_embd]; [n_embd] for a single text.

        >>> with Engine() as engine:
        ...     a, b = engine.embed(["a cat", "a dog"])
        ...     bool(0.99 < float(a @ a) < 1.01)
        True
        """
        if isinstance(texts, str):
            vector: Floats = self.embed([texts], pooling=pooling, normalize=normalize)[0]
            return vector
        if pooling not in ("mean", "last"):
            raise Error(f"pooling is 'mean' or 'last', not '{pooling}'", "arg")
        ids = [self.model.prompt_tokens(t) for t in texts]
        out: Floats = np.empty((len(ids), self.model.info.shape.n_embd), np.float32)
        if not ids:
            return out
        keep = Keep()
        inputs = keep.new("bitnet_embed_input[]", [(keep_tokens(keep, i), len(i)) for i in ids])
        options = struct("bitnet_embed_options", pooling=lib.BITNET_POOL_LAST if pooling == "last" else lib.BITNET_POOL_MEAN,
                         normalize=None if normalize else keep.string("off", "off"))
        err = ffi.new("bitnet_error *")
        rows = ffi.from_buffer("float[]", out)
        begin = 0
        while begin < len(ids):  # in parts, so that Ctrl-C is noticed and others have their turn
            end, tokens = begin + 1, len(ids[begin])
            while end < len(ids) and tokens + len(ids[end]) <= TEXTS:
                tokens += len(ids[end])
                end += 1
            part = (inputs + begin, end - begin, options, rows + begin * out.shape[1], err)
            self._idle(lambda engine: check(lib.bitnet_embed(engine, *part), err))
            begin = end
        return out

    def score(self, pairs: Iterable[tuple[Prompt, Prompt]], *, progress: Progress | None = None) -> List[Score]:
        """How likely each continuation is behind its context: pairs of texts or ids, a text after a context being encoded
        without the beginning-of-text token. What contexts have in common is computed once. Needs max_seqs of at least 8."""
        pairs_of_ids = [(self.model.prompt_tokens(a), self.model.encode(b, bos=False) if isinstance(b, str) else as_tokens(b))
                        for a, b in pairs]
        if not pairs_of_ids:
            return []
        keep = Keep()
        inputs = keep.new("bitnet_score_input[]", [
            (keep_tokens(keep, np.concatenate(pair)), len(pair[0]) + len(pair[1]), len(pair[0])) for pair in pairs_of_ids])
        watch = Watch(progress)
        options = struct("bitnet_score_options", progress=lib.bitnet_py_progress, user=watch.handle)
        results = ffi.new("bitnet_score_result[]", len(pairs_of_ids))
        err = ffi.new("bitnet_error *")
        self._idle(lambda engine: watch.check(
            lib.bitnet_score(engine, inputs, len(pairs_of_ids), options, results, err), err))
        return [Score(results[i].logprob, bool(results[i].greedy)) for i in range(len(pairs_of_ids))]

    def perplexity(self, prompt: Prompt, *, ctx_tokens: int = 0, protocol: str = "windows",
                   progress: Progress | None = None) -> _info.Perplexity:
        """Of a text. protocol: "windows", or "llama.cpp" for figures that can be compared with that program's."""
        protocols = {"windows": lib.BITNET_PPL_WINDOWS, "llama.cpp": lib.BITNET_PPL_LLAMA_CPP}
        if protocol not in protocols:
            raise Error(f"protocol is 'windows' or 'llama.cpp', not '{protocol}'", "arg")
        ids = self.model.prompt_tokens(prompt)
        watch = Watch(progress)
        options = struct("bitnet_ppl_options", ctx_tokens=ctx_tokens, protocol=protocols[protocol],
                         progress=lib.bitnet_py_progress, progress_user=watch.handle)
        result, err = struct("bitnet_ppl_result"), ffi.new("bitnet_error *")
        pointer = ffi.from_buffer("int32_t[]", ids)

        def compute(engine: Any) -> None:
            try:
                watch.check(lib.bitnet_perplexity(engine, pointer, len(ids), options, result, err), err)
            finally:
                lib.bitnet_eval_reset(engine, 0, err)  # it worked in this sequence, whose pages requests may need

        self._idle(compute)
        return fill(_info.Perplexity, result)

    # ------------------------------------------------------------------ what it is and how it does

    @property
    def info(self) -> _info.EngineInfo:
        c = struct("bitnet_engine_info")

        def get(engine: Any) -> _info.EngineInfo:
            check(lib.bitnet_engine_get_info(engine, c), ffi.NULL)
            return fill(_info.EngineInfo, c)

        return self._exclusive(get)

    def set_adapters(self, adapters: Sequence[Any] = ()) -> None:
        """Adapters, or pairs of one and its scale, of requests that name none, and of logits, vectors and scores. (): none."""
        keep = Keep()
        uses, n = adapter_uses(adapters, keep)
        err = ffi.new("bitnet_error *")
        self._idle(lambda engine: check(lib.bitnet_engine_set_adapters(engine, uses, n, err), err))

    def warmup(self) -> None:
        """Everything that the first tokens would otherwise wait for."""
        err = ffi.new("bitnet_error *")
        self._idle(lambda engine: check(lib.bitnet_engine_warmup(engine, err), err))

    def health(self) -> _info.Health:
        c = struct("bitnet_health")
        self._exclusive(lambda engine: check(lib.bitnet_engine_health(engine, c), ffi.NULL))
        return fill(_info.Health, c)

    def kv_health(self, layer: int) -> _info.KVHealth:
        c, err = struct("bitnet_kv_health"), ffi.new("bitnet_error *")
        if not 0 <= layer < 2**32:
            raise Error(f"there is no layer {layer}", "arg")
        self._exclusive(lambda engine: check(lib.bitnet_engine_kv_health(engine, layer, c, err), err))
        return fill(_info.KVHealth, c)

    def scrub(self, max_bytes: int = 2**63) -> _info.Scrub:
        """Goes on with the checksums of the weights, at most to the end of a pass; the first pass takes them."""
        c, err = struct("bitnet_scrub"), ffi.new("bitnet_error *")

        def scrub(engine: Any) -> _info.Scrub:
            check(lib.bitnet_engine_scrub(engine, max_bytes, c, err), err)
            return fill(_info.Scrub, c)

        return self._exclusive(scrub)

    def memory(self) -> _info.Memory:
        """What this engine and its model hold."""
        m, e = self.model.info.memory, self.info
        parts = {"weights": m.packed_bytes, "head": m.head_bytes, "copies": m.head_copy_bytes + m.head_screen_bytes + m.ffn_copy_bytes,
                 "kv_cache": e.kv.bytes, "states": e.states.bytes, "scratch": e.scratch_bytes}
        return _info.Memory(**parts, total=sum(parts.values()))

    def profile(self) -> Profile:
        """Where the time of the steps went, of an engine opened with profile="on"; entries without calls are left out."""

        def entries(engine: Any) -> Profile:
            c, err = struct("bitnet_profile_entry"), ffi.new("bitnet_error *")
            whole = struct("bitnet_profile_info")
            check(lib.bitnet_profile_get_info(engine, whole, err), err)
            found, i = [], 0
            while lib.bitnet_profile_get(engine, i, c):
                if c.calls:
                    found.append(fill(_info.ProfileEntry, c))
                i += 1
            return Profile(found, *(fill(_info.ProfilePhase, phase) for phase in whole.phases))

        return self._exclusive(entries)

    def profile_reset(self) -> None:
        """The profile begins again."""
        self._exclusive(lib.bitnet_profile_reset)


def keep_tokens(keep: Keep, ids: Any) -> Any:
    pointer = ffi.from_buffer("int32_t[]", ids)
    keep.things.append((ids, pointer))
    return pointer


def _kv_type(name: str | None) -> int:
    if name is None or name == "auto":
        return int(lib.BITNET_KV_AUTO)
    name = {"fp8": "fp8_e4m3"}.get(name, name)
    known = []
    i = 1
    while lib.bitnet_kv_type_name(i) != ffi.NULL:
        known.append(text(lib.bitnet_kv_type_name(i)))
        i += 1
    if name not in known:
        raise Error(f"there is no KV cache type '{name}'; there are {', '.join(known)}", "arg")
    return known.index(name) + 1


def _wake(loop: asyncio.AbstractEventLoop, wakes: List[asyncio.Event]) -> None:
    def wake() -> None:
        for w in wakes:
            w.set()

    try:
        loop.call_soon_threadsafe(wake)
    except RuntimeError:  # the loop is closed; its streams are abandoned when they are collected
        pass
