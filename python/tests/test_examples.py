# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python."""
import asyncio
import base64
import csv
import json
import os
import signal
import subprocess
import sys
import urllib.request

from conftest import PROGRAM, ROOT

EXAMPLES = ROOT / "examples" / "python"


def run(name, *args, stdin=""):
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py", *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chat():
    said = run("chat", stdin="Tell me a story about a dragon.\nAnd a cake?\n")
    assert said.count("> ") == 3 and len(said) > 60


def test_batch_infer(tmp_path):
    (tmp_path / "bitnet-b1.58-3B.gguf").symlink_to(ROOT / "models" / "stories-31m.gguf")
    command = [sys.executable, EXAMPLES / "batch_infer.py", *"--batch-size 16 --model bitnet-b1.58-3B".split()]
    done = subprocess.run(command, env={**os.environ, "BITNET_MODELS": str(tmp_path)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 32 and lines[0].startswith("'Once upon a time, there was") and "tokens a second" in done.stderr
    (tmp_path / "own").write_text("The cat\n\nThe dog\n")
    assert len(run("batch_infer", "--prompts", tmp_path / "own", "--max-new-tokens", 3).splitlines()) == 2


def test_table(tmp_path):
    (tmp_path / "in.csv").write_text("animal,age\ncat,3\ndog,4\n")
    run("table", tmp_path / "in.csv", tmp_path / "out.csv", "Once upon a time there was a {animal} who")
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [r["animal"] for r in rows] == ["cat", "dog"] and all(r["answer"] for r in rows)


def test_extract():
    assert run("extract").startswith("Story(hero='")


def test_search(tmp_path):
    lines = ["The cat sat on the mat.", "A big red truck drove down the road.", "The king lived in a castle.", "The kitten drank milk."]
    (tmp_path / "lines").write_text("\n".join(lines))
    found = run("search", tmp_path / "lines", "The cat sat on the mat.").splitlines()
    assert len(found) == 3 and found[0].endswith(lines[0])


def test_calibration(tmp_path):
    (tmp_path / "text").write_text("Once upon a time there was a little girl named Lily. She loved to play outside in the park. " * 20)
    said = run("calibration", tmp_path / "text", tmp_path / "out.svg")
    assert 0 <= float(said.split()[-1]) < 0.5 and (tmp_path / "out.svg").read_text().count("<circle") >= 3


def test_serve(tmp_path):
    (tmp_path / "llama3-8b-bitnet-b1.58.gguf").symlink_to(ROOT / "models" / "stories-31m.gguf")
    command = [sys.executable, EXAMPLES / "serve.py", *"--model llama3-8b-bitnet-b1.58 --use-flash-attn False".split()]
    env = {**os.environ, "BITNET_PROGRAM": PROGRAM, "BITNET_MODELS": str(tmp_path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        url = p.stdout.readline().split()[-1]
        with urllib.request.urlopen(url + "/models", timeout=60) as said:
            assert json.load(said)["data"]
        p.send_signal(signal.SIGINT)
        _, notes = p.communicate(timeout=60)
    assert p.returncode == 0 and "--use-flash-attn" in notes


async def ask(port, prompt):
    """A web socket client: what the server sends up to the empty message."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(f"GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
    assert b"101" in await reader.readuntil(b"\r\n\r\n")
    data, mask = prompt.encode(), os.urandom(4)
    writer.write(bytes([0x81, 0x80 | len(data)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
    messages = []
    while not messages or messages[-1]:
        head = await reader.readexactly(2)
        assert head[0] == 0x81 and head[1] < 126
        messages.append((await reader.readexactly(head[1])).decode())
    writer.close()
    return messages


def test_websocket():
    with subprocess.Popen([sys.executable, EXAMPLES / "websocket.py", "embedded", "0"], stdout=subprocess.PIPE, text=True) as p:
        try:
            port = int(p.stdout.readline().split()[1])

            async def several():
                return await asyncio.gather(*(ask(port, "Once upon a time") for _ in range(3)))
            answers = asyncio.run(asyncio.wait_for(several(), 120))
        finally:
            p.terminate()
    assert all(len(a) > 10 for a in answers) and len({"".join(a) for a in answers}) == 1
