// The object of Open Responses: members that every response has, and the items that its output may have.

import assert from 'node:assert/strict';

const isText = (value) => typeof value === 'string';
const isNumber = (value) => typeof value === 'number';
const isFlag = (value) => typeof value === 'boolean';
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const orNull = (check) => (value) => value === null || check(value);
const oneOf = (...values) => (value) => values.includes(value);

const RESPONSE = {
  id: isText, object: oneOf('response'), created_at: isNumber, completed_at: orNull(isNumber),
  status: oneOf('completed', 'failed', 'in_progress', 'incomplete', 'queued', 'cancelled'),
  incomplete_details: orNull(isObject), model: isText, previous_response_id: orNull(isText), instructions: orNull(isText),
  output: Array.isArray, error: orNull(isObject), tools: Array.isArray, tool_choice: (value) => isText(value) || isObject(value),
  truncation: oneOf('auto', 'disabled'), parallel_tool_calls: isFlag, text: (value) => isObject(value?.format), top_p: isNumber,
  presence_penalty: isNumber, frequency_penalty: isNumber, top_logprobs: isNumber, temperature: isNumber,
  reasoning: orNull((value) => 'effort' in value && 'summary' in value), usage: orNull(isUsage),
  max_output_tokens: orNull(isNumber), max_tool_calls: orNull(isNumber), store: isFlag, background: isFlag, service_tier: isText,
  metadata: isObject, safety_identifier: orNull(isText), prompt_cache_key: orNull(isText),
};

const TOOL = { type: oneOf('function'), name: isText, description: orNull(isText), parameters: orNull(isObject), strict: orNull(isFlag) };

const ITEMS = {
  message: { id: isText, status: isText, role: isText, content: Array.isArray, phase: orUndefined(oneOf('commentary', 'final_answer')) },
  function_call: { id: isText, call_id: isText, name: isText, arguments: isText, status: isText },
  function_call_output: { id: isText, call_id: isText, status: isText },
  reasoning: { id: isText, summary: Array.isArray },
  compaction: { id: isText, encrypted_content: isText },
};

/** The events of a stream; anything else fails a turn. */
export const EVENTS = new Set([
  ...['created', 'queued', 'in_progress', 'completed', 'failed', 'incomplete'],
  ...['output_item', 'content_part', 'reasoning_summary_part'].flatMap((name) => [`${name}.added`, `${name}.done`]),
  ...['output_text', 'refusal', 'function_call_arguments', 'reasoning_summary_text', 'reasoning'].flatMap((name) => [`${name}.delta`, `${name}.done`]),
  'output_text.annotation.added',
].map((name) => `response.${name}`));

function orUndefined(check) {
  return (value) => value === undefined || value === null || check(value);
}

function isUsage(value) {
  return isNumber(value.input_tokens) && isNumber(value.output_tokens) && isNumber(value.total_tokens)
    && isNumber(value.input_tokens_details?.cached_tokens) && isNumber(value.output_tokens_details?.reasoning_tokens);
}

function checkMembers(members, value, name) {
  for (const [member, fits] of Object.entries(members)) {
    assert.ok(member in value || fits(undefined), `${name} has no ${member}: ${JSON.stringify(value)}`);
    assert.ok(fits(value[member]), `${member} of ${name}: ${JSON.stringify(value[member])}`);
  }
}

export function checkItems(items) {
  for (const item of items) {
    assert.ok(item.type in ITEMS, `${item.type} is no item of Open Responses`);
    checkMembers(ITEMS[item.type], item, item.type);
  }
}

export function checkResponse(response) {
  checkMembers(RESPONSE, response, 'the response');
  for (const tool of response.tools) checkMembers(TOOL, tool, 'a tool');
  checkItems(response.output);
}

export function checkCompaction(window) {
  assert.equal(window.object, 'response.compaction');
  assert.ok(isText(window.id) && isNumber(window.created_at) && isUsage(window.usage));
  checkItems(window.output);
  assert.equal(window.output.filter((item) => item.type === 'compaction').length, 1);
}
