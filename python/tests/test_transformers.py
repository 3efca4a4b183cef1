# SPDX-License-Identifier: Apache-2.0
"""The interface of transformers, and the guides' names."""
import queue
import threading

import numpy as np
import pytest

import bitnet
from bitnet import AutoTokenizer, BitNetForCausalLM, TextStreamer
from bitnet.cpu.engine import BitNetCPUInferenceEngine
from bitnet_core import BitNetModel
from test_bits import requests

TEXTS = ["Once upon a time", "a cat", "The king and the queen went to the river."]


@pytest.fixture(scope="module")
def lm():
    with BitNetForCausalLM.from_pretrained("embedded").to("cpu").eval() as m:
        yield m


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained("embedded")


def test_tokenizer(tokenizer, model):
    batch = tokenizer(TEXTS, padding="longest", truncation=True, max_length=8, return_tensors="np")
    assert batch["input_ids"].shape == batch.attention_mask.shape == (3, 8) and batch.input_ids.dtype == np.int64
    for text, ids, mask in zip(TEXTS, batch.input_ids, batch.attention_mask):
        assert ids[mask == 1].tolist() == model.tokenize(text)[:8] and mask[-1] == 1
        assert set(ids[mask == 0]) <= {tokenizer.pad_token_id}
    tokenizer.padding_side = "right"
    assert tokenizer(TEXTS, padding=True).attention_mask[1][0] == 1
    tokenizer.padding_side = "left"
    assert tokenizer(TEXTS[0]).input_ids == model.tokenize(TEXTS[0])
    assert tokenizer(TEXTS[0], add_special_tokens=False).input_ids == model.tokenize(TEXTS[0], bos=False)
    assert len(tokenizer(TEXTS[0], padding="max_length", max_length=12).input_ids) == 12
    assert tokenizer.batch_decode(tokenizer(TEXTS).input_ids, skip_special_tokens=True) == TEXTS
    assert tokenizer.decode(tokenizer("a")["input_ids"]).startswith("<|begin_of_text|>") and tokenizer.decode(5) == '"'
    assert len(tokenizer) == 4096
    for wrong in ({"return_tensors": "np"}, {"return_tensors": "tf", "padding": True}, {"padding": "shortest"}):
        with pytest.raises(bitnet.Error):
            tokenizer(TEXTS, **wrong)


def test_chat_template(tokenizer, model):
    asked = [{"role": "user", "content": "Tell me a story."}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True)
    assert ids == model.chat_tokens(asked)
    assert tokenizer.apply_chat_template(asked, return_tensors="np", add_generation_prompt=True).tolist() == [ids]
    assert tokenizer.apply_chat_template(asked, tokenize=False) == model.chat_text(asked, add_generation_prompt=False)


def test_config(lm):
    c = lm.config
    assert (c.activation_dtype, c.num_hidden_layers, c.hidden_size, c.eos_token_id) == ("int8", 10, 512, [1, 3])
    with pytest.raises(bitnet.Error, match="cuda"):
        lm.to("cuda")
    with pytest.raises(bitnet.Error):
        lm.train()


def test_logits_of_a_padded_batch(lm, tokenizer, engine):
    batch = tokenizer(TEXTS, padding=True, return_tensors="np")
    out = lm(**batch)
    assert out.logits.shape == (*batch.input_ids.shape, 4096) and out[0] is out.logits
    for row, mask, text in zip(out.logits, batch.attention_mask, TEXTS):
        assert row[mask == 1].tobytes() == engine.logits(text).tobytes()
        assert not row[mask == 0].any()
    holes = lm([[0, 2, 390, 389]], [[1, 0, 1, 1]]).logits[0]
    assert holes[[0, 2, 3]].tobytes() == engine.logits([0, 390, 389]).tobytes()


