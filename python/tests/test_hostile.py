# SPDX-License-Identifier: Apache-2.0
"""What programs do to the package that they should not, and what users do to programs."""
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import bitnet

PROMPT = "Once upon a time"


def rss():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_close_twice_and_use_after():
    model = bitnet.Model()
    engine = bitnet.Engine(model)
    stream = engine.stream(PROMPT, max_new_tokens=100)
    next(stream)
    for _ in range(2):
        engine.close()
        model.close()
    for use in (lambda: engine.generate(PROMPT), lambda: engine.info, lambda: engine.logits([1]), lambda: engine.embed("x"),
                lambda: engine.score([("a", "b")]), lambda: engine.perplexity("x"), lambda: model.info, lambda: model.tokenize("x"),
                lambda: bitnet.Engine(model), lambda: list(stream)):
        with pytest.raises(bitnet.Error, match="closed"):
            use()
    stream.close()


def test_model_closed_before_its_engine():
    model = bitnet.Model()
    engine = bitnet.Engine(model)
    want = engine.generate([0, 390], max_new_tokens=4, temperature=0).tokens
    ids = model.tokenize(PROMPT)
    model.close()
    assert engine._exclusive(lambda e: e is not None)
    with pytest.raises(bitnet.Error, match="model is closed"):
        engine.generate(PROMPT)
    assert engine.generate([0, 390], max_new_tokens=4, temperature=0).tokens == want and ids
    engine.close()


def test_collected_in_odd_orders():
    for order in range(4):
        model = bitnet.Model()
        engine = bitnet.Engine(model)
        stream = engine.stream(PROMPT, max_new_tokens=50)
        next(stream)
        model.cycle = [engine, stream, model]
        stream.cycle = model
        things = [model, engine, stream]
        del model, engine, stream
        while things:
            things.pop(order % len(things))
            gc.collect()
    gc.collect()


def test_threads_share_a_model(model):
    failures = []

    def work(seed):
        try:
            with bitnet.Engine(model, threads=1) as e:
                texts = {e.generate(PROMPT, max_new_tokens=10, seed=7).text for _ in range(3)}
                assert len(texts) == 1 and model.tokenize("a cat")
        except BaseException as e:
            failures.append(e)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_closed_under_another_thread(model):
    """Closing an engine while others generate ends them with an error, at once."""
    engine = bitnet.Engine(model, max_seqs=4)
    ends = []

    def work():
        try:
            while True:
                engine.generate(PROMPT, max_new_tokens=200, ignore_end=True)
        except bitnet.Error as e:
            ends.append(str(e))
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    time.sleep(0.1)
    engine.close()
    for t in threads:
        t.join(20)
    assert ends == ["the engine is closed"] * 3


def test_fork(python):
    python("""
import bitnet, os, gc
model = bitnet.Model(); engine = bitnet.Engine(model)
stream = engine.stream("Once", max_new_tokens=100); next(stream)
pid = os.fork()
if pid == 0:
    for use in (lambda: model.tokenize("x"), lambda: engine.generate("x"), lambda: next(stream), lambda: engine.info):
        try: use()
        except bitnet.Error as e: assert "fork" in str(e), e
        else: os._exit(3)
    stream.close(); engine.close(); model.close()
    del stream, engine, model; gc.collect()
    with bitnet.Engine() as mine:   # its own works
        assert mine.generate("Once upon a time", max_new_tokens=3, temperature=0).text == ", there was"
    raise SystemExit(7)             # the interpreter's whole way out
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert engine.generate("Once upon a time", max_new_tokens=3, temperature=0).text == ", there was"
""")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(tmp_path, method):
    (tmp_path / "pool.py").write_text(f"""
import bitnet, multiprocessing
def work(seed):
    with bitnet.Engine(threads=1) as e:
        return e.generate("Once upon a time", max_new_tokens=8, seed=seed).text
if __name__ == "__main__":
    here = [work(s) for s in range(3)]
    with bitnet.Engine() as parent, multiprocessing.get_context("{method}").Pool(2) as pool:
        assert pool.map(work, range(3)) == here
""")
    subprocess.run([sys.executable, tmp_path / "pool.py"], check=True, timeout=120)


