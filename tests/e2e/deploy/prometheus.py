#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/ beside what the server measures, by their own tools: promtool, systemd-analyze, and a Prometheus that
looks on while a server is loaded.

usage: prometheus.py BITNET SERVER_METRICS [--only TEXT]

SERVER_METRICS is the unit test of that name, which can print a page of metrics. Output is TAP.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(1, str(ROOT / "tests" / "lib"))
from tap import Tap, find

DEPLOY = ROOT / "deploy"
LOAD_S = 20
QUANTILES = (0.5, 0.9, 0.99)


# ------------------------------------------------------------------ what the files say

def read_def():
    """Metrics {id: (kind, name, labels)} and alerts [(name, metric's name, "max" or "min", {severity: threshold}, text)]."""
    text = (ROOT / "src/server/metrics/metrics.def").read_text()
    text = text[text.index("GAUGE(build_info"):]
    metrics = {}
    for kind, ident, name, labels in re.findall(
            r'^(COUNTER|GAUGE|HISTOGRAM)\((\w+),\s*"(\w+)",\s*(\w+(?:\([^)]*\))?)', text, re.M):
        metrics[ident] = (kind, name, re.findall(r'"(\w+)"', labels))
    alerts = []
    for name, ident, op, warn, critical, words in re.findall(
            r'^ALERT\("(\w+)",\s*(\w+),\s*(ABOVE|BELOW),\s*([\w.]+),\s*([\w.]+),\s*"([^"]+)"\)', text, re.M):
        levels = {k: float(v) for k, v in (("warning", warn), ("critical", critical)) if v != "NEVER"}
        alerts.append((name, metrics[ident][1], "max" if op == "ABOVE" else "min", levels, words))
    assert len(re.findall(r"^(?:COUNTER|GAUGE|HISTOGRAM)\(", text, re.M)) == len(metrics) > 50
    assert len(re.findall(r"^ALERT\(", text, re.M)) == len(alerts) > 5
    return metrics, alerts


def rules():
    """[(group, alert, expression, severity, summary)] of alerts.yml, as it is laid out."""
    found, group = [], None
    for block in re.split(r"(?m)^(?=  - name: |      - alert: )", (DEPLOY / "prometheus/alerts.yml").read_text()):
        name = re.match(r"  - name: (\S+)", block)
        alert = re.match(r"      - alert: (\S+)", block)
        if name:
            group = name[1]
        elif alert:
            expr = re.search(r"^        expr: (?:>-\n)?((?:.|\n          )*)", block, re.M)[1]
            found.append((group, alert[1], " ".join(expr.split()), re.search(r"severity: (\w+)", block)[1],
                          re.search(r'summary: "(.*)"', block)[1]))
    return found


def panels():
    """[(title, expression)] of the dashboard, as Prometheus would get them."""
    board = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    ids = [p["id"] for p in board["panels"]]
    assert len(set(ids)) == len(ids), "panels share an id"
    return [(p["title"], t["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*"))
            for p in board["panels"] for t in p.get("targets", [])]


def said(*args, good=True, **more):
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False, **more)
    assert (r.returncode == 0) == good, f"{' '.join(map(str, args))}: {r.returncode}\n{r.stdout}"
    return r.stdout


def known(expr, metrics):
    """Asserts that every name and label of an expression exists."""
    names = {name: (kind, labels) for kind, name, labels in metrics.values()}
    used = re.findall(r"\b(?:bitnet|process)_\w+", expr)
    assert used or expr.startswith("up{"), f"no metric in {expr}"
    labels = {"instance", "job", "le"}
    for name in used:
        bare = re.sub(r"_(bucket|sum|count)$", "", name)
        kind = names[name][0] if name in names else names.get(bare, ("none",))[0]
        assert name in names or kind == "HISTOGRAM", f"there is no metric {name}: {expr}"
        assert kind != "HISTOGRAM" or name != bare, f"{name} is a histogram: {expr}"
        labels.update(names[bare if kind == "HISTOGRAM" else name][1])
    asked = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expr)
    asked += [label for by in re.findall(r"by \(([^)]*)\)", expr) for label in by.split(", ")]
    assert set(asked) <= labels, f"labels {set(asked) - labels} are not there: {expr}"


# ------------------------------------------------------------------ part A: the files

def test_page(o):
    """promtool finds nothing to say about a page of metrics, which has all of the list."""
    text = said(o.metrics, "--text")
    words = said(find("promtool"), "check", "metrics", input=text)
    assert words == "", words
    told = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    assert told == {name: kind.lower() for kind, name, _ in read_def()[0].values()}, told
    return f"{len(told)} metrics"


def test_names(_):
    metrics, _ = read_def()
    exprs = [e for _, _, e, _, _ in rules()] + [e for _, e in panels()]
    for e in exprs:
        known(e, metrics)
    used = set(re.findall(r"\b(?:bitnet|process)_\w+", " ".join(e for _, e in panels())))
    unseen = [name for _, name, _ in metrics.values() if not any(u.startswith(name) for u in used)]
    assert len(unseen) < 10, f"not on the dashboard: {unseen}"
    return f"{len(exprs)} expressions"