def test_generate(lm, tokenizer, engine):
    batch = tokenizer(TEXTS, padding=True, return_tensors="np")
    out = lm.generate(**batch, max_new_tokens=6, pad_token_id=2)
    assert isinstance(out, np.ndarray) and out.shape == (3, batch.input_ids.shape[1] + 6)
    assert (out[:, :batch.input_ids.shape[1]] == batch.input_ids).all()
    for row, text in zip(out, TEXTS):
        assert row[-6:].tolist() == engine.generate(text, max_new_tokens=6, temperature=0).tokens
    drawn = lm.generate(batch.input_ids[:1], attention_mask=batch.attention_mask[:1], do_sample=True, num_return_sequences=3, seed=4,
                        max_new_tokens=30, top_k=40)
    assert drawn.shape[0] == 3 and len({tuple(r) for r in drawn.tolist()}) > 1
    alone = engine.generate(TEXTS[0], max_new_tokens=30, seed=5, temperature=1.0, top_k=40, top_p=1.0, min_p=0.0).tokens
    assert drawn[1, -30:].tolist() == alone
    assert lm.generate([0, 390]).shape == (1, 22) and lm.generate([0, 390], max_length=10).shape == (1, 10)


def test_own_end(lm, engine):
    ids = engine.model.tokenize("Once upon a time")
    usual = engine.generate(ids, max_new_tokens=12, temperature=0).tokens
    out = lm.generate([ids], max_new_tokens=12, eos_token_id=usual[4])
    assert out.tolist() == [ids + usual[:5]]
    whole = lm.generate([ids], max_new_tokens=400)
    assert whole[0, -1] in lm.config.eos_token_id
    assert lm.engine.info.n_running == 0


def test_200_requests(lm, engine):
    """Through this layer as through the engine, which is compared with the program."""
    for r in requests():
        drawn = bitnet.Sampling(temperature=r["temperature"], top_k=r["top_k"], top_p=r["top_p"], min_p=0, seed=r["seed"],
                                repetition_penalty=r["repetition_penalty"])
        ids = engine.model.tokenize(r["prompt"])
        want = engine.generate(ids, max_new_tokens=r["max_tokens"], sampling=drawn).tokens
        got = lm.generate(np.array([ids]), max_new_tokens=r["max_tokens"], do_sample=r["temperature"] > 0,
                          temperature=r["temperature"], top_k=r["top_k"],
                          top_p=r["top_p"], repetition_penalty=r["repetition_penalty"], seed=r["seed"])
        assert got.tolist() == [ids + want]


def test_streamers(lm, tokenizer, capsys):
    ids = tokenizer("Once upon a time").input_ids
    out = lm.generate([ids], max_new_tokens=8, streamer=TextStreamer(tokenizer))
    assert capsys.readouterr().out == tokenizer.decode(out[0], skip_special_tokens=True) + "\n"
    lm.generate([ids], max_new_tokens=8, streamer=TextStreamer(tokenizer, skip_prompt=True))
    assert capsys.readouterr().out == tokenizer.decode(out[0][len(ids):]) + "\n"
    cake = TextStreamer(tokenizer, skip_prompt=True)
    cake.put([0])
    for t in tokenizer.encode("x 🍰 y", add_special_tokens=False):
        cake.put([t])
    cake.end()
    assert capsys.readouterr().out == "x 🍰 y\n"

    class Broken:
        def put(self, value):
            if len(value) == 1 and np.ndim(value) == 1:
                raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        lm.generate([ids], max_new_tokens=100, streamer=Broken())
    assert lm.engine.info.n_running == 0
    with pytest.raises(bitnet.Error):
        lm.generate([ids, ids], streamer=Broken())


def test_health(lm):
    assert lm.get_sign_flip_rate() == 0.0
    assert lm.repetition_score([[1, 2, 3, 1, 2, 3, 1, 2, 3]]) == pytest.approx(4 / 7)
    text = lm.generate([[0, 390]], max_new_tokens=100)
    assert 0 <= lm.repetition_score() <= 1 and 0 <= lm.repetition_score(text) <= 1
    assert len(lm.kv_entropy()) == 10 and lm.health().choices > 0


@pytest.mark.parametrize("ids", ["text", [[1.5]], [["a"]], [[]], [[4096]], [[[1]]], np.zeros((1, 3), "float32")])
def test_wrong_input(lm, ids):
    with pytest.raises(bitnet.Error):
        lm(ids)
    with pytest.raises(bitnet.Error):
        lm.generate(ids)


