#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured extraction: the answer is a JSON object of the shape of a dataclass, whatever the model would like to say. The
shape is certain; whether the values are right depends on the model.

usage: extract.py [TEXT [MODEL]]"""
import dataclasses
import json
import sys
from typing import List, Literal

import bitnet


@dataclasses.dataclass
class Story:
    hero: str
    mood: Literal["happy", "sad", "scary"]
    animals: List[str]
    has_happy_end: bool


def main(text: str = "Lily had a dog named Max. They played all day and went home happy.", model: str = "embedded") -> None:
    with bitnet.Engine(model) as engine:
        made = engine.generate(f"{text}\nAs JSON: ", json_schema=Story, max_new_tokens=160, temperature=0)
    print(Story(**json.loads(made.text)))


if __name__ == "__main__":
    main(*sys.argv[1:])
