# SPDX-License-Identifier: Apache-2.0
"""A model's tokenizer with the interface of transformers."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from ._native import Error, PathLike
from .arrays import tensor, to_numpy
from .model import Message, Model, as_tokens
from .names import find_model


class BatchEncoding(Dict[str, Any]):
    """input_ids and attention_mask, as keys and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, device: Any) -> BatchEncoding:
        if str(device) != "cpu":
            raise Error(f"this library computes on the CPU, not on '{device}'", "unsupported")
        return self


class Tokenizer:
    """Texts to ids and back.

    >>> tokenizer = AutoTokenizer.from_pretrained("embedded")
    >>> batch = tokenizer(["a cat", "Once upon a time"], padding="longest", return_tensors="np")
    >>> batch["input_ids"].shape, batch.attention_mask.tolist()[0]
    ((2, 5), [0, 0, 1, 1, 1])
    >>> tokenizer.decode(batch["input_ids"][1], skip_special_tokens=True)
    'Once upon a time'

    padding_side is "left", as generation wants it: the last place of every row is the text's last token.
    """

    def __init__(self, model: Model, padding_side: str = "left") -> None:
        if padding_side not in ("left", "right"):
            raise Error(f"padding_side is 'left' or 'right', not '{padding_side}'", "arg")
        self.model = model
        self.padding_side = padding_side
        self.bos_token_id = model.bos
        self.eos_token_id = model.eos
        pad = model.pad if model.pad is not None else model.eos
        self.pad_token_id = 0 if pad is None else pad  # what is hidden by the mask needs a name, not a meaning
        self.vocab_size = model.info.shape.n_vocab
        self.model_max_length = model.info.shape.n_ctx_train

    def __len__(self) -> int:
        return self.vocab_size

    # ------------------------------------------------------------------ to ids

    def encode(self, text: str, *, add_special_tokens: bool = True, truncation: bool = False,
               max_length: Optional[int] = None) -> List[int]:
        """Special tokens in the text are recognised, as in transformers."""
        ids = self.model.tokenize(text, bos=None if add_special_tokens else False, special=True)
        return ids[:max_length or self.model_max_length] if truncation else ids

    def __call__(self, text: Union[str, Sequence[str]], *, padding: Union[bool, str] = False, truncation: bool = False,
                 max_length: Optional[int] = None, return_tensors: Optional[str] = None,
                 add_special_tokens: bool = True) -> BatchEncoding:
        single = isinstance(text, str)
        texts = [text] if isinstance(text, str) else list(text)
        ids = [self.encode(t, add_special_tokens=add_special_tokens, truncation=truncation, max_length=max_length)
               for t in texts]
        return self._batch(ids, padding, max_length, return_tensors, single and return_tensors is None)

    def pad(self, ids: Sequence[Sequence[int]], *, padding: Union[bool, str] = True, max_length: Optional[int] = None,
            return_tensors: Optional[str] = None) -> BatchEncoding:
        return self._batch([list(row) for row in ids], padding, max_length, return_tensors, False)

    def _batch(self, ids: List[List[int]], padding: Union[bool, str], max_length: Optional[int],
               return_tensors: Optional[str], single: bool) -> BatchEncoding:
        width = self._width(ids, padding, max_length)
        masks = [[1] * len(row) for row in ids]
        if width is not None:
            masks = [self._filled(row, width, 0) for row in masks]
            ids = [self._filled(row, width, self.pad_token_id) for row in ids]
        if return_tensors is None:
            return BatchEncoding(input_ids=ids[0] if single else ids, attention_mask=masks[0] if single else masks)
        if len(set(map(len, ids))) > 1:
            raise Error("texts of different lengths make a tensor only with padding=True or 'longest'", "arg")
        return BatchEncoding(input_ids=tensor(np.array(ids, np.int64), return_tensors),
                             attention_mask=tensor(np.array(masks, np.int64), return_tensors))

    def _width(self, ids: List[List[int]], padding: Union[bool, str], max_length: Optional[int]) -> Optional[int]:
        if padding in (False, "do_not_pad"):
            return None
        if padding == "max_length":
            return max_length or self.model_max_length
        if padding in (True, "longest"):
            return max(map(len, ids), default=0)
        raise Error(f"padding is True, False, 'longest' or 'max_length', not '{padding}'", "arg")

    def _filled(self, row: List[int], width: int, value: int) -> List[int]:
        more = [value] * (width - len(row))
        return more + row if self.padding_side == "left" else row + more

    # ------------------------------------------------------------------ to texts

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> str:
        ids = to_numpy(token_ids)
        return self.model.detokenize(as_tokens([ids] if np.ndim(ids) == 0 else ids), special=not skip_special_tokens)

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False) -> List[str]:
        return [self.decode(row, skip_special_tokens) for row in to_numpy(sequences)]

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> List[str]:
        return [self.model.token_text(int(i)) for i in ids]

    # ------------------------------------------------------------------ chat

    def apply_chat_template(self, conversation: Sequence[Message], *, tokenize: bool = True, add_generation_prompt: bool = False,
                            chat_template: Optional[str] = None, return_tensors: Optional[str] = None, return_dict: bool = False,
                            **more: Any) -> Any:
        """A conversation as ids, [1][n] with return_tensors, or as text with tokenize=False. return_dict: as a batch, with
        the attention mask. more: what else the template may look at, such as tools."""
        if not tokenize:
            return self.model.chat_text(conversation, template=chat_template, add_generation_prompt=add_generation_prompt, **more)
        ids = self.model.chat_tokens(conversation, template=chat_template, add_generation_prompt=add_generation_prompt, **more)
        if return_dict:
            return self._batch([ids], False, None, return_tensors, return_tensors is None)
        return tensor(np.array([ids], np.int64), return_tensors) if return_tensors else ids

    @property
    def chat_template(self) -> Optional[str]:
        return self.model.chat_template


class AutoTokenizer:
    """Opens the tokenizer of a model; its weights are not read."""

    @staticmethod
    def from_pretrained(name: PathLike, *, padding_side: str = "left", **_: Any) -> Tokenizer:
        """What else code for transformers gives (use_fast, trust_remote_code, ...) has no meaning here."""
        return Tokenizer(Model(find_model(name), vocab_only=True), padding_side)


class TextStreamer:
    """Prints a generation as it is made: model.generate(ids, streamer=TextStreamer(tokenizer))."""

    def __init__(self, tokenizer: Tokenizer, skip_prompt: bool = False) -> None:
        self.tokenizer = tokenizer
        self.skip_prompt = skip_prompt
        self._begun = False
        self._pending = b""

    def put(self, value: Any) -> None:
        """Ids of the prompt first, then of each token."""
        first, self._begun = not self._begun, True
        if first and self.skip_prompt:
            return
        ids = np.asarray(to_numpy(value)).reshape(-1)
        self._pending += self.tokenizer.model.decode_bytes(ids)
        text = self._whole()
        if text:
            self.on_finalized_text(text)

    def _whole(self) -> str:
        """The characters that are complete."""
        for keep in range(min(4, len(self._pending) + 1)):
            end = len(self._pending) - keep
            try:
                text = self._pending[:end].decode()
            except UnicodeDecodeError:
                continue
            self._pending = self._pending[end:]
            return text
        text, self._pending = self._pending.decode("utf-8", "replace"), b""
        return text

    def end(self) -> None:
        rest, self._pending, self._begun = self._pending.decode("utf-8", "replace"), b"", False
        self.on_finalized_text(rest, stream_end=True)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        print(text, end="\n" if stream_end else "", flush=True)
