// SPDX-License-Identifier: Apache-2.0
// What programs that use the @langchain/openai package see of `bitnet serve`: BITNET_URL, BITNET_KEY say where it is.
import assert from "node:assert/strict";
import test from "node:test";
import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { StringOutputParser } from "@langchain/core/output_parsers";
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";

const configuration = { baseURL: `${process.env.BITNET_URL}/v1` };
const options = { model: "stories-31m", apiKey: process.env.BITNET_KEY, configuration, maxRetries: 0, maxTokens: 24 };
const chat = new ChatOpenAI({ ...options, temperature: 0, modelKwargs: { seed: 5 } });
const long = new ChatOpenAI({ ...options, temperature: 1, maxTokens: 80, modelKwargs: { seed: 5 } });
const story = "Tell me a story about a dragon.";
const weather = tool(async ({ city }) => `Sun in ${city}`, {
  name: "get_weather",
  description: "The weather of a city.",
  schema: z.object({ city: z.string().max(20), unit: z.enum(["celsius", "fahrenheit"]) }),
});

test("invoke", async () => {
  const r = await chat.invoke(story);
  assert.ok(r.content.length > 20);
  assert.equal(r.usage_metadata.output_tokens, 24);
  assert.equal(r.response_metadata.finish_reason, "length");
});

test("messages", async () => {
  const r = await chat.invoke([new SystemMessage("You tell stories."), new HumanMessage("Hello"), new AIMessage("Hi"),
    new HumanMessage([{ type: "text", text: story }])]);
  assert.ok(r.content.length > 0);
  assert.ok(r.usage_metadata.input_tokens > 20);
});

test("a stream", async () => {
  const whole = (await chat.invoke(story)).content;
  let text = "", usage;
  for await (const chunk of await chat.stream(story)) {
    text += chunk.content;
    usage = chunk.usage_metadata ?? usage;
  }
  assert.equal(text, whole);
  assert.equal(usage.output_tokens, 24);
});

test("a batch", async () => {
  const replies = await chat.batch([story, "Tell me about a cat.", story]);
  assert.equal(replies[0].content, replies[2].content);
  assert.notEqual(replies[0].content, replies[1].content);
});

test("a chain", async () => {
  const prompt = ChatPromptTemplate.fromMessages([["system", "You tell stories."], ["human", "One about {what}."]]);
  const chain = prompt.pipe(chat).pipe(new StringOutputParser());
  const text = await chain.invoke({ what: "a dragon" });
  assert.ok(text.length > 0);
  let streamed = "";
  for await (const piece of await chain.stream({ what: "a dragon" })) streamed += piece;
  assert.equal(streamed, text);
});

test("stop", async () => {
  const whole = (await chat.invoke(story)).content;
  const word = whole.split(/\s+/)[5];
  const r = await chat.invoke(story, { stop: [word] });
  assert.equal(r.content, whole.slice(0, whole.indexOf(word)));
});

test("tools", async () => {
  const bound = long.bindTools([weather], { tool_choice: "required", parallel_tool_calls: false });
  const r = await bound.invoke(story);
  assert.equal(r.tool_calls.length, 1);
  assert.equal(r.tool_calls[0].name, "get_weather");
  const result = await weather.invoke(r.tool_calls[0]);
  assert.ok(result instanceof ToolMessage);
  const after = await long.bindTools([weather], { tool_choice: "none" }).invoke([new HumanMessage(story), r, result]);
  assert.ok(after.content.length > 0);
  assert.equal(after.tool_calls.length, 0);
});

test("tools in a stream", async () => {
  const bound = long.bindTools([weather], { tool_choice: "get_weather" });
  let all;
  for await (const chunk of await bound.stream(story)) all = all ? all.concat(chunk) : chunk;
  assert.equal(all.tool_calls[0].name, "get_weather");
  assert.ok(["celsius", "fahrenheit"].includes(all.tool_calls[0].args.unit));
});

test("structured output", async () => {
  const schema = z.object({ name: z.string().max(10), kind: z.enum(["cat", "dog"]) });
  for (const method of ["jsonSchema", "functionCalling"]) {
    const r = await long.withStructuredOutput(schema, { name: "pet", method }).invoke(story);
    assert.equal(schema.safeParse(r).success, true, method);
  }
});

test("log-probabilities, several answers", async () => {
  const bound = new ChatOpenAI({ ...options, temperature: 1, n: 2, logprobs: true, topLogprobs: 2, maxTokens: 4 });
  const { generations } = await bound.generate([[new HumanMessage(story)]]);
  assert.equal(generations[0].length, 2);
  assert.equal(generations[0][0].message.response_metadata.logprobs.content.length, 4);
});

test("completions", async () => {
  const r = await new OpenAI({ ...options, model: "stories-31m", temperature: 0 }).invoke("Once upon a");
  assert.match(r, /^ time/);
});

test("embeddings", async () => {
  const embeddings = new OpenAIEmbeddings({ apiKey: options.apiKey, configuration, model: "stories-31m", dimensions: 64 });
  const [one, two] = await embeddings.embedDocuments(["A cat", "A dog"]);
  assert.equal(one.length, 64);
  assert.notDeepEqual(one, two);
  assert.deepEqual(await embeddings.embedQuery("A cat"), one);
});

test("errors", async () => {
  await assert.rejects(new ChatOpenAI({ ...options, temperature: 9 }).invoke(story), (e) => e.status === 400);
  await assert.rejects(new ChatOpenAI({ ...options, apiKey: "sk-wrong" }).invoke(story), (e) => e.status === 401);
});
