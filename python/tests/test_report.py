# SPDX-License-Identifier: Apache-2.0
"""Reports of the program, and what notebooks show."""
import json
import xml.etree.ElementTree as xml

import pytest
from conftest import PROGRAM

import bitnet


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.setenv("BITNET_PROGRAM", PROGRAM)


def shown(thing):
    """The HTML of a notebook's cell, which must be well formed; its text."""
    return "|".join(xml.fromstring(f"<div>{thing._repr_html_()}</div>").itertext())


def test_bench():
    report = bitnet.bench(mode="batch", batch_sizes=[1, 2], max_new_tokens=4, repeat=2, warmup=0)
    assert report["format"] == "bitnet-bench-1" and report["settings"]["max_new_tokens"] == 4
    assert [m["mode"] for m in report["measurements"]] == ["batch", "batch"]
    text = shown(report)
    assert "stories-31m" in text and all(m["name"] in text for m in report["measurements"])


def test_profile():
    report = bitnet.profile("embedded", prompt_tokens=8, max_new_tokens=4, threads=1)
    assert report["phases"]["decode"]["tokens"] == 4
    assert report["verdict"] in shown(report) and "matrix" in shown(report)


def test_evaluate(tmp_path):
    (tmp_path / "own.jsonl").write_text(json.dumps({"query": "Tom was sad because his toy was", "choices": ["broken.", "happy."], "gold": 0}))
    report = bitnet.evaluate(file=tmp_path / "own.jsonl")
    assert report["tasks"][0]["acc"]["value"] == 1 and "acc_norm" in shown(report)


def test_doctor():
    assert bitnet.doctor()["cpu"]["cpus"] >= 1


def test_failures(monkeypatch):
    with pytest.raises(bitnet.Error, match="no-such-option"):
        bitnet.bench(no_such_option=1)
    with pytest.raises(bitnet.Error, match="no model"):
        bitnet.profile("no/such")
    monkeypatch.setenv("BITNET_PROGRAM", "/no/such/program")
    with pytest.raises(bitnet.Error, match="/no/such/program.*not found"):
        bitnet.bench()


def test_notebooks(model):
    with bitnet.Engine(model, profile="on") as engine:
        assert "nothing" in shown(engine.profile())
        engine.generate("Once upon a time", max_new_tokens=8)
        profile = engine.profile()
        assert profile.decode.tokens == 7 and sum(profile.kinds(profile.DECODE).values()) == pytest.approx(profile.decode.ns, rel=0.1)
        assert "Decode: 7 tokens" in shown(profile) and "matrix" in shown(profile)
        engine.profile_reset()
        assert engine.profile().decode.steps == 0
        memory = engine.memory()
        assert memory.total == sum(v for k, v in vars(memory).items() if k != "total") and memory.kv_cache == engine.info.kv.bytes
        for thing in (model, model.info, engine, engine.info, memory, engine.health(), engine.kv_health(0)):
            assert len(shown(thing)) > 40
    assert "stories-31m" in shown(model)
