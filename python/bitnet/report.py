# SPDX-License-Identifier: Apache-2.0
"""What was measured, for people: the profile of an engine, and the reports that the program `bitnet` makes.

Whole measurements (bench, profile, evaluate, doctor) are the program's, in a child process: they want a machine and
memory of their own, and their figures are then those that everyone else gets."""
from __future__ import annotations

import html
import json
import os
import subprocess
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple, Union

from . import info as _info
from ._native import Error, PathLike
from .names import find_model, find_program

BAR_WIDTH = 200  # of the longest bar, in pixels


def bars(title: str, rows: Sequence[Tuple[str, float, str]]) -> str:
    """Names, lengths and what to say about them."""
    most = max((length for _, length, _ in rows), default=0) or 1
    body = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td><div style='background:#69c;height:1em;"
        f"width:{BAR_WIDTH * max(0.0, length) / most:.0f}px'></div></td><td>{html.escape(said)}</td></tr>"
        for name, length, said in rows)
    return f"<table><caption>{html.escape(title)}</caption>{body}</table>"


class Profile(List[_info.ProfileEntry]):
    """The entries of a profile, and the steps of its two phases.

    >>> import bitnet
    >>> with bitnet.Engine(profile="on", threads=1) as engine:
    ...     _ = engine.generate("Once upon a time", max_new_tokens=3)
    ...     profile = engine.profile()
    >>> profile.decode.steps, sorted(profile.kinds(profile.DECODE))[:2]
    (2, ['activation', 'attention'])
    """

    PREFILL, DECODE = 0, 1  # phase of an entry

    def __init__(self, entries: Iterable[_info.ProfileEntry], prefill: _info.ProfilePhase, decode: _info.ProfilePhase) -> None:
        super().__init__(entries)
        self.prefill, self.decode = prefill, decode

    def kinds(self, phase: int) -> Dict[str, int]:
        """Nanoseconds of the first worker by kind of operation, the longest first."""
        sums: Dict[str, int] = {}
        for entry in self:
            if entry.phase == phase and entry.worker == 0:
                sums[entry.kind] = sums.get(entry.kind, 0) + entry.ns
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def _repr_html_(self) -> str:
        parts = []
        for phase, name, whole in ((self.PREFILL, "Prefill", self.prefill), (self.DECODE, "Decode", self.decode)):
            if whole.tokens:
                rows = [(kind, float(ns), f"{ns / whole.tokens / 1e3:.1f} µs") for kind, ns in self.kinds(phase).items()]
                parts.append(bars(f"{name}: {whole.tokens} tokens, {whole.ns / whole.tokens / 1e3:.1f} µs each", rows))
        return "".join(parts) or "<p>nothing was computed yet</p>"


class Report(Dict[str, Any]):
    """A report as the program writes it with --json."""

    def _repr_html_(self) -> str:
        return _info.table(str(self.get("format", "report")), _plain_rows(self))


class BenchReport(Report):
    """Of `bitnet bench`: measurements, machine, model and settings."""

    def _repr_html_(self) -> str:
        head = ["", "median", "spread", "unit", "roofline"]
        rows = [[m["name"], m["median"], f"{100 * m['spread']:.1f} %", m["unit"],
                 f"{100 * m['roofline_share']:.0f} %" if m.get("roofline_share") else ""] for m in self.get("measurements", [])]
        return _info.grid(_title(self), head, rows) + _notes(self)


class ProfileReport(Report):
    """Of `bitnet profile`: phases, memory, and a verdict in words."""

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self['verdict'])}</p>"]
        for name, phase in self["phases"].items():
            rows = [(k["kind"], k["share"], f"{100 * k['share']:.1f} %, {k['ns_per_token'] / 1e3:.1f} µs a token")
                    for k in sorted(phase["kinds"], key=lambda k: -float(k["share"])) if k["share"] > 0]
            parts.append(bars(f"{_title(self)}: {name}, {phase['tok_per_s']:.0f} tokens a second", rows))
        return "".join(parts) + _notes(self)


class EvalReport(Report):
    """Of `bitnet eval`: the scores of the tasks."""

    def _repr_html_(self) -> str:
        rows = [[task["task"], task["items"], name, measure["value"], measure.get("stderr", "")] for task in self["tasks"]
                for name, measure in task.items() if isinstance(measure, Mapping) and "value" in measure]
        return _info.grid(_title(self), ["task", "items", "metric", "value", "standard error"], rows)


def _title(report: Mapping[str, Any]) -> str:
    model = report.get("model", {})
    return str(model.get("name", "")) if isinstance(model, Mapping) else str(model)


def _notes(report: Mapping[str, Any]) -> str:
    return "".join(f"<p>{html.escape(str(note))}</p>" for note in report.get("notes", []))


def _plain_rows(record: Mapping[str, Any], prefix: str = "") -> List[Tuple[str, Any]]:
    rows: List[Tuple[str, Any]] = []
    for key, value in record.items():
        if isinstance(value, Mapping):
            rows += _plain_rows(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            rows.append((prefix + key, value))
    return rows


# ------------------------------------------------------------------ the program


Option = Union[str, int, float, bool, None, "os.PathLike[str]", Sequence[Union[str, int, float]]]


def command_line(options: Mapping[str, Option]) -> List[str]:
    """Options of the program: `_` is `-`, True is a flag, lists are separated by commas, None and False are left out.

    >>> command_line({"batch_sizes": [1, 4], "engine_warmup": True, "seed": None})
    ['--batch-sizes', '1,4', '--engine-warmup']
    """
    words: List[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            words.append(",".join(map(str, value)))
        elif value is not True:
            words.append(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
    return words


def ask_program(command: str, model: PathLike, options: Mapping[str, Option], fine: Sequence[int] = (0,)) -> Dict[str, Any]:
    """Runs a command of the program with --json. Ctrl-C ends it, too. fine: exit statuses that come with a report."""
    program = find_program()
    done = subprocess.run([program, command, "--model", find_model(model), "--json", *command_line(options)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if done.returncode not in fine or not done.stdout:
        said = done.stderr.strip().splitlines()
        raise Error(said[-1] if said else f"{program} {command} ended with status {done.returncode}", "arg" if done.returncode == 2 else "state")
    report: Dict[str, Any] = json.loads(done.stdout)
    return report


def bench(model: PathLike = "embedded", **options: Option) -> BenchReport:
    """`bitnet bench`, by the program: bench("model.gguf", mode="all", repeat=5). Options are those of its command line."""
    return BenchReport(ask_program("bench", model, options))


def profile(model: PathLike = "embedded", **options: Option) -> ProfileReport:
    """`bitnet profile`, by the program: profile("model.gguf", prompt_tokens=1024)."""
    return ProfileReport(ask_program("profile", model, options))


def evaluate(model: PathLike = "embedded", **options: Option) -> EvalReport:
    """`bitnet eval`, by the program: evaluate("model.gguf", tasks=["arc_easy"], data="folder")."""
    return EvalReport(ask_program("eval", model, options))


def doctor(model: PathLike = "embedded", **options: Option) -> Report:
    """`bitnet doctor`, by the program: what slows this machine down."""
    return Report(ask_program("doctor", model, options, fine=(0, 1)))
