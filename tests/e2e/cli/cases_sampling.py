# SPDX-License-Identifier: Apache-2.0
"""The sampling options of run and chat."""
import json
import math
import pathlib
import struct

TIME = "Once upon a time"


def run(t, *args, n=24):
    return t.run("run", TIME, "-n", str(n), "--ignore-eos", "--json", *args).json()


def test_sampling_options_change_the_text(t):
    """Every option does something, and the same thing again."""
    plain = ["--temp", "1.3", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", "5"]
    texts = {"": run(t, *plain)["text"]}
    for option in (["--top-k", "3"], ["--top-p", "0.5"], ["--min-p", "0.3"], ["--typical-p", "0.4"],
                   ["--typical", "0.2"], ["--top-n-sigma", "1"], ["--top-k", "9", "--top-p", "0.6", "--adaptive"],
                   ["--repeat-penalty", "1.5"], ["--presence-penalty", "2"], ["--frequency-penalty", "2"],
                   ["--logit-bias", "15-inf"], ["-l", "1000+30"]):
        a, b = run(t, *plain, *option), run(t, *plain, *option, "-t", "1", "--batch-size", "2")
        t.equal(a["tokens"], b["tokens"], f"the same again with {option}")
        texts[" ".join(option)] = a["text"]
    t.equal(texts["--typical 0.2"], run(t, *plain, "--typical-p", "0.2")["text"], "an alias")
    for option, text in texts.items():
        t.check(option == "" or text != texts[""], f"{option} changes nothing")


def test_sampling_penalties_end_repetitions(t):
    greedy = ["--temp", "0"]
    loop = ["run", "cat dog cat dog cat dog", "-n", "120", "--ignore-eos", "--json", *greedy]

    def repeated(*args):
        ids = t.run(*loop, *args).json()["tokens"]
        return len(ids) - 2 - len({tuple(ids[i:i + 3]) for i in range(len(ids) - 2)})

    most = repeated()
    t.check(most > 0, "there is something to mend")
    for option in (["--repeat-penalty", "1.5"], ["--repetition-penalty", "1.5"], ["--frequency-penalty", "1"],
                   ["--presence-penalty", "6"], ["--dry-multiplier", "4"]):
        t.check(repeated(*option) < most, f"{option} leaves {repeated(*option)} of {most} repetitions")
    t.equal(repeated("--repeat-penalty", "1"), most, "1 is off")
    breakers = ["--dry-multiplier", "8", "--dry-allowed-length", "1"]
    none = t.run(*loop, *breakers, "--dry-sequence-breaker", "none").json()["tokens"]
    t.check(none != t.run(*loop, *breakers, "--dry-sequence-breaker", " ", "--dry-sequence-breaker", ".").json()["tokens"],
            "breakers matter")


def test_sampling_bias(t):
    first = run(t, "--temp", "0", n=1)["tokens"][0]
    other = run(t, "--temp", "0", "--logit-bias", f"{first}-inf", n=12)["tokens"]
    t.check(first not in other, "a forbidden token")
    t.equal(run(t, "--temp", "0", "--logit-bias", "7+1e3", n=5)["tokens"], [7] * 5, "a favourite")
    for bad in ("7", "+1", "x+1", "7+", "7+inf", "7+1x", "7--1", "7-nan", "99999999999999999999+1"):
        t.fails("run", TIME, "--logit-bias", bad, says=["--logit-bias", bad])
    t.fails("run", TIME, "--logit-bias", "4096+1", says=["token 4096", "4096"])
    t.fails("run", TIME, "--logit-bias", "7+1e9", says="token 7")


def test_sampling_logprobs(t):
    j = run(t, "--seed", "3", "--temp", "1.5", "--logprobs", "4", "--repeat-penalty", "1.3", n=16)
    t.equal([x["id"] for x in j["logprobs"]], j["tokens"], "a log-probability each")
    for x in j["logprobs"]:
        top = x["top_logprobs"]
        t.equal(len(top), 4, "the likeliest")
        t.equal([p["logprob"] for p in top], sorted((p["logprob"] for p in top), reverse=True), "best first")
        t.check(x["logprob"] <= top[0]["logprob"] <= 0, "none is likelier")
        t.check(sum(math.exp(p["logprob"]) for p in top) <= 1.00001, "a share of one")
        same = [p["logprob"] for p in top if p["id"] == x["id"]]
        t.check(not same or same == [x["logprob"]], "the same number in both places")
    args = ["--seed", "3", "--temp", "1.5", "--logprobs", "0"]
    a, b = run(t, *args, "-t", "1"), run(t, *args, "-t", "2", "--head", "screened", "--batch-size", "1")
    t.equal(a["logprobs"], b["logprobs"], "the same digits with other threads, pieces and head")
    t.equal(a["logprobs"][0]["top_logprobs"], [], "none asked for")
    t.check("logprobs" not in run(t), "only where asked for")
    t.usage("run", TIME, "--logprobs", "2", says="--json")
    t.usage("run", TIME, "--json", "--logprobs", "21", says="20")


def test_sampling_values(t):
    for option, bad in (("--typical-p", "1.5"), ("--top-n-sigma", "-1"), ("--repeat-penalty", "-1"),
                        ("--presence-penalty", "x"), ("--frequency-penalty", "200"), ("--repeat-last-n", "-1"),
                        ("--dry-multiplier", "-1"), ("--dry-base", "0.5"), ("--dry-allowed-length", "0"),
                        ("--dry-penalty-last-n", "1.5")):
        t.usage("run", TIME, option, bad, says=[option, bad])
    t.fails("run", TIME, "--dry-multiplier", "1", "--dry-sequence-breaker", "x" * 41, says=["breaker", "41"])
    t.fails("run", TIME, "--top-p", "0", says="top-p is 0")


def test_sampling_in_chat(t):
    args = ["chat", "-q", "-n", "12", "--seed", "1"]
    a = t.run(*args, "--temp", "0", stdin=b"Tell me a story.\n").text
    b = t.run(*args, "--temp", "0", "--repeat-penalty", "5", stdin=b"Tell me a story.\n").text
    t.check(a != b, "a penalty changes the answer")


def with_recommendations(t, name, **values):
    """The embedded model with general.sampling.* in front of its metadata, a multiple of 32 bytes more."""
    raw = (pathlib.Path(__file__).resolve().parents[3] / "models" / "stories-31m.gguf").read_bytes()
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    more = b"".join(text("general.sampling." + k) + (struct.pack("<Ii", 5, v) if isinstance(v, int)
                                                     else struct.pack("<If", 6, v)) for k, v in values.items())
    filler = text("filler") + struct.pack("<I", 8)
    filler += text(" " * (-(len(more) + len(filler) + 8) % 32))
    n_tensors, n_meta = struct.unpack("<QQ", raw[8:24])
    t.write(name, raw[:8] + struct.pack("<QQ", n_tensors, n_meta + len(values) + 1) + more + filler + raw[24:])
    t.keeps(name)


def test_recommended_by_the_file(t):
    with_recommendations(t, "hot.gguf", temp=1.7, top_k=7, top_p=0.9, min_p=0.0, penalty_repeat=1.3, penalty_last_n=8)
    with_recommendations(t, "greedy.gguf", temp=0.0)
    with_recommendations(t, "odd.gguf", temp=-3.0, top_k=-1)
    model = lambda name, *args: run(t, "-m", name, "--seed", "9", *args)["tokens"]
    plain = lambda *args: run(t, "--seed", "9", *args)["tokens"]
    hot = ["--temp", "1.7", "--top-k", "7", "--top-p", "0.9", "--min-p", "0", "--repeat-penalty", "1.3",
           "--repeat-last-n", "8"]
    t.equal(model("hot.gguf"), plain(*hot), "what the file recommends is used")
    t.equal(model("greedy.gguf"), plain("--temp", "0"), "greedy is recommended")
    t.equal(model("greedy.gguf", "--temp", "1.5"), plain("--temp", "1.5"), "what is typed wins")
    t.equal(model("hot.gguf", "--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05",
                  "--repeat-penalty", "1", "--repeat-last-n", "0"), plain(), "also where it is our default")
    t.equal(model("odd.gguf"), plain("--top-k", "0"), "nonsense is not used")
    shown = t.run("inspect", "hot.gguf", "--no-stats", "--json").json()["sampling"]
    t.equal(shown, {"temperature": 1.7, "top_k": 7, "top_p": 0.9, "min_p": 0, "repetition_penalty": 1.3,
                    "penalty_last_n": 8}, "inspect --json")
    line = "recommended     --temp 1.7 --top-k 7 --top-p 0.9 --min-p 0 --repeat-penalty 1.3 --repeat-last-n 8\n"
    t.check(line in t.run("inspect", "hot.gguf", "--no-stats").text, "inspect")
    t.equal(t.run("inspect", "--no-stats", "--json").json()["sampling"], {}, "nothing is recommended")

    body = {"prompt": TIME, "max_tokens": 24}
    batch = lambda name, **more: json.loads(t.run("batch", *name, "-i", "-", "-o", "-", stdin=(
        json.dumps({**body, **more}) + "\n").encode()).text)["response"]["body"]["choices"]
    t.equal(batch(["-m", "greedy.gguf"]), batch([], temperature=0), "batch takes it, too")
    t.equal(batch(["-m", "greedy.gguf"], temperature=1), batch([]), "a request's own wins")