INTERRUPTED = """
import bitnet, sys, time, signal
engine = bitnet.Engine(ctx_tokens=400, max_seqs=8)
which = sys.argv[1]
print("ready", flush=True)
try:
    while True:
        if which == "generate": engine.generate("Once upon a time", max_new_tokens=300, ignore_end=True)
        elif which == "stream":
            for event in engine.stream("Once upon a time", max_new_tokens=300, ignore_end=True): pass
        elif which == "prefill": engine.generate([5] * 390, max_new_tokens=1, prefix_cache="off")
        elif which == "program": bitnet.bench(repeat=1000)
        elif which == "perplexity": engine.perplexity([7] * 20000)
        elif which == "logits": engine.logits([9] * 390)
        elif which == "embed": engine.embed([[9] * 100] * 200)
        elif which == "score": engine.score([([9] * 100, [5, i]) for i in range(500)])
        elif which == "compare":
            with bitnet.Engine(engine.model, kv_type="int4", ctx_tokens=400) as other: bitnet.compare(engine, other, [7] * 20000)
        elif which == "async":
            import asyncio
            asyncio.run(engine.agenerate("Once upon a time", max_new_tokens=300, ignore_end=True))
except KeyboardInterrupt:
    at = time.monotonic()
    assert engine.generate("Once upon a time", max_new_tokens=3, temperature=0).text == ", there was"
    assert engine.info.n_running == 0, engine.info
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("which", ["generate", "stream", "prefill", "perplexity", "logits", "embed", "score", "compare", "async", "program"])
def test_interrupted(which):
    for delay in (0.02, 0.15, 0.31):
        p = subprocess.Popen([sys.executable, "-c", INTERRUPTED, which], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert p.stdout.readline() == "ready\n"
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, err = p.communicate(timeout=60)
        assert "interrupted" in out and p.returncode == 0, err
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("code", [
    "stream = engine.stream('Once', max_new_tokens=300); next(stream)",
    "stream = engine.stream('Once', max_new_tokens=300); next(stream); import sys; sys.modules['keep'] = [stream, engine]",
    "import threading; t = threading.Thread(target=lambda: [engine.generate('Once', ignore_end=True) for _ in range(10**6)],"
    " daemon=True); t.start(); import time; time.sleep(0.1)",
    "import asyncio\nasync def f():\n    s = engine.stream('Once', ignore_end=True)\n    await s.__anext__()\n    keep.append(s)\n"
    "keep = []\nasyncio.run(f())",
    "raise SystemExit",
])
def test_exit_in_the_middle(python, code):
    python(f"import bitnet\nengine = bitnet.Engine(ctx_tokens=400)\n{code}")


def test_interrupted_within_a_step(model):
    """A long prompt, read in small steps: what comes after the signal is less than a few of them."""
    with bitnet.Engine(model, threads=1, max_batch_tokens=16) as engine:
        def strike():
            while engine.info.work.steps < 4:
                time.sleep(0.0005)
            signal.raise_signal(signal.SIGINT)
        before = engine.info.work.prompt_tokens
        other = threading.Thread(target=strike)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            engine.generate([5] * 500, max_new_tokens=1)
        other.join()
        assert engine.info.work.prompt_tokens - before < 300 and engine.info.n_running == 0
        assert engine.generate(PROMPT, max_new_tokens=3, temperature=0).text == ", there was"


def test_exception_in_a_consumer(engine):
    with pytest.raises(ZeroDivisionError):
        for event in engine.stream(PROMPT, max_new_tokens=300):
            1 // 0
    gc.collect()
    engine.logits(PROMPT)
    assert engine.info.n_running == 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "bool", "object", "U4", "datetime64[s]", "V8"])
def test_wrong_dtypes(engine, dtype):
    """An error or, where every value is a token after all, an answer; nothing else."""
    ids = np.zeros(4, dtype)
    for use in (lambda: engine.generate(ids, max_new_tokens=1), lambda: engine.logits(ids), lambda: engine.embed([ids]),
                lambda: engine.score([(ids, ids)]), lambda: engine.perplexity(ids), lambda: engine.model.detokenize(ids)):
        with pytest.raises(bitnet.Error):
            use()


def test_wrong_places_for_logits(engine):
    n = engine.model.info.shape.n_vocab
    wrong = [np.empty((5, n), "float64"), np.empty((4, n), "float32"), np.empty((n, 5), "float32").T, np.empty((5, 2 * n), "float32")[:, ::2]]
    fixed = np.empty((5, n), "float32")
    fixed.flags.writeable = False
    for out in (*wrong, fixed):
        with pytest.raises(bitnet.Error):
            engine.logits(PROMPT, out=out)


def test_huge(engine):
    with pytest.raises(bitnet.Error):
        engine.generate(np.full(10**7, 5, "int64"))
    with pytest.raises(bitnet.Error):
        engine.logits(np.full(10**6, 5, "uint8"))
    with pytest.raises(bitnet.Error):
        engine.generate(np.array([2**63], "uint64"))
    with pytest.raises(bitnet.Error):
        engine.generate(np.broadcast_to(np.int64(5), (2, 3, 4)))
    with pytest.raises(bitnet.Error):
        engine.generate([1] * 100_000)
    with pytest.raises(bitnet.Error):
        engine.generate(PROMPT, n_choices=2**31)
    with pytest.raises(bitnet.Error):
        bitnet.Engine(engine.model, ctx_tokens=2**31, max_seqs=2**31)
    with pytest.raises(bitnet.Error):
        engine.generate(PROMPT, stop=["a\0b"])


def cycles(n):
    with bitnet.Model() as model:
        for i in range(n):
            with bitnet.Engine(model, threads=1, ctx_tokens=64):
                pass


def test_open_close_holds_memory_flat():
    n = int(os.environ.get("BITNET_CYCLES", "300"))
    cycles(max(20, n // 10))
    before = rss()
    cycles(n)
    assert rss() - before < 8 << 20
