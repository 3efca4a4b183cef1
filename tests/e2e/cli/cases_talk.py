# SPDX-License-Identifier: Apache-2.0
"""chat as a person sees it: transcripts in tmux. The embedded model, greedy; where an answer of a certain form is
needed, a grammar makes the model give it."""
import json
import re

from pane import Pane

BASE = ["chat", "--temp", "0", "-s", "1"]
ASK = "Tell me a story about a dog."
THINK = 'root ::= "<think>\\nOne two three four.\\n</think>\\n\\nThe answer."'
READY = r"^>\s*\Z"


def chat(t, *more, width=80, height=24, env=None, n="40"):
    """A chat in a pane of its own, at its first prompt."""
    env = {**t.env, "TERM": "screen", "HOME": str(t.folder), **(env or {})}
    pane = Pane([t.program, *BASE, "-n", n, *more], str(t.folder), env, width, height)
    try:
        pane.until(READY)
    except BaseException:
        pane.close()
        raise
    return pane


def answered(pane, n=1):
    """Waits for the n-th answer and the prompt behind it."""
    return pane.until(r"(?:\d+ tokens, .*?){%d}^>\s*\Z" % n)


def talk_of(t, pane, name="talk.json"):
    """The conversation, as /save writes it."""
    t.keeps(name)
    pane.type(f"/save {name}")
    pane.until(r"messages? saved to " + name)
    return json.loads(t.path(name).read_text())["messages"]


