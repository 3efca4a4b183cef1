# SPDX-License-Identifier: Apache-2.0
"""What people type wrong about models by name: each with the sentence that it must give. Nobody is asked here; what a hub
refuses is in tests/e2e/hub."""
LONG = "n" * 97
SHA = "0" * 64

# name: what the sentence has in it
NAMES = {
    "": "there is no model named ''",
    "nosuch": "'bitnet list --known' shows the short names",
    "bitnet2b": "did you mean 'bitnet-2b'?",
    "bonsai8b": "did you mean 'bonsai-8b'?",
    "falcon-e-2b": "did you mean 'falcon-e-1b'?",
    "bonsai 8b x y z": "there is no model named",
    "org/": "does not name a repository",
    "/name": "does not name a repository",
    "hf:": "does not name a repository",
    "hf:org": None,  # a repository without an organisation: there are some
    "hf:-org/name": "does not name a repository",
    "org/.name": "does not name a repository",
    "org/na me": "does not name a repository",
    "org/name-": "does not name a repository",
    "org/na--me": "does not name a repository",
    "org/na..me": "does not name a repository",
    f"org/{LONG}": "does not name a repository",
    f"{LONG}/name": "does not name a repository",
    "org/näme": "does not name a repository",
    "org/name.git": "does not end with .git",
    "org/name@": "is no revision",
    "org/name@..": "is no revision",
    "org/name@a b": "is no revision",
    "org/name@" + "r" * 200: "is no revision",
    "org/name:": "is no type of a file",
    "org/name:a/b": "is no type of a file",
    "org/name:Q 2": "is no type of a file",
    "org/name:TQ2_0@v2": "write ORG/NAME@REV:TYPE",
    "hf:org/name/../x.gguf": "is not the path of a file",
    "hf:org/name/a//x.gguf": "is not the path of a file",
    "hf:org/name/a\\b.gguf": "is not the path of a file",
    "hf.co/org/name/" + "d/" * 300 + "x.gguf": "is not the path of a file",
    "ollama:": "is no name of a registry's model",
    "ollama:a/b/c": "is no name of a registry's model",
    "ollama:x:": "is no name of a registry's model",
    "ollama:x:y z": "is no name of a registry's model",
    "ollama:host.example/": "is no name of a registry's model",
    "https://": "does not end with the name of a file",
    "https://host.example": "does not end with the name of a file",
    "https://host.example/folder/": "does not end with the name of a file",
    "https://host.example/a b.gguf": "no spaces or control characters",
    "https://host.example/\x07.gguf": "no spaces or control characters",
    "https://host.example/x.gguf#sha256=12": "64 hexadecimal digits",
    "https://host.example/x.gguf#md5=12": "64 hexadecimal digits",
    "https://host.example/" + "x" * 1010: "the URL has more than",
    "https://host.example/" + "x" * 1100: "the name has more than",
    "ftp://host.example/x.gguf": "is no address to download from",
    "file:///tmp/x.gguf": "is no address to download from",
}

# options of pull, with the name of a model that nobody has: (options, environment, sentence)
NOWHERE = {"HF_ENDPOINT": "http://127.0.0.1:9"}
PULLS = [
    (["--offline"], {}, "downloads are switched off"),
    ([], {"HF_HUB_OFFLINE": "1"}, "downloads are switched off"),
    ([], {"HF_HUB_OFFLINE": "yes"}, "downloads are switched off"),
    ([], {"HF_ENDPOINT": "nonsense"}, "does not begin with http:// or https://"),
    ([], {"HF_ENDPOINT": "https://host:0"}, "has no host and port that make sense"),
    ([], {"HF_ENDPOINT": "https://host:99999"}, "has no host and port that make sense"),
    ([], {"HF_ENDPOINT": "https://ho$t"}, "has no host and port that make sense"),
    (["--dry-run"], NOWHERE, "cannot connect to 127.0.0.1 port 9"),
    ([], {**NOWHERE, "http_proxy": "socks5://127.0.0.1:1"}, "is no http://HOST:PORT"),
    ([], {**NOWHERE, "http_proxy": "https://127.0.0.1:1"}, "is no http://HOST:PORT"),
    (["--ca-file", "none.pem"], {}, "cannot read the certificates in 'none.pem'"),
    ([], {"SSL_CERT_FILE": "none.pem"}, "cannot read the certificates in 'none.pem'"),
    ([], {"HOME": "", "XDG_CACHE_HOME": "", "HF_HOME": ""}, "set HOME, HF_HOME or HF_HUB_CACHE"),
]

