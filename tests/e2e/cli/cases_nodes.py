# SPDX-License-Identifier: Apache-2.0
"""`bitnet plan`: what several machines would bring."""


def plan(t, *args):
    return t.run("plan", "--json", "--bandwidth", "20", *args).json()


def test_plan_wrong_usage(t):
    t.usage("plan", "a.gguf", "b.gguf", says="'b.gguf'")
    t.usage("plan", "--nodes", "0", says="--nodes")
    t.usage("plan", "--latency", "-1", says="--latency")
    t.fails("plan", "absent.gguf", says="absent.gguf")


def test_plan_sums(t):
    model = t.run("inspect", "--json").json()
    d = plan(t, "--nodes", "4", "--latency", "50", "--link", "10", "--bits", "2")
    layers, shape = model["model"]["layers"], model["model"]
    t.equal(d["weights"], model["matrix_weights"], "weights")
    t.equal(d["layer_bytes"], d["weights"] / 4, "two bits a weight")
    near = lambda a, b: abs(a - b) <= 1e-6 * abs(b)
    alone, split, less, copies = d["alone"], d["split"], d["split_less"], d["replicated"]
    t.check(near(alone["read_s"], (d["layer_bytes"] + d["head_bytes"]) / 20e9), "what is read alone")
    t.check(near(copies["all_tokens_per_second"], 4 * alone["tokens_per_second"]), "four copies")
    t.equal(split["exchanges"], 4 * layers + 2, "exchanges")
    t.equal(less["exchanges"], 2 * layers + 2, "fewer exchanges")
    floats = layers * (shape["heads"] * shape["head_dim"] + shape["ff"] + 2 * shape["embd"])
    t.check(near(split["exchange_s"], split["exchanges"] * 50e-6 + floats * 4 * 3 / 4 * 8 / 10e9),
            "the time of the exchanges")
    t.check(alone["read_s"] / 4 <= split["read_s"] < less["read_s"] < alone["read_s"], "what is read")
    t.check(split["node_bytes"] < less["node_bytes"] < alone["node_bytes"], "memory of a machine")


def test_plan_breaks_even(t):
    even = plan(t, "--nodes", "2")["break_even_us"]
    t.check(even > 0, "two nodes can be a gain")
    below, above = (plan(t, "--nodes", "2", "--latency", str(even * f)) for f in (0.98, 1.02))
    best = lambda d: max(d["split"]["tokens_per_second"], d["split_less"]["tokens_per_second"])
    t.check(best(below) > below["alone"]["tokens_per_second"], "below it splitting is faster")
    t.check(best(above) < above["alone"]["tokens_per_second"], "above it alone is faster")


def test_plan_says_it(t):
    text = t.run("plan", "--bandwidth", "20", "--nodes", "2", "--latency", "1000").text
    t.check("One user: alone." in text and "Many users: replicate" in text, "what to do")
    text = t.run("plan", "--bandwidth", "20", "--nodes", "2", "--latency", "0", "--link", "1000").text
    t.check("One user: split" in text, "split where an exchange costs nothing")
    one = t.run("plan", "--bandwidth", "20", "--nodes", "1").text
    t.check("split" not in one.split("A token alone")[0], "one machine has nothing to split")
    measured = t.run("plan", "--json").json()
    t.check(measured["bandwidth_gb_s"] > 0, "the memory of this machine is measured")
