// Run items: the events that the openai-agents SDK would emit, for every scenario of the demo.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startWorker } from './lib/python.mjs';
import { begin } from './lib/runs.mjs';
import { SCENARIOS, each } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { open, take } from './lib/sse.mjs';
import { ofRunItems } from './lib/run-summary.mjs';
import { checkOrder } from './responses/order.mjs';

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

const start = (input) => begin(server, input);
const follow = async (task_id, isLast) => take(await open(`${server.url}/v1/tasks/${task_id}/events?format=run-items`), isLast);
const isPause = (frame) => frame.event === 'run_paused';
const names = (taken) => taken.filter((frame) => frame.event === 'run_item_stream_event').map((frame) => frame.data.name);

/** What holds for every stream: each answer of the model in order, each item told once, as soon as it is true. */
async function inOrder(task_id, taken) {
  for (const { event, data, id } of taken) {
    assert.equal(event, data.type);
    assert.ok(id, 'a frame without a place');
  }
  assert.equal(new Set(taken.map((frame) => frame.id)).size, taken.length, 'no place twice');
  const raw = taken.filter((frame) => frame.event === 'raw_response_event').map((frame) => frame.data.data);
  const begins = raw.flatMap((event, at) => (event.type === 'response.created' ? [at] : []));
  begins.forEach((from, at) => {
    const answer = raw.slice(from, begins[at + 1]);
    checkOrder(answer);
    assert.equal(answer[0].response.id, `${task_id.replace('task_', 'resp_')}_s${at + 1}`);
    assert.deepEqual(answer.at(-1).response.output.filter((item) => item.type === 'mcp_call'), []);
  });
  // The SDK knows `cancelled` as a status, and not yet as a reason.
  const known = raw.filter((event) => event.response?.status !== 'cancelled');
  assert.deepEqual(await python.ask('misfits', { kind: 'event', values: known }), []);
  const told = new Set();
  taken.forEach(({ event, data }, at) => {
    if (event !== 'run_item_stream_event') return;
    const { raw_item, agent } = data.item;
    assert.ok(agent.name);
    const key = `${data.name} ${raw_item.call_id ?? raw_item.id}`;
    assert.ok(!told.has(key), `${key} is told twice`);
    told.add(key);
    if (['tool_output', 'handoff_occured'].includes(data.name)) return;
    const before = taken[at - 1].data.data;
    assert.equal(before?.type, 'response.output_item.done', `${data.name} comes with its item`);
    assert.deepEqual(raw_item, before.item);
  });
}

const EXPECTED = {
  hello: ['message_output_created'],
  weather: ['reasoning_item_created', 'tool_called', 'tool_output', 'message_output_created'],
  help: ['reasoning_item_created', 'tool_called', 'tool_output', 'message_output_created'],
  parallel: ['tool_called', 'tool_called', 'tool_called', 'tool_output', 'tool_output', 'tool_output', 'message_output_created'],
  handoff: ['handoff_requested', 'handoff_occured', 'message_output_created'],
  image: ['tool_called', 'message_output_created'],
  'story 30 fast': ['message_output_created'],
  // Interrupted output is no item of the run.
  fail: [],
  'slow 1': ['tool_called', 'tool_output', 'message_output_created'],
  trade: ['message_output_created', 'tool_called'],
  client: ['tool_called'],
};

test('every scenario has the event order and names of the SDK', async () => {
  assert.deepEqual(Object.keys(EXPECTED).sort(), SCENARIOS.map((one) => one.input).sort());
  await each(async ({ input, end = 'completed', asks }) => {
    const { task_id } = await start(input);
    const taken = await follow(task_id, isPause);
    await inOrder(task_id, taken);
    assert.deepEqual(names(taken), EXPECTED[input], input);
    const { new_agent } = taken[0].data;
    assert.deepEqual([taken[0].event, new_agent], ['agent_updated_stream_event', { name: 'demo' }]);
    const last = taken.at(-1);
    if (asks) assert.deepEqual([last.event, last.data.reason], ['run_paused', asks]);
    else assert.deepEqual([last.event, last.data.status, last.data.interruptions], ['run_ended', end, []]);
  });
});

