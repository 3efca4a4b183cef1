#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harm against speed. `bitnet calibrate --curve` measures harm on the embedded model, whose sparsity is real but whose
weights fit the caches; speed is measured on the 2B-4T shape with the same shares of open gates and inputs (`bench
--synthetic 2b-4t --ffn-density`), whose weights come from memory. Points take turns, round after round; of each the best
round counts, as other programs only ever slow it down.

    bitnet calibrate --dataset val.txt --kl-budget 0.01 --savings codes,gates --curve 0.001,0.002,… --output-dir c
    tools/calibrate_curve.py measure build/bitnet c/report.json docs/tune/calibrate_curve.json --rounds 3
    tools/calibrate_curve.py draw docs/tune/calibrate_curve.json docs/img/calibrate.svg"""
import argparse
import json
import math
import subprocess
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 80, 30, 50, 60
SERIES = {"plan": ("#1565c0", "chosen layer by layer"), "uniform": ("#c62828", "the same step in every layer"),
          "exact": ("#222222", "exact")}


def density(layers):
    """As synth takes it: random gates open up to a half, and two thirds of these have an input that is not zero."""
    shares = ((min(l["gates_open"], 0.5), max(l["inputs_nonzero"], 0.001)) for l in layers)
    return ",".join(f"{gates:.4f}:{min(inputs, 0.65 * gates):.4f}" for gates, inputs in shares)


def points(report):
    exact = [{"gates_open": l["gates_open"], "inputs_nonzero": 1 - l["inputs"]["down"]["zero_share"]}
             for l in report["layers"]]
    yield {"series": "exact", "kl": 0.0, "kl_stderr": 0.0, "density": density(exact)}
    for series, key in (("plan", "curve"), ("uniform", "uniform")):
        for t in report[key]:
            yield {"series": series, "label": t.get("kl_budget", t.get("step")), "kl": t["heldout"]["kl_mean"],
                   "kl_stderr": t["heldout"]["kl_stderr"], "density": density(t["density"])}


def speed(bitnet, shares, args):
    command = [bitnet, "bench", "--synthetic", "2b-4t", "--ffn-density", shares, "--mode", "stream", "-n", str(args.tokens),
               "--threads", str(args.threads), "--warmup", "1", "--repeat", str(args.repeat), "--json"]
    r = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    stream = next(m for m in r["measurements"] if m["mode"] == "stream")
    return max(stream["repeats"]), stream["bytes_per_token"], r


def measure(args):
    report = json.load(open(args.report))
    found = [p for p in points(report) if p["kl"] <= args.most]
    for _ in range(args.rounds):
        for p in found:
            best, p["bytes"], r = speed(args.bitnet, p["density"], args)
            p["tok_s"] = max(p.get("tok_s", 0), best)
            print(f"{p['series']:8} {p.get('label', '')!s:6} KL {p['kl']:.5f}  {p['tok_s']:.2f} tok/s", file=sys.stderr)
    machine = r["machine"]["cpu"]
    out = {"machine": machine, "threads": args.threads, "date": r["date"], "rounds": args.rounds,
           "tokens": args.tokens, "samples": report["samples"], "points": found}
    with open(args.out, "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


def draw(args):
    data = json.load(open(args.data))
    all_points = data["points"]
    exact = all_points[0]["tok_s"]
    kls = [p["kl"] for p in all_points if p["kl"] > 0]
    low, high = math.floor(math.log10(min(kls))), math.ceil(math.log10(max(kls)))
    slow, fast = exact * 0.97, max(p["tok_s"] for p in all_points) * 1.02

    def x(tok_s):
        return LEFT + (tok_s - slow) / (fast - slow) * (WIDTH - LEFT - RIGHT)

    def y(kl):
        at = (math.log10(kl) - low) / (high - low) if kl > 0 else 0
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - at)

    s = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
         "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.mid{text-anchor:middle}"
         ".end{text-anchor:end}.grid{stroke:#ddd}polyline{fill:none;stroke-width:1.5}</style>",
         f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
         f'<text x="{LEFT}" y="24" class="title">Harm on held-out text against decoding speed, 2B-4T shape</text>']
    for e in range(low, high + 1):
        s += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10 ** e):.1f}" y2="{y(10 ** e):.1f}" class="grid"/>',
              f'<text x="{LEFT - 8}" y="{y(10 ** e) + 4:.1f}" class="end">{10 ** e:g}</text>']
    for i in range(6):
        v = slow + (fast - slow) * i / 5
        s.append(f'<text x="{x(v):.1f}" y="{HEIGHT - BOTTOM + 20}" class="mid">{v:.1f}</text>')
    s += [f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" class="mid">tokens a second, {data["threads"]} threads</text>',
          f'<text x="22" y="{HEIGHT / 2}" class="mid" transform="rotate(-90 22 {HEIGHT / 2})">mean KL, nats</text>',
          f'<line x1="{x(exact):.1f}" x2="{x(exact):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#222" stroke-dasharray="4 3"/>']
    for i, (series, (colour, name)) in enumerate(SERIES.items()):
        own = sorted((p for p in all_points if p["series"] == series and p["kl"] > 0), key=lambda p: p["kl"])
        s.append('<polyline stroke="%s" points="%s"/>' % (colour, " ".join(f"{x(p['tok_s']):.1f},{y(p['kl']):.1f}" for p in own)))
        s += [f'<circle cx="{x(p["tok_s"]):.1f}" cy="{y(p["kl"]):.1f}" r="4" fill="{colour}"><title>KL {p["kl"]:.5f}, '
              f'{p["tok_s"]:.2f} tok/s</title></circle>' for p in own]
        s += [f'<circle cx="{LEFT + 16}" cy="{TOP + 12 + 18 * i}" r="4" fill="{colour}"/>',
              f'<text x="{LEFT + 26}" y="{TOP + 16 + 18 * i}">{name}</text>']
    s.append("</svg>")
    with open(args.out, "w") as f:
        f.write("\n".join(s) + "\n")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = parser.add_subparsers(required=True)
m = commands.add_parser("measure")
m.add_argument("bitnet")
m.add_argument("report")
m.add_argument("out")
m.add_argument("--rounds", type=int, default=3)
m.add_argument("--repeat", type=int, default=3)
m.add_argument("--tokens", type=int, default=32)
m.add_argument("--threads", type=int, default=2)
m.add_argument("--most", type=float, default=0.3, help="points that harm more are left out")
m.set_defaults(run=measure)
d = commands.add_parser("draw")
d.add_argument("data")
d.add_argument("out")
d.set_defaults(run=draw)
a = parser.parse_args()
a.run(a)
