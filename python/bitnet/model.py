# SPDX-License-Identifier: Apache-2.0
"""A model: weights, tokenizer and chat template. Immutable, and shared by any number of threads and engines."""
from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from . import info as _info
from ._ffi import ffi, lib
from ._native import (Error, Handle, PathLike, Progress, Watch, check, encoded, fill, process, struct, text, utf8)
from .request import Keep, Prompt, Sampling, default_sampling, read_sampling

Tokens = npt.NDArray[np.int32]
Message = Mapping[str, Any]

EMBEDDED = "embedded"


class Model:
    """Opens a GGUF file, a safetensors file or a Hugging Face folder; "embedded" is the small model in the package.

    >>> with Model() as model:
    ...     model.info.name, model.tokenize("Once upon a time")
    ('stories-31m', [0, 390, 389, 262, 365])

    The options are those of bitnet_model_options in bitnet.h.
    """

    def __init__(self, path: PathLike | None = EMBEDDED, *, threads: int = 0, vocab_only: bool = False,
                 progress: Progress | None = None, backend: str | None = None, activations: str | None = None,
                 i2s_layout: str | None = None, layout: str | None = None, head: str | None = None, ffn: str | None = None,
                 hugepages: str | None = None, numa: str | None = None, mmap: str | None = None, mlock: bool = False,
                 prefetch_bytes: int = 0, cache: PathLike | None = None, cache_min_bytes: int = 0, cache_max_bytes: int = 0,
                 cache_read_only: bool = False, verify: bool = False, plan: PathLike | None = None) -> None:
        keep = Keep()
        words = {"backend": backend, "activations": activations, "i2s_layout": i2s_layout, "layout": layout, "head": head,
                 "ffn": ffn, "hugepages": hugepages, "numa": numa, "mmap": mmap,
                 "cache": None if cache is None else os.fspath(cache), "plan": None if plan is None else os.fspath(plan)}
        watch = Watch(progress)
        options = struct("bitnet_model_options", threads=threads, vocab_only=int(vocab_only), mlock=int(mlock),
                         prefetch_bytes=prefetch_bytes, cache_min_bytes=cache_min_bytes, cache_max_bytes=cache_max_bytes,
                         cache_read_only=int(cache_read_only), verify=int(verify), progress=lib.bitnet_py_progress,
                         progress_user=watch.handle, **{k: keep.string(v, k) for k, v in words.items()})
        self.path = EMBEDDED if path is None else os.fsdecode(path)
        if not self.path:  # a variable that was never set, not a wish for the small model
            raise Error("the path of the model is empty; 'embedded' is the one in the package", "arg")
        where = ffi.NULL if self.path == EMBEDDED else keep.path(self.path)
        out, err = ffi.new("bitnet_model **"), ffi.new("bitnet_error *")
        watch.check(lib.bitnet_model_open(out, where, options, err), err)
        self._handle = Handle(out[0], lib.bitnet_model_close, "model")
        process.open.add(self)

    # ------------------------------------------------------------------ life

    def close(self) -> None:
        """Gives the memory back, when the last engine over it is closed as well. A second time does nothing."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.is_closed

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.close()

    def __repr__(self) -> str:
        return f"<bitnet.Model {self.path!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise TypeError("a model cannot be pickled: open it where it is needed; its pages are shared if the file is mapped")

    @contextlib.contextmanager
    def _pointer(self) -> Iterator[Any]:
        pointer = self._handle.enter()
        try:
            yield pointer
        finally:
            self._handle.leave()

    def _repr_html_(self) -> str:
        i = self.info
        return _info.table(i.name, [("architecture", i.architecture), ("parameters", f"{i.shape.n_params:,}"),
                                    ("ternary", f"{i.shape.n_params_ternary:,}"), ("layers", i.shape.n_layer),
                                    ("vocabulary", i.shape.n_vocab), ("context", i.shape.n_ctx_train),
                                    ("weights", i.weight_type), ("activations", i.act_quant),
                                    ("memory", f"{(i.memory.packed_bytes + i.memory.head_bytes) / 1e6:.1f} MB"),
                                    ("kernels", i.backend)])

    # ------------------------------------------------------------------ what it is

    @property
    def info(self) -> _info.ModelInfo:
        c = struct("bitnet_model_info")
        with self._pointer() as m:
            check(lib.bitnet_model_get_info(m, c), ffi.NULL)
            return fill(_info.ModelInfo, c)

    def sampling(self) -> Sampling:
        """The library's defaults with what the model's file recommends."""
        c = default_sampling()
        with self._pointer() as m:
            lib.bitnet_model_sampling(m, c)
        return read_sampling(c)

    # ------------------------------------------------------------------ tokens

    def encode(self, value: str, *, bos: Optional[bool] = None, special: bool = False) -> Tokens:
        """The tokens of a text as an array. bos: begin with the token for that; None: if the model asks for it. special:
        special tokens in the text are recognised."""
        data = utf8(value)
        flags = int(lib.BITNET_TOK_SPECIAL) if special else 0
        flags |= int(lib.BITNET_TOK_BOS_AUTO if bos is None else lib.BITNET_TOK_BOS if bos else 0)
        with self._pointer() as m:
            return _ints(len(data) // 3 + 8, lambda out, n, err: lib.bitnet_encode(m, data, len(data), flags, out, n, err))

    def tokenize(self, value: str, *, bos: Optional[bool] = None, special: bool = False) -> List[int]:
        """The tokens of a text as a list of ints; see encode()."""
        return list(map(int, self.encode(value, bos=bos, special=special)))

    def decode_bytes(self, tokens: Prompt, *, special: bool = False) -> bytes:
        """The bytes of tokens, which may end inside a character."""
        ids = as_tokens(tokens)
        flags = int(lib.BITNET_TOK_SPECIAL) if special else 0
        with self._pointer() as m:
            pointer = ffi.from_buffer("int32_t[]", ids)
            return sized_bytes(8 * len(ids) + 16, lambda out, n, err: lib.bitnet_decode(m, pointer, len(ids), flags, out, n, err))

    def detokenize(self, tokens: Prompt, *, special: bool = False) -> str:
        """The text of tokens; an incomplete character becomes U+FFFD.

        >>> with Model() as model:
        ...     model.detokenize(model.tokenize("Hello there"))
        'Hello there'
        """
        return self.decode_bytes(tokens, special=special).decode("utf-8", "replace")

    def token_text(self, token: int) -> str:
        """The token as written in the vocabulary."""
        with self._pointer() as m:
            p = lib.bitnet_token_text(m, _int32(token))
            if p == ffi.NULL:
                raise Error(f"there is no token {token}", "arg")
            return text(p)

    def is_end(self, token: int) -> bool:
        """Does this token end a text or a turn?"""
        with self._pointer() as m:
            return bool(lib.bitnet_token_is_end(m, _int32(token)))

    @property
    def bos(self) -> Optional[int]:
        with self._pointer() as m:
            token = int(lib.bitnet_token_bos(m))
        return None if token < 0 else token

    @property
    def eos(self) -> Optional[int]:
        """Ends a text, or a turn where nothing ends a text."""
        with self._pointer() as m:
            token = int(lib.bitnet_token_eos(m))
        return None if token < 0 else token

    @property
    def pad(self) -> Optional[int]:
        """Fills up shorter texts."""
        with self._pointer() as m:
            token = int(lib.bitnet_token_pad(m))
        return None if token < 0 else token

    def ends(self) -> List[int]:
        """All tokens that end a text or a turn."""
        n = self.info.shape.n_vocab
        with self._pointer() as m:
            return [i for i in range(n) if lib.bitnet_token_is_end(m, i)]

    def prompt_tokens(self, prompt: Prompt) -> Tokens:
        """A prompt as an engine takes it: a text is encoded, ids are checked."""
        return self.encode(prompt) if isinstance(prompt, str) else as_tokens(prompt)

    # ------------------------------------------------------------------ chat

    def chat_text(self, messages: Sequence[Message], *, template: str | None = None, add_generation_prompt: bool = True,
                  **more: Any) -> str:
        """A conversation as the model's template writes it. template: a built-in name or Jinja text; more: what else the
        template may look at, such as tools."""
        data, keep = _conversation(messages, more), Keep()
        with self._pointer() as m:
            name = keep.string(template, "a template")
            return sized_bytes(2 * len(data) + 256, lambda out, n, err: lib.bitnet_chat_render_json(
                m, data, len(data), name, int(add_generation_prompt), out, n, err)).decode("utf-8")

    def chat_tokens(self, messages: Sequence[Message], *, template: str | None = None, add_generation_prompt: bool = True,
                    **more: Any) -> List[int]:
        """The same as tokens. Not always encode(chat_text()): some families join separately encoded pieces."""
        data, keep = _conversation(messages, more), Keep()
        with self._pointer() as m:
            name = keep.string(template, "a template")
            return list(map(int, _ints(len(data) + 64, lambda out, n, err: lib.bitnet_chat_encode_json(
                m, data, len(data), name, int(add_generation_prompt), out, n, err))))

    @property
    def chat_template(self) -> str | None:
        """The model's own: Jinja text, "" for a built-in, None if there is none that can be used."""
        found, err = ffi.new("char const **"), ffi.new("bitnet_error *")
        with self._pointer() as m:
            status = lib.bitnet_chat_template_text(m, ffi.NULL, found, err)
            if status == lib.BITNET_E_NOMEM:
                check(status, err)
            return text(found[0]) if status == lib.BITNET_OK else None


