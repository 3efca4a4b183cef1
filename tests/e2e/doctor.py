#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`bitnet doctor` on recorded machines and on this one, beside hwloc, which reads the same trees in its own way.

usage: doctor.py BITNET [--only TEXT]

Output is TAP; comparisons with hwloc are skipped where its lstopo is not installed.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests" / "lib"))
from tap import Skipped, Tap, find

MACHINES = ROOT / "tests" / "data" / "machines"

# machine: exit code, default threads, findings that are not ok
EXPECTED = {
    "two-sockets": (1, 16, {"numa": "warning"}),
    "smt-desktop": (0, 8, {}),
    "hybrid": (0, 4, {}),
    "quota-v2": (1, 2, {"quota": "warning"}),
    "quota-v1": (0, 2, {"quota": "note"}),
    "cpuset-3": (0, 3, {"cpus": "note", "governor": "note"}),
    "big-little": (0, 4, {"governor": "note", "hugepages": "warning"}),
    "riscv-board": (0, 4, {}),
    "small-vm": (1, 2, {"busy": "warning", "hugepages": "warning", "swap": "note", "virtual": "note"}),
    "hot-laptop": (1, 4, {"governor": "warning", "boost": "warning", "heat": "note"}),
    "recorded-epyc-vm": (1, 2, {"busy": "warning", "virtual": "note"}),
}
CACHE_TYPES = {"0": "unified", "1": "data", "2": "instructions"}


class Doctor:
    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BITNET_")}

    def run(self, *args, codes=(0,), env=None):
        done = subprocess.run([self.program, "doctor", *map(str, args)], env={**self.env, **(env or {})}, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True)
        assert done.returncode in codes, f"{args}: exit code {done.returncode}, not {codes}: {done.stderr}"
        return done

    def report(self, *args, codes=(0, 1), env=None):
        """The JSON, whose findings must be what the exit code says."""
        done = self.run("--json", *args, codes=codes, env=env)
        j = json.loads(done.stdout)
        serious = [f for f in j["findings"] if (f["cost"] or 0) > 0.1]
        assert done.returncode == (1 if serious else 0), (done.returncode, serious)
        for f in serious:
            assert f"{f['id']} ({f['cost'] * 100:.0f} %)" in done.stderr, (f, done.stderr)
        assert (done.stderr == "") == (not serious), done.stderr
        return j


def unpack(recording, folder):
    """A recording as the folder that it was. hwloc reads masks where we read lists; they are made here."""
    for line in recording.read_text().splitlines():
        if line.startswith("#"):
            continue
        path, text = line.split("\t", 1)
        text = re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), text)
        put(folder, path, text)
        name = path.rsplit("/", 1)[1]
        if name in ("core_cpus_list", "thread_siblings_list", "package_cpus_list", "core_siblings_list"):
            put(folder, path[:-len("_list")], mask(text))
        elif name == "shared_cpu_list":
            put(folder, path.replace("shared_cpu_list", "shared_cpu_map"), mask(text))
        elif name == "cpulist":
            put(folder, path.replace("cpulist", "cpumap"), mask(text))


def put(folder, path, text):
    at = pathlib.Path(str(folder) + path)
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text + "\n")


def mask(cpus):
    """0,2-3 as the kernel's mask, 32 bits a word"""
    bits = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for c in range(int(first), int(last or first) + 1):
            bits |= 1 << c
    words = []
    while bits or not words:
        words.append(f"{bits & 0xffffffff:08x}")
        bits >>= 32
    return ",".join(reversed(words))


# ------------------------------------------------------------------ recorded machines

def test_machines_are_all_expected(_):
    names = {p.stem for p in MACHINES.glob("*.txt")}
    assert names == set(EXPECTED), names ^ set(EXPECTED)
    subprocess.run([sys.executable, MACHINES / "make.py", "--check"], check=True)


def test_recorded_machines(d):
    for name, (code, threads, wrong) in EXPECTED.items():
        j = d.report("--root", MACHINES / (name + ".txt"), codes=(code,))
        found = {f["id"]: f["severity"] for f in j["findings"] if f["severity"] != "ok"}
        assert found == wrong, (name, found)
        assert j["cpu"]["default_threads"] == j["threads"] == threads, (name, j["cpu"])
        assert j["recorded"] and j["kernels"] is None and j["measured"]["read_gb_s"] is None, name
        text = d.run("--root", MACHINES / (name + ".txt"), codes=(code,)).stdout
        for f in j["findings"]:
            assert f"{f['id']}: {f['what']}\n" in text, (name, f)
            assert not f["do"] or f"do: {f['do']}\n" in text, (name, f)


