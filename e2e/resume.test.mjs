// Cut a stream anywhere, go on from there: together the bytes are those of a stream that was never cut.
//
// Every protocol that can resume is a row of `PROTOCOLS`.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { begin, ended, settle } from './lib/runs.mjs';
import { startServer } from './lib/server.mjs';
import { bytes, open, take } from './lib/sse.mjs';
import { responseId } from './responses/scenarios.mjs';

let server;
before(async () => {
  server = await startServer();
});
after(() => server?.stop());

const SCENARIOS = ['hello', 'weather', 'help', 'parallel', 'trade', 'handoff', 'image', 'story 20 fast', 'client', 'fail', 'slow 1'];
const ENDS = /^(task\.(completed|incomplete|failed|cancelled)|run_ended)$/;

/** A protocol whose frames carry their place as `id`. */
const withIds = (name, path, { thread = false } = {}) => ({
  name,
  thread,
  paths: ({ task_id, thread_id }) => [thread ? `/v1/threads/${thread_id}/events${path}` : `/v1/tasks/${task_id}/events${path}`],
  // Sub-agents end, too; the run ends with its own task.
  isLast: (frame, { task_id }) => ENDS.test(frame.event) && (frame.data.task_id ?? task_id) === task_id,
  rest: (path, frame) => [path, { 'last-event-id': frame.id }],
  query: (path, cursor) => `${path}${path.includes('?') ? '&' : '?'}after=${cursor}`,
});

/** `paths`: the streams of a run. `rest`: how the rest after a frame is asked for. */
const PROTOCOLS = [
  withIds('task', ''),
  withIds('task, the whole thread', '', { thread: true }),
  withIds('run items', '?format=run-items'),
  withIds('run items, the whole thread', '?format=run-items', { thread: true }),
  {
    name: 'responses',
    paths: ({ task_id, parts }) =>
      Array.from({ length: parts }, (_, at) => `/v1/responses/${responseId(task_id, at + 1)}?stream=true`),
    isLast: (frame) => /^response\.(completed|incomplete|failed)$/.test(frame.event),
    rest: (path, frame) => [`${path}&starting_after=${frame.data.sequence_number}`, {}],
  },
];

/** A run that has ended stays as it is: one for all who read it. */
const recorded = new Map();
const record = (input) => {
  if (!recorded.has(input)) recorded.set(input, ended(server, input));
  return recorded.get(input);
};

const read = async (protocol, run, path, headers) =>
  take(await open(server.url + path, headers), (frame) => protocol.isLast(frame, run));

for (const protocol of PROTOCOLS) {
  test(`${protocol.name}: a recorded run goes on from every place, byte for byte`, async () => {
    for (const input of SCENARIOS) {
      const run = await record(input);
      for (const path of protocol.paths(run)) {
        const whole = await read(protocol, run, path);
        assert.ok(protocol.isLast(whole.at(-1), run), `${input}: the stream stops before its end`);
        for (const [at, frame] of whole.slice(0, -1).entries()) {
          const rest = await read(protocol, run, ...protocol.rest(path, frame));
          const text = bytes(whole.slice(0, at + 1)) + bytes(rest);
          assert.equal(text, bytes(whole), `${input}, after frame ${at}`);
        }
      }
    }
  });

  test(`${protocol.name}: a live run goes on from every place, byte for byte`, async () => {
    const measure = await record('story 20');
    const count = (await read(protocol, measure, protocol.paths(measure)[0])).length;
    const run = { ...(await begin(server, 'story 20')), parts: 1 };
    const [path] = protocol.paths(run);
    // One reader for every place, all at once: each drops there, and comes back at once.
    const texts = await Promise.all(
      Array.from({ length: count - 1 }, async (_, at) => {
        const first = await take(await open(server.url + path), (_frame, taken) => taken === at + 1);
        return bytes(first) + bytes(await read(protocol, run, ...protocol.rest(path, first.at(-1))));
      }),
    );
    const whole = bytes(await read(protocol, run, path));
    texts.forEach((text, at) => assert.equal(text, whole, `dropped after frame ${at}`));
  });

  test(`${protocol.name}: what was read while it happened is what is read afterwards`, async () => {
    for (const input of ['weather', 'help', 'trade', 'client']) {
      const run = { ...(await begin(server, input)), parts: 1 };
      const [path] = protocol.paths(run);
      const [live] = await Promise.all([read(protocol, run, path), settle(server, run.task_id)]);
      assert.equal(bytes(live), bytes(await read(protocol, run, path)), input);
    }
  });

  test(`${protocol.name}: a run that a crash interrupted goes on from every place before it`, async () => {
    const run = { ...(await begin(server, 'story 40')), parts: 1 };
    const [path] = protocol.paths(run);
    const first = await take(await open(server.url + path), (_frame, count) => count === 12);
    await server.killAndRestart();
    const whole = await read(protocol, run, path);
    assert.ok(protocol.isLast(whole.at(-1), run));
    for (const [at, frame] of first.entries()) {
      const rest = await read(protocol, run, ...protocol.rest(path, frame));
      assert.equal(bytes(first.slice(0, at + 1)) + bytes(rest), bytes(whole), `after frame ${at}`);
    }
  });

  if (!protocol.thread) {
    test(`${protocol.name}: after its end there is nothing more, and nobody waits for it`, async () => {
      const run = await record('weather');
      const [path] = protocol.paths(run);
      const last = (await read(protocol, run, path)).at(-1);
      const [rest, headers] = protocol.rest(path, last);
      assert.deepEqual(await take(await open(server.url + rest, headers)), []);
    });
  }
}

