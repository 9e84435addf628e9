// Whatever a reducer was fed, live, in pieces or all at once: in the end it has the same, and it is what the server has.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { lastWords, startServer } from '../lib/server.mjs';
import { StreamProcessor } from './flutter.mjs';
import { useStreamProcessor } from './react.mjs';
import { openSocket, readTurn } from './socket.mjs';

const approve = { type: 'approve' };
const reject = { type: 'reject', message: 'too risky' };
const SCENARIOS = [
  ['hello', 'hello'],
  ['weather', 'weather'],
  ['weather in chat mode', 'weather', { display_mode: 'chat' }],
  ['help', 'help'],
  ['parallel', 'parallel'],
  ['a trade, approved', 'trade', { decision: approve }],
  ['a trade, rejected', 'trade', { decision: reject }],
  ['a trade with other numbers', 'trade', { decision: { type: 'edit', args: { symbol: 'FPT', quantity: 7 } } }],
  ['handoff', 'handoff'],
  ['image', 'image'],
  ['story', 'story 50 fast'],
  ['client', 'client'],
  ['fail', 'fail'],
  ['slow', 'slow 1'],
];

let server;
before(async () => (server = await startServer()));
after(() => server.stop());

/** What both reducers have after these events. */
function reduced(events) {
  const react = useStreamProcessor();
  const flutter = new StreamProcessor();
  for (const event of events) {
    react.handleEvent(event);
    flutter.handleEvent(event);
  }
  return { react: react.state, flutter: { blocks: flutter.blocks, isStreaming: flutter.isStreaming } };
}

/** Decides every question as it comes. */
function deciding(decision) {
  let key;
  return (event, socket) => {
    key = event.content_block?.approval_key ?? key;
    if (event.delta?.action_requests) {
      socket.say({ type: 'approval_response', approval_key: key, decisions: [decision] });
    }
  };
}

async function resumed(session_id, after) {
  const socket = await openSocket(server.url);
  socket.say({ type: 'resume', session_id, after });
  const events = await readTurn(socket);
  socket.close();
  return events;
}

let sessions = 0;
for (const [name, content, { display_mode, decision } = {}] of SCENARIOS) {
  test(`${name}: live, replayed and resumed are the same`, async () => {
    const session_id = `session-${++sessions}`;
    const socket = await openSocket(server.url);
    socket.say({ type: 'chat', session_id, content, display_mode });
    const live = await readTurn(socket, { onEvent: deciding(decision) });
    socket.close();

    const state = reduced(live);
    const replay = await resumed(session_id);
    assert.deepEqual(replay, live);
    assert.deepEqual(reduced(replay), state);
    assert.equal(state.react.isStreaming || state.flutter.isStreaming, false);

    const task = await server.get(`/v1/tasks/${live[0].message_id}`);
    for (const { blocks } of [state.react, state.flutter]) {
      assert.equal(blocks.findLast((block) => block.type === 'text').text, lastWords(task));
      const calls = blocks.filter((block) => block.type === 'tool_use');
      assert.ok(calls.every((block) => typeof block.toolResult === 'string'), 'every call has its result');
    }
    assert.equal(state.react.blocks.some((block) => block.type === 'terminal_error'), content === 'fail');

    const places = [0, 1, Math.floor(live.length / 3), Math.floor(live.length / 2), live.length - 3];
    for (const place of places) {
      const had = live.slice(0, place + 1);
      const rest = await resumed(session_id, had.at(-1).cursor);
      assert.deepEqual(reduced([...had, ...rest]), state, `after event ${place}`);
    }
  });
}

test('a socket that breaks in mid-sentence is taken up by another', async () => {
  const session_id = 'broken';
  const socket = await openSocket(server.url);
  socket.say({ type: 'chat', session_id, content: 'story 60' });
  let had = await readTurn(socket, { isEnough: (events) => events.length === 10 });
  socket.close();
  for (const length of [20, 30]) {
    const next = await openSocket(server.url);
    next.say({ type: 'resume', session_id, after: had.at(-1).cursor });
    had = [...had, ...(await readTurn(next, { isEnough: (events) => had.length + events.length >= length }))];
    next.close();
  }
  had = [...had, ...(await resumed(session_id, had.at(-1).cursor))];
  assert.deepEqual(had, await resumed(session_id));
});

test('a stop ends the turn with a block that says so', async () => {
  const socket = await openSocket(server.url);
  socket.say({ type: 'chat', session_id: 'stopped', content: 'story 2000' });
  const began = await readTurn(socket, { isEnough: (events) => events.at(-1).type === 'content_block_delta' });
  socket.say({ type: 'stop' });
  const { react, flutter } = reduced([...began, ...(await readTurn(socket))]);
  socket.close();
  assert.equal(react.blocks.at(-1).type, 'terminal_user_stopped');
  assert.equal(flutter.blocks.at(-1).type, 'terminal_user_stopped');
});

test('a server that is killed in mid-sentence goes on with the same turn', async () => {
  const session_id = 'killed';
  const socket = await openSocket(server.url);
  socket.say({ type: 'chat', session_id, content: 'story 60' });
  const had = await readTurn(socket, { isEnough: (events) => events.length === 10 });
  await server.killAndRestart();
  const rest = await resumed(session_id, had.at(-1).cursor);
  assert.deepEqual([...had, ...rest], await resumed(session_id));
  const { react } = reduced([...had, ...rest]);
  const task = await server.get(`/v1/tasks/${had[0].message_id}`);
  assert.equal(react.blocks.findLast((block) => block.type === 'text').text, lastWords(task));
});
