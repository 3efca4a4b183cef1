# SPDX-License-Identifier: Apache-2.0
"""Tensors in, tensors out; with torch itself."""
import numpy as np
import pytest
import torch

import bitnet
from bitnet import AutoTokenizer, BitNetForCausalLM

pytestmark = pytest.mark.torch


def test_the_guides_snippet():
    model = BitNetForCausalLM.from_pretrained("embedded").to("cpu")
    model.eval()
    out = model.generate(torch.tensor([[1]]), max_new_tokens=32)
    assert isinstance(out, torch.Tensor) and out.dtype == torch.int64 and out.shape[0] == 1 and out[0, 0] == 1
    assert out.tolist() == model.generate(np.array([[1]]), max_new_tokens=32).tolist()
    assert model.config.activation_dtype == "int8" and model.get_sign_flip_rate() == 0
    assert model.to(torch.device("cpu")) is model


def test_tensors():
    model, tokenizer = BitNetForCausalLM.from_pretrained("embedded"), AutoTokenizer.from_pretrained("embedded")
    batch = tokenizer(["Once upon a time", "a cat"], padding=True, return_tensors="pt")
    assert isinstance(batch.input_ids, torch.Tensor)
    logits = model(**batch).logits
    assert isinstance(logits, torch.Tensor) and logits.dtype == torch.float32
    plain = model(batch.input_ids.numpy(), batch.attention_mask.numpy()).logits
    assert logits.numpy().tobytes() == plain.tobytes()
    assert tokenizer.batch_decode(model.generate(**batch, max_new_tokens=2)) and tokenizer.decode(batch.input_ids[0])
    assert isinstance(bitnet.adaptive_topk(logits[0, -1]), torch.Tensor)
    seen = []

    class Streamer:
        def put(self, value):
            seen.extend(value.reshape(-1).tolist())

        def end(self):
            seen.append("end")
    out = model.generate(torch.tensor([[0, 390]]), max_new_tokens=3, streamer=Streamer())
    assert seen == out[0].tolist() + ["end"]
    assert [int(i) for i in model.generate([torch.tensor([0, 390])], max_new_tokens=2)[0][:2]] == [0, 390]