def test_masks_that_do_not_fit(lm):
    for mask in ([[1, 1]], [[1, 1, 1], [1, 1, 1]], [1, 1]):
        with pytest.raises(bitnet.Error):
            lm.generate([[1, 2, 3]], attention_mask=mask)


def test_names(tmp_path, monkeypatch):
    with pytest.raises(bitnet.Error, match="no-such/model"):
        BitNetForCausalLM.from_pretrained("no-such/model")
    monkeypatch.setenv("BITNET_MODELS", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"")
    assert bitnet.find_model("org/m") == bitnet.find_model("m") == str(tmp_path / "m.gguf")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "hub/models--org--x/snapshots/abc").mkdir(parents=True)
    assert bitnet.find_model("org/x").endswith("snapshots/abc")


# ------------------------------------------------------------------ the guides' names


def test_cpu_engine_from_four_threads(lm, tokenizer):
    with BitNetCPUInferenceEngine(model_path="embedded", max_batch_size=16, max_seq_len=64, num_threads=2, use_mmap=True) as engine:
        batch = tokenizer(TEXTS, padding="longest", truncation=True, max_length=32, return_tensors="np")
        plain = lm(**batch).logits
        work, done = queue.Queue(maxsize=32), []

        def worker():
            while work.get():
                done.append(engine.forward(**batch))
        threads = [threading.Thread(target=worker) for _ in range(4)]
        for t in threads:
            t.start()
        for wanted in [True] * 12 + [False] * 4:
            work.put(wanted)
        for t in threads:
            t.join()
        assert len(done) == 12 and all(d.tobytes() == plain.tobytes() for d in done)
        cut = engine.forward(**batch, temperature=0.5, top_k=50)
        assert (np.isfinite(cut[0, -1]).sum(), cut[0, -1].argmax()) == (50, plain[0, -1].argmax())
        assert np.allclose(cut[0, -1].max(), 2 * plain[0, -1].max())
        assert engine.generate(batch["input_ids"][:1], max_new_tokens=3).shape[1] == batch["input_ids"].shape[1] + 3
        with pytest.raises(bitnet.Error):
            engine.forward(**batch, temperature=0)


def test_float_activations():
    with BitNetCPUInferenceEngine("embedded", activation_dtype="float16") as engine:
        assert engine.config.activation_dtype == "f32"
    with pytest.raises(bitnet.Error):
        BitNetCPUInferenceEngine("embedded", activation_dtype="int3")


def test_core_model():
    with BitNetModel.from_pretrained("embedded", kv_cache_dtype="fp8", use_fast_kernels=True) as m:
        assert m.config.kv_cache_dtype == "fp8_e4m3"
        fast = m([[0, 390, 389]]).logits
    with BitNetModel.from_pretrained("embedded", kv_cache_dtype="fp8", use_fast_kernels=False) as m:
        assert m.engine.model.info.backend == "scalar"
        assert m([[0, 390, 389]]).logits.tobytes() == fast.tobytes()


def test_functions():
    assert bitnet.bitnet_safe_preprocess(" a\u200db \u00adc\ufe0f\t\nd ") == "ab c d"
    x = np.random.default_rng(1).normal(size=(5, 100)).astype(np.float32)
    for k, p in ((50, 0.92), (3, 1.0), (100, 0.3)):
        kept = np.isfinite(bitnet.adaptive_topk(x, k, p))
        shares = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        for row, shown in zip(shares, kept):
            ranked = np.sort(row)[::-1]
            assert shown.sum() == min(k, int((np.cumsum(ranked) - ranked < p).sum()))
            assert row[shown].min() >= row[~shown].max()
    w = np.random.default_rng(2).integers(-1, 2, (8, 16))
    packed = sum(((w[i * 2:i * 2 + 2] + 1) << (2 * i)) for i in range(4)).astype(np.uint8)
    v = np.random.default_rng(3).normal(size=(3, 16)).astype(np.float32)
    assert np.allclose(bitnet.bitlinear_fast_forward(v, packed, 16, 8), v @ w.T, atol=0.2)
    for wrong in ((v, packed, 15, 8), (v[:, :3], packed, 16, 8), (v, packed.astype(int), 16, 8)):
        with pytest.raises(bitnet.Error):
            bitnet.bitlinear_fast_forward(*wrong)
