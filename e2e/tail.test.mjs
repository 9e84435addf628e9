// `headwater tail` over a connection that breaks: it prints every delta once.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startProxy } from './lib/proxy.mjs';
import { lastWords, runHeadwater, startServer } from './lib/server.mjs';

let server;
let proxy;
before(async () => {
  server = await startServer();
  proxy = await startProxy(server.url);
});
after(async () => {
  await proxy?.stop();
  await server?.stop();
});

const start = (input) => server.post('/v1/tasks', { model: 'demo', input });

test('tail prints a complete story although its connection breaks four times', async () => {
  const { task_id } = await start('story 150');
  const places = [60, 180, 300, 450];
  const { code, stdout, stderr } = await runHeadwater(['tail', task_id, '--url', proxy.url], {
    onOutput: (so_far) => {
      if (so_far.length > places[0]) {
        places.shift();
        proxy.cut();
      }
    },
  });
  const task = await server.get(`/v1/tasks/${task_id}`);
  assert.equal(code, 0, stderr);
  assert.equal(places.length, 0, 'all cuts were made');
  assert.equal(stderr.match(/reconnecting in/g).length, 4, stderr);
  assert.equal(stdout, `${lastWords(task)}\n`);
});

test('tail waits for an unavailable server', async () => {
  const { task_id } = await start('story 60');
  let away = false;
  const { code, stdout, stderr } = await runHeadwater(['tail', task_id, '--url', proxy.url, '--raw'], {
    onOutput: (so_far) => {
      if (away || !so_far.includes('task.text.delta')) return;
      away = true;
      proxy.refuse = 3;
      proxy.cut();
    },
  });
  assert.equal(proxy.refuse, 0, 'it came back more than once');
  assert.equal(code, 0, stderr);
  const seqs = stdout.trim().split('\n').map((line) => JSON.parse(line).seq);
  assert.deepEqual(seqs, seqs.map((_, at) => seqs[0] + at), 'no gap, no repeat');
  assert.equal(seqs.at(-1), (await server.get(`/v1/tasks/${task_id}`)).seq);
});

test('tail shows reasoning, the call, its result and the answer', async () => {
  const { task_id } = await start('weather');
  const { stdout } = await runHeadwater(['tail', task_id, '--url', server.url]);
  const lines = stdout.split('\n');
  assert.equal(lines[0], 'Thinking about the weather in Paris.');
  assert.ok(lines.some((line) => line.startsWith('→ get_weather {"location"')), stdout);
  assert.ok(lines.some((line) => line.startsWith('← ') && line.includes('15C')), stdout);
  assert.equal(lines.at(-2), 'The weather in Paris is sunny with a temperature of 15C.[^1]');
});

test('the exit code of tail says how the task ended', async () => {
  const failed = await start('fail');
  assert.equal((await runHeadwater(['tail', failed.task_id, '--url', server.url])).code, 1);

  const stopped = await start('story 5000');
  const tail = runHeadwater(['tail', stopped.task_id, '--url', server.url]);
  await server.post(`/v1/tasks/${stopped.task_id}/cancel`, {});
  assert.equal((await tail).code, 2);

  const { seq } = await server.get(`/v1/tasks/${failed.task_id}`);
  const again = await runHeadwater(['tail', failed.task_id, '--url', server.url, '--after', String(seq)]);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /already ended: failed/);
  assert.equal(again.stdout, `${lastWords(await server.get(`/v1/tasks/${failed.task_id}`))}\n`);
});

test('tail reports an error in one line', async () => {
  const say = async (...args) => {
    const { code, stdout, stderr } = await runHeadwater(['tail', ...args]);
    assert.deepEqual([code, stdout, stderr.trim().split('\n').length], [3, '', 1], stderr);
    return stderr;
  };
  assert.match(await say(`task_${'0'.repeat(32)}`, '--url', server.url), /no such task/);
  assert.match(await say('../etc/passwd', '--url', server.url), /no such task/);
  assert.match(await say('task_1', '--url', 'https://127.0.0.1:1'), /does not answer/);
  assert.match(await say('task_1', '--url', 'http://127.0.0.1:9'), /does not answer/);
  const { task_id } = await start('hello');
  assert.match(await say(task_id, '--url', server.url, '--after', 'nonsense'), /is not a cursor/);
  assert.match(await say(task_id, '--url', server.url, '--after', '999999'), /ahead of the log/);
});
