# SPDX-License-Identifier: Apache-2.0
"""Finding commands, options, help: everything that needs no model."""
import os
import pathlib
import re
import subprocess

from tap import Skipped

COMMANDS = ["run", "chat", "serve", "pull", "list", "show", "rm", "batch", "tokenize", "embed", "logits", "perplexity",
            "eval", "inspect", "convert", "prune", "calibrate", "cache", "synth", "bench", "profile", "loadtest", "plan", "doctor",
            "config", "completion", "version"]
COMMON = ["help", "help-all", "config"]


def options(help_text):
    """(name, takes a value, text) of every option in a command's help."""
    found, lines = [], help_text.splitlines()
    for i, line in enumerate(lines):
        m = re.match(r"  (?:-\w, |    )?--([\w-]+)( \S+)?(?:  +(.*))?$", line)
        if m:
            text = m.group(3) or (lines[i + 1].strip() if lines[i + 1].startswith(" " * 30) else "")
            found.append((m.group(1), bool(m.group(2)), text))
    return found


def test_overview(t):
    for args in (["help"], ["--help"], ["-h"], ["help", "help"]):
        r = t.run(*args)
        t.equal(r.err, b"", "standard error of help")
        listed = re.findall(r"^  (\w+) +\w", r.text.split("Commands:")[1].split("Environment:")[0],
                            re.M)
        t.equal(listed, COMMANDS + ["help"], "commands in help")
        t.check("planned:" not in r.text, "nothing is planned")


def test_no_arguments(t):
    r = t.run(code=2, one_error_line=False)
    t.equal(r.out, b"", "standard output")
    t.check(r.errors.startswith("usage: bitnet COMMAND"), "the overview goes to standard error")


def test_help_of_every_command(t):
    for name in COMMANDS:
        r = t.run(name, "--help")
        t.equal(r.err, b"", f"standard error of {name} --help")
        t.check(r.text.startswith(f"usage: bitnet {name} "), f"{name} --help begins with its usage")
        t.equal(t.run(name, "-h").out, r.out, f"{name} -h")
        every = t.run(name, "--help-all")
        t.equal(t.run("help", name).out, every.out, f"help {name}")
        t.check(max(map(len, every.text.splitlines())) <= 100, f"{name} --help-all fits 100 columns")
        first, listed = options(r.text), options(every.text)
        for option, _, text in listed:
            t.check(text, f"{name} --{option} is explained")
        named = [o for o, _, _ in first if o not in COMMON]
        if ("help-all", False, "show all options") in first:
            t.check(len(named) <= 10, f"{name} --help shows ten options at most")
            t.check(set(named) < {o for o, _, _ in listed}, f"{name} --help shows some of --help-all")
        else:
            t.equal(r.out, every.out, f"{name} --help has nothing to leave out")


def test_first_options_exist(t):
    """A name that no option has would vanish from --help without a word."""
    sources = pathlib.Path(__file__).resolve().parents[3] / "src" / "cli"
    seen = 0
    for name in COMMANDS:
        source = next(sources.glob(f"*/cmd_{name}.c")).read_text()
        wanted = re.search(r"\.first = (.*?),\n", source, re.S)
        if wanted:
            wanted = " ".join(re.findall(r'"([^"]*)"', wanted.group(1))).split()
            shown = [o for o, _, _ in options(t.run(name, "--help").text)]
            t.equal(sorted(set(shown) - set(COMMON)), sorted(wanted), f"options that {name} --help shows")
            seen += 1
    t.check(seen > 10, "commands with first options")


def test_every_option_is_taken(t):
    for name in COMMANDS:
        for option, has_value, _ in options(t.run(name, "--help-all").text):
            if has_value:
                t.usage(name, f"--{option}", says=[f"--{option}", "expects a value"])
            elif option not in ("help", "help-all"):
                # --help after it ends the run before anything happens
                t.run(name, f"--{option}", "--help")
                t.usage(name, f"--{option}=maybe", says=[f"--{option}", "expects true or false"])


def test_version(t):
    short = t.run("--version").text
    t.check(re.fullmatch(r"bitnet \d+\.\d+\.\d+\S*\n", short), f"--version prints {short!r}")
    t.check(t.run("version").text.startswith(short), "version begins with the same line")
    j = t.run("version", "--json").json()
    t.equal("bitnet " + j["version"] + "\n", short, "JSON version")
    t.check(any(b["name"] == "scalar" and b["supported"] for b in j["backends"]),
            "scalar kernels are there")
    t.check(j["default_threads"] >= 1, "threads")


def test_mistyped_command(t):
    t.usage("rnu", says="did you mean 'run'?")
    t.usage("perplexty", says="did you mean 'perplexity'?")
    t.usage("help", "inspekt", says="did you mean 'inspect'?")
    t.check("did you mean" not in t.usage("xyzzy-plugh").errors, "no far-fetched suggestion")
    t.usage("--json", says="'--json'")
    t.usage("", says="''")


def test_mistyped_option(t):
    t.usage("run", "--tmep", "0", says=["'--tmep'", "did you mean '--temp'?"])
    t.usage("inspect", "--wieghts", says="did you mean '--weights'?")
    t.usage("run", "-Z", says="'-Z'")
    for option in ("--numa-nodes", "--kv-int3", "--flash-attn"):
        t.usage("run", option, "x", says=option)


