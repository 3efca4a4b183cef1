# SPDX-License-Identifier: Apache-2.0
import asyncio
import dataclasses
import enum
import json
import sys
import threading

import numpy as np
import pydantic
import pytest

import bitnet
from conftest import ROOT

PROMPT = "Once upon a time"


def test_stream_is_the_result(engine):
    whole = engine.generate(PROMPT, max_new_tokens=24, seed=3)
    events = list(engine.stream(PROMPT, max_new_tokens=24, seed=3))
    assert "".join(e.text for e in events) == whole.text == str(whole)
    assert [e.token for e in events if e.token is not None] == whole.tokens
    assert events[-1].finish == whole.finish == "length"
    assert whole.n_prompt == 5 and whole.prefill_ns >= 0


def test_options(engine):
    request = bitnet.Request(PROMPT, max_new_tokens=8, sampling=bitnet.Sampling.greedy())
    assert engine.generate(request).tokens == engine.generate(PROMPT, max_new_tokens=8, temperature=0).tokens
    with pytest.raises(TypeError, match="temprature"):
        engine.generate(PROMPT, temprature=1)
    for wrong in ({"temperature": "hot"}, {"top_k": -1}, {"max_new_tokens": 2**40}, {"temperature": float("nan")}, {"seed": -1}):
        with pytest.raises(bitnet.Error):
            engine.generate(PROMPT, **wrong)
    with pytest.raises(bitnet.Error):
        engine.generate([])


def test_stop_and_bias(engine):
    r = engine.generate(PROMPT, max_new_tokens=50, temperature=0, stop="Lily")
    assert r.finish == "stop" and "Lily" not in r.text
    first = engine.generate(PROMPT, max_new_tokens=1, temperature=0).tokens[0]
    r = engine.generate(PROMPT, max_new_tokens=1, temperature=0, logit_bias={first: float("-inf")})
    assert r.tokens[0] != first


def test_logprobs(engine):
    r = engine.generate(PROMPT, max_new_tokens=6, temperature=0, logprobs=True, n_top_logprobs=3)
    c = r.choices[0]
    assert len(c.logprobs) == len(c.tops) == 6
    assert all(top[0] == (token, logprob) for token, logprob, top in zip(c.tokens, c.logprobs, c.tops))
    rows = engine.logits(engine.model.tokenize(PROMPT) + c.tokens).astype(np.float64)
    rows -= np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) + rows.max(1, keepdims=True)
    assert np.allclose([rows[4 + i, t] for i, t in enumerate(c.tokens)], c.logprobs, atol=1e-5)


def test_prompt_logprobs(engine):
    ids = engine.model.tokenize("Once upon a time there was a cat.")
    r = engine.generate(ids, prompt_logprobs=True, n_top_prompt_logprobs=2, prompt_only=True)
    assert r.tokens == [] and [row[0][0] for row in r.prompt_logprobs] == ids[1:]
    rows = engine.logits(ids).astype(np.float64)
    rows -= np.log(np.exp(rows).sum(1, keepdims=True))
    for i, row in enumerate(r.prompt_logprobs):
        assert abs(rows[i, ids[i + 1]] - row[0][1]) < 1e-4 and row[1][0] == rows[i].argmax() and len(row) == 3


def test_choices(engine):
    r = engine.generate(PROMPT, max_new_tokens=8, n_choices=3, seed=5)
    alone = [engine.generate(PROMPT, max_new_tokens=8, seed=5 + i).text for i in range(3)]
    assert [c.text for c in r.choices] == alone


def test_constraints(engine):
    @dataclasses.dataclass
    class Animal:
        name: str
        legs: int

    for schema in (Animal, bitnet.json_schema(Animal), json.dumps(bitnet.json_schema(Animal))):
        r = engine.generate(PROMPT, max_new_tokens=120, json_schema=schema, seed=1)
        made = json.loads(r.text)
        assert isinstance(made["name"], str) and isinstance(made["legs"], int)
    assert engine.generate(PROMPT, grammar='root ::= "yes" | "no"', max_new_tokens=8).text in ("yes", "no")
    with pytest.raises(bitnet.Error):
        engine.generate(PROMPT, grammar="root ::= (", max_new_tokens=8)


def test_pydantic_judges(engine):
    """What pydantic describes, pydantic reads: references, enumerations, bounds."""
    class Kind(enum.Enum):
        CAT, DOG = "cat", "dog"

    class Owner(pydantic.BaseModel):
        name: str

    class Pet(pydantic.BaseModel):
        kind: Kind
        owner: Owner
        legs: int = pydantic.Field(ge=0, le=8)

    read = getattr(Pet, "model_validate_json", None) or Pet.parse_raw
    for seed in range(4):
        pet = read(engine.generate(PROMPT, json_schema=Pet, max_new_tokens=200, seed=seed).text)
        assert isinstance(pet.kind, Kind) and isinstance(pet.owner.name, str) and 0 <= pet.legs <= 8


