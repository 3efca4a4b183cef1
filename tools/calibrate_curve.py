#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harm against speed. `bitnet calibrate --curve` measures harm on the embedded model, whose sparsity is real but whose
weights fit the caches; speed is measured on the 2B-4T shape with the same shares of open gates and inputs (`bench
--synthetic 2b-4t --ffn-density`), whose weights come from memory. Points take turns, round after round, each beside the
exact one of its round; medians of the rounds count.

    bitnet calibrate --dataset val.txt --kl-budget 0.01 --savings codes,gates --curve 0.001,0.002,… --output-dir c
    tools/calibrate_curve.py measure build/bitnet c/report.json own.json
    tools/calibrate_curve.py measure build/bitnet c/report.json own.json --own      # the embedded model by the plans themselves
    tools/calibrate_curve.py draw own.json own.svg

    tools/calibrate_curve.py update build/bitnet      # speeds of the documents again: data, picture, tables; quiet machine
    tools/calibrate_curve.py update build/bitnet --rounds 1 --more    # one more round, to those that are there"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA, PICTURE, PAGE = (ROOT / "docs" / p for p in ("tune/calibrate_curve.json", "img/calibrate.svg", "tune/calibrate.md"))
BEGIN, END = "<!-- tools/calibrate_curve.py: begin -->\n", "<!-- end -->\n"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 80, 30, 50, 60
SERIES = {"plan": ("#1565c0", "chosen layer by layer"), "uniform": ("#c62828", "the same step in every layer"),
          "exact": ("#222222", "exact")}
SPEEDS = ("rounds", "tok_s", "ratio", "ratio_least", "ratio_most")
SAME_KL = (0.002, 0.005, 0.01, 0.02, 0.04)


def density(layers):
    """As synth takes it: random gates open up to a half, and two thirds of these have an input that is not zero."""
    shares = ((min(l["gates_open"], 0.5), max(l["inputs_nonzero"], 0.001)) for l in layers)
    return ",".join(f"{gates:.4f}:{min(inputs, 0.65 * gates):.4f}" for gates, inputs in shares)


def points(report):
    exact = [{"gates_open": l["gates_open"], "inputs_nonzero": 1 - l["inputs"]["down"]["zero_share"]}
             for l in report["layers"]]
    yield {"series": "exact", "kl": 0.0, "kl_stderr": 0.0, "density": density(exact), "plan": None}
    for series, key in (("plan", "curve"), ("uniform", "uniform")):
        for t in report[key]:
            yield {"series": series, "label": t.get("kl_budget", t.get("step")), "kl": t["heldout"]["kl_mean"],
                   "kl_stderr": t["heldout"]["kl_stderr"], "density": density(t["density"]), "plan": t["plan"]}


def speed(point, args):
    """Tokens a second and bytes a token; taken again if other programs disturbed it."""
    how = ["--synthetic", "2b-4t", "--ffn-density", point["density"]]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        if args.own:
            json.dump(point["plan"], f)
            f.flush()
            how = ["embedded", "--ffn", "skip", "--plan", f.name if point["plan"] else "off"]
        command = [args.bitnet, "bench", *how, "--mode", "stream", "-n", str(args.tokens), "--threads", str(args.threads),
                   "--backend", args.backend, "--warmup", "1", "--repeat", str(args.repeat), "--json"]
        for _ in range(args.tries):
            r = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            if not r["machine"]["disturbed"]:
                break
    stream = next(m for m in r["measurements"] if m["mode"] == "stream")
    return stream["median"], stream["bytes_per_token"], r


