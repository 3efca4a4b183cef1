#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cache as `bitnet pull` writes it beside the one that the hub's own client (npm: @huggingface/hub) writes, file by file;
and each finds what the other has brought.

usage: clients.py BITNET MODEL FOLDER      output is TAP
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE), str(HERE.parents[1] / "lib")]
import npm
from hub_server import Hub
from tap import Tap

PROGRAM, MODEL, FOLDER = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).read_bytes(), sys.argv[3]
FILES = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}" * 900, "model.safetensors": MODEL[:3_000_000]}


def environment(hub, home):
    clean = {k: v for k, v in os.environ.items() if not re.match(r"(HF_|HUGGING|XDG_|BITNET_|OLLAMA|.*_proxy$)", k, re.I)}
    return {**clean, "HOME": str(home), "HF_ENDPOINT": hub.url, "LC_ALL": "C.UTF-8"}


def client(hub, home, *words):
    node = npm.install(HERE / "npm", FOLDER)
    r = subprocess.run([node, "hub.mjs", *map(str, words)], cwd=FOLDER, env=environment(hub, home), text=True, capture_output=True, timeout=120)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def bitnet(hub, home, cache, *words):
    r = subprocess.run([PROGRAM, *words], env={**environment(hub, home), "HF_HUB_CACHE": str(cache)}, text=True, capture_output=True, timeout=120)
    assert r.returncode == 0, r.stderr
    return r.stdout


def tree(cache, repo):
    """What is in the folder of a repository, as both should write it."""
    folder = cache / ("models--" + repo.replace("/", "--"))
    return {str(p.relative_to(folder)): ("->", os.readlink(p)) if p.is_symlink() else p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_symlink() or p.is_file()}


def same_files(hub, home):
    repo = hub.add("org/folder", FILES)
    ours, theirs = home / "ours", home / "theirs"
    path = bitnet(hub, home, ours, "pull", "-q", "org/folder").strip()
    result = client(hub, home, "download", theirs, "org/folder")["result"]
    assert pathlib.Path(path).relative_to(ours) == pathlib.Path(result).relative_to(theirs), (path, result)
    a, b = tree(ours, "org/folder"), tree(theirs, "org/folder")
    notes = {p for p in a if p.startswith(".no_exist/")}  # written by the client for Python
    assert {p: v for p, v in a.items() if p not in notes} == b, (sorted(a), sorted(b))
    assert all(p.split("/")[1] == repo.commit and not a[p] for p in notes), notes
    return f"{len(b)} files and links the same"


def they_find_ours(hub, home):
    repo = hub.add("org/tiny-gguf", {"tiny-i2_s.gguf": MODEL})
    cache = home / "cache"
    path = bitnet(hub, home, cache, "pull", "-q", "org/tiny-gguf").strip()
    before = tree(cache, "org/tiny-gguf")
    sent = hub.sent()
    found = client(hub, home, "commit", cache, "org/tiny-gguf", "tiny-i2_s.gguf", repo.commit)
    assert found["result"] == path and found["asked"] == [], found
    assert client(hub, home, "download", cache, "org/tiny-gguf")["result"] == str(pathlib.Path(path).parent)
    assert client(hub, home, "file", cache, "org/tiny-gguf", "tiny-i2_s.gguf")["result"] == path
    assert hub.sent() == sent and tree(cache, "org/tiny-gguf") == before
    scan = client(hub, home, "scan", cache, "-")["result"]
    assert not scan["warnings"], scan["warnings"]
    one = scan["repos"][0]
    assert one["id"] == {"name": "org/tiny-gguf", "type": "model"} and one["size"] == len(MODEL), one
    assert one["revisions"][0]["refs"] == ["main"] and one["revisions"][0]["commitOid"] == repo.commit


def we_find_theirs(hub, home):
    hub.add("org/tiny-gguf", {"tiny-i2_s.gguf": MODEL, "README.md": b"# tiny\n"})
    cache = home / "cache"
    folder = client(hub, home, "download", cache, "org/tiny-gguf")["result"]
    asked = len(hub.log)
    assert bitnet(hub, home, cache, "pull", "--offline", "-q", "org/tiny-gguf").strip() == folder + "/tiny-i2_s.gguf"
    assert bitnet(hub, home, cache, "run", "org/tiny-gguf", "-n", "2", "Once")
    assert [m["name"] for m in json.loads(bitnet(hub, home, cache, "list", "--json"))["models"]] == ["org/tiny-gguf"]
    assert len(hub.log) == asked
    sent = hub.sent()
    bitnet(hub, home, cache, "pull", "org/tiny-gguf")
    assert hub.sent() == sent, "what was there was downloaded again"
    bitnet(hub, home, cache, "rm", "-y", "org/tiny-gguf")
    assert not list(cache.glob("models--*"))


tap = Tap(3)
for case in (same_files, they_find_ours, we_find_theirs):
    with Hub() as served, tempfile.TemporaryDirectory(prefix="bitnet-hub-") as scratch:
        tap.case(case.__name__, case, served, pathlib.Path(scratch))
sys.exit(tap.end())