def test_options_change_the_judgement(d):
    def severity(machine, finding, *args):
        j = d.report("--root", MACHINES / (machine + ".txt"), *args)
        return {f["id"]: f["severity"] for f in j["findings"]}.get(finding)
    assert severity("hybrid", "hybrid") == "ok"
    assert severity("hybrid", "hybrid", "--threads", 12) == "warning"
    assert severity("smt-desktop", "threads", "-t", 16) == "note"
    assert severity("quota-v2", "quota", "-t", 1) == "note"
    assert severity("hot-laptop", "memlock") is None
    assert severity("hot-laptop", "memlock", "embedded") == "note"
    assert severity("hot-laptop", "memory", "embedded") == "ok"


def test_a_folder_is_as_good_as_a_recording(d):
    for name in EXPECTED:
        with tempfile.TemporaryDirectory() as folder:
            unpack(MACHINES / (name + ".txt"), folder)
            assert d.report("--root", folder) == d.report("--root", MACHINES / (name + ".txt")), name


def test_what_is_no_machine(d):
    with tempfile.TemporaryDirectory() as folder:
        for what, says in ((folder, "no CPUs"), (MACHINES / "make.py", "not a path, a tab and a text"),
                           (folder + "/none", "none")):
            done = d.run("--root", what, codes=(1,))
            assert done.stdout == "" and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


# ------------------------------------------------------------------ hwloc

def hwloc(*source):
    done = subprocess.run([find("lstopo"), *source, "--disallowed", "--no-io", "--of", "xml"], stdout=subprocess.PIPE, check=True,
                          env={**os.environ, "HWLOC_HIDE_ERRORS": "2"})
    objects = list(xml.etree.ElementTree.fromstring(done.stdout).iter("object"))
    count = collections.Counter(o.get("type") for o in objects)
    caches = collections.Counter((int(o.get("depth")), CACHE_TYPES[o.get("cache_type")], int(o.get("cache_size")))
                                 for o in objects if o.get("cache_type"))
    nodes = {int(o.get("os_index")): int(o.get("local_memory") or 0) for o in objects if o.get("type") == "NUMANode"}
    return count, caches, nodes


def compare(j, theirs, name):
    count, caches, nodes = theirs
    ours = {(c["level"], c["type"], c["bytes"]): c["count"] for c in j["caches"]}
    assert (j["cpu"]["packages"], j["cpu"]["cores"], j["cpu"]["cpus"]) == \
        (count["Package"], count["Core"], count["PU"]), (name, j["cpu"], count)
    assert ours == dict(caches), (name, ours, caches)
    if j["nodes"]:  # without any, hwloc makes one of all memory
        assert {n["id"]: n["total_bytes"] for n in j["nodes"]} == nodes, (name, j["nodes"], nodes)
    else:
        assert len(nodes) == 1, (name, nodes)


def test_hwloc_sees_the_same_recorded_machines(d):
    for name in EXPECTED:
        with tempfile.TemporaryDirectory() as folder:
            unpack(MACHINES / (name + ".txt"), folder)
            compare(d.report("--root", folder), hwloc("-i", folder, "--if", "fsroot"), name)


