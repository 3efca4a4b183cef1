// SPDX-License-Identifier: Apache-2.0
// What programs that use the ai package with @ai-sdk/openai-compatible see of `bitnet serve`: BITNET_URL, BITNET_KEY say
// where it is.
import assert from "node:assert/strict";
import test from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, embedMany, generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({ name: "bitnet", baseURL: `${process.env.BITNET_URL}/v1`,
  apiKey: process.env.BITNET_KEY, includeUsage: true, supportsStructuredOutputs: true });
const model = provider("stories-31m");
const ask = { model, prompt: "Tell me a story about a dragon.", maxOutputTokens: 24, seed: 5, maxRetries: 0 };
const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string().max(20), unit: z.enum(["celsius", "fahrenheit"]) }),
  execute: async ({ city }) => `Sun in ${city}`,
});

test("text", async () => {
  const r = await generateText(ask);
  assert.ok(r.text.length > 20);
  assert.equal(r.finishReason, "length");
  assert.equal(r.usage.outputTokens, 24);
  assert.ok(r.usage.inputTokens > 0);
});

test("a seed makes answers the same", async () => {
  const [one, again, other] = await Promise.all([5, 5, 6].map((seed) => generateText({ ...ask, seed, temperature: 1 })));
  assert.equal(one.text, again.text);
  assert.notEqual(one.text, other.text);
});

test("a stream", async () => {
  const whole = await generateText(ask);
  const r = streamText(ask);
  let text = "";
  for await (const piece of r.textStream) text += piece;
  assert.equal(text, whole.text);
  assert.equal(await r.finishReason, "length");
  assert.equal((await r.usage).outputTokens, 24);
});

test("messages, system, stop", async () => {
  const whole = (await generateText({ ...ask, temperature: 0 })).text;
  const word = whole.split(/\s+/)[5];
  const r = await generateText({ ...ask, temperature: 0, stopSequences: [word] });
  assert.equal(r.finishReason, "stop");
  assert.equal(r.text, whole.slice(0, whole.indexOf(word)));
  const messages = [{ role: "user", content: [{ type: "text", text: "Hello" }] }, { role: "assistant", content: "Hi" },
    { role: "user", content: "A story, please." }];
  const talk = await generateText({ ...ask, prompt: undefined, system: "You tell stories.", messages });
  assert.ok(talk.text.length > 0);
  assert.ok(talk.usage.inputTokens > 20);
});

test("tools", async () => {
  const r = await generateText({ ...ask, tools: { weather }, toolChoice: "required", maxOutputTokens: 80 });
  assert.equal(r.finishReason, "tool-calls");
  assert.equal(r.toolCalls[0].toolName, "weather");
  assert.ok(["celsius", "fahrenheit"].includes(r.toolCalls[0].input.unit));
  assert.equal(r.toolResults[0].output, `Sun in ${r.toolCalls[0].input.city}`);
});

test("a loop of tools", async () => {
  const r = await generateText({ ...ask, tools: { weather }, maxOutputTokens: 80, stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: "tool", toolName: "weather" } : "none" }) });
  assert.equal(r.steps.length, 2);
  assert.equal(r.steps[0].toolCalls.length, 1);
  assert.equal(r.steps[1].toolCalls.length, 0);
});

test("tools in a stream", async () => {
  const r = streamText({ ...ask, tools: { weather }, toolChoice: "required", maxOutputTokens: 80 });
  const parts = [];
  for await (const part of r.fullStream) parts.push(part.type);
  assert.ok(parts.includes("tool-input-delta") && parts.includes("tool-call") && parts.includes("tool-result"));
  assert.equal((await r.toolCalls)[0].toolName, "weather");
});

test("objects", async () => {
  const schema = z.object({ name: z.string().max(10), age: z.number().min(1).max(99), kind: z.enum(["cat", "dog"]) });
  const { output } = await generateText({ ...ask, maxOutputTokens: 80, output: Output.object({ schema }) });
  assert.equal(schema.safeParse(output).success, true);
  const streamed = streamText({ ...ask, maxOutputTokens: 80, output: Output.object({ schema }) });
  let last;
  for await (last of streamed.partialOutputStream);
  assert.equal(schema.safeParse(last).success, true);
});

test("embeddings", async () => {
  const embedder = provider.embeddingModel("stories-31m");
  const { embedding } = await embed({ model: embedder, value: "A cat" });
  const { embeddings } = await embedMany({ model: embedder, values: ["A cat", "A dog"] });
  assert.equal(embeddings.length, 2);
  assert.deepEqual(embeddings[0], embedding);
});

test("completions", async () => {
  const r = await generateText({ ...ask, model: provider.completionModel("stories-31m"), prompt: "Once upon a" });
  assert.ok(r.text.length > 0);
});

test("errors", async () => {
  await assert.rejects(generateText({ ...ask, temperature: 9 }), (e) => e.statusCode === 400 && /0 to 5/.test(e.message));
  const stranger = createOpenAICompatible({ name: "bitnet", baseURL: `${process.env.BITNET_URL}/v1`, apiKey: "sk-wrong" });
  await assert.rejects(generateText({ ...ask, model: stranger("stories-31m") }), (e) => e.statusCode === 401);
});
