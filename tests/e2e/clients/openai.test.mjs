// SPDX-License-Identifier: Apache-2.0
// What programs that use the openai package see of `bitnet serve`: BITNET_URL, BITNET_KEY say where it is.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import * as z4 from "zod";
import * as z3 from "zod/v3";

const url = process.env.BITNET_URL;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: process.env.BITNET_KEY, maxRetries: 0, timeout: 120_000 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Tell me a story about a dragon." }];
const chat = { model, messages, max_tokens: 24, seed: 5 };
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 20 }, unit: { enum: ["celsius", "fahrenheit"] } },
      required: ["city", "unit"],
    },
  },
};
const withTools = { ...chat, tools: [weather], tool_choice: "required", parallel_tool_calls: false, max_tokens: 80 };

async function metric(name, label = "") {
  const headers = { Authorization: `Bearer ${process.env.BITNET_KEY}` };
  const text = await (await fetch(`${url}/metrics`, { headers })).text();
  const line = text.split("\n").find((l) => l.startsWith(name) && l.includes(label));
  return line ? Number(line.split(" ").pop()) : 0;
}

async function until(what, holds) {
  for (let i = 0; i < 200; i++) {
    if (await holds()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail(`after 10 s still not: ${what}`);
}

async function gather(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const streamed = (chunks) => chunks.map((c) => c.choices[0]?.delta.content ?? "").join("");

function checkArguments(text) {
  const args = JSON.parse(text);
  assert.deepEqual(Object.keys(args).sort(), ["city", "unit"]);
  assert.equal(typeof args.city, "string");
  assert.ok(["celsius", "fahrenheit"].includes(args.unit));
}

test("models", async () => {
  const list = (await client.models.list()).data;
  assert.equal(list.length, 1);
  assert.equal(list[0].object, "model");
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("chat", async () => {
  const r = await client.chat.completions.create(chat);
  assert.equal(r.object, "chat.completion");
  assert.match(r.id, /^chatcmpl-/);
  assert.equal(r.choices.length, 1);
  assert.equal(r.choices[0].message.role, "assistant");
  assert.ok(r.choices[0].message.content.length > 0);
  assert.equal(r.choices[0].finish_reason, "length");
  assert.equal(r.usage.completion_tokens, 24);
  assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + 24);
  const parts = messages[0].content.split("story").join("|story|").split("|").map((text) => ({ type: "text", text }));
  const same = await client.chat.completions.create({ ...chat, messages: [{ role: "user", content: parts }] });
  assert.equal(same.choices[0].message.content, r.choices[0].message.content);
});

test("a seed makes answers the same", async () => {
  const ask = async (seed) => (await client.chat.completions.create({ ...chat, seed })).choices[0].message.content;
  const [one, again, other] = await Promise.all([ask(1), ask(1), ask(2)]);
  assert.equal(one, again);
  assert.notEqual(one, other);
});

test("several answers", async () => {
  const r = await client.chat.completions.create({ ...chat, n: 3 });
  assert.deepEqual(r.choices.map((c) => c.index), [0, 1, 2]);
  assert.equal(new Set(r.choices.map((c) => c.message.content)).size, 3);
  assert.equal(r.usage.completion_tokens, 72);
});

test("log-probabilities", async () => {
  const r = await client.chat.completions.create({ ...chat, max_tokens: 4, logprobs: true, top_logprobs: 3 });
  const tokens = r.choices[0].logprobs.content;
  assert.equal(tokens.length, 4);
  for (const t of tokens) {
    assert.ok(t.logprob <= 0);
    assert.equal(t.top_logprobs.length, 3);
    assert.ok(t.top_logprobs[0].logprob >= t.top_logprobs[2].logprob);
  }
  assert.equal(Buffer.concat(tokens.map((t) => Buffer.from(t.bytes))).toString(), r.choices[0].message.content);
  const c = await client.completions.create({ model, prompt: "Once upon", max_tokens: 3, logprobs: 2 });
  assert.equal(c.choices[0].logprobs.tokens.length, 3);
  assert.ok(Object.keys(c.choices[0].logprobs.top_logprobs[0]).length >= 2);
});

test("completions", async () => {
  const r = await client.completions.create({ model, prompt: ["Once upon a", "The dragon"], max_tokens: 8, seed: 1 });
  assert.equal(r.object, "text_completion");
  assert.deepEqual(r.choices.map((c) => c.index), [0, 1]);
  const one = await client.completions.create({ model, prompt: "Once upon a", max_tokens: 8, seed: 1, echo: true });
  assert.equal(one.choices[0].text, "Once upon a" + r.choices[0].text);
  const word = r.choices[0].text.trim().split(/\s+/)[1];
  const cut = await client.completions.create({ model, prompt: "Once upon a", max_tokens: 8, seed: 1, stop: [word] });
  assert.equal(cut.choices[0].text, r.choices[0].text.slice(0, r.choices[0].text.indexOf(word)));
  assert.equal(cut.choices[0].finish_reason, "stop");
});

test("streams", async () => {
  const whole = await client.chat.completions.create(chat);
  const asked = { ...chat, stream: true, stream_options: { include_usage: true } };
  const chunks = await gather(await client.chat.completions.create(asked));
  assert.ok(chunks.length > 2);
  assert.ok(chunks.every((c) => c.object === "chat.completion.chunk" && c.id === chunks[0].id));
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.equal(streamed(chunks), whole.choices[0].message.content);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, 24);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "length");
  const once = { model, prompt: "Once", max_tokens: 8, seed: 1 };
  const text = await gather(await client.completions.create({ ...once, stream: true }));
  const same = await client.completions.create(once);
  assert.equal(text.map((c) => c.choices[0].text).join(""), same.choices[0].text);
  const several = await gather(await client.chat.completions.create({ ...chat, n: 2, stream: true }));
  assert.deepEqual([...new Set(several.flatMap((c) => c.choices.map((x) => x.index)))].sort(), [0, 1]);
});

test("the package's own gathering of a stream", async () => {
  const whole = await client.chat.completions.create(chat);
  const final = await client.chat.completions.stream(chat).finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
});

test("tools", async () => {
  const r = await client.chat.completions.create(withTools);
  const { message, finish_reason } = r.choices[0];
  assert.equal(finish_reason, "tool_calls");
  assert.equal(message.content, null);
  assert.equal(message.tool_calls.length, 1);
  const call = message.tool_calls[0];
  assert.equal(call.type, "function");
  assert.match(call.id, /^call_/);
  assert.equal(call.function.name, "get_weather");
  checkArguments(call.function.arguments);
  const result = { role: "tool", tool_call_id: call.id, content: "rain" };
  const talk = { ...withTools, messages: [...messages, message, result], tool_choice: "none" };
  const after = await client.chat.completions.create(talk);
  assert.ok(after.choices[0].message.content.length > 0);
  assert.equal(after.choices[0].message.tool_calls, undefined);
  const named = { type: "function", function: { name: "get_weather" } };
  const forced = await client.chat.completions.create({ ...withTools, tool_choice: named });
  checkArguments(forced.choices[0].message.tool_calls[0].function.arguments);
  const free = await client.chat.completions.create({ ...withTools, tool_choice: "auto", max_tokens: 16 });
  assert.ok(free.choices[0].message.content.length > 0);
  assert.equal(free.choices[0].finish_reason, "length");
});

test("tools in a stream", async () => {
  const whole = await client.chat.completions.create(withTools);
  const chunks = await gather(await client.chat.completions.create({ ...withTools, stream: true }));
  const pieces = chunks.flatMap((c) => c.choices[0]?.delta.tool_calls ?? []);
  assert.match(pieces[0].id, /^call_/);
  assert.equal(pieces[0].function.name, "get_weather");
  assert.ok(pieces.every((p) => p.index === 0));
  const text = pieces.map((p) => p.function.arguments ?? "").join("");
  assert.equal(text, whole.choices[0].message.tool_calls[0].function.arguments);
  assert.equal(chunks.map((c) => c.choices[0]?.finish_reason).find(Boolean), "tool_calls");
  const final = await client.chat.completions.stream(withTools).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.tool_calls[0].function.name, "get_weather");
  checkArguments(final.choices[0].message.tool_calls[0].function.arguments);
});

test("json_schema", async () => {
  const properties = { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 0, maximum: 120 } };
  const schema = { type: "object", properties, required: ["name", "age"] };
  const format = { type: "json_schema", json_schema: { name: "person", strict: true, schema } };
  const r = await client.chat.completions.create({ ...chat, max_tokens: 80, response_format: format });
  const person = JSON.parse(r.choices[0].message.content);
  assert.equal(typeof person.name, "string");
  assert.ok(Number.isInteger(person.age) && person.age >= 0 && person.age <= 120);
  assert.equal(r.choices[0].finish_reason, "stop");
  const parsed = await client.chat.completions.parse({ ...chat, max_tokens: 80, response_format: format });
  assert.deepEqual(parsed.choices[0].message.parsed ?? JSON.parse(parsed.choices[0].message.content), person);
  const object = { ...chat, max_tokens: 60, response_format: { type: "json_object" } };
  const any = await client.chat.completions.create(object);
  assert.equal(typeof JSON.parse(any.choices[0].message.content), "object");
});

