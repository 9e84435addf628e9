// Codex holds a conversation with a scripted model over a WebSocket: it warms up, runs a command, and goes on later.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { startServer } from '../lib/server.mjs';

const path = (name) => new URL(`codex/${name}`, import.meta.url).pathname;
const TIME_MS_MAX = 120_000;

const config = (url) => `model = "coder"
model_provider = "headwater"
[model_providers.headwater]
name = "headwater"
base_url = "${url}/v1"
wire_api = "responses"
supports_websockets = true
`;

test('Codex runs a command and resumes its conversation in the same thread', async () => {
  const server = await startServer({ config: path('headwater.toml') });
  const folder = await mkdtemp(join(tmpdir(), 'headwater-codex-'));
  const [home, work] = [join(folder, 'home'), join(folder, 'work')];
  const codex = (...args) => new Promise((resolve, reject) => {
    const program = path('node_modules/@openai/codex/bin/codex.js');
    const options = { cwd: work, env: { ...process.env, CODEX_HOME: home }, timeout: TIME_MS_MAX };
    const child = execFile(process.execPath, [program, 'exec', ...args], options, (error, stdout, stderr) =>
      error ? reject(new Error(`${error.message}: ${stderr}`)) : resolve(stdout + stderr),
    );
    child.stdin.end();
  });
  try {
    await mkdir(home);
    await mkdir(work);
    await writeFile(join(home, 'config.toml'), config(server.url));
    assert.match(await codex('--skip-git-repo-check', 'hello'), /Hello from the script\./);
    assert.match(await codex('resume', '--last', '--skip-git-repo-check', 'run it'), /It printed:[^]*spring-water/);
    const { data } = await server.get('/v1/tasks');
    assert.deepEqual(data.map((task) => task.status), ['completed', 'completed']);
    assert.equal(data[0].thread_id, data[1].thread_id);
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    assert.match(metrics, /route="\/v1\/responses",method="GET",status="101"\} 2/, 'nothing was posted');
  } finally {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
});
