// SPDX-License-Identifier: Apache-2.0
// What programs that use the @anthropic-ai/sdk package see of `bitnet serve`: BITNET_URL, BITNET_KEY say where it is.
import assert from "node:assert/strict";
import test from "node:test";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.BITNET_URL, apiKey: process.env.BITNET_KEY, maxRetries: 0 });
const model = "stories-31m";
const messages = [{ role: "user", content: "Tell me a story about a dragon." }];
const ask = { model, messages, max_tokens: 24, seed: 5 };
const weather = {
  name: "get_weather",
  description: "The weather of a city.",
  input_schema: {
    type: "object",
    properties: { city: { type: "string", maxLength: 20 }, unit: { enum: ["celsius", "fahrenheit"] } },
    required: ["city", "unit"],
  },
};
const withTool = { ...ask, tools: [weather], tool_choice: { type: "tool", name: "get_weather" }, max_tokens: 80 };
const text = (message) => message.content.filter((b) => b.type === "text").map((b) => b.text).join("");

test("a message", async () => {
  const r = await client.messages.create(ask);
  assert.equal(r.type, "message");
  assert.equal(r.role, "assistant");
  assert.match(r.id, /^msg_/);
  assert.equal(r.stop_reason, "max_tokens");
  assert.equal(r.stop_sequence, null);
  assert.equal(r.usage.output_tokens, 24);
  assert.match(r._request_id, /^[0-9a-f]{16}$/);
  assert.deepEqual(r.content.map((b) => b.type), ["text"]);
  assert.ok(text(r).length > 20);
  const again = await client.messages.create({ ...ask, messages: [{ role: "user", content: [{ type: "text",
    text: messages[0].content, cache_control: { type: "ephemeral" } }] }], metadata: { user_id: "u" } });
  assert.equal(text(again), text(r));
  assert.equal(again.usage.input_tokens + again.usage.cache_read_input_tokens,
    r.usage.input_tokens + r.usage.cache_read_input_tokens);
});

test("tokens are counted as they are read", async () => {
  const body = { model, messages, system: [{ type: "text", text: "You tell stories." }] };
  const { input_tokens: n } = await client.messages.countTokens(body);
  const r = await client.messages.create({ ...body, max_tokens: 1 });
  assert.equal(n, r.usage.input_tokens + r.usage.cache_read_input_tokens);
  assert.ok(n > (await client.messages.countTokens({ model, messages })).input_tokens);
});

test("a stream is the message in pieces", async () => {
  const whole = await client.messages.create(ask);
  const types = [], stream = client.messages.stream(ask);
  stream.on("streamEvent", (e) => types.push(e.type));
  const final = await stream.finalMessage();
  assert.equal(text(final), text(whole));
  assert.equal(final.stop_reason, "max_tokens");
  assert.equal(final.usage.output_tokens, 24);
  assert.equal(await stream.finalText(), text(whole));
  assert.equal(types[0], "message_start");
  assert.equal(types.at(-1), "message_stop");
  for (const type of ["content_block_start", "content_block_delta", "content_block_stop", "message_delta"])
    assert.ok(types.includes(type), type);
  const raw = [];
  for await (const e of await client.messages.create({ ...ask, stream: true })) raw.push(e);
  assert.equal(raw.filter((e) => e.type === "content_block_delta").map((e) => e.delta.text).join(""), text(whole));
});

test("stop sequences", async () => {
  const whole = text(await client.messages.create(ask));
  const word = whole.split(/\s+/)[4];
  const r = await client.messages.create({ ...ask, stop_sequences: ["never there", word] });
  assert.equal(r.stop_reason, "stop_sequence");
  assert.equal(r.stop_sequence, word);
  assert.equal(text(r), whole.slice(0, whole.indexOf(word)));
  const streamed = await client.messages.stream({ ...ask, stop_sequences: [word] }).finalMessage();
  assert.equal(streamed.stop_sequence, word);
  assert.equal(text(streamed), text(r));
});

