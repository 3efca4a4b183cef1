# SPDX-License-Identifier: Apache-2.0
"""What every other module needs of the C library: errors, strings, buffers, structs as dataclasses, and what happens to
open objects when the process forks or ends."""
from __future__ import annotations

import atexit
import dataclasses
import os
import threading
import weakref
from typing import Any, Callable, Optional, Protocol, Type, TypeVar, Union

from ._ffi import ffi, lib

PathLike = Union[str, "os.PathLike[str]"]
Progress = Callable[[str, int, int], Optional[bool]]
T = TypeVar("T")


class Error(Exception):
    """What the library refused or could not do, in its own sentence. `status` is the name of the C status.

    >>> import bitnet
    >>> try:
    ...     bitnet.Model("no-such-file.gguf")
    ... except bitnet.Error as e:
    ...     print(e.status)
    io
    """

    def __init__(self, text: str, status: str = "state") -> None:
        super().__init__(text)
        self.status = status


def status_name(status: int) -> str:
    return text(lib.bitnet_status_name(status))


def library_version() -> str:
    return text(lib.bitnet_version())


def check(status: int, err: Any) -> None:
    """Raises what a call has returned, unless it is BITNET_OK."""
    if status != lib.BITNET_OK:
        sentence = text(err.text) if err != ffi.NULL and err.status != lib.BITNET_OK else ""
        raise Error(sentence or f"the library answered: {status_name(status)}", status_name(status))


def text(pointer: Any) -> str:
    """A C string; "" for NULL."""
    return "" if pointer == ffi.NULL else str(ffi.string(pointer).decode("utf-8", "replace"))


def encoded(value: str, what: str = "a text") -> bytes:
    """As C takes it, which ends strings with a zero byte."""
    data = utf8(value)
    if b"\0" in data:
        raise Error(f"{what} must not hold the character U+0000", "arg")
    return data


def utf8(value: str) -> bytes:
    if not isinstance(value, str):
        raise Error(f"a text is wanted here, not {type(value).__name__}", "arg")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as e:
        raise Error(f"the text cannot be written as UTF-8: {e.reason} at character {e.start}", "arg") from None


def struct(name: str, **members: Any) -> Any:
    """A struct of the interface with its size set; members that are None keep their zero."""
    p = ffi.new(f"{name} *")
    p.size = ffi.sizeof(name)
    for member, value in members.items():
        if value is not None:
            try:
                setattr(p, member, value)
            except (OverflowError, TypeError) as e:
                raise Error(f"{member}: {e}", "arg") from None
    return p


def fill(cls: Type[T], c: Any) -> T:
    """A dataclass whose fields are named like the members of a struct, from the struct."""
    # `from` is a word of Python: it is from_ there
    return cls(**{f.name: _value(getattr(c, f.name.rstrip("_")), f.metadata.get("of")) for f in dataclasses.fields(cls)})


def part(of: Any) -> Any:
    """A field of a dataclass that is a struct inside another."""
    return dataclasses.field(metadata={"of": of})


def _value(value: Any, of: Any) -> Any:
    if of is not None:
        return fill(of, value)
    if isinstance(value, (int, float)):
        return value
    if ffi.typeof(value).kind == "array":
        return tuple(value)
    return text(value)


# ------------------------------------------------------------------ progress of long calls


class Watch:
    """Gives a C call a progress function. What it raises, Ctrl-C above all, stops the work and is raised again here.

    A call without one is watched as well, so that Ctrl-C is noticed at the next report."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.raised: BaseException | None = None
        self.handle = ffi.new_handle(self)

    def report(self, what: str, done: int, total: int) -> int:
        try:
            return int(self.progress is not None and self.progress(what, done, total) is False)
        except BaseException as e:  # must not pass through C
            self.raised = e
            return 1

    def check(self, status: int, err: Any) -> None:
        if self.raised is not None:
            raise self.raised
        check(status, err)


def _raised(kind: Any, value: BaseException, traceback: Any) -> None:
    """Ctrl-C before the first line of the function below."""
    watch: Watch = ffi.from_handle(traceback.tb_frame.f_locals["user"])
    watch.raised = value


@ffi.def_extern(error=1, onerror=_raised)  # type: ignore[misc]
def bitnet_py_progress(user: Any, what: Any, done: int, total: int) -> int:
    watch: Watch = ffi.from_handle(user)
    return watch.report(text(what), done, total)


# ------------------------------------------------------------------ fork and exit


class Closes(Protocol):
    def close(self) -> None: ...


class _Process:
    """Objects that are open in this process. A child of fork() has copies of them without their threads: there each use
    is an error and closing does nothing."""

    def __init__(self) -> None:
        self.forks = 0
        self.open: weakref.WeakSet[Any] = weakref.WeakSet()
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._exit)

    def _forked(self) -> None:
        self.forks += 1
        self.open = weakref.WeakSet()

    def _exit(self) -> None:
        for thing in list(self.open):
            thing.close()


process = _Process()


class Handle:
    """A pointer of the library with a count of its users. It is closed in C when it was given up and the last user left."""

    def __init__(self, pointer: Any, close: Callable[[Any], None], what: str) -> None:
        self._pointer = pointer
        self._close = close
        self._what = what
        self._users = 1
        self._lock = threading.Lock()
        self._forks = process.forks
        self._closed = False

    def enter(self) -> Any:
        self.check_process()
        with self._lock:
            if self._closed:
                raise Error(f"the {self._what} is closed")
            self._users += 1
            return self._pointer

    def leave(self) -> None:
        if self.is_foreign:
            return
        with self._lock:
            self._users -= 1
            last = self._users == 0
            pointer = self._pointer
            if last:
                self._pointer = ffi.NULL
        if last:
            self._close(pointer)

    def close(self) -> None:
        """No new users; idempotent."""
        if self.is_foreign:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.leave()

    @property
    def is_foreign(self) -> bool:
        return self._forks != process.forks

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check_process(self) -> None:
        if self._forks != process.forks:
            raise Error(f"the {self._what} was opened before fork() and belongs to the parent process: open it in this one")