def test_leaving_early(engine):
    before = engine.info
    with engine.stream(PROMPT, max_new_tokens=400) as stream:
        for event in stream:
            if event.n_generated == 3:
                break
    assert engine.info.n_running == 0
    stream = engine.stream(PROMPT, max_new_tokens=400)
    next(stream)
    del stream  # lost: the next call cleans up
    engine.logits(PROMPT)
    after = engine.info
    assert after.n_running == 0 and after.work.generated_tokens - before.work.generated_tokens < 50


def test_streams_in_turn(engine):
    """Two streams read alternately by one thread are what each is alone."""
    alone = [engine.generate(PROMPT, max_new_tokens=20, seed=s).text for s in (1, 2)]
    streams = [engine.stream(PROMPT, max_new_tokens=20, seed=s) for s in (1, 2)]
    texts = ["", ""]
    while True:
        events = [next(s, None) for s in streams]
        for i, e in enumerate(events):
            texts[i] += e.text if e else ""
        if not any(events):
            break
    assert texts == alone


def test_threads_share_an_engine(engine):
    want = [engine.generate(PROMPT, max_new_tokens=20, seed=s).text for s in range(8)]
    got = [None] * 8

    def work(s):
        got[s] = engine.generate(PROMPT, max_new_tokens=20, seed=s).text
    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == want


def test_async(engine):
    want = [engine.generate(PROMPT, max_new_tokens=20, seed=s).text for s in range(6)]

    async def one(s):
        text = ""
        async for event in engine.stream(PROMPT, max_new_tokens=20, seed=s):
            text += event.text
        return text

    async def cancelled():
        task = asyncio.ensure_future(engine.agenerate(PROMPT, max_new_tokens=400, ignore_end=True))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def together():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)
        ticker = asyncio.ensure_future(tick())
        texts, _ = await asyncio.gather(asyncio.gather(*map(one, range(6))), cancelled())
        ticker.cancel()
        assert ticks > 3  # the loop was free meanwhile
        return texts
    assert asyncio.run(together()) == want
    assert engine.generate(PROMPT, max_new_tokens=20, seed=0).text == want[0]
    assert engine.info.n_running == 0


def test_many(engine):
    prompts = [f"Once upon a time there was a {x}" for x in ("cat", "dog", "bird", "car", "king")] * 5
    many = engine.generate_many(prompts, max_new_tokens=10, temperature=0)
    assert [r.text for r in many] == [engine.generate(p, max_new_tokens=10, temperature=0).text for p in prompts]


def test_logits(engine, program, tmp_path):
    ids = engine.model.tokenize("Once upon a time there was a cat.")
    program("logits", "--ids", ",".join(map(str, ids)), "--out", tmp_path / "logits", "--kv-type", "f16")
    theirs = np.fromfile(tmp_path / "logits", "<f4").reshape(len(ids), -1)
    ours = engine.logits(ids)
    assert ours.dtype == np.float32 and ours.tobytes() == theirs.tobytes()
    assert engine.logits(ids, last_only=True).tobytes() == theirs[-1].tobytes()
    with pytest.raises(bitnet.Error):
        engine.logits([])
    with pytest.raises(bitnet.Error):
        engine.logits([1] * 5000)
    assert engine.logits(ids).tobytes() == theirs.tobytes()


def test_embeddings(engine, program):
    texts = ["a cat", "a dog", "the king of the castle"]
    ours = engine.embed(texts)
    assert ours.shape == (3, 512) and np.allclose((ours ** 2).sum(1), 1, atol=1e-5)
    assert engine.embed(texts[1]).tobytes() == ours[1].tobytes()
    assert not np.allclose((engine.embed(texts, normalize=False, pooling="last") ** 2).sum(1), 1)
    assert engine.embed([]).shape == (0, 512)
    with pytest.raises(bitnet.Error):
        engine.embed(["x"], pooling="max")


def test_scores(engine):
    pairs = [("Once upon a", " time"), ("Once upon a", " banana"), ("The cat sat on the", " mat")]
    for (context, text), score in zip(pairs, engine.score(pairs)):
        a, b = engine.model.tokenize(context), engine.model.tokenize(text, bos=False)
        rows = engine.logits(a + b).astype(np.float64)
        rows = rows - np.log(np.exp(rows).sum(1, keepdims=True))
        expected = sum(rows[len(a) - 1 + i, t] for i, t in enumerate(b))
        assert abs(expected - score.logprob) < 1e-3
    assert engine.score(pairs)[0].greedy and not engine.score(pairs)[1].greedy and engine.score([]) == []


def test_perplexity(engine, program, tmp_path):
    text = "Once upon a time there was a little girl. She loved to play with her toys. One day she saw a big dog. " * 30
    (tmp_path / "text").write_text(text)
    theirs = json.loads(program("perplexity", "--file", tmp_path / "text", "--json"))
    ours = engine.perplexity(text)
    assert ours.perplexity == pytest.approx(theirs["perplexity"], rel=1e-9)

    def fail(what, done, total):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        engine.perplexity(text, progress=fail)

    def reenter(what, done, total):
        engine.generate(PROMPT)
    with pytest.raises(bitnet.Error, match="callback"):
        engine.perplexity(text, progress=reenter)


