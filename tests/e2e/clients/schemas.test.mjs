// SPDX-License-Identifier: Apache-2.0
// Replies in the form of schemas as zod 3 and 4, the openai package's helpers and pydantic write them
// (BITNET_DATA/dialects), and of schemas that zod makes here and now, judged by ajv.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import OpenAI from "openai";
import * as z from "zod";
import { validator } from "./judge.mjs";

const EVERY = 3; // of the recorded schemas; the others are drawn from without a model by tests/e2e/grammar
const client = new OpenAI({
  baseURL: `${process.env.BITNET_URL}/v1`, apiKey: process.env.BITNET_KEY, maxRetries: 0, timeout: 240_000,
});
const model = (await client.models.list()).data[0].id;
// cannot be listed: sets of any strings
const refused = new Set(["zod3:setStrings"]);

async function judge({ name, schema }) {
  let reply;
  try {
    reply = await client.chat.completions.create({
      model, messages: [{ role: "user", content: "Tell me a story about a dragon." }], seed: 7, n: 2, max_tokens: 200,
      temperature: 1, response_format: { type: "json_schema", json_schema: { name: "form", schema } },
    });
  } catch (e) {
    assert.ok(refused.has(name) || /there is room for/.test(e.message), `${name}: ${e.message}`);
    return 0;
  }
  assert.ok(!refused.has(name), `${name} is not refused any more`);
  const valid = validator(schema);
  for (const { message, finish_reason } of reply.choices) {
    assert.equal(finish_reason, "stop", `${name}: ${message.content}`);
    assert.ok(valid(JSON.parse(message.content)), `${name}: ${message.content} ${JSON.stringify(valid.errors)}`);
  }
  return reply.choices.length;
}

const lines = (file) => readFileSync(`${process.env.BITNET_DATA}/dialects/${file}`, "utf8").trim().split("\n");

for (const file of readdirSync(`${process.env.BITNET_DATA}/dialects`).filter((f) => f.endsWith(".jsonl")))
  test(`replies in the forms of ${file} are valid`, async () => {
    const forms = lines(file).map((l) => JSON.parse(l)).filter((_, i) => file !== "zod.jsonl" || i % EVERY === 0);
    const counts = [];
    while (forms.length) counts.push(...(await Promise.all(forms.splice(0, 8).map(judge))));
    assert.ok(counts.filter((n) => n > 0).length >= 0.9 * counts.length, "few schemas leave room for a reply");
  });

test("a schema that zod makes now, parsed by zod", async () => {
  const form = z.object({
    id: z.uuid(), email: z.email().max(40), when: z.iso.datetime(), age: z.int().min(0).max(150),
    tags: z.array(z.enum(["a", "b"])).max(3), size: z.number().multipleOf(0.5).min(0).max(4),
  });
  const reply = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "Who is it?" }], max_tokens: 300, seed: 3,
    response_format: { type: "json_schema", json_schema: { name: "who", schema: z.toJSONSchema(form) } },
  });
  form.parse(JSON.parse(reply.choices[0].message.content));
});

test("other servers' words for it", async () => {
  const ask = async (extra) => (await client.completions.create(
    { model, prompt: "Once", max_tokens: 60, seed: 4, ...extra })).choices[0].text;
  const schema = { type: "object", properties: { n: { type: "integer", minimum: 3, maximum: 5 } }, required: ["n"] };
  for (const extra of [{ guided_json: schema }, { guided_json: JSON.stringify(schema) }, { json_schema: schema },
    { structured_outputs: { json: schema } }, { response_format: { type: "json_object", schema } },
    { response_format: { type: "json_schema", schema } }])
    assert.ok([3, 4, 5].includes(JSON.parse(await ask(extra)).n), JSON.stringify(extra));
  for (const extra of [{ guided_regex: "[a-c]{3}-\\d+" }, { structured_outputs: { regex: "^[a-c]{3}-\\d+$" } }])
    assert.match(await ask(extra), /^[a-c]{3}-\d+$/);
  for (const extra of [{ guided_choice: ["yes", "\"no\"\\"] }, { structured_outputs: { choice: ["yes", "\"no\"\\"] } }])
    assert.ok(["yes", "\"no\"\\"].includes(await ask(extra)));
  for (const extra of [{ guided_grammar: 'root ::= "a" "b"' }, { structured_outputs: { grammar: 'root ::= "ab"' } }])
    assert.equal(await ask(extra), "ab");
  assert.equal(typeof JSON.parse(await ask({ structured_outputs: { json_object: true } })), "object");
  await assert.rejects(ask({ guided_json: schema, guided_regex: "a" }), /2 of grammar, json_schema/);
  await assert.rejects(ask({ guided_json: { items: "x" } }), /at '#': 'items' is not a schema/);
});
