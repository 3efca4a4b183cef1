#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example programs run, and say what the program `bitnet` says for the same requests.

usage: examples.py BITNET MANY
"""
import json
import re
import subprocess
import sys

LIKE_MANY = ["-n", "20", "--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05", "--seed", "7"]


def said(*args):
    return subprocess.run(args, stdout=subprocess.PIPE, check=True, timeout=120, text=True).stdout


def check_many(bitnet, many, *prompts):
    asked, text, ended, first_end = {}, {}, {}, 0
    lines = re.split(r"\n(?=\d+ (?:asks|says|ends): )", said(many, *prompts).rstrip("\n"))
    for line in lines:
        who, what, rest = re.fullmatch(r"(\d+) (asks|says|ends): (.*)", line, re.S).groups()
        if what == "asks":
            asked[who] = rest
        elif what == "says":
            assert who not in ended, f"{who} speaks after its end"
            text[who] = text.get(who, "") + rest
        else:
            ended[who] = rest
            first_end = first_end or len(text)
    if prompts:
        assert list(asked.values()) == list(prompts), asked
    assert sorted(ended) == sorted(asked), "every request ends"
    assert first_end == min(4, len(asked)), f"{first_end} answers grow together"
    for who, prompt in asked.items():
        alone = json.loads(said(bitnet, "run", *LIKE_MANY, "--json", "-p", prompt))
        assert text[who] == alone["text"], f"{prompt!r}: {text[who]!r} is not {alone['text']!r}"
        assert ended[who] == f"{alone['generated_tokens']} tokens", ended[who]
    return len(asked)


if __name__ == "__main__":
    n = check_many(*sys.argv[1:3]) + check_many(*sys.argv[1:3], "The cat", "A big red ball\nand a dog")
    print(f"{n} answers as they should be")
