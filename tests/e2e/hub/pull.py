#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`bitnet pull`, `list`, `show`, `rm` and names of models in other commands, against a hub on this machine that cuts
connections, lets links expire, asks for tokens and forgets to answer.

usage: pull.py BITNET MODEL [--large] [--only TEXT]     output is TAP
--large: the interrupted download is one of 2 GB, otherwise of 64 MB
"""
import hashlib
import json
import os
import pathlib
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE), str(HERE.parents[1] / "lib")]
from hub_server import Hub, Sparse
from serving import Server, until
from tap import Tap

PROGRAM, MODEL = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).read_bytes()
LARGE = "--large" in sys.argv
BLOCK = 8 << 20
CUTS, KILLS = 20, 10
LIMIT_S = 120
NAME = "org/tiny-gguf"


class Home:
    """A user without models, beside a hub."""

    def __init__(self, hub):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bitnet-hub-"))
        self.hub = hub
        clean = {k: v for k, v in os.environ.items()
                 if not re.match(r"(HF_|HUGGING|XDG_|BITNET_|OLLAMA|.*_proxy$|SSL_)", k, re.I)}
        self.env = {**clean, "HOME": str(self.folder), "HF_ENDPOINT": hub.url, "LC_ALL": "C.UTF-8", "BITNET_TUNING": "off"}
        self.cache = self.folder / ".cache/huggingface/hub"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        shutil.rmtree(self.folder)

    def run(self, *words, code=0, env=None, says=None, stdin=subprocess.DEVNULL):
        r = subprocess.run([PROGRAM, *map(str, words)], env={**self.env, **(env or {})}, cwd=self.folder, stdin=stdin, timeout=LIMIT_S,
                           text=True, capture_output=True)
        assert r.returncode == code, f"{words}: exit code {r.returncode}, not {code}: {r.stdout}{r.stderr}"
        for text in [says] if isinstance(says, str) else says or []:
            assert text in r.stderr + r.stdout, f"{words}: {text!r} is not in {r.stderr!r}"
        return r

    def start(self, *words):
        return subprocess.Popen([PROGRAM, *map(str, words)], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def repo(self, name):
        return self.cache / ("models--" + name.replace("/", "--"))

    def names(self):
        return {m["name"]: m for m in json.loads(self.run("list", "--json").stdout)["models"]}


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            h.update(piece)
    return h.hexdigest()


def tree(folder):
    return {str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_symlink() or p.is_file()}


def tiny(hub, **more):
    return hub.add(NAME, {"README.md": b"# tiny\n", "stories-i2_s.gguf": MODEL, **more}, info={"cardData": {"license": "mit"}})


# ------------------------------------------------------------------ names, layout


def layout(hub, home):
    r = tiny(hub)
    path = home.run("pull", NAME).stdout.strip()
    sha = hashlib.sha256(MODEL).hexdigest()
    assert path == str(home.repo(NAME) / "snapshots" / r.commit / "stories-i2_s.gguf"), path
    inside = tree(home.repo(NAME))
    assert inside == {f"blobs/{sha}": MODEL, "refs/main": r.commit.encode(),
                      f"snapshots/{r.commit}/stories-i2_s.gguf": f"../../blobs/{sha}"}, inside.keys()
    assert (home.cache / f".locks/models--org--tiny-gguf/{sha}.lock").exists()
    assert (home.cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    before = hub.sent()
    home.run("pull", NAME, says="is here already")
    assert hub.sent() == before, "downloaded twice"


def commands(hub, home):
    """A name works where a file does."""
    tiny(hub)
    home.run("run", NAME, "Once", code=1, says=f"'bitnet pull {NAME}' downloads it")
    home.run("run", NAME, "--pull", "-n", "3", "--temp", "0", "Once upon a time")
    want = home.run("run", "-n", "3", "--temp", "0", "Once upon a time").stdout
    home.run("show", NAME, says=["bitnet-b1.58", "11.8 MB"])
    for words in (["run", NAME], ["run", "-m", NAME], ["run", f"hf:{NAME}:i2_s"], ["run", f"hf.co/{NAME}/stories-i2_s.gguf"]):
        assert home.run(*words, "--offline", "-n", "3", "--temp", "0", "Once upon a time").stdout == want, words
    (home.folder / "t.txt").write_text("Once upon a time there was a dog.\n" * 20)
    (home.folder / "b.jsonl").write_text(json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/completions",
                                                     "body": {"prompt": "Once", "max_tokens": 2}}) + "\n")
    for words in (["inspect", NAME, "--meta"], ["perplexity", NAME, "--file", "t.txt", "--ctx-size", "64"], ["tokenize", NAME, "Once"],
                  ["embed", NAME, "Once"], ["logits", NAME, "--ids", "1,2", "--out", "l.bin"],
                  ["batch", NAME, "--input", "b.jsonl", "--output", "o.jsonl"], ["convert", NAME, "c.gguf", "--type", "keep"],
                  ["bench", NAME, "--prompt-tokens", "8", "-n", "2", "--repeat", "1"], ["doctor", NAME, "--json"]):
        r = subprocess.run([PROGRAM, *words], env=home.env, cwd=home.folder, capture_output=True, text=True, timeout=LIMIT_S)
        assert r.returncode == 0 or words[0] == "doctor" and r.returncode == 1 and r.stdout.startswith("{"), (words, r.stderr)


def speeds(hub, home):
    """What was measured of a model stands in the list; what cannot run is said."""
    tiny(hub)
    home.run("pull", NAME)
    assert "decode_tok_s" not in home.names()[NAME]
    del home.env["BITNET_TUNING"]
    home.run("bench", NAME, "--autotune", "--budget", "1", "-n", "4", "--prompt-tokens", "4")
    assert home.names()[NAME]["decode_tok_s"] > 1, home.names()
    hub.add("org/odd", {"odd-i2_s.gguf": b"GGUF" + bytes(5000)})
    home.run("pull", "org/odd", says="it is here, but cannot run here")
    home.run("show", "org/odd", says="cannot run")


def asked(hub, home):
    """On a terminal the user is asked."""
    tiny(hub)
    for answer, wanted in ((b"n\n", 1), (b"\n", 0)):
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(home.folder)
            os.execve(PROGRAM, [PROGRAM, "run", NAME, "-n", "3", "--temp", "0", "Once upon a time"], {**home.env, "TERM": "xterm"})
        seen = b""
        while b"[Y/n]" not in seen:
            assert select.select([fd], [], [], 30)[0], seen
            seen += os.read(fd, 4096)
        os.write(fd, answer)
        while True:
            try:
                piece = os.read(fd, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == wanted, (code, seen)
    assert b"there was" in seen or b"Once upon a time" in seen, seen


def revisions(hub, home):
    old = tiny(hub)
    new = hub.add(NAME, {"README.md": b"# tiny 2\n", "stories-i2_s.gguf": MODEL, "other-tq2_0.gguf": MODEL[:5_000_000]}, revision="v2")
    home.run("pull", NAME, "-q")
    home.run("pull", f"{NAME}@v2", "-q")
    home.run("pull", f"{NAME}@{new.commit}:tq2_0", "-q")
    assert home.run("pull", f"{NAME}@v2:tq2_0", "--offline", "-q").stdout.endswith("other-tq2_0.gguf\n")
    assert {p.name for p in (home.repo(NAME) / "refs").iterdir()} == {"main", "v2"}
    assert len(list((home.repo(NAME) / "blobs").iterdir())) == 2, "one blob for both revisions"
    names = home.names()
    assert set(names) == {NAME, f"{NAME}@v2", f"hf:{NAME}@v2/other-tq2_0.gguf"}, names.keys()
    home.run("rm", NAME, code=1, says="nobody is there to say yes")
    home.run("rm", "-y", f"{NAME}@v2", says="5.00 MB freed")
    assert home.run("run", NAME, "--offline", "-n", "1", "Once").stdout
    assert {p.name for p in (home.repo(NAME) / "refs").iterdir()} == {"main"}
    home.run("rm", "-y", NAME, says="11.8 MB freed")
    assert not home.repo(NAME).exists() and not (home.cache / ".locks/models--org--tiny-gguf").exists()
    home.run("rm", "-y", NAME, code=1, says="is not in the cache")
    assert old.commit != new.commit


def choice(hub, home):
    """Which file is taken."""
    small = MODEL[:200_000]
    hub.add("org/many", {"a-Q4_K_M.gguf": small, "a-TQ2_0.gguf": small + b"1", "a-I2_S.gguf": small + b"2", "mmproj-I2_S.gguf": small + b"3"})
    for name, file in (("org/many", "a-I2_S.gguf"), ("org/many:tq2_0", "a-TQ2_0.gguf"), ("hf:org/many/a-Q4_K_M.gguf", "a-Q4_K_M.gguf"),
                       ("https://huggingface.co/org/many/blob/main/a-TQ2_0.gguf?download=true", "a-TQ2_0.gguf")):
        assert home.run("pull", "-q", name).stdout.strip().endswith("/" + file), name
    hub.add("org/alike", {"a-PQ2_0.gguf": small, "a-Q2_0.gguf": small + b"1", "a-TQ1_0.gguf": small + b"2"})
    for name, file in (("org/alike:Q2_0", "a-Q2_0.gguf"), ("org/alike:pq2_0", "a-PQ2_0.gguf"), ("org/alike:Q1_0", "a-TQ1_0.gguf"),
                       ("org/alike", "a-PQ2_0.gguf")):
        assert home.run("pull", "-q", name).stdout.strip().endswith("/" + file), name
    hub.add("org/parts", {f"q/m-Q2_0-{i:05}-of-00003.gguf": small + b"%d" % i for i in (1, 2, 3)})
    assert home.run("pull", "-q", "org/parts").stdout.strip().endswith("/q/m-Q2_0-00001-of-00003.gguf")
    links = tree(home.repo("org/parts") / "snapshots")
    assert len(links) == 3 and all(v.startswith("../../../blobs/") for v in links.values()), links
    hub.add("org/floats", {"a-Q4_K_M.gguf": small, "a-Q8_0.gguf": small + b"1"})
    home.run("pull", "org/floats", code=1, says=["several GGUF files", "a-Q8_0.gguf"])
    folder = {"config.json": b"{}", "tokenizer.json": b"{}" * 900, "model.safetensors.index.json": b"{}",
              "model-00001-of-00002.safetensors": small, "model-00002-of-00002.safetensors": small + b"2",
              "consolidated.safetensors": small + b"3", "pytorch_model.bin": small + b"4", "a.png": b"x"}
    hub.add("org/folder", folder)
    path = pathlib.Path(home.run("pull", "-q", "org/folder").stdout.strip())
    assert {p.name for p in path.iterdir()} == set(list(folder)[:5]), list(path.iterdir())
    assert (home.repo("org/folder") / ".no_exist" / path.name / "generation_config.json").exists()
    assert home.names()["org/folder"]["kind"] == "safetensors"
    (path / "model-00002-of-00002.safetensors").unlink()
    home.run("inspect", "org/folder", code=1, says="is only partly on this machine")
    hub.page = 2
    hub.add("org/paged", {f"{i}.txt": b"%d" % i for i in range(7)} | {"z-i2_s.gguf": small})
    assert home.run("pull", "-q", "org/paged").stdout.strip().endswith("z-i2_s.gguf")


# ------------------------------------------------------------------ faults


def whole(home, name, size, sha):
    path = pathlib.Path(home.run("pull", "-q", name).stdout.strip())
    assert path.stat().st_size == size and digest(path) == sha
    left = [p.name for p in (home.repo(name) / "blobs").iterdir()]
    assert left == [sha], left


def interrupted(hub, home):
    """Connections that are cut, and a process that is killed, as often as can be."""
    size = (2 << 30) if LARGE else (64 << 20)
    f = Sparse(size)
    hub.add("org/big", {"big-i2_s.gguf": f})
    hub.tokens["org/big"] = home.env["HF_TOKEN"] = "hf_secret"
    rng = random.Random(7)
    hub.cut_after = [rng.randrange(1, BLOCK) for _ in range(CUTS)]
    hub.rate = (size >> 20) / 8 * (1 << 20)  # two to three seconds in all
    for i in range(KILLS):
        p = home.start("pull", "org/big")
        mark = size * (i + 1) // (KILLS + 2)
        until("enough has come", lambda: hub.sent() >= mark or p.poll() is not None, LIMIT_S)
        assert p.poll() is None, f"kill {i}: it had ended: {p.stderr.read()}"
        p.send_signal(signal.SIGKILL)
        p.wait()
        p.stderr.close()
    whole(home, "org/big", size, f.sha256)
    sent = hub.sent()
    cuts = sum(r.cut for r in hub.log)
    again = sent - size
    assert cuts == CUTS, f"{cuts} connections were cut"
    assert again <= (KILLS * 4 + CUTS) * (1 << 20), f"{again} bytes came twice"
    tokens = {s: {r.token for r in hub.log if r.server == s} for s in ("hub", "store")}
    assert tokens == {"hub": {"hf_secret"}, "store": {None}}, tokens
    return f"{size} bytes, {cuts} cuts, {KILLS} kills, {again} bytes twice ({again / BLOCK:.2f} blocks)"


def expired(hub, home):
    f = Sparse(40 << 20)
    hub.add("org/big", {"big-i2_s.gguf": f})
    hub.link_s, hub.rate = 1.0, 5e6
    whole(home, "org/big", f.size, f.sha256)
    refused = sum(r.status == 403 for r in hub.log)
    assert refused, "no link expired"
    return f"{refused} links had expired"


def silent(hub, home):
    f = Sparse(20 << 20)
    hub.add("org/big", {"big-i2_s.gguf": f})
    hub.stall_next, hub.fail_next = 2, [503, 500, 429]
    home.env["HF_HUB_DOWNLOAD_TIMEOUT"] = "1"
    whole(home, "org/big", f.size, f.sha256)
    assert hub.stall_next == 0 and not hub.fail_next


def without_ranges(hub, home):
    f = Sparse(20 << 20)
    hub.add("org/big", {"big-i2_s.gguf": f})
    hub.ranges = False
    whole(home, "org/big", f.size, f.sha256)


def damaged(hub, home):
    tiny(hub)
    hub.spoil = {"stories-i2_s.gguf"}
    home.run("pull", NAME, code=1, says="is damaged: its checksum is")
    assert list((home.repo(NAME) / "blobs").iterdir()) == []
    hub.spoil = set()
    path = pathlib.Path(home.run("pull", "-q", NAME).stdout.strip())
    path.write_bytes(b"cut")  # a blob of another length is replaced
    home.run("pull", NAME)
    assert path.read_bytes() == MODEL


def at_once(hub, home):
    """Two of them: the second waits and finds what the first has brought."""
    f = Sparse(24 << 20)
    hub.add("org/big", {"big-i2_s.gguf": f})
    hub.rate = 10e6
    two = [home.start("pull", "org/big") for _ in range(2)]
    codes = [p.wait(LIMIT_S) for p in two]
    said = [p.stderr.read() for p in two]
    assert codes == [0, 0], said
    waits = [s.count("another program is downloading 'big-i2_s.gguf'; waiting for it") for s in said]
    assert sorted(waits) == [0, 1], said
    assert hub.sent() == f.size, hub.sent()


def stopped(hub, home):
    """Ctrl-C says that what is there is kept."""
    f = Sparse(24 << 20)
    hub.add("org/big", {"big-i2_s.gguf": f})
    hub.rate = 5e5
    p = home.start("pull", "org/big")
    until("something has come", lambda: hub.sent() > 2e6)
    p.send_signal(signal.SIGINT)
    said = p.communicate(timeout=LIMIT_S)[1]
    assert p.returncode == 130 and "the same command goes on" in said, (p.returncode, said)
    hub.rate = None
    home.run("pull", "org/big", says="still to come")
    assert hub.sent() < f.size + (4 << 20), hub.sent()


# ------------------------------------------------------------------ rights


def rights(hub, home):
    tiny(hub)
    hub.tokens[NAME] = "hf_good"
    home.run("pull", NAME, code=1, says="if it is private, set HF_TOKEN")
    home.run("pull", NAME, code=1, env={"HF_TOKEN": "hf_bad"}, says="does not take the token in use")
    (home.folder / ".cache/huggingface").mkdir(parents=True, exist_ok=True)
    (home.folder / ".cache/huggingface/token").write_text("hf_good\n")
    hub.gated.add(NAME)
    home.run("pull", NAME, code=1, says=["is gated: accept its conditions at", "must belong to that account"])
    hub.gated.clear()
    home.run("pull", NAME)
    assert not [r for r in hub.log if r.server == "store" and r.token]
    hub.tokens.clear()
    hub.gated.add(NAME)
    (home.folder / ".cache/huggingface/token").unlink()
    shutil.rmtree(home.repo(NAME))
    home.run("pull", NAME, code=1, says=["is gated", "set HF_TOKEN to a token of your account"])


def refused(hub, home):
    """What a hub says no to, and what it should not have said: each with its sentence."""
    small = MODEL[:100_000]
    tiny(hub)
    hub.add("org/empty", {"README.md": b"#"})
    hub.add("org/two", {"a-Q4_K_M.gguf": small, "b-Q4_K_M.gguf": small + b"1"})
    hub.add("org/half", {"config.json": b"{}", "a.png": b"x"})
    hub.add("org/evil", {"../../evil-i2_s.gguf": small})
    hub.raw = {"/api/models/org/html/revision/main": b"<html>", "/api/models/org/nosha/revision/main": b"{}",
               "/api/models/org/list/revision/main": b"[]", "/api/models/org/notree/revision/main": b'{"sha": "%s"}' % (b"a" * 40),
               f"/api/models/org/notree/tree/{'a' * 40}": b"{}"}
    cases = {
        "org/none": "there is no repository org/none on",
        "hf:none": "there is no repository none on",
        f"{NAME}@v9": f"{NAME}@v9 has no such branch, tag or commit",
        f"{NAME}@{'f' * 40}": "has no such branch, tag or commit",
        f"{NAME}:Q9_9": f"{NAME} has no GGUF file of type Q9_9; it has stories-i2_s.gguf",
        f"hf:{NAME}/none.gguf": f"{NAME} has no file 'none.gguf'; it has README.md, stories-i2_s.gguf",
        "org/empty": "org/empty holds no model in GGUF or safetensors; it has README.md",
        "org/empty:Q2_0": "org/empty holds no model in GGUF; it has README.md",
        "org/half": "org/half holds no model",
        "org/two": "hf:org/two/FILE: a-Q4_K_M.gguf, b-Q4_K_M.gguf",
        "org/evil": "the hub lists a file that cannot be taken: path '../../evil-i2_s.gguf'",
        "org/html": "the reply of 127.0.0.1",
        "org/nosha": "names no commit for org/nosha",
        "org/list": "names no commit for org/list",
        "org/notree": "lists no files of org/notree",
    }
    for name, says in cases.items():
        home.run("pull", name, code=1, says=says)
        home.run("show", name, code=1, says=says)
    home.run("pull", NAME, "--cache-dir", "/proc/none", code=1, says="cannot make the folder '/proc/none")
    hub.fail_next = [503] * 5
    home.run("pull", NAME, code=1, says="answers with an error of its own: 503")
    hub.fail_next = [429] * 5
    home.run("pull", NAME, code=1, says="asks to come back later (in 1 s)")
    hub.fail_next = [418]
    home.run("pull", NAME, code=1, says=f"refuses {NAME}: 418")
    assert not list(home.cache.rglob("*.gguf")) and not (home.folder / "evil-i2_s.gguf").exists()


# ------------------------------------------------------------------ registries, URLs, proxies, TLS


def registry(hub, home):
    hub.add_manifest("library/tiny", "latest", [("application/vnd.docker.container.image.v1+json", b'{"model_format":"gguf"}'),
                                                ("application/vnd.ollama.image.model", MODEL),
                                                ("application/vnd.ollama.image.license", b"MIT")])
    host = hub.url.removeprefix("http://")
    name = f"ollama:{host}/tiny"
    path = home.run("pull", name).stdout.strip()
    store = home.folder / ".ollama/models"
    sha = hashlib.sha256(MODEL).hexdigest()
    assert path == str(store / "blobs" / f"sha256-{sha}")
    assert (store / "manifests" / host / "library/tiny/latest").read_bytes() == hub.manifests["library/tiny", "latest"]
    assert len(list((store / "blobs").iterdir())) == 3
    assert f"{name}:latest" in home.names()
    assert home.run("run", name, "-n", "2", "Once").stdout
    home.run("rm", "-y", name, code=1, says="'ollama rm")
    home.run("pull", f"ollama:{host}/none", code=1, says="there is no")


def by_url(hub, home):
    from hub_server import Bytes
    hub.blobs["m.gguf"] = Bytes(MODEL)
    url = f"{hub.url}/plain/m.gguf"
    sha = hashlib.sha256(MODEL).hexdigest()
    path = home.run("pull", url).stdout.strip()
    assert path.startswith(str(home.folder / ".local/share/bitnet/models/127.0.0.1:")) and digest(path) == sha
    assert home.run("run", url, "-n", "2", "Once").stdout
    home.run("rm", "-y", url)
    home.run("pull", f"{url}#sha256={'0' * 64}", code=1, says="is damaged")
    home.run("pull", f"{url}#sha256={sha}")
    home.run("pull", f"{hub.url}/plain/none.gguf", code=1, says="there is no none.gguf")


def offline(hub, home):
    tiny(hub)
    asked = len(hub.log)
    for env, words in (({"HF_HUB_OFFLINE": "1"}, []), ({}, ["--offline"])):
        home.run("pull", NAME, *words, env=env, code=1, says="switched off")
        home.run("show", NAME, *words, env=env, code=1, says="nobody may be asked")
    home.run("run", NAME, "--offline", "--pull", "hi", code=1, says="downloads are switched off")
    assert len(hub.log) == asked
    home.run("pull", NAME)
    asked = len(hub.log)
    home.run("pull", NAME, "--offline")
    home.run("run", NAME, "-n", "1", "Once", env={"HF_HUB_OFFLINE": "1"})
    assert len(hub.log) == asked


def proxied(hub, home):
    """What goes through a proxy, and what does not."""
    from proxy import Proxy
    tiny(hub)
    with Proxy("user", "p@ss") as proxy:
        via = {"http_proxy": proxy.url}
        home.run("pull", NAME, env=via)
        assert proxy.seen and all(a == "user:p@ss" for _, a in proxy.seen), proxy.seen
        seen = len(proxy.seen)
        shutil.rmtree(home.cache)
        home.run("pull", NAME, env={**via, "NO_PROXY": "example.com, localhost,127.0.0.1"})
        assert len(proxy.seen) == seen
    home.run("pull", "--dry-run", NAME, env={"http_proxy": "socks5://127.0.0.1:1"}, code=1, says="is no http://HOST:PORT")


def encrypted(hub, home):
    """Certificates are checked; through a proxy, too; and nothing falls back to plain text."""
    from proxy import Proxy, encrypt
    tiny(hub)
    pem = home.folder / "cert.pem"
    url = encrypt(hub, pem)
    env = {"HF_ENDPOINT": url}
    home.run("pull", NAME, env=env, code=1, says=["is not trusted", "--ca-file"])
    home.run("pull", NAME, "--ca-file", home.folder / "none.pem", env=env, code=1, says="cannot read the certificates")
    (home.folder / "bad.pem").write_text("nothing")
    home.run("pull", NAME, "--ca-file", "bad.pem", env=env, code=1, says="holds no certificates")
    # the store is not encrypted: a redirect to it is not followed
    home.run("pull", NAME, "--ca-file", pem, env=env, code=1, says="which is not encrypted; not followed")
    hub.store = url
    with Proxy("", "") as proxy:
        home.run("pull", NAME, env={**env, "SSL_CERT_FILE": str(pem), "HTTPS_PROXY": proxy.url})
        assert {what for what, _ in proxy.seen} == {"CONNECT " + url.removeprefix("https://")}, proxy.seen


def full_disk(hub, home):
    """A disk without room, before and on the way (a file system of 24 MiB, in a mount of its own)."""
    from tap import Skipped
    hub.add("org/big", {"big-i2_s.gguf": Sparse(200 << 20)})
    script = f'mount -t tmpfs -o size=24m none "$HOME/.small" && exec "{PROGRAM}" pull --cache-dir "$HOME/.small" org/big'
    (home.folder / ".small").mkdir()
    r = subprocess.run(["unshare", "-rm", "sh", "-c", script], env=home.env, text=True, capture_output=True, timeout=LIMIT_S)
    if "unshare" in r.stderr or "mount:" in r.stderr:
        raise Skipped("mounts", r.stderr.strip())
    assert r.returncode == 1 and "are still to be downloaded" in r.stderr and "make room" in r.stderr, r.stderr


def served(hub, home):
    """A server brings a model when a client of Ollama's asks for it, serves it at once, and has it again when it starts anew."""
    tiny(hub)
    sha, keys = hashlib.sha256(MODEL).hexdigest(), home.folder / "keys"
    keys.write_text("the-key admin=1\nother-key\n")
    keys.chmod(0o600)
    words = ["env", "-i", *(f"{k}={v}" for k, v in home.env.items()), PROGRAM]
    pull = lambda s, name, **more: s.post("/api/pull", {"model": name, **more}, more.pop("headers", None))
    text = lambda s, model: s.post("/v1/completions", {"model": model, "prompt": "Once", "max_tokens": 4, "temperature": 0})
    names = lambda s: [m["name"] for m in s.get("/api/tags").json()["models"]]
    with Server(words, "--stored", "--allow-pull", "--no-warm-up", "--api-key-file", keys, key="the-key") as s:
        assert names(s) == ["embedded"] and text(s, NAME).status == 404
        lines = [json.loads(line) for line in pull(s, NAME).body.splitlines()]
        assert [lines[0], lines[-1]] == [{"status": "pulling manifest"}, {"status": "success"}], lines
        files = [line for line in lines if "digest" in line]
        assert files and {(f["status"], f["digest"], f["total"]) for f in files} == {(f"pulling {sha[:12]}", f"sha256:{sha}", len(MODEL))}, lines
        assert [f["completed"] for f in files] == sorted(f["completed"] for f in files)
        assert names(s) == ["embedded", NAME]
        assert text(s, NAME).json()["choices"] == text(s, "embedded").json()["choices"], "it is the same model"
        assert pull(s, NAME, stream=False).json() == {"status": "success"}, "it is here already"
        assert "org/none" in json.loads(pull(s, "org/none").body.splitlines()[-1])["error"]
        assert pull(s, "org/none", stream=False).status == 400
        assert pull(s, "").status == 400 and pull(s, 5).status == 400
        other = s.post("/api/pull", {"model": NAME}, {"Authorization": "Bearer other-key"})
        assert other.status == 403 and "admin=1" in other.json()["error"], other.body
        assert names(s) == ["embedded", NAME] and s.stop() == 0
    with Server(words, "--stored", "--no-warm-up") as s:
        assert names(s) == [NAME] and text(s, NAME).status == 200
        refused = pull(s, NAME)
        assert refused.status == 501 and "--allow-pull" in refused.json()["error"], refused.body
    home.run("serve", "--allow-pull", code=2, says="--stored")


