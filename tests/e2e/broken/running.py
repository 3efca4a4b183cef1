# SPDX-License-Identifier: Apache-2.0
"""One run of the program in a folder of its own, and what must hold for it."""
import functools
import os
import signal
import subprocess
import time

from tap import Skipped

LIMIT_S = 60  # for one run; sanitizer builds on a busy machine are slow
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

LOGITS = ["logits", "m.gguf", "--ids", "1,2", "--out", "out.f32"]
CONVERT = ["convert", "m.gguf", "out.gguf"]
RUN = ["run", "m.gguf", "--raw", "-p", "ab", "-n", "2", "--temp", "0", "-q"]
CHAT = ["run", "m.gguf", "--chat", "-p", "ab", "-n", "2", "--temp", "0", "-q"]
TOKENIZE = ["tokenize", "m.gguf"]
INSPECT = ["inspect", "m.gguf", "--no-stats"]


class Case:
    def __init__(self, name, args, words=(), code=FAILED, files=None, stdin=b"", wrap=(), prepare=None, out=None,
                 same_folder=True, user=None, check=None, report=False):
        self.name, self.args, self.code = name, args, code
        self.words = [words] if isinstance(words, str) else list(words)
        self.files, self.stdin, self.wrap, self.prepare = files or {}, stdin, list(wrap), prepare
        self.out, self.same_folder, self.user, self.check = out, same_folder, user, check
        self.report = report  # what was found goes to standard output all the same


def write_files(folder, files):
    for name, data in files.items():
        path = folder / name
        if isinstance(data, dict):
            path.mkdir()
            write_files(path, data)
        else:
            path.write_bytes(data)


def snapshot(folder):
    """What lies there: kinds, sizes, times of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        st = path.lstat()
        entry = (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ino)
        # the time of a folder tells of files that came and went, which is allowed
        found[str(path.relative_to(folder))] = entry[:1] if path.is_dir() and not path.is_symlink() else entry
    return found


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("BITNET_", "ASAN_", "UBSAN_"))}
    # a single allocation that a broken file could cause is far below this
    env["ASAN_OPTIONS"] = ":".join(filter(None, ["max_allocation_size_mb=3000", os.environ.get("ASAN_OPTIONS")]))
    env["UBSAN_OPTIONS"] = os.environ.get("UBSAN_OPTIONS") or "halt_on_error=1:abort_on_error=1:print_stacktrace=1"
    env["NO_COLOR"] = "1"
    return env


@functools.lru_cache(None)
def can_mount():
    """May this user mount a small file system that nobody else sees?"""
    try:
        probe = 'mount -t tmpfs -o size=16k none /mnt'
        return subprocess.run(["unshare", "-rm", "sh", "-c", probe], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def run(bitnet, case, folder):
    """One run; returns what is wrong with it, "" if nothing."""
    if case.wrap[:1] == ["unshare"] and not can_mount():
        raise Skipped("mounts")
    write_files(folder, case.files)
    if case.prepare:
        case.prepare(folder)
    before = snapshot(folder)
    extra_args = {"user": case.user, "group": case.user, "extra_groups": []} if case.user is not None else {}
    out = open(case.out, "wb") if case.out else subprocess.PIPE
    try:
        done = subprocess.run([*case.wrap, bitnet, *case.args], cwd=folder, input=case.stdin, stdout=out,
                              stderr=subprocess.PIPE, env=environment(), timeout=LIMIT_S, **extra_args)
    except subprocess.TimeoutExpired:
        return "not done after %d seconds" % LIMIT_S
    except PermissionError as e:
        raise Skipped("users") from e
    finally:
        if case.out:
            out.close()
    errors = done.stderr.decode("utf-8", "replace")
    if "Sanitizer" in errors or "runtime error:" in errors:
        return "a sanitizer reports:\n" + errors[:4000]
    if done.returncode != case.code:
        return "exit code %d, not %d: %s" % (done.returncode, case.code, errors[:600])
    if case.same_folder and snapshot(folder) != before:
        return "the folder has changed: %s" % sorted(set(snapshot(folder)) ^ set(before))
    if case.code == OK:
        return case.check(done.stdout or b"", folder) or "" if case.check else ""
    if done.stdout and not case.report:
        return "standard output is not empty: %r" % done.stdout[:200]
    if errors.count("\n") != 1 or not errors.endswith("\n") or not errors.startswith("bitnet: ") or len(errors) < 16:
        return "not one line that begins with 'bitnet: ': %r" % errors[:600]
    if any(ord(c) < 32 or ord(c) == 127 for c in errors[:-1]):
        return "control characters: %r" % errors[:600]
    missing = [w for w in case.words if w not in errors]
    return "%s not in: %s" % (missing, errors) if missing else ""


def every_length(bitnet, folder, good):
    """The first 300 bytes and every shorter beginning of them."""
    for n in range(301):
        what = run(bitnet, Case("", INSPECT, "m.gguf", files={"m.gguf": good[:n]}), folder)
        if what:
            return "%d bytes: %s" % (n, what)
    return ""


def interrupted(bitnet, folder, args, files, number, code):
    """A signal as soon as the output is being written: no file, the right code."""
    write_files(folder, files)
    before = snapshot(folder)
    for _ in range(5):
        p = subprocess.Popen([bitnet, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=environment())
        began = time.monotonic()
        while p.poll() is None and not list(folder.glob("*.part")) and time.monotonic() - began < LIMIT_S:
            time.sleep(0.001)
        p.send_signal(number)
        try:
            out, err = p.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            return "not done %d seconds after the signal" % LIMIT_S
        if p.returncode == OK:  # it was faster than the signal
            for path in set(snapshot(folder)) - set(before):
                (folder / path).unlink()
            continue
        if p.returncode != code:
            return "exit code %d, not %d: %s" % (p.returncode, code, err[:500])
        if snapshot(folder) != before:
            return "left behind: %s" % sorted(set(snapshot(folder)) ^ set(before))
        if out or err.count(b"\n") > 1:
            return "output %r, errors %r" % (out[:100], err[:300])
        return ""
    raise Skipped("speed")


def special_cases(bitnet, model, good):
    def stop(name, args, number, code):
        return name, lambda folder: interrupted(bitnet, folder, args, {"m.gguf": good}, number, code)

    return [
        ("gguf: every length up to 300 bytes", lambda d: every_length(bitnet, d, good)),
        stop("interrupted: synth", ["synth", "2b-4t", "o.gguf"], signal.SIGINT, INTERRUPTED),
        stop("terminated: synth", ["synth", "2b-4t", "o.gguf"], signal.SIGTERM, 128 + signal.SIGTERM),
        stop("interrupted: convert", ["convert", str(model), "o.gguf", "--head-type", "q6_k"], signal.SIGINT,
             INTERRUPTED),
    ]
