# SPDX-License-Identifier: Apache-2.0
"""chat, from a pipe and on a terminal. The embedded model has no template: a plain one is given."""
import json
import pathlib
import sys

PLAIN = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
CHAT = ["chat", "--chat-template", PLAIN, "--temp", "0", "-n", "8"]


def test_pipe(t):
    r = t.run(*CHAT, stdin=b"Once upon a time\n")
    t.check(len(r.text.strip()) > 4 and r.text.endswith("\n"), f"an answer: {r.text!r}")
    t.check(">" not in r.text and "\x1b" not in r.text, "no prompt, no escape sequences")
    t.equal(t.run(*CHAT, stdin=b"Once upon a time").out, r.out, "a last line without its end")
    t.equal(t.run(*CHAT, stdin=b"").out, b"", "nothing asked, nothing said")
    t.equal(t.run(*CHAT, stdin=b"\n  \n").out, b"", "empty lines are no messages")
    t.equal(t.run(*CHAT, stdin=b"Once upon a time\r\n").out, r.out, "a line end of two bytes")


def test_same_as_run(t):
    r = t.run("run", "--chat", "--chat-template", PLAIN, "--temp", "0", "-n", "8",
              "Once upon a time", "-q")
    t.equal(t.run(*CHAT, stdin=b"Once upon a time\n").out, r.out, "run --chat and chat agree")


def test_commands(t):
    r = t.run(*CHAT, stdin=b"/help\n/reset\n/nonsense\n/save\n/quit\nOnce\n")
    t.equal(r.out, b"", "nothing was asked before /quit")
    for word in ("/system", "/save", "no such command", "starts anew", "needs a file name"):
        t.check(word in r.errors, f"{word} in {r.errors!r}")


def test_save(t):
    t.run(*CHAT, "--system", "Be kind.",
          stdin=b"Once upon a time\n/save talk.json\nThere was\n/save talk.json\n")
    t.keeps("talk.json")
    roles = [m["role"] for m in json.loads(t.path("talk.json").read_text())["messages"]]
    t.equal(roles, ["system", "user", "assistant", "user", "assistant"], "roles")
    t.write("other.txt", b"precious")
    r = t.run(*CHAT, stdin=b"/save other.txt\n")
    t.check("exists already" in r.errors, "a file of someone else is not replaced")
    t.equal(t.path("other.txt").read_bytes(), b"precious", "not touched")


def test_system_command(t):
    lines = ["Once", "/system You tell stories.", "Once", "/save a.json", "/system", "Once",
             "/save b.json", ""]
    t.run(*CHAT, stdin="\n".join(lines).encode())
    t.keeps("a.json", "b.json")
    a, b = (json.loads(t.path(n).read_text())["messages"] for n in ("a.json", "b.json"))
    t.equal([m["role"] for m in a], ["system", "user", "assistant"], "with a system message")
    t.equal([m["role"] for m in b], ["user", "assistant"], "without")


def test_long_lines_and_continuation(t):
    joined = t.run(*CHAT, stdin=b"Once upon\\\na time\n/save a.json\n")
    t.keeps("a.json")
    t.equal(json.loads(t.path("a.json").read_text())["messages"][0]["content"], "Once upon\na time",
            "two lines")
    t.check(joined.out, "an answer")


def test_context_overflow(t):
    line = b"The little dog went to the park and played with the ball all day long.\n"
    r = t.run(*CHAT, "-c", "64", stdin=line * 8)
    t.check("forgotten" in r.errors, f"old turns are forgotten: {r.errors!r}")
    t.equal(len([x for x in r.errors.splitlines() if not x.startswith("bitnet: note: ")]), 0,
            "only notes")
    t.fails(*CHAT, "-c", "64", stdin=b"word " * 200 + b"\n", says=["64", "--ctx-size"])


def test_template_errors(t):
    t.fails("chat", "--chat-template", "nosuchname", says=["nosuchname", "built in"])
    t.fails("chat", "--chat-template", "{% for %}", stdin=b"x\n")
    t.write("t.jinja", PLAIN)
    want = t.run(*CHAT, stdin=b"Once\n").out
    t.equal(t.run("chat", "--chat-template", "t.jinja", "--temp", "0", "-n", "8",
                  stdin=b"Once\n").out, want, "a file")


def test_terminal(t):
    c = t.terminal(*CHAT)
    c.until(rb"/help lists.*> ")
    c.send(b"Once upon a time\r")
    c.until(rb"\d+ tokens, [\d.]+ tok/s.*> ")
    c.send(b"half a line")
    c.until(rb"half a line")
    c.interrupt()
    c.until(rb"/quit leaves.*> ")
    c.send("grüß Gott ★\r".encode())
    c.until(rb"\d+ tokens.*> ")
    c.end(0, poke=b"\x04")


def test_terminal_stops_an_answer(t):
    c = t.terminal("chat", "--chat-template", PLAIN, "-n", "0", "--ignore-eos", "-t", "1", "-q")
    c.until(rb"> ")
    c.send(b"Once upon a time\r")
    c.until(rb"time.*?\n.*?\w")
    c.interrupt()
    c.until(rb"stopped.*> ")
    c.send(b"/quit\r")
    c.end(0)


def test_no_color(t):
    c = t.terminal("chat", "--chat-template", "nosuchname", env={"NO_COLOR": "1"})
    t.check(b"\x1b" not in c.end(1), "no escape sequences")
    c = t.terminal("chat", "--chat-template", "nosuchname")
    t.check(b"\x1b[31m" in c.end(1), "red on a terminal")


def chat_model(t):
    """A file with a chat template, and random weights."""
    sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "broken"))
    import files
    t.write("chat.gguf", files.tiny().bytes())
    return "chat.gguf"


def test_run_answers_in_the_template(t):
    model, ask = chat_model(t), ["ab", "--temp", "0", "-n", "6", "-q", "--ignore-eos"]
    told = t.run("run", model, *ask)
    t.equal(told.out, t.run("run", model, "--chat", *ask).out, "as with --chat")
    talk = t.run("chat", model, "--temp", "0", "-n", "6", "-q", "--ignore-eos", stdin=b"ab\n")
    t.equal(told.out, talk.out, "as chat answers")
    raw = t.run("run", model, "--raw", *ask)
    t.check(raw.out.startswith(b"ab") and raw.out != b"ab" + told.out, "--raw continues the text")
    asked = t.run("run", model, "ab", "-n", "1", "--json").json()
    plain = t.run("run", model, "--raw", "ab", "-n", "1", "--json").json()
    t.check(asked["prompt_tokens"] > plain["prompt_tokens"], "the template's own tokens")
