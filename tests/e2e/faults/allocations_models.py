#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""As allocations.py, for the commands around models: downloads, settings, completions, pages, scores, pruning. A download is
tried anew each time; what it leaves is whole or is not there.

usage: allocations_models.py BITNET FAIL_ALLOC.so DATA [--most N]      output is TAP
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile

import fail_alloc
from allocations import Case, words_of

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "hub"))
from hub_server import Hub

NAME, FILE, CONTENT = "org/tiny-gguf", "tiny-i2_s.gguf", b"GGUF" + b"tiny" * 500
FEW = 3  # allocations of the smallest of these commands
QUESTION = {"context": "Tell", "choices": ["me", "us"], "gold": 0}


def put_model(home):
    """A model in the hub's cache, as `bitnet pull` would have left it."""
    repo = home / "hub" / "models--org--tiny-gguf"
    shutil.rmtree(home / "hub", ignore_errors=True)
    snapshot = repo / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("a" * 40)
    (repo / "blobs" / ("b" * 64)).write_bytes(CONTENT)
    (snapshot / FILE).symlink_to("../../blobs/" + "b" * 64)


def left_of_pull(home):
    """All of the model's file, or None; parts of it have other names."""
    for path in (home / "hub").glob("models--*/snapshots/*/*.gguf"):
        return path.read_bytes()
    return None


def without_paths(out):
    return re.sub(rb"/[^ \"\n]*/", b"", out)


def cases(folder, data, hub):
    small, home = fail_alloc.small_folder(data, folder / "small"), folder / "home"
    text, items, config = folder / "text.txt", folder / "items.jsonl", folder / "config.toml"
    text.write_text("Once upon a time there was a dog. " * 12)
    items.write_text(json.dumps(QUESTION) + "\n")
    config.write_text("[run]\ntemp = 0.5\n")
    home.mkdir()
    env = {"HOME": str(home), "HF_HUB_CACHE": str(home / "hub"), "HF_ENDPOINT": hub.url, "OLLAMA_MODELS": str(home / "ollama"),
           "XDG_DATA_HOME": str(home / "data"), "XDG_CONFIG_HOME": str(home / "settings"), "XDG_CACHE_HOME": str(home / "cache"),
           "LC_ALL": "C.UTF-8"}
    put_model(home)

    def case(name, *command, **how):
        return Case(name, *command, env=env, least=FEW, **how)

    pruned = folder / "pruned.gguf"
    return [
        case("pull", "pull", "-q", NAME, prepare=lambda: shutil.rmtree(home / "hub", ignore_errors=True), clean=without_paths,
             left=lambda: left_of_pull(home)),
        case("list of names", "list", "--known", "--json"),
        case("config", "config", "show", "--json", "--config", config),
        case("completion", "completion", "bash"),
        case("man page", "help", "--man", "serve"),
        case("plan", "plan", small, "--bandwidth", "40", "--json", clean=words_of),
        case("eval", "eval", small, "--file", items, "-t", "1", "--no-cache", "--json", clean=words_of),
        case("eval kl", "eval", "kl", small, "--with", "--kv-type int8", "--text", text, "--ctx", "16", "-t", "1", "--no-cache", "--json", clean=words_of),
        case("perplexity", "perplexity", small, "--file", text, "--ctx", "16", "-t", "1", "--no-cache", "--json", clean=words_of),
        case("embed", "embed", small, "Tell me", "-t", "1", "--no-cache"),
        case("prune", "prune", small, "--calibration-data", text, "--ctx", "16", "--drop", "1", "--output", pruned, "--force", "-t", "1",
             "--no-cache", "--json", clean=lambda out: b"", file=pruned),
        case("synth", "synth", "qwen35-tiny", pruned, "--force", file=pruned),
        case("cache list", "cache", "list"),
        case("version", "version", "--json"),
    ]


def main():
    args = fail_alloc.arguments()
    with tempfile.TemporaryDirectory(prefix="bitnet-alloc-") as folder, Hub() as hub:
        folder = pathlib.Path(folder)
        hub.add(NAME, {FILE: CONTENT})
        fail = fail_alloc.FailAlloc(args.preload, folder / "orders")
        chosen = [c for c in cases(folder, args.data, hub) if args.only in c.name]
        table = fail_alloc.Table(len(chosen))
        for case in chosen:
            case.loop(args, fail, table)
        return table.end()


if __name__ == "__main__":
    raise SystemExit(main())