def test_documented(_):
    """docs/serve/metrics.md names every metric with its labels and every alert, and no others."""
    metrics, alerts = read_def()
    page = (ROOT / "docs/serve/metrics.md").read_text()
    tables = "\n".join(re.findall(r"^\| .*$", page, re.M))
    told = {name: labels.split(",") if labels else []
            for name, labels in re.findall(r"`((?:bitnet|process)_\w+)(?:\{([\w,]+)\})?`", tables)}
    assert told == {name: labels for _, name, labels in metrics.values()}, set(told) ^ {m[1] for m in metrics.values()}
    missing = [name for name in {a[0] for a in alerts} | {r[1] for r in rules() if r[0] == "bitnet-service"}
               if f"| {name} |" not in tables]
    assert not missing, f"alerts that are not documented: {missing}"
    return f"{len(told)} metrics"


def test_thresholds(_):
    """The rules for Prometheus warn at the same values as the server itself."""
    ours = {("Bitnet" + name, severity): (f"{pick} by (instance) ({metric}) {'>' if pick == 'max' else '<'} {value:g}", words)
            for name, metric, pick, levels, words in read_def()[1] for severity, value in levels.items()}
    theirs = {(name, severity): (expr, words) for group, name, expr, severity, words in rules() if group == "bitnet-health"}
    assert ours == theirs, f"metrics.def: {ours}\nalerts.yml: {theirs}"
    return f"{len(ours)} thresholds"


def test_config(_):
    promtool = find("promtool")
    said(promtool, "check", "config", "prometheus.yml", cwd=DEPLOY / "prometheus")
    said(promtool, "check", "rules", DEPLOY / "prometheus/alerts.yml")
    with tempfile.TemporaryDirectory() as folder:  # the dashboard's expressions as if they were rules
        lines = [{"record": f"panel_{i}", "expr": e} for i, (_, e) in enumerate(panels())]
        path = pathlib.Path(folder) / "panels.json"
        path.write_text(json.dumps({"groups": [{"name": "panels", "rules": lines}]}))
        said(promtool, "check", "rules", path)
    return f"{len(lines)} expressions of the dashboard are PromQL"


def test_firing(_):
    """Every rule of the table fires beyond its threshold, and not at it."""
    tests = []
    for name, metric, pick, levels, words in read_def()[1]:
        step = 1e-4 if pick == "max" else -1e-4
        for value, beyond in [(v + d, d) for v in levels.values() for d in (0, step)]:
            reached = [k for k, v in levels.items() if (value > v if pick == "max" else value < v)]
            tests.append({
                "interval": "1m",
                "input_series": [{"series": f'{metric}{{instance="a",layer="1"}}', "values": f"{value:.6f}x30"}],
                "alert_rule_test": [{"eval_time": "20m", "alertname": "Bitnet" + name, "exp_alerts": [
                    {"exp_labels": {"severity": s, "instance": "a"},
                     "exp_annotations": {"summary": words, "description": "a: " + humanized(value)}} for s in reached]}]})
            assert bool(reached) or not beyond
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "test.json"
        path.write_text(json.dumps({"rule_files": [str(DEPLOY / "prometheus/alerts.yml")], "evaluation_interval": "1m",
                                    "tests": tests}))
        said(find("promtool"), "test", "rules", path)
    return f"{len(tests)} values"


def humanized(v):
    """As Prometheus' templates write a number between 0 and 1000."""
    if 0 < abs(v) < 1:
        for prefix in ("m", "u"):
            v *= 1000
            if abs(v) >= 1:
                return f"{v:.4g}{prefix}"
    return f"{v:.4g}"


def test_unit(o):
    unit = (DEPLOY / "bitnet.service").read_text()
    config = json.loads((DEPLOY / "config.json").read_text())
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)[1]) > config["drain"], "stopped before it has drained"
    assert int(re.search(r"^LimitNOFILE=(\d+)$", unit, re.M)[1]) > 2 * config["max-connections"]
    analyze = find("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bitnet.service"
        path.write_text(unit.replace("/usr/local/bin/bitnet", os.path.abspath(o.bitnet)))
        words = said(analyze, "verify", path)
    assert "bitnet.service" not in words, words
    return "systemd-analyze has nothing to say"


def test_example_config(o):
    env = {**os.environ, "BITNET_PORT": "18181"}
    shown = said(o.bitnet, "serve", "--config", DEPLOY / "config.json", "--print-config", env=env)
    assert "18181" in shown and "/etc/bitnet/keys" in shown, shown
    return "read, and the environment wins"


# ------------------------------------------------------------------ part B: a server under load

def get(url, parse=json.loads):
    with urllib.request.urlopen(url, timeout=30) as r:
        return parse(r.read().decode())


def wait_for(what, until, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, urllib.error.URLError):
            got = until()
            if got:
                return got
        time.sleep(0.1)
    raise AssertionError(f"{what}: nothing within {seconds} s")


@contextlib.contextmanager
def running(args, log):
    with open(log, "w", encoding="utf-8") as f:
        p = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT)
    try:
        yield p
    finally:
        p.send_signal(signal.SIGTERM)
        try:
            p.wait(30)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


