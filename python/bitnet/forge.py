# SPDX-License-Identifier: Apache-2.0
"""Smaller and cheaper models, and what that costs: layers left out, plans of what can be saved, and the divergence from the
untouched model. All of it is the library's."""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from . import info as _info
from ._ffi import ffi, lib
from ._native import Error, PathLike, Progress, Watch, fill, struct, text
from .engine import Engine
from .files import source
from .model import Model, Tokens, open_model
from .names import find_model
from .report import bars
from .request import Keep, Prompt

CRITERIA = {"ppl": "BITNET_PRUNE_PERPLEXITY", "kl": "BITNET_PRUNE_KL", "bi": "BITNET_PRUNE_INFLUENCE", "variance": "BITNET_PRUNE_VARIANCE"}
WINDOW = 256  # tokens of a window, where pruning is measured
SAMPLE = 128  # tokens of a sample for calibrate()
LEAST_SAMPLES = 8
SPREAD = 4  # of a long text so many times the samples' tokens are looked at, as the program does


def compare(base: Engine, other: Engine, prompt: Prompt, *, ctx_tokens: int = 0, progress: Optional[Progress] = None) -> _info.Divergence:
    """How far one engine's distributions of the next token are from another's on a text: KL divergence, agreement of the
    likeliest token, perplexities. For two models with the same tokenizer, or one model with two settings.

    >>> with Model() as model, Engine(model) as base, Engine(model, kv_type="int4") as other:
    ...     harm = compare(base, other, "Once upon a time there was a little girl. " * 60, ctx_tokens=128)
    >>> 0 < harm.kl_mean < 0.1, harm.same_top > 0.8
    (True, True)
    """
    if base is other:
        raise Error("an engine is compared with another one, not with itself", "arg")
    ids = base.model.prompt_tokens(prompt)
    watch, err, result = Watch(progress), ffi.new("bitnet_error *"), struct("bitnet_divergence")
    options = struct("bitnet_compare_options", ctx_tokens=ctx_tokens, progress=lib.bitnet_py_progress, progress_user=watch.handle)
    pointer = ffi.from_buffer("int32_t[]", ids)

    def compute(b: Any, o: Any) -> None:
        try:
            watch.check(lib.bitnet_compare(b, o, pointer, len(ids), options, result, err), err)
        finally:
            for engine in (b, o):
                lib.bitnet_eval_reset(engine, 0, ffi.new("bitnet_error *"))

    if id(base) < id(other):  # always in one order, so that two threads do not wait for each other
        base._idle(lambda b: other._idle(lambda o: compute(b, o)))
    else:
        other._idle(lambda o: base._idle(lambda b: compute(b, o)))
    return fill(_info.Divergence, result)


# ------------------------------------------------------------------ fewer layers


@dataclasses.dataclass(frozen=True)
class Pruning:
    """What prune() has found. steps: the whole model, then the model after each removal; scores: of each layer, by the
    criterion, NaN where none was measured; over_budget: perplexity of a step that was not taken, or 0."""

    steps: List[_info.PruneStep]
    scores: List[float]
    n_tokens: int
    over_budget: float

    @property
    def layers(self) -> List[int]:
        """Those that go, by their numbers in the whole model, in the order of the steps."""
        return [s.first_layer + i for s in self.steps[1:] for i in range(s.n_layers)]

    def _repr_html_(self) -> str:
        rows = [(f"layer {s.first_layer} out" if i else "whole model", s.perplexity, f"perplexity {s.perplexity:.4g}, KL {s.kl:.4g}")
                for i, s in enumerate(self.steps)]
        return bars("Pruning", rows)


