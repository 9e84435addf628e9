// The openai-agents SDK with Headwater as its model: tools of the caller's, tools that the server runs, and decisions.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { Raised, startWorker } from './lib/python.mjs';
import { each } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { checkOrder } from './responses/order.mjs';

let server;
let agents;
before(async () => {
  server = await startServer();
  agents = startWorker('responses/agents_sdk.py', server.url);
});
after(async () => {
  await agents?.stop();
  await server?.stop();
});

/** One run of the SDK, each of whose answers came in order. */
async function run(input, tools, more = {}) {
  const result = await agents.ask('run', { input, tools, ...more });
  const begins = result.raw.flatMap((event, at) => (event.type === 'response.created' ? [at] : []));
  const answers = begins.map((from, at) => result.raw.slice(from, begins[at + 1]));
  for (const answer of answers) checkOrder(answer);
  return { ...result, answers };
}

const raws = (result) => result.items.map((item) => item.raw);

test('an agent whose tools the server runs answers every scenario', async () => {
  await each(async ({ input, text, tools = [], end, asks, thinks, pictures }) => {
    if (end === 'failed' || asks) return;
    const result = await run(input, []);
    assert.match(result.text, text);
    const expected = [
      ...(thinks ? ['reasoning'] : []),
      ...tools.map(() => 'mcp_call'),
      ...(pictures ? ['image_generation_call'] : []),
      'message',
    ];
    assert.deepEqual(raws(result), expected, input);
    const calls = result.items.filter((item) => item.raw === 'mcp_call');
    calls.forEach((call, at) => {
      assert.equal(call.name, tools[at].name);
      assert.match(call.output, tools[at].output);
    });
    const { usage } = result.answers[0].at(-1).response;
    assert.deepEqual(result.usage, { input: usage.input_tokens, output: usage.output_tokens, requests: 1 });
    const whole = await run(input, [], { streamed: false });
    assert.match(whole.text, text);
    assert.deepEqual(raws(whole), expected, input);
  });
});

test('an answer that failed fails the run', async () => {
  await assert.rejects(agents.ask('run', { input: 'fail', tools: [] }), (error) => {
    assert.ok(error instanceof Raised, error);
    assert.equal(error.name, 'ModelBehaviorError');
    return true;
  });
});

test("a tool of the caller's is run by the SDK, whether it sends everything again or chains", async () => {
  for (const more of [{}, { chained: true }, { streamed: false }]) {
    const result = await run('client', ['pick'], more);
    assert.equal(result.text, 'Your tool pick says: red');
    assert.deepEqual(raws(result), ['function_call', 'function_call_output', 'message']);
    assert.equal(result.usage.requests, 2);
    if (result.names.length > 0) assert.deepEqual(result.names, ['tool_called', 'tool_output', 'message_output_created']);
  }
});

test('what the SDK keeps of a run goes on in the same thread', async () => {
  const first = await run('weather', []);
  const second = await run([...first.resent, { role: 'user', content: 'weather' }], []);
  assert.match(second.text, /\[\^2\]$/);
});

test('a call that needs a decision waits for it, and goes on as it was decided', async () => {
  for (const asks of ['at_once', 'afterwards']) {
    for (const [decide, text] of [
      ['approve', /^Done: bought VNM\.\[\^1\]$/],
      ['reject', /^The order was not placed: .*too risky/],
    ]) {
      const result = await run('trade', ['headwater'], { asks, decide });
      assert.deepEqual(result.asked, ['execute_trade'], `${asks}, ${decide}`);
      assert.match(result.text, text, `${asks}, ${decide}`);
      assert.ok(result.names.includes('mcp_approval_requested'), result.names);
      assert.ok(result.names.includes('mcp_approval_response'), result.names);
      const call = result.items.findLast((item) => item.raw === 'mcp_call');
      assert.equal(call.output, decide === 'approve' ? 'Order placed: VNM x100' : null);
      assert.equal(result.usage.requests, 2);
    }
  }
});

test('a session of the SDK is a conversation of the server', async () => {
  const conversation = (await server.post('/v1/conversations', {})).id;
  assert.match((await run('weather', [], { conversation })).text, /\[\^1\]$/);
  assert.match((await run('weather', [], { conversation })).text, /sunny/);
  const { data } = await server.get(`/v1/conversations/${conversation}/items?order=asc`);
  assert.equal(data.filter((item) => item.role === 'user').length, 2);
});

test('after a hand-off of the SDK the new agent answers, with its own model and tools', async () => {
  const two = await startServer({ config: new URL('responses/handoff.toml', import.meta.url).pathname });
  const worker = startWorker('responses/agents_sdk.py', two.url);
  try {
    for (const chained of [false, true]) {
      const { text, agent, names } = await worker.ask('hand_over', { chained });
      assert.deepEqual([text, agent], ['Refunds says: red', 'refunds'], `chained: ${chained}`);
      assert.deepEqual(names, ['handoff_requested', 'handoff_occured', 'tool_called', 'tool_output', 'message_output_created']);
    }
  } finally {
    await worker.stop();
    await two.stop();
  }
});
