#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of llama.cpp's server against ours: llama_server_tests.py CHECKOUT PROGRAM [FILE...]

CHECKOUT is a copy of llama.cpp; its tests are in tools/server/tests and stay as they are. FILE is one of
them without "test_" and ".py"; none: those whose endpoints are served here. Needs pytest and requests.

This file is also the plugin that pytest loads. Their class that starts a server starts PROGRAM instead,
with the embedded model, and its options under our names; an option that PROGRAM does not have is left
out, with a line in the log. What their tests expect of the words of a tiny model cannot hold for
another one, so their match_regex accepts any text; with --words it does not. Where a test has a number of
tokens as a parameter, it is that of the same text with our model. Their model never ends a text by itself, so
requests ask ours not to. The Python package of OpenAI is replaced by a stand-in if it is not installed.

Prints passed and failed for each file, and each failure with the reason that excuses it: from `MODEL` what hangs on
the model, from `ABSENT` what llama-server has and this server has not, from `OTHER` what is done in another way.
The share is that of all which neither hangs on the model nor is absent. Fails if a test fails that has no reason.
"""

import argparse
import array
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

FILES = ["basic", "chat_completion", "completion", "compat_anthropic", "compat_oai_responses", "ctx_shift",
         "embedding", "ignore_eos", "infill", "lora", "metrics", "rerank", "security", "slot_save", "stream",
         "template", "tokenize", "tool_call"]

MAX_CTX = 512  # tokens, of the embedded model

# What a failing test may be excused with: a pattern of its name, and why it cannot hold here.
TEXTS = "texts, or counts of tokens, of their model"
IMAGES = "a model of images; refused with 400"
NETWORK = "a model of images, from the network"
MODEL: list[tuple[str, str]] = [
    (r"test_server_props", "the path of a file; the model is part of the program"),
    (r"test_anthropic_(tool_result_with_image|vision)|test_local_media_file", IMAGES),
    (r"test_slot_(save|restore)_.*(image|multimodal|media)", NETWORK),
    (r"test_completion_response_fields|test_chat_template$", "the text of their first token, '<s> '"),
    (r"test_chat_completion_cached_tokens|test_completion_prompt_cache|test_rerank_usage|test_tokenize_with_bos", TEXTS),
    (r"test_ctx_shift_", "the text fills their context; of ours it takes two thirds"),
    (r"test_return_progress\[64-4", "its prompt takes four steps of 64 tokens with their model, one with ours"),
    (r"test_rerank(_tei_format)?$", "wants a model that was trained to judge; ours tells stories"),
    (r"test_infill_with(out)?_input_extra", "the model has no tokens for filling in; refused with 501"),
    (r"test_completion_without_tool_call_fast.*tools1", "the prompt is beyond the model's 512 tokens"),
]
ABSENT: list[tuple[str, str]] = [
    (r"test_server_model_aliases_and_tags", "no tags"),
    (r"test_slot_restore_legacy", "files of their own older form"),
    (r"test_stream_", "streams that their router keeps for being resumed"),
    (r"test_access_static_assets", "files of their own page"),
    (r"test_cors_origins_defaults_to_localhost_with_tools|test_cors_proxy", "their agent's tools and proxy"),
    (r"test_responses_stream_with_llama_telemetry", "responses have no timings: OpenAI's events only"),
]
OTHER: list[tuple[str, str]] = [
    (r"test_server_slots|test_metrics_disabled", "off until an option allows it there; here on, behind the keys"),
    (r"test_metrics_prometheus_format", "drafts are counted by tokens, not by number"),
    (r"test_metrics_embedding_prompt", "texts of embeddings are no steps, and counted by request"),
    (r"test_slot_save_restore$", "what is known of a text is kept in whole pages of 64 tokens"),
    (r"test_anthropic_empty_messages", "an empty conversation is refused, as by Anthropic"),
    (r"test_cors_options.*Headers", "a preflight names the headers that were asked for: * does not stand for Authorization"),
    (r"test_cors_options.*Credentials", "no cookies: with them any page could use those of a proxy in front"),
    (r"test_chat_completion\[.*This is not a chat template", "a template without any Jinja is refused as a mistake"),
    (r"test_chat_template_assistant_prefill\[prefill1", "parts of a message are joined without lines between them, as OpenAI has it"),
    (r"test_invalid_chat_completion_req\[messages7\]", "two messages of the assistant in a row are possible"),
]


def excuse(name):
    """("model", "absent" or "other", why); None: there is none."""
    for kind, reasons in (("model", MODEL), ("absent", ABSENT), ("other", OTHER)):
        why = next((why for pattern, why in reasons if re.search(pattern, name)), None)
        if why:
            return kind, why
    return None


# ------------------------------------------------------------------ the plugin


class Reply(dict):
    """JSON whose members are attributes, as OpenAI's package has them."""

    def __getattr__(self, name):
        if name == "output_text":
            return "".join(part["text"] for item in self["output"] if item["type"] == "message"
                           for part in item["content"])
        return self.get(name)


