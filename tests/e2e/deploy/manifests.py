#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes: against the schemas of Kubernetes, the Gateway API and KEDA (npm), against each other, against the
program, and by a client that reads metrics as the endpoint picker does.

usage: manifests.py BITNET FOLDER      FOLDER is for packages of npm. Output is TAP
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(1, str(ROOT / "tests" / "lib"))
import npm
from serving import Server, until
from tap import Missing, Tap, comment, find

try:
    import yaml
except ImportError:
    yaml = None

HERE, MANIFESTS = pathlib.Path(__file__).resolve().parent, ROOT / "deploy/kubernetes"
# kinds that no package of npm has a schema for
WITHOUT_SCHEMA = {"Kustomization", "InferencePool"}
POLLS, POLL_S = 40, 0.05


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def documents():
    """[(file, object)] of all manifests"""
    if not yaml:
        raise Missing("python3-yaml is not installed")
    return [(str(f.relative_to(MANIFESTS)), doc) for f in sorted(MANIFESTS.rglob("*.yaml")) if f.name != "values.yaml"
            for doc in yaml.safe_load_all(f.read_text())]


def one(kind):
    found = [doc for _, doc in documents() if doc["kind"] == kind]
    equal(len(found), 1, f"objects of kind {kind}")
    return found[0]


def ask_schemas(node, folder, docs):
    r = subprocess.run([node, folder / "manifests.mjs"], cwd=folder, check=True, text=True, capture_output=True,
                       input=json.dumps([{"file": f, "doc": d} for f, d in docs]))
    return json.loads(r.stdout)


def schemas(program, folder):
    node, docs = npm.install(HERE, folder), documents()
    said = ask_schemas(node, folder, docs)
    equal(len(said), len(docs), "answers")
    for s in said:
        equal(s["error"], "none" if s["kind"] in WITHOUT_SCHEMA else None, f"{s['file']} {s['kind']}")
    broken = json.loads(json.dumps(one("Deployment")))  # is anything looked at?
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"].pop("port")
    assert "port" in ask_schemas(node, folder, [("broken", broken)])[0]["error"]
    return ", ".join(s["kind"] for s in said)


def each_other(program, folder):
    d, service, budget = one("Deployment"), one("Service"), one("PodDisruptionBudget")
    scaled, pool, route = one("ScaledObject"), one("InferencePool"), one("HTTPRoute")
    pod = d["spec"]["template"]
    container = pod["spec"]["containers"][0]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    for what, selector in (("Deployment", d["spec"]["selector"]["matchLabels"]), ("Service", service["spec"]["selector"]),
                           ("PodDisruptionBudget", budget["spec"]["selector"]["matchLabels"]),
                           ("InferencePool", pool["spec"]["selector"]["matchLabels"])):
        assert selector.items() <= pod["metadata"]["labels"].items(), f"{what} does not select the pods"
    assert service["spec"]["ports"][0]["targetPort"] in ports
    equal(pool["spec"]["targetPorts"][0]["number"], ports["http"], "the pool's port")
    equal(scaled["spec"]["scaleTargetRef"]["name"], d["metadata"]["name"], "what is scaled")
    equal(route["spec"]["rules"][0]["backendRefs"][0]["name"], pool["metadata"]["name"], "where the route goes")
    for f, doc in documents():
        if doc["kind"] == "Kustomization":
            for r in doc["resources"]:
                at = (MANIFESTS / f).parent / r
                assert (at / "kustomization.yaml" if at.is_dir() else at).exists(), f"{f}: no {r}"
    return f"{len(documents())} objects"