def open_model(model: Union[Model, PathLike]) -> tuple[Model, bool]:
    """A model from a model or a path, and whether it was opened here."""
    return (model, False) if isinstance(model, Model) else (Model(model), True)


def as_tokens(tokens: Prompt) -> Tokens:
    """Ids as the C interface takes them: one dimension, int32, contiguous."""
    if isinstance(tokens, (str, bytes)):
        raise Error("ids of tokens are wanted here, not a text", "arg")
    try:
        ids = np.asarray(tokens)
    except (ValueError, TypeError) as e:
        raise Error(f"these are no ids of tokens: {e}", "arg") from None
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise Error(f"ids of tokens are a list of integers, not {ids.ndim} dimensions of {ids.dtype}", "arg")
    if ids.size and (int(ids.min()) < -(2**31) or int(ids.max()) >= 2**31):
        raise Error("an id of a token does not fit 32 bits", "arg")
    return np.ascontiguousarray(ids, dtype=np.int32)


def _int32(token: int) -> int:
    return token if -(2**31) <= token < 2**31 else -1


def _conversation(messages: Sequence[Message], more: Mapping[str, Any]) -> bytes:
    if isinstance(messages, Mapping) or not all(isinstance(m, Mapping) for m in messages):
        raise Error("a conversation is a list of messages, each with 'role' and 'content'", "arg")
    whole: Dict[str, Any] = {"messages": [dict(m) for m in messages], **more}
    return encoded(json.dumps(whole, ensure_ascii=True))


def _sized(room: int, make: Callable[[int], Any], call: Callable[[Any, Any, Any], Any]) -> tuple[Any, int]:
    """A call with a buffer that may be too small the first time."""
    n, err = ffi.new("size_t *"), ffi.new("bitnet_error *")
    for _ in range(2):
        out = make(room)
        n[0] = room
        status = call(out, n, err)
        if status != lib.BITNET_E_LIMIT or n[0] <= room:
            break
        room = int(n[0])
    check(status, err)
    return out, int(n[0])


def _ints(room: int, call: Callable[[Any, Any, Any], Any]) -> Tokens:
    made: Tokens = np.empty(0, np.int32)

    def make(n: int) -> Any:
        nonlocal made
        made = np.empty(n, np.int32)
        return ffi.from_buffer("int32_t[]", made)

    _, n = _sized(room, make, call)
    return made[:n].copy()


def sized_bytes(room: int, call: Callable[[Any, Any, Any], Any]) -> bytes:
    out, n = _sized(room, lambda size: ffi.new("char[]", size), call)
    return bytes(ffi.buffer(out, n))
