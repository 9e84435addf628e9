// What Responses keeps: answers in the background, chains and forks, conversations, what was asked, and what is refused.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Raised, startWorker } from './lib/python.mjs';
import { HOSTED, PICK, said, taskId, words } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { open, take } from './lib/sse.mjs';
import { checkFrames, checkOrder } from './responses/order.mjs';

let server;
let python;
before(async () => {
  server = await startServer();
  python = startWorker('responses/openai_sdk.py', server.url);
});
after(async () => {
  await python?.stop();
  await server?.stop();
});

const call = (path, params) => python.ask('call', { path, ...params });
const create = (params) => call('responses.create', { model: 'demo', ...params });
const retrieve = (response_id, params) => call('responses.retrieve', { response_id, ...params });
const refused = (promise, expected) =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof Raised, error);
    const { name, status, code } = error;
    const told = { name, status, code };
    assert.deepEqual(Object.fromEntries(Object.keys(expected).map((key) => [key, told[key]])), expected, error.message);
    assert.ok(error.message.length > 20, `it says what to do: ${error.message}`);
    return true;
  });
const NOT_FOUND = { name: 'NotFoundError', status: 404 };
const BAD = { name: 'BadRequestError', status: 400 };

/** Asks again until the answer has ended, as a client without streams does. */
async function poll(id) {
  for (;;) {
    const response = await retrieve(id);
    if (!['queued', 'in_progress'].includes(response.status)) return response;
    await pause(20);
  }
}

const thread = async (response) => (await server.get(`/v1/tasks/${taskId(response.id)}`)).thread_id;

// --- in the background

test('an answer in the background is asked for until it is there', async () => {
  const first = await create({ input: 'weather', background: true });
  assert.ok(['queued', 'in_progress'].includes(first.status), first.status);
  assert.equal(first.background, true);
  const last = await poll(first.id);
  assert.equal(last.status, 'completed');
  assert.match(words(last), /sunny/);
  assert.deepEqual((await retrieve(first.id, { stream: true })).at(-1).response, last);
});

test('an answer in the background shows from the first moment on what was asked, whether its run has begun or not', async () => {
  const asked = { metadata: { colour: 'red' }, temperature: 0.5, background: true };
  const begun = Array.from({ length: 40 }, () => create({ input: 'hello', ...asked }));
  for (const { id, metadata, temperature, background } of await Promise.all(begun)) {
    assert.deepEqual({ metadata, temperature, background }, asked);
    const now = await retrieve(id);
    assert.deepEqual({ metadata: now.metadata, temperature: now.temperature, background: now.background }, asked);
  }
});

test('a background response can be followed from its first event after a disconnect', async () => {
  const first = await create({ input: 'story 30', background: true, stream: true, until: 0 });
  const { id } = first[0].response;
  const events = [...first, ...(await retrieve(id, { stream: true, starting_after: 0 }))];
  checkOrder(events);
  assert.equal(events.at(-1).type, 'response.completed');
});

test('a response whose only reader disconnected is completed', async () => {
  const [{ response }] = await create({ input: 'story 30', stream: true, until: 0 });
  const last = await poll(response.id);
  assert.equal(last.status, 'completed');
  assert.equal(said(await retrieve(response.id, { stream: true })), words(last));
});

test('cancelling a background response ends all of its streams', async () => {
  const { id } = await create({ input: 'story 5000', background: true });
  const followed = retrieve(id, { stream: true });
  await retrieve(id, { stream: true, until: 10 });
  const told = await call('responses.cancel', { response_id: id });
  assert.equal(told.id, id);
  const events = await followed;
  checkOrder(events);
  const last = events.at(-1);
  assert.deepEqual([last.type, last.response.status], ['response.incomplete', 'cancelled']);
  assert.deepEqual(last.response.incomplete_details, { reason: 'cancelled' });
  assert.equal(last.response.output.at(-1).status, 'incomplete');
  assert.equal(words(last.response), said(events));
  assert.deepEqual(await retrieve(id), last.response);
  // A second cancel changes nothing.
  assert.deepEqual(await call('responses.cancel', { response_id: id }), last.response);
});

