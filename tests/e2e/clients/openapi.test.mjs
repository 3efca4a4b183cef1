// SPDX-License-Identifier: Apache-2.0
// /openapi.json: a valid document, judged by @seriousme/openapi-schema-validator, that says what the server does: every path
// of it is there, with its methods and no others, and bodies of its schemas are taken.
import assert from "node:assert/strict";
import test from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import Ajv2020 from "ajv/dist/2020.js";

const base = process.env.BITNET_URL, key = { Authorization: `Bearer ${process.env.BITNET_KEY}` };
const api = await (await fetch(`${base}/openapi.json`)).json();
const operations = Object.entries(api.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path: path.replace("{id}", "0"), method, operation })));
const ask = (path, method, headers = key, body = method === "get" ? undefined : "nothing") =>
  fetch(base + path, { method: method.toUpperCase(), headers, body });

test("it is OpenAPI 3.1", async () => {
  const result = await new Validator().validate(structuredClone(api));
  assert.ok(result.valid, JSON.stringify(result.errors));
  assert.equal(api.openapi, "3.1.0");
  assert.ok(operations.length > 40, `${operations.length} operations`);
  const ids = operations.map((o) => o.operation.operationId);
  assert.equal(new Set(ids).size, ids.length, "ids differ");
});

test("every path is there", async () => {
  for (const { path, method } of operations) {
    const status = (await ask(path, method)).status;
    assert.ok(path.includes("/models/0") ? status === 404 : ![404, 405].includes(status), `${method} ${path}: ${status}`);
  }
});

test("and has no other method", async () => {
  for (const { path } of operations)
    for (const method of ["get", "post", "delete", "put", "patch"]) {
      const known = operations.some((o) => o.path === path && o.method === method);
      if (!known) assert.equal((await ask(path, method)).status, 405, `${method} ${path}`);
    }
});

test("a key is asked for where it says so", async () => {
  for (const { path, method, operation } of operations) {
    const open = operation.security?.length === 0;
    assert.equal((await ask(path, method, {})).status === 401, !open, `${method} ${path}`);
  }
});

test("bodies of its schemas are taken, others not", async () => {
  const ajv = new Ajv2020({ strict: false });
  const bodies = {
    ChatRequest: ["/v1/chat/completions", { messages: [{ role: "user", content: "Hello" }], max_tokens: 2, top_k: 3, stream: false }],
    CompletionRequest: ["/v1/completions", { prompt: "Once", max_tokens: 2, echo: true, logit_bias: { 5: 1 }, min_p: 0.1 }],
    ResponseRequest: ["/v1/responses", { input: "Hello", max_output_tokens: 2, metadata: {}, temperature: 0 }],
  };
  for (const [name, [path, body]] of Object.entries(bodies)) {
    const schema = api.components.schemas[name], valid = ajv.compile(schema);
    const post = (b) => ask(path, "post", { ...key, "Content-Type": "application/json" }, JSON.stringify(b));
    assert.ok(valid(body), JSON.stringify(valid.errors));
    assert.equal((await post(body)).status, 200, name);
    for (const [member, of] of Object.entries(schema.properties)) {
      if (!of.type) continue; // a type that it says is a type that is checked
      const wrong = { ...body, [member]: of.type === "object" ? "x" : {} };
      assert.ok(!valid(wrong), `${name}: ${member}`);
      const status = (await post(wrong)).status;
      assert.equal(status, 400, `${name}: ${member} as ${JSON.stringify(wrong[member])} gives ${status}`);
    }
  }
});
