#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Broken files, folders and command lines: the program must say what is wrong and leave nothing behind.

    broken.py PATH/TO/bitnet MODEL.gguf TEST_DATA [--only=TEXT] [--list]

Every case runs in an empty folder of its own. What must hold: exit code 1 (2 for usage), exactly one line on standard
error, which begins with "bitnet: " and names the thing; nothing on standard output; no file new, changed or gone; done
within seconds; no report of a sanitizer. Controls must succeed, so that a program which refuses everything fails here.
Models are made by a writer that shares nothing with the library (broken/files.py); each case (broken/cases_*.py) makes
one thing wrong. Output is TAP.
"""
import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
sys.path[1:1] = [str(HERE.parent / "broken"), str(HERE.parents[1] / "lib")]
sys.dont_write_bytecode = True
from cases_folder import folder_cases
from cases_hybrid import hybrid_cases, mutated
from cases_model import gguf_cases
from cases_use import argument_cases, controls, path_cases
from files import spm_model, tiny
from running import run, special_cases
from tap import Skipped, Tap


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    only = next((a.split("=", 1)[1] for a in sys.argv if a.startswith("--only=")), "")
    bitnet, model, data = (pathlib.Path(a).resolve() for a in args)
    golden, good, spm = data / "golden" / "bitnet-packed-mul", tiny().bytes(), spm_model()
    cases = [*controls(good, spm, golden, model), *gguf_cases(), *hybrid_cases(), *folder_cases(golden),
             *path_cases(good), *argument_cases(good, spm)]
    work = [(c.name, lambda d, c=c: run(str(bitnet), c, d)) for c in cases]
    work.insert(0, ("hybrid: bytes changed by chance", lambda d: mutated(str(bitnet), d)))
    work = special_cases(str(bitnet), model, good) + work  # the longest ones first
    work = [(name, job) for name, job in work if only in name]
    assert len({name for name, _ in work}) == len(work), "names must differ"
    if "--list" in sys.argv:
        return print("\n".join(name for name, _ in work))
    tap = Tap(len(work))
    with tempfile.TemporaryDirectory(prefix="bitnet-broken-") as top:
        os.chmod(top, 0o755)

        def one(i):
            folder = pathlib.Path(top) / str(i)
            folder.mkdir()
            os.chmod(folder, 0o777)  # also for the runs as another user
            try:
                return work[i][1](folder)
            except Skipped as e:
                return e
            except Exception as e:  # a fault of this file is a failure too
                return "%s: %s" % (type(e).__name__, e)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for (name, _), what in zip(work, pool.map(one, range(len(work)))):
                if isinstance(what, Skipped):
                    tap.skip(name, what)
                else:
                    tap.point(name, not what, what)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