def test_health(engine):
    engine.generate(PROMPT, max_new_tokens=20)
    assert engine.health().logit_rows > 0
    assert 0 < engine.kv_health(0).keys.entropy_bits < 8
    first = engine.scrub()
    assert first.total_bytes > 0 and engine.scrub().mismatches == 0


def test_profile(model):
    with bitnet.Engine(model, profile="on") as e:
        e.generate(PROMPT, max_new_tokens=8)
        assert {"matrix", "attention"} <= {p.kind for p in e.profile()}
    with bitnet.Engine(model) as e, pytest.raises(bitnet.Error):
        e.profile()


def test_chat(engine):
    r = engine.chat([{"role": "user", "content": "Tell me a story about a dragon and a cake."}], max_new_tokens=30, temperature=0)
    assert len(r.text) > 20


def test_kv_types(model):
    with bitnet.Engine(model, kv_type="fp8") as e:
        assert e.info.kv.type == "fp8_e4m3"
    with pytest.raises(bitnet.Error, match="int8"):
        bitnet.Engine(model, kv_type="fp7")


def told(program, lora, scale=1):
    return json.loads(program("run", PROMPT, "-n", 40, "--temp", 0, "--json", "--lora", f"a={lora}:{scale}"))["text"]


def test_adapters(engine, model, tmp_path, program, lora):
    """The tokens of the program with the same adapter, in company with requests that have none."""
    with bitnet.Adapter(model, lora) as adapter:
        assert (adapter.info.format, adapter.info.n_matrices, adapter.info.rank_max) == ("PEFT", 30, 4)
        streams = [engine.stream(PROMPT, max_new_tokens=40, temperature=0, adapters=a) for a in ([(adapter, 0.5)], None, [(adapter, 0.5)])]
        one, plain, other = (["".join(e.text for e in s)][0] for s in streams)
    assert one == other == told(program, lora, 0.5) != plain
    with pytest.raises(bitnet.Error, match="closed"):
        engine.generate(PROMPT, adapters=[adapter])
    with pytest.raises(bitnet.Error):
        bitnet.Adapter(model, tmp_path / "nothing")


def test_adapters_of_an_engine(model, program, lora):
    """For requests that name none, and for logits; until they are taken away."""
    with bitnet.Engine(model) as engine, bitnet.Adapter(model, lora) as adapter:
        def answer(**options):
            return engine.generate(PROMPT, max_new_tokens=40, temperature=0, **options).text
        plain, rows = answer(), engine.logits(PROMPT)
        engine.set_adapters([(adapter, 0.5)])
        assert answer() == told(program, lora, 0.5) != plain == answer(adapters=())
        assert not np.array_equal(engine.logits(PROMPT), rows)
        engine.set_adapters()
        assert answer() == plain and np.array_equal(engine.logits(PROMPT), rows)
        with pytest.raises(bitnet.Error, match="at most|8"):
            engine.set_adapters([adapter] * 9)


def waits(engine, *requests):
    """How long each has waited for its turn, of requests that were submitted in this order to an engine for one."""
    streams = [engine.stream(PROMPT, max_new_tokens=20, ignore_end=True, seed=i, **r) for i, r in enumerate(requests)]
    return [stream.result().queue_ns for stream in streams]


def test_users_share(model):
    """Who comes last with one request is not behind all of another user's, and is without users."""
    with bitnet.Engine(model, max_seqs=1, threads=1) as engine:
        *greedy, modest = waits(engine, *[{"user": 1}] * 4, {"user": 2})
        assert modest < max(greedy)
        *first, last = waits(engine, *[{}] * 5)
        assert last > max(first)


def test_priority(model):
    with bitnet.Engine(model, max_seqs=1, threads=1) as engine:
        *others, hurried = waits(engine, {}, {}, {}, {"priority": -1})
        assert hurried < others[1] and hurried < others[2]
    with bitnet.Engine(model) as engine:
        for wrong in ({"priority": 2**31}, {"user": -1}, {"user_weight": 2**32}, {"user_weight": 1_000_001}):
            with pytest.raises(bitnet.Error, match="priority|user|weight"):
                engine.generate(PROMPT, **wrong)


def test_stop_tokens(engine):
    tokens = engine.generate(PROMPT, max_new_tokens=6, temperature=0).tokens
    cut = engine.generate(PROMPT, max_new_tokens=6, temperature=0, stop_tokens=(tokens[3],))
    assert cut.finish == "stop" and len(cut.tokens) <= 4
    kept = engine.generate(PROMPT, max_new_tokens=6, temperature=0, stop_tokens=(tokens[3],), min_new_tokens=5)
    assert len(kept.tokens) == 6 and kept.tokens[3] != tokens[3]
    shown = engine.generate(PROMPT, max_new_tokens=6, temperature=0, stop=("there",), show_stop=True).text
    assert shown == ", there" and engine.generate(PROMPT, max_new_tokens=6, temperature=0, stop=("there",)).text == ", "