def measured(found, args, more=None):
    """The points with their speeds, and what they were measured with. The exact point is the first of each round. more: the data
    whose rounds stay."""
    for p in found:
        p["rounds"] = p.get("rounds", []) if more else []
    before = len(found[0]["rounds"])
    disturbed = more["disturbed"] if before else 0
    for i in range(args.rounds):
        for p in found:
            tok_s, p["bytes"], r = speed(p, args)
            p["rounds"].append(tok_s)
            disturbed += r["machine"]["disturbed"]
            print(f"round {i + 1} of {args.rounds}: {p['series']:8} {p.get('label', '')!s:6} KL {p['kl']:.5f}  "
                  f"{tok_s:.2f} tok/s, {tok_s / found[0]['rounds'][before + i]:.3f} of exact", file=sys.stderr)
    for p in found:
        ratios = [a / b for a, b in zip(p["rounds"], found[0]["rounds"])]
        p.update(tok_s=statistics.median(p["rounds"]), ratio=statistics.median(ratios), ratio_least=min(ratios), ratio_most=max(ratios))
        p.pop("plan", None)
    if disturbed:
        print(f"other programs disturbed {disturbed} of {(before + args.rounds) * len(found)} measurements: speeds mean little", file=sys.stderr)
    return {"machine": r["machine"]["cpu"], "backend": r["settings"]["backend"], "disturbed": disturbed, "threads": args.threads, "date": r["date"],
            "model": r["model"]["name"], "rounds": before + args.rounds, "repeat": args.repeat, "tokens": args.tokens}


def write(path, data):
    pathlib.Path(path).write_text(json.dumps(data, indent=1) + "\n")


def measure(args):
    report = json.loads(pathlib.Path(args.report).read_text())
    found = [p for p in points(report) if p["kl"] <= args.most]
    write(args.out, {**measured(found, args), "samples": report["samples"], "points": found})


def update(args):
    data = json.loads(DATA.read_text())
    data.update(measured(data["points"], args, data if args.more else None))
    if args.bytes:  # the speeds were taken in passing and mean nothing
        data["points"] = [{k: v for k, v in p.items() if k not in SPEEDS} for p in data["points"]]
    write(DATA, data)
    PICTURE.write_text(picture(data, args.bytes))
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    PAGE.write_text(head + BEGIN + tables(data, args.bytes) + END + rest.split(END, 1)[1])


# ---------------------------------------------------------------- tables


def at_kl(by, kl, what):
    """A figure of both series at a divergence between two of their points, which stand in their order: by the logarithm."""
    for series in by.values():
        a, b = next((a, b) for a, b in zip(series, series[1:]) if a["kl"] <= kl <= b["kl"])
        t = math.log(kl / a["kl"]) / math.log(b["kl"] / a["kl"])
        yield a[what] + t * (b[what] - a[what])


def table(head, rows):
    return [f"| {' | '.join(head)} |", "|" + "|".join(["---"] + ["--:"] * (len(head) - 1)) + "|", *(f"| {' | '.join(r)} |" for r in rows)]


def tables(data, by_bytes):
    names = {"exact": "exact, with its own zeros skipped", "plan": "budget {}", "uniform": "same step {}"}
    by = {s: [p for p in data["points"] if p["series"] == s] for s in ("plan", "uniform")}
    head, same_head = ["", "mean KL", "MB of weights a token"], ["mean KL", "MB, by layer", "MB, same step"]
    rows = [[names[p["series"]].format(p.get("label")), f"{round(p['kl'], 5):g}", f"{p['bytes'] / 1e6:.0f}"] for p in data["points"]]
    same = [[f"{kl:g}", *(f"{x / 1e6:.0f}" for x in at_kl(by, kl, "bytes"))] for kl in SAME_KL]
    if not by_bytes:
        head, same_head = head + ["tok/s", "of exact, by rounds"], same_head + ["speed, by layer", "speed, same step"]
        for p, row in zip(data["points"], rows):
            row += [f"{p['tok_s']:.1f}", f"{p['ratio']:.2f} ({p['ratio_least']:.2f} to {p['ratio_most']:.2f})" if p["kl"] else "1"]
        for kl, row in zip(SAME_KL, same):
            row += [f"{x:.2f}" for x in at_kl(by, kl, "ratio")]
    lines = [*table(head, rows), "", "At the same harm, between the points:", "", *table(same_head, same)]
    if not by_bytes:
        many = "one thread" if data["threads"] == 1 else f"{data['threads']} threads"
        lines += ["", f"{data['machine']}, {data['backend']}, {many}, {data['date'][:10]}: medians of {data['rounds']} rounds, in which all points "
                  "take turns;", "`tools/calibrate_curve.py update build/bitnet`."]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- picture


