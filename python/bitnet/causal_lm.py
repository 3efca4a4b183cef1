# SPDX-License-Identifier: Apache-2.0
"""A model with the interface of transformers: BitNetForCausalLM."""
from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, List, Mapping, Optional, Protocol, Sequence, Set, Type, TypeVar, Union

import numpy as np
import numpy.typing as npt

from ._native import Error, PathLike
from .adapter import Adapter
from .arrays import like, rows
from .engine import Engine
from .functional import repeated_share
from .info import Health
from .model import Model, Tokens
from .names import find_model
from .request import Request, Sampling
from .stream import Stream

Self = TypeVar("Self", bound="BitNetForCausalLM")

SCRUB_BLOCK = 64 << 10  # bytes of a checksum (bitnet_engine_scrub)
HINTS = {"torch_dtype", "dtype", "low_cpu_mem_usage", "trust_remote_code"}
ACTIVATIONS = {None: None, "auto": None, "int8": "int8", "int16": "int16", "float16": "f32", "bfloat16": "f32", "float32": "f32"}


class Streamer(Protocol):
    """What generate() tells: the prompt's ids, then those of each token, then the end."""

    def put(self, value: Any) -> None: ...

    def end(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Config:
    """What the model is, by transformers' names."""

    model_type: str
    activation_dtype: str
    weight_dtype: str
    kv_cache_dtype: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    bos_token_id: Optional[int]
    eos_token_id: List[int]


@dataclasses.dataclass(frozen=True)
class CausalLMOutput:
    """logits: [batch][tokens][vocabulary]"""

    logits: Any

    def __getitem__(self, i: Union[int, str]) -> Any:
        if i in (0, "logits"):
            return self.logits
        raise KeyError(i)


@dataclasses.dataclass(frozen=True)
class Wish:
    """The options of generate() that concern each sequence alone."""

    max_new_tokens: int
    sampling: Sampling
    ends: Optional[Set[int]]  # None: the model's own
    stop: Sequence[str]


class BitNetForCausalLM:
    """Weights and an engine over them.

    >>> model = BitNetForCausalLM.from_pretrained("embedded").to("cpu").eval()
    >>> model.config.activation_dtype
    'int8'
    >>> model.generate([[0, 390, 389, 262, 365]], max_new_tokens=3).tolist()
    [[0, 390, 389, 262, 365, 15, 372, 287]]

    Numpy arrays in give numpy arrays out, torch tensors give torch tensors, and lists give arrays.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        info = engine.model.info
        shape = info.shape
        self.config = Config(info.architecture, info.act_quant, info.weight_type, engine.info.kv.type, shape.n_vocab, shape.n_embd,
                             shape.n_ff, shape.n_layer, shape.n_head, shape.n_head_kv, shape.n_ctx_train, bool(shape.tied_head),
                             engine.model.bos, engine.model.ends())
        self.device = "cpu"
        self._adapters: Dict[str, Adapter] = {}
        engine.scrub()  # the checksums that get_sign_flip_rate() compares with

    @classmethod
    def from_pretrained(cls: Type[Self], name: PathLike, *, kv_cache_dtype: Optional[str] = None, activation_dtype: Optional[str] = None,
                        use_fast_kernels: bool = True, num_threads: int = 0, max_batch_size: int = 8, max_seq_len: int = 0,
                        use_mmap: bool = True, device_map: Any = None, **hints: Any) -> Self:
        """name: "embedded", a path, or a name that find_model() knows. kv_cache_dtype: "f16", "fp8", "int8", ...
        activation_dtype: input of the linear layers; None: as the model was trained. use_fast_kernels=False takes the
        portable C kernels; the results are the same. max_seq_len: 0, and more than the model knows, is its context.
        torch_dtype, dtype, low_cpu_mem_usage and trust_remote_code are taken because code for transformers gives them, and
        change nothing: weights keep the types of their file, which is mapped, and no code is loaded."""
        unknown = sorted(set(hints) - HINTS)
        if unknown:
            raise TypeError(f"from_pretrained() has no option '{unknown[0]}'")
        where = set(map(str, device_map.values())) if isinstance(device_map, Mapping) else {str(device_map)}
        if not where <= {"None", "auto", "cpu"}:
            raise Error(f"this library computes on the CPU, not on '{sorted(where)[0]}'", "unsupported")
        if activation_dtype not in ACTIVATIONS:
            known = ", ".join(str(k) for k in ACTIVATIONS if k)
            raise Error(f"activation_dtype is one of {known}, not '{activation_dtype}'", "arg")
        model = Model(find_model(name), threads=num_threads, activations=ACTIVATIONS[activation_dtype],
                      backend=None if use_fast_kernels else "scalar", mmap=None if use_mmap else "off")
        context = min(max_seq_len, model.info.shape.n_ctx_train)
        engine = Engine(model, threads=num_threads, max_seqs=max_batch_size, ctx_tokens=context, kv_type=kv_cache_dtype)
        engine._owns_model = True
        return cls(engine)

    def to(self: Self, device: Any = "cpu", dtype: Any = None) -> Self:
        """Accepts the CPU only. Types are the model's own: another dtype is an error."""
        if str(device) != "cpu":
            raise Error(f"this library computes on the CPU, not on '{device}'", "unsupported")
        if dtype is not None:
            raise Error("a ternary model keeps its types; activation_dtype of from_pretrained() chooses the activations", "unsupported")
        return self

    def eval(self: Self) -> Self:
        return self

    def train(self: Self, mode: bool = True) -> Self:
        if mode:
            raise Error("models cannot be trained here", "unsupported")
        return self

    def close(self) -> None:
        for adapter in self._adapters.values():
            adapter.close()
        self.engine.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ adapters

    def load_adapter(self, path: PathLike, adapter_name: str = "default") -> None:
        """Opens a PEFT folder or a GGUF adapter and turns it on, alone."""
        if adapter_name in self._adapters:
            raise Error(f"there is an adapter '{adapter_name}' already", "arg")
        self._adapters[adapter_name] = Adapter(self.engine.model, path)
        self.set_adapter(adapter_name)

    def set_adapter(self, adapter_name: Union[str, Sequence[str]]) -> None:
        """These are on and all others off."""
        names = [adapter_name] if isinstance(adapter_name, str) else list(adapter_name)
        for name in names:
            if name not in self._adapters:
                raise Error(f"there is no adapter '{name}'", "arg")
        self.engine.set_adapters([self._adapters[name] for name in names])

    def disable_adapters(self) -> None:
        """All are off; set_adapter() turns some on again."""
        self.engine.set_adapters()

    # ------------------------------------------------------------------ logits

    def __call__(self, input_ids: Any, attention_mask: Any = None) -> CausalLMOutput:
        """The logits of every position. Places that the mask hides are not computed and get zeros."""
        prompts = rows(input_ids, attention_mask)
        if not prompts or any(len(p) == 0 for p in prompts):
            raise Error("a prompt without tokens has no logits", "arg")
        places = [np.arange(len(p)) for p in prompts] if attention_mask is None else places_of(attention_mask)
        width = int(max(p[-1] + 1 for p in places)) if attention_mask is None else int(np.shape(attention_mask)[-1])
        out: npt.NDArray[np.float32] = np.zeros((len(prompts), width, self.config.vocab_size), np.float32)
        for row, prompt, place in zip(out, prompts, places):
            first, n = int(place[0]), len(prompt)
            if int(place[-1]) - first + 1 == n:  # in one piece, as padding leaves it: C writes where it belongs
                self.engine.logits(prompt, out=row[first:first + n])
            else:
                row[place] = self.engine.logits(prompt)
        return CausalLMOutput(like(input_ids, out))

    forward = __call__

    # ------------------------------------------------------------------ generation

    def generate(self, input_ids: Any, *, attention_mask: Any = None, max_new_tokens: Optional[int] = None,
                 max_length: Optional[int] = None, do_sample: bool = False, temperature: float = 1.0, top_k: int = 50,
                 top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0, num_return_sequences: int = 1,
                 eos_token_id: Union[int, Iterable[int], None] = None, pad_token_id: Optional[int] = None, seed: int = 0,
                 stop_strings: Sequence[str] = (), streamer: Optional[Streamer] = None, num_beams: int = 1, use_cache: bool = True) -> Any:
        """Prompts with what follows them, [batch * num_return_sequences][tokens], filled up with pad_token_id (the first
        end token without one). Without do_sample the likeliest tokens are taken. Without max_new_tokens and max_length
        20 tokens are made, as transformers does. Sequence i of a prompt draws with seed + i. num_beams is 1; the cache is always
        used, and use_cache changes nothing."""
        if num_beams != 1:
            raise Error(f"there is no search with {num_beams} beams: num_beams is 1", "unsupported")
        if num_return_sequences < 1:
            raise Error(f"num_return_sequences is at least 1, not {num_return_sequences}", "arg")
        prompts = rows(input_ids, attention_mask)
        if streamer is not None and len(prompts) * num_return_sequences != 1:
            raise Error("a streamer takes one sequence at a time", "arg")
        ends = None if eos_token_id is None else {eos_token_id} if isinstance(eos_token_id, int) else set(eos_token_id)
        sampling = Sampling(temperature=temperature if do_sample else 0.0, top_k=top_k, top_p=top_p, min_p=min_p,
                            repetition_penalty=repetition_penalty, seed=seed) if do_sample else Sampling(
                                temperature=0.0, repetition_penalty=repetition_penalty)
        jobs = []
        for prompt in prompts:
            room = max_new_tokens if max_new_tokens is not None else 20 if max_length is None else max_length - len(prompt)
            if room < 1:
                raise Error(f"a prompt of {len(prompt)} tokens leaves no room for new ones", "limit")
            for i in range(num_return_sequences):
                drawn = dataclasses.replace(sampling, seed=(seed + i) % 2**64)
                jobs.append((prompt, Wish(room, drawn, ends, stop_strings)))
        if streamer is not None:
            streamer.put(like(input_ids, np.array([prompts[0]], np.int64)))
        made = self._run(jobs, streamer)
        if streamer is not None:
            streamer.end()
        return self._joined(input_ids, attention_mask, [j[0] for j in jobs], made, num_return_sequences, pad_token_id)

    def _run(self, jobs: List[tuple[Tokens, Wish]], streamer: Optional[Streamer]) -> List[List[int]]:
        """New tokens of each; what does not fit the engine at a time waits."""
        streams: List[Stream] = []
        made: List[List[int]] = []
        room = 2 * self.engine.info.max_seqs
        try:
            for i in range(len(jobs)):
                while len(streams) < min(len(jobs), i + room):
                    streams.append(self._submit(*jobs[len(streams)]))
                made.append(self._read(streams[i], jobs[i][1].ends, streamer))
        finally:
            for stream in streams:
                stream.close()
        return made

    def _submit(self, prompt: Tokens, wish: Wish) -> Stream:
        return self.engine.stream(Request(prompt, wish.max_new_tokens, wish.sampling, stop=tuple(wish.stop),
                                          ignore_end=wish.ends is not None))

    def _read(self, stream: Stream, ends: Optional[Set[int]], streamer: Optional[Streamer]) -> List[int]:
        tokens: List[int] = []
        for event in stream:
            if event.token is None:
                continue
            tokens.append(event.token)
            if streamer is not None:
                streamer.put(np.array([event.token], np.int64))
            if ends is not None and event.token in ends:
                break
        stream.close()
        return tokens

    def _joined(self, input_ids: Any, mask: Any, prompts: List[Tokens], made: List[List[int]], copies: int,
                pad_token_id: Optional[int]) -> Any:
        """Behind the prompts as they were given, padding included, come the new tokens."""
        pad = pad_token_id if pad_token_id is not None else (self.config.eos_token_id or [0])[0]
        given = rows(input_ids) if mask is not None else prompts[::copies]
        width = max(map(len, given)) + max(map(len, made))
        out: npt.NDArray[np.int64] = np.full((len(made), width), pad, np.int64)
        for i, tokens in enumerate(made):
            before = given[i // copies]
            out[i, :len(before)] = before
            out[i, len(before):len(before) + len(tokens)] = tokens
        return like(input_ids, out)

    # ------------------------------------------------------------------ health

    def get_sign_flip_rate(self) -> float:
        """The share of the packed weights, in blocks of 64 KiB, whose bits are not those that were loaded. 0.0 on a sound
        machine. Reads all weights once."""
        state = self.engine.scrub()
        return min(1.0, state.mismatches * SCRUB_BLOCK / state.total_bytes) if state.total_bytes else 0.0

    def repetition_score(self, tokens: Any = None) -> float:
        """The share of 3-grams that stood in a text before: of these ids, or, without any, the running mean over what the
        engine has generated."""
        return self.engine.health().repetition if tokens is None else repeated_share(rows(tokens)[0])

    def health(self) -> Health:
        return self.engine.health()

    def kv_entropy(self) -> List[float]:
        """Bits of the keys in the KV cache, by layer."""
        return [self.engine.kv_health(i).keys.entropy_bits for i in range(self.config.num_hidden_layers)]


def places_of(mask: Any) -> List[npt.NDArray[np.int64]]:
    return [np.flatnonzero(row) for row in np.atleast_2d(np.asarray(mask))]
