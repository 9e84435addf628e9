// Is a Responses stream in order? Every rule here is one that some client relies on.
//
// What is checked is what a stream says about itself; what it should say for a scenario is elsewhere.

import { isDeepStrictEqual } from 'node:util';

const LIFE = ['response.created', 'response.queued', 'response.in_progress'];
const END = ['response.completed', 'response.incomplete', 'response.failed'];
/** Every lifecycle event carries the whole object. */
const KEYS = [
  'id', 'object', 'created_at', 'completed_at', 'status', 'background', 'error', 'incomplete_details', 'instructions',
  'max_output_tokens', 'max_tool_calls', 'metadata', 'model', 'output', 'parallel_tool_calls', 'previous_response_id',
  'reasoning', 'service_tier', 'store', 'temperature', 'text', 'tool_choice', 'tools', 'top_logprobs', 'top_p', 'truncation',
  'usage',
];

/** A rule that does not hold. */
export class Disorder extends Error {}

function must(holds, what) {
  if (!holds) throw new Disorder(what);
}

const same = (a, b, what) => must(isDeepStrictEqual(a, b), `${what}: ${JSON.stringify(a)} is not ${JSON.stringify(b)}`);

/**
 * Throws when the events of one response, from its first to its last, are out of order. `dropped` are the ids of items
 * that the last word may leave out: what was begun before a crash and done anew after it.
 */
export function checkOrder(events, { dropped = [] } = {}) {
  const state = { id: undefined, items: [], events: events.length };
  events.forEach((event, index) => {
    try {
      same(event.sequence_number, index, 'sequence_number');
      must(!('error' in event), 'an event with `error` ends the stream for a client');
      step(state, event, index);
    } catch (error) {
      if (!(error instanceof Disorder)) throw error;
      throw new Disorder(`event ${index}, ${event.type}: ${error.message}`);
    }
  });
  must(END.includes(events.at(-1)?.type), `the last event is ${events.at(-1)?.type}`);
  const done = state.items.filter((item) => !dropped.includes(item.done.id)).map((item) => item.done);
  same(events.at(-1).response.output, done, 'the last word has another output than the items that were done');
}

function step(state, event, index) {
  if (LIFE.includes(event.type) || END.includes(event.type)) return life(state, event, index);
  must(index >= 2, 'something is said before the response was announced');
  if (event.type === 'response.output_item.added') return added(state, event);
  const item = state.items[event.output_index];
  must(item, `nothing was added at ${event.output_index}`);
  must(!item.done, `${item.id} is done already`);
  if (event.type === 'response.output_item.done') return done(item, event);
  same(event.item_id, item.id, 'item_id');
  const rule = RULES[event.type];
  must(rule, 'no rule for this event');
  return rule(item, event);
}

function life(state, { type, response }, index) {
  const missing = KEYS.filter((key) => !(key in response));
  same(missing, [], 'missing keys');
  state.id ??= response.id;
  same(response.id, state.id, 'id');
  same(response.object, 'response', 'object');
  same(type === 'response.created', index === 0, 'response.created is the first event and no other');
  if (LIFE.includes(type)) {
    same(response.output, [], 'output');
    must(['queued', 'in_progress'].includes(response.status), `status is ${response.status}`);
    must(state.items.length === 0, 'a beginning after the beginning');
    return;
  }
  same(index, state.events - 1, 'the end stands at');
  const open = state.items.filter((item) => !item.done).map((item) => item.id);
  same(open, [], 'still open');
  const expected = type.slice('response.'.length);
  const cancelled = type === 'response.incomplete' && response.incomplete_details?.reason === 'cancelled';
  same(response.status, cancelled ? 'cancelled' : expected, 'status');
  same(response.error === null, type !== 'response.failed', 'is there no error?');
  same(response.incomplete_details === null, type !== 'response.incomplete', 'are there no details?');
}

function added(state, { output_index, item }) {
  same(output_index, state.items.length, 'output_index');
  must(item.id, 'an item without an id');
  must(!state.items.some((other) => other.id === item.id), `${item.id} was there already`);
  if ('status' in item) same(item.status, 'in_progress', 'status');
  if (item.type === 'message') same(item.content, [], 'content');
  if (item.type === 'reasoning') same(item.summary, [], 'summary');
  // A question is asked as a whole, and so is a search.
  if (!['mcp_approval_request', 'tool_search_call'].includes(item.type) && 'arguments' in item) same(item.arguments, '', 'arguments');
  state.items.push({ id: item.id, type: item.type, parts: [], arguments: '', states: [], pictures: 0, first: item });
}

