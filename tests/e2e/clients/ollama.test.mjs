// SPDX-License-Identifier: Apache-2.0
// What programs that use the ollama package see of `bitnet serve`: BITNET_URL, BITNET_KEY say where it is.
import assert from "node:assert/strict";
import test from "node:test";
import { Ollama } from "ollama";

const headers = { Authorization: `Bearer ${process.env.BITNET_KEY}` };
const client = new Ollama({ host: process.env.BITNET_URL, headers });
const model = (await client.list()).models[0].name;
const messages = [{ role: "user", content: "Tell me a story about a dragon." }];
const options = { num_predict: 24, seed: 5, num_ctx: 2048 };
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string", enum: ["Paris", "Rome"] } }, required: ["city"] },
  },
};

test("list, ps, show and version tell about the model", async () => {
  const [listed] = (await client.list()).models;
  assert.ok(listed.size > 1e6 && listed.digest.length === 64 && listed.details.family);
  assert.match(listed.details.parameter_size, /^\d+\.\d[MB]$/);
  assert.ok(!Number.isNaN(Date.parse(listed.modified_at)));
  assert.equal((await client.ps()).models[0].name, model);
  const shown = await client.show({ model });
  assert.equal(shown.model_info["general.architecture"], shown.details.family);
  assert.ok(shown.capabilities.includes("completion"));
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

test("a chat, whole", async () => {
  const reply = await client.chat({ model, messages, options });
  assert.equal(reply.message.role, "assistant");
  assert.ok(reply.message.content.length > 0);
  assert.equal(reply.done_reason, "length");
  assert.equal(reply.eval_count, 24);
  assert.ok(reply.prompt_eval_count > 5 && reply.total_duration > 0 && reply.eval_duration > 0);
});

test("a chat as a stream says the same", async () => {
  const whole = await client.chat({ model, messages, options });
  let text = "", last;
  for await (const part of await client.chat({ model, messages, options, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done, true);
  assert.equal(last.eval_count, whole.eval_count);
});

test("texts: through the template, raw, and with a system message", async () => {
  const raw = { model, prompt: "Once upon a time", raw: true, options: { ...options, temperature: 0 } };
  const first = await client.generate(raw), again = await client.generate(raw);
  assert.equal(first.response, again.response);
  assert.ok(first.response.length > 0);
  const templated = await client.generate({ ...raw, raw: false, system: "Be brief." });
  assert.notEqual(templated.prompt_eval_count, first.prompt_eval_count);
  let text = "";
  for await (const part of await client.generate({ ...raw, stream: true })) text += part.response;
  assert.equal(text, first.response);
});

test("stop texts end an answer", async () => {
  const whole = (await client.generate({ model, prompt: "Once upon", raw: true, options })).response;
  const word = whole.trim().split(" ")[3];
  const cut = await client.generate({ model, prompt: "Once upon", raw: true, options: { ...options, stop: [word] } });
  assert.equal(cut.done_reason, "stop");
  assert.equal(cut.response, whole.slice(0, whole.indexOf(word)));
});

test("format: any JSON, and JSON of a schema", async () => {
  const long = { ...options, num_predict: 80 };
  const any = await client.chat({ model, messages, format: "json", options: long });
  assert.equal(typeof JSON.parse(any.message.content), "object");
  const schema = { type: "object", properties: { age: { type: "integer", minimum: 1, maximum: 9 } }, required: ["age"] };
  const one = JSON.parse((await client.chat({ model, messages, format: schema, options: long })).message.content);
  assert.ok(Number.isInteger(one.age) && one.age >= 1 && one.age <= 9);
});

test("a conversation with a call and its result", async () => {
  const talk = [
    ...messages,
    { role: "assistant", content: "", tool_calls: [{ function: { name: "get_weather", arguments: { city: "Rome" } } }] },
    { role: "tool", tool_name: "get_weather", content: "22 degrees" },
  ];
  const reply = await client.chat({ model, messages: talk, tools: [weather], options });
  assert.ok(reply.message.content.length > 0 || reply.message.tool_calls.length > 0);
});

test("a call that must be made has its arguments as an object", async () => {
  for (const stream of [false, true]) {
    const body = { model, messages, tools: [weather], tool_choice: "required", options: { ...options, num_predict: 60 }, stream };
    const reply = await fetch(`${process.env.BITNET_URL}/api/chat`, { method: "POST", headers, body: JSON.stringify(body) });
    const lines = (await reply.text()).trim().split("\n").map((line) => JSON.parse(line));
    const [call] = lines.flatMap((line) => line.message.tool_calls ?? []);
    assert.equal(call.function.name, "get_weather");
    assert.ok(["Paris", "Rome"].includes(call.function.arguments.city));
    assert.equal(lines.at(-1).done_reason, "stop");
  }
});

test("vectors have length 1, one for each text", async () => {
  const { embeddings } = await client.embed({ model, input: ["A cat", "A dog"] });
  assert.equal(embeddings.length, 2);
  for (const e of embeddings) assert.ok(Math.abs(e.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-4);
  const { embedding } = await client.embeddings({ model, prompt: "A cat" });
  assert.equal(embedding.length, embeddings[0].length);
  const longest = await client.embed({ model, input: "word ".repeat(2000) }); // cut off
  assert.equal(longest.embeddings.length, 1);
  await assert.rejects(client.embed({ model, input: "word ".repeat(2000), truncate: false }), /too large/);
});

test("a stream can be left", async () => {
  let n = 0;
  const stream = await client.chat({ model, messages, stream: true, options: { num_predict: 400, seed: 1 } });
  await assert.rejects(async () => {
    for await (const part of stream) if (++n === 2) stream.abort();
  }, { name: "AbortError" });
  assert.ok(n >= 2);
});

test("what is not possible is said", async () => {
  await assert.rejects(client.pull({ model: "llama3" }), /start it with --stored --allow-pull/);
  await assert.rejects(client.delete({ model }), /models are chosen when the server starts/);
  await assert.rejects(client.show({ model: "nowhere" }), { status_code: 404 });
  await assert.rejects(client.chat({ model, messages: [{ role: "user", content: "?", images: ["aGk="] }] }), /text only/);
  await assert.rejects(client.generate({ model, prompt: "a", options: { top_p: "x" } }), { status_code: 400 });
});

test("an empty request loads the model, which is there", async () => {
  assert.equal((await client.generate({ model, prompt: "" })).done_reason, "load");
  assert.equal((await client.chat({ model, messages: [], keep_alive: 0 })).done_reason, "unload");
});
