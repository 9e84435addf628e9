// The UI message stream with the AI SDK's own transport, chat and reducer, versions 6 and 7.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { begin, settle } from './lib/runs.mjs';
import { SCENARIOS } from './lib/scenarios.mjs';
import { events, startServer } from './lib/server.mjs';
import { PICK_TOOL, SDKS, SEVEN, SIX, callsOf, chunksOf, plain, reduce, startChat, statusOf, textOf } from './lib/ui-chat.mjs';

let server;
before(async () => {
  server = await startServer();
});
after(() => server?.stop());

/** A test with both versions of the SDK. */
const inBoth = {
  test: (title, work) => SDKS.forEach((sdk) => test(`${title} (${sdk.name})`, () => work(sdk))),
};
const newestRun = async () => (await server.get('/v1/tasks?limit=1')).data[0];
const messagesOf = async (sdk, id) => (await server.get(`/api/chat/${id}/messages${sdk.query}`)).messages;
const matches = (found, expected, what) =>
  expected instanceof RegExp ? assert.match(found, expected, what) : assert.equal(found, expected, what);

/** What the chat has is what the server gives to one that begins. */
async function sameAsServer(sdk, chat, what) {
  assert.deepEqual(plain(chat.messages), await messagesOf(sdk, chat.id), what);
}

const STATUS = { failed: 'failed', approval: 'paused', client_tool: 'paused' };

inBoth.test('every scenario is the same for its chat and for one that begins later', async (sdk) => {
  for (const { input, text, tools = [], asks, end, thinks = 0, pictures, declare } of SCENARIOS) {
    const chat = startChat(sdk, server, { body: declare && { tools: [PICK_TOOL] } });
    const answer = await chat.say(input);
    matches(textOf(answer), text, input);
    const calls = callsOf(answer);
    if (!asks) {
      // Of a picture the provider's own call is shown, too.
      const own = calls.filter(({ name }) => tools.some((tool) => tool.name === name));
      assert.deepEqual(own.map(({ name }) => name), tools.map(({ name }) => name), input);
      tools.forEach((tool, at) => {
        matches(JSON.stringify(own[at].input), tool.arguments, input);
        matches(own[at].output.text, tool.output, input);
        assert.equal(own[at].state, 'output-available', input);
      });
    }
    const chunks = chunksOf(await chat.streams.at(-1));
    assert.equal(statusOf(chunks), STATUS[end ?? asks] ?? 'completed', input);
    assert.equal(answer.parts.filter(({ type }) => type === 'reasoning').length, thinks, `${input}: reasoning`);
    if (pictures) assert.ok(answer.parts.some(({ type }) => type === 'file'), input);
    assert.equal(chat.errors.length, end === 'failed' ? 1 : 0, input);
    assert.equal(chat.posts.length, 1, input);
    if (end !== 'failed') assert.match(await chat.streams.at(-1), /data: \[DONE\]\n\n$/, input);
    await sameAsServer(sdk, chat, input);
  }
});

inBoth.test('a conversation goes on in one thread, whole or by its last message', async (sdk) => {
  const chat = startChat(sdk, server);
  for (const input of ['hello', 'weather', 'help']) {
    await chat.say(input);
    await sameAsServer(sdk, chat, input);
  }
  const { thread_id } = await newestRun();
  const only = startChat(sdk, server, { id: chat.id });
  await only.say('hello');
  assert.equal((await newestRun()).thread_id, thread_id);
  assert.equal((await messagesOf(sdk, chat.id)).length, 8);
});

inBoth.test('an approval is sent once by the rules of the SDK, and the answer goes on in its message', async (sdk) => {
  for (const [approved, text, state] of [
    [true, /Done: bought VNM/, 'output-available'],
    [false, /The order was not placed/, 'output-denied'],
  ]) {
    const chat = startChat(sdk, server);
    const asked = await chat.say('trade');
    const [call] = callsOf(asked);
    assert.deepEqual([call.name, call.state], ['execute_trade', 'approval-requested']);
    await chat.addToolApprovalResponse({ id: call.approval.id, approved, reason: 'as you wish' });
    await chat.rested();
    assert.equal(chat.posts.length, 2);
    assert.equal(chat.messages.length, 2, 'it goes on in its message');
    assert.match(textOf(chat.last()), text);
    assert.equal(callsOf(chat.last())[0].state, state);
    await sameAsServer(sdk, chat, String(approved));
    await chat.say('hello');
    assert.equal(chat.posts.length, 3);
  }
});

