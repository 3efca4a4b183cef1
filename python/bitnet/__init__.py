# SPDX-License-Identifier: Apache-2.0
"""1-bit and 1.58-bit language models on CPUs.

>>> import bitnet
>>> with bitnet.Engine() as engine:  # the small model in the package
...     print(engine.generate("Once upon a time", max_new_tokens=10, temperature=0))
, there was a little girl named Lily. She

Model, Engine, Sampling and Request are the C library in Python's manners. BitNetForCausalLM and AutoTokenizer have the
interface of transformers, LLM and SamplingParams that of vLLM. docs/use/python.md has the whole story.
"""
from ._native import Error, library_version
from .adapter import Adapter, AdapterInfo
from .causal_lm import BitNetForCausalLM
from .engine import Engine, Score
from .files import FileInfo, convert, inspect, synth, synth_shapes
from .forge import Calibration, Pruning, calibrate, compare, prune
from .functional import adaptive_topk, bitlinear_fast_forward, bitnet_safe_preprocess
from .llm import LLM, CompletionOutput, LoRARequest, RequestOutput, SamplingParams
from .model import Model
from .names import find_model, find_program
from .report import BenchReport, EvalReport, Profile, ProfileReport, Report, bench, doctor, evaluate, profile
from .request import Request, Sampling
from .schema import json_schema
from .serve import Server, serve
from .stream import Choice, Event, Result, Stream
from .tokenizer import AutoTokenizer, TextStreamer, Tokenizer

__version__ = library_version()
__all__ = [
    "Adapter", "AdapterInfo", "AutoTokenizer", "BenchReport", "BitNetForCausalLM", "Calibration", "Choice", "CompletionOutput",
    "Engine", "Error", "EvalReport", "Event", "FileInfo", "LLM", "LoRARequest", "Model", "Profile", "ProfileReport", "Pruning",
    "Report", "Request", "RequestOutput", "Result", "Sampling", "SamplingParams", "Score", "Server", "Stream", "TextStreamer", "Tokenizer",
    "adaptive_topk", "bench", "bitlinear_fast_forward", "bitnet_safe_preprocess", "calibrate", "compare", "convert", "doctor",
    "evaluate", "find_model", "find_program", "inspect", "json_schema", "profile", "prune", "serve", "synth", "synth_shapes",
]
