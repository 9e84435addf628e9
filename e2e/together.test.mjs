// One run, watched concurrently by one client of each protocol, some of which disconnect and resume. All end with the
// same text, tools and status.
//
// Every protocol is a row of `CLIENTS`. A client with `drops` disconnects after that many frames, and resumes.
// Messages and Chat Completions stream a run only to the client that started it: they are rows of `BEGINNERS`.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import OpenAI from 'openai';
import { V0, V1, VERSIONS, startAgent } from './lib/agui.mjs';
import * as protocols from './lib/protocols.mjs';
import { startWorker } from './lib/python.mjs';
import { begin, settle } from './lib/runs.mjs';
import { responseId } from './lib/scenarios.mjs';
import { events, startServer } from './lib/server.mjs';
import { take } from './lib/sse.mjs';
import { SDKS, SEVEN, SIX, chunksOf, startChat } from './lib/ui-chat.mjs';
import { ofAgUi, ofAgUiMessages, ofAgentRuns, ofBlocks, ofCompletion, ofMessage, ofResponse, ofResponseEvents, ofRunItems, ofTask, ofUiMessage, ofUiStream } from './lib/run-summary.mjs';

let server;
let python;
let anthropic;
let chat;
let node;
before(async () => {
  server = await startServer();
  python = startWorker('responses/openai_sdk.py', server.url);
  anthropic = startWorker('messages/anthropic_sdk.py', server.url);
  chat = startWorker('messages/chat_sdk.py', server.url);
  node = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  await Promise.all([python?.stop(), anthropic?.stop(), chat?.stop()]);
  await server?.stop();
});

/** A client that reads frames to the run's end, broken off once, if asked, and makes of them what it is `told`. */
const reader = (protocol, told) => async (run, drops) => {
  const [address] = protocol.addresses(run);
  const isLast = (frame) => protocol.isLast(frame, run);
  if (!drops) return told(await take(protocol.follow(server.url, address), isLast));
  const first = await take(protocol.follow(server.url, address), (_frame, count) => count === drops);
  assert.equal(first.length, drops);
  assert.ok(!first.some(isLast), 'it drops before the end');
  const rest = await take(protocol.follow(server.url, address, protocol.place(first.at(-1))), isLast);
  return told([...first, ...rest]);
};
const task = reader(protocols.task, ofTask);
const runItems = reader(protocols.runItems, ofRunItems);
const blocks = reader(protocols.blocks, ofBlocks);
const agentRuns = reader(protocols.agentRuns, ofAgentRuns);
const agui1 = reader(protocols.agui1, ofAgUi(V1));
const agui0 = reader(protocols.agui0, ofAgUi(V0));
const ui6 = reader(protocols.uiStream6, ofUiStream(SIX));
const ui7 = reader(protocols.uiStream7, ofUiStream(SEVEN));

async function openaiPython({ task_id }, drops) {
  const follow = (more) => python.ask('call', { path: 'responses.retrieve', response_id: responseId(task_id), stream: true, ...more });
  if (!drops) return ofResponseEvents(await follow());
  const first = await follow({ until: drops - 1 });
  return ofResponseEvents([...first, ...(await follow({ starting_after: first.at(-1).sequence_number }))]);
}

async function openaiNode({ task_id }, drops) {
  const events = [];
  const follow = async (starting_after) => {
    for await (const event of await node.responses.retrieve(responseId(task_id), { stream: true, starting_after })) {
      events.push(event);
      if (events.length === drops) break;
    }
  };
  await follow();
  if (drops) await follow(events.at(-1).sequence_number);
  return ofResponseEvents(events);
}

/** Its own accumulator reads everything again, and shows only what is new. */
async function openaiHelper({ task_id }) {
  const { final } = await python.ask('stream', { response_id: responseId(task_id), starting_after: 3 });
  return ofResponse(final);
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
  { name: 'blocks', follow: blocks },
  { name: 'blocks, dropping', follow: blocks, drops: 4 },
  { name: 'agent runs', follow: agentRuns },
  { name: 'agent runs, dropping', follow: agentRuns, drops: 2 },
  { name: 'AG-UI 1.0', follow: agui1 },
  { name: 'AG-UI 1.0, dropping', follow: agui1, drops: 5 },
  { name: 'AG-UI 0.0.59', follow: agui0 },
  { name: 'AG-UI 0.0.59, dropping', follow: agui0, drops: 4 },
  { name: 'UI message stream 6', follow: ui6 },
  { name: 'UI message stream 6, dropping', follow: ui6, drops: 3 },
  { name: 'UI message stream 7', follow: ui7 },
  { name: 'UI message stream 7, dropping', follow: ui7, drops: 4 },
];
/** Those whose stream of a thread stays open while a run waits. */
const PATIENT = CLIENTS.filter(({ follow }) => [task, runItems, blocks, agentRuns, agui1, agui0].includes(follow));

/** What all clients end with, which is the same. */
async function watched(run, clients = CLIENTS) {
  const ends = await Promise.all(clients.map(({ follow, drops }) => follow(run, drops)));
  ends.forEach((end, at) => assert.deepEqual(end, ends[0], clients[at].name));
  return ends[0];
}

const REPEATS = 3;

test('all clients of one run end with the same text, tools and status', async () => {
  for (const input of ['weather', 'help', 'parallel', 'handoff', 'slow 1']) {
    for (let time = 0; time < REPEATS; time += 1) {
      const end = await watched(await begin(server, input));
      assert.equal(end.status, 'completed', input);
      assert.ok(end.text.length > 0 && end.tools.length > 0, input);
    }
  }
});

