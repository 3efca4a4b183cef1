# SPDX-License-Identifier: Apache-2.0
"""Models in several GGUF files, as gguf-split makes them."""
import gguf_split

COUNT = 3
IDS = ("--ids", "1,2,3,4,5", "--out", "-")


def whole(t):
    t.run("convert", "embedded", "whole.gguf")
    t.keeps("whole.gguf")
    return t.path("whole.gguf").read_bytes()


def write(t, data, folder=".", **how):
    """The first part's name."""
    names = gguf_split.names("m", COUNT)
    for name, part in zip(names, gguf_split.split(data, COUNT, **how)):
        t.write(f"{folder}/{name}", part)
    return f"{folder}/{names[0]}"


def test_split_computes_the_same(t):
    data = whole(t)
    want = t.run("logits", "whole.gguf", *IDS).out
    t.path("a").mkdir(), t.path("b").mkdir()
    t.keeps("a", "b")
    for first in (write(t, data, "a"), write(t, data, "b", no_tensor_first=True)):
        t.check(t.run("logits", first, *IDS).out == want, f"same bits from {first}")
        t.check(t.run("logits", first, "--no-mmap", *IDS).out == want, "read, not mapped")
    t.check(t.run("logits", "a", *IDS).out == want, "a folder with the parts of one model")
    inside = t.run("inspect", "whole.gguf", "--json").json(), t.run("inspect", "a", "--json").json()
    tensors = [[(x["name"], x.get("counts")) for x in j["tensors"]] for j in inside]
    t.check(tensors[0] == tensors[1], "the same tensors in the same order")
    sizes = sum(f.stat().st_size for f in t.path("a").iterdir())
    t.equal(inside[1]["file_bytes"], sizes, "bytes of all parts")


def test_split_converted_is_whole(t):
    first = write(t, whole(t))
    t.keeps(*gguf_split.names("m", COUNT))
    t.run("convert", first, "again.gguf", "--type", "keep", "--head-type", "keep")
    t.run("convert", "whole.gguf", "same.gguf", "--type", "keep", "--head-type", "keep")
    t.run("convert", first, "packed.gguf", "--packed")
    t.keeps("again.gguf", "same.gguf", "packed.gguf")
    t.check(t.path("again.gguf").read_bytes() == t.path("same.gguf").read_bytes(), "the file it was split from")
    for name in ("again.gguf", "packed.gguf"):
        keys = t.run("inspect", name, "--json").json()["metadata"]
        t.check(not any(k.startswith("split.") for k in keys), f"{name} is no part of anything")
    want = t.run("logits", "whole.gguf", *IDS).out
    t.check(t.run("logits", "packed.gguf", *IDS).out == want, "packed: the same bits")


def test_split_packed_copy(t):
    """A copy that is kept belongs to the state of every part."""
    data = whole(t)
    first, env = write(t, data), {"XDG_CACHE_HOME": str(t.path("kept"))}
    t.keeps(*gguf_split.names("m", COUNT), "kept", "kept/bitnet", "kept/bitnet/lock")
    options = ("-p", "Once", "-n", "1", "--temp", "0", "--json", "--cache-from", "1M")

    def copies():
        return sorted(f.name for f in t.path("kept/bitnet").glob("*.bnp"))

    t.run("run", "-m", first, *options, env=env)
    one = copies()
    t.equal(len(one), 1, "copies")
    t.run("run", "-m", first, *options, env=env)
    t.equal(copies(), one, "found again")
    last = t.path(gguf_split.names("m", COUNT)[-1])
    changed = bytearray(last.read_bytes())
    changed[-40] = 0x00 if changed[-40] == 0x55 else 0x55  # four weights
    last.write_bytes(changed)
    t.run("run", "-m", first, *options, env=env)
    t.equal(len(copies()), 2, "copies, when the last part is another one")
    t.keeps(*(f"kept/bitnet/{name}" for name in copies()))


def test_split_broken(t):
    parts = gguf_split.split(whole(t), COUNT)
    names = gguf_split.names("m", COUNT)
    t.write(names[0], parts[0])
    t.fails("run", "-m", names[0], "a", says=["part 1 of 3", "2 of the others are missing", names[1], names[2]])
    t.write(names[2], parts[2])
    r = t.fails("run", "-m", names[0], "a", says=["1 of the others is missing", names[1]])
    t.check(names[2] not in r.errors, "only what is missing is named")
    t.fails("run", "-m", names[2], "a", says=["part 3 of 3", f"name the first one: {names[0]}"])
    for content, says in ((parts[2], "part 3 of 3, not what its name says"), (parts[1][:40], "cut short"), (b"", "no GGUF"),
                          (t.path("whole.gguf").read_bytes(), "no part of a split model"),
                          (gguf_split.part(1, 3, 0, b"", 0, []), "tensors in all")):
        t.write(names[1], content)
        t.fails("run", "-m", names[0], "a", says=[says, "m-0000"])
    t.write(names[1], parts[1])
    t.write("renamed.gguf", parts[0])
    t.fails("run", "-m", "renamed.gguf", "a", says="must end in -00001-of-00003.gguf")