test("the answer goes on where the assistant began", async () => {
  const begun = [...messages, { role: "assistant", content: "Once upon a" }];
  const r = await client.messages.create({ ...ask, temperature: 0, messages: begun });
  assert.match(text(r), /^ time/);
});

test("tools", async () => {
  const r = await client.messages.create(withTool);
  assert.equal(r.stop_reason, "tool_use");
  const use = r.content.find((b) => b.type === "tool_use");
  assert.equal(use.name, "get_weather");
  assert.deepEqual(Object.keys(use.input).sort(), ["city", "unit"]);
  const streamed = await client.messages.stream(withTool).finalMessage();
  assert.deepEqual(streamed.content.find((b) => b.type === "tool_use").input, use.input);
  const result = { type: "tool_result", tool_use_id: use.id, content: [{ type: "text", text: "Sun, 20 degrees" }] };
  const after = await client.messages.create({ ...ask, tools: [weather], tool_choice: { type: "none" },
    messages: [...messages, { role: "assistant", content: r.content }, { role: "user", content: [result] }] });
  assert.equal(after.content[0].type, "text");
  const any = await client.messages.create({ ...withTool, tool_choice: { type: "any", disable_parallel_tool_use: true } });
  assert.equal(any.content.filter((b) => b.type === "tool_use").length, 1);
});

test("sampling", async () => {
  const greedy = await client.messages.create({ ...ask, temperature: 0 });
  const narrow = await client.messages.create({ ...ask, temperature: 1, top_k: 1 });
  assert.equal(text(narrow), text(greedy));
  const other = await client.messages.create({ ...ask, temperature: 1, top_p: 0.9, seed: 6 });
  assert.notEqual(text(other), text(greedy));
});

test("a schema", async () => {
  const schema = { type: "object", properties: { age: { type: "integer", minimum: 1, maximum: 99 } }, required: ["age"],
    additionalProperties: false };
  const r = await client.messages.create({ ...ask, output_config: { format: { type: "json_schema", schema } } });
  const { age } = JSON.parse(text(r));
  assert.ok(Number.isInteger(age) && age >= 1 && age <= 99);
});

test("errors", async () => {
  const bad = (body) => client.messages.create({ ...ask, ...body });
  await assert.rejects(bad({ messages: [] }),
    (e) => e instanceof Anthropic.BadRequestError && e.error.type === "error" && e.error.error.type === "invalid_request_error");
  await assert.rejects(bad({ temperature: 9 }), Anthropic.BadRequestError);
  await assert.rejects(bad({ messages: [{ role: "user", content: "dragon ".repeat(2000) }] }), /context/);
  await assert.rejects(bad({ messages: [{ role: "user", content: [{ type: "image",
    source: { type: "base64", media_type: "image/png", data: "" } }] }] }), /image input is not supported/);
  const stranger = new Anthropic({ baseURL: process.env.BITNET_URL, apiKey: "sk-wrong", maxRetries: 0 });
  await assert.rejects(stranger.messages.create(ask),
    (e) => e instanceof Anthropic.AuthenticationError && e.error.error.type === "authentication_error");
  await assert.rejects(stranger.messages.countTokens({ model, messages }), Anthropic.AuthenticationError);
});

test("a tool that only Anthropic's servers have is passed over, and named", async () => {
  const { response } = await client.messages.create({ ...ask, tools: [{ type: "web_search_20250305", name: "web_search" }] })
    .withResponse();
  assert.match(response.headers.get("warnings"), /web_search_20250305/);
});

test("a stream that is aborted", async () => {
  const stream = client.messages.stream({ ...ask, max_tokens: 400 });
  let n = 0;
  stream.on("text", () => { if (++n === 3) stream.abort(); });
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  assert.equal((await client.messages.create({ ...ask, max_tokens: 1 })).usage.output_tokens, 1);
});