def given_up(hub, home):
    """A client that goes away ends its download; what has come is kept, and the server shuts down at once."""
    hub.add("org/big", {"big-i2_s.gguf": Sparse(1 << 30)})
    words = ["env", "-i", *(f"{k}={v}" for k, v in home.env.items()), PROGRAM]
    with Server(words, "--stored", "--allow-pull", "--no-warm-up") as s:
        c = s.connect()
        c.request("POST", "/api/pull", json.dumps({"model": "org/big"}), {"Content-Type": "application/json"})
        reply = c.getresponse()
        while b"completed" not in reply.readline():
            pass
        assert s.post("/api/pull", {"model": "org/big"}).status == 503, "one at a time"
        reply.close()
        c.close()
        until("another one may come", lambda: s.post("/api/pull", {"model": "org/none", "stream": False}).status == 400)
        assert list(home.repo("org/big").glob("blobs/*.incomplete")), "what has come is kept"
        c = s.connect()
        c.request("POST", "/api/pull", json.dumps({"model": "org/big"}), {"Content-Type": "application/json"})
        c.getresponse().readline()
        assert s.stop(limit_s=20) == 0


cases = [layout, commands, speeds, asked, revisions, choice, interrupted, expired, silent, without_ranges, damaged, at_once, stopped, rights, refused,
         registry, by_url, served, given_up, offline, proxied, encrypted, full_disk]
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
cases = [c for c in cases if only in c.__name__ and (not LARGE or c is interrupted)]
tap = Tap(len(cases))
for case in cases:
    with Hub() as served, Home(served) as user:
        tap.case(case.__name__, case, served, user)
sys.exit(tap.end())