def test_hwloc_would_notice(d):
    """A cache that only hwloc's files have split must be a difference."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(MACHINES / "smt-desktop.txt", folder)
        for c in range(16):
            put(folder, f"/sys/devices/system/cpu/cpu{c}/cache/index3/shared_cpu_map", mask("0-3,8-11" if c % 8 < 4 else "4-7,12-15"))
        try:
            compare(d.report("--root", folder), hwloc("-i", folder, "--if", "fsroot"), "smt-desktop")
        except AssertionError:
            return
        raise AssertionError("two caches in place of one were not noticed")


def test_hwloc_sees_the_same_machine_here(d):
    compare(d.report("--no-measure"), hwloc(), "this machine")


# ------------------------------------------------------------------ this machine

def test_this_machine(d):
    j = d.report()
    assert j["measured"]["read_gb_s"] > 0 and j["measured"]["read_one_thread_gb_s"] > 0, j["measured"]
    assert j["kernels"]["selftest_passed"], j["kernels"]
    assert [m["name"] for m in j["models"]] == ["stories-31m", "2B-4T"], j["models"]
    for m in j["models"]:
        want = j["measured"]["read_gb_s"] * 1e9 / m["token_bytes"]
        assert abs(m["most_tok_s"] / want - 1) < 1e-6 and m["usual_tok_s"][1] < m["most_tok_s"], m
    version = json.loads(subprocess.run([d.program, "version", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    assert j["cpu"]["default_threads"] == version["default_threads"]
    text = d.run("--no-measure", codes=(0, 1)).stdout
    for subject in ("CPU", "cores", "kernels", "caches", "limits", "frequency", "memory", "huge pages", "load"):
        assert re.search(f"^{subject} ", text, re.M), subject


def test_recording_this_machine_changes_nothing(d):
    def fixed(j):
        limits = {k: v for k, v in j["limits"].items() if not k.startswith("periods")}
        memory = {k: v for k, v in j["memory"].items() if k not in ("available_bytes", "swap_used_bytes")}
        nodes = [{k: v for k, v in n.items() if k != "free_bytes"} for n in j["nodes"]]
        frequency = {k: v for k, v in j["frequency"].items() if k not in ("now_khz", "throttles")}
        return j["cpu"], j["caches"], nodes, limits, memory, frequency
    with tempfile.NamedTemporaryFile(suffix=".txt") as f:
        subprocess.run(["sh", ROOT / "tools" / "record_machine.sh"], stdout=f, check=True)
        assert fixed(d.report("--root", f.name)) == fixed(d.report("--no-measure"))


def test_instruction_sets(d):
    j = json.loads(d.run("--isa", "--json").stdout)
    names = [b["name"] for b in j["compiled"]]
    assert j["best"] == j["used"] == [b["name"] for b in j["compiled"] if b["supported"]][-1], j
    used = {o["op"]: o["used"] for o in j["operations"]}
    assert len(used) == len(j["operations"]) > 30 and "gemm_t2" in used, used
    for o in j["operations"]:
        assert o["compiled"][0] == "scalar" and o["used"] in o["compiled"], o
        assert o["compiled"] == sorted(o["compiled"], key=names.index), o
    scalar = json.loads(d.run("--isa", "--json", "--backend", "scalar").stdout)
    assert {o["used"] for o in scalar["operations"]} == {"scalar"}, scalar
    lines = dict(re.findall(r"^  (\w+) .*\[(\w+)\]", d.run("--isa").stdout, re.M))
    assert lines == used, lines


def test_a_narrowed_backend_is_found(d):
    j = d.report("--no-measure", env={"BITNET_BACKEND": "scalar"})
    if j["kernels"]["best"] == "scalar":
        raise Skipped("isa", "none but scalar")
    found = {f["id"]: f for f in j["findings"]}
    assert found["backend"]["severity"] == "warning" and "BITNET_BACKEND" in found["backend"]["do"], found


def test_what_is_to_be_done_can_be_done(d):
    """Commands and options of this program that findings name are there."""
    said = " ".join(f["do"] or "" for name in EXPECTED for args in ([], ["-t", "40"], ["embedded"])
                    for f in d.report("--root", MACHINES / (name + ".txt"), *args)["findings"])
    helped = subprocess.run([d.program, "run", "--help-all"], stdout=subprocess.PIPE, check=True, text=True).stdout
    overview = subprocess.run([d.program, "help"], stdout=subprocess.PIPE, check=True, text=True).stdout
    options = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", said))
    assert {"--threads", "--cpus"} <= options, options
    missing = {o for o in options if not re.search(rf"{o}\b", helped)}
    assert not missing, f"no such options: {missing}"
    for command in set(re.findall(r"bitnet (\w+)", said)):
        assert re.search(rf"\b{command}\b", overview), command


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bitnet")
    p.add_argument("--only", default="")
    a = p.parse_args()
    d = Doctor(a.bitnet)
    cases = [(n, f) for n, f in globals().items() if n.startswith("test_") and a.only in n]
    tap = Tap(len(cases))
    for name, case in cases:
        tap.case(name[5:].replace("_", " "), case, d)
    sys.exit(tap.end())


if __name__ == "__main__":
    main()
