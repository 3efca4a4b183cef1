# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os
import shutil

import numpy as np
import pytest

from conftest import ROOT

import bitnet
from bitnet import info
from bitnet._ffi import ffi

TEXTS = ["Once upon a time", "", " ", "Zoë ate naïve 🍰 cakes.\n\n\ttab", "<|eot_id|>", "a" * 3000, "日本語 и русский"]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_the_program(model, program, text):
    ids = model.tokenize(text, bos=False)
    assert ids == list(map(int, program("tokenize", stdin=text.encode()).split()))
    assert model.detokenize(ids, special=True) == text


def test_special_tokens(model):
    assert model.tokenize("<|eot_id|>", bos=False, special=True) == [3]
    assert len(model.tokenize("<|eot_id|>", bos=False)) > 1
    assert model.is_end(3) and not model.is_end(0) and model.ends() == [1, 3]
    assert model.bos == 0 and model.token_text(0) == "<|begin_of_text|>"
    assert not model.is_end(2**40)
    with pytest.raises(bitnet.Error):
        model.token_text(4096)


def test_characters_cut_in_two(model):
    ids = model.tokenize("🍰", bos=False)
    assert len(ids) > 1
    assert model.decode_bytes(ids[:1]) == "🍰".encode()[:len(model.decode_bytes(ids[:1]))]
    assert model.detokenize(ids[:1]) == "\ufffd"


@pytest.mark.parametrize("ids", ["text", b"bytes", [[1, 2]], [1.5], [2**40], ["a"], None, [-1], [4096], np.array([1 + 2j])])
def test_wrong_ids(model, ids):
    with pytest.raises(bitnet.Error):
        model.detokenize(ids)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "uint64", ">i4"])
def test_integers_of_every_kind(model, dtype):
    ids = np.array([10, 20, 30], dtype)
    assert model.detokenize(ids[::-1]) == model.detokenize([30, 20, 10])


def test_wrong_texts(model):
    with pytest.raises(bitnet.Error, match="UTF-8"):
        model.tokenize("\ud800")
    for wrong in (None, 5, ["a"], b"a"):
        with pytest.raises(bitnet.Error, match="a text is wanted"):
            model.tokenize(wrong)
    for wrong in ("hello", [5], {"role": "user", "content": "a"}):
        with pytest.raises(bitnet.Error, match="list of messages"):
            model.chat_tokens(wrong)


def test_info_mirrors_the_structs():
    """Every member of a struct is a field of its dataclass, but sizes and reserved words."""
    for cls, name in info.STRUCTS.items():
        members = [n for n, _ in ffi.typeof(name).fields if n != "size" and not n.startswith("reserved")]
        assert [f.name.rstrip("_") for f in dataclasses.fields(cls)] == members, name


def test_info(model):
    i = model.info
    assert (i.architecture, i.shape.n_layer, i.shape.n_vocab, i.act_quant) == ("bitnet-b1.58", 10, 4096, "int8")
    assert i.memory.file_bytes == 11831968
    assert "<table>" in model._repr_html_() and "stories-31m" in i._repr_html_()


def test_chat(model):
    asked = [{"role": "user", "content": "Tell me a story about a dragon."}]
    text = model.chat_text(asked)
    assert "Tell me a story about a dragon." in text
    assert model.detokenize(model.chat_tokens(asked), special=True).endswith(text[-20:])
    assert model.chat_text(asked, add_generation_prompt=False) != text
    with pytest.raises(bitnet.Error):
        model.chat_text(asked, template="{% no such thing %}")


def test_sampling_defaults_are_the_librarys():
    from bitnet.request import default_sampling, read_sampling
    ours, theirs = bitnet.Sampling(), read_sampling(default_sampling())
    for f in dataclasses.fields(bitnet.Sampling):
        value = getattr(theirs, f.name)
        assert np.float32(getattr(ours, f.name)) == value if isinstance(value, float) else getattr(ours, f.name) == value, f.name


def test_sampling_has_every_option():
    members = [n for n, _ in ffi.typeof("bitnet_sampling").fields if n != "size" and not n.startswith(("reserved", "n_"))]
    assert sorted(members) == sorted(f.name for f in dataclasses.fields(bitnet.Sampling))
    members = [n for n, _ in ffi.typeof("bitnet_request").fields if n not in ("size", "tokens", "n_tokens", "n_stop", "n_stop_tokens", "n_adapters", "reserved_word")]
    assert sorted(members) == sorted(f.name for f in dataclasses.fields(bitnet.Request) if f.name != "prompt")


def test_errors(tmp_path):
    with pytest.raises(bitnet.Error, match="no-such") as e:
        bitnet.Model(tmp_path / "no-such.gguf")
    assert e.value.status == "io"
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(bitnet.Error):
        bitnet.Model(broken)
    with pytest.raises(bitnet.Error):
        bitnet.Model(backend="no such kernels")
    with pytest.raises(bitnet.Error):
        bitnet.Model(threads=-1)
    with pytest.raises(bitnet.Error):
        bitnet.Model("a\0b")
    for nothing in ("", b""):  # an unset variable is no wish for the small model
        with pytest.raises(bitnet.Error, match="empty"):
            bitnet.Model(nothing)
    with pytest.raises(bitnet.Error, match="no-such"):
        bitnet.Model(b"no-such.gguf")


def test_names_that_are_not_utf8(tmp_path):
    """Files may have any bytes in their names."""
    path = os.fsencode(tmp_path) + b"/caf\xe9.gguf"
    shutil.copyfile(ROOT / "models" / "stories-31m.gguf", path)
    for name in (path, os.fsdecode(path)):
        with bitnet.Model(name) as m:
            assert m.tokenize("Once") and repr(m)
    assert bitnet.inspect(os.fsdecode(path)).format == "GGUF v3"
    bitnet.convert(os.fsdecode(path), os.fsdecode(path) + ".2", type="keep", head_type="keep")
    assert os.path.exists(path + b".2")


def test_progress():
    def stop(what, done, total):
        assert 0 <= done <= total
        return False
    def fail(what, done, total):
        raise KeyError(what)
    with pytest.raises(KeyError):
        bitnet.Model(progress=fail)
    with pytest.raises(bitnet.Error) as e:
        bitnet.Model(progress=stop)
    assert e.value.status == "cancelled"


def test_schemas():
    @dataclasses.dataclass
    class Part:
        kind: str
        weight: float = 1.0

    @dataclasses.dataclass
    class Whole:
        parts: "list[Part]"
        ok: bool

    globals()["Part"] = Part
    made = bitnet.json_schema(Whole)
    assert made["properties"]["parts"]["items"]["required"] == ["kind"]

    class Modern:
        @classmethod
        def model_json_schema(cls):
            return {"type": "object"}
    assert bitnet.json_schema(Modern) == {"type": "object"}
    with pytest.raises(bitnet.Error, match="no JSON Schema"):
        bitnet.json_schema(object)
