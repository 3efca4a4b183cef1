# SPDX-License-Identifier: Apache-2.0
"""Texts beside a validator that is not ours, for the tests of constrained texts."""
import datetime
import json

try:
    import jsonschema
except ImportError:
    jsonschema = None


def is_time(value):
    try:
        datetime.time.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


def validator(schema):
    """None without the module; then texts are only parsed."""
    if not jsonschema:
        return None
    checker = jsonschema.FormatChecker(("date", "uuid", "email", "ipv4"))
    checker.checks("time")(is_time)
    checker.checks("date-time")(lambda v: v[10] == "T" and is_time(v[11:]) and bool(datetime.date.fromisoformat(v[:10])))
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    kind.check_schema(schema)
    return kind(schema, format_checker=checker)


def faults(schema, lines):
    check = validator(schema)
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError as e:
            yield f"{e}: {line[:200]}"
            continue
        for e in check.iter_errors(value) if check else ():
            yield f"{e.message[:200]}: {line[:200]}"