def test_wraps_words(t):
    piped = t.run(*BASE, "-n", "40", stdin=ASK.encode() + b"\n").text.split()
    for width in (38, 80, 200):
        with chat(t, width=width, height=40) as pane:
            pane.type(ASK)
            seen = answered(pane)
            body = seen[seen.index("dog.") + 4:seen.index("the answer was cut")].strip("\n")
            t.equal(body.split(), piped, f"every word whole at {width} columns")
            t.check(max(map(len, body.split("\n"))) <= width, f"lines of {width}")
            long = [x for x in body.split("\n")[:-1] if not x.endswith((".", "!", "?", '"'))]
            t.check(all(len(x) > width // 2 for x in long), f"lines are filled: {long}")


def test_wide_characters(t):
    text = "今日は天気がいいから散歩しましょう。" * 3
    with chat(t, "--grammar", f'root ::= "{text} end"', width=38, n="400") as pane:
        pane.type("日本語で何か言ってください。それから、もう一度言ってください。")
        seen = answered(pane)
        t.check(text in seen.replace("\n", ""), f"every character in order: {seen}")
        pane.type("漢字かな", enter=False)
        pane.keys("Left", "Left", "BSpace")
        pane.until("漢かな")
        pane.type("仮")
        answered(pane, 2)
        t.equal([m["content"] for m in talk_of(t, pane) if m["role"] == "user"][1], "漢仮かな",
                "edited in the middle")


def test_lists_and_code(t):
    item = "- the first item is so long that it needs two lines"
    code = "```\\nint   main(void) { return 0; }\\n```"
    with chat(t, "--grammar", f'root ::= "{item}\\n{code}\\nafter"', width=38, n="200") as pane:
        pane.type("go")
        seen = answered(pane)
        t.check("\n  " in seen and "int   main(void) { return 0; }" in seen, seen)
        t.check(re.search(r"^- the first.*\n  \w", seen, re.M), f"items are indented: {seen}")


def test_paste_is_one_message(t):
    with chat(t) as pane:
        pane.paste("first line\nsecond line\n\tthird line\n")
        pane.until("third line")
        pane.keys("Enter")
        seen = answered(pane)
        t.check(seen.count("tok/s") == 1 and "\n. second line" in seen, seen)
        t.equal(talk_of(t, pane)[0]["content"], "first line\nsecond line\n\tthird line", "one message")


def test_blocks(t):
    with chat(t) as pane:
        pane.type('"""one')
        pane.until(r"^\. *\Z")
        pane.type("two")
        pane.type('three"""')
        answered(pane)
        pane.type("a\\")
        pane.until(r"^\. *\Z")
        pane.type("b")
        answered(pane, 2)
        pane.type("c", enter=False)
        pane.keys("M-Enter")
        pane.type("d")
        answered(pane, 3)
        t.equal([m["content"] for m in talk_of(t, pane) if m["role"] == "user"],
                ["one\ntwo\nthree", "a\nb", "c\nd"], "messages")


def test_keys(t):
    with chat(t) as pane:
        pane.type("world", enter=False)
        pane.keys("C-a")
        pane.type("hello there ", enter=False)
        pane.keys("C-e", "M-b", "C-w")
        pane.until(r"> hello world")
        pane.keys("C-u")
        pane.until(r"> world\Z")
        pane.keys("C-y", "C-k")
        pane.until(r"> hello *\Z")
        pane.keys("C-a", "C-k")
        pane.until(READY)
        pane.keys("C-y", "Home", "Right", "Delete", "End", "C-h", "C-h")
        pane.until(r"> hll\Z")
        pane.keys("C-c")
        pane.until(r"/quit leaves.*^>\s*\Z")
        pane.type("\U0001F469‍\U0001F469‍\U0001F467x", enter=False)
        pane.keys("BSpace", "BSpace")
        pane.until(r"^>\s*\Z")


def test_history(t):
    t.keeps("state", "state/bitnet", "state/bitnet/history")
    state = {"XDG_STATE_HOME": str(t.path("state"))}
    with chat(t, env=state) as pane:
        pane.type("the first question")
        answered(pane)
        pane.paste("two\nlines")
        pane.keys("Enter")
        answered(pane, 2)
        pane.type("/quit")
        pane.ended()
    t.equal(t.path("state/bitnet/history").stat().st_mode & 0o777, 0o600, "only for its owner")
    with chat(t, env=state) as pane:
        pane.keys("Up", "Up")
        pane.until(r"> two\n\. lines")
        pane.keys("C-c")
        pane.until(r"leaves.*^>\s*\Z")
        pane.keys("C-r")
        pane.type("first q", enter=False)
        pane.until(r"\(search 'first q'\) the first question")
        pane.keys("Enter")
        answered(pane)
        t.equal(talk_of(t, pane)[0]["content"], "the first question", "found again")
    before = t.path("state/bitnet/history").read_text()
    with chat(t, "--no-history", env=state) as pane:
        pane.type("secret")
        answered(pane)
    t.equal(t.path("state/bitnet/history").read_text(), before, "nothing kept with --no-history")


def test_tab(t):
    t.write("chapter.json", json.dumps({"messages": [{"role": "user", "content": "Hi"}]}))
    t.write("chat.txt", "")
    with chat(t) as pane:
        pane.type("/re", enter=False)
        pane.keys("Tab")
        pane.until(r"/regen +/reset\n> /re\Z")
        pane.type("g", enter=False)
        pane.keys("Tab")
        pane.until(r"> /regen *\Z")
        pane.keys("C-u")
        pane.type("/load cha", enter=False)
        pane.keys("Tab", "p", "Tab", "Enter")
        pane.until(r"chapter.json +chat.txt|1 message from chapter.json")
        pane.until(r"1 message from chapter.json; /regen answers the last one")
        pane.type("/set min-", enter=False)
        pane.keys("Tab")
        pane.until(r"> /set min-p *\Z")


def test_regen_undo_edit(t):
    with chat(t, n="12") as pane:
        pane.type(ASK)
        first = answered(pane)
        pane.type("/regen")
        answered(pane, 2)
        t.equal([m["role"] for m in talk_of(t, pane, "a.json")], ["user", "assistant"], "one exchange")
        pane.type("And then?")
        answered(pane, 3)
        pane.type("/undo")
        pane.until("taken back; 1 exchange is left")
        pane.type("/edit")
        pane.until(r"> Tell me a story about a dog\.\Z")
        pane.keys("BSpace", "BSpace", "BSpace", "BSpace")
        pane.type("cat.")
        answered(pane, 4)
        t.equal(talk_of(t, pane, "b.json")[0]["content"], "Tell me a story about a cat.", "edited")
        pane.type("/undo")
        pane.until("0 exchanges are left")
        pane.type("/undo")
        pane.until("there is no message yet")
        t.check("Once" in first, first)


def test_set_show_model_stats(t):
    with chat(t, height=60) as pane:
        pane.type("/set max-new-tokens 5")
        pane.until("max-new-tokens is 5")
        pane.type(ASK)
        t.check("5 tokens, " in answered(pane), "five tokens")
        pane.type("/set tmp 1")
        pane.until("/set knows no 'tmp'; did you mean 'temp'")
        pane.type("/set temp hot")
        pane.until("temp expects a number from 0 to 100, not 'hot'")
        pane.type("/set max-new-tokens default")
        pane.until("max-new-tokens is default")
        pane.type("/show settings")
        pane.until(r"max-new-tokens +40")  # as at the start, not the built-in 256
        pane.type("/show")
        pane.until(r"^user\nTell me a story about a dog\.\n")
        pane.type("/model nowhere.gguf")
        pane.until("nowhere.gguf")
        pane.type("/model embedded")
        pane.until("stories-31m, context 512 tokens; the conversation goes on")
        pane.type("/stats")
        pane.until(r"answers +1, 5 tokens.*context .*memory")
        pane.type("/hlep")
        pane.until(r"no such command as /hlep; did you mean /help\?")


def test_help_wraps(t):
    for width, says in ((38, r"^/undo\n    take the last exchange back\n"), (80, r"^/undo +take the last exchange back\n")):
        with chat(t, width=width) as pane:
            pane.type("/help")
            pane.until(says)
            pane.until(r"searches what( was\n|\nwas )typed before\." if width == 80 else r"^searches what was typed before\.")


def test_nothing_overwritten(t):
    t.write("precious.txt", "precious")
    with chat(t) as pane:
        pane.type(ASK)
        answered(pane)
        pane.type("/save precious.txt")
        pane.until(r"precious.txt exists. Replace it\? \[y/N\] *\Z")
        pane.keys("Enter")
        pane.until("not saved")
        t.equal(t.path("precious.txt").read_text(), "precious", "untouched")
        pane.type("/save precious.txt")
        pane.until(r"Replace it.*Replace it\? \[y/N\] *\Z")
        pane.type("y")
        pane.until("2 messages saved to precious.txt, in place of what was there")
        pane.type("/load nowhere.json")
        pane.until("nowhere.json")
        pane.type("/load precious.txt")
        pane.until("2 messages from precious.txt")


def test_context_is_kept_in_the_file(t):
    with chat(t, "-c", "96", n="16", height=40) as pane:
        for i in range(5):
            pane.type(f"Tell me about the number {i} and a dog and a cat.")
            answered(pane, i + 1)
        pane.until("forgotten")
        t.equal(len(talk_of(t, pane)), 10, "all that was said is saved")


def test_interrupt_leaves_no_trace(t):
    with chat(t, "--ignore-eos", "-t", "1", n="0") as pane:
        pane.type(ASK)
        pane.until(r"dog\.\n.*\w+.*\w+")
        pane.keys("C-c")
        seen = pane.until(r"stopped; /regen answers anew\n.*^>\s*\Z")
        t.check("^C" not in seen, seen)
        pane.keys("C-d")
        pane.ended()


def test_thinking(t):
    with chat(t, "--grammar", THINK) as pane:
        pane.type("go")
        seen = answered(pane)
        t.check("One two three four." in seen and "think>" not in seen, seen)
        t.check("\x1b[2mOne" in pane.screen(styles=True) or
                re.search(r"\x1b\[2m[^\x1b]*(One|O)", pane.screen(styles=True)), "dim")
        pane.type("/set thinking fold")
        pane.until("thinking is fold")
        pane.type("go on")
        seen = answered(pane, 2)
        t.check("[4 words of thinking; /show thinking shows them]" in seen, seen)
        t.equal(seen.count("One two"), 1, "folded")
        pane.type("/show thinking")
        pane.until(r"One two.*One two three four\.")


def test_plain_terminals(t):
    for env, wanted in (({"TERM": "dumb"}, rb"\x1b"), ({"NO_COLOR": "1"}, rb"\x1b\[[\d;]*m")):
        c = t.terminal(*BASE, "-n", "8", env=env)
        head = c.until(rb"> ")
        c.send(b"Once upon a time\n" if "TERM" in env else b"Once upon a time\r")
        head += c.until(rb"\d+ tokens, [\d.]+ tok/s.*> ")
        head += c.end(0, poke=b"\x04")
        t.check(not re.search(wanted, head), f"{env}: {head!r}")
