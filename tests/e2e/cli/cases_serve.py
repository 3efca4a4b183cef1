# SPDX-License-Identifier: Apache-2.0
"""serve: where its options come from, and what it says before it serves. (Serving is the subject of ../server.py.)"""
import json
import socket


def config(t, *args, env=None):
    return t.run("serve", *args, "--print-config", env=env).json()


def test_serve_defaults(t):
    c = config(t)
    t.equal((c["host"], c["port"], c["max-queue"]), ("127.0.0.1", 8080, 256), "defaults")
    t.check("api-key" not in c and "config" not in c, c)


def test_serve_order(t):
    t.write("c.json", json.dumps({"port": 1, "max_queue": 2, "host": "::1", "no-pages": True, "cors": ["https://a", "https://b"]}))
    env = {"BITNET_MAX_QUEUE": "3", "BITNET_HOST": "0.0.0.0", "BITNET_MAX_BATCH_SIZE": "5", "BITNET_PUBLIC_METRICS": "on"}
    c = config(t, "--config", "c.json", "--host", "unix:/x", env=env)
    got = [c[k] for k in ("port", "max-queue", "host", "max-num-seqs", "no-pages", "public-metrics", "cors")]
    t.equal(got, [1, 3, "unix:/x", 5, True, True, ["https://a", "https://b"]], "line over environment over file")
    c = config(t, env={"BITNET_CONFIG": "c.json", "BITNET_NO_PAGES": "false"})
    t.equal((c["port"], c["no-pages"]), (1, False), "the file's name from the environment")
    t.equal(config(t, "a.gguf", env={"BITNET_MODEL": "b.gguf"})["model"], "a.gguf", "the word counts more")


def test_serve_round_trip(t):
    c = config(t, "--port", "9", "--cors", "*", "--kv-type", "int8", "--alias", "me")
    t.write("c.json", json.dumps(c))
    t.equal(config(t, "--config=c.json"), c, "what is printed can be read")


def test_serve_secrets(t):
    r = t.run("serve", "--api-key", "top-secret", "--print-config", env={"BITNET_API_KEY": "other-secret"})
    t.check(b"secret" not in r.out + r.err, r.text)


def test_serve_wrong(t):
    for name, text, says in (("a.json", "[]", "a.json:1"), ("b.json", "{", "b.json"), ("c.json", '{"prot": 1}', "'port'"),
                             ("d.json", '{"port": 70000}', "65535"), ("e.json", '{"port": {}}', "'port'"),
                             ("f.json", '{"no-pages": 7}', "true or false"), ("g.json", '{"config": "x"}', "command line")):
        t.write(name, text)
        t.usage("serve", "--config", name, "--print-config", says=says)
    t.usage("serve", "--config", "none.json", says="none.json")
    t.usage("serve", "--tls-cert", "x", says="--tls-key")
    t.usage("serve", "--metrics-compat", "x", says="vllm")
    t.usage("serve", says="BITNET_PORT", env={"BITNET_PORT": "x"})
    r = t.run("serve", "--print-config", env={"BITNET_PROT": "1"})
    t.says(r, "BITNET_PROT")


def test_serve_require_key(t):
    """What containers start with: an address that others reach, and no key."""
    args = ["serve", "--host", "0.0.0.0", "--port", "0", "--require-key"]
    t.usage(*args, says=["there is no key", "BITNET_API_KEY"])
    t.check(config(t, *args[1:], env={"BITNET_API_KEY": "k"})["require-key"], "with a key from the environment")


def test_serve_cannot(t):
    t.fails("serve", "--host", "no-such-host.invalid", "--no-warm-up", says="no-such-host.invalid", one_error_line=False)
    t.fails("serve", "--api-key-file", "none", "--port", "0", "--no-warm-up", says="none", one_error_line=False)


def test_serve_taken_address(t):
    """A taken address is told before a model is even looked for."""
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen()
    port = other.getsockname()[1]
    for words in (("nothere.gguf",), ("a=nothere.gguf", "b=nothere.gguf")):
        t.fails("serve", *words, "--port", port, says=[f"cannot listen on '127.0.0.1', port {port}: another program does", "--port 0"])
    other.close()
    t.fails("serve", "nothere.gguf", "--port", port, says="nothere.gguf")
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(t.path("s")))
    local.listen()
    t.fails("serve", "nothere.gguf", "--host", f"unix:{t.path('s')}", says="another process listens on")
    local.close()
    t.fails("serve", "nothere.gguf", "--host", f"unix:{t.path('s')}", says="nothere.gguf")
    t.check(not t.path("s").exists(), "its socket is gone with it")