test('all clients of a run without tools end with the same text', async () => {
  for (const input of ['hello', 'story 30']) {
    const end = await watched(await begin(server, input));
    assert.deepEqual([end.status, end.tools], ['completed', []], input);
    assert.ok(end.text.length > 0, input);
  }
});

test('all clients of a failed or cancelled run end with the same partial text', async () => {
  // The Python helper has no final response unless it completed.
  const clients = CLIENTS.filter(({ follow }) => follow !== openaiHelper);
  for (const [input, status] of [['fail', 'failed'], ['story 5000', 'cancelled']]) {
    const run = await begin(server, input);
    const ends = clients.map(({ follow, drops }) => follow(run, drops));
    if (status === 'cancelled') {
      // By then every protocol has sent enough frames for all planned disconnects.
      await events(server.url, run.task_id, ({ seq }) => seq === 30);
      await server.post(`/v1/tasks/${run.task_id}/cancel`, {});
    }
    const [first, ...others] = await Promise.all(ends);
    assert.equal(first.status, status);
    assert.ok(first.text.length > 0);
    others.forEach((end, at) => {
      const { name, follow } = clients[at + 1];
      // Interrupted output is no item of the run.
      assert.deepEqual(end, follow === runItems ? { ...first, text: '' } : first, `${input}: ${name}`);
    });
  }
});

test('all clients whose stream stays open during an approval end with the same', async () => {
  for (const [input, output] of [['trade', 'Order placed: VNM x100'], ['client', 'red']]) {
    const run = await begin(server, input);
    const [end] = await Promise.all([watched({ ...run, parts: 2 }, PATIENT), settle(server, run.task_id)]);
    assert.deepEqual([end.status, end.tools.map((tool) => tool.output)], ['completed', [output]], input);
  }
});

// --- started in one protocol, watched in the others

const asked = (input) => [{ role: 'user', content: input }];
let names = 0;

/** `begin` says something, and gives what its client ends with. */
const BEGINNERS = [
  {
    name: 'responses',
    begin: async (input) => {
      const events = [];
      for await (const event of await node.responses.create({ model: 'demo', input, stream: true })) events.push(event);
      return ofResponseEvents(events);
    },
  },
  {
    name: 'messages',
    begin: async (input) => ofMessage((await anthropic.ask('stream', { beta: true, messages: asked(input) })).final),
  },
  {
    name: 'chat completions',
    begin: async (input) => ofCompletion((await chat.ask('stream', { messages: asked(input) })).final),
    knows: ({ tools: _, ...end }) => end,
  },
  {
    name: 'blocks',
    begin: async (input) =>
      ofBlocks(await take(protocols.blocks.begin(server.url, `talk-${(names += 1)}`, input), ({ event }) => event === 'message_stop')),
  },
  {
    name: 'agent runs',
    begin: async (input) => {
      const { threadId, runId } = await server.post('/api/v1/agent/runs', { message: input, threadId: `talk-${(names += 1)}` });
      return agentRuns({ thread_id: threadId, task_id: runId });
    },
  },
  ...VERSIONS.map((version) => ({
    name: `AG-UI ${version.name}`,
    begin: async (input) => {
      const agent = startAgent(version, server, { threadId: crypto.randomUUID() });
      const events = await agent.say(input);
      return ofAgUiMessages(agent.messages, events);
    },
  })),
  ...SDKS.map((sdk) => ({
    name: `UI message stream ${sdk.name}`,
    begin: async (input) => {
      const chat = startChat(sdk, server);
      const message = await chat.say(input);
      return ofUiMessage(message, chunksOf(await chat.streams[0]));
    },
  })),
];

/** The run that somebody begins, found while it goes on, and the promise of its end. */
async function begun(start) {
  const newest = async () => (await server.get('/v1/tasks?limit=1')).data[0];
  const before = await newest();
  let isOver = false;
  const end = start();
  end.then(() => (isOver = true), () => (isOver = true));
  for (let last = false; ; last = isOver) {
    const run = await newest();
    if (run?.task_id !== before?.task_id || last) return [run, end];
  }
}

for (const { name, begin: start, knows = (end) => end } of BEGINNERS) {
  test(`a run started by ${name} is the same for its client and for all viewers`, async () => {
    for (const input of ['weather', 'parallel', 'slow 1']) {
      const [run, own] = await begun(() => start(input));
      const [seen, end] = await Promise.all([watched(run), own]);
      assert.equal(seen.status, 'completed');
      assert.ok(seen.tools.length > 0);
      assert.deepEqual(end, knows(seen), input);
    }
  });
}

test('a run started in Responses is visible to every other client, and continues in Responses after they answer', async () => {
  const { id } = await node.responses.create({ model: 'demo', input: 'trade', background: true });
  const run = await server.get(`/v1/tasks/${id.replace('resp_', 'task_')}`);
  const [seen, , first] = await Promise.all([watched({ ...run, parts: 2 }, PATIENT), settle(server, run.task_id), openaiNode(run)]);
  assert.equal(first.text, 'I will place the order.');
  const second = ofResponse(await node.responses.retrieve(responseId(run.task_id, 2)));
  assert.deepEqual({ ...second, text: first.text + second.text }, seen);
});