// --- one log, several protocols

const WITH_CURSORS = PROTOCOLS.filter((protocol) => protocol.query);
const seqOf = (frame) => Number(/^[0-9a-f]{8}-(\d+)/.exec(frame.id)[1]);
const isBare = (frame) => /^[0-9a-f]{8}-\d+$/.test(frame.id);

test('a place that one protocol gave is good in every other', async () => {
  for (const input of ['weather', 'trade']) {
    const run = await record(input);
    for (const giver of WITH_CURSORS.filter((protocol) => !protocol.thread)) {
      const given = await read(giver, run, giver.paths(run)[0]);
      for (const taker of WITH_CURSORS.filter((protocol) => protocol !== giver)) {
        const [path] = taker.paths(run);
        const whole = await read(taker, run, path);
        for (const [at, frame] of given.slice(0, -1).filter(isBare).entries()) {
          // A record's place is after all of its frames. Its number alone is as good.
          const cursor = at % 2 === 0 ? frame.id : seqOf(frame);
          const rest = await read(taker, run, taker.query(path, cursor));
          const expected = whole.filter((one) => seqOf(one) > seqOf(frame));
          assert.equal(bytes(rest), bytes(expected), `${input}: ${cursor} of ${giver.name} in ${taker.name}`);
        }
      }
    }
  }
});

test('a place inside a record is good in its own protocol only', async () => {
  const run = await record('weather');
  const [task, items] = ['task', 'run items'].map((name) => PROTOCOLS.find((protocol) => protocol.name === name));
  const inner = (await read(items, run, items.paths(run)[0])).filter((frame) => !isBare(frame));
  assert.ok(inner.length > 0, 'a record with several frames');
  for (const frame of inner) {
    const response = await fetch(server.url + task.query(task.paths(run)[0], frame.id));
    assert.equal(response.status, 409);
  }
});

test('a place of another thread, or ahead of the log, is refused', async () => {
  const [mine, other] = [await record('weather'), await record('hello')];
  for (const protocol of WITH_CURSORS) {
    const [path] = protocol.paths(mine);
    const foreign = (await read(protocol, other, protocol.paths(other)[0])).at(2).id;
    for (const cursor of [foreign, 1_000_000]) {
      const response = await fetch(server.url + protocol.query(path, cursor));
      assert.equal(response.status, 409, `${cursor} in ${protocol.name}`);
    }
  }
});

test('a run that has not begun can be followed', async () => {
  for (const protocol of PROTOCOLS.filter((one) => !one.thread)) {
    const first = await begin(server, 'story 30');
    const run = { ...(await begin(server, 'weather', { thread_id: first.thread_id })), parts: 1 };
    const [path] = protocol.paths(run);
    const live = await read(protocol, run, path);
    assert.ok(protocol.isLast(live.at(-1), run), protocol.name);
    assert.equal(bytes(live), bytes(await read(protocol, run, path)));
  }
});
