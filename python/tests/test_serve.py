# SPDX-License-Identifier: Apache-2.0
import json
import os
import urllib.request

import pytest
from conftest import PROGRAM

import bitnet


def test_serve(engine):
    with bitnet.serve("embedded", program=PROGRAM) as server:
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}).encode()
        ask = urllib.request.Request(server.url + "/completions", body, {"Content-Type": "application/json"})
        said = json.load(urllib.request.urlopen(ask, timeout=60))
        assert said["choices"][0]["text"] == engine.generate("Once upon a time", max_new_tokens=8, temperature=0).text
    assert server.process.returncode == 0
    server.close()


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
