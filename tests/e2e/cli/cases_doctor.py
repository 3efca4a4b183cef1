# SPDX-License-Identifier: Apache-2.0
"""doctor's options, and --cpus of the commands that open a model. tests/e2e/doctor.py has the machines."""
import os

from tap import Skipped


def test_doctor_wrong_usage(t):
    t.usage("doctor", "a.gguf", "b.gguf", says="'b.gguf'")
    t.usage("doctor", "a.gguf", "-m", "b.gguf", says="once")
    t.usage("doctor", "--isa", "a.gguf", says=["--isa", "model"])
    t.usage("doctor", "--isa", "--root", ".", says=["--isa", "--root"])
    t.usage("doctor", "--root", ".", "--cpus", "0", says=["--cpus", "--root"])
    t.usage("doctor", "--backend", "sse9", says=["'sse9'", "scalar"])
    t.usage("doctor", "--cpus", "x", says=["--cpus", "'x'"])


def test_doctor_model_that_is_not_there(t):
    t.fails("doctor", "--no-measure", "absent.gguf", says="absent.gguf")


def test_cpus_of_all_commands(t):
    cpus = sorted(os.sched_getaffinity(0))
    one = str(cpus[-1])
    for command in (["run", "-n", "1", "-p", "a"], ["logits", "--ids", "1,2", "-o", "out.bin"],
                    ["doctor", "--no-measure"]):
        for bad in ("", "a", "1-", "2-1"):
            t.usage(*command, f"--cpus={bad}", says=["--cpus", f"'{bad}'"])
    want = t.run("run", "-p", "Once", "-n", "8", "--temp", "0", "--json").json()
    got = t.run("run", "-p", "Once", "-n", "8", "--temp", "0", "--json", "--cpus", one).json()
    t.equal(got["text"], want["text"], "text on one CPU")
    t.equal(got["threads"], 1, "threads on one CPU")
    if len(cpus) == 1:
        raise Skipped("cpus")
    both = t.run("run", "-p", "Once", "-n", "1", "--json", "--cpus", f"{cpus[0]},{cpus[1]}", "-t", "2").json()
    t.equal(both["threads"], 2, "threads on two CPUs")
