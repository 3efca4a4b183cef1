#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A conversation in the terminal. Ctrl-C stops an answer, Ctrl-D ends.

usage: chat.py [MODEL]"""
import sys

import bitnet


def answer(engine: bitnet.Engine, messages: list) -> str:
    said = ""
    try:
        for event in engine.stream(engine.model.chat_tokens(messages), max_new_tokens=200):
            print(event.text, end="", flush=True)
            said += event.text
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    print()
    return said


def main() -> None:
    messages: list = []
    with bitnet.Engine(sys.argv[1] if len(sys.argv) > 1 else "embedded") as engine:
        while True:
            try:
                messages.append({"role": "user", "content": input("> ")})
            except EOFError:
                return
            messages.append({"role": "assistant", "content": answer(engine, messages)})


if __name__ == "__main__":
    main()
