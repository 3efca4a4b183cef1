#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an installation puts where, and that taking it back leaves nothing.

usage: install.py BUILD
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from tap import Tap  # noqa: E402

build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path(__file__).resolve().parents[2]
commands = re.findall(r"^(?:CORE|COMMAND)\((\w+),", (root / "src/cli/core/commands.def").read_text(), re.M)


def ran(*argv, to):
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "DESTDIR": str(to)})
    assert done.returncode == 0, f"{argv}: {done.stdout[-800:]}{done.stderr[-800:]}"


def equal(t, name, got, want):
    t.point(name, got == want, f"got {got!r:.600}, want {want!r:.600}")


def check(t, to):
    ran("meson", "install", "-C", str(build), "--no-rebuild", to=to)
    found = {str(p.relative_to(to)): p for p in to.rglob("*") if not p.is_dir()}
    name = next((n for n in found if n.endswith("/bin/bitnet")), "")
    t.point("the program", bool(name), sorted(found)[:20])
    prefix = name.removesuffix("/bin/bitnet")
    runs = subprocess.run([found[name], "run", "Once upon a time", "-n", "4", "--temp", "0"], capture_output=True, text=True)
    t.point("it runs", runs.returncode == 0 and "there was" in runs.stdout, runs.stdout + runs.stderr)
    pages = {"bitnet.1", *(f"bitnet-{c}.1" for c in commands)}
    equal(t, "man pages", {pathlib.Path(n).name for n in found if "/man/man1/" in n}, pages)
    for page in pages & {pathlib.Path(n).name for n in found}:
        text = next(p for n, p in found.items() if n.endswith("/" + page)).read_text()
        assert text.startswith(".TH"), page
    for path, mark in {"share/bash-completion/completions/bitnet": "complete -F _bitnet bitnet",
                       "share/zsh/site-functions/_bitnet": "#compdef bitnet",
                       "share/fish/vendor_completions.d/bitnet.fish": "complete -c bitnet"}.items():
        at = found.get(f"{prefix}/{path}")
        t.point(path, bool(at) and mark in at.read_text(), at)
    unit = found[f"{prefix}/lib/systemd/system/bitnet.service"].read_text()
    equal(t, "the unit starts this program", re.findall(r"^ExecStart=(\S+)", unit, re.M), [f"/{prefix}/bin/bitnet"])
    equal(t, "the rest is the unit of deploy/", re.sub(r"^ExecStart=\S+", "", unit, flags=re.M).strip(),
            re.sub(r"^ExecStart=\S+", "", (root / "deploy/bitnet.service").read_text(), flags=re.M).strip())
    in_bin = sorted(p.name for p in found[name].parent.iterdir() if p.name.startswith(("bitnet", "infer")))
    equal(t, "only one name in bin", in_bin, ["bitnet"])
    links = {p.name: os.readlink(p) for n, p in found.items() if "/libexec/bitnet/" in n}
    t.point("the other names in libexec", "bitnet-prune" in links and set(links.values()) == {f"/{prefix}/bin/bitnet"}, links)
    for path in ("doc/bitnet/LICENSE", "doc/bitnet/docs/README.md", "doc/bitnet/examples/config.json"):
        t.point(path, f"{prefix}/share/{path}" in found, sorted(found)[:5])


def main():
    t = Tap()
    log = build / "meson-logs" / "install-log.txt"  # of an installation somebody may want to take back
    kept = log.read_bytes() if log.exists() else None
    with tempfile.TemporaryDirectory() as folder:
        to = pathlib.Path(folder) / "root"
        try:
            t.case("install", check, t, to)
            ran("ninja", "-C", str(build), "uninstall", to=to)
            left = [str(p) for p in to.rglob("*")] if to.exists() else []
            equal(t, "nothing is left behind", left, [])
        finally:
            if kept is not None:
                log.write_bytes(kept)
            elif log.exists():
                log.unlink()
    return t.end()


if __name__ == "__main__":
    sys.exit(main())
