#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks in network namespaces of their own, as if they were machines: mpirun reaches them over a bridge, as it would
over ssh. Answers are those of one process, and a rank whose cable is pulled is named.

usage: ranks_net.py BITNET [--long]      output is TAP; --long: more prompts, and ten cables
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests" / "lib"))
from serving import until
from tap import Skipped, Tap, comment, find

BITNET = str(pathlib.Path(sys.argv[1]).resolve())
LONG = "--long" in sys.argv
NAME = f"bn{os.getpid() % 10000}"       # of the bridge and of all namespaces
NET = f"10.{100 + os.getpid() % 100}.77"
LOST_S = 5
STORY = "Once upon a time"
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", BITNET_TUNING="off")


def sh(line):
    return subprocess.run(shlex.split(line), check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def network(n):
    """n namespaces on a bridge: the addresses, and what mpirun calls in place of ssh."""
    if os.geteuid() != 0:
        raise Skipped("rights")
    find("ip")
    try:
        sh(f"ip link add {NAME} type bridge")
    except subprocess.CalledProcessError as e:
        raise Skipped("rights", e.stderr.strip()) from e
    try:
        sh(f"ip addr add {NET}.1/24 dev {NAME}")
        sh(f"ip link set {NAME} up")
        for i in range(n):
            sh(f"ip netns add {NAME}-{i}")
            sh(f"ip link add {NAME}v{i} type veth peer name eth0 netns {NAME}-{i}")
            sh(f"ip link set {NAME}v{i} master {NAME} up")
            sh(f"ip -n {NAME}-{i} addr add {NET}.{i + 10}/24 dev eth0")
            sh(f"ip -n {NAME}-{i} link set eth0 up")
            sh(f"ip -n {NAME}-{i} link set lo up")
        with tempfile.TemporaryDirectory() as folder:
            agent = pathlib.Path(folder) / "agent"
            agent.write_text(f"""#!/bin/sh
# a host's address, then a command: in its namespace, under a host name of its own
while case $1 in -*) true ;; *) false ;; esac do shift; done
i=$((${{1##*.}} - 10)); shift
exec ip netns exec {NAME}-$i unshare -u sh -c "hostname {NAME}-$i; $*"
""")
            agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
            yield [f"{NET}.{i + 10}" for i in range(n)], agent
    finally:
        for i in range(n):
            left = subprocess.run(["ip", "netns", "pids", f"{NAME}-{i}"], capture_output=True, text=True).stdout
            for pid in map(int, left.split()): # daemons of mpirun
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "link", "del", f"{NAME}v{i}"], capture_output=True)
            subprocess.run(["ip", "netns", "del", f"{NAME}-{i}"], capture_output=True)
        subprocess.run(["ip", "link", "del", NAME], capture_output=True)


def words(hosts, agent, *args):
    return [find("mpirun"), "--host", ",".join(hosts), "--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include",
            f"{NET}.0/24", "--mca", "btl_tcp_if_include", f"{NET}.0/24", "--mca", "btl", "tcp,self", BITNET, *map(str, args)]


def run(hosts, agent, *args):
    line = words(hosts, agent, *args) if hosts else [BITNET, *map(str, args)]
    r = subprocess.run(line, capture_output=True, text=True, timeout=200, env=ENV, stdin=subprocess.DEVNULL)
    assert r.returncode == 0, f"{line}: exit {r.returncode}\n{r.stdout}\n{r.stderr}"
    return r.stdout


def test_same_bits():
    args = ("run", "--json", "-p", STORY, "-n", 24, "--temp", 0, "-t", 1)
    of = lambda out: json.loads(out)["tokens"]
    want = of(run(None, None, *args))
    with network(3) as (hosts, agent):
        for n in (2, 3):
            got = of(run(hosts[:n], agent, *args))
            assert got == want, f"{n} namespaces: {got}, not {want}"


def test_batch():
    """Requests in company, with texts that begin alike and drafts that are checked; of a dense model and of a hybrid."""
    with tempfile.TemporaryDirectory() as folder, network(3) as (hosts, agent):
        path, out = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
        with open(path, "w") as f:
            for i in range(50 if LONG else 10):
                f.write(json.dumps({"prompt": f"{STORY}, there was a {'cat dog sun ball tree'.split()[i % 5]} and a {i}", "max_tokens": 12,
                                    "seed": i, "temperature": 0.9 * (i % 2), "logprobs": 2}) + "\n")
        for model in ("embedded", ROOT / "tests/data/hybrid/hybrid-28m.gguf"):
            args = ("batch", "-m", model, "--input", path, "--output", out, "--max-num-seqs", 8, "-t", 1, "--speculation", "on", "--restart")

            def answers(hosts):
                run(hosts, agent, *args)
                return [json.loads(line)["response"]["body"]["choices"] for line in open(out)]
            want = answers(None)
            for n in (2, 3):
                assert answers(hosts[:n]) == want, f"{model}: {n} namespaces"


def test_unplugged():
    for i in range(10 if LONG else 1):
        unplug(random.Random(i).uniform(0.5, 6) if LONG else 3)


def unplug(after_s):
    with network(3) as (hosts, agent), tempfile.TemporaryFile("w+") as said:
        p = subprocess.Popen(words(hosts, agent, "bench", "-t", 1, "-n", 200, "-r", 500), env=ENV, stdout=said,
                             stderr=said, stdin=subprocess.DEVNULL)

        def text():
            said.seek(0)
            return said.read()
        try:
            mine = lambda: [pid for pid in pids() if is_rank(pid)]
            until("three ranks", lambda: len(mine()) == 3)
            ranks = mine()
            time.sleep(after_s)
            sh(f"ip link set {NAME}v1 down")
            start = time.monotonic()
            until("the rank is named", lambda: re.search(rf"rank 1, {NAME}-1, process", text()))
            took = time.monotonic() - start
            comment(f"unplugged after {after_s:.1f} s: named after {took:.2f} s")
            assert took < LOST_S, text()
            until("all have ended", lambda: not any(map(is_rank, ranks)))
            # mpirun and its daemon on the machine that is cut off wait for each other longer than that
        finally:
            p.kill()
            p.wait()


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_rank(pid):
    """A process of the program in one of the namespaces."""
    try:
        spaces = {entry.stat().st_ino for entry in os.scandir("/run/netns") if entry.name.startswith(f"{NAME}-")}
        return os.readlink(f"/proc/{pid}/exe") == BITNET and os.stat(f"/proc/{pid}/ns/net").st_ino in spaces
    except OSError:
        return False


if __name__ == "__main__":
    t = Tap()
    t.case("same bits", test_same_bits)
    t.case("batch", test_batch)
    t.case("unplugged", test_unplugged)
    sys.exit(t.end())
