// SPDX-License-Identifier: Apache-2.0
// Texts beside ajv, a validator that is not ours: node judge.mjs FILE. A line of FILE is {"name", "schema", "texts"}; for each
// comes one with "invalid", the texts that do not parse or fit, with the reason, or "error": ajv does not take the schema.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

export function validator(schema) {
  if (typeof schema === "boolean") return () => schema;
  const Draft = schema.$schema?.includes("draft-07") ? Ajv : Ajv2020;
  const { $schema, ...rest } = schema;
  for (const unicodeRegExp of [true, false]) { // zod writes a pattern or two that the flag u refuses
    const ajv = new Draft({ strict: false, unicodeRegExp, multipleOfPrecision: 9, ownProperties: true, logger: false });
    addFormats(ajv);
    try {
      return ajv.compile(rest);
    } catch (e) {
      if (!unicodeRegExp) throw e;
    }
  }
}

function judge({ name, schema, texts }) {
  let valid;
  try {
    valid = validator(schema);
  } catch (e) {
    return { name, error: e.message };
  }
  const fault = (text) => {
    try {
      return valid(JSON.parse(text)) ? null : JSON.stringify(valid.errors);
    } catch (e) {
      return e.message;
    }
  };
  const invalid = texts.map((text) => ({ text, why: fault(text) })).filter((t) => t.why);
  return { name, invalid };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href)
  for (const line of readFileSync(process.argv[2], "utf8").split("\n").filter(Boolean))
    console.log(JSON.stringify(judge(JSON.parse(line))));