test("embeddings", async () => {
  const input = ["A dragon flew over the hill.", "Lily had a cake."];
  const packed = await client.embeddings.create({ model, input }); // as base64, which the package unpacks
  const plain = await client.embeddings.create({ model, input, encoding_format: "float" });
  assert.deepEqual(plain.data.map((d) => d.index), [0, 1]);
  for (let i = 0; i < 2; i++) {
    const [a, b] = [packed.data[i].embedding, plain.data[i].embedding];
    assert.equal(a.length, b.length);
    a.forEach((x, k) => assert.ok(Math.abs(x - b[k]) < 1e-6));
    assert.ok(Math.abs(Math.hypot(...b) - 1) < 1e-4);
  }
  assert.ok(plain.usage.prompt_tokens > 0);
});

test("responses", async () => {
  const ask = { model, input: messages[0].content, max_output_tokens: 24, temperature: 0 };
  const r = await client.responses.create(ask);
  assert.equal(r.object, "response");
  assert.ok(r.output_text.length > 0);
  assert.equal(r.output[0].type, "message");
  assert.equal(r.usage.output_tokens, 24);
  assert.equal(r.status, "incomplete"); // 24 tokens are no whole story
  assert.equal(r.incomplete_details.reason, "max_output_tokens");
  const list = await client.responses.create({ ...ask, input: messages, instructions: "Be brief." });
  assert.ok(list.output_text.length > 0);
  const events = await gather(await client.responses.create({ ...ask, stream: true }));
  assert.equal(events[0].type, "response.created");
  assert.ok(["response.completed", "response.incomplete"].includes(events.at(-1).type));
  assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
  const deltas = events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta);
  assert.equal(deltas.join(""), r.output_text);
  assert.equal(events.at(-1).response.output[0].content[0].text, r.output_text);
  const final = await client.responses.stream(ask).finalResponse();
  assert.equal(final.output[0].content[0].text, r.output_text);
});

