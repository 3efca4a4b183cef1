# SPDX-License-Identifier: Apache-2.0
"""The interface of transformers, and the guides' names."""
import queue
import shutil
import threading

import numpy as np
import pytest

from conftest import ROOT

import bitnet
from bitnet import AutoTokenizer, BitNetForCausalLM, TextStreamer
from bitnet.cpu.engine import BitNetCPUInferenceEngine
from bitnet_core import BitNetModel

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


def test_adapters(lora, engine, model):
    ids = model.tokenize("Once upon a time")
    with bitnet.BitNetForCausalLM.from_pretrained("embedded") as lm, bitnet.Adapter(model, lora) as adapter:
        def made():
            return lm.generate([ids], max_new_tokens=20)[0].tolist()[len(ids):]
        plain = made()
        lm.load_adapter(lora, "style")
        assert made() == engine.generate(ids, max_new_tokens=20, temperature=0, adapters=[adapter]).tokens != plain
        lm.disable_adapters()
        assert made() == plain
        lm.set_adapter(["style"])
        assert made() != plain
        for wrong in (lambda: lm.set_adapter("other"), lambda: lm.load_adapter(lora, "style"), lambda: lm.load_adapter("/no/such")):
            with pytest.raises(bitnet.Error):
                wrong()


def test_health(lm):
    assert lm.get_sign_flip_rate() == 0.0
    assert lm.repetition_score([[1, 2, 3, 1, 2, 3, 1, 2, 3]]) == pytest.approx(4 / 7)
    text = lm.generate([[0, 390]], max_new_tokens=100)
    assert 0 <= lm.repetition_score() <= 1 and 0 <= lm.repetition_score(text) <= 1
    assert len(lm.kv_entropy()) == 10 and lm.health().choices > 0


def test_a_flipped_bit_is_found(tmp_path):
    """The head is read where the file is mapped: a bit that flips in the file flips in memory."""
    copy = tmp_path / "m.gguf"
    shutil.copy(ROOT / "models" / "stories-31m.gguf", copy)
    head = next(t.info for t in bitnet.inspect(copy, weights=False).tensors if t.info.name == "token_embd.weight")
    with BitNetForCausalLM.from_pretrained(copy) as m:
        assert m.get_sign_flip_rate() == 0
        with copy.open("r+b") as f:
            f.seek(head.offset + head.bytes // 2)
            byte = f.read(1)[0]
            f.seek(-1, 1)
            f.write(bytes([byte ^ 0x80]))
        assert 0 < m.get_sign_flip_rate() < 0.02
        assert m.engine.scrub().mismatches == 1 and m.health().scrub_mismatches == 1


@pytest.mark.parametrize("ids", ["text", [[1.5]], [["a"]], [[]], [[4096]], [[[1]]], np.zeros((1, 3), "float32"), None, 5, [], np.zeros((0, 3), int)])
def test_wrong_input(lm, ids):
    with pytest.raises(bitnet.Error):
        lm(ids)
    with pytest.raises(bitnet.Error):
        lm.generate(ids)


def test_code_for_transformers_runs(tokenizer):
    """As model cards have it: options that mean nothing here, and those that would mean something else."""
    hints = {"torch_dtype": "auto", "device_map": "auto", "trust_remote_code": True, "low_cpu_mem_usage": True}
    with BitNetForCausalLM.from_pretrained("embedded", **hints) as m:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": "A dog?"}], tokenize=False, add_generation_prompt=True)
        batch = tokenizer(prompt, return_tensors="np").to(m.device)
        out = m.generate(**batch, max_new_tokens=5, use_cache=True, num_beams=1, pad_token_id=tokenizer.eos_token_id)
        assert out.shape == (1, batch.input_ids.shape[1] + 5)
        with pytest.raises(bitnet.Error, match="4 beams"):
            m.generate(**batch, num_beams=4)
        with pytest.raises(bitnet.Error, match="at least 1, not 0"):
            m.generate(**batch, num_return_sequences=0)
    for wrong, what in (({"device_map": {"": "cuda:0"}}, bitnet.Error), ({"quantization_config": 1}, TypeError)):
        with pytest.raises(what, match="cuda:0|quantization_config"):
            BitNetForCausalLM.from_pretrained("embedded", **wrong)


def test_batch_of_a_conversation(tokenizer):
    said = [{"role": "user", "content": "Hello"}]
    batch = tokenizer.apply_chat_template(said, return_tensors="np", return_dict=True)
    assert batch.input_ids.tolist() == [tokenizer.apply_chat_template(said)] and batch.attention_mask.all()


def test_padding_side():
    right = AutoTokenizer.from_pretrained("embedded", padding_side="right")
    assert right(["a cat", "Once upon a time"], padding=True).attention_mask[0] == [1, 1, 1, 0, 0]
    with pytest.raises(bitnet.Error, match="'middle'"):
        AutoTokenizer.from_pretrained("embedded", padding_side="middle")


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
