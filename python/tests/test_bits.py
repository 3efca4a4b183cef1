# SPDX-License-Identifier: Apache-2.0
"""The same bits as the program: 200 requests through `bitnet batch` and through the package."""
import json
import random

import bitnet

WORDS = "cat dog king queen forest little big old magic garden river star baker dragon robot sister moon".split()


def requests(n=200):
    draw = random.Random(18)
    made = []
    for i in range(n):
        prompt = "Once upon a time there was a " + " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))
        made.append({"prompt": prompt, "max_tokens": draw.randint(1, 24), "seed": i, "temperature": draw.choice([0, 0.7, 1.2]),
                     "top_k": draw.choice([0, 5, 40]), "top_p": draw.choice([1, 0.9]), "logprobs": 2,
                     "repetition_penalty": draw.choice([1, 1.1])})
    return made


def sampling(r):
    return bitnet.Sampling(temperature=r["temperature"], top_k=r["top_k"], top_p=r["top_p"], min_p=0, seed=r["seed"],
                           repetition_penalty=r["repetition_penalty"])


def answers(program, tmp_path, asked):
    """What `bitnet batch` says: text, log-probabilities and reason of each."""
    (tmp_path / "in").write_text("".join(json.dumps(r) + "\n" for r in asked))
    program("batch", "-i", tmp_path / "in", "-o", tmp_path / "out", "-b", 8)
    found = []
    for line in (tmp_path / "out").read_text().splitlines():
        choice = json.loads(line)["response"]["body"]["choices"][0]
        found.append((choice["text"], choice["logprobs"]["token_logprobs"], choice["finish_reason"]))
    return found


def test_engine(engine, program, tmp_path):
    asked = requests()
    made = engine.generate_many(
        bitnet.Request(r["prompt"], r["max_tokens"], sampling(r), logprobs=True, n_top_logprobs=2) for r in asked)
    for r, ours, (text, logprobs, reason) in zip(asked, made, answers(program, tmp_path, asked)):
        assert ours.text == text, r
        assert [float(f"{x:.6g}") for x in ours.logprobs] == [float(f"{x:.6g}") for x in logprobs], r
        assert {"end": "stop"}.get(ours.finish, ours.finish) == reason


def test_run(engine, program):
    for seed in range(5):
        theirs = json.loads(program("run", "-p", "Once upon a time", "-n", 30, "--seed", seed, "--json"))
        assert engine.generate("Once upon a time", max_new_tokens=30, seed=seed).tokens == theirs["tokens"]
