# SPDX-License-Identifier: Apache-2.0
"""The same bits as the program: 200 requests through `bitnet batch` and through every layer of the package."""
import asyncio
import json
import random

import numpy as np
import pytest

import bitnet
from bitnet.cpu.engine import BitNetCPUInferenceEngine
from bitnet_core import BitNetModel
from bitnet_vllm import BitNetAsyncLLMEngine

WORDS = "cat dog king queen forest little big old magic garden river star baker dragon robot sister moon".split()


def requests(n=200):
    draw = random.Random(18)
    made = []
    for i in range(n):
        prompt = "Once upon a time there was a " + " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))
        made.append({"prompt": prompt, "max_tokens": draw.randint(1, 24), "seed": i, "temperature": draw.choice([0, 0.7, 1.2]),
                     "top_k": draw.choice([0, 5, 40]), "top_p": draw.choice([1, 0.9]), "min_p": 0, "logprobs": 2,
                     "repetition_penalty": draw.choice([1, 1.1])})
    return made


@pytest.fixture(scope="module")
def asked():
    """The requests, each with what `bitnet batch` says: text, log-probabilities, and why it ended."""
    return requests()


@pytest.fixture(scope="module")
def answers(program, asked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("batch")
    (folder / "in").write_text("".join(json.dumps(r) + "\n" for r in asked))
    program("batch", "-i", folder / "in", "-o", folder / "out", "-j", 8)
    found = []
    for line in (folder / "out").read_text().splitlines():
        choice = json.loads(line)["response"]["body"]["choices"][0]
        found.append((choice["text"], choice["logprobs"]["token_logprobs"], choice["finish_reason"]))
    assert len(found) == len(asked) == 200
    return found


def printed(logprobs):
    """As many digits as JSON has."""
    return [float(f"{x:.6g}") for x in logprobs]


def sampling(r):
    return bitnet.Sampling(temperature=r["temperature"], top_k=r["top_k"], top_p=r["top_p"], min_p=r["min_p"], seed=r["seed"],
                           repetition_penalty=r["repetition_penalty"])


def request(r):
    return bitnet.Request(r["prompt"], r["max_tokens"], sampling(r), logprobs=True, n_top_logprobs=2)


def check_results(results, asked, answers):
    for r, ours, (text, logprobs, reason) in zip(asked, results, answers):
        assert ours.text == text, r
        assert printed(ours.logprobs) == printed(logprobs), r
        assert {"end": "stop"}.get(ours.finish, ours.finish) == reason


def test_engine(engine, asked, answers):
    check_results(engine.generate_many(map(request, asked)), asked, answers)


def test_engine_in_an_event_loop(engine, asked, answers):
    async def one(r):
        result = bitnet.Result([bitnet.Choice()])
        async for event in engine.stream(request(r)):
            result.add(event, True)
        return result

    async def together():
        return await asyncio.gather(*map(one, asked))
    check_results(asyncio.run(together()), asked, answers)


def params(r):
    return bitnet.SamplingParams(temperature=r["temperature"], top_k=r["top_k"], top_p=r["top_p"], seed=r["seed"],
                                 max_tokens=r["max_tokens"], repetition_penalty=r["repetition_penalty"], logprobs=r["logprobs"])


def check_outputs(outputs, asked, answers):
    for r, o, (text, logprobs, reason) in zip(asked, outputs, answers):
        c = o.outputs[0]
        assert (c.text, c.finish_reason) == (text, reason), r
        assert printed(d[t].logprob for t, d in zip(c.token_ids, c.logprobs)) == printed(logprobs), r
        assert c.cumulative_logprob == pytest.approx(sum(logprobs), rel=1e-4, abs=1e-4)


def test_llm(model, asked, answers):
    with bitnet.LLM(model, max_num_seqs=8) as llm:
        check_outputs(llm.generate([r["prompt"] for r in asked], list(map(params, asked))), asked, answers)


def test_llm_in_an_event_loop(model, asked, answers):
    engine = BitNetAsyncLLMEngine(model=model, max_num_seqs=8)

    async def one(i, r):
        async for output in engine.generate(r["prompt"], params(r), f"r{i}"):
            last = output
        return last

    async def together():
        return await asyncio.gather(*(one(i, r) for i, r in enumerate(asked)))
    check_outputs(asyncio.run(together()), asked, answers)
    engine.shutdown()


LAYERS = {
    "transformers": lambda: bitnet.BitNetForCausalLM.from_pretrained("embedded"),
    "bitnet_core": lambda: BitNetModel.from_pretrained("embedded", use_fast_kernels=True),
    "bitnet.cpu": lambda: BitNetCPUInferenceEngine("embedded"),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_ids_and_logits(layer, model, asked, answers):
    """Layers that take ids, and give ids and logits: of these the log-probabilities are computed here."""
    with LAYERS[layer]() as lm:
        logits_of = lm.forward if layer == "bitnet.cpu" else lambda ids: lm(ids).logits
        for r, (text, logprobs, _) in zip(asked, answers):
            ids = model.tokenize(r["prompt"])
            out = lm.generate(np.array([ids]), max_new_tokens=r["max_tokens"], do_sample=r["temperature"] > 0,
                              temperature=r["temperature"], top_k=r["top_k"], top_p=r["top_p"], seed=r["seed"],
                              repetition_penalty=r["repetition_penalty"])[0]
            made = out[len(ids):].tolist()
            assert out[:len(ids)].tolist() == ids and model.detokenize(made) == text, r
            rows = logits_of(out[None, :-1])[0][len(ids) - 1:].astype(np.float64)
            rows -= rows.max(1, keepdims=True)
            chances = rows[np.arange(len(made)), made] - np.log(np.exp(rows).sum(1))
            assert np.allclose(chances[:len(logprobs)], logprobs, atol=2e-5, rtol=2e-5), r


def test_run(engine, program):
    for seed in range(5):
        theirs = json.loads(program("run", "-p", "Once upon a time", "-n", 30, "--seed", seed, "--json"))
        assert engine.generate("Once upon a time", max_new_tokens=30, seed=seed).tokens == theirs["tokens"]