test('a response interrupted by a crash is generated again, and its terminal event has only the new output', async () => {
  const own = await startServer();
  try {
    const begun = await own.post('/v1/responses', { model: 'demo', input: 'story 40', background: true });
    const path = `/v1/responses/${begun.id}?stream=true`;
    await take(await open(own.url + path), (frame) => frame.data.sequence_number === 15);
    await own.killAndRestart();
    const taken = await take(await open(own.url + path));
    const cut = taken.filter(({ data }) => data.type === 'response.output_item.done' && data.item.status === 'incomplete');
    assert.equal(cut.length, 1);
    checkFrames(taken, { dropped: [cut[0].data.item.id] });
    const last = taken.at(-1).data;
    assert.equal(last.type, 'response.completed');
    assert.equal(words(last.response).split(' ').length - 1, 40);
    assert.deepEqual(await own.get(`/v1/responses/${begun.id}`), last.response);
  } finally {
    await own.stop();
  }
});

// --- stored and unstored responses

test('a deleted response is gone', async () => {
  const { id } = await create({ input: 'hello' });
  await call('responses.delete', { response_id: id });
  await refused(retrieve(id), NOT_FOUND);
  await refused(retrieve(id, { stream: true }), NOT_FOUND);
  await refused(call('responses.delete', { response_id: id }), NOT_FOUND);
  await refused(create({ input: 'hello', previous_response_id: id }), { code: 'previous_response_not_found' });
});

test('a response with store=false is returned once', async () => {
  const response = await create({ input: 'hello', store: false });
  assert.deepEqual([response.status, response.store], ['completed', false]);
  await refused(retrieve(response.id), NOT_FOUND);
  await refused(create({ input: 'hello', previous_response_id: response.id }), { code: 'previous_response_not_found' });
  const events = await create({ input: 'hello', store: false, stream: true });
  checkOrder(events);
  await refused(retrieve(events[0].response.id), NOT_FOUND);
});

test('request fields are echoed', async () => {
  const asked = {
    instructions: 'Be brief.', metadata: { colour: 'red' }, max_output_tokens: 4096, temperature: 0.5, top_p: 0.9,
    parallel_tool_calls: false, tool_choice: 'auto', tools: [PICK], truncation: 'disabled', user: 'somebody',
  };
  const response = await create({ input: 'hello', ...asked });
  for (const [key, value] of Object.entries(asked)) assert.deepEqual(response[key], value, key);
  assert.deepEqual([response.object, response.model, response.store, response.background], ['response', 'demo', true, false]);
  const { usage } = response;
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0);
  assert.ok(Number.isInteger(response.created_at) && response.completed_at >= response.created_at);
});

test('input items are listed newest first by default, in pages', async () => {
  const sent = [['developer', 'be brief'], ['user', 'one'], ['assistant', 'two'], ['user', 'three']];
  const { id } = await create({ input: sent.map(([role, content]) => ({ role, content })) });
  const list = (params) => python.ask('page', { path: 'responses.input_items.list', response_id: id, ...params });
  const read = ({ data }) => data.map((item) => [item.role, item.content[0].text]);
  const newest = await list();
  assert.deepEqual([read(newest), newest.more], [sent.toReversed(), false]);
  assert.deepEqual(await python.ask('misfits', { kind: 'listed_item', values: newest.data }), []);
  const first = await list({ order: 'asc', limit: 3 });
  assert.deepEqual([read(first), first.more], [sent.slice(0, 3), true]);
  const rest = await list({ order: 'asc', limit: 3, after: first.data.at(-1).id });
  assert.deepEqual([read(rest), rest.more], [sent.slice(3), false]);
  const all = await call('responses.input_items.list', { response_id: id, limit: 1, order: 'asc' });
  assert.deepEqual(read({ data: all }), sent);
  assert.equal(new Set(all.map((item) => item.id)).size, sent.length);
});

test('agents of the config are the models', async () => {
  const models = await call('models.list', {});
  const names = models.map((model) => model.id);
  for (const name of ['demo', 'WeatherAgent', 'specialist']) assert.ok(names.includes(name), `${name} is not in ${names}`);
  for (const model of models) assert.equal(model.object, 'model');
  assert.equal((await call('models.retrieve', { model: 'demo' })).id, 'demo');
  await refused(call('models.retrieve', { model: 'nobody' }), NOT_FOUND);
});

// --- chains of responses

test('a chain of responses is one conversation, and citation numbers stay', async () => {
  const first = await create({ input: 'weather' });
  const second = await create({ input: 'weather', previous_response_id: first.id });
  const third = await create({ input: 'weather', previous_response_id: second.id });
  assert.deepEqual([first, second, third].map((one) => one.previous_response_id), [null, first.id, second.id]);
  assert.deepEqual([first, second, third].map((one) => /\[\^(\d+)\]$/.exec(words(one))[1]), ['1', '2', '3']);
  assert.equal(await thread(third), await thread(first));
});

