# SPDX-License-Identifier: Apache-2.0
"""How much of itself a test repeats: BITNET_TEST_EFFORT, a share in percent (tests/lib/effort.h)."""
import os


def full_effort():
    return int(os.environ.get("BITNET_TEST_EFFORT") or 100) not in range(1, 100)
