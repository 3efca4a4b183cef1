# SPDX-License-Identifier: Apache-2.0
"""The interface of vLLM."""
import asyncio

import pytest

import bitnet
from bitnet import LLM, SamplingParams
from bitnet_vllm import BitNetAsyncLLMEngine, LoRARequest
from test_bits import params, requests


@pytest.fixture(scope="module")
def llm(model):
    with LLM(model, max_num_seqs=8) as l:
        yield l


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


@pytest.mark.parametrize("wrong", [{"n": 0}, {"max_tokens": 0}, {"max_tokens": -1}])
def test_wrong_numbers(llm, wrong):
    """0 is no wish for the engine's default."""
    with pytest.raises(bitnet.Error, match="at least 1"):
        llm.generate("Once", SamplingParams(**wrong))


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


def test_asynchronous(model, llm):
    asked = requests(24)
    alone = llm.generate([r["prompt"] for r in asked], list(map(params, asked)))
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
    assert [o.outputs for o in asyncio.run(together())] == [o.outputs for o in alone]
    engine.shutdown()
    engine.shutdown()


def test_adapters_and_ends(llm, model, lora, engine):
    """Adapters, priorities and ends by vLLM's names give what the engine gives by its own."""
    style, greedy = LoRARequest("style", 1, lora), SamplingParams(temperature=0, max_tokens=30)
    with bitnet.Adapter(model, lora) as adapter:
        want = [engine.generate("Once upon a time", max_new_tokens=30, temperature=0, min_p=0, top_p=1, top_k=0, adapters=a).text
                for a in ([adapter], ())]
    assert want[0] != want[1]

    def texts(*args, **options):
        return [o.outputs[0].text for o in llm.generate(*args, **options)]
    assert texts(["Once upon a time"] * 2, greedy, lora_request=style) == [want[0]] * 2
    assert texts(["Once upon a time"] * 2, greedy, lora_request=[style, None], priority=[1, 0]) == want
    with pytest.raises(bitnet.Error, match="2 prompts came with 1 adapters"):
        llm.generate(["a", "b"], greedy, lora_request=[style])

    ids = llm.generate("Once upon a time", greedy)[0].outputs[0].token_ids
    cut = SamplingParams(temperature=0, max_tokens=30, stop_token_ids=[ids[3]])
    assert len(llm.generate("Once upon a time", cut)[0].outputs[0].token_ids) <= 4
    later = SamplingParams(temperature=0, max_tokens=6, stop_token_ids=[ids[3]], min_tokens=6)
    assert len(llm.generate("Once upon a time", later)[0].outputs[0].token_ids) == 6
    shown = SamplingParams(temperature=0, max_tokens=30, stop="there", include_stop_str_in_output=True)
    assert texts("Once upon a time", shown) == [", there"]

    async def story():
        engine = BitNetAsyncLLMEngine(model=model)
        async for o in engine.generate("Once upon a time", greedy, lora_request=style):
            last = o
        engine.shutdown()
        return last.outputs[0].text
    assert asyncio.run(story()) == want[0]
