# SPDX-License-Identifier: Apache-2.0
"""1-bit and 1.58-bit language models on CPUs.

>>> import bitnet
>>> with bitnet.Engine() as engine:  # the small model in the package
...     print(engine.generate("Once upon a time", max_new_tokens=10, temperature=0))
, there was a little girl named Lily. She

Model, Engine, Sampling and Request are the C library in Python's manners. docs/use/python.md has the whole story.
"""
from ._native import Error, library_version
from .engine import Engine, Score
from .model import Model
from .request import Request, Sampling
from .schema import json_schema
from .stream import Choice, Event, Result, Stream

__version__ = library_version()
__all__ = ["Choice", "Engine", "Error", "Event", "Model", "Request", "Result", "Sampling", "Score", "Stream", "json_schema"]
