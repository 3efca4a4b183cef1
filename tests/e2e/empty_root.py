#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A static program runs where there is nothing else: its file alone in a folder that is made the root. There is no
/proc, /sys, /dev, /tmp or /etc there, and no environment variable.

usage: empty_root.py BITNET [EMULATOR]      output is TAP; a minimal program is known by what it refuses
EMULATOR: a static one for programs of another CPU (qemu-aarch64-static), which is then the second file there.
Becoming another root needs root's rights or a user namespace; without either the test is skipped.
"""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from serving import Server
from tap import Skipped, Tap

STORY = ["run", "-p", "Once upon a time", "-n", "32", "--seed", "1", "-q"]
LIMIT_S = 120
ET_DYN, PT_INTERP = 3, 3


def become_root():
    """The words before chroot; None: neither root nor user namespaces here."""
    if os.geteuid() == 0:
        return []
    words = ["unshare", "--user", "--map-root-user"]
    if shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0:
        return words
    return None


class Places:
    """The program outside and in the empty root."""

    def __init__(self, program, folder, before, emulator=None):
        self.program, self.folder = pathlib.Path(program).resolve(), pathlib.Path(folder)
        self.emulator = [emulator] if emulator else []
        if emulator:
            shutil.copy(emulator, self.folder / "emulator")
        shutil.copy(self.program, self.folder / "bitnet")
        chroot = shutil.which("chroot", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        # what starts it there
        self.words = [*before, shutil.which("env"), "-i", chroot, folder, *(["/emulator"] if emulator else []), "/bitnet"]
        self.commands = self.inside("help")[1].split("Commands:")[1].split("\n\n")[0]

    def outside(self, *args):
        p = subprocess.run([*self.emulator, self.program, *args], capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        return p.returncode, p.stdout, p.stderr

    def inside(self, *args):
        p = subprocess.run([*self.words, *args], capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        return p.returncode, p.stdout, p.stderr

    def need(self, command):
        if f"  {command} " not in self.commands:
            raise Skipped("build", command)


def case_file_stands_alone(p):
    """neither an interpreter nor a fixed address"""
    data = p.program.read_bytes()[:4096]
    kind, = struct.unpack_from("<H", data, 16)
    at, = struct.unpack_from("<Q", data, 32)
    size, n = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<I", data, at + i * size)[0] for i in range(n)]
    assert kind == ET_DYN, f"ELF type {kind}"
    assert segments and PT_INTERP not in segments, "asks for a dynamic loader"


def case_story(p):
    """the same text as outside"""
    want = p.outside(*STORY)
    assert want[0] == 0 and len(want[1]) > 60 and want[1].startswith("Once upon a time"), want
    assert p.inside(*STORY) == want, p.inside(*STORY)


def case_threads(p):
    """the same text from one and from three"""
    assert p.inside(*STORY, "-t", "3") == p.inside(*STORY, "-t", "1")


def case_report(p):
    code, out, err = p.inside(*STORY, "--json")
    assert code == 0 and err == "", err
    report = json.loads(out)
    assert report["generated_tokens"] == 32 and report["memory"]["peak_rss_bytes"] > 1 << 20, report


def case_version(p):
    """the same kernels as outside"""
    (code, out, _), outside = p.inside("version"), p.outside("version")[1]
    assert code == 0 and out.splitlines()[:2] == outside.splitlines()[:2], out


def case_no_such_model(p):
    """an error is still one sentence"""
    code, out, err = p.inside("run", "/model.gguf", "-p", "Once")
    assert (code, out) == (1, "") and err.count("\n") == 1 and "/model.gguf" in err, err


def case_bench(p):
    p.need("bench")
    code, out, err = p.inside("bench", "-n", "4", "--repeat", "1", "--warmup", "0", "--prompt-tokens", "8", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["machine"]["read_bandwidth_gb_s"] > 0 and report["machine"]["cpu"] == "unknown", report["machine"]


def case_doctor(p):
    """says what it can without /proc and /sys; 1: it found something"""
    p.need("doctor")
    code, out, err = p.inside("doctor", "--json")
    assert code in (0, 1) and json.loads(out), err


def case_serve(p):
    """answers over loopback as `run` does, and ends when told to"""
    p.need("serve")
    want = json.loads(p.inside("run", "-p", "Once upon a time", "-n", "16", "--temp", "0", "--json")[1])["text"]
    with Server(p.words, "--host", "127.0.0.1") as s:
        reply = s.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0})
        assert reply.json()["choices"][0]["text"] == want, reply.body
        assert s.metric("bitnet_http_requests_total") >= 1
        assert s.stop(signal.SIGTERM) == 0, s.errors


def case_refused(p):
    """what a minimal program does not have, it names"""
    if "  serve " in p.commands:
        raise Skipped("build", "what a minimal program refuses")
    for command in ("serve", "bench", "convert"):
        code, out, err = p.inside(command, "--help")
        assert (code, out) == (2, "") and f"'{command}'" in err and "not in this minimal build" in err, err


def case_nothing_left(p):
    assert sorted(os.listdir(p.folder)) == ["bitnet", *(["emulator"] if p.emulator else [])], os.listdir(p.folder)


def main():
    before = become_root()
    if before is None:
        tap = Tap(1)
        tap.skip("empty root", Skipped("rights"))
        return tap.end()
    cases = [(name[5:].replace("_", " "), f) for name, f in globals().items() if name.startswith("case_")]
    tap = Tap(len(cases))
    with tempfile.TemporaryDirectory() as folder:
        p = Places(sys.argv[1], folder, before, *sys.argv[2:])
        for name, case in cases:
            tap.case(f"{name}: {case.__doc__}" if case.__doc__ else name, case, p)
    return tap.end()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main())