def arguments(program, folder):
    """The container's command line is one that the program takes; what Kubernetes waits is enough for it."""
    pod = one("Deployment")["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    with tempfile.TemporaryDirectory() as scratch:
        keys = pathlib.Path(scratch, "keys")
        keys.write_text("sk-1\n")
        keys.chmod(0o600)
        here = {"/models/model.gguf": "embedded", "/keys/keys": str(keys)}
        r = subprocess.run([program, *(here.get(a, a) for a in args), "--print-config"], capture_output=True, text=True)
    equal(r.returncode, 0, r.stderr)
    drain = json.loads(r.stdout)["drain"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + drain, f"killed after it has had {drain} s"
    return f"drain {drain} s"


def queries(program, folder):
    promtool = find("promtool")
    asked = [t["metadata"]["query"] for t in one("ScaledObject")["spec"]["triggers"]]
    rules = {"groups": [{"name": "scale", "rules": [{"record": f"q{i}", "expr": q} for i, q in enumerate(asked)]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as f:
        yaml.safe_dump(rules, f)
        f.flush()
        subprocess.run([promtool, "check", "rules", f.name], check=True, capture_output=True)
    with Server(program, "--no-warm-up") as s:
        page = s.get("/metrics").body.decode()
    names = {n for q in asked for n in re.findall(r"bitnet_\w+", q)}
    equal(len(names), 2, "metrics asked for")
    for n in names:
        assert re.search(rf"^{n}[ {{]", page, re.M), f"the server has no {n}"
    return ", ".join(sorted(names))


def samples(page, name):
    """[(labels, value)] of a metric"""
    found = []
    for labels, value in re.findall(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)$", page, re.M):
        found.append((dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value)))
    return found


def picker(program, folder):
    """The endpoint picker asks every 50 ms, whatever the engine does."""
    values = yaml.safe_load((MANIFESTS / "inference-gateway/values.yaml").read_text())["inferenceExtension"]
    config = yaml.safe_load(values["pluginsCustomConfig"][values["pluginsConfigFile"]])
    plugins = {p["type"]: p.get("parameters", {}) for p in config["plugins"]}
    for ref in config["schedulingProfiles"][0]["plugins"]:
        assert ref["pluginRef"] in plugins, f"no plugin {ref}"
    extractor = plugins["core-metrics-extractor"]
    engine = next(e for e in extractor["engineConfigs"] if e["name"] == extractor["defaultEngine"])
    label = one("Deployment")["spec"]["template"]["metadata"]["labels"]["llm-d.ai/engine-type"]
    equal(label, engine["name"], "the pods' label")
    times, running, waiting = [], [], []
    body = {"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True}
    with Server(program, "--no-warm-up", "--metrics-compat", "vllm", "--max-num-seqs", 4, "--max-queue", 64) as s:
        models = s.get("/v1/models").json()
        assert models["object"] == "list" and models["data"][0]["id"], models
        ended = threading.Event()

        def load():
            while not ended.is_set():
                s.post("/v1/completions", body)

        clients = [threading.Thread(target=load) for _ in range(8)]
        for c in clients:
            c.start()
        try:
            until("all places are taken", lambda: s.metric("bitnet_num_requests_running") == 4)
            for _ in range(POLLS):
                begun = time.monotonic()
                page = s.get(plugins["metrics-data-source"]["path"]).body.decode()
                times.append(time.monotonic() - begun)
                for spec in ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "loraSpec", "cacheInfoSpec"):
                    equal(len(samples(page, engine[spec])), 1, f"samples of {engine[spec]}")
                waiting.append(samples(page, engine["queuedRequestsSpec"])[0][1])
                running.append(samples(page, engine["runningRequestsSpec"])[0][1])
                assert 0 <= samples(page, engine["kvUsageSpec"])[0][1] <= 1
                info = samples(page, engine["cacheInfoSpec"])[0][0]
                assert int(info["block_size"]) > 0 and int(info["num_gpu_blocks"]) > 0, info
                lora = samples(page, engine["loraSpec"])[0][0]
                assert {"max_lora", "running_lora_adapters", "waiting_lora_adapters"} <= lora.keys(), lora
                time.sleep(max(0, POLL_S - times[-1]))
        finally:
            ended.set()
            for c in clients:
                c.join()
    assert max(running) == 4 and max(waiting) >= 1, f"running {running}, waiting {waiting}"
    times.sort()
    return f"{POLLS} polls, median {1e3 * times[POLLS // 2]:.1f} ms, slowest {1e3 * times[-1]:.1f} ms"


def main():
    program, folder = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    cases = (schemas, each_other, arguments, queries, picker)
    tap = Tap(len(cases))
    for case in cases:
        tap.case(case.__name__.replace("_", " "), case, program, folder)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
