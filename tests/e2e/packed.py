#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packed weights from outside: kept and found again, by processes that are killed, run at once, find no room or no folder,
or meet a damaged copy. Prints TAP.

    packed.py PATH/TO/bitnet
"""
import contextlib
import glob
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from serving import until
from tap import Tap

BITNET = None
NOTICE = "is being kept in"
cases = []


def case(f):
    cases.append(f)
    return f


def check(ok, what):
    if not ok:
        raise AssertionError(what)


class Home:
    """A folder with a model, and one for what is kept of it."""

    def __init__(self, folder):
        self.folder, self.model = folder, os.path.join(folder, "model.gguf")
        self.cache = os.path.join(folder, "cache")
        subprocess.run([BITNET, "synth", "1bitllm-large", self.model, "--layers", "8"], check=True, capture_output=True)
        self.true = self.run("--no-cache")[1]

    def words(self, *more, n=4, form="--json"):
        return [BITNET, "run", "-m", self.model, "-p", "a", "-n", str(n), "--temp", "0", form, "--cache-from", "1M", *more]

    def env(self, **more):
        return {**os.environ, "XDG_CACHE_HOME": self.cache, "BITNET_TUNING": "off", **more}

    def run(self, *more, env=None, **how):
        """Exit status, tokens, standard error."""
        p = subprocess.run(self.words(*more), capture_output=True, text=True, env=env or self.env(), **how)
        return p.returncode, json.loads(p.stdout)["tokens"] if p.stdout else None, p.stderr

    def start(self, *more, **how):
        return subprocess.Popen(self.words(*more, **how), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.env())

    def files(self, ending):
        return glob.glob(os.path.join(self.cache, "bitnet", "*" + ending))

    def written(self, ending):
        """Bytes of such files."""
        total = 0
        for path in self.files(ending):
            with contextlib.suppress(FileNotFoundError):  # renamed meanwhile
                total += os.path.getsize(path)
        return total

    def clear(self):
        subprocess.run([BITNET, "cache", "clear"], env=self.env(), check=True, capture_output=True)
        check(not self.files(".bnp") and not self.files(".part"), "something is left")

    def good(self, *more):
        status, tokens, said = self.run(*more)
        check(status == 0 and tokens == self.true, f"status {status}, {said}")
        return said

    def keep(self, *more):
        """Runs until a copy was finished in time: on a busy machine the first may not be."""
        before, said = len(self.files(".bnp")), ""
        for _ in range(8):
            said += self.good(*more)
            if len(self.files(".bnp")) > before:
                break
        check(NOTICE in said, f"no notice: {said}")
        check(len(self.files(".bnp")) == before + 1, "nothing was kept")
        check(not self.files(".part"), "what was half written is left")


@case
def second_start_finds_it(h):
    h.clear()
    h.keep()
    check(h.good() == "", "something is said the second time")
    check(h.good("--verify") == "", "something is said with --verify")
    entries = json.loads(subprocess.run([BITNET, "cache", "--json"], env=h.env(), capture_output=True).stdout)["entries"]
    check(len(entries) == 1 and entries[0]["state"] == "current" and entries[0]["model"] == h.model, f"{entries}")


@case
def options_that_do_without(h):
    h.clear()
    check(h.good("--no-cache") == "" and not h.files(".bnp"), "--no-cache keeps something")
    check(h.good("--cache", "off") == "" and not h.files(".bnp"), "--cache off keeps something")
    other = os.path.join(h.folder, "elsewhere")
    check(NOTICE in h.good("--cache", other), "--cache DIR says nothing")
    check(not h.files(".bnp") and glob.glob(other + "/*.bnp"), "--cache DIR is not used")
    check("more than" in h.good("--cache-size", "1M") and not h.files(".bnp"), "--cache-size is not looked at")
    check("cannot be written" in h.good("--cache", "/dev/null/x"), "a folder that cannot be is passed over")


@case
def killed_while_writing(h):
    for _ in range(3):
        h.clear()
        p = h.start(n=400)
        until("some of it is written", lambda: h.written(".part") or p.poll() is not None)
        p.send_signal(signal.SIGKILL)
        p.wait()
        check(p.returncode == -signal.SIGKILL, "it was not killed")
        check(len(h.files(".part")) == 1 and not h.files(".bnp"), "it was not killed while writing")
        h.keep()
        check(h.good() == "", "it is not found")


@case
def two_at_once_pack_once(h):
    for _ in range(2):
        h.clear()
        both = [h.start(n=100) for _ in range(3)]
        said = [p.communicate() for p in both]
        check([p.returncode for p in both] == [0] * 3, f"{said}")
        check(all(json.loads(out)["tokens"][:4] == h.true for out, _ in said), "they differ")
        check(sum(NOTICE in err for _, err in said) == 1, f"the work was not done once: {said}")


@case
def no_room(h):
    """A file that may not grow further: the write fails in the middle."""
    h.clear()
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
    status, tokens, said = h.run(preexec_fn=limit)
    check(status == 0 and tokens == h.true, f"status {status}, {said}")
    check(not h.files(".bnp") and not h.files(".part"), "something is left")
    mount = "mount -t tmpfs -o size=32m none {0} && exec env XDG_CACHE_HOME={0} {1}"
    small = os.path.join(h.folder, "small")
    os.makedirs(small, exist_ok=True)
    words = ["unshare", "-rm", "sh", "-c", mount.format(small, " ".join(h.words()))]
    p = subprocess.run(words, capture_output=True, text=True)
    if "unshare" in p.stderr or "mount" in p.stderr:
        return  # not allowed here
    check(p.returncode == 0 and json.loads(p.stdout)["tokens"] == h.true, f"{p}")
    check("tenth of the disk" in p.stderr, f"a full disk: {p.stderr}")
    words[-1] = words[-1].replace("size=32m", "ro")
    p = subprocess.run(words, capture_output=True, text=True)
    check(p.returncode == 0 and json.loads(p.stdout)["tokens"] == h.true, f"{p}")
    check("Read-only" in p.stderr, f"a folder that cannot be written: {p.stderr}")


@case
def no_home(h):
    env = {k: v for k, v in h.env().items() if k not in ("XDG_CACHE_HOME", "HOME")}
    status, tokens, said = h.run(env=env)
    check(status == 0 and tokens == h.true and said == "", f"status {status}, {said}")


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 4]))


@case
def a_flipped_byte_is_noticed(h):
    h.clear()
    h.keep()
    (path,) = h.files(".bnp")
    flip(path, os.path.getsize(path) // 2)
    p = subprocess.run([BITNET, "cache", "verify", "--json"], env=h.env(), capture_output=True, text=True)
    check(p.returncode == 1 and json.loads(p.stdout)["entries"][0]["state"] == "damaged", f"{p}")
    p = h.start(n=4000)
    _, said = p.communicate()
    check(p.returncode == 1 and "damaged" in said and "packs the model anew" in said, f"{p.returncode} {said}")
    check(not h.files(".bnp"), "it is still there")
    h.keep()
    flip(path, os.path.getsize(path) // 3)
    check("packed anew" in h.good("--verify"), "--verify")
    if not h.files(".bnp"):
        h.keep()
    check(h.good("--verify") == "", "what was packed anew is not found")


@case
def the_least_used_goes(h):
    h.clear()
    h.keep("--layout", "t2")
    h.keep("--layout", "t3")
    second, first = sorted(h.files(".bnp"), key=os.path.getsize)  # t3, t2
    os.utime(first, (1, 1))
    room = str(os.path.getsize(first) + os.path.getsize(second))
    for _ in range(8):
        h.good("--layout", "t5", "--cache-size", room)
        if len(h.files(".bnp")) == 2 and first not in h.files(".bnp"):
            break
    check(first not in h.files(".bnp") and second in h.files(".bnp"), "another one than the least used went")
    check(len(h.files(".bnp")) == 2, "nothing was kept")


@case
def processes_share_it(h):
    h.clear()
    h.keep()
    packed = os.path.join(h.folder, "packed.gguf")
    subprocess.run([BITNET, "convert", h.model, packed, "--packed"], check=True, capture_output=True)
    check(json.loads(subprocess.run(h.words("-m", packed, "--no-cache"), capture_output=True, env=h.env()).stdout)["tokens"] ==
          h.true, "a packed file differs")
    both = [h.start(n=4000, form="--quiet") for _ in range(2)]
    try:
        for p in both:
            check(p.stdout.read(1), "it ends without a word")  # the first of its answer: all weights were read
        sums = [shared(p.pid, ".bnp") for p in both]
    finally:
        for p in both:
            p.kill()
            p.communicate()
    if not all(rss for rss, _ in sums):
        return "this system has no huge pages for files: it was copied"
    for rss, pss in sums:
        check(pss < 0.6 * rss, f"Rss {rss}, Pss {pss}")
    return f"Rss {sums[0][0] >> 20} MiB, Pss {sums[0][1] >> 20} MiB"


@case
def trained_with_floats(h):
    """Files of other engines do not say how activations were trained; a packed one made of them must not say it wrong."""
    model, packed, out = (os.path.join(h.folder, name) for name in ("floats.gguf", "floats-packed.gguf", "logits"))
    subprocess.run([BITNET, "synth", "qwen35-tiny", model], check=True, capture_output=True)
    raw = open(model, "rb").read()
    check(raw.count(b"bitnet.activations") == 1, "the key is not there")
    open(model, "wb").write(raw.replace(b"bitnet.activations", b"bitnet.activationZ"))
    subprocess.run([BITNET, "convert", model, packed, "--packed"], check=True, capture_output=True)
    for activations in ("auto", "f32"):
        bits = []
        for path in (model, packed):
            subprocess.run([BITNET, "logits", path, "--ids", "1,2,3,4,5", "--out", out, "--activations", activations], check=True,
                           capture_output=True)
            bits.append(open(out, "rb").read())
        check(bits[0] == bits[1], f"other logits, activations {activations}")


def shared(pid, ending):
    """Rss and Pss of what a process has mapped of such files."""
    rss = pss = 0
    with open(f"/proc/{pid}/smaps") as f:
        here = False
        for line in f:
            if "-" in line.split(" ")[0]:
                here = line.rstrip().endswith(ending)
            elif here and line.startswith("Rss:"):
                rss += int(line.split()[1]) << 10
            elif here and line.startswith("Pss:"):
                pss += int(line.split()[1]) << 10
    return rss, pss


def main():
    global BITNET
    BITNET = os.path.realpath(sys.argv[1])
    tap = Tap(len(cases))
    with tempfile.TemporaryDirectory(prefix="bitnet-packed-") as folder:
        home = Home(folder)
        for f in cases:
            tap.case(f.__name__, f, home)
    sys.exit(tap.end())


if __name__ == "__main__":
    main()
