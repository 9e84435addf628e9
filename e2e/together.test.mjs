// One run, watched at the same time by one client of each protocol, of which three drop and come back. All end with the
// same words, tools and status.
//
// Every protocol is a row of `CLIENTS`. A client that `drops` breaks its connection after so many frames, and resumes.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import OpenAI from 'openai';
import { pageModule } from './lib/page-module.mjs';
import { begin, settle } from './lib/runs.mjs';
import { startServer } from './lib/server.mjs';
import { open, take } from './lib/sse.mjs';
import { reduce } from './responses/run-items.mjs';
import { responseId, words } from './responses/scenarios.mjs';
import { startWorker } from './responses/worker.mjs';

const { blank, fold, isItem, ownBlocks, resultOf } = await pageModule();

let server;
let python;
let node;
before(async () => {
  server = await startServer();
  python = startWorker('openai_sdk.py', server.url);
  node = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  await python?.stop();
  await server?.stop();
});

/** Frames that carry their place, read to the end; broken off once, if asked. */
async function withIds(path, drops) {
  const first = await take(await open(server.url + path), (_, count) => count === drops);
  if (!drops) return first;
  assert.equal(first.length, drops);
  return [...first, ...(await take(await open(server.url + path, { 'last-event-id': first.at(-1).id })))];
}

/** The task protocol, by the fold of the page. */
async function task(task_id, drops) {
  const object = blank(task_id);
  for (const { data } of await withIds(`/v1/tasks/${task_id}/events`, drops)) assert.ok(fold(object, data), data.type);
  const messages = object.output.filter((item) => item.type === 'message');
  const calls = object.output.filter((item) => item.type === 'tool_call');
  return {
    text: messages.flatMap(ownBlocks).map((block) => block.text).join(''),
    tools: calls.map((call) => ({ name: call.name, arguments: call.arguments, output: plain(resultOf(object.output, call.call_id)) })),
    status: object.status,
  };
}

/** The words of a result; a sub-agent's are those of its last message. */
function plain(result) {
  const message = result.block_list.filter(isItem).findLast((item) => item.type === 'message');
  return ownBlocks(message ?? result).map((block) => block.text ?? `[image ${block.image_url.url}]`).join('\n');
}

async function runItems(task_id, drops) {
  const { text, tools, status } = reduce(await withIds(`/v1/tasks/${task_id}/events?format=run-items`, drops));
  return { text, tools, status };
}

/** Of a response: what its last word says. A deaf client has nothing else, so the words must be the same. */
function response({ output, status, ...rest }) {
  const calls = output.filter((item) => item.type === 'mcp_call');
  return {
    text: words({ output, ...rest }),
    tools: calls.map((call) => ({ name: call.name, arguments: call.arguments, output: call.output })),
    status,
  };
}

/** The words of the deltas, and of the last event what it says. */
function told(events) {
  const last = response(events.at(-1).response);
  const text = events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join('');
  assert.equal(text, last.text);
  return last;
}

async function openaiPython(task_id, drops) {
  const follow = (more) => python.ask('call', { path: 'responses.retrieve', response_id: responseId(task_id), stream: true, ...more });
  if (!drops) return told(await follow());
  const first = await follow({ until: drops - 1 });
  return told([...first, ...(await follow({ starting_after: first.at(-1).sequence_number }))]);
}

async function openaiNode(task_id, drops) {
  const events = [];
  const follow = async (starting_after) => {
    for await (const event of await node.responses.retrieve(responseId(task_id), { stream: true, starting_after })) {
      events.push(event);
      if (events.length === drops) break;
    }
  };
  await follow();
  if (drops) await follow(events.at(-1).sequence_number);
  return told(events);
}

/** Its own accumulator reads everything again, and shows only what is new. */
async function openaiHelper(task_id) {
  const { final } = await python.ask('stream', { response_id: responseId(task_id), starting_after: 3 });
  return response(final);
}

const CLIENTS = [
  { name: 'task', follow: task },
  { name: 'task, dropping', follow: task, drops: 9 },
  { name: 'run items', follow: runItems },
  { name: 'run items, dropping', follow: runItems, drops: 7 },
  { name: 'openai for Python', follow: openaiPython },
  { name: 'openai for Python, dropping', follow: openaiPython, drops: 5 },
  { name: 'openai for Python, its helper', follow: openaiHelper },
  { name: 'openai for Node', follow: openaiNode },
  { name: 'openai for Node, dropping', follow: openaiNode, drops: 3 },
];

const REPEATS = 3;

test('all clients of one run end with the same words, tools and status', async () => {
  for (const input of ['weather', 'help', 'parallel', 'handoff', 'slow 1']) {
    for (let time = 0; time < REPEATS; time += 1) {
      const { task_id } = await begin(server, input);
      const ends = await Promise.all(CLIENTS.map(({ follow, drops }) => follow(task_id, drops)));
      assert.equal(ends[0].status, 'completed');
      assert.ok(ends[0].text.length > 0 && ends[0].tools.length > 0, input);
      ends.forEach((end, at) => assert.deepEqual(end, ends[0], `${input}: ${CLIENTS[at].name}`));
    }
  }
});

test('a run that Responses began is seen by every other client, and one that they answer goes on in Responses', async () => {
  const begun = await node.responses.create({ model: 'demo', input: 'trade', background: true });
  const task_id = begun.id.replace('resp_', 'task_');
  const [items, , first] = await Promise.all([runItems(task_id), settle(server, task_id), openaiNode(task_id)]);
  assert.equal(first.text, 'I will place the order.');
  const second = response(await node.responses.retrieve(responseId(task_id, 2)));
  assert.deepEqual({ ...second, text: first.text + second.text }, items);
  assert.deepEqual(items, await task(task_id));
});
