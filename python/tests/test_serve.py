# SPDX-License-Identifier: Apache-2.0
import json
import os
import urllib.error
import urllib.request

import pytest
from conftest import PROGRAM, ROOT

import bitnet

MODEL = ROOT / "models" / "stories-31m.gguf"


def ask(server, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def test_serve(engine):
    with bitnet.serve("embedded", program=PROGRAM) as server:
        said = ask(server, "/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
        assert said["choices"][0]["text"] == engine.generate("Once upon a time", max_new_tokens=8, temperature=0).text
    assert server.process.returncode == 0
    server.close()


def test_several(engine, tmp_path):
    want = engine.generate("Once upon a time", max_new_tokens=8, temperature=0).text
    body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    (tmp_path / "third.gguf").symlink_to(MODEL)
    with bitnet.serve({"first": "embedded", "second": MODEL}, models_dir=tmp_path, program=PROGRAM) as server:
        assert [m["id"] for m in ask(server, "/models")["data"]] == ["first", "second", "third"]
        for name in ("first", "second", "third"):
            said = ask(server, "/completions", {**body, "model": name})
            assert (said["model"], said["choices"][0]["text"]) == (name, want)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(server, "/completions", {**body, "model": "fourth"})
    with bitnet.serve(models_dir=tmp_path, program=PROGRAM) as server:
        assert [m["id"] for m in ask(server, "/models")["data"]] == ["third"]
        assert ask(server, "/completions", body)["choices"][0]["text"] == want  # the only one is loaded when it is asked for
    for wrong in ({}, {"": MODEL}, {"a=b": MODEL}, {"a/b": MODEL}):
        with pytest.raises(ValueError):
            bitnet.serve(wrong, program=PROGRAM)


def test_it_ends_with_its_parent(python):
    pid = int(python(f"import bitnet; s = bitnet.serve(program={PROGRAM!r}); print(s.process.pid)"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_failures(tmp_path, monkeypatch):
    with pytest.raises(bitnet.Error, match="did not start"):
        bitnet.serve(program=PROGRAM, options=["--no-such-option"])
    with pytest.raises(bitnet.Error, match="no model"):
        bitnet.serve("no/such", program=PROGRAM)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BITNET_PROGRAM", raising=False)
    with pytest.raises(bitnet.Error, match="not found"):
        bitnet.serve()
