# SPDX-License-Identifier: Apache-2.0
"""The adapter for lm-evaluation-harness beside `bitnet eval`. The harness itself is not in Debian: its two modules that the
adapter names are stood in for by ones with the same calls, to see the class that is registered."""
import collections
import json
import math
import sys
import types

import numpy as np
import pytest

import bitnet
from bitnet.lm_eval import BitNetLM, register

Instance = collections.namedtuple("Instance", "args")
ITEMS = [
    ("The little cat sat on the", ["mat.", "moon and sang loudly.", "car of the king."], 0),
    ("Once upon a time there was a ", ["quadratic form", "girl named Lily."], 1),
    ("Tom was sad because his toy was", ["broken.", "happy.", "a very large number of birds.", "sun."], 0),
    ("They went to the park to\n", ["play with the ball.", "fly"], 0),
]


@pytest.fixture(scope="module")
def lm():
    return BitNetLM.create_from_arg_string("pretrained=embedded,max_length=512", {"batch_size": 8, "device": "cpu", "max_batch_size": None})


def test_loglikelihood_is_that_of_bitnet_eval(lm, program, tmp_path):
    (tmp_path / "own.jsonl").write_text("".join(json.dumps({"query": q, "choices": o, "gold": g}) + "\n" for q, o, g in ITEMS))
    report = json.loads(program("eval", "--file", tmp_path / "own.jsonl", "--json", "--items"))
    theirs = [x for item in report["tasks"][0]["results"] for x in item["logprobs"]]
    ours = lm.loglikelihood([Instance((q, " " + c)) for q, o, g in ITEMS for c in o])
    assert len(theirs) == 11 and np.allclose([a for a, _ in ours], theirs, atol=1e-6)
    # many more than one call takes, in the same order
    many = [Instance((q, " " + c)) for q, o, g in ITEMS for c in o] * 120
    assert lm.loglikelihood(many) == ours * 120


def test_without_context_and_too_long(lm, engine):
    (alone, greedy), = lm.loglikelihood([Instance(("", "Once upon a time"))])
    ids = engine.model.tokenize("Once upon a time", bos=False)
    rows = engine.logits([0, *ids]).astype(np.float64)
    rows -= np.log(np.exp(rows).sum(1, keepdims=True))
    assert math.isclose(alone, sum(rows[i, t] for i, t in enumerate(ids)), abs_tol=1e-3)
    assert lm.loglikelihood([Instance(("a cat " * 600, "and a dog"))])[0][0] < 0
    with pytest.raises(bitnet.Error):
        lm.loglikelihood([Instance(("x", ""))])


def test_rolling(lm, engine):
    text = "Once upon a time there was a little girl. " * 60
    ids = engine.model.tokenize(text, bos=False)
    assert len(ids) > 512
    got, = lm.loglikelihood_rolling([Instance((text,))])
    windows = lm._windows(text)
    assert [t for _, rest in windows for t in rest.tolist()] == ids  # each once
    want = 0.0
    for before, rest in windows:
        assert len(before) + len(rest) <= 512
        rows = engine.logits(np.concatenate([before, rest])).astype(np.float64)
        rows -= np.log(np.exp(rows).sum(1, keepdims=True))
        want += sum(rows[len(before) - 1 + i, t] for i, t in enumerate(rest))
    assert math.isclose(got, want, rel_tol=1e-5)
    assert lm.loglikelihood_rolling([Instance(("",))]) == [0]


def test_generate_until(lm, engine):
    asked = [Instance(("Once upon a time", {"until": ["."], "max_gen_toks": 40})), Instance(("The cat", {"until": "\n\n", "max_gen_toks": 5})),
             Instance(("a cat " * 600, {"until": [], "max_gen_toks": 3}))]
    first, second, third = lm.generate_until(asked)
    ids = engine.model.tokenize("Once upon a time", bos=False)
    assert first == engine.generate(ids, max_new_tokens=40, temperature=0).text.split(".")[0]
    assert len(engine.model.tokenize(second, bos=False)) <= 6 and third


def test_windows_are_those_of_the_harness():
    """Those that its get_rolling_token_windows and make_disjoint_window give for 220 tokens and 64 of context."""
    lm = BitNetLM("embedded", max_length=64)
    text = "Once upon a time there was a little girl. " * 20
    assert lm.max_length == 64 and len(lm.model.tokenize(text, bos=False)) == 220
    assert [(len(a), len(b)) for a, b in lm._windows(text)] == [(1, 64), (1, 64), (1, 64), (37, 28)]


def test_registered(monkeypatch):
    known = {}
    api, registry = types.ModuleType("lm_eval.api.model"), types.ModuleType("lm_eval.api.registry")

    class LM:
        def __init__(self):
            self._rank, self._world_size, self._device, self.cache_hook = 0, 1, None, "none"
        rank, world_size, device = (property(lambda self, name=name: getattr(self, name)) for name in ("_rank", "_world_size", "_device"))
    api.LM = LM
    registry.register_model = lambda name: lambda cls: known.setdefault(name, cls)
    for module in (types.ModuleType("lm_eval"), types.ModuleType("lm_eval.api"), api, registry):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert register() is known["bitnet"] and issubclass(known["bitnet"], LM)
    made = known["bitnet"].create_from_arg_string("pretrained=embedded", {"batch_size": "auto"})
    assert isinstance(made, LM) and (made.cache_hook, made.rank, made.world_size, made.device) == ("none", 0, 1, None)
    assert made.loglikelihood([Instance(("Once upon a", " time"))])[0][1]
