# SPDX-License-Identifier: Apache-2.0
"""Answers of a given form: grammars, JSON Schema, JSON objects."""
import json

SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Lily", "Tom"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}


def run(t, *args, n=60):
    return t.run("run", "Once upon a time", "-n", str(n), "--json", "--seed", "4", *args).json()


def test_form_grammar(t):
    j = run(t, "--grammar", 'root ::= "yes" | "no"')
    t.check(j["text"] in ("yes", "no"), j["text"])
    t.equal(j["finish_reason"], "end", "nothing can follow")
    text = run(t, "--grammar-file", t.write("digits.gbnf", 'root ::= [0-9]{3} "\\n"\n'))["text"]
    t.check(len(text) == 4 and text[:3].isdigit() and text[3] == "\n", repr(text))


def test_only_the_answer(t):
    """What follows a schema or a grammar goes to programs: nothing stands before it."""
    t.equal(t.run("run", "A name", "--grammar", 'root ::= "yes"', "-q").out, b"yes\n", "a grammar")
    json.loads(t.run("run", "A name", "--json-schema", json.dumps(SCHEMA), "-q").text)
    t.fails("run", "x", "--json-schema", "nofile.json", says=["cannot open", "nofile.json"])
    t.fails("run", "x", "--grammar", "nofile.gbnf", says=["cannot open", "nofile.gbnf"])


def test_form_json(t):
    for seed in range(5):
        j = json.loads(run(t, "--json-schema", json.dumps(SCHEMA), "--seed", str(seed))["text"])
        t.check(list(j) == ["name", "age"] and j["name"] in ("Lily", "Tom") and 1 <= j["age"] <= 99, j)
    j = run(t, "--json-object", n=200)
    if j["finish_reason"] == "end":
        t.check(isinstance(json.loads(j["text"]), dict), j["text"])


def test_form_refusals(t):
    t.fails("run", "x", "--grammar", "root ::= other", says="other")
    t.fails("run", "x", "--json-schema", "{", says="schema")
    t.fails("run", "x", "--json-object", "--ignore-eos", says="ignore_end")
    t.fails("run", "x", "--json-object", "--grammar", 'root ::= "a"', says="2 of grammar")
