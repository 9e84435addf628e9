// Messages, read by the anthropic SDK for Python, and Chat Completions, read by openai's: every scenario of the demo.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startWorker } from './lib/python.mjs';
import { SCENARIOS } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';

const PICK = { name: 'pick', description: 'Picks a colour.', input_schema: { type: 'object', properties: {} } };
const CHAT_PICK = { type: 'function', function: { name: 'pick', description: 'Picks a colour.', parameters: PICK.input_schema } };

let server;
let anthropic;
let openai;
before(async () => {
  server = await startServer();
  anthropic = startWorker('messages/anthropic_sdk.py', server.url);
  openai = startWorker('messages/chat_sdk.py', server.url);
});
after(async () => {
  await anthropic?.stop();
  await openai?.stop();
  await server?.stop();
});

const asked = (input) => [{ role: 'user', content: input }];
/** A scenario that waits for a person is open until somebody decides, and is tried for itself. */
const ANSWERED = SCENARIOS.filter(({ asks }) => asks !== 'approval');
const each = (visit) => Promise.all(ANSWERED.map(visit));

/**
 * What is of one run alone, folded away. Tools that run side by side end as they like. To the SDKs `null` and absent are
 * the same, and what their helpers parse is nothing here.
 */
function plain(answer) {
  const run = /(?:msg_|chatcmpl-)([0-9a-f]{32})/.exec(answer.id)[1];
  const text = JSON.stringify({ ...answer, created: 0 }, (key, value) => (value === null || /^parsed/.test(key) ? undefined : value));
  const folded = JSON.parse(text.replaceAll(run, 'R').replaceAll(/thr_[0-9a-f]+/g, 'thr_T'));
  folded.content?.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  return folded;
}

for (const beta of [false, true]) {
  const name = beta ? 'the beta client' : 'the client';

  test(`Messages: ${name} accumulates a stream to the same answer as without streaming`, async () => {
    await each(async ({ input, end, text, tools = [], thinks = 0, asks }) => {
      const request = { beta, messages: asked(input), ...(asks && { tools: [PICK] }) };
      const [streamed, whole] = await Promise.all([anthropic.ask('stream', request), anthropic.ask('create', request)]);
      if (end === 'failed') {
        // In a stream the status has been sent already.
        assert.deepEqual([whole.error.status, whole.error.type], [500, 'api_error']);
        assert.deepEqual([streamed.error.status, streamed.error.type], [200, 'api_error']);
        return;
      }
      assert.deepEqual(plain(streamed.final), plain(whole), input);
      const of = (type) => whole.content.filter((block) => block.type === type);
      assert.equal(whole.stop_reason, asks ? 'tool_use' : 'end_turn');
      assert.match(of('text').map((block) => block.text).join(''), text);
      assert.equal(of('thinking').length, thinks);
      const own = of('mcp_tool_use').filter((block) => block.name !== 'image_generation');
      assert.deepEqual(own.map((block) => block.name), tools.map((tool) => tool.name));
      for (const { id } of of('mcp_tool_use')) {
        const result = of('mcp_tool_result').find((block) => block.tool_use_id === id);
        assert.equal(result.is_error, false, `${input}: ${id}`);
      }
      assert.deepEqual(of('tool_use').map((block) => [block.name, block.input]), asks ? [['pick', {}]] : []);
      assert.ok(whole.usage.input_tokens > 0 && whole.usage.output_tokens > 0, input);
    });
  });
}

test('Messages: every event and every message is of the types of the SDK', async () => {
  await each(async ({ input, end, asks }) => {
    if (end === 'failed') return;
    const request = { beta: true, messages: asked(input), ...(asks && { tools: [PICK] }) };
    const events = await anthropic.ask('raw', request);
    assert.deepEqual(await anthropic.ask('misfits', { kind: 'beta event', values: events }), [], input);
    assert.deepEqual([events[0].type, events.at(-1).type], ['message_start', 'message_stop']);
    const whole = await anthropic.ask('create', request);
    assert.deepEqual(await anthropic.ask('misfits', { kind: 'beta message', values: [whole] }), [], input);
    if (whole.content.some((block) => block.type.startsWith('mcp_'))) return;
    assert.deepEqual(await anthropic.ask('misfits', { kind: 'event', values: events }), [], input);
    assert.deepEqual(await anthropic.ask('misfits', { kind: 'message', values: [whole] }), [], input);
  });
});

for (const beta of [false, true]) {
  test(`Messages: a resent answer continues its thread${beta ? ' (beta)' : ''}`, async () => {
    const { data: before } = await server.get('/v1/threads?limit=100');
    const told = await anthropic.ask('converse', { beta, turns: ['weather', 'story 3 fast', 'story 4 fast', 'parallel'] });
    assert.deepEqual(told.map((message) => message.stop_reason), Array(4).fill('end_turn'));
    const { data: threads } = await server.get('/v1/threads?limit=100');
    assert.equal(threads.length, before.length + 1);
    const { data: runs } = await server.get(`/v1/tasks?thread_id=${threads[0].thread_id}`);
    assert.deepEqual(runs.map((run) => run.task_id).reverse(), told.map((message) => message.id.replace('msg_', 'task_')));
  });
}

