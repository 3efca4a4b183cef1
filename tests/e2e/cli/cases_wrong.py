# SPDX-License-Identifier: Apache-2.0
"""What people get wrong, each with the sentence that it must give: exit code, words of the sentence, and one line only
(Tool.run). `{model}` is a file that is no model; nothing here downloads or computes much."""

USAGE, FAILED = 2, 1
WRONG = [
    # commands
    ("rnu x", USAGE, "unknown command 'rnu'; did you mean 'run'?"),
    ("pulll x", USAGE, "did you mean 'pull'?"),
    ("--temp 1", USAGE, "'--temp' stands where a command should"),
    ("help nosuchthing", USAGE, "unknown command 'nosuchthing'"),
    ("help confg", USAGE, "did you mean 'config'?"),
    # options
    ("run --tmep 0 x", USAGE, "unknown option '--tmep'; did you mean '--temp'? Try 'bitnet run --help'"),
    ("run -Z x", USAGE, "unknown option '-Z'"),
    ("run x --temp", USAGE, "--temp expects a value: --temp T"),
    ("run --prompt --temp 0", USAGE, "--prompt expects a value (TEXT), but the option '--temp' follows"),
    ("run --temp hot x", USAGE, "--temp expects a number from 0 to 100, not 'hot'"),
    ("run --top-k 1.5 x", USAGE, "--top-k expects a whole number"),
    ("run --seed -1 x", USAGE, "--seed expects a whole number from 0"),
    ("run --threads 5000 x", USAGE, "--threads expects a whole number from 0 to 1024, not '5000'"),
    ("run --kv-type q9 x", USAGE, "--kv-type expects one of auto|f16"),
    ("run --json=maybe x", USAGE, "--json expects true or false, not 'maybe'"),
    ("serve --state-cache lots", USAGE, "--state-cache expects bytes, as 512M or 4G, auto or off, not 'lots'"),
    ("bench --batch-sizes 1,x", USAGE, "--batch-sizes expects whole numbers from 1 to"),
    ("tokenize --ids 1", USAGE, "unknown option '--ids'; try"),
    ("run --backend avx9 x", USAGE, "there is no backend 'avx9'; known: auto, scalar"),
    ("run --cpus 0-x x", USAGE, "--cpus expects a list such as 0,2-3, not '0-x'"),
    ("run --cpus 9999 x", None, "9999"),
    # contradictions
    ("run -p a b", USAGE, "give the prompt once"),
    ("run --raw --system s x", USAGE, "--raw cannot go with --system"),
    ("run --logprobs 2 x", USAGE, "--logprobs needs --json"),
    ("tokenize --decode --bos 1", USAGE, "--bos has no meaning with --decode"),
    ("inspect -m a b", USAGE, "give the model once, as a word or with --model"),
    ("bench a.gguf --synthetic 2b-4t", USAGE, "give a model or --synthetic, not both"),
    ("serve --tls-cert x", USAGE, "--tls-cert and --tls-key belong together"),
    ("serve --metrics-compat x", USAGE, "--metrics-compat knows vllm and llamacpp, not 'x'"),
    ("profile --layers 2", USAGE, "need --synthetic"),
    # words
    ("inspect a b", USAGE, "'b' is one argument too many"),
    ("convert a", USAGE, "IN OUT"),
    ("convert a b c", USAGE, "'c' is one argument too many"),
    ("synth 2b-4x o.gguf", USAGE, "there is no shape '2b-4x'; did you mean '2b-4t'?"),
    ("embed", USAGE, "there is no text: give words or --input FILE"),
    ("logits --ids 1", USAGE, "--out"),
    ("logits --ids 1,x --out o", USAGE, "'x'"),
    ("perplexity", USAGE, "--file"),
    ("completion tcsh", USAGE, "tcsh"),
    ("cache forget", USAGE, "forget"),
    ("config shwo", USAGE, "'shwo' is none of show, path and check"),
    ("config show rnu", USAGE, "there is no command 'rnu' to show"),
    ("eval diff a", USAGE, "'eval diff' takes two reports"),
    # files
    ("run nosuch.gguf x", FAILED, "nosuch.gguf"),
    ("chat nosuch.gguf", FAILED, "nosuch.gguf"),
    ("inspect {model}", FAILED, "junk.gguf"),
    ("run {model} x", FAILED, "junk.gguf"),
    ("run empty.gguf x", FAILED, "empty.gguf"),
    ("run -f none.txt", FAILED, "cannot open 'none.txt': No such file or directory"),
    ("run --json-schema none.json x", FAILED, "cannot open 'none.json': No such file or directory"),
    ("run --json-schema {{ x", FAILED, "schema: bad JSON"),
    ("run --grammar nosuchrule x", FAILED, "nosuchrule"),
    ("run --config none.toml x", USAGE, "none.toml"),
    ("run --lora none x", FAILED, "none"),
    ("run --plan none.json x", FAILED, "none.json"),
    ("perplexity --file none.txt", FAILED, "none.txt"),
    ("convert embedded /nonexistent/out.gguf", FAILED, "cannot create '/nonexistent/out.gguf': No such file or directory"),
    ("convert embedded {model}", FAILED, "junk.gguf"),
    ("batch -i none.jsonl -o out.jsonl", FAILED, "none.jsonl"),
    ("batch -o out.jsonl", USAGE, "--input"),
    ("bench diff none.json none2.json", USAGE, "none.json"),
    ("tokenize --decode 99999999", FAILED, "99999999"),
    ("tokenize --decode x", FAILED, "'x'"),
    # servers
    ("serve --port 70000", USAGE, "--port expects a whole number from 0 to 65535"),
    ("serve --api-key-file none --port 0 --no-warm-up", FAILED, "none"),
    ("loadtest --host ftp://x", None, "ftp://x"),
    ("loadtest --host http://127.0.0.1:9 -n 1", FAILED, "127.0.0.1"),
]


def test_wrong(t):
    t.write("junk.gguf", b"this is no model" * 10)
    t.write("empty.gguf", b"")
    t.check(len(WRONG) >= 60, "sixty at least")
    bad = []
    for line, code, says in WRONG:
        args = ["{" if w == "{{" else w.format(model="junk.gguf") for w in line.split(" ")]
        for want in (code,) if code else (USAGE, FAILED):
            try:
                r = t.run(*args, code=want, one_error_line=not line.startswith(("serve", "loadtest")))
            except Exception as e:  # all of them at once
                bad.append(f"{line}: {e}")
                continue
            if bad and bad[-1].startswith(line + ": "):
                bad.pop()
            if says not in r.errors:
                bad.append(f"{line}: {says!r} is not in {r.errors!r}")
            break
    t.check(not bad, "\n".join(bad))
