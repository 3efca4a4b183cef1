# SPDX-License-Identifier: Apache-2.0
"""Settings: the file, the environment, what counts more, and what `bitnet config` says of them."""
import json
import re

FILE = """# what I always want
threads = 1
[all]
temp = 0.5
model = "embedded"

[run]
temp = 0.25            # counts more than [all]
stop = ["zebra", "giraffe"]
no_echo = true

[serve]
port = 9000
max-queue = 7
"""


def shown(t, command, *args, env=None):
    j = t.run("config", "show", command, *args, "--json", env=env).json()
    return {o["name"]: o for o in j["options"]}


def here(t, text=FILE, name="c.toml"):
    t.write(name, text)
    return {"BITNET_CONFIG": name}


def test_config_origins(t):
    env = {**here(t), "BITNET_TOP_K": "3", "BITNET_RUN_TOP_P": "0.5", "BITNET_SEED": "7", "BITNET_RUN_SEED": "8"}
    run, chat = shown(t, "run", env=env), shown(t, "chat", env=env)
    got = {n: (o["value"], o["origin"], o.get("section"), o.get("line"), o.get("variable")) for n, o in run.items()}
    t.equal(got["temp"], (0.25, "file", "run", 8, None), "its own section")
    t.equal(got["threads"], (1, "file", "all", 2, None), "outside of sections")
    t.equal(got["no-echo"][:2], (True, "file"), "a flag, by another spelling")
    t.equal(got["stop"][0], ["zebra", "giraffe"], "a list")
    t.equal(got["top-k"], (3, "environment", None, None, "BITNET_TOP_K"), "environment")
    t.equal(got["top-p"][0:2] + got["top-p"][4:], (0.5, "environment", "BITNET_RUN_TOP_P"), "for one command")
    t.equal(got["seed"][0], 8, "one command's variable counts more")
    t.equal(got["min-p"][1], "default", "default")
    t.equal((chat["temp"]["value"], chat["temp"]["section"], chat["seed"]["value"]), (0.5, "all", 7), "another command")
    table = t.run("config", "show", "run", env=env).text
    t.check(re.search(r"^temp +0\.25 +c\.toml:8 \[run\]$", table, re.M), table)
    t.check(re.search(r"^top-k +3 +BITNET_TOP_K$", table, re.M), table)
    t.check(re.search(r"^seed +8 +BITNET_RUN_SEED$", table, re.M), table)
    t.check(re.search(r"^min-p +the model's, else 0.05 +default$", table, re.M), table)


def test_config_overview(t):
    env = here(t)
    j = t.run("config", "--json", env=env).json()
    t.equal((j["path"], j["read"]), ("c.toml", True), "the file")
    rows = {(o["name"], o["value"]): o["commands"] for o in j["options"] if not isinstance(o["value"], list)}
    t.equal(rows["port", 9000], ["serve"], "one command")
    t.equal(rows["temp", 0.25], ["run"], "run's")
    t.equal(rows["temp", 0.5], ["chat", "serve"], "the others'")
    t.check("batch" in rows["threads", 1] and "loadtest" not in rows["model", "embedded"], "a server's model is not one of ours")
    t.check("-> serve" in t.run("config", env=env).text, "in the table")
    t.check("nothing is set" in t.run("config").text, "nothing")


def test_config_precedence(t):
    """Line over environment over section over [all] over default, by what is computed."""
    env = here(t, "[all]\nseed = 1\n[run]\nseed = 2\n")
    seed = lambda *args, **more: t.run("run", "-p", "Once", "-n", "1", "--json", *args, **more).json()["seed"]
    t.equal(seed(env=here(t, "[all]\nseed = 1\n", "all.toml")), 1, "[all]")
    t.equal(seed(env=env), 2, "[run]")
    t.equal(seed(env={**env, "BITNET_SEED": "3"}), 3, "environment")
    t.equal(seed("--seed", "4", env={**env, "BITNET_SEED": "3"}), 4, "line")
    t.equal(seed("--config", "all.toml", env=env), 1, "--config over BITNET_CONFIG")
    t.equal(seed("--seed", "9", "--config=off", env=env), 9, "no file")
    t.check(seed("--config=off", env=env) != 2, "nothing is read")


