# SPDX-License-Identifier: Apache-2.0
"""See bitnet.cpu.engine."""