test('two responses may continue from the same one', async () => {
  const first = await create({ input: 'weather' });
  const left = await create({ input: 'weather', previous_response_id: first.id });
  const right = await create({ input: 'hello', previous_response_id: first.id });
  assert.deepEqual([left.status, right.status], ['completed', 'completed']);
  assert.deepEqual([left.previous_response_id, right.previous_response_id], [first.id, first.id]);
  const after = await create({ input: 'weather', previous_response_id: right.id });
  assert.match(words(after), /sunny/);
  for (const one of [first, left, right]) assert.deepEqual(await retrieve(one.id), one);
});

test('resent items continue their thread', async () => {
  const first = await create({ input: 'weather' });
  const resent = [{ role: 'user', content: 'weather' }, ...first.output, { role: 'user', content: 'weather' }];
  const second = await create({ input: resent });
  assert.equal(await thread(second), await thread(first));
  assert.match(words(second), /\[\^2\]$/);
});

test('a repeated request with the same key returns the same response', async () => {
  const key = { extra_headers: { 'Idempotency-Key': 'once' } };
  const first = await create({ input: 'weather', ...key });
  assert.deepEqual(await create({ input: 'weather', ...key }), first);
  await refused(create({ input: 'hello', ...key }), { name: 'ConflictError', status: 409 });
});

// --- client tools and approvals

test("a client tool is called, answered, and its result used", async () => {
  for (const stream of [false, true]) {
    const asked = await create({ input: 'client', tools: [PICK] });
    const [function_call] = asked.output;
    assert.equal(function_call.type, 'function_call');
    const answer = { type: 'function_call_output', call_id: function_call.call_id, output: 'red' };
    const next = { previous_response_id: asked.id, input: [answer], tools: [PICK], stream };
    const answered = await create(next);
    if (stream) checkOrder(answered);
    const response = stream ? answered.at(-1).response : answered;
    assert.equal(words(response), 'Your tool pick says: red');
    assert.equal(response.previous_response_id, asked.id);
    assert.equal(taskId(response.id), taskId(asked.id));
    assert.deepEqual(await retrieve(response.id), response);
  }
});

test("a client tool can be answered by resending everything", async () => {
  const asked = await create({ input: 'client', tools: [PICK] });
  const answer = { type: 'function_call_output', call_id: asked.output[0].call_id, output: 'blue' };
  const input = [{ role: 'user', content: 'client' }, ...asked.output, answer];
  const response = await create({ input, tools: [PICK] });
  assert.equal(words(response), 'Your tool pick says: blue');
  assert.equal(taskId(response.id), taskId(asked.id));
});

const decision = (question, approve, reason) => [
  { type: 'mcp_approval_response', approval_request_id: question.id, approve, ...(reason && { reason }) },
];

test('a call that needs approval requests it and follows the decision', async () => {
  for (const [approve, reason, text, status] of [
    [true, undefined, /^Done: bought VNM\.\[\^1\]$/, 'completed'],
    [false, 'too risky', /^The order was not placed: .*too risky/, 'failed'],
  ]) {
    for (const stream of [false, true]) {
      const asked = await create({ input: 'trade', tools: [HOSTED] });
      const question = asked.output.at(-1);
      assert.equal(question.type, 'mcp_approval_request');
      const input = decision(question, approve, reason);
      const next = { previous_response_id: asked.id, input, tools: [HOSTED], stream };
      const answered = await create(next);
      if (stream) checkOrder(answered);
      const response = stream ? answered.at(-1).response : answered;
      assert.match(words(response), text);
      const [call] = response.output;
      assert.deepEqual([call.type, call.status, call.approval_request_id], ['mcp_call', status, question.id]);
      if (approve) assert.equal(call.output, 'Order placed: VNM x100');
      else assert.match(JSON.stringify(call.error), /too risky/);
      assert.deepEqual(await retrieve(response.id), response);
    }
  }
});

