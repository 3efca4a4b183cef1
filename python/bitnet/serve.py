# SPDX-License-Identifier: Apache-2.0
"""The server of the program `bitnet`, in a child process."""
from __future__ import annotations

import collections
import re
import subprocess
import threading
from typing import IO, Deque, Optional, Sequence

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


def serve(model: PathLike = "embedded", port: int = 0, *, host: str = "127.0.0.1", options: Sequence[str] = (),
          program: Optional[PathLike] = None, start_s: float = 600) -> Server:
    """Starts `bitnet serve` and waits until it listens. port 0: any that is free. options: more of its command line.
    program: its path; without one $BITNET_PROGRAM, or what PATH has.

        with bitnet.serve("model.gguf") as server:
            client = openai.OpenAI(base_url=server.url, api_key="none")
    """
    return Server([find_program(program), "serve", find_model(model), "--host", host, "--port", str(port), *options], start_s)
