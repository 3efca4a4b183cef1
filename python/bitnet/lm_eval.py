# SPDX-License-Identifier: Apache-2.0
"""An adapter for lm-evaluation-harness, which then knows `--model bitnet`:

    python3 -m bitnet.lm_eval --model bitnet --model_args pretrained=model.gguf --tasks arc_easy,hellaswag

Options are the harness's own. It is not a dependency: BitNetLM has its interface (loglikelihood, loglikelihood_rolling,
generate_until) and becomes a subclass of its LM where lm_eval is installed.

Log-likelihoods are those of `bitnet eval`: spaces at the end of a context move to the continuation, the whole text is
encoded, and the tokens behind the context's are scored. What contexts have in common is computed once."""
from __future__ import annotations

import sys
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

import numpy as np

from ._native import Error, PathLike
from .engine import Engine
from .model import Model, Tokens
from .names import find_model
from .request import Request, Sampling

BATCH = 1024  # texts that are scored in one call: it bounds memory, and the harness sorts nothing itself


class Instance(Protocol):
    """What the harness asks: `args` are (context, continuation), (text,) or (context, options)."""

    @property
    def args(self) -> Tuple[Any, ...]: ...


class BitNetLM:
    """
    >>> lm = BitNetLM("embedded")
    >>> class Ask:
    ...     args = ("Once upon a", " time")
    >>> [(logprob, greedy)] = lm.loglikelihood([Ask()])
    >>> greedy
    True
    """

    rank, world_size = 0, 1

    def __init__(self, pretrained: PathLike = "embedded", *, batch_size: Any = 16, max_length: int = 0, num_threads: int = 0,
                 kv_cache_dtype: Optional[str] = None, add_bos_token: Any = False, max_gen_toks: int = 256,
                 device: Optional[str] = None, **_: Any) -> None:
        """batch_size: sequences at a time, at least 8; "auto" is 16. What else the harness gives to every model is let
        be."""
        if device not in (None, "cpu"):
            raise Error(f"this library computes on the CPU, not on '{device}'", "unsupported")
        seqs = 16 if str(batch_size).startswith("auto") else max(8, int(batch_size))
        self.model = Model(find_model(pretrained))
        asked = int(max_length)
        context = min(asked + 1, self.model.info.shape.n_ctx_train) if asked else 0
        self.engine = Engine(self.model, threads=int(num_threads), max_seqs=seqs, ctx_tokens=context, kv_type=kv_cache_dtype)
        self.max_length = self.engine.info.ctx_tokens - 1  # the harness counts what a model reads: the last token is only scored
        self.max_gen_toks = int(max_gen_toks)
        self.add_bos_token = str(add_bos_token).lower() in ("true", "1")

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Optional[Mapping[str, Any]] = None) -> BitNetLM:
        pairs = (word.split("=", 1) for word in arg_string.split(",") if word)
        return cls.create_from_arg_obj(dict(pairs), additional_config)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Mapping[str, Any], additional_config: Optional[Mapping[str, Any]] = None) -> BitNetLM:
        more = {k: v for k, v in (additional_config or {}).items() if v is not None}
        return cls(**{**arg_dict, **more})

    # ------------------------------------------------------------------ tokens

    def _encode(self, text: str) -> Tokens:
        return self.model.encode(text, bos=self.add_bos_token, special=True)

    def _beginning(self) -> Tokens:
        """Stands before a text without context."""
        bos = self.model.bos
        if bos is None:
            raise Error("a text has no context, and the model no token that begins one")
        return np.array([bos], np.int32)

    def _pair(self, context: str, continuation: str) -> Tuple[Tokens, Tokens]:
        kept = context.rstrip(" \t\n\r")
        if not kept:
            return self._fit(self._beginning(), self.model.encode(continuation, bos=False, special=True))
        before = self._encode(kept)
        return self._fit(before, self._encode(context + continuation)[len(before):])

    def _fit(self, context: Tokens, continuation: Tokens) -> Tuple[Tokens, Tokens]:
        """Too long a text loses its beginning."""
        over = len(context) + len(continuation) - (self.max_length + 1)
        if len(continuation) == 0:
            raise Error("a continuation makes no token", "arg")
        if over >= len(context):
            raise Error(f"a continuation of {len(continuation)} tokens does not fit {self.max_length} of them", "limit")
        return (context[over:] if over > 0 else context), continuation

    # ------------------------------------------------------------------ what the harness calls

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        """The log-probability of each continuation, and whether greedy decoding would write it."""
        found: List[Tuple[float, bool]] = []
        for begin in range(0, len(requests), BATCH):
            pairs = [self._pair(*r.args) for r in requests[begin:begin + BATCH]]
            found += [(s.logprob, s.greedy) for s in self.engine.score(pairs)]
        return found

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> List[float]:
        """The log-probability of whole texts. Every token is scored once: windows follow each other, the last one with as
        much before it as fits."""
        return [sum(s.logprob for s in self.engine.score(self._windows(r.args[0]))) for r in requests]

    def _windows(self, text: str) -> List[Tuple[Tokens, Tokens]]:
        tokens = self.model.encode(text, bos=False, special=True)
        n = self.max_length
        windows = []
        for begin in range(0, len(tokens), n):
            rest = tokens[begin:begin + n]
            if begin == 0:
                before = self._beginning()
            else:  # the token before, or as many as leave room
                before = tokens[max(0, begin - (n + 1 - len(rest))):begin]
            windows.append((before, rest))
        return windows

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> List[str]:
        """Texts up to one of the given strings."""
        return [r.text for r in self.engine.generate_many(self._asked(*r.args) for r in requests)]

    def _asked(self, context: str, options: Mapping[str, Any]) -> Request:
        until: Any = options.get("until") or ()
        room = int(options.get("max_gen_toks", self.max_gen_toks))
        prompt = self._encode(context)[-max(1, self.max_length - room):]
        temperature = float(options.get("temperature", 0.0)) if options.get("do_sample", True) else 0.0
        drawn = Sampling(temperature=temperature, top_p=float(options.get("top_p", 1.0)), top_k=int(options.get("top_k", 0)), min_p=0.0)
        stop = (until,) if isinstance(until, str) else tuple(until)
        return Request(prompt if len(prompt) else self._beginning(), room, drawn, stop=tuple(s for s in stop if s))

    # ------------------------------------------------------------------ chat

    @property
    def tokenizer_name(self) -> str:
        return self.model.path.replace("/", "__")

    def chat_template(self, chat_template: Any = False) -> str:
        return self.model.chat_template or ""

    def apply_chat_template(self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.model.chat_text(chat_history, add_generation_prompt=add_generation_prompt)


def register() -> Any:
    """Makes the harness know the name "bitnet"; its class there."""
    import importlib

    api = importlib.import_module("lm_eval.api.model")
    registry = importlib.import_module("lm_eval.api.registry")

    def construct(self: Any, *args: Any, **options: Any) -> None:
        api.LM.__init__(self)
        BitNetLM.__init__(self, *args, **options)

    made = type("BitNetHarnessLM", (BitNetLM, api.LM), {"__init__": construct})
    return registry.register_model("bitnet")(made)


def main() -> Any:
    import importlib

    try:
        register()
        harness = importlib.import_module("lm_eval.__main__")
    except ImportError:
        raise SystemExit("lm-evaluation-harness is not installed (python3 -m pip install lm-eval)") from None
    return harness.cli_evaluate()


if __name__ == "__main__":
    sys.exit(main())
