# SPDX-License-Identifier: Apache-2.0
"""Files, pruning, plans and divergence: the figures are those of the program."""
import json
import math

import pytest
from conftest import ROOT

import bitnet

STORIES = ROOT / "models" / "stories-31m.gguf"


@pytest.fixture(scope="module")
def story(tmp_path_factory, engine):
    """A text that the model itself tells."""
    requests = [bitnet.Request("Once upon a time", 220, bitnet.Sampling(seed=s), ignore_end=True) for s in range(6)]
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text("\n".join(r.text for r in engine.generate_many(requests)))
    return path


def test_inspect_is_that_of_the_program(program):
    theirs, ours = json.loads(program("inspect", "--json")), bitnet.inspect("embedded")
    assert (ours.format, ours.bytes) == (theirs["format"], theirs["file_bytes"])
    assert ours.kinds() == {theirs["weight_dtype"]: theirs["matrices"]}
    assert [(t.info.name, t.info.type, t.info.bytes, list(t.shape)[::-1]) for t in ours.tensors] == [
        (t["name"], t["type"], t["bytes"], t["dims"]) for t in theirs["tensors"]]
    zeros = sum(t.stats.count[1] for t in ours.tensors if t.info.is_matrix) / theirs["matrix_weights"]
    assert math.isclose(zeros, theirs["zero_share"], rel_tol=1e-9)
    assert ours.model.n_layer == theirs["model"]["layers"] and ours.problem == ""
    assert ours.metadata["general.architecture"] == "bitnet-b1.58"
    assert {k: v for k, v in ours.metadata.items() if not isinstance(v, str)} == {
        k: v for k, v in theirs["metadata"].items() if not isinstance(v, str)}
    assert "70 × ternary" in ours._repr_html_()
    quick = bitnet.inspect(STORIES, weights=False)
    assert quick.kinds() == {} and len(quick.tensors) == len(ours.tensors)


def test_convert_and_synth(tmp_path, engine):
    made = tmp_path / "q2.gguf"
    bitnet.convert("embedded", made, type="q2_0", name="another", allow_scale_rounding=True)
    assert {t.info.type for t in bitnet.inspect(made).tensors if t.info.is_matrix} == {"Q2_0"}
    with bitnet.Model(made) as m:
        assert m.info.name == "another"
    with pytest.raises(bitnet.Error, match="exist"):
        bitnet.convert("embedded", made)
    assert "2b-4t" in bitnet.synth_shapes() and all(bitnet.synth_shapes().values())
    with pytest.raises(bitnet.Error):
        bitnet.synth("no-such-shape", tmp_path / "x.gguf")

    def stop(what, done, total):
        raise KeyError(what)
    with pytest.raises(KeyError):
        bitnet.synth("falcon-e-1b", tmp_path / "x.gguf", layers=1, progress=stop)
    assert not (tmp_path / "x.gguf").exists()


def test_compare(story, program):
    theirs = json.loads(program("eval", "kl", "embedded", "--with", "--kv-type int4", "--text", story, "--ctx", 128, "--json"))
    with bitnet.Model() as model, bitnet.Engine(model) as base, bitnet.Engine(model, kv_type="int4") as other:
        ours = bitnet.compare(base, other, story.read_text(), ctx_tokens=128)
        assert ours.n_positions == theirs["positions"]
        assert math.isclose(ours.kl_mean, theirs["kl_mean"], rel_tol=1e-9) and ours.same_top == pytest.approx(theirs["top1_agreement"])
        back = bitnet.compare(other, base, story.read_text(), ctx_tokens=128)
        assert math.isclose(back.ppl_base, ours.ppl, rel_tol=1e-12)
        with pytest.raises(bitnet.Error):
            bitnet.compare(base, base, "x")

        def fail(what, done, total):
            raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError):
            bitnet.compare(base, other, story.read_text(), ctx_tokens=128, progress=fail)
        assert base.generate("Once upon a time", max_new_tokens=3, temperature=0).text == ", there was"


def test_prune_is_that_of_the_program(story, program, tmp_path):
    theirs = json.loads(program("prune", "--calibration-data", story, "--drop", 2, "--criterion", "bi", "--protect", "0,9", "--dry-run",
                                "--no-speed", "--json"))
    ours = bitnet.prune("embedded", tmp_path / "small.gguf", story.read_text(), drop=2, criterion="bi", protect=[0, 9], name="small")
    assert [s.perplexity for s in ours.steps] == pytest.approx([s["perplexity"] for s in theirs["steps"]], rel=1e-9)
    assert min(ours.scores[1:9]) == ours.scores[ours.layers[0]] and len(ours.scores) == 10
    with bitnet.Model(tmp_path / "small.gguf") as m, bitnet.Engine(m) as e:
        assert (m.info.name, m.info.shape.n_layer) == ("small", 8)
        assert e.perplexity(story.read_text(), ctx_tokens=256).perplexity == pytest.approx(ours.steps[-1].perplexity, rel=1e-9)
    assert f"layer {ours.layers[0]} out" in ours._repr_html_()
    for wrong in ({}, {"drop": 1, "layers": [1]}, {"drop": 10}, {"drop": 1, "criterion": "best"}, {"drop": 1, "unit": 0}):
        with pytest.raises(bitnet.Error):
            bitnet.prune("embedded", None, "x", **wrong)
    with pytest.raises(bitnet.Error, match="exists"):
        bitnet.prune("embedded", tmp_path / "small.gguf", "x", drop=1)


def test_calibrate_is_that_of_the_program(story, program, tmp_path):
    program("calibrate", "--dataset", story, "--calibration-samples", 8, "--sample-tokens", 64, "--kl-budget", 0.0625, "--savings", "keys",
            "--output-dir", tmp_path / "plan")
    plan = json.loads((tmp_path / "plan" / "plan.json").read_text())
    ours = bitnet.calibrate("embedded", story.read_text(), kl_budget=0.0625, savings="keys", samples=8, sample_tokens=64)
    theirs = {k: v for k, v in plan["notes"].items() if k in ours.plan["notes"]}  # the program adds who made it and when
    assert ours.plan == {**plan, "notes": theirs} and theirs["heldout"]["kl_mean"] > 0
    ours.save(tmp_path / "mine.json")
    with bitnet.Model() as m, bitnet.Engine(m, plan=tmp_path / "mine.json") as e:
        assert e.info.plan.text and e.generate("Once upon a time", max_new_tokens=5).tokens
    assert "<table>" in ours._repr_html_()
    for wrong in ({}, {"kl_budget": 0.1, "entropy_bits": 2.0}):
        with pytest.raises(bitnet.Error):
            bitnet.calibrate("embedded", story.read_text(), **wrong)
    with pytest.raises(bitnet.Error, match="samples"):
        bitnet.calibrate("embedded", "a cat", kl_budget=0.1)
