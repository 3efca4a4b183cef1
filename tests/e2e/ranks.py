#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program started by mpirun: several processes compute one model, with the answers of one.

usage: ranks.py BITNET [--slow]      output is TAP; --slow has the longer cases instead of the short ones
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests" / "lib"))
from checkpoints import GOLDEN, unpacked
from serving import until
from tap import Tap, comment, find

BITNET = sys.argv[1]
STORY = "Once upon a time"
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
           OMPI_MCA_btl_vader_single_copy_mechanism="none", BITNET_TUNING="off")
LOST_S = 5        # in which a lost rank is named
CALL_S = 120


def mpirun(n, *args):
    return [find("mpirun"), "-n", str(n), BITNET, *map(str, args)]


def run(n, *args, code=0, stdin=None):
    words = mpirun(n, *args) if n > 1 else [BITNET, *map(str, args)]
    r = subprocess.run(words, capture_output=True, text=True, timeout=CALL_S, env=ENV, input=stdin)
    assert r.returncode == code or (code and r.returncode), f"{words}: exit {r.returncode}\n{r.stdout}\n{r.stderr}"
    return r


def answer(n, *args):
    r = json.loads(run(n, "run", "--json", "-t", 1, *args).stdout)
    return r["text"], r.get("tokens")


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def prompts(folder, n, **more):
    """A file of requests, some of which begin alike."""
    path = folder / "prompts.jsonl"
    words = "cat dog sun ball tree girl boy park rain boat".split()
    with open(path, "w") as f:
        for i in range(n):
            text = f"{STORY}, there was a {words[i % 10]}" + (f" and a {words[i // 10]}." if i % 3 else "")
            body = {"prompt": text, "max_tokens": 12, "seed": i, "temperature": 0 if i % 2 else 0.9, "logprobs": 2, **more}
            f.write(json.dumps({"custom_id": f"p{i}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    return path


def batch(n, path, out, *args):
    run(n, "batch", "--input", path, "--output", out, "-t", 1, *args)
    lines = [json.loads(line) for line in open(out)]
    return sorted((one["custom_id"], one["response"]["body"]["choices"]) for one in lines)


# ------------------------------------------------------------------ short cases

def test_run():
    want = answer(1, "-p", STORY, "-n", 24, "--temp", 0)
    for n in (2, 3):
        equal(answer(n, "-p", STORY, "-n", 24, "--temp", 0), want, f"{n} ranks")
    for outputs in ("split", "whole"):
        equal(answer(3, "-p", STORY, "-n", 24, "--temp", 0, "--split", "2,1,1", "--split-outputs", outputs), want,
              f"uneven parts, outputs {outputs}")
    drawn = ("-p", STORY, "-n", 16, "--temp", 1, "--seed", 7, "--head", "screened")
    equal(answer(2, *drawn), answer(1, *drawn), "drawn, with a screened head")


def logits(n, folder, model, ids, *args):
    out = pathlib.Path(folder) / f"logits{n}"
    run(n, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, "-t", 1, *args)
    return out.read_bytes()


def same_logits(model, *args, ranks=(2, 3)):
    """75 tokens, several pages of keys, in pieces."""
    with tempfile.TemporaryDirectory() as folder:
        at = lambda n: logits(n, folder, model, [i * 71 % 96 + 1 for i in range(75)], "--chunk", 16, *args)
        want = at(1)
        for n in ranks:
            assert at(n) == want, f"{model} {args}: {n} ranks"


def test_hybrid():
    """Delta nets, gated attention, rotated columns; states in two bytes, keys in half a byte."""
    same_logits(ROOT / "tests/data/hybrid/tiny.gguf", "--state-type", "bf16", "--kv-type", "int4")


def test_bench():
    """Ranks meet four times in a layer, or twice."""
    for outputs, times in (("split", 4), ("whole", 2)):
        r = json.loads(run(2, "bench", "--mode", "stream", "-n", 8, "-r", 1, "--warmup", 0, "--json", "-t", 1, "--split-outputs", outputs).stdout)
        m = r["measurements"][0]
        assert 10 * times <= m["exchanges_per_step"] <= 10 * times + 6, m
        assert 0 < m["exchange_ms_per_step"] < m["step_ms"]["max"], m
        assert any("ranks met" in note for note in r["notes"]), r["notes"]


def test_refused():
    for args, says in ((("run", "--nonsense"), "'--nonsense'"), (("inspect",), "'inspect' is not for several ranks"),
                       (("run", "-p", "a", "--split", "1,2,3"), "--split"),
                       (("run", "-p", "a", "--split", "1,0"), "--split"),
                       (("run", "-m", "absent.gguf", "-p", "a"), "cannot open 'absent.gguf'")):
        r = run(2, *args, code=1)
        lines = [line for line in r.stderr.splitlines() if line.startswith("bitnet: ")]
        assert len(lines) == 1 and says in lines[0], f"{args}: {r.stderr}"


def test_killed():
    lose(signal.SIGKILL, 1, 0.2)


# ------------------------------------------------------------------ long cases

def test_batches():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = prompts(folder, 50)
        want = batch(1, path, folder / "1.jsonl", "--max-num-seqs", 8)
        for n in (2, 3, 4):
            equal(batch(n, path, folder / f"{n}.jsonl", "--max-num-seqs", 8), want, f"50 prompts by {n} ranks")


def test_families():
    """The tiny checkpoints that api/api_ranks cannot open: they are compressed. Each has what others have not."""
    with tempfile.TemporaryDirectory() as folder:
        for i, path in enumerate(sorted({path.parent for path in GOLDEN.glob("*/*.xz")})):
            same_logits(unpacked(path, folder), ranks=(2 + i % 2,))


def test_hybrid_batches():
    """States that are saved and restored, drafts that are checked; then with a layer that drafts."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path, drafts = prompts(folder, 24), folder / "drafts.gguf"
        run(1, "synth", "qwen35-tiny-rotated", drafts, "--mtp")
        for model in (ROOT / "tests/data/hybrid/hybrid-28m.gguf", drafts):
            how = ("-m", model, "--max-num-seqs", 4, "--speculation", "on", "--restart")
            want = batch(1, path, folder / "out.jsonl", *how)
            for n in (2, 3):
                equal(batch(n, path, folder / "out.jsonl", *how), want, f"{model.name}: 24 prompts by {n} ranks")
        drawn = lambda n: json.loads(run(n, "run", "--json", "-t", 1, "-m", drafts, "-p", STORY, "-n", 48, "--temp", 0, "--ignore-eos",
                                         "--speculation", "on").stdout)
        of = lambda n: (drawn(n)["text"], drawn(n)["speculation"])
        equal(of(2), of(1), "a layer that drafts guesses the same")
        assert of(1)[1]["draft_tokens"] > 20, "drafts were made"


def test_shards():
    """Each process answers its part; one is killed in the middle; the same command goes on."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = prompts(folder, 80, max_tokens=100, ignore_eos=True)
        run(1, "batch", "--input", path, "--output", folder / "one.jsonl", "-t", 1)
        command = ("batch", "--input", path, "--output", folder / "part-%.jsonl", "--shard", "auto", "-t", 1)
        parts = [folder / f"part-{i}.jsonl" for i in (1, 2, 3, 4)]
        p = subprocess.Popen(mpirun(4, *command), env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("all have begun", lambda: p.poll() is not None or all(part.exists() and part.stat().st_size for part in parts))
        ranks = ranks_of(p.pid)
        if 2 in ranks:
            os.kill(ranks[2], signal.SIGKILL)
        p.wait(60)
        run(4, *command)
        run(1, "batch", "merge", "--input", path, "--output", folder / "merged.jsonl", *parts)
        comment(f"killed: {2 in ranks}, mpirun's exit code {p.returncode}")
        assert (folder / "merged.jsonl").read_bytes() == (folder / "one.jsonl").read_bytes(), "merged as one machine's"


def test_perplexity():
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_text((STORY + ", there was a little girl named Lily. She loved to play outside. ") * 12)
        of = lambda n: json.loads(run(n, "perplexity", "--file", text, "--json", "-t", 1).stdout)["nll_per_token"]
        equal(of(2), of(1), "perplexity")
        vector = lambda n: run(n, "embed", "-t", 1, "--input", text).stdout
        equal(vector(2), vector(1), "a vector")


def test_server():
    import http.client
    port = 18000 + os.getpid() % 2000
    p = subprocess.Popen(mpirun(2, "serve", "--port", port, "-t", 1), env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True)
    try:
        def ask():
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            c.request("POST", "/v1/completions", json.dumps({"prompt": STORY, "max_tokens": 20, "temperature": 0}),
                      {"Content-Type": "application/json"})
            return json.loads(c.getresponse().read())["choices"][0]["text"]

        def up():
            try:
                return bool(ask())
            except OSError:
                return False
        until("the server answers", up)
        want = json.loads(run(1, "run", "--json", "-p", STORY, "-n", 20, "--temp", 0).stdout)["text"]
        assert want.endswith(ask()), "a server's answer is that of run"
        p.send_signal(signal.SIGTERM)
        p.wait(20)
        assert not ranks_of(p.pid), "nothing is left"
    finally:
        p.kill()
        p.wait()


def test_lost_at_any_moment():
    r = random.Random(21)
    for i in range(10):
        for how in (signal.SIGKILL, signal.SIGSTOP):
            lose(how, i % 3, r.uniform(0.02, 1.5))


# ------------------------------------------------------------------ losing a rank

def ranks_of(pid):
    """{rank: process} of mpirun's."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent != pid:
                continue
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", (path / "environ").read_bytes())
        except (OSError, ValueError):
            continue
        if rank:
            found[int(rank[1])] = int(path.name)
    return found


def lose(how, rank, after_s):
    """Three ranks answer without an end; one is lost: an error names it, and nothing is left."""
    with tempfile.TemporaryFile("w+") as said:
        p = subprocess.Popen(mpirun(3, "bench", "-t", 1, "-n", 200, "-r", 500), env=ENV, stdout=said, stderr=said,
                             stdin=subprocess.DEVNULL)
        try:
            until("three ranks", lambda: len(ranks_of(p.pid)) == 3)
            ranks = ranks_of(p.pid)
            # once they watch each other; before, mpirun alone knows of them
            until("they watch each other", lambda: watched(ranks))
            time.sleep(after_s)
            os.kill(ranks[rank], how)
            start = time.monotonic()
            says = re.compile(rf"rank {rank}, .*process {ranks[rank]}\b|process rank {rank} with PID {ranks[rank]}\b")

            def named():
                said.seek(0)
                return says.search(said.read())
            until("the rank is named", named)
            took = time.monotonic() - start
            p.wait(60)
            until("no rank is left", lambda: not any(alive(pid) for pid in ranks.values()))
            comment(f"{how.name} of rank {rank} after {after_s:.2f} s: named after {took:.2f} s, "
                    f"all gone after {time.monotonic() - start:.2f} s")
            assert took < LOST_S, f"{took:.1f} s until it was named"
            assert p.returncode != 0, "mpirun says that it failed"
        finally:
            p.kill()
            p.wait()


def watched(ranks):
    """Has rank 0 a connection to each? Then it has as many sockets more than it had."""
    try:
        fds = [os.readlink(f"/proc/{ranks[0]}/fd/{fd}") for fd in os.listdir(f"/proc/{ranks[0]}/fd")]
        tcp = {line.split()[9] for line in open(f"/proc/{ranks[0]}/net/tcp").readlines()[1:] if line.split()[3] == "01"}
    except OSError:
        return False
    return sum(fd.startswith("socket:[") and fd[8:-1] in tcp for fd in fds) >= len(ranks) - 1


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def main():
    short = [test_run, test_hybrid, test_bench, test_refused, test_killed]
    slow = [test_batches, test_families, test_hybrid_batches, test_shards, test_perplexity, test_server, test_lost_at_any_moment]
    t = Tap()
    for case in slow if "--slow" in sys.argv else short:
        t.case(case.__name__[5:].replace("_", " "), case)
    sys.exit(t.end())


if __name__ == "__main__":
    main()