function done(item, event) {
  const last = event.item;
  same([last.id, last.type], [item.id, item.type], 'id and type');
  const open = item.parts.findIndex((part) => !part.done);
  same(open, -1, 'an open part');
  must(last.status !== 'in_progress', 'it is done, and in progress');
  const parts = item.parts.map((part) => part.done);
  if (item.type === 'message') same(last.content, parts, 'content');
  if (item.type === 'reasoning') same(last.summary, parts, 'summary');
  if (item.type === 'mcp_approval_request') same(last, item.first, 'the question');
  if (['function_call', 'mcp_call'].includes(item.type) && last.status !== 'incomplete') {
    must(item.argumentsDone, 'the arguments are not done');
    same(last.arguments, item.arguments, 'arguments');
  }
  if (item.type === 'mcp_call' && last.status !== 'incomplete') same(item.states.at(-1), last.status, 'the last state');
  item.done = last;
}

function partAdded(item, index, part) {
  same(index, item.parts.length, 'the index of the part');
  same(part.text ?? part.refusal, '', 'a new part is empty');
  item.parts.push({ said: '', annotations: [], type: part.type });
}

function openPart(item, index) {
  const part = item.parts[index];
  must(part, `there is no part ${index}`);
  must(!part.done, `part ${index} is done already`);
  return part;
}

function delta(item, index, event) {
  const part = openPart(item, index);
  must(part.whole === undefined, 'a delta after the text was done');
  part.said += event.delta;
}

function said(item, index, text) {
  const part = openPart(item, index);
  same(text, part.said, 'the text');
  part.whole = text;
}

function partDone(item, index, last) {
  const part = openPart(item, index);
  must(part.whole !== undefined, 'the text is not done');
  same(last.type, part.type, 'type');
  same(last.text ?? last.refusal, part.said, 'the text');
  if (last.type === 'output_text') same(last.annotations, part.annotations, 'annotations');
  part.done = last;
}

function annotation(item, event) {
  const part = openPart(item, event.content_index);
  same(event.annotation_index, part.annotations.length, 'annotation_index');
  const { start_index, end_index } = event.annotation;
  const shown = [...part.said].slice(start_index, end_index).join('');
  if (event.annotation.title?.startsWith('[')) same(shown, event.annotation.title.replace('[', '[^'), 'what is cited');
  part.annotations.push(event.annotation);
}

function argumentsDelta(item, event) {
  must(!item.argumentsDone, 'a delta after the arguments were done');
  item.arguments += event.delta;
}

function argumentsDone(item, event) {
  same(event.arguments, item.arguments, 'the arguments');
  item.argumentsDone = true;
}

/** One state after the other, none twice. */
const state = (...before) => (item, event) => {
  const name = event.type.split('.').at(-1);
  must(before.includes(item.states.at(-1)), `${name} after ${item.states.at(-1)}`);
  item.states.push(name);
};

function picture(item, event) {
  same(event.partial_image_index, item.pictures, 'partial_image_index');
  must(/^[A-Za-z0-9+/]+=*$/.test(event.partial_image_b64), 'a picture that is not base64');
  item.pictures += 1;
}

const RULES = {
  'response.content_part.added': (item, event) => partAdded(item, event.content_index, event.part),
  'response.content_part.done': (item, event) => partDone(item, event.content_index, event.part),
  'response.output_text.delta': (item, event) => delta(item, event.content_index, event),
  'response.output_text.done': (item, event) => said(item, event.content_index, event.text),
  'response.output_text.annotation.added': annotation,
  'response.refusal.delta': (item, event) => delta(item, event.content_index, event),
  'response.refusal.done': (item, event) => said(item, event.content_index, event.refusal),
  'response.reasoning_summary_part.added': (item, event) => partAdded(item, event.summary_index, event.part),
  'response.reasoning_summary_part.done': (item, event) => partDone(item, event.summary_index, event.part),
  'response.reasoning_summary_text.delta': (item, event) => delta(item, event.summary_index, event),
  'response.reasoning_summary_text.done': (item, event) => said(item, event.summary_index, event.text),
  'response.function_call_arguments.delta': argumentsDelta,
  'response.function_call_arguments.done': argumentsDone,
  'response.mcp_call_arguments.delta': argumentsDelta,
  'response.mcp_call_arguments.done': argumentsDone,
  'response.mcp_call.in_progress': state(undefined),
  'response.mcp_call.completed': state('in_progress'),
  'response.mcp_call.failed': state('in_progress', undefined),
  'response.mcp_list_tools.in_progress': state(undefined),
  'response.mcp_list_tools.completed': state('in_progress', undefined),
  'response.mcp_list_tools.failed': state('in_progress', undefined),
  'response.image_generation_call.in_progress': state(undefined),
  'response.image_generation_call.generating': state('in_progress'),
  'response.image_generation_call.partial_image': picture,
  'response.image_generation_call.completed': state('generating', 'in_progress'),
};

/** The same for frames, whose `event` must be what their data says. */
export function checkFrames(taken, options) {
  for (const { event, data, id } of taken) {
    same(event, data.type, 'event');
    same(id, undefined, 'a frame has no id: its place is its sequence_number');
  }
  checkOrder(taken.map((frame) => frame.data), options);
}