test('Messages: the tool runner of the SDK runs a client tool', async () => {
  const { asked: calls, told } = await anthropic.ask('run_tools', { prompt: 'a client tool' });
  assert.deepEqual(calls, ['pick']);
  assert.deepEqual(told.map((message) => message.stop_reason), ['tool_use', 'end_turn']);
  assert.equal(told[1].id, `${told[0].id}_2`);
  assert.equal(told[1].content[0].text, 'Your tool pick says: red');
});

test('Messages: an answer waits for an approval', async () => {
  const answer = anthropic.ask('stream', { beta: true, messages: asked('trade') });
  await approve();
  const { final } = await answer;
  assert.deepEqual(final.content.map((block) => block.type), ['text', 'mcp_tool_use', 'mcp_tool_result', 'text']);
});

test('Messages: errors map to the exceptions of the SDK', async () => {
  const wrong = async (params) => {
    const { error } = await anthropic.ask('create', { messages: asked('hello'), ...params });
    return [error.name, error.status, error.type];
  };
  assert.deepEqual(await wrong({ model: 'nobody' }), ['NotFoundError', 404, 'not_found_error']);
  assert.deepEqual(await wrong({ max_tokens: 0 }), ['BadRequestError', 400, 'invalid_request_error']);
  assert.deepEqual(await wrong({ messages: [] }), ['BadRequestError', 400, 'invalid_request_error']);
  assert.deepEqual(await wrong({ messages: asked('x'.repeat(900_000)) }), ['ContentTooLargeError', 413, 'request_too_large']);
});

test('Chat Completions: the client accumulates a stream to the same answer as without streaming', async () => {
  await each(async ({ input, end, text, thinks, asks }) => {
    const request = { messages: asked(input), ...(asks && { tools: [CHAT_PICK] }) };
    const [streamed, whole] = await Promise.all([openai.ask('stream', request), openai.ask('create', request)]);
    if (end === 'failed') {
      assert.deepEqual([whole.error.name, whole.error.code], ['InternalServerError', 'run_failed']);
      assert.deepEqual([streamed.error.name, streamed.error.code], ['APIError', 'run_failed']);
      return;
    }
    for (const call of streamed.final.choices[0].message.tool_calls ?? []) delete call.index;
    assert.deepEqual(plain(streamed.final), plain(whole), input);
    const [{ message, finish_reason }] = whole.choices;
    assert.equal(finish_reason, asks ? 'tool_calls' : 'stop');
    assert.match(message.content ?? '', text);
    assert.equal(typeof message.reasoning_content, thinks ? 'string' : 'undefined');
    assert.ok(whole.usage.total_tokens > 0, input);
  });
});

test('Chat Completions: every chunk and every completion is of the types of the SDK', async () => {
  await each(async ({ input, end, asks }) => {
    if (end === 'failed') return;
    const request = { messages: asked(input), ...(asks && { tools: [CHAT_PICK] }) };
    const chunks = await openai.ask('raw', request);
    assert.deepEqual(await openai.ask('misfits', { kind: 'chunk', values: chunks }), [], input);
    assert.deepEqual([chunks[0].choices[0].delta.role, chunks.at(-1).choices], ['assistant', []]);
    const whole = await openai.ask('create', request);
    assert.deepEqual(await openai.ask('misfits', { kind: 'completion', values: [whole] }), [], input);
  });
});

for (const streamed of [false, true]) {
  test(`Chat Completions: a client tool is run${streamed ? ', streamed' : ''}`, async () => {
    const told = await openai.ask('run_tools', { prompt: 'a client tool', streamed });
    assert.deepEqual(told.map((one) => one.choices[0].finish_reason), ['tool_calls', 'stop']);
    assert.equal(told[1].id, `${told[0].id}_2`);
    assert.equal(told[1].choices[0].message.content, 'Your tool pick says: red');
  });
}

test('Chat Completions: an answer waits for an approval', async () => {
  const answer = openai.ask('stream', { messages: asked('trade') });
  await approve();
  const { final } = await answer;
  assert.match(final.choices[0].message.content, /^I will place the order\.\n\nDone/);
});

test('Chat Completions: errors map to the exceptions of the SDK', async () => {
  const wrong = async (params) => {
    const { error } = await openai.ask('create', { messages: asked('hello'), ...params });
    return [error.name, error.status, error.code, error.param];
  };
  assert.deepEqual(await wrong({ extra_body: { model: 'nobody' } }), ['NotFoundError', 404, 'model_not_found', 'model']);
  assert.deepEqual(await wrong({ n: 2 }), ['BadRequestError', 400, 'invalid_body', 'n']);
  assert.deepEqual(await wrong({ messages: [] }), ['BadRequestError', 400, 'invalid_body', 'messages']);
});

/** Says yes to the one question that there is, once it is asked. */
async function approve() {
  for (;;) {
    const { data } = await server.get('/v1/approvals?status=pending');
    const question = data.find((row) => row.status === 'pending');
    if (question) {
      await server.post(`/v1/tasks/${question.run_id}/approvals/${question.key}`, { decision: 'approve' });
      return;
    }
  }
}