@contextlib.contextmanager
def server(o, folder):
    log = folder / "serve.log"
    with running([o.bitnet, "serve", "--host", "127.0.0.1", "--port", "0"], log) as p:
        def url():
            assert p.poll() is None, log.read_text()
            found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            return found and found[0]
        base = wait_for("serve", url)
        wait_for("/ready", lambda: get(base + "/ready", str))
        yield base


@contextlib.contextmanager
def prometheus(program, folder, target):
    """With the files of deploy/, but for the target and a shorter interval."""
    config = (DEPLOY / "prometheus/prometheus.yml").read_text().replace("127.0.0.1:8080", target).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(DEPLOY / "prometheus/alerts.yml", folder)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    args = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}", "--log.level=warn"]
    with running(args, folder / "prometheus.log"):
        api = f"http://{address}/api/v1/"
        wait_for("Prometheus", lambda: samples(api, 'up{job="bitnet"} == 1'))
        yield api


def samples(api, expr):
    return get(api + "query?" + urllib.parse.urlencode({"query": expr}))["data"]["result"]


def query(api, expr):
    result = samples(api, expr)
    return float(result[0]["value"][1]) if result else 0.0


def close_enough(api, name, q, ms):
    """The quantile by Prometheus' buckets and the load tester's: not farther apart than the bucket is wide, or it and the
    neighbour where the quantile lies near an edge."""
    metric = f"bitnet_{name}_bucket"
    bounds = sorted(float(r["metric"]["le"]) for r in samples(api, metric))
    edges = [0.0] + [b for b in bounds if b != float("inf")]
    v = query(api, f"histogram_quantile({q}, sum by (le) ({metric}))")
    i = max(k for k, e in enumerate(edges[:-1]) if e < v)
    width = edges[i + 1] - edges[i]
    allowed = width
    if v - edges[i] < 0.2 * width and i > 0:
        allowed += edges[i] - edges[i - 1]
    if edges[i + 1] - v < 0.2 * width and i + 2 < len(edges):
        allowed += edges[i + 2] - edges[i + 1]
    line = f"{name} p{q * 100:g}: Prometheus {v * 1000:.2f} ms, load tester {ms:.2f} ms, allowed {allowed * 1000:.2f} ms"
    print("# " + line)
    return None if abs(v - ms / 1000) <= allowed else line


def test_under_load(o):
    program, promtool = find("prometheus"), find("promtool")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with server(o, folder) as base, prometheus(program, folder, base.removeprefix("http://")) as api:
            report = json.loads(subprocess.run(
                [o.bitnet, "loadtest", "--host", base, "--concurrency", "4", "--duration", str(LOAD_S), "--input-len", "40",
                 "--output-len", "40", "--latency-percentiles", "50,90,99", "--json"],
                stdout=subprocess.PIPE, check=True, timeout=LOAD_S + 120).stdout)
            run = report["runs"][0]
            assert run["ok"] >= 20 and run["failed"] == 0, run
            text = get(base + "/metrics", str)
            words = said(promtool, "check", "metrics", input=text)
            assert words == "", words
            ended = float(re.search(r"^bitnet_e2e_request_latency_seconds_count (\S+)$", text, re.M)[1])
            wait_for("the last scrape", lambda: query(api, "bitnet_e2e_request_latency_seconds_count") >= ended)
            assert ended >= run["ok"], f"{ended} answers of {run['ok']}"
            pairs = (("time_to_first_token_seconds", "ttft_ms"), ("inter_token_latency_seconds", "itl_ms"),
                     ("e2e_request_latency_seconds", "e2e_ms"))
            wrong = [close_enough(api, metric, q, run[key][f"p{q * 100:g}"]) for metric, key in pairs for q in QUANTILES]
            wrong = [w for w in wrong if w]
            assert not wrong, "\n".join(wrong)
            bad = [r["name"] for g in get(api + "rules")["data"]["groups"] for r in g["rules"] if r["health"] == "err"]
            assert not bad, f"rules that cannot be computed: {bad}"
            # what the server draws, Prometheus sees: the dashboard's main figure
            assert query(api, "bitnet_generation_tokens_total") >= run["ok"] * run["tokens"]["output_mean"] * 0.99
            empty = [t for t, e in panels() if not samples(api, e)]
            print(f"# panels without data: {empty}")
            assert len(empty) < 8, f"panels without data: {empty}"
    return f"{run['ok']} answers, {len(pairs) * len(QUANTILES)} quantiles agree"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("bitnet")
    p.add_argument("metrics")
    p.add_argument("--only", default="")
    o = p.parse_args()
    cases = [(n, f) for n, f in globals().items() if n.startswith("test_") and o.only in n]
    tap = Tap(len(cases))
    for name, case in cases:
        tap.case(name, case, o)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