inBoth.test("the chat's own tool runs there, and its output is sent once", async (sdk) => {
  const chat = startChat(sdk, server, { answers: { pick: 'red' }, body: { tools: [PICK_TOOL] } });
  await chat.say('client');
  assert.equal(chat.posts.length, 2);
  assert.match(textOf(chat.last()), /Your tool pick says: red/);
  assert.equal(chat.messages.length, 2);
  await sameAsServer(sdk, chat);
});

inBoth.test('a stream that breaks is resumed from the beginning of the answer, at every place', async (sdk) => {
  for (const input of ['story 40', 'weather', 'slow 1']) {
    const chat = startChat(sdk, server);
    void chat.sendMessage({ text: input });
    const seen = [];
    // Others come while the run goes on, each a little later than the one before.
    while (chat.status !== 'ready' || chat.messages.length < 2) {
      const other = startChat(sdk, server, { id: chat.id, messages: plain(chat.messages.filter(({ role }) => role === 'user')) });
      if (other.messages.length > 0 && seen.length < 12) seen.push(other.resumeStream().then(() => other.rested()).then(() => other));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    for (const other of await Promise.all(seen)) {
      if (other.messages.length === 1) continue;
      assert.deepEqual(plain(other.messages), plain(chat.messages), input);
      assert.equal(other.posts.length, 0);
    }
    assert.ok(seen.length > 0);
    await sameAsServer(sdk, chat, input);
  }
});

inBoth.test('a stream with a cursor is exactly the rest', async (sdk) => {
  const chat = startChat(sdk, server);
  await chat.say('weather');
  const whole = await chat.streams[0];
  const ids = [...whole.matchAll(/^id: (.*)$/gm)].map(([, id]) => id);
  assert.ok(ids.length > 5);
  for (const id of ids.slice(0, -1)) {
    const response = await fetch(`${server.url}/api/chat/${chat.id}/stream${sdk.query}`, { headers: { 'last-event-id': id } });
    const rest = await response.text();
    const at = whole.indexOf('\n\n', whole.indexOf(`id: ${id}\n`)) + 2;
    assert.equal(frames(rest), frames(whole.slice(at)), id);
  }
});

/** A stream without comments. */
const frames = (text) => text.split('\n\n').filter((frame) => frame && !frame.startsWith(':')).join('\n\n');

inBoth.test('an approval that is answered elsewhere is seen by a chat that comes back', async (sdk) => {
  const chat = startChat(sdk, server);
  await chat.say('trade');
  const { task_id } = await newestRun();
  const again = startChat(sdk, server, { id: chat.id, messages: await messagesOf(sdk, chat.id) });
  await again.resumeStream();
  await again.rested();
  assert.equal(callsOf(again.last())[0].state, 'approval-requested');
  await settle(server, task_id);
  await again.resumeStream();
  await again.rested();
  assert.match(textOf(again.last()), /Done: bought VNM/);
  // A stream of 6 has no chunk for a decision; messages have it.
  const decided = (messages) => messages.flatMap(callsOf).map(({ approval, ...call }) => (sdk === SIX ? call : { approval, ...call }));
  assert.deepEqual(decided(plain(again.messages)), decided(await messagesOf(sdk, again.id)));
});

inBoth.test('an answer is generated again, also the first, and an edited question has another', async (sdk) => {
  const chat = startChat(sdk, server);
  await chat.say('hello');
  const [question, first] = plain(chat.messages);
  await chat.regenerate();
  await chat.rested();
  assert.equal(chat.messages.length, 2);
  assert.notEqual(chat.last().id, first.id);
  assert.equal(textOf(chat.last()), textOf(first));
  await sameAsServer(sdk, chat, 'regenerated');
  await chat.sendMessage({ text: 'weather', messageId: question.id });
  await chat.rested();
  assert.equal(chat.messages.length, 2);
  assert.match(textOf(chat.last()), /sunny/);
  await sameAsServer(sdk, chat, 'edited');
});

inBoth.test('a stop cancels the run, and the next message works', async (sdk) => {
  const chat = startChat(sdk, server);
  const said = chat.sendMessage({ text: 'story 5000' });
  while (!chat.last() || textOf(chat.last()).length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(await server.post(`/api/chat/${chat.id}/stop`, {}), { stopped: true });
  await said;
  await chat.rested();
  assert.equal(statusOf(chunksOf(await chat.streams[0])), 'cancelled');
  assert.equal((await newestRun()).status, 'cancelled');
  assert.deepEqual([chat.posts.length, chat.errors], [1, []]);
  assert.deepEqual(await server.post(`/api/chat/${chat.id}/stop`, {}), { stopped: false });
  await chat.say('hello');
  assert.match(textOf(chat.last()), /Hello!/);
  await sameAsServer(sdk, chat);
});

inBoth.test('a message that is sent again does not run again', async (sdk) => {
  const chat = startChat(sdk, server);
  await chat.say('weather');
  const [body] = chat.posts;
  const again = await fetch(`${server.url}/api/chat${sdk.query}`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
  });
  assert.equal(frames(await again.text()), frames(await chat.streams[0]));
  assert.equal((await messagesOf(sdk, chat.id)).length, 2);
});

test('chunks of 7 alone are not sent to 6', async () => {
  const known = new Set(['tool-approval-response', 'reset-step', 'steering-message']);
  for (const input of ['trade', 'help']) {
    const chat = startChat(SIX, server);
    await chat.say(input);
    for (const text of chat.streams) assert.ok(!chunksOf(await text).some(({ type }) => known.has(type)));
  }
  const chat = startChat(SEVEN, server);
  const [call] = callsOf(await chat.say('trade'));
  await chat.addToolApprovalResponse({ id: call.approval.id, approved: true });
  await chat.rested();
  assert.ok(chunksOf(await chat.streams[1]).some(({ type }) => type === 'tool-approval-response'));
});

test('a run of another protocol is read as a stream and as messages', async () => {
  for (const sdk of SDKS) {
    const { task_id, thread_id } = await begin(server, 'weather');
    await events(server.url, task_id);
    const [question, answer] = await messagesOf(sdk, thread_id);
    assert.equal(textOf(question), 'weather');
    const replay = await (await fetch(`${server.url}/api/chat/${thread_id}/stream${sdk.query}`)).text();
    assert.deepEqual(await reduce(sdk, chunksOf(replay)), answer);
  }
});

test('what cannot be understood is refused with a sentence, and nothing runs', async () => {
  const before = await newestRun();
  const message = { id: 'u1', role: 'user', parts: [{ type: 'text', text: 'hello' }] };
  const good = { id: 'c-1', trigger: 'submit-message', messages: [message], agent: 'demo' };
  const post = (body, query = '') =>
    fetch(`${server.url}/api/chat${query}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  for (const [changes, status, query] of [
    [{ id: 'a/b' }, 400],
    [{ messages: [] }, 400],
    [{ trigger: 'go' }, 400],
    [{ messages: [{ ...message, parts: [{ type: 'hologram' }] }] }, 400],
    [{ agent: 'nobody' }, 400],
    [{ trigger: 'regenerate-message', messageId: 'task_none' }, 404],
    [{}, 400, '?ui=8'],
  ]) {
    const response = await post({ ...good, ...changes }, query);
    assert.equal(response.status, status, JSON.stringify(changes));
    assert.equal(typeof (await response.json()).error, 'string');
  }
  assert.equal((await fetch(`${server.url}/api/chat/never/stream`)).status, 204);
  assert.deepEqual(await newestRun(), before);
});