test('a repeated decision counts once, and a different one is too late', async () => {
  const asked = await create({ input: 'trade', tools: [HOSTED] });
  const question = asked.output.at(-1);
  const next = { previous_response_id: asked.id, tools: [HOSTED] };
  const first = await create({ ...next, input: decision(question, true) });
  const again = await create({ ...next, input: decision(question, true) });
  assert.deepEqual(again, first);
  await refused(create({ ...next, input: decision(question, false, 'no') }), { name: 'ConflictError', status: 409 });
  const resent = [{ role: 'user', content: 'trade' }, ...asked.output, ...decision(question, true), ...first.output];
  const later = await create({ input: [...resent, { role: 'user', content: 'weather' }] });
  assert.equal(await thread(later), await thread(first));
  assert.match(words(later), /sunny/);
});

// --- conversations

test('a conversation is created, updated, filled by responses, read and deleted', async () => {
  const made = await call('conversations.create', { metadata: { topic: 'weather' } });
  assert.deepEqual([made.object, made.metadata], ['conversation', { topic: 'weather' }]);
  assert.deepEqual(await call('conversations.retrieve', { conversation_id: made.id }), made);
  const changed = await call('conversations.update', { conversation_id: made.id, metadata: { topic: 'rain' } });
  assert.deepEqual(changed, { ...made, metadata: { topic: 'rain' } });

  const first = await create({ input: 'weather', conversation: made.id });
  assert.equal(first.conversation.id, made.id);
  const second = await create({ input: 'weather', conversation: { id: made.id } });
  assert.match(words(second), /\[\^2\]$/);
  const items = await call('conversations.items.list', { conversation_id: made.id, order: 'asc', limit: 2 });
  const shown = items.map((item) => item.role ?? item.type);
  const turn = ['user', 'reasoning', 'mcp_call', 'assistant'];
  assert.deepEqual(shown, [...turn, ...turn]);
  assert.deepEqual(await python.ask('misfits', { kind: 'listed_item', values: items }), []);
  const one = items.at(-1);
  assert.deepEqual(await call('conversations.items.retrieve', { conversation_id: made.id, item_id: one.id }), one);

  await call('conversations.delete', { conversation_id: made.id });
  await refused(call('conversations.retrieve', { conversation_id: made.id }), NOT_FOUND);
  await refused(create({ input: 'hello', conversation: made.id }), {});
});

test('a conversation may start with items from the caller', async () => {
  const items = [{ type: 'message', role: 'user', content: 'hello' }];
  const made = await call('conversations.create', { items });
  const listed = await call('conversations.items.list', { conversation_id: made.id });
  assert.deepEqual(listed.map((item) => [item.type, item.role]), [['message', 'user']]);
  const more = await call('conversations.items.create', { conversation_id: made.id, items });
  await call('conversations.items.delete', { conversation_id: made.id, item_id: more.data[0].id });
  assert.deepEqual(await call('conversations.items.list', { conversation_id: made.id }), listed);
  const response = await create({ input: 'weather', conversation: made.id });
  assert.match(words(response), /sunny/);
});

// --- errors

test('invalid requests raise the exceptions of the SDK', async () => {
  const unknown = `resp_${'0'.repeat(32)}`;
  await refused(create({ model: 'nobody', input: 'hello' }), BAD);
  await refused(create({ input: 5 }), BAD);
  await refused(create({ input: [{ type: 'message', role: 'nobody', content: 'hello' }] }), BAD);
  await refused(create({ input: 'hello', temperature: 'warm' }), BAD);
  await refused(create({ input: 'hello', previous_response_id: unknown }), { code: 'previous_response_not_found' });
  await refused(create({ input: 'hello', conversation: 'conv_none' }), {});
  await refused(create({ input: 'hello', conversation: 'conv_none', previous_response_id: unknown }), BAD);
  await refused(create({ input: [{ type: 'function_call_output', call_id: 'call_none', output: 'red' }] }), BAD);
  await refused(retrieve(unknown), NOT_FOUND);
  await refused(retrieve('nonsense'), NOT_FOUND);
  await refused(retrieve(unknown, { stream: true, starting_after: 3 }), NOT_FOUND);
  await refused(call('responses.cancel', { response_id: unknown }), NOT_FOUND);
  await refused(call('responses.input_items.list', { response_id: unknown }), NOT_FOUND);
  await refused(call('conversations.retrieve', { conversation_id: 'conv_none' }), NOT_FOUND);
});

test('errors are reported before a stream starts', async () => {
  await refused(create({ model: 'nobody', input: 'hello', stream: true }), BAD);
  await refused(create({ input: 5, stream: true }), BAD);
});