class OpenAI:
    """A stand-in for the class of that name: requests as the package sends them."""

    def __init__(self, api_key, base_url):
        self.key, self.url = api_key, base_url
        self.chat = types.SimpleNamespace(completions=self.at("/chat/completions"))
        self.completions, self.embeddings = self.at("/completions"), self.at("/embeddings")
        self.responses = self.at("/responses")

    def at(self, path):
        return types.SimpleNamespace(create=lambda **body: self.post(path, body))

    def post(self, path, body):
        import requests
        extra = body.pop("extra_body", {})
        reply = requests.post(self.url + path, json=endless(path, body | extra), stream=body.get("stream", False),
                              headers={"Authorization": f"Bearer {self.key}"})
        if reply.status_code != 200:
            raise RuntimeError(f"{reply.status_code}: {reply.text}")
        return self.events(reply) if body.get("stream") else json.loads(reply.text, object_hook=Reply)

    @staticmethod
    def events(reply):
        for line in reply.iter_lines():
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                yield json.loads(line[6:], object_hook=Reply)


# ------------------------------------------------------------------ another model

WRITES = ("/completion", "/completions", "/chat/completions", "/v1/completions", "/v1/chat/completions")
ENDS = ("logit_bias", "stop", "grammar", "json_schema", "response_format", "tools")


def endless(path, body):
    """Their model ends no text; one that is shaped by something else ends all the same."""
    if path not in WRITES or not isinstance(body, dict) or "ignore_eos" in body or any(body.get(k) for k in ENDS):
        return body
    return body | {"ignore_eos": True}