test("errors", async () => {
  const bad = (body) => client.chat.completions.create({ ...chat, ...body });
  await assert.rejects(bad({ temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(bad({ messages: [] }), OpenAI.BadRequestError);
  await assert.rejects(bad({ temperature: 9 }), (e) => e.status === 400 && e.param === "temperature");
  const { response } = await client.chat.completions.create({ ...chat, frequencypenalty: 1 }).withResponse();
  assert.match(response.headers.get("warnings"), /: frequencypenalty$/);
  const long = [{ role: "user", content: "dragon ".repeat(2000) }];
  await assert.rejects(bad({ messages: long }), OpenAI.BadRequestError);
  await assert.rejects(bad({ temperature: -1, stream: true }), OpenAI.BadRequestError);
  await assert.rejects(client.models.retrieve("no-such-model"), OpenAI.NotFoundError);
  await assert.rejects(client.get("/nothing/here"), OpenAI.NotFoundError);
  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "sk-wrong", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  await assert.rejects(stranger.chat.completions.create(chat), (e) => e.status === 401 && e.code === "invalid_api_key");
});

test("a stream that is aborted costs nothing more", async () => {
  const count = () => metric("bitnet_request_success_total", 'finished_reason="abort"');
  const before = await count();
  const long = { model, prompt: "Once upon a time", max_tokens: 450, ignore_eos: true };
  const stream = await client.completions.create({ ...long, stream: true });
  let chunks = 0;
  for await (const chunk of stream) {
    assert.equal(chunk.object, "text_completion");
    if (++chunks === 2) break; // the package aborts the request
  }
  await until("the server cancelled it", async () => (await count()) === before + 1);
  await until("nothing runs", async () => (await metric("bitnet_num_requests_running")) === 0);
  const stop = new AbortController();
  const waiting = client.completions.create(long, { signal: stop.signal });
  await until("it runs", async () => (await metric("bitnet_num_requests_running")) > 0);
  stop.abort();
  await assert.rejects(waiting, OpenAI.APIUserAbortError);
  await until("the server cancelled that, too", async () => (await count()) === before + 2);
});

for (const [version, z] of Object.entries({ 3: z3, 4: z4 })) {
  const Person = z.object({
    name: z.string().min(1).max(12), age: z.number().int().min(0).max(120), mail: z.string().email().nullable(),
    pets: z.array(z.enum(["cat", "dog", "fish"])).max(2),
  });
  const ask = { model, messages: [{ role: "user", content: "Who is Lily?" }], max_tokens: 250, temperature: 1 };

  test(`zod ${version}: parsed replies`, async () => {
    for (let seed = 0; seed < 3; seed++) {
      const reply = await client.chat.completions.parse({ ...ask, seed, response_format: zodResponseFormat(Person, "person") });
      const { parsed, content } = reply.choices[0].message;
      assert.deepEqual(parsed, Person.parse(JSON.parse(content)));
    }
  });

  test(`zod ${version}: a parsed stream`, async () => {
    const stream = client.chat.completions.stream({ ...ask, seed: 4, response_format: zodResponseFormat(Person, "person") });
    let pieces = 0;
    for await (const _ of stream) pieces++;
    const [{ message }] = (await stream.finalChatCompletion()).choices;
    assert.ok(pieces > 5, `${pieces} pieces`);
    assert.deepEqual(message.parsed, Person.parse(JSON.parse(message.content)));
  });

  test(`zod ${version}: a parsed response`, async () => {
    const reply = await client.responses.parse({
      model, input: "Who is Tom?", max_output_tokens: 250, text: { format: zodTextFormat(Person, "person") },
    });
    assert.deepEqual(reply.output_parsed, Person.parse(JSON.parse(reply.output_text)));
  });

  test(`zod ${version}: functions that run`, async () => {
    const seen = [];
    const look = zodFunction({
      name: "look", description: "looks", parameters: z.object({ where: z.enum(["forest", "house"]) }),
      function: (given) => (seen.push(given.where), "a bear"),
    });
    const runner = client.chat.completions.runTools({
      ...ask, seed: 2, tools: [look], tool_choice: { type: "function", function: { name: "look" } },
    }, { maxChatCompletions: 1 });
    await runner.done();
    assert.ok(seen.length === 1 && ["forest", "house"].includes(seen[0]), JSON.stringify(seen));
    const called = await client.chat.completions.parse({ ...ask, seed: 3, tools: [look], tool_choice: "required" });
    const call = called.choices[0].message.tool_calls[0].function;
    assert.deepEqual(call.parsed_arguments, JSON.parse(call.arguments));
  });
}
