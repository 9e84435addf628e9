// A search among three hundred tools: run items and Responses as the openai and openai-agents SDKs have them.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startWorker } from './lib/python.mjs';
import { startServer } from './lib/server.mjs';
import { open, take } from './lib/sse.mjs';
import { checkOrder } from './responses/order.mjs';

/** One for each server. */
const LISTS = Array(3).fill('mcp_list_tools');
const EVENTS = [...LISTS, 'tool_search_called', 'tool_search_output_created', 'tool_called', 'tool_output', 'message_output_created'];

let server;
let openai;
let agents;
before(async () => {
  server = await startServer({ config: new URL('tool-search/headwater.toml', import.meta.url).pathname });
  openai = startWorker('responses/openai_sdk.py', server.url);
  agents = startWorker('responses/agents_sdk.py', server.url);
});
after(async () => {
  await openai?.stop();
  await agents?.stop();
  await server?.stop();
});

test('run items are those of the SDK, in its order', async () => {
  const task = await server.post('/v1/tasks', { model: 'clerk', input: 'invoice 7', wait: true });
  assert.equal(task.status, 'completed', JSON.stringify(task));
  const taken = await take(await open(`${server.url}/v1/tasks/${task.task_id}/events?format=run-items`));
  const items = taken.filter(({ event }) => event === 'run_item_stream_event').map(({ data }) => data);
  assert.deepEqual(items.map(({ name }) => name), EVENTS);
  const [called, found] = items.slice(LISTS.length);
  assert.deepEqual([called.item.type, found.item.type], ['tool_search_call_item', 'tool_search_output_item']);
  const classes = await agents.ask('search_items', { call: called.item.raw_item, output: found.item.raw_item });
  assert.deepEqual(classes, {
    call: ['ResponseToolSearchCall', 'server', 'completed', { query: 'invoice number' }],
    output: ['ResponseToolSearchOutputItem', 'completed', ['crm']],
    events: ['tool_search_called', 'tool_search_output_created'],
  });
});

test('the SDK of agents sees a search as its own, streamed or not', async () => {
  const result = await agents.ask('run', { input: 'invoice 7', tools: [], model: 'clerk' });
  checkOrder(result.raw);
  assert.equal(result.text, 'Here is invoice 7.');
  assert.deepEqual(result.names, EVENTS.filter((name) => name !== 'tool_output'));
  const types = result.items.map(({ type }) => type);
  assert.deepEqual(types, [...LISTS.map((name) => `${name}_item`), 'tool_search_call_item', 'tool_search_output_item', 'tool_call_item', 'message_output_item']);
  const whole = await agents.ask('run', { input: 'invoice 7', tools: [], model: 'clerk', streamed: false });
  assert.deepEqual(whole.items, result.items);
  // What the SDK resends is the history of the thread: the next request goes on there.
  const again = await agents.ask('run', { input: [...result.resent, { role: 'user', content: 'and now?' }], tools: [], model: 'clerk' });
  assert.equal(again.text, 'Here is invoice 7.');
});

test('the types of the SDK accept the items of a response', async () => {
  const events = await openai.ask('call', { path: 'responses.create', model: 'clerk', input: 'invoice 7', stream: true });
  checkOrder(events);
  assert.deepEqual(await openai.ask('misfits', { kind: 'event', values: events }), []);
  const { output } = events.at(-1).response;
  assert.deepEqual(output.map(({ type }) => type), [...LISTS, 'tool_search_call', 'tool_search_output', 'mcp_call', 'message']);
  assert.deepEqual(await openai.ask('misfits', { kind: 'output_item', values: output }), []);
});
