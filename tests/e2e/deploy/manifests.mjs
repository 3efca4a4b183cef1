// SPDX-License-Identifier: Apache-2.0
// Standard input: [{file, doc}], objects of Kubernetes. Standard output: [{file, kind, error}]; error: what the schema of
// this kind says, null if it fits, "none" if there is no schema.
import { readFileSync } from 'node:fs';

const packages = { 'gateway.networking.k8s.io': '@kubernetes-models/gateway-api', 'keda.sh': '@kubernetes-models/keda' };

async function check(doc) {
  const [group, version] = doc.apiVersion.includes('/') ? doc.apiVersion.split('/') : ['', doc.apiVersion];
  const from = packages[group] ?? 'kubernetes-models';
  let model;
  try {
    model = (await import([from, group, version, doc.kind].filter(Boolean).join('/')))[doc.kind];
  } catch (e) {
    return 'none';
  }
  try {
    new model(doc).validate();
    return null;
  } catch (e) {
    return e.message;
  }
}

const out = [];
for (const { file, doc } of JSON.parse(readFileSync(0))) out.push({ file, kind: doc.kind, error: await check(doc) });
console.log(JSON.stringify(out));
