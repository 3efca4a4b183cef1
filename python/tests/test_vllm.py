# SPDX-License-Identifier: Apache-2.0
"""The interface of vLLM."""
import asyncio
import math

import pytest

import bitnet
from bitnet import LLM, SamplingParams
from bitnet_vllm import BitNetAsyncLLMEngine
from test_bits import answers, requests


@pytest.fixture(scope="module")
def llm(model):
    with LLM(model, max_num_seqs=8) as l:
        yield l


def params(r):
    return SamplingParams(temperature=r["temperature"], top_k=r["top_k"], top_p=r["top_p"], seed=r["seed"], max_tokens=r["max_tokens"],
                          repetition_penalty=r["repetition_penalty"], logprobs=r["logprobs"])


def test_same_bits(llm, program, tmp_path):
    asked = requests()
    outputs = llm.generate([r["prompt"] for r in asked], [params(r) for r in asked])
    for r, o, (text, logprobs, reason) in zip(asked, outputs, answers(program, tmp_path, asked)):
        c = o.outputs[0]
        assert (c.text, c.finish_reason) == (text, reason), r
        assert [float(f"{d[t].logprob:.6g}") for t, d in zip(c.token_ids, c.logprobs)] == [float(f"{x:.6g}") for x in logprobs]
        assert math.isclose(c.cumulative_logprob, sum(logprobs), rel_tol=1e-4, abs_tol=1e-4)


def test_prompts_of_every_kind(llm, model):
    greedy = SamplingParams(temperature=0, max_tokens=4)
    ids = model.tokenize("The cat")
    forms = ["The cat", ids, {"prompt": "The cat"}, {"prompt_token_ids": ids}]
    texts = {o.outputs[0].text for f in forms for o in llm.generate(f, greedy)}
    assert len(texts) == 1 and len(llm.generate([ids, ids], greedy)) == 2
    o = llm.generate("The cat", greedy)[0]
    assert o.prompt == "The cat" and o.prompt_token_ids == ids and o.finished and o.outputs[0].logprobs is None
    with pytest.raises(bitnet.Error):
        llm.generate({"text": "x"})
    with pytest.raises(bitnet.Error):
        llm.generate(["a", "b"], [greedy])
    with pytest.raises(bitnet.Error):
        LLM(model, tensor_parallel_size=2)
    assert llm.generate([]) == []


def test_choices_and_chat(llm):
    o = llm.generate("Once", SamplingParams(n=3, seed=1, max_tokens=40))[0]
    assert [c.index for c in o.outputs] == [0, 1, 2] and len({c.text for c in o.outputs}) > 1
    asked = [{"role": "user", "content": "Tell me a story."}]
    assert len(llm.chat([asked, asked], SamplingParams(temperature=0, max_tokens=5))) == 2
    assert llm.chat(asked)[0].outputs[0].text
    assert llm.generate("x", SamplingParams(grammar='root ::= "yes"', max_tokens=8))[0].outputs[0].text == "yes"


def test_prompt_logprobs(llm):
    o = llm.generate("Once upon a time", SamplingParams(max_tokens=1, prompt_logprobs=1))[0]
    assert o.prompt_logprobs[0] is None and len(o.prompt_logprobs) == len(o.prompt_token_ids)
    assert all(t in d for t, d in zip(o.prompt_token_ids[1:], o.prompt_logprobs[1:]))


def test_seeds(model):
    texts = []
    for _ in range(2):
        with LLM(model, seed=5) as l:
            texts.append([o.outputs[0].text for o in l.generate(["Once"] * 4)])
    assert texts[0] == texts[1] and len(set(texts[0])) > 1


def test_asynchronous(model, program, tmp_path):
    asked = requests(40)
    engine = BitNetAsyncLLMEngine(model=model, tensor_parallel_size=1, max_num_seqs=8, max_num_batched_tokens=2048,
                                  enable_chunked_prefill=True)

    async def one(i, r):
        outputs = [o async for o in engine.generate(r["prompt"], params(r), f"r{i}")]
        assert all(b.outputs[0].text.startswith(a.outputs[0].text) for a, b in zip(outputs, outputs[1:]))
        assert [o.finished for o in outputs].count(True) == 1 and outputs[-1].finished
        return outputs[-1]

    async def aborted():
        last = None
        async for o in engine.generate("Once upon a time", SamplingParams(max_tokens=400, ignore_eos=True), "long"):
            last = o
            if len(o.outputs[0].token_ids) == 2:
                await engine.abort("long")
        assert last.outputs[0].finish_reason == "abort" and len(last.outputs[0].token_ids) < 400

    async def left():
        async for _ in engine.generate("Once upon a time", SamplingParams(max_tokens=400, ignore_eos=True)):
            break

    async def together():
        made, *_ = await asyncio.gather(asyncio.gather(*(one(i, r) for i, r in enumerate(asked))), aborted(), left())
        return made
    for o, (text, logprobs, reason) in zip(asyncio.run(together()), answers(program, tmp_path, asked)):
        assert (o.outputs[0].text, o.outputs[0].finish_reason) == (text, reason)
    engine.shutdown()
    engine.shutdown()