def test_config_user_file(t):
    folder = t.path("config") / "bitnet"
    folder.mkdir(parents=True)
    t.keeps("config", "config/bitnet", "config/bitnet/config.toml")
    (folder / "config.toml").write_text("[run]\nseed = 11\n")
    t.equal(t.run("run", "-p", "Once", "-n", "1", "--json").json()["seed"], 11, "the user's file")
    t.equal(t.run("config", "path").text, f"{folder}/config.toml\n", "its path")
    t.equal(t.run("config", "path", "--json", "--config", "x.toml").json(), {"path": "x.toml", "exists": False}, "another")
    home = {"XDG_CONFIG_HOME": "", "HOME": str(t.path("home"))}
    t.equal(t.run("config", "path", env=home).text, f"{t.path('home')}/.config/bitnet/config.toml\n", "below the home folder")
    t.fails("config", "path", "--config", "off", says="no settings file")


def test_config_flags_back(t):
    env = here(t, "[run]\njson = true\nquiet = true\n")
    t.check(t.run("run", "-p", "Once", "-n", "1", env=env).json(), "on by the file")
    t.equal(t.run("run", "-p", "Once", "-n", "1", "--json=false", env=env).err, b"", "off by the line, quiet still on")
    t.usage("run", "--json=maybe", "x", says=["--json expects true or false", "'maybe'"])


def test_config_model(t):
    """A model in the settings stands back behind one that is typed, as a word too."""
    env = here(t, 'model = "no-such.gguf"\n')
    t.fails("run", "Once upon", "-n", "1", env=env, says="no-such.gguf")
    t.run("run", "embedded", "Once upon", "-n", "1", env=env)
    t.run("run", "-m", "embedded", "Once upon", "-n", "1", env=env)
    t.run("tokenize", "embedded", "Once upon", env=env)
    t.run("chat", "embedded", "-q", "-n", "1", env=env, stdin=b"hi\n")
    t.run("inspect", "embedded", env=env)
    # nor does it stand against --synthetic
    t.usage("bench", "--synthetic", "2b-4x", env=env, says="shape '2b-4x'")
    t.usage("inspect", "-m", "a", "b", says="once")


def test_config_chat_default(t):
    """/set NAME default is what it was at the start, settings included."""
    env = {**here(t, "[chat]\ntemp = 0.125\n"), "TERM": "dumb"}
    r = t.run("chat", "-n", "1", stdin=b"/set temp 0.5\n/set temp default\n/show settings\n", env=env)
    t.check(re.search(r"^ +temp +0\.125", r.errors, re.M), r.errors)


def test_config_json_file(t):
    env = here(t, json.dumps({"threads": 1, "run": {"temp": 0.75}, "chat": {"stop": ["a", "b"]}}), "c.json")
    run = shown(t, "run", env=env)
    t.equal([run["threads"]["value"], run["temp"]["value"], run["temp"]["section"]], [1, 0.75, "run"], "sections in JSON")
    t.equal(shown(t, "chat", env=env)["stop"]["value"], ["a", "b"], "lists")


MISTAKES = [  # the file, and what is said of it
    ("[run]\ntmep = 1\n", ["m.toml:2", "'bitnet run' has no option 'tmep'", "did you mean 'temp'?"]),
    ("thraeds = 1\n", ["m.toml:1", "no command has an option 'thraeds'", "did you mean 'threads'?"]),
    ("\n[rnu]\ntemp = 1\n", ["m.toml:2", "no command 'rnu'", "did you mean [run]?"]),
    ("[run]\ntemp = 'hot'\n", ["m.toml:2", "'temp' expects a number from 0 to 100, not 'hot'"]),
    ("[run]\ntemp = 1000\n", ["m.toml:2", "0 to 100"]),
    ("[run]\nkv-type = 'q9'\n", ["m.toml:2", "'kv-type' expects one of"]),
    ("[run]\njson = 3\n", ["m.toml:2", "'json' expects true or false"]),
    ("[run]\ntemp = 2001-01-01\n", ["m.toml:2", "'temp' is neither a text nor a number"]),
    ("[run]\n[run.deep]\nx = 1\n", ["m.toml:2", "'deep' is neither"]),
    ("[all]\nconfig = 'x'\n", ["m.toml:2", "command line only"]),
    ("[run]\ntemp = 1\ntemp = 2\n", ["m.toml:3", "'temp' stands in line 2 already"]),
    ("[run]\ntemp = hot\n", ["m.toml:2", "'hot' is no value", "quotes"]),
    ("[run\n", ["m.toml:1", "']'"]),
    ('{"run": {"tmep": 1}}', ["m.toml", "did you mean 'temp'?"]),
    ('{"run": ', ["m.toml"]),
]


