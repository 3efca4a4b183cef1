# SPDX-License-Identifier: Apache-2.0
"""Test Anything Protocol for the tests in Python, and the one way to say what a test needs.

    t = Tap(2)                                  # Tap(): the plan follows at the end
    t.point("twice two", 2 * 2 == 4, "what to print where it failed")
    t.case("answers", answers, server)          # passes unless it raises; what it returns is printed
    sys.exit(t.end())

Two things end a case early. Skipped: this machine or this build cannot do it, for one of the reasons in CANNOT, and no
package would help. Missing: something that can be installed is not there. Both are skips for a person who runs one test;
under ./check, which sets BITNET_TESTS_REQUIRE, what is missing is a failure.
"""
import importlib.util
import os
import shutil
import sys
import time
import traceback

REQUIRE = "BITNET_TESTS_REQUIRE"

# Every reason for which a test in Python may be skipped under ./check.
CANNOT = {
    "build": "this program was built without it",
    "cpus": "one CPU",
    "device": "a bare root without this device",
    "isa": "this CPU or build has no such kernels",
    "mounts": "no private mounts here",
    "rights": "neither root nor user namespaces",
    "shape": "the model's shape does not fit this type",
    "speed": "the work is always done before the signal comes",
    "users": "the program cannot be started as another user",
}


class Skipped(Exception):
    """This case cannot run on this machine or with this build. reason: a key of CANNOT"""

    def __init__(self, reason, more=""):
        super().__init__(f"{CANNOT[reason]}{': ' if more else ''}{more}")


class Missing(Exception):
    """This case needs something that is not installed."""


def is_required():
    return os.environ.get(REQUIRE, "") not in ("", "0")


def find(*names):
    """The path of a program that goes by one of these names."""
    path = next(filter(None, map(shutil.which, names)), None)
    if not path:
        raise Missing(f"{names[0]} is not installed")
    return path


def comment(text):
    for line in str(text).splitlines():
        print(f"# {line}", flush=True)


class Tap:
    def __init__(self, plan=None):
        self.number = self.failed = self.skipped = 0
        self.has_plan = plan is not None
        if self.has_plan:
            self._plan(plan)

    def point(self, name, good, said=""):
        """said: shown where it failed."""
        self.number += 1
        self.failed += not good
        name = str(name).replace("#", "")  # what follows a # would be a directive
        print(f"{'ok' if good else 'not ok'} {self.number} - {name}", flush=True)
        if not good:
            comment(said)

    def skip(self, name, why):
        """why: Skipped or Missing"""
        if isinstance(why, Missing) and is_required():
            return self.point(name, False, f"{why}; ./check needs it")
        self.number += 1
        self.skipped += 1
        print(f"ok {self.number} - {name} # SKIP {why}", flush=True)

    def case(self, name, function, *args):
        start = time.monotonic()
        try:
            said = function(*args)
        except (Skipped, Missing) as e:
            self.skip(name, e)
        except Exception:  # a fault of the test is a failure as well, and the other cases still run
            self.point(name, False, traceback.format_exc())
        else:
            self.point(f"{name}: {time.monotonic() - start:.1f} s{'; ' + said if said else ''}", True)

    def end(self):
        """The exit status."""
        if not self.has_plan:
            self._plan(self.number)
        return int(self.failed > 0)

    @staticmethod
    def _plan(n):
        print(f"1..{n}", flush=True)


def need_module(name):
    """For a test that can do nothing without it: ends the test here."""
    if not importlib.util.find_spec(name):
        t = Tap(1)
        t.skip(f"needs {name}", Missing(f"{name} is not installed (Debian: python3-{name})"))
        sys.exit(t.end())
