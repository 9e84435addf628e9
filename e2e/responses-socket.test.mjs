// Responses over a WebSocket and compaction, by the openai and openai-agents SDKs for Python.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startWorker } from './lib/python.mjs';
import { PICK, each, request, words } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { checkOrder } from './responses/order.mjs';

let server;
let python;
before(async () => {
  server = await startServer();
  python = startWorker('responses/socket_sdk.py', server.url);
});
after(async () => {
  await python?.stop();
  await server?.stop();
});

const turns = (requests) => python.ask('turns', { requests });

test('responses.connect() reads every scenario, and each turn ends with what GET returns', async () => {
  await each(async (one) => {
    const [events] = await turns([request(one)]);
    checkOrder(events);
    assert.deepEqual(await python.ask('misfits', { kind: 'event', values: events }), [], one.input);
    const { response } = events.at(-1);
    assert.match(words(response), one.text);
    assert.deepEqual(await server.get(`/v1/responses/${response.id}`), response, one.input);
  });
});

test('a conversation goes on over one connection, stored or not, with a tool of the caller', async () => {
  for (const store of [true, false]) {
    const said = await turns([
      { model: 'demo', input: 'weather', store },
      { model: 'demo', input: 'client', store, tools: [PICK], previous_response_id: '$0' },
      { model: 'demo', input: '$outputs', store, tools: [PICK], previous_response_id: '$1' },
      { model: 'demo', input: 'weather', store, previous_response_id: '$2' },
      { model: 'demo', input: 'hello', store, previous_response_id: 'resp_1' },
      { model: 'demo', input: 'hello', store },
    ]);
    const ends = said.map((events) => events.at(-1));
    assert.equal(words(ends[2].response), 'Your tool pick says: red');
    assert.match(words(ends[3].response), /\[\^2\]$/, 'the second reference of the same thread');
    assert.deepEqual([ends[4].type, ends[4].status, ends[4].error.code], ['error', 400, 'previous_response_not_found']);
    assert.equal(said[4].length, 1);
    assert.equal(ends[5].type, 'response.completed', 'the connection lives');
    const first = await fetch(`${server.url}/v1/responses/${ends[0].response.id}`);
    assert.equal(first.status, store ? 200 : 404);
  }
});

test('responses.compact() gives a window that the next response continues, over HTTP and over the socket', async () => {
  const [[...events]] = await turns([{ model: 'demo', input: 'weather' }]);
  const window = await python.ask('compact', { model: 'demo', previous_response_id: events.at(-1).response.id, input: 'And then?' });
  // The SDK's type knows no messages of users here, which the service sends all the same.
  const summary = { ...window, output: window.output.filter((item) => item.type !== 'message') };
  assert.deepEqual(await python.ask('misfits', { kind: 'window', values: [summary] }), []);
  assert.equal(window.object, 'response.compaction');
  assert.deepEqual(window.output.map((item) => item.type), ['message', 'message', 'compaction']);
  assert.ok(window.usage.total_tokens > 0);
  const input = [...window.output, { role: 'user', content: 'hello' }];
  const [next] = await turns([{ model: 'demo', input, store: false, tools: [] }]);
  assert.match(words(next.at(-1).response), /^Hello!/);
  assert.match(words(await server.post('/v1/responses', { model: 'demo', input })), /^Hello!/);
});

test('openai-agents runs its loop over one session, with a tool, stored or not', async () => {
  for (const [store, chained] of [[true, true], [true, false], [false, false]]) {
    const { texts, kinds } = await python.ask('chat', { inputs: ['client', 'weather', 'hello'], store, chained });
    assert.equal(texts[0], 'Your tool pick says: red', `store ${store}, chained ${chained}`);
    assert.match(texts[1], /sunny/);
    assert.match(texts[2], /^Hello!/);
    assert.equal(kinds.filter((kind) => kind === 'response.completed').length, 4);
  }
});

test('openai-agents hands over between agents in one session', async () => {
  const two = await startServer({ config: new URL('responses/handoff.toml', import.meta.url).pathname });
  const worker = startWorker('responses/socket_sdk.py', two.url);
  try {
    for (const store of [true, false]) {
      assert.deepEqual(await worker.ask('hand_over', { store }), { text: 'Refunds says: red', agent: 'refunds' });
    }
  } finally {
    await worker.stop();
    await two.stop();
  }
});

test('a picture is described, whatever the question says', async () => {
  const picture = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  const content = [{ type: 'input_text', text: 'What is in this image?' }, { type: 'input_image', image_url: picture }];
  const [events] = await turns([{ model: 'demo', input: [{ role: 'user', content }] }]);
  assert.deepEqual(events.at(-1).response.output.map((item) => item.type), ['message']);
});
