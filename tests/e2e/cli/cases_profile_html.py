# SPDX-License-Identifier: Apache-2.0
"""profile --html: a page that any parser can read, with all that the report has, and nothing from
elsewhere. tests/e2e/browser looks at it in a browser."""
import json
import pathlib
import xml.etree.ElementTree

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models" / "stories-31m.gguf"
SHORT = ["-n", "4", "--prompt-tokens", "8", "--html", "p.html", "--json-report", "p.json"]
XHTML = "{http://www.w3.org/1999/xhtml}"
LOADS = {"script", "link", "img", "iframe", "object", "embed", "image", "use"}


def page_and_report(t, *args):
    t.keeps("p.html", "p.json")
    t.run("profile", *args, *SHORT)
    text = t.path("p.html").read_text(encoding="utf-8")
    t.check(text.startswith("<!DOCTYPE html>\n"), "a page")
    page = xml.etree.ElementTree.fromstring(text)
    t.equal({e.tag.removeprefix(XHTML) for e in page.iter()} & LOADS, set(), "nothing is loaded")
    t.check("@import" not in text and "url(" not in text.replace("url(#hatch)", ""), "nor by its style")
    return page, json.loads(t.path("p.json").read_text())


def find(t, page, key, value):
    found = [e for e in page.iter() if e.get(key) == value]
    t.equal(len(found), 1, f"elements with {key}={value}")
    return found[0]


def test_page(t):
    page, report = page_and_report(t)
    t.equal(find(t, page, "id", "verdict").text, report["verdict"], "verdict")
    for name, phase in report["phases"].items():
        section = find(t, page, "id", name)
        for op in phase["ops"]:
            find(t, section, "data-op", op["op"])
        tips = [e.text for e in section.iter(XHTML + "title")]
        for layer in range(report["model"]["layers"]):
            t.check(any(x.startswith(f"layer {layer}, ") for x in tips), f"{name}: layer {layer}")
    words = " ".join(page.itertext())
    for note in report["notes"]:
        t.check(note in words, f"note {note!r}")


def test_one_layer_one_thread(t):
    page, report = page_and_report(t, "--synthetic", "tiny", "--layers", "1", "-t", "1")
    t.equal(len(report["phases"]["decode"]["workers"]), 1, "workers")
    find(t, page, "id", "decode")


def test_name_stays_text(t):
    name, plain = b"<i>&\"'x</i>", b"stories-31m"
    data = MODEL.read_bytes()
    t.check(len(name) == len(plain) and data.count(plain) >= 1, "the name is in the file")
    t.write("m.gguf", data.replace(plain, name, 1))
    page, report = page_and_report(t, "m.gguf")
    t.equal(report["model"]["name"], name.decode(), "name in the report")
    t.equal([e.text for e in page.iter(XHTML + "h1")], [name.decode()], "name on the page")


def test_wrong_path(t):
    t.fails("profile", "--html", "no/such/folder/p.html", says="no/such/folder")