class Count:
    """A number of tokens, which is only known when there is a server."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        self.was = self.text() if callable(self.text) else count_tokens(self.text)
        return other == self.was

    def __repr__(self):
        return str(getattr(self, "was", "?"))


def count_tokens(text):
    got = subprocess.run([os.environ["BITNET_PROGRAM"], "tokenize", "--bos", "--json"], input=text, capture_output=True,
                         text=True, check=True)
    return len(json.loads(got.stdout)["ids"])


def count_chat(*messages):
    """Of a conversation, by the server that was started last, at the path that only counts."""
    talk = [{"role": r, "content": c} for r, c in zip(("system", "user"), messages)]
    body = start.last.make_request("POST", "/v1/chat/completions/input_tokens", data={"messages": talk}).body
    return body["input_tokens"]


def own_count(name, p):
    """What stands for a test's count of their model's tokens; None: it has none."""
    if name in ("test_completion", "test_completion_stream"):
        return "n_prompt", Count(p["prompt"])
    if name in ("test_chat_completion", "test_chat_completion_stream"):
        return "n_prompt", Count(lambda: count_chat(p["system_prompt"], p["user_prompt"]))
    if name == "test_ctx_shift_disabled_short_prompt" and p["truncated"]:
        return "n_token_output", Count(lambda: 256 - count_tokens("Hi how are you"))
    if name == "test_embedding_usage_single":
        return "n_tokens", Count(p["content"])
    return None


def recount(function, counts):
    """The same function with other constants."""
    code = function.__code__
    function.__code__ = code.replace(co_consts=tuple(
        counts[c] if type(c) is int and c in counts else c for c in code.co_consts))


def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item, "callspec"):
            own = own_count(item.originalname, item.callspec.params)
            if own:
                item.callspec.params[own[0]] = own[1]
        if item.name == "test_slot_erase":
            recount(item.function, {21: Count("What is the capital of France?")})


def make_adapter(path):
    """A PEFT folder for the embedded model, of random numbers, in place of an adapter from the network."""
    said = json.loads(subprocess.run([os.environ["BITNET_PROGRAM"], "inspect", "--json"], capture_output=True, check=True).stdout)
    shapes = {t["name"]: t["dims"] for t in said["tensors"] if t["name"].endswith(".attn_q.weight")}
    rng, rank, head, data = random.Random(1), 4, {}, array.array("f")
    for name, (n_in, n_out) in shapes.items():
        for matrix, rows, cols in (("A", rank, n_in), ("B", n_out, rank)):
            begin = 4 * len(data)
            data.extend(rng.gauss(0, 0.2) for _ in range(rows * cols))
            key = f"base_model.model.model.layers.{name.split('.')[1]}.self_attn.q_proj.lora_{matrix}.weight"
            head[key] = {"dtype": "F32", "shape": [rows, cols], "data_offsets": [begin, 4 * len(data)]}
    text = json.dumps(head).encode()
    Path(path).mkdir(parents=True)
    Path(path, "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data.tobytes())
    Path(path, "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}))


def options(server, known):
    """Their settings as our options."""
    slots = server.n_slots or 4
    per_slot = server.n_ctx if server.kv_unified or not server.n_ctx else server.n_ctx // slots
    per_slot = min(per_slot or MAX_CTX, MAX_CTX)
    wanted = [
        ("--alias", server.model_alias), ("--ctx-size", per_slot), ("--max-num-seqs", slots),
        ("--kv-tokens", server.n_ctx if server.kv_unified else None),
        ("--max-num-batched-tokens", server.n_batch), ("--threads", server.n_threads),
        ("--max-tokens", max(server.n_predict or 0, 0)), ("--api-key", server.api_key),
        ("--temp", server.temperature), ("--seed", server.seed), ("--pooling", server.pooling),
        ("--chat-template", server.chat_template or server.chat_template_file),
        ("--reasoning-format", server.reasoning_format), ("--reasoning", server.reasoning),
        ("--slot-save-path", server.slot_save_path), ("--cors", server.cors_origins or "*"),
        ("--kv-type", server.ctk), ("--kv-type-v", server.ctv),
        ("--metrics-compat", "llamacpp" if server.server_metrics else None),
        ("--context-shift", True if server.enable_ctx_shift else None),
        ("--compat", "llamacpp"), ("--no-pages", True if getattr(server, "no_ui", None) else None),
    ] + [("--lora", path) for path in server.lora_files or []]
    line = []
    for name, value in wanted:
        if value is None:
            continue
        if name not in known:
            print(f"left out: {name} {value}")
            continue
        line += [name] if value is True else [name, str(value)]
    return line


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(server, timeout_seconds=60):
    import requests
    import utils
    program = os.environ["BITNET_PROGRAM"]
    known = set(re.findall(r"--[a-z0-9-]+", os.environ["BITNET_SERVE_HELP"]))
    if not hasattr(server, "bitnet_port"):  # one that starts again is looked for where it was
        server.bitnet_port = free_port()
    server.server_port = server.bitnet_port
    if server.slot_save_path:
        Path(server.slot_save_path).mkdir(exist_ok=True)
    line = [program, "serve", "--port", str(server.server_port), "--no-warm-up", *options(server, known)]
    print("tests: starting server with:", " ".join(line))
    server.process = subprocess.Popen(line, stdout=sys.stdout, stderr=sys.stdout)
    utils.server_instances.add(server)
    start.last = server
    end = time.monotonic() + timeout_seconds
    while time.monotonic() < end:
        try:
            if requests.get(f"http://127.0.0.1:{server.server_port}/health", timeout=5).ok:
                return
        except requests.exceptions.ConnectionError:
            pass
        if server.process.poll() is not None:
            raise RuntimeError(f"the server ended with code {server.process.returncode}")
        time.sleep(0.01)
    raise TimeoutError(f"the server did not start within {timeout_seconds} s")


class Results:
    def __init__(self):
        self.outcomes = {}

    def pytest_runtest_logreport(self, report):
        if report.outcome == "skipped" or report.when == "call" or report.failed:
            why = str(report.longrepr).strip().splitlines()[-1][:300] if report.longrepr else ""
            self.outcomes[report.nodeid] = (report.outcome, why)

    def pytest_sessionfinish(self):
        Path(os.environ["BITNET_RESULTS"]).write_text(json.dumps(self.outcomes))


def stand_in():
    """Before their conftest.py is imported, that is, when pytest imports this file."""
    for name in ("openai", "wget"):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].OpenAI = OpenAI
            sys.modules[name].download = lambda url, out: make_adapter(out)


if "BITNET_RESULTS" in os.environ:
    stand_in()


def adapted(method):
    """Bodies as their option --verbose has them, and without an end where theirs have none."""
    def call(server, verb, path, data=None, *more, **options):
        if server.debug and path in WRITES:
            data = data | {"verbose": True}
        return method(server, verb, path, endless(path, data), *more, **options)
    return call


def pytest_configure(config):
    import utils
    utils.ServerProcess.start = start
    for name in ("make_request", "make_stream_request"):
        setattr(utils.ServerProcess, name, adapted(getattr(utils.ServerProcess, name)))
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    if not os.environ.get("BITNET_WORDS"):
        utils.match_regex = lambda pattern, text: isinstance(text, str)
    config.pluginmanager.register(Results())


# ------------------------------------------------------------------ the program


def test_names(unit, files):
    have = {p.stem.removeprefix("test_"): p for p in unit.glob("test_*.py")}
    unknown = [name for name in files if name not in have]
    if unknown:
        sys.exit(f"there is no test_{unknown[0]}.py in {unit}")
    return [f"unit/{have[name].name}" for name in files]


def share(n):
    """Of those that neither hang on the model nor on something that is not here."""
    all_of_it = n["passed"] + n["failed"] + n["other"]
    return f"{100 * n['passed'] / all_of_it:6.0f} %" if all_of_it else "       -"


def report(outcomes):
    kinds = ("passed", "failed", "other", "absent", "model", "skipped")
    counts, unexcused = {}, 0
    for name, (outcome, why) in sorted(outcomes.items()):
        file = re.search(r"test_(\w+)\.py", name)[1]
        found = excuse(name) if outcome == "failed" else None
        counts.setdefault(file, dict.fromkeys(kinds, 0))[found[0] if found else outcome] += 1
        if outcome == "failed":
            print(f"{name.split('unit/')[-1]}: {': '.join(found) if found else why}")
        unexcused += outcome == "failed" and not found
    print("\npassed, failed; failed as it is done in another way here, is not here, or hangs on the model; skipped by them")
    print(f"{'file':22}" + "".join(f"{kind:>9}" for kind in kinds) + "   share")
    counts["all"] = {kind: sum(n[kind] for n in counts.values()) for kind in kinds}
    for file, n in counts.items():
        print(f"{file:22}" + "".join(f"{n[kind]:9}" for kind in kinds) + share(n))
    return 1 if unexcused or not outcomes else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("checkout", type=Path)
    p.add_argument("program", type=Path)
    p.add_argument("files", nargs="*")
    p.add_argument("--words", action="store_true", help="also compare texts with those of their model")
    p.add_argument("--select", help="only tests whose names match; as pytest's -k")
    a = p.parse_args()
    tests = a.checkout.resolve() / "tools/server/tests"
    program = a.program.resolve()
    results = Path(os.environ.get("TMPDIR", "/tmp")) / f"llama-server-tests-{os.getpid()}.json"
    help_text = subprocess.run([program, "serve", "--help-all"], capture_output=True, text=True, check=True).stdout
    here = str(Path(__file__).resolve().parent)
    env = os.environ | {"PYTHONPATH": f"{here}:{tests}", "BITNET_PROGRAM": str(program), "PYTHONDONTWRITEBYTECODE": "1",
                        "BITNET_SERVE_HELP": help_text, "BITNET_RESULTS": str(results),
                        "BITNET_WORDS": "1" if a.words else "", "XDG_CACHE_HOME": "/nonexistent"}
    line = [sys.executable, "-m", "pytest", "-q", "-p", "llama_server_tests", "-p", "no:cacheprovider", "-m", "not slow",
            "--tb=short", *test_names(tests / "unit", a.files or FILES)]
    if a.select:
        line += ["-k", a.select]
    with open(str(results) + ".log", "w", encoding="utf-8") as log:
        subprocess.run(line, cwd=tests, env=env, stdout=log, stderr=log, check=False)
    print(f"log: {results}.log")
    if not results.exists():
        sys.exit("pytest did not get to the end")
    status = report(json.loads(results.read_text()))
    results.unlink()
    return status


if __name__ == "__main__":
    sys.exit(main())