def prune(model: PathLike, target: Optional[PathLike], prompt: Prompt, *, drop: Optional[int] = None, target_layers: Optional[int] = None,
          layers: Optional[Sequence[int]] = None, max_ppl_increase: float = 0.0, criterion: str = "ppl", protect: Sequence[int] = (),
          unit: int = 1, ctx_tokens: int = 0, threads: int = 0, name: Optional[str] = None, ffn_dead: bool = False, portable: bool = False,
          overwrite: bool = False, progress: Optional[Progress] = None) -> Pruning:
    """Leaves out the layers that a text can best do without, and writes the model without them to `target`; None writes
    nothing. How many: drop, target_layers, or a list of layers; or max_ppl_increase in percent alone. criterion: "ppl",
    "kl", "bi" or "variance". With ffn_dead, channels that are always zero go as well.

    >>> prune("embedded", None, "Once upon a time there was a little girl. " * 30, drop=1, criterion="bi").steps[-1].layers_left
    9
    """
    if criterion not in CRITERIA:
        raise Error(f"criterion is one of {', '.join(CRITERIA)}, not '{criterion}'", "arg")
    if target is not None and not overwrite and os.path.exists(target):
        raise Error(f"'{os.fspath(target)}' exists already; overwrite=True replaces it", "arg")
    path = find_model(model)
    with Model(path, threads=threads, plan="off") as m:
        shape = m.info.shape
        going = _how_many(shape.n_layer, unit, drop, target_layers, layers, max_ppl_increase)
        window = ctx_tokens or min(WINDOW, shape.n_ctx_train)
        ids = m.prompt_tokens(prompt)
        with Engine(m, threads=threads, ctx_tokens=window, max_batch_tokens=window, prefix_cache="off", plan="off") as engine:
            found = _search(engine, ids, going, shape.n_layer, criterion, unit, window, layers, protect, max_ppl_increase, progress)
    if target is not None:
        record = f"{len(ids)} tokens, windows of {window}"
        _write(path, target, found, "list" if layers is not None else criterion, record, name, ffn_dead, portable, overwrite, progress)
    return found


def _how_many(n: int, unit: int, drop: Optional[int], target_layers: Optional[int], layers: Optional[Sequence[int]],
              max_ppl_increase: float) -> int:
    """Layers that are to go."""
    if sum(x is not None for x in (drop, target_layers, layers)) > 1:
        raise Error("drop, target_layers and layers say the same thing: give one of them", "arg")
    if unit < 1:
        raise Error(f"unit is at least 1, not {unit}", "arg")
    going = (drop if drop is not None else n - target_layers if target_layers is not None else len(layers) * unit if layers is not None
             else n - unit if max_ppl_increase > 0 else None)
    if going is None:
        raise Error("how many layers? Give drop, target_layers, layers or max_ppl_increase", "arg")
    if not 0 < going < n:
        raise Error(f"the model has {n} layers: {going} of them cannot go", "arg")
    return going


