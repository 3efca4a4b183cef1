# SPDX-License-Identifier: Apache-2.0
"""What the tests of failing allocations share: orders to fail_alloc.c, a small folder to open, and their table."""
import argparse
import json
import mmap
import os
import pathlib
import struct
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "lib"))
from tap import Tap, comment

# its words decide what becomes of developers and of tools
TEMPLATE = ("{% for m in messages %}{% if m.role in ['user', 'developer', 'assistant'] %}<{{ m.role }}>{{ m.content | trim }}"
            "{% endif %}{% endfor %}{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
MAX_LINES = 20  # of a case that went wrong
COLUMNS = ("allocations", "tried", "errors", "closed", "same", "wrong", "crashed")


class FailAlloc:
    """Allocations of processes that are started with env(): see struct orders in fail_alloc.c."""

    def __init__(self, preload, path):
        path.write_bytes(struct.pack("3q", 0, -1, 0))
        self.preload, self.path = preload, path
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 0)

    def env(self):
        return dict(os.environ, LD_PRELOAD=self.preload, FAIL_ALLOC=str(self.path), BITNET_TUNING="off")

    def arm(self, at, n=1):
        """n allocations from now on fail, after `at` others. at -1: none."""
        struct.pack_into("q", self.map, 8, -1)
        struct.pack_into("q", self.map, 0, 0)
        struct.pack_into("q", self.map, 16, n)
        struct.pack_into("q", self.map, 8, at)

    def seen(self):
        return struct.unpack_from("q", self.map, 0)[0]


class Table:
    """One row a case: how its runs ended."""

    def __init__(self, n_cases):
        self.tap, self.rows = Tap(n_cases), []

    def case(self, name, total, ends, faults):
        self.tap.point(name, not faults, "\n".join("\n".join(faults).splitlines()[:MAX_LINES]))
        self.rows.append([name, total, sum(ends.values()), *(ends.get(c, 0) for c in COLUMNS[2:])])

    def end(self):
        """Prints the table; the exit status."""
        comment(f"{'':28}" + "".join(f"{c:>12}" for c in COLUMNS))
        for name, *numbers in self.rows:
            comment(f"{name:28}" + "".join(f"{n:>12}" for n in numbers))
        return self.tap.end()


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("bitnet")
    p.add_argument("preload")
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("--most", type=int, help="allocations of a case that are tried, evenly spread [all]")
    p.add_argument("--only", default="", help="cases whose name has this in it")
    p.add_argument("-n", type=int, default=1, help="allocations in a row that fail")
    return p.parse_args()


def some(total, most):
    """Numbers below total: all, or `most` of them, evenly spread."""
    n = min(total, most or total)
    return [i * total // n for i in range(n)]


def small_tokenizer(whole, n):
    """The first n tokens that text in ASCII (and é) needs, renumbered, with the merges among them."""
    vocab = [t for t, i in sorted(whole["model"]["vocab"].items(), key=lambda v: v[1]) if i < 98] + ["Ġ", "Ċ", "Ã", "©"]
    merges = []
    for a, b in whole["model"]["merges"]:
        if len(vocab) < n and a in vocab and b in vocab and a + b not in vocab:
            vocab.append(a + b)
            merges.append([a, b])
    assert len(vocab) == n
    return dict(whole, model=dict(whole["model"], vocab={t: i for i, t in enumerate(vocab)}, merges=merges))


def small_folder(data, out):
    """A Hugging Face folder with few weights and few tokens: thousands of runs are made with it."""
    model = data / "golden" / "qwen3-values"
    out.mkdir()
    for name in ("config.json", "model.safetensors"):
        (out / name).write_bytes((model / name).read_bytes())
    whole = json.loads((data / "stories" / "tokenizer.json").read_text())
    n = json.loads((model / "config.json").read_text())["vocab_size"]
    (out / "tokenizer.json").write_text(json.dumps(small_tokenizer(whole, n)))
    (out / "generation_config.json").write_text(json.dumps({"temperature": 0.8, "top_p": 0.9}))
    settings = json.loads((data / "stories" / "tokenizer_config.json").read_text())
    (out / "tokenizer_config.json").write_text(json.dumps(dict(settings, chat_template=TEMPLATE)))
    return out