USAGE = [
    (["pull"], "name a model"),
    (["pull", "x", "--connections", "0"], "--connections"),
    (["pull", "x", "--connections", "33"], "--connections"),
    (["pull", "x", "--conections", "3"], "did you mean '--connections'?"),
    (["rm"], "name what is to be removed"),
    (["rm", "--all"], "'--all'"),
    (["show"], "name one model"),
    (["show", "a", "b"], "'b' is one argument too many"),
    (["list", "x"], "'x' is one argument too many"),
]

# commands with a model that is not here
COMMANDS = [
    (["run", "org/name", "hi"], "there is no such file, and the model 'org/name' is not on this machine; 'bitnet pull org/name'"),
    (["run", "-m", "hf:org/name@v1", "hi"], "'bitnet pull hf:org/name@v1' downloads it"),
    (["run", "bitnet-2b", "hi"], "downloads it (1.19 GB, MIT)"),
    (["run", "bitnet-2b", "hi", "--pull", "--offline"], "downloads are switched off"),
    (["run", "-m", "hf:org//name", "hi"], "does not name a repository"),
    (["chat", "llama3"], "there is no file and no model named 'llama3'"),
    (["chat", "bitnet2b"], "did you mean 'bitnet-2b'?"),
    (["serve", "hf:org/name", "--port", "0"], "'bitnet pull hf:org/name' downloads it"),
    (["bench", "bonsai8b"], "did you mean 'bonsai-8b'?"),
    (["inspect", "nosuch"], "there is no file and no model named 'nosuch'"),
    (["inspect", "hf:org/name:Q 2"], "is no type of a file"),
    (["perplexity", "ollama:tiny", "--file", "x"], "'bitnet pull ollama:tiny' downloads it"),
    (["convert", "hf:org/name", "out.gguf"], "'bitnet pull hf:org/name' downloads it"),
    (["tokenize", "hf:org/name", "x"], "'bitnet pull hf:org/name' downloads it"),
    (["show", "nosuch"], "there is no model named 'nosuch'"),
    (["show", "org/name", "--offline"], "nobody may be asked"),
    (["rm", "nosuch"], "there is no model named 'nosuch'"),
    (["rm", "-y", "org/name"], "is not in the cache of this machine"),
    (["rm", "-y", "org/name@v1"], "is not in the cache of this machine"),
    (["rm", "-y", "ollama:tiny"], "'ollama rm tiny:latest' removes it"),
    (["rm", "-y", "https://host.example/x.gguf"], "was not downloaded to this machine"),
]


def alone(t):
    """A user without models, proxies or settings of their own."""
    for name in list(t.env):
        if name.upper().startswith(("HF_", "HUGGING", "OLLAMA", "XDG_CACHE", "XDG_DATA")) or name.lower().endswith("_proxy"):
            del t.env[name]
    t.env["HOME"] = str(t.folder / "home")


def test_wrong_names(t):
    alone(t)
    for name, says in NAMES.items():
        if says:
            t.says(t.run("pull", "--offline", "--", name, code=1), says)
    t.says(t.run("pull", "--offline", "hf:org", code=1), "downloads are switched off")


def test_wrong_pulls(t):
    alone(t)
    for options, env, says in PULLS:
        t.says(t.run("pull", "org/name", *options, env=env, code=1), says)
    t.says(t.run("pull", "http://host.example/x.gguf", code=1), "is not encrypted")
    t.says(t.run("pull", "https://host.example/../x.gguf", code=1), "gives no path")


def test_wrong_usage(t):
    for words, says in USAGE:
        t.usage(*words, says=says)


def test_models_that_are_not_here(t):
    alone(t)
    for words, says in COMMANDS:
        t.says(t.run(*words, code=1), says)


def test_short_names(t):
    known = t.run("list", "--known", "--json").json()
    t.check(len(known) >= 8, "short names")
    for m in known:
        t.check(m["name"] == m["name"].lower() and "/" in m["repository"] and m["what"], f"an entry: {m}")
        t.check(m["name"] in t.run("list", "--known").text, f"{m['name']} is in the table")
    alone(t)
    t.check("No models here" in t.run("list").text, "an empty list")
    t.equal(t.run("list", "--json").json()["models"], [], "an empty list as JSON")