def _search(engine: Engine, ids: Tokens, going: int, n_layer: int, criterion: str, unit: int, window: int, layers: Optional[Sequence[int]],
            protect: Sequence[int], max_ppl_increase: float, progress: Optional[Progress]) -> Pruning:
    keep, watch, err = Keep(), Watch(progress), ffi.new("bitnet_error *")
    options = struct("bitnet_prune_options", criterion=getattr(lib, CRITERIA[criterion]), drop=going, unit=unit, ctx_tokens=window,
                     layers=None if layers is None else keep.new("uint32_t[]", list(layers)), n_layers=len(layers or ()),
                     protect=keep.new("uint32_t[]", list(protect)), n_protect=len(protect), max_ppl_increase=max_ppl_increase,
                     progress=lib.bitnet_py_progress, progress_user=watch.handle)
    steps = keep.new("bitnet_prune_step[]", going // unit + 1)
    scores = keep.new("double[]", n_layer)
    result = struct("bitnet_prune_result", steps=steps, scores=ffi.NULL if layers is not None else scores)
    pointer = ffi.from_buffer("int32_t[]", ids)
    engine._idle(lambda e: watch.check(lib.bitnet_prune_search(e, pointer, len(ids), options, result, err), err))
    return Pruning([fill(_info.PruneStep, steps[i]) for i in range(result.n_steps)], [] if layers is not None else list(scores),
                   int(result.n_tokens), float(result.over_budget))


def _write(path: str, target: PathLike, found: Pruning, criterion: str, record: str, name: Optional[str], ffn_dead: bool, portable: bool,
           overwrite: bool, progress: Optional[Progress]) -> None:
    keep, watch, err = Keep(), Watch(progress), ffi.new("bitnet_error *")
    whole, last = found.steps[0], found.steps[-1]
    options = struct("bitnet_prune_output", layers=keep.new("uint32_t[]", found.layers), n_layers=len(found.layers),
                     criterion=keep.string(criterion, "a criterion"), calibration=keep.string(record, "a record"),
                     ppl_before=whole.perplexity, ppl_after=last.perplexity, kl=last.kl,
                     ffn_dead=int(ffn_dead), portable=int(portable), overwrite=int(overwrite), progress=lib.bitnet_py_progress,
                     progress_user=watch.handle)
    options.name = keep.string(name, "a name")
    watch.check(lib.bitnet_prune(source(path, keep), keep.path(target), options, err), err)


# ------------------------------------------------------------------ plans


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A plan of what a model can save, and what was measured. save() writes the plan; Model(plan=...) and Engine(plan=...)
    compute by it."""

    plan: Dict[str, Any]
    report: Dict[str, Any]

    def save(self, path: PathLike) -> None:
        pathlib.Path(path).write_text(json.dumps(self.plan, indent=1) + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        plain = [(k, v) for k, v in self.report.items() if isinstance(v, (str, int, float))]
        return _info.table("Calibration", plain)


def calibrate(model: Union[Model, PathLike], prompt: Prompt, *, kl_budget: Optional[float] = None, entropy_bits: Optional[float] = None,
              savings: Optional[str] = None, samples: int = 512, sample_tokens: int = 0, context_tokens: int = 0, memory_bytes: int = 0,
              threads: int = 0, curve: Sequence[float] = (), progress: Optional[Progress] = None) -> Calibration:
    """A plan for a model, made from a text: what may be saved for a mean KL divergence of kl_budget, in nats, or where codes
    have less entropy than entropy_bits. Samples are taken at equal distances, and every second one is held out to judge the
    plan."""
    if (kl_budget is None) == (entropy_bits is None):
        raise Error("a plan needs kl_budget or entropy_bits, one of the two", "arg")
    opened, own = open_model(model if isinstance(model, Model) else find_model(model))
    try:
        ids, length = _samples(opened, prompt, samples, sample_tokens)
        keep, watch, err, out = Keep(), Watch(progress), ffi.new("bitnet_error *"), ffi.new("bitnet_calibration **")
        options = struct("bitnet_calibrate_options", tokens=ffi.from_buffer("int32_t[]", ids), n_tokens=len(ids), sample_tokens=length,
                         kl_budget=kl_budget, entropy_bits=entropy_bits, savings=keep.string(savings, "savings"), threads=threads,
                         context_tokens=context_tokens, memory_bytes=memory_bytes, curve=keep.new("double[]", list(curve)),
                         n_curve=len(curve), progress=lib.bitnet_py_progress, progress_user=watch.handle)
        with opened._pointer() as m:
            watch.check(lib.bitnet_calibrate(out, m, options, err), err)
        try:
            return Calibration(json.loads(text(lib.bitnet_calibration_plan(out[0]))), json.loads(text(lib.bitnet_calibration_report(out[0]))))
        finally:
            lib.bitnet_calibration_close(out[0])
    finally:
        if own:
            opened.close()


def _samples(model: Model, prompt: Prompt, wanted: int, sample_tokens: int) -> tuple[Tokens, int]:
    """Samples at equal distances, one after the other, and the tokens of one."""
    ids = model.prompt_tokens(prompt)
    length = sample_tokens or min(SAMPLE, model.info.shape.n_ctx_train)
    ids = ids[:max(0, wanted) * length * SPREAD]
    n = min(wanted, len(ids) // length) if length > 0 else 0
    if n < LEAST_SAMPLES:
        raise Error(f"the text has {len(ids)} tokens, and at least {LEAST_SAMPLES} samples of {length} are needed", "arg")
    apart = len(ids) // n
    return np.ascontiguousarray(np.concatenate([ids[i * apart:i * apart + length] for i in range(n)])), length
