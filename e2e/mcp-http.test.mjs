// The reference server of the Model Context Protocol behind a URL (streamable HTTP), as tools of an agent.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { freePort } from './lib/free-port.mjs';
import { events, startServer } from './lib/server.mjs';

const here = (path) => new URL(path, import.meta.url).pathname;
let [everything, folder, port, server] = [];

before(async () => {
  port = await freePort();
  everything = await startEverything();
  folder = await mkdtemp(join(tmpdir(), 'headwater-mcp-'));
  const config = `
    [agents.guide]
    model = "script/guide"
    tools = ["mcp:everything"]
    [mcp.everything]
    url = "http://127.0.0.1:${port}/mcp"
    approval = { "*" = "never", get-sum = "always" }
    required = true
    [providers.script]
    kind = "scripted"
    file = ${JSON.stringify(here('mcp/scenarios.toml'))}
  `;
  await writeFile(join(folder, 'headwater.toml'), config);
  server = await startServer({ config: join(folder, 'headwater.toml') });
});
after(async () => {
  await server?.stop();
  everything?.kill();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function startEverything() {
  const script = here('node_modules/@modelcontextprotocol/server-everything/dist/index.js');
  const child = spawn('node', [script, 'streamableHttp'], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, PORT: port } });
  let said = '';
  for await (const chunk of child.stderr) {
    if (/listening on port|running on port/i.test((said += chunk))) break;
  }
  child.stderr.resume?.();
  return child;
}

async function play(input) {
  const task = await server.post('/v1/tasks', { model: 'guide', input, wait: true });
  return { task, result: task.output.find(({ type }) => type === 'tool_result') };
}

const text = ({ result }) => result.block_list.map((block) => block.text).join('\n');

test('a tool of server-everything is called over HTTP', async () => {
  const run = await play('echo');
  assert.equal(run.task.status, 'completed', JSON.stringify(run.task));
  assert.match(text(run), /hello/);
});

test('an image of server-everything is stored and shown', async () => {
  const { result } = await play('image');
  assert.match(result.block_list.find(({ type }) => type === 'image').image_url.url, /^\/v1\/blobs\//);
});

test('progress of server-everything is shown while the call runs', async () => {
  const { task } = await play('long');
  const story = await events(server.url, task.task_id);
  const steps = story.filter(({ type }) => type === 'task.tool.progress').map(({ progress, total }) => [progress, total]);
  assert.deepEqual(steps, [[1, 3], [2, 3], [3, 3]]);
});

test('server-everything asks in the middle of a call over HTTP and is told the answer', async () => {
  const { task } = await play('elicit');
  assert.equal(task.pending[0]?.kind, 'question', JSON.stringify(task));
  const answer = { decision: 'approve', arguments: { name: 'Ann', check: true, integer: 7 } };
  await server.post(`/v1/tasks/${task.task_id}/approvals/${task.pending[0].key}`, answer);
  await events(server.url, task.task_id);
  const ended = await server.get(`/v1/tasks/${task.task_id}`);
  assert.match(text({ result: ended.output.find(({ type }) => type === 'tool_result') }), /Name: Ann/, JSON.stringify(ended));
});

test('an approved call runs after a kill -9 of Headwater and a restart of the server', async () => {
  const { task } = await play('sum');
  assert.equal(task.status, 'paused', JSON.stringify(task));
  await server.killAndRestart();
  everything.kill();
  await once(everything, 'exit');
  everything = await startEverything();
  await server.post(`/v1/tasks/${task.task_id}/approvals/${task.pending[0].key}`, { decision: 'approve' });
  await events(server.url, task.task_id);
  const ended = await server.get(`/v1/tasks/${task.task_id}`);
  assert.match(text({ result: ended.output.find(({ type }) => type === 'tool_result') }), /\b5\b/);
});

test('a server that was restarted has forgotten the session, and the call is answered in a new one', async () => {
  await play('echo');
  everything.kill();
  await once(everything, 'exit');
  everything = await startEverything();
  const run = await play('echo');
  assert.match(text(run), /hello/, JSON.stringify(run.task));
});