def picture(data, by_bytes):
    def across(p):
        return p["bytes"] / 1e6 if by_bytes else p["tok_s"]
    all_points = data["points"]
    kls = [p["kl"] for p in all_points if p["kl"] > 0]
    low, high = math.floor(math.log10(min(kls))), math.ceil(math.log10(max(kls)))
    least, most = min(map(across, all_points)) * 0.98, max(map(across, all_points)) * 1.02
    against = "bytes" if by_bytes else "decoding speed"
    axis = "MB of weights read for a token" if by_bytes else f"tokens a second, threads: {data['threads']}"

    def x(value):
        return LEFT + (value - least) / (most - least) * (WIDTH - LEFT - RIGHT)

    def y(kl):
        at = (math.log10(kl) - low) / (high - low) if kl > 0 else 0
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - at)

    s = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
         "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.mid{text-anchor:middle}"
         ".end{text-anchor:end}.grid{stroke:#ddd}polyline{fill:none;stroke-width:1.5}</style>",
         f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
         f'<text x="{LEFT}" y="24" class="title">Harm on held-out text against {against}, {data["model"]}</text>']
    for e in range(low, high + 1):
        s += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10 ** e):.1f}" y2="{y(10 ** e):.1f}" class="grid"/>',
              f'<text x="{LEFT - 8}" y="{y(10 ** e) + 4:.1f}" class="end">{10 ** e:g}</text>']
    for i in range(6):
        v = least + (most - least) * i / 5
        s.append(f'<text x="{x(v):.1f}" y="{HEIGHT - BOTTOM + 20}" class="mid">{v:.1f}</text>')
    exact = x(across(all_points[0]))
    s += [f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" class="mid">{axis}</text>',
          f'<text x="22" y="{HEIGHT / 2}" class="mid" transform="rotate(-90 22 {HEIGHT / 2})">mean KL, nats</text>',
          f'<line x1="{exact:.1f}" x2="{exact:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#222" stroke-dasharray="4 3"/>']
    for i, (series, (colour, name)) in enumerate(SERIES.items()):
        own = sorted((p for p in all_points if p["series"] == series and p["kl"] > 0), key=lambda p: p["kl"])
        s.append('<polyline stroke="%s" points="%s"/>' % (colour, " ".join(f"{x(across(p)):.1f},{y(p['kl']):.1f}" for p in own)))
        unit = "MB" if by_bytes else "tok/s"
        s += [f'<circle cx="{x(across(p)):.1f}" cy="{y(p["kl"]):.1f}" r="4" fill="{colour}"><title>KL {p["kl"]:.5f}, '
              f'{across(p):.2f} {unit}</title></circle>' for p in own]
        s += [f'<circle cx="{LEFT + 16}" cy="{TOP + 12 + 18 * i}" r="4" fill="{colour}"/>',
              f'<text x="{LEFT + 26}" y="{TOP + 16 + 18 * i}">{name}</text>']
    return "\n".join(s + ["</svg>"]) + "\n"


def draw(args):
    pathlib.Path(args.out).write_text(picture(json.loads(pathlib.Path(args.data).read_text()), args.bytes))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = parser.add_subparsers(required=True)
m = commands.add_parser("measure")
m.add_argument("bitnet")
m.add_argument("report")
m.add_argument("out")
m.add_argument("--most", type=float, default=0.3, help="points that harm more are left out")
m.add_argument("--own", action="store_true", help="the embedded model instead of the 2B-4T shape")
m.set_defaults(run=measure)
u = commands.add_parser("update")
u.add_argument("bitnet")
u.add_argument("--more", action="store_true", help="keep the rounds that are there")
u.set_defaults(run=update, own=False)
for c in (m, u):
    c.add_argument("--rounds", type=int, default=3)
    c.add_argument("--repeat", type=int, default=5)
    c.add_argument("--tokens", type=int, default=32)
    c.add_argument("--threads", type=int, default=2)
    c.add_argument("--tries", type=int, default=3, help="for a measurement that other programs disturb")
    c.add_argument("--backend", default="avx2", help="what most machines have")
d = commands.add_parser("draw")
d.add_argument("data")
d.add_argument("out")
d.set_defaults(run=draw)
for c in (u, d):
    c.add_argument("--bytes", action="store_true", help="bytes instead of tokens a second across the picture")
a = parser.parse_args()
a.run(a)
