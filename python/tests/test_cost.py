# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the work of the engine: time for each token, and memory over many requests. Throughput beside the
program's is measured by hand, with tools/python_cost.py: it needs a quiet machine."""
import os
import pathlib
import time

import bitnet
import bitnet.engine


def rss():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_event_costs_little(engine, monkeypatch):
    """The CPU time of Python for an event, with a step that computes nothing and reports the same token again."""
    real = bitnet.engine.lib
    stream = engine.stream("Once upon a time", max_new_tokens=400, ignore_end=True)
    next(stream)
    event = next(stream)

    class Library:
        def __getattr__(self, name):
            return getattr(real, name)

        @staticmethod
        def bitnet_step(c, events, n, err):
            events[0].id, n[0] = event.id, 1
            return 0
    monkeypatch.setattr(bitnet.engine, "lib", Library())
    best = 1.0
    for _ in range(5):
        began = time.thread_time()
        for _ in range(5000):
            assert next(stream).token == event.token
        best = min(best, (time.thread_time() - began) / 5000)
    monkeypatch.undo()
    stream.close()
    assert best < 20e-6, f"{best * 1e6:.1f} us"


def test_a_thousand_prompts_hold_memory_flat(model):
    with bitnet.LLM(model, max_num_seqs=16) as llm:
        llm.engine.warmup()  # all pages of its caches are there
        params = bitnet.SamplingParams(max_tokens=4, temperature=0)

        def run(n):
            assert len(llm.generate([f"Once upon a time there were {i} cats" for i in range(n)], params)) == n
            return rss()
        before = run(200)
        assert run(1000) - before < 16 << 20
