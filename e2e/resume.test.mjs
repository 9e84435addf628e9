// A stream that is dropped anywhere and resumed there has the bytes of an uninterrupted stream.
//
// Every protocol that can resume is a row of `PROTOCOLS`.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { agentRuns, agui0, agui1, blocks, responses, runItems, runItemsThread, task, taskThread } from './lib/protocols.mjs';
import { begin, ended, settle } from './lib/runs.mjs';
import { startServer } from './lib/server.mjs';
import { bytes, take } from './lib/sse.mjs';

const PROTOCOLS = [task, taskThread, runItems, runItemsThread, responses, blocks, agentRuns, agui1, agui0];
const SCENARIOS = ['hello', 'weather', 'help', 'parallel', 'trade', 'handoff', 'image', 'story 20 fast', 'client', 'fail', 'slow 1'];

let server;
before(async () => {
  server = await startServer();
});
after(() => server?.stop());

/** A run that has ended stays as it is: one for all who read it. */
const recorded = new Map();
const record = (input) => {
  if (!recorded.has(input)) recorded.set(input, ended(server, input));
  return recorded.get(input);
};

/** What a protocol tells of a run from a place on, up to its last frame. */
const read = (protocol, run, address, place) =>
  take(protocol.follow(server.url, address, place), (frame) => protocol.isLast(frame, run));

/** What it tells until so many frames have come, and then the connection breaks. */
const start = (protocol, address, count) => take(protocol.follow(server.url, address), (_frame, taken) => taken === count);

for (const protocol of PROTOCOLS) {
  test(`${protocol.name}: a recorded run resumes at every cursor, byte for byte`, async () => {
    for (const input of SCENARIOS) {
      const run = await record(input);
      for (const address of protocol.addresses(run)) {
        const whole = await read(protocol, run, address);
        assert.ok(protocol.isLast(whole.at(-1), run), `${input}: the stream stops before its end`);
        for (const [at, frame] of whole.slice(0, -1).entries()) {
          const rest = await read(protocol, run, address, protocol.place(frame));
          assert.equal(bytes(whole.slice(0, at + 1)) + bytes(rest), bytes(whole), `${input}, after frame ${at}`);
        }
      }
    }
  });

  test(`${protocol.name}: a live run resumes at every cursor, byte for byte`, async () => {
    const measure = await record('story 20');
    const count = (await read(protocol, measure, protocol.addresses(measure)[0])).length;
    const run = await begin(server, 'story 20');
    const [address] = protocol.addresses(run);
    // One reader per cursor, concurrently: each disconnects there and resumes at once.
    const texts = await Promise.all(
      Array.from({ length: count - 1 }, async (_, at) => {
        const first = await start(protocol, address, at + 1);
        return bytes(first) + bytes(await read(protocol, run, address, protocol.place(first.at(-1))));
      }),
    );
    const whole = bytes(await read(protocol, run, address));
    texts.forEach((text, at) => assert.equal(text, whole, `dropped after frame ${at}`));
  });

  test(`${protocol.name}: live frames equal replayed frames`, async () => {
    for (const input of ['weather', 'help', 'trade', 'client']) {
      const run = await begin(server, input);
      const [address] = protocol.addresses(run);
      const [live] = await Promise.all([read(protocol, run, address), settle(server, run.task_id)]);
      assert.equal(bytes(live), bytes(await read(protocol, run, address)), input);
    }
  });

  test(`${protocol.name}: a run interrupted by a crash resumes at every cursor before it`, async () => {
    const run = await begin(server, 'story 40');
    const [address] = protocol.addresses(run);
    const first = await start(protocol, address, 12);
    await server.killAndRestart();
    const whole = await read(protocol, run, address);
    assert.ok(protocol.isLast(whole.at(-1), run));
    for (const [at, frame] of first.entries()) {
      const rest = await read(protocol, run, address, protocol.place(frame));
      assert.equal(bytes(first.slice(0, at + 1)) + bytes(rest), bytes(whole), `after frame ${at}`);
    }
  });

  if (!protocol.neverEnds) {
    test(`${protocol.name}: after its end a stream closes at once`, async () => {
      const run = await record('weather');
      const [address] = protocol.addresses(run);
      const last = (await read(protocol, run, address)).at(-1);
      assert.deepEqual(await take(protocol.follow(server.url, address, protocol.place(last))), []);
    });
  } else {
    test(`${protocol.name}: after a run's end the thread's next run follows`, async () => {
      const run = await ended(server, 'weather');
      const [address] = protocol.addresses(run);
      const last = (await read(protocol, run, address)).at(-1);
      const next = await begin(server, 'hello', { thread_id: run.thread_id });
      const live = await read(protocol, next, address, protocol.place(last));
      assert.ok(protocol.isLast(live.at(-1), next));
      assert.equal(bytes(live), bytes(await read(protocol, next, address, protocol.place(last))));
    });
  }
}