test('the run items add up to the task', async () => {
  await each(async ({ input, text, tools = [], end = 'completed', asks }) => {
    if (asks || end === 'failed') return;
    const { task_id } = await start(input);
    const taken = await follow(task_id);
    const told = ofRunItems(taken);
    assert.match(told.text, text);
    assert.equal(told.status, end);
    assert.deepEqual(told.tools.filter((tool) => tool.output !== undefined).map((tool) => tool.name), tools.map((tool) => tool.name));
    for (const tool of tools) assert.match(told.tools.find((one) => one.name === tool.name).output, tool.output);
    const { new_agent } = taken.findLast((frame) => frame.event === 'agent_updated_stream_event').data;
    assert.equal(new_agent.name, (await server.get(`/v1/tasks/${task_id}`)).agent, input);
  });
});

test('a pause lists what it waits for, the stream stays open, and nothing is repeated', async () => {
  for (const [input, decision, output, text] of [
    ['trade', { decision: 'approve' }, /^Order placed: VNM x100$/, /^I will place the order\.Done: bought VNM\.\[\^1\]$/],
    ['trade', { decision: 'reject', message: 'too risky' }, /too risky/, /not placed: .*too risky/],
    ['client', [{ call_id: '', content: 'red' }], /^red$/, /^Your tool pick says: red$/],
  ]) {
    const { task_id } = await start(input);
    let answered;
    const taken = await follow(task_id, (frame) => {
      if (isPause(frame)) answered = answer(task_id, frame.data.interruptions[0], decision);
      return false;
    });
    await answered;
    await inOrder(task_id, taken);
    const at = taken.findIndex(isPause);
    assert.deepEqual(taken[at + 1].data, { type: 'agent_updated_stream_event', new_agent: { name: 'demo' } });
    assert.deepEqual(names(taken.slice(at)), ['tool_output', 'message_output_created']);
    const told = ofRunItems(taken);
    assert.match(told.tools[0].output, output);
    assert.match(told.text, text);
    assert.equal(told.status, 'completed');
  }
});

function answer(task_id, { key, call_id, tool_name }, decision) {
  assert.ok(['execute_trade', 'pick'].includes(tool_name), tool_name);
  if (Array.isArray(decision)) return server.post(`/v1/tasks/${task_id}/tool_results`, decision.map((one) => ({ ...one, call_id })));
  return server.post(`/v1/tasks/${task_id}/approvals/${key}`, decision);
}

test('a cancelled run is marked as such and keeps its partial text', async () => {
  const { task_id } = await start('story 5000');
  let cancelled;
  const taken = await follow(task_id, (_, count) => {
    if (count === 10) cancelled = server.post(`/v1/tasks/${task_id}/cancel`, {});
    return false;
  });
  await cancelled;
  await inOrder(task_id, taken);
  const { data } = taken.at(-1);
  assert.deepEqual([data.type, data.status, data.reason, data.interruptions], ['run_ended', 'cancelled', 'user', []]);
  const raw = taken.findLast((frame) => frame.event === 'raw_response_event').data.data;
  assert.deepEqual([raw.type, raw.response.status], ['response.incomplete', 'cancelled']);
  assert.deepEqual(names(taken), []);
});

test("a thread's stream has its runs in order and does not end", async () => {
  const first = await server.post('/v1/tasks', { model: 'demo', input: 'weather', wait: true });
  const { thread_id } = first;
  let ends = 0;
  let next;
  const taken = await take(await open(`${server.url}/v1/threads/${thread_id}/events?format=run-items`), (frame) => {
    if (frame.event !== 'run_ended') return false;
    ends += 1;
    if (ends === 1) next = server.post('/v1/tasks', { model: 'demo', input: 'hello', thread_id });
    return ends === 2;
  });
  const second = await next;
  const at = taken.findIndex((frame) => frame.event === 'run_ended') + 1;
  const alone = async (task_id) => (await follow(task_id)).map((frame) => frame.data);
  assert.deepEqual(taken.slice(0, at).map((frame) => frame.data), await alone(first.task_id));
  assert.deepEqual(taken.slice(at).map((frame) => frame.data), await alone(second.task_id));
});

test('an unknown format is refused with a list of the known ones', async () => {
  const { task_id } = await start('hello');
  const response = await fetch(`${server.url}/v1/tasks/${task_id}/events?format=run_items`);
  assert.ok([400, 422].includes(response.status), `${response.status}`);
  assert.match(await response.text(), /run-items/);
});
