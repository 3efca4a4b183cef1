// SPDX-License-Identifier: Apache-2.0
// What programs that use the @huggingface/inference package see of `bitnet serve`: BITNET_URL, BITNET_KEY say where it is.
import assert from "node:assert/strict";
import test from "node:test";
import { InferenceClient } from "@huggingface/inference";

const client = new InferenceClient(process.env.BITNET_KEY, { endpointUrl: `${process.env.BITNET_URL}/v1` });
const model = "stories-31m";
const messages = [{ role: "user", content: "Tell me a story about a dragon." }];
const ask = { model, messages, max_tokens: 24, seed: 5 };
const weather = { type: "function", function: { name: "get_weather", description: "The weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string", maxLength: 20 } }, required: ["city"] } } };
const text = (r) => r.choices[0].message.content;

test("a chat", async () => {
  const r = await client.chatCompletion(ask);
  assert.ok(text(r).length > 20);
  assert.equal(r.choices[0].finish_reason, "length");
  assert.equal(r.usage.completion_tokens, 24);
});

test("a seed makes answers the same", async () => {
  const [one, again, other] = await Promise.all([5, 5, 6].map((seed) => client.chatCompletion({ ...ask, seed })));
  assert.equal(text(one), text(again));
  assert.notEqual(text(one), text(other));
});

test("a stream", async () => {
  const whole = text(await client.chatCompletion(ask));
  let streamed = "", reason;
  for await (const chunk of client.chatCompletionStream(ask)) {
    streamed += chunk.choices[0]?.delta.content ?? "";
    reason = chunk.choices[0]?.finish_reason ?? reason;
  }
  assert.equal(streamed, whole);
  assert.equal(reason, "length");
});

test("usage in a stream", async () => {
  let usage;
  for await (const chunk of client.chatCompletionStream({ ...ask, stream_options: { include_usage: true } })) usage = chunk.usage ?? usage;
  assert.equal(usage.completion_tokens, 24);
});

test("stop", async () => {
  const whole = text(await client.chatCompletion({ ...ask, temperature: 0 }));
  const word = whole.split(/\s+/)[5];
  const r = await client.chatCompletion({ ...ask, temperature: 0, stop: [word] });
  assert.equal(text(r), whole.slice(0, whole.indexOf(word)));
  assert.equal(r.choices[0].finish_reason, "stop");
});

test("log-probabilities", async () => {
  const r = await client.chatCompletion({ ...ask, max_tokens: 4, logprobs: true, top_logprobs: 2 });
  assert.equal(r.choices[0].logprobs.content.length, 4);
  assert.equal(r.choices[0].logprobs.content[0].top_logprobs.length, 2);
});

test("tools", async () => {
  const r = await client.chatCompletion({ ...ask, tools: [weather], tool_choice: "required", max_tokens: 80 });
  const call = r.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "get_weather");
  assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
  let args = "";
  for await (const c of client.chatCompletionStream({ ...ask, tools: [weather], tool_choice: "required", max_tokens: 80 }))
    args += c.choices[0]?.delta.tool_calls?.[0]?.function.arguments ?? "";
  assert.equal(args, call.function.arguments);
  const after = await client.chatCompletion({ ...ask, messages: [...messages, r.choices[0].message,
    { role: "tool", tool_call_id: call.id, content: "Sun" }] });
  assert.ok(text(after).length > 0);
});

test("a schema", async () => {
  const schema = { type: "object", properties: { kind: { enum: ["cat", "dog"] } }, required: ["kind"] };
  const r = await client.chatCompletion({ ...ask, response_format: { type: "json_schema", json_schema: { name: "pet", schema } } });
  assert.ok(["cat", "dog"].includes(JSON.parse(text(r)).kind));
});

test("parts, system, sampling", async () => {
  const parts = [{ role: "system", content: "You tell stories." },
    { role: "user", content: [{ type: "text", text: "A story " }, { type: "text", text: "about a cat." }] }];
  const r = await client.chatCompletion({ ...ask, messages: parts, temperature: 0.7, top_p: 0.9, presence_penalty: 0.5,
    frequency_penalty: 0.5 });
  assert.ok(text(r).length > 0);
});

test("errors", async () => {
  await assert.rejects(client.chatCompletion({ ...ask, temperature: 9 }), (e) => e.httpResponse.status === 400);
  const stranger = new InferenceClient("hf_wrong", { endpointUrl: `${process.env.BITNET_URL}/v1` });
  await assert.rejects(stranger.chatCompletion(ask), (e) => e.httpResponse.status === 401);
});

test("a stream that is aborted", async () => {
  const stop = new AbortController();
  await assert.rejects(async () => {
    for await (const _ of client.chatCompletionStream({ ...ask, max_tokens: 400 }, { signal: stop.signal })) stop.abort();
  });
  assert.equal((await client.chatCompletion({ ...ask, max_tokens: 1 })).usage.completion_tokens, 1);
});
