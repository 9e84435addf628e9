// Reference servers of the Model Context Protocol as tools of an agent, over stdio and in both generations of the protocol.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { startWorker } from './lib/python.mjs';
import { events, startServer } from './lib/server.mjs';

let [folder, server] = [];
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'headwater-mcp-'));
  const env = { MEMORY_FILE: join(folder, 'memory.jsonl') };
  server = await startServer({ config: new URL('mcp/headwater.toml', import.meta.url).pathname, env });
});
after(async () => {
  await server?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function play(input, model = 'guide') {
  const task = await server.post('/v1/tasks', { model, input, wait: true });
  return { task, result: task.output.find(({ type }) => type === 'tool_result') };
}

const text = ({ result }) => result.block_list.map((block) => block.text).join('\n');

test('a tool of server-everything is called', async () => {
  const run = await play('echo');
  assert.equal(run.task.status, 'completed', JSON.stringify(run.task));
  assert.match(text(run), /hello/);
});

test('an image of server-everything is stored and shown', async () => {
  const { result } = await play('image');
  const image = result.block_list.find(({ type }) => type === 'image');
  assert.match(image.image_url.url, /^\/v1\/blobs\//);
  const bytes = await fetch(server.url + image.image_url.url);
  assert.equal(bytes.headers.get('content-type'), 'image/png');
});

test('progress of server-everything is shown while the call runs', async () => {
  const { task } = await play('long');
  const story = await events(server.url, task.task_id);
  const steps = story.filter(({ type }) => type === 'task.tool.progress').map(({ progress, total }) => [progress, total]);
  assert.deepEqual(steps, [[1, 3], [2, 3], [3, 3]]);
});

test('an approved call runs after a kill -9', async () => {
  const { task } = await play('sum');
  assert.equal(task.status, 'paused', JSON.stringify(task));
  await server.killAndRestart();
  await server.post(`/v1/tasks/${task.task_id}/approvals/${task.pending[0].key}`, { decision: 'approve' });
  await events(server.url, task.task_id);
  const ended = await server.get(`/v1/tasks/${task.task_id}`);
  const result = ended.output.find(({ type }) => type === 'tool_result');
  assert.match(text({ result }), /\b5\b/);
});

const question = async ({ pending }) => {
  const { data } = await server.get('/v1/approvals?status=pending');
  return data.find(({ key }) => key === pending[0].key);
};

test('server-everything asks in the middle of a call and is told the answer', async () => {
  const { task } = await play('elicit');
  assert.equal(task.pending[0]?.kind, 'question', JSON.stringify(task));
  const { question: asked } = await question(task);
  assert.match(asked.message, /provide inputs/);
  assert.equal(asked.schema.properties.integer.maximum, 100);
  const path = `/v1/tasks/${task.task_id}/approvals/${task.pending[0].key}`;
  const answer = (content) => ({ decision: 'approve', arguments: content });
  await assert.rejects(server.post(path, answer({ name: 'Ann', integer: 1000 })), /422/);
  await server.post(path, answer({ name: 'Ann', check: true, integer: 7 }));
  await events(server.url, task.task_id);
  const ended = await server.get(`/v1/tasks/${task.task_id}`);
  const result = ended.output.find(({ type }) => type === 'tool_result');
  assert.match(text({ result }), /Name: Ann/, JSON.stringify(result));
});

test('a question of a session ends with a kill -9, and on_crash decides', async () => {
  const { task } = await play('elicit');
  assert.equal(task.pending[0]?.kind, 'question', JSON.stringify(task));
  await server.killAndRestart();
  const story = await events(server.url, task.task_id);
  const resolved = story.find(({ type }) => type === 'task.approval.resolved');
  assert.deepEqual([resolved.key, resolved.by], [task.pending[0].key, 'system']);
  const ended = await server.get(`/v1/tasks/${task.task_id}`);
  const result = ended.output.find(({ type }) => type === 'tool_result');
  assert.equal(result.status, 'unknown', JSON.stringify(result));
});

test('mcp-server-time is called, and its error is one', async () => {
  const run = await play('time');
  assert.match(text(run), /Asia\/Tokyo/, JSON.stringify(run.task));
  const { result } = await play('wrong');
  assert.equal(result.status, 'failed');
  assert.equal(result.error.code, 'tool_failed');
  assert.match(result.error.message, /Middle\/Earth|timezone/i);
});

test('the agents SDK sees the lists, is asked with the label of the server, and sees the call', async () => {
  const agents = startWorker('responses/agents_sdk.py', server.url);
  try {
    for (const [decide, asks, output] of [['approve', 'at_once', /\b5\b/], ['approve', 'afterwards', /\b5\b/], ['reject', 'at_once', null]]) {
      const result = await agents.ask('run', { input: 'sum', tools: ['everything', 'time'], model: 'guide', decide, asks });
      assert.deepEqual(result.asked, ['get-sum']);
      const told = ['mcp_list_tools', 'mcp_list_tools', 'mcp_approval_requested', 'mcp_approval_response', 'tool_called', 'message_output_created'];
      assert.deepEqual(result.names, told, `${decide}, ${asks}`);
      const [first, second] = result.items.filter(({ type }) => type === 'mcp_list_tools_item');
      assert.deepEqual([first.label, second.label], ['everything', 'time']);
      assert.ok(first.tools.includes('get-sum') && second.tools.includes('convert_time'), JSON.stringify(first.tools));
      const asked = result.items.find(({ type }) => type === 'mcp_approval_request_item');
      assert.deepEqual([asked.name, asked.label], ['get-sum', 'everything']);
      const call = result.items.find(({ raw }) => raw === 'mcp_call');
      assert.deepEqual([call.name, call.label], ['get-sum', 'everything']);
      if (output) assert.match(call.output, output);
      else assert.equal(call.output, null);
    }
    const again = await agents.ask('run', { input: 'echo', tools: ['everything', 'time'], model: 'guide', streamed: false });
    const more = [...again.resent, { role: 'user', content: 'echo' }];
    const second = await agents.ask('run', { input: more, tools: ['everything', 'time'], model: 'guide', streamed: false });
    assert.deepEqual(second.items.map(({ raw }) => raw), ['mcp_call', 'message'], 'a list is shown once in a thread');
  } finally {
    await agents.stop();
  }
});

test('server-filesystem reads a file of its folder and no other', async () => {
  const run = await play('file', 'keeper');
  assert.match(text(run), /776 km/, JSON.stringify(run.task));
  const { result } = await play('outside', 'keeper');
  assert.equal(result.error.code, 'tool_failed', JSON.stringify(result));
});

test('server-memory remembers from one run to the next, across a kill -9', async () => {
  await play('remember', 'keeper');
  await server.killAndRestart();
  const run = await play('recall', 'keeper');
  assert.match(text(run), /776 km/, JSON.stringify(run.task));
});
