# SPDX-License-Identifier: Apache-2.0
"""The server of the program `bitnet`, in a child process."""
from __future__ import annotations

import collections
import os
import re
import subprocess
import threading
from typing import IO, Deque, List, Mapping, Optional, Sequence, Union

from ._native import Error, PathLike, process
from .names import find_model, find_program

KEPT_LINES = 200


class Server:
    """A running server; leaving a `with` block, close() or the end of this process ends it. `url` is the base URL of
    OpenAI's API, `log` the last lines that it wrote."""

    def __init__(self, command: Sequence[str], start_s: float) -> None:
        self.log: Deque[str] = collections.deque(maxlen=KEPT_LINES)
        self.url = ""
        self._forks = process.forks
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        process.open.add(self)
        found = threading.Event()
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout, found), daemon=True).start()
        try:
            if not found.wait(start_s) or not self.url:
                raise Error("the server did not start: " + (self.log[-1] if self.log else f"it said nothing for {start_s:g} s"), "io")
        except BaseException:
            self.close()
            raise

    def _read(self, pipe: IO[str], found: threading.Event) -> None:
        for line in pipe:
            self.log.append(line.rstrip("\n"))
            address = re.search(r"listening on (https?://\S+)", line)
            if address and not self.url:
                self.url = address[1] + "/v1"
                found.set()
        found.set()

    def close(self, finish_s: float = 10) -> None:
        """Lets it finish what it is answering, for so many seconds."""
        if self._forks != process.forks or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(finish_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<bitnet.Server at {self.url}{' ended' if self.process.poll() is not None else ''}>"


def _words(model: Union[PathLike, Mapping[str, PathLike], None], folder: Optional[PathLike]) -> List[str]:
    """What the server is to serve, as its command line has it."""
    words = []
    if isinstance(model, Mapping):
        for name, path in model.items():
            if not name or "=" in name or "/" in name:
                raise ValueError(f"'{name}' cannot be the name of a model: it is empty, or has '=' or '/' in it")
            words.append(f"{name}={find_model(path)}")
    elif model is not None:
        words.append(find_model(model))
    elif folder is None:
        words.append(find_model("embedded"))
    if isinstance(model, Mapping) and not words and folder is None:
        raise ValueError("there is no model to serve")
    return words + (["--models-dir", os.fsdecode(folder)] if folder is not None else [])


def serve(model: Union[PathLike, Mapping[str, PathLike], None] = None, port: int = 0, *, models_dir: Optional[PathLike] = None,
          host: str = "127.0.0.1", options: Sequence[str] = (), program: Optional[PathLike] = None, start_s: float = 600) -> Server:
    """Starts `bitnet serve` and waits until it listens. model: one, or several by the names that clients call them;
    models_dir: a folder, each model in it under its name. Several are loaded when they are asked for. Without either, the
    model in the package. port 0: any that is free. options: more of its command line. program: its path; without one
    $BITNET_PROGRAM, or what PATH has.

        with bitnet.serve({"small": "a.gguf", "large": "b.gguf"}) as server:
            client = openai.OpenAI(base_url=server.url, api_key="none")
            client.completions.create(model="small", prompt="Once upon a time")
    """
    return Server([find_program(program), "serve", *_words(model, models_dir), "--host", host, "--port", str(port), *options], start_s)
