#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a model with OpenAI's API until Ctrl-C; needs the program `bitnet` in PATH, or named in $BITNET_PROGRAM.

    python serve.py --model ./models/llama3-8b-bitnet-b1.58 [--port 8080]"""
import argparse
import sys

import bitnet


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--model", default="embedded", help="path or name [the small model in the program]")
    words.add_argument("--host", default="127.0.0.1", help="address to listen on [127.0.0.1]")
    words.add_argument("--port", type=int, default=0, help="0: any that is free [0]")
    words.add_argument("--use-flash-attn", choices=("True", "False"),
                       help="as other servers have it; here there is one way to compute attention, in one pass")
    asked = words.parse_args()
    if asked.use_flash_attn is not None:
        print("--use-flash-attn: there is one way to compute attention here, which neither True nor False changes", file=sys.stderr)
    with bitnet.serve(asked.model, asked.port, host=asked.host) as server:
        print("base URL", server.url, flush=True)
        try:
            server.process.wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
