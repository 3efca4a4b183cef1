# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas from what Python programs describe data with: dicts, dataclasses, pydantic models."""
from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Any, Dict, List, Union

from ._native import Error

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_UNIONS = {Union, getattr(__import__("types"), "UnionType", Union)}


def json_schema(source: Any) -> Dict[str, Any]:
    """The JSON Schema of a dict (which is one already), a dataclass, or a class with model_json_schema() or schema().

    >>> @dataclasses.dataclass
    ... class Pet:
    ...     name: str
    ...     legs: int = 4
    >>> json_schema(Pet)["required"]
    ['name']
    """
    if isinstance(source, dict):
        return source
    for method in ("model_json_schema", "schema"):  # pydantic 2, pydantic 1
        if callable(getattr(source, method, None)):
            made = getattr(source, method)()
            if isinstance(made, dict):
                return made
    return _of_type(source, ())


def _of_type(t: Any, inside: tuple[Any, ...]) -> Dict[str, Any]:
    if t in _PLAIN:
        return {"type": _PLAIN[t]}
    if t is Any:
        return {}
    if dataclasses.is_dataclass(t):
        return _of_dataclass(t, inside)
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return {"enum": [member.value for member in t]}
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in _UNIONS:
        return {"anyOf": [_of_type(a, inside) for a in args]}
    if t in (list, List) or origin is list:
        return {"type": "array", "items": _of_type(args[0], inside) if args else {}}
    if t in (dict, Dict) or origin is dict:
        return {"type": "object", "additionalProperties": _of_type(args[1], inside) if args else True}
    raise Error(f"no JSON Schema for {t!r}: give a dict, a dataclass or a pydantic model", "arg")


def _of_dataclass(t: Any, inside: tuple[Any, ...]) -> Dict[str, Any]:
    if t in inside:
        raise Error(f"{t.__name__} holds itself; give its JSON Schema as a dict", "arg")
    hints = typing.get_type_hints(t)
    fields = dataclasses.fields(t)
    needed = [
        f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    return {
        "type": "object",
        "properties": {f.name: _of_type(hints[f.name], (*inside, t)) for f in fields},
        "required": needed,
        "additionalProperties": False,
    }
