#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny.gguf: golden/qwen35-v3 with its ternary matrices taken as rotated ones (prism.hadamard), value heads tiled but for
ssm_out. A hybrid small enough to be computed by emulated CPUs. usage: make_tiny.py"""
import json
import lzma
import os
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "golden"))
import hybrid_gguf as gguf
from bitnet_ref import read_safetensors

golden = os.path.join(here, "..", "golden", "qwen35-v3")
with tempfile.NamedTemporaryFile() as f:
    f.write(lzma.open(os.path.join(golden, "model.safetensors.xz")).read())
    f.flush()
    tensors = read_safetensors(f.name)
config = json.load(open(os.path.join(golden, "config.json")))
rotation = gguf.Rotation(block=64, widths=[128, 256, 384], seed=3)
values = gguf.arrange(config, tensors, tile_out=False)
file = gguf.make(config, values, (gguf.T_PQ2_0, gguf.T_F16), rotation)
open(os.path.join(here, "tiny.gguf"), "wb").write(file.bytes())