// --- one log, several protocols

const WITH_CURSORS = PROTOCOLS.filter((protocol) => protocol.hasCursors);
const seqOf = (frame) => Number(/^[0-9a-f]{8}-(\d+)/.exec(frame.id)[1]);
const isBare = (frame) => /^[0-9a-f]{8}-\d+$/.test(frame.id);

test('a cursor of one protocol is valid in every other', async () => {
  for (const input of ['weather', 'trade']) {
    const run = await record(input);
    for (const giver of [task, runItems, blocks, agentRuns, agui1, agui0]) {
      const given = await read(giver, run, giver.addresses(run)[0]);
      for (const taker of WITH_CURSORS.filter((protocol) => protocol !== giver)) {
        const [address] = taker.addresses(run);
        const whole = await read(taker, run, address);
        for (const [at, frame] of given.slice(0, -1).filter(isBare).entries()) {
          // The cursor of a record is after all of its frames. Its bare number is valid, too.
          const query = at % 2 === 0 ? frame.id : seqOf(frame);
          const rest = await read(taker, run, address, { query });
          const expected = whole.filter((one) => seqOf(one) > seqOf(frame));
          assert.equal(bytes(rest), bytes(expected), `${input}: ${query} of ${giver.name} in ${taker.name}`);
        }
      }
    }
  }
});

test('a live run can be followed across protocols with every cursor', async () => {
  const ways = [[task, blocks], [blocks, agentRuns], [agentRuns, runItems], [runItems, task], [blocks, task], [task, agentRuns], [agui1, task], [blocks, agui1], [agui0, agui1], [task, agui0]];
  for (const [giver, taker] of ways) {
    const run = await begin(server, 'story 20');
    const [[from], [to]] = [giver.addresses(run), taker.addresses(run)];
    const given = [];
    const rests = [];
    // A reader switches protocols while the run continues.
    for await (const frame of giver.follow(server.url, from)) {
      if (giver.isLast(frame, run)) break;
      if (!isBare(frame)) continue;
      given.push(frame);
      rests.push(read(taker, run, to, { query: frame.id }));
    }
    const whole = await read(taker, run, to);
    for (const [at, rest] of (await Promise.all(rests)).entries()) {
      const expected = whole.filter((one) => seqOf(one) > seqOf(given[at]));
      assert.equal(bytes(rest), bytes(expected), `${given[at].id} of ${giver.name} in ${taker.name}`);
    }
  }
});

test('a cursor inside a record is valid in its own protocol only', async () => {
  // A pause has two frames in AG-UI 0.0.59.
  for (const [giver, input] of [[runItems, 'weather'], [blocks, 'weather'], [agui0, 'trade']]) {
    const run = await record(input);
    const inner = (await read(giver, run, giver.addresses(run)[0])).filter((frame) => !isBare(frame));
    assert.ok(inner.length > 0, `a record with several frames: ${giver.name}`);
    for (const taker of [task, runItems, blocks, agentRuns, agui1, agui0].filter((protocol) => protocol !== giver)) {
      for (const { id: query } of inner) {
        const code = await taker.refusal(server.url, taker.addresses(run)[0], { query });
        assert.equal(code, 'cursor_foreign', `${query} in ${taker.name}`);
      }
    }
  }
});

test('a cursor of another thread, or ahead of the log, is refused', async () => {
  const [mine, other] = [await record('weather'), await record('hello')];
  for (const protocol of WITH_CURSORS) {
    const [address] = protocol.addresses(mine);
    const foreign = (await read(protocol, other, protocol.addresses(other)[0])).at(2).id;
    for (const [query, code] of [[foreign, 'cursor_foreign'], [1_000_000, 'cursor_ahead']]) {
      assert.equal(await protocol.refusal(server.url, address, { query }), code, `${query} in ${protocol.name}`);
    }
  }
});

test('a queued run can be followed', async () => {
  for (const protocol of PROTOCOLS.filter((one) => !one.neverEnds)) {
    const first = await begin(server, 'story 30');
    const run = await begin(server, 'weather', { thread_id: first.thread_id });
    const [address] = protocol.addresses(run);
    const live = await read(protocol, run, address);
    assert.ok(protocol.isLast(live.at(-1), run), protocol.name);
    assert.equal(bytes(live), bytes(await read(protocol, run, address)));
  }
});
