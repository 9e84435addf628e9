// The same script through the openai-agents SDK and through Headwater: both run loops do the same, in the same order.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { runScript } from './lib/python.mjs';
import { events, startServer } from './lib/server.mjs';

const path = (name) => new URL(name, import.meta.url).pathname;
const SAID = ['one tool', 'two tools', 'tool twice', 'hand over', 'hand over first', 'order', 'scout'];

let server;
let sdk;
before(async () => {
  server = await startServer({ config: path('oracle/headwater.toml') });
  sdk = await runScript('oracle/agents_sdk.py', SAID);
});
after(() => server?.stop());

/** One run, whose approvals are all refused, in the form in which it is compared. */
async function play(input) {
  let task = await server.post('/v1/tasks', { model: 'guide', input, wait: true });
  const pending = [];
  if (task.status === 'paused') {
    // The stream of a paused run stays open.
    const story = await events(server.url, task.task_id, ({ type }) => type === 'task.paused');
    const asked = story.filter(({ type }) => type === 'task.approval.requested');
    for (const { key, action_requests } of asked) {
      pending.push(...action_requests.map(({ name, args }) => ({ name, arguments: args })));
      await server.post(`/v1/tasks/${task.task_id}/approvals/${key}`, { decision: 'reject', message: 'too risky' });
    }
    await events(server.url, task.task_id);
    task = await server.get(`/v1/tasks/${task.task_id}`);
  }
  assert.equal(task.status, 'completed');
  const items = shown(task.output);
  const children = task.output.filter((item) => item.type === 'tool_result').map((item) => childItems(item));
  const { agent, text } = items.at(-1);
  return { items, inner: shown(children.flat()), pending, agent, text };
}

/** What a sub-agent did stands in the result of the call that asked for it. */
const childItems = (result) => result.block_list.filter((block) => block.id && block.type !== 'text' && block.type !== 'image');
const words = (blocks) => blocks.filter((block) => block.type === 'text').map((block) => block.text).join('\n');

function output(result) {
  const said = childItems(result).findLast((item) => item.type === 'message');
  return words((said ?? result).block_list);
}

function shown(items) {
  const calls = items.filter((item) => item.type === 'tool_call');
  const place = (item) => calls.findIndex((call) => call.call_id === item.call_id);
  const item = (item) => {
    switch (item.type) {
      case 'message':
        return { type: 'message', agent: item.agent, text: words(item.block_list) };
      case 'tool_call':
        return { type: 'call', agent: item.agent, name: item.name, arguments: JSON.parse(item.arguments) };
      case 'tool_result':
        return { type: 'result', name: calls[place(item)].name, output: output(item) };
    }
    throw new Error(`what is ${item.type}?`);
  };
  // Parallel tools are shown as they end; only the order of their results for the model is fixed.
  const results = items.filter((item) => item.type === 'tool_result' && calls[place(item)].kind === 'tool');
  const ordered = results.toSorted((a, b) => place(a) - place(b));
  return items.map((one) => item(results.includes(one) ? ordered.shift() : one));
}

/** A hand-off's result is JSON, which may be written with or without spaces. */
const plain = (run) => {
  const compact = (item) =>
    item.name?.startsWith('transfer_to_') && item.type === 'result' ? { ...item, output: JSON.parse(item.output) } : item;
  return { ...run, items: run.items.map(compact) };
};

const same = async (input) => {
  const run = await play(input);
  assert.deepEqual(plain(run), plain(sdk[input]));
  return run;
};

test('a tool call, its output and the answer are those of the SDK', async () => {
  assert.equal((await same('one tool')).text, 'It is sunny in Paris.');
});

test('the results of two tools reach the model in the order of the SDK', async () => {
  assert.equal((await same('two tools')).text, 'The last of them says sunny in Rome.');
});

test('tools in consecutive turns behave as with the SDK', async () => {
  assert.equal((await same('tool twice')).items.length, 6);
});

test('a handoff next to an ordinary tool behaves as with the SDK, in either order', async () => {
  for (const input of ['hand over', 'hand over first']) assert.equal((await same(input)).agent, 'expert');
});

test('a rejected approval behaves as with the SDK', async () => {
  const { pending, text } = await same('order');
  assert.deepEqual([pending.length, text], [1, 'The answer was: too risky.']);
});

test('a sub-agent as a tool behaves as with the SDK', async () => {
  assert.equal((await same('scout')).inner.length, 3);
});