def test_values_are_checked(t):
    wrong = {"--temp": ["hot", "-1", "nan", "inf", "1e999", "0x1", ""],
             "--top-k": ["1.5", "-1", " 1"], "--top-p": ["1.01"], "--min-p": ["-0.1"],
             "--seed": ["abc", "99999999999999999999"],
             "-n": ["-1", "1e3"], "-t": ["1025"], "--threads": ["two"], "-c": ["4294967296"],
             "--kv-type": ["q8"], "--activations": ["int4"], "--i2s-layout": ["32"]}
    for option, bad in [(o, b) for o, values in wrong.items() for b in values]:
        t.usage("run", option, bad, "x", says=[option, "expects", f"'{bad}'"])
        if option.startswith("--"):
            t.usage("run", f"{option}={bad}", "x", says=[option, f"'{bad}'"])


def test_forgotten_value(t):
    t.usage("run", "x", "--temp", says="--temp expects a value")
    t.usage("run", "--prompt", "--temp", "0", says=["--prompt", "'--temp' follows"])
    t.usage("run", "-p", "-n", "5", says=["-p", "'-n' follows"])


def test_backend_names(t):
    t.usage("run", "x", "--backend", "avx9", says=["'avx9'", "scalar"])
    t.usage("run", "x", env={"BITNET_BACKEND": "bitblas"}, says="'bitblas'")


def test_too_many_words(t):
    t.usage("inspect", "a", "b", says="'b'")
    t.usage("version", "x", says="'x'")
    t.usage("convert", "a", "b", "c", says="'c'")
    t.usage("convert", "a", says="IN OUT")
    t.usage("synth", "2b-4t", says="SHAPE OUT")


def test_missing_options(t):
    t.usage("logits", says="--ids")
    t.usage("logits", "--ids", "1", says="--out")
    t.usage("perplexity", says="--file")
    t.usage("logits", "--ids", "", "--out", "x", says="no ids")
    t.usage("logits", "--ids", "1,x", "--out", "x", says="'x'")
    t.usage("logits", "--ids", "1,-2", "--out", "x", says="'-2'")
    t.usage("logits", "--ids", "99999999999", "--out", "x", says="99999999999")


def test_contradictions(t):
    t.usage("run", "-p", "a", "b", says="once")
    t.usage("run", "-p", "a", "-f", "b", says="once")
    t.usage("run", "--raw", "--system", "s", "x", says="--system")
    t.usage("run", "--raw", "--chat", "x", says="--chat")
    t.usage("tokenize", "--decode", "--bos", says="--bos")
    t.usage("inspect", "-m", "a", "b", says="once")
    t.usage("inspect", "--require", "ternary", "--no-stats", says="--no-stats")
    t.usage("inspect", "--require", "float", says=["--require", "binary|ternary"])
    t.usage("synth", "--list", "x", says="--list")


def test_synth_shapes(t):
    names = [s["name"] for s in t.run("synth", "--list", "--json").json()]
    t.check("2b-4t" in names and "llama3-8b" in names, f"shapes {names}")
    t.equal([x.split()[0] for x in t.run("synth", "--list").text.splitlines()], names, "both lists")
    t.usage("synth", "2b-4x", "o.gguf", says="did you mean '2b-4t'?")


def test_other_names(t):
    for link, starts in [("infer", "usage: bitnet run "), ("bitnet-cli", "usage: bitnet COMMAND"),
                         ("bitnet-bench", "usage: bitnet bench "),
                         ("bitnet-loadtest", "usage: bitnet loadtest "),
                         ("bitnet-prune", "usage: bitnet prune "), ("main", "usage: bitnet run "),
                         ("bitnet-calibrate", "usage: bitnet calibrate ")]:
        os.symlink(t.program, t.path(link))
        t.keeps(link)
        t.check(t.run("--help", program=str(t.path(link))).text.startswith(starts),
                f"{link} --help")
    t.usage("--max_tokens", "x", "y", program=str(t.path("infer")), says="--max_tokens")


def test_missing_files(t):
    for args in (["run", "no/such.gguf", "x"], ["run", "nosuch.gguf", "x"], ["chat", "nosuch.gguf"],
                 ["tokenize", "nosuch.gguf"], ["logits", "nosuch.gguf", "--ids", "1", "--out", "o"],
                 ["perplexity", "nosuch.gguf", "--file", "f"], ["inspect", "nosuch.gguf"],
                 ["convert", "nosuch.gguf", "o.gguf"]):
        t.fails(*args, says="nosuch.gguf" if "no/such.gguf" not in args else "no/such.gguf")
    # control characters in a name do not reach the terminal
    t.fails("inspect", "bad\x1b[31m\n.gguf", says="[31m")


def test_full_output(t):
    if not os.path.exists("/dev/full"):
        raise Skipped("device", "/dev/full")
    with open("/dev/full", "wb") as full:
        r = subprocess.run([t.program, "help"], stdout=full, stderr=subprocess.PIPE, check=False)
    t.equal(r.returncode, 1, "exit code on a full disk")
    t.check(r.stderr.startswith(b"bitnet: cannot write to standard output"),
            f"message {r.stderr!r}")