def test_config_mistakes(t):
    for text, says in MISTAKES:
        t.write("m.toml", text)
        t.usage("run", "x", "--config", "m.toml", says=says)
        r = t.run("config", "check", "m.toml", code=1, one_error_line=False)
        for part in says:
            t.check(part in r.text, f"config check: {part!r} is not in {r.text!r}")
        t.check(t.run("config", "check", "m.toml", "--json", code=1, one_error_line=False).json()["mistakes"], "as JSON")
        t.run("run", "--help", "--config", "m.toml")
        t.run("version", "--config", "m.toml")
    t.usage("run", "x", "--config", "none.toml", says="none.toml")
    t.usage("config", "shwo", says="'shwo' is none of show, path and check")
    t.usage("config", "show", "rnu", says="'rnu'")


def test_config_check_all(t):
    t.write("m.toml", "[run]\ntmep = 1\n[serve]\nport = 70000\nhost = 'x'\n[chat]\nsede = 1\n")
    r = t.run("config", "check", "m.toml", code=1, one_error_line=False, env={"BITNET_PROT": "1", "BITNET_THREADS": "many"})
    lines = r.text.splitlines()
    t.equal(len(lines), 5, f"every mistake: {lines}")
    for part in ("m.toml:2", "m.toml:4", "m.toml:7", "BITNET_PROT, which is not an option; did you mean BITNET_PORT?", "BITNET_THREADS expects"):
        t.check(part in r.text, part)
    t.check("no mistakes" in t.run("config", "check", env=here(t)).text, "a good file")


def test_config_environment(t):
    t.usage("run", "x", env={"BITNET_TEMP": "hot"}, says="BITNET_TEMP expects a number")
    t.usage("run", "x", env={"BITNET_RUN_TEMP": "hot"}, says="BITNET_RUN_TEMP expects")
    t.check(b"BITNET_THRAEDS" in t.run("tokenize", "x", env={"BITNET_THRAEDS": "1"}).err, "a note")
    t.equal(t.run("tokenize", "x", env={"BITNET_ZZZZZZZZZ": "1", "BITNET_TEMP": ""}).err, b"", "nothing like an option; empty")
    # another command's meaning of the same name is not taken
    t.equal(shown(t, "loadtest", env={"BITNET_MODEL": "x.gguf", "BITNET_HOST": "::1"})["model"]["value"], None, "its own")
    t.equal(shown(t, "loadtest", env={"BITNET_LOADTEST_MODEL": "m"})["model"]["value"], "m", "by its own variable")
    t.equal(shown(t, "loadtest", env={"OPENAI_API_KEY": "k"})["api-key"]["variable"], "OPENAI_API_KEY", "a foreign name")


def test_config_secrets(t):
    env = {**here(t, "[serve]\napi-key = ['hidden1']\n"), "BITNET_LOADTEST_API_KEY": "hidden2"}
    for args in (["config"], ["config", "--json"], ["config", "show", "serve"], ["config", "show", "loadtest", "--json"]):
        r = t.run(*args, env=env)
        t.check("hidden" not in r.text + r.errors and ("secret" in r.text), f"{args}: {r.text}")


def test_config_one_meaning(t):
    """What one name takes is the same in all commands, except where an option is marked as the command's own."""
    commands = re.findall(r"^  (\w+) +\w", t.run("help").text.split("Commands:")[1].split("Environment:")[0], re.M)
    seen = {}
    for name in commands:
        if name != "help":
            for o in t.run("config", "show", name, "--json").json()["options"]:
                if not o.get("own"):
                    form = set(o.get("form", "").split("|"))
                    one = seen.setdefault(o["name"], (name, form))
                    t.equal(form, one[1], f"--{o['name']} of {name} and of {one[0]}")
    t.check(len(seen) > 150, f"{len(seen)} names")
