// Requests that schemathesis makes up from /openapi.json, valid ones and invalid ones: no answer is a 5xx, every answer is
// one that the document lists, and what the document forbids is refused. It takes minutes.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { startServer } from '../lib/server.mjs';

const TESTER = new URL('../.venv-full/bin/st', import.meta.url).pathname;
const TIME_MS_MAX = 15 * 60_000;

/** Ids that exist, so that requests get past the 404. */
async function existingIds(server) {
  const task = await server.post('/v1/tasks', { model: 'demo', input: 'hi', wait: true });
  const response = await server.post('/v1/responses', { model: 'demo', input: 'hi' });
  const conversation = await server.post('/v1/conversations', {});
  return { task_id: task.task_id, thread_id: task.thread_id, response: response.id, conversation: conversation.id, model: 'demo' };
}

function runTester(args, folder) {
  return new Promise((resolve) => {
    execFile(TESTER, args, { cwd: folder, timeout: TIME_MS_MAX, maxBuffer: 64 << 20 }, (error, stdout, stderr) =>
      resolve({ code: error ? (error.code ?? 1) : 0, said: stdout + stderr }),
    );
  });
}

test('every answer is in the document, and what it forbids is refused', async (t) => {
  const server = await startServer();
  t.after(() => server.stop());
  const folder = await mkdtemp(join(tmpdir(), 'headwater-properties-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const seed = process.env.SEED ?? String(Math.floor(Math.random() * 2 ** 31));
  const ids = Object.entries(await existingIds(server)).map(([name, id]) => `"path.${name}" = "${id}"`);
  // OpenAPI 3.1 describes a stream as one text, and the tester would read its events.
  ids.push('"query.stream" = "false"');
  await writeFile(join(folder, 'schemathesis.toml'), `[parameters]\n${ids.join('\n')}\n`);
  const args = ['run', `${server.url}/openapi.json`, '--phases', 'coverage,fuzzing,stateful', '--max-examples', '50', '--seed', seed];
  // Streams do not end, and an agent that is made up does not exist.
  args.push('--exclude-path-regex', '(/events|^/ws)$', '--checks', 'all', '--exclude-checks', 'positive_data_acceptance,missing_required_header');
  args.push('--continue-on-failure', '--suppress-health-check', 'all', '--request-timeout', '20', '--workers', '2', '--warnings', 'off');
  const { code, said } = await runTester(args, folder);
  assert.equal(code, 0, `SEED=${seed}\n${said}`);
  const generated = Number(/(\d+) generated/.exec(said)?.[1]);
  assert.ok(generated > 1_000, `only ${generated} requests\n${said}`);
});
