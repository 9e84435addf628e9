// AG-UI with its own clients: 1.0.0, and 0.0.59, which the front ends of others still have. Every event is checked against
// the schemas of its generation, by the client itself, and by a validator of somebody else.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import test, { after, before } from 'node:test';
import { promisify } from 'node:util';
import OpenAI from 'openai';
import { PICK_TOOL, V0, V1, VERSIONS, callsOf, eventsOf, join, plain, reduce, snapshot, startAgent, statusOf, textOf, threadAddress } from './lib/agui.mjs';
import { blocks } from './lib/protocols.mjs';
import { begin } from './lib/runs.mjs';
import { HOSTED, SCENARIOS, responseId } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { deadline, open, take } from './lib/sse.mjs';

let server;
before(async () => {
  server = await startServer();
});
after(() => server?.stop());

/** A test with the clients of both generations. */
const inBoth = {
  test: (title, work) => VERSIONS.forEach((version) => test(`${title} (${version.name})`, () => work(version))),
};
const uuid = () => crypto.randomUUID();
const ofType = (events, type) => events.filter((event) => event.type === type);
const agentOf = (version, more) => startAgent(version, server, { threadId: uuid(), ...more });

const newestRun = async () => (await server.get('/v1/tasks?limit=1')).data[0];

/** The text or its pattern. */
const matches = (found, expected, what) =>
  expected instanceof RegExp ? assert.match(found, expected, what) : assert.equal(found, expected, what);

/** What the client has is what somebody gets who joins now. */
async function sameAsSnapshot(version, agent, what) {
  assert.deepEqual(plain(agent.messages), await snapshot(version, server, agent.threadId), what);
}

const STATUS = { failed: 'failed', approval: 'paused', client_tool: 'paused' };

inBoth.test('every scenario is the same for its client and for those who join', async (version) => {
  for (const { input, text, tools = [], asks, end, thinks = 0, pictures = 0, declare } of SCENARIOS) {
    const agent = agentOf(version);
    const events = await agent.say(input, declare && { tools: [PICK_TOOL] });
    const { messages } = agent;
    matches(textOf(messages), text, input);
    // Of a picture the provider's own call is shown, too.
    const calls = callsOf(messages).filter(({ name }) => name !== 'image_generation');
    if (!asks) {
      assert.deepEqual(calls.map(({ name }) => name), tools.map(({ name }) => name), input);
      tools.forEach((tool, at) => {
        matches(calls[at].arguments, tool.arguments, input);
        matches(calls[at].output, tool.output, input);
      });
    }
    // Only 1.0 can say that a call is the client's turn.
    const status = asks === 'client_tool' && version === V0 ? 'completed' : STATUS[end ?? asks] ?? 'completed';
    assert.equal(statusOf(events), status, input);
    const reasoning = messages.filter(({ role, subagentRunId }) => role === 'reasoning' && !subagentRunId);
    assert.equal(reasoning.length, thinks, `${input}: reasoning`);
    const partial = ofType(events, 'ACTIVITY_SNAPSHOT').filter(({ content }) => content.partial !== undefined);
    assert.equal(partial.length, pictures, `${input}: pictures`);
    await sameAsSnapshot(version, agent, input);
  }
});

inBoth.test('a conversation goes on, and the log has it once', async (version) => {
  const agent = agentOf(version);
  for (const [at, input] of ['hello', 'weather', 'help', 'hello again'].entries()) {
    await agent.say(input);
    assert.equal(agent.messages.filter(({ role }) => role === 'user').length, at + 1);
    await sameAsSnapshot(version, agent, input);
  }
  // The last message alone is enough.
  const delta = agentOf(version, { threadId: agent.threadId });
  await delta.say('weather');
  const messages = await snapshot(version, server, agent.threadId);
  assert.equal(messages.filter(({ role }) => role === 'user').length, 5);
  const { thread_id } = await newestRun();
  const { data } = await server.get('/v1/tasks?limit=100');
  assert.equal(data.filter((task) => task.thread_id === thread_id).length, 5);
});

inBoth.test('the work of a sub-agent has its name and its call', async (version) => {
  const agent = agentOf(version);
  const events = await agent.say('help');
  const [call] = callsOf(agent.messages);
  const [started] = ofType(events, 'SUBAGENT_STARTED');
  assert.deepEqual([started.subagentRunId, started.name, started.parentToolCallId], [call.id, 'WeatherAgent', call.id]);
  assert.deepEqual(ofType(events, 'SUBAGENT_FINISHED').map(({ outcome }) => outcome.type), ['success']);
  const own = agent.messages.filter(({ subagentRunId }) => subagentRunId === call.id);
  assert.match(own.findLast(({ role }) => role === 'assistant').content, /^The weather in Paris is sunny/);
  assert.ok(own.some(({ role }) => role === 'tool'), 'its tool ran');
});

// --- approvals

const approve = { approved: true };
const reject = { approved: false, reason: 'not today' };

/** Clients that do not know interrupts do not hold a run back for them. */
const forget = (agent) => {
  agent.pendingInterrupts = [];
};

const STYLES = [
  {
    name: 'an entry of `resume`',
    answer: (agent, { id }, payload) => agent.go({ resume: [{ interruptId: id, status: 'resolved', payload }] }),
  },
  {
    name: 'a tool message',
    answer: (agent, { toolCallId }, payload) => {
      forget(agent);
      agent.addMessage({ id: uuid(), role: 'tool', toolCallId, content: JSON.stringify(payload) });
      return agent.go();
    },
  },
  {
    name: 'the command of the custom event',
    answer: (agent, interrupt, payload) => {
      forget(agent);
      return agent.go({ forwardedProps: { command: { resume: payload, interruptEvent: interrupt } } });
    },
  },
  {
    // It sends the run's own id again, and writes a tool message of its own beside the answer.
    name: 'the way of CopilotKit',
    answer: (agent, { id, toolCallId }, payload, runId) => {
      agent.addMessage({ id: uuid(), role: 'tool', toolCallId, content: JSON.stringify(payload) });
      return agent.go({ runId, resume: [{ interruptId: id, status: 'resolved', payload }] });
    },
  },
];

/** A run that waits for an approval. Gives its agent, the interrupt, and the id of the run. */
async function waiting(version, more) {
  const agent = agentOf(version, more);
  const events = await agent.say('trade');
  const { outcome, runId } = events.at(-1);
  assert.equal(outcome.type, 'interrupt');
  const [interrupt, ...others] = outcome.interrupts;
  assert.deepEqual(others, []);
  assert.deepEqual(plain(agent.pendingInterrupts), outcome.interrupts);
  return { agent, interrupt, runId, events };
}

inBoth.test('an interrupt says what is asked and how to answer', async (version) => {
  const { agent, interrupt, events } = await waiting(version);
  const [call] = callsOf(agent.messages);
  assert.equal(interrupt.toolCallId, call.id);
  assert.equal(interrupt.reason, 'tool_call');
  assert.deepEqual(interrupt.responseSchema.required, ['approved']);
  assert.deepEqual(Object.keys(interrupt.responseSchema.properties).sort(), ['always', 'approved', 'editedArgs', 'reason']);
  const legacy = ofType(events, 'CUSTOM').filter(({ name }) => name === 'on_interrupt');
  assert.equal(legacy.length, version === V0 ? 1 : 0);
});

inBoth.test('an approval is answered in every style', async (version) => {
  for (const { name, answer } of STYLES) {
    for (const [payload, output, text] of [
      [approve, 'Order placed: VNM x100', /Done: bought VNM\.\[\^1\]$/],
      [reject, /not today/, /The order was not placed:/],
    ]) {
      const { agent, interrupt, runId } = await waiting(version);
      const events = await answer(agent, interrupt, payload, runId);
      assert.equal(statusOf(events), 'completed', name);
      const [call] = callsOf(agent.messages);
      matches(call.output, output, name);
      assert.match(textOf(agent.messages), text, name);
      assert.deepEqual(agent.pendingInterrupts, [], name);
      await sameAsSnapshot(version, agent, name);
      await agent.say('hello');
      await sameAsSnapshot(version, agent, name);
    }
  }
});

inBoth.test('an approval with other arguments runs with them', async (version) => {
  const { agent, interrupt } = await waiting(version);
  const [resume] = STYLES;
  const events = await resume.answer(agent, interrupt, { approved: true, editedArgs: { symbol: 'VNM', quantity: 7 } });
  const [result] = ofType(events, 'TOOL_CALL_RESULT');
  assert.equal(result.content, 'Order placed: VNM x7');
  assert.deepEqual(JSON.parse(result.metadata.headwater.arguments), { symbol: 'VNM', quantity: 7 });
});

inBoth.test('a cancelled interrupt rejects its call', async (version) => {
  const { agent, interrupt } = await waiting(version);
  const events = await agent.go({ resume: [{ interruptId: interrupt.id, status: 'cancelled' }] });
  assert.equal(statusOf(events), 'completed');
  assert.match(callsOf(agent.messages)[0].output, /Cancelled by the user/);
});

inBoth.test('an answer is decided once', async (version) => {
  const { agent, interrupt, runId } = await waiting(version);
  const { threadId } = agent;
  const [resume] = STYLES;
  const second = agentOf(version, { threadId });
  await resume.answer(agent, interrupt, approve);
  // The same answer again is attached to what it has begun.
  const again = await resume.answer(second, interrupt, approve);
  assert.equal(statusOf(again), 'completed');
  assert.equal(ofType(again, 'TOOL_CALL_RESULT')[0].content, 'Order placed: VNM x100');
  const late = await post({ threadId, runId, messages: [], resume: [{ interruptId: interrupt.id, status: 'resolved', payload: reject }] });
  assert.deepEqual([late.status, (await late.json()).code], [409, 'already_decided']);
});

/** The run says something. Who comes after its end does not see that, so such a run has to be long. */
const isText = ({ data }) => data.type === 'TEXT_MESSAGE_CONTENT';

/** Sends a body as it is. */
const post = (body, path = '/agui/demo') =>
  fetch(server.url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

/** Those who answer elsewhere. */
const ELSEWHERE = [
  {
    name: 'the task protocol',
    answer: ({ task_id }, key) => server.post(`/v1/tasks/${task_id}/approvals/${key}`, { decision: 'approve' }),
  },
  {
    name: 'blocks',
    answer: async ({ thread_id }, approval_key) => {
      const resume = { type: 'resume', session_id: thread_id };
      const answer = { type: 'approval_response', approval_key, decisions: [{ type: 'approve' }] };
      await take(blocks.say(server.url, [resume, answer]), ({ event }) => event === 'message_stop');
    },
  },
  {
    name: 'responses',
    answer: async ({ task_id }, approval_request_id) => {
      const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
      await client.responses.create({
        model: 'demo', tools: [HOSTED], previous_response_id: responseId(task_id),
        input: [{ type: 'mcp_approval_response', approval_request_id, approve: true }],
      });
    },
  },
];

inBoth.test('an approval of a run of AG-UI is answered in other protocols', async (version) => {
  for (const { name, answer } of ELSEWHERE) {
    const { agent, interrupt } = await waiting(version);
    const run = await newestRun();
    // Those who follow the thread see the answer. The first end is that of the snapshot, which shows the pause; who comes after
    // the answer would have no second one.
    let ends = 0;
    let seePause;
    const pause = new Promise((resolve) => (seePause = resolve));
    const isSecondEnd = ({ data }) => {
      if (!/^RUN_(FINISHED|ERROR)$/.test(data.type)) return false;
      seePause();
      return (ends += 1) === 2;
    };
    const seen = join(version, server, agent.threadId, isSecondEnd);
    await Promise.race([pause, seen]);
    await answer(run, interrupt.id);
    const events = await seen;
    assert.equal(statusOf(events), 'completed', name);
    const { messages } = await reduce(version, events);
    assert.deepEqual(messages, await snapshot(version, server, agent.threadId), name);
    assert.equal(callsOf(messages)[0].output, 'Order placed: VNM x100', name);
  }
});

inBoth.test('a run of another protocol is joined and answered', async (version) => {
  const run = await begin(server, 'trade');
  const follower = startAgent(version, server, { threadId: run.thread_id, path: '/connect' });
  const events = await follower.go();
  // A client that connects while the run goes on is told of its pause; one that comes later finds it.
  assert.equal(events.at(-1).outcome.type, 'interrupt');
  const [{ id }] = events.at(-1).outcome.interrupts;
  const agent = startAgent(version, server, { threadId: run.thread_id, initialMessages: follower.messages });
  await agent.go({ resume: [{ interruptId: id, status: 'resolved', payload: true }] });
  assert.equal((await server.get(`/v1/tasks/${run.task_id}`)).status, 'completed');
  await sameAsSnapshot(version, agent);
});

inBoth.test("the client's own tool is called and answered", async (version) => {
  const agent = agentOf(version);
  const events = await agent.say('client', { tools: [PICK_TOOL] });
  const [call] = callsOf(agent.messages);
  assert.equal(call.name, 'pick');
  if (version === V1) assert.deepEqual(events.at(-1).outcome.pendingToolCallIds, [call.id]);
  agent.addMessage({ id: uuid(), role: 'tool', toolCallId: call.id, content: 'red' });
  const rest = await agent.go({ tools: [PICK_TOOL] });
  assert.equal(statusOf(rest), 'completed');
  assert.equal(callsOf(agent.messages)[0].output, 'red');
  assert.match(textOf(agent.messages), /red/);
  await sameAsSnapshot(version, agent);
});

inBoth.test('a stop ends its run and no other', async (version) => {
  const agent = agentOf(version);
  const runId = uuid();
  const end = agent.say('story 5000', { runId });
  await found(version, agent.threadId);
  await join(version, server, agent.threadId, isText);
  const stop = (body) => server.post(`/agui/demo/stop/${agent.threadId}`, body);
  assert.deepEqual(await stop({ runId: uuid() }), { stopped: false });
  assert.deepEqual(await stop({ runId }), { stopped: true });
  assert.equal(statusOf(await end), 'cancelled');
  assert.ok(textOf(agent.messages).length > 0);
  await sameAsSnapshot(version, agent);
  assert.deepEqual(await stop({}), { stopped: false });
  await agent.say('hello');
  assert.match(textOf(agent.messages), /Hello!/);
});

inBoth.test('a run outlives its connection, and a client that comes back has all of it', async (version) => {
  const first = agentOf(version);
  first.say('story 200').catch(() => {});
  await found(version, first.threadId);
  await join(version, server, first.threadId, isText);
  first.abortRun();
  const second = startAgent(version, server, { threadId: first.threadId, path: '/connect' });
  const events = await second.go();
  assert.equal(statusOf(events), 'completed');
  assert.equal(ofType(events, 'MESSAGES_SNAPSHOT').length, 1);
  await sameAsSnapshot(version, second);
  assert.match(textOf(second.messages), /^Once upon a time/);
  assert.equal(textOf(second.messages).split(' ').length, textOf(await snapshot(version, server, first.threadId)).split(' ').length);
});

inBoth.test('the same request again is the same run', async (version) => {
  const body = {
    threadId: uuid(), runId: uuid(), tools: [], context: [], forwardedProps: {}, state: {},
    messages: [{ id: uuid(), role: 'user', content: 'weather' }], ...(version === V1 && { protocolVersion: '1.0' }),
  };
  const texts = await Promise.all([post(body), post(body), post(body)].map(async (response) => (await response).text()));
  texts.push(await (await post(body)).text());
  const streams = texts.map(eventsOf);
  streams.flat().forEach(version.check);
  for (const stream of streams) assert.deepEqual(stream, streams[0]);
  assert.equal(statusOf(streams[0]), 'completed');
  const other = await post({ ...body, messages: [{ id: uuid(), role: 'user', content: 'hello' }] });
  assert.deepEqual([other.status, (await other.json()).code], [409, 'idempotency_key_reused']);
});

inBoth.test("the state of a thread is the client's, and an empty one leaves it", async (version) => {
  const agent = agentOf(version, { initialState: { cart: ['spring', 2] } });
  const events = await agent.say('hello');
  assert.deepEqual(ofType(events, 'STATE_SNAPSHOT').map((event) => event.snapshot), [{ cart: ['spring', 2] }]);
  const other = agentOf(version, { threadId: agent.threadId });
  await other.say('hello');
  assert.deepEqual(other.state, { cart: ['spring', 2] });
});

inBoth.test('a run that fails or is stopped after an answer does not keep its client from going on', async (version) => {
  const clerk = await startServer({ config: new URL('agui/headwater.toml', import.meta.url).pathname });
  try {
    for (const [input, status] of [['fail', 'failed'], ['tell', 'cancelled']]) {
      const agent = startAgent(version, clerk, { threadId: uuid(), agent: 'clerk' });
      const [{ id }] = (await agent.say(input)).at(-1).outcome.interrupts;
      const rest = agent.go({ resume: [{ interruptId: id, status: 'resolved', payload: true }] });
      if (status === 'cancelled') {
        await take(await open(`${clerk.url}${threadAddress(version, agent.threadId, 'clerk')}`), isText);
        await clerk.post(`/agui/clerk/stop/${agent.threadId}`, {});
      }
      assert.equal(statusOf(await rest), status);
      assert.deepEqual(agent.pendingInterrupts, []);
      await agent.say('hello');
      assert.match(textOf(agent.messages), /At your service\.$/);
    }
  } finally {
    await clerk.stop();
  }
});

inBoth.test('a question of a tool is answered with what its schema asks for', async (version) => {
  const asker = await startServer({ config: new URL('page/questions.toml', import.meta.url).pathname });
  try {
    const ask = async (resume) => {
      const agent = startAgent(version, asker, { threadId: uuid(), agent: 'asker' });
      const [question] = (await agent.say('form')).at(-1).outcome.interrupts;
      assert.deepEqual([question.reason, question.message], ['input_required', 'Which color?']);
      assert.deepEqual(question.responseSchema.required, ['color']);
      await agent.go({ resume: [{ interruptId: question.id, ...resume }] });
      return callsOf(agent.messages)[0].output;
    };
    assert.equal(await ask({ status: 'resolved', payload: { color: 'blue', amount: 7 } }), '{"amount":7,"color":"blue"}');
    assert.match(await ask({ status: 'cancelled' }), /Cancelled by the user/);
    await assert.rejects(ask({ status: 'resolved', payload: { color: 'green' } }), /400/);
    await assert.rejects(ask({ status: 'resolved', payload: true }), /400/);
  } finally {
    await asker.stop();
  }
});

/** Waits until the thread is there. */
async function found(version, threadId) {
  const signal = deadline();
  for (;;) {
    const response = await fetch(server.url + threadAddress(version, threadId), { signal });
    await response.body?.cancel();
    if (response.ok) return threadId;
    assert.equal(response.status, 404);
  }
}

test('a request that cannot be understood is refused before a stream begins', async () => {
  const good = { threadId: 't-1', runId: 'r-1', messages: [{ id: 'u1', role: 'user', content: 'hello' }] };
  for (const [changes, status, code] of [
    [{ protocolVersion: '2.0' }, 400, 'unsupported_version'],
    [{ threadId: 'a/b' }, 400, undefined],
    [{ messages: [{ id: 'u1', role: 'user', content: [{ type: 'hologram' }] }] }, 400, undefined],
    [{ messages: [] }, 400, 'no_input'],
    [{ state: { x: 'x'.repeat(70_000) } }, 413, 'request_too_large'],
    [{ resume: [{ interruptId: 'apr_none', status: 'cancelled' }], messages: [] }, 400, 'approval_not_found'],
  ]) {
    const response = await post({ ...good, ...changes });
    const body = await response.json();
    assert.equal(response.status, status, JSON.stringify(body));
    if (code) assert.equal(body.code, code);
    assert.equal(typeof body.message, 'string');
  }
  assert.equal((await post(good, '/agui/nobody')).status, 404);
  await assert.rejects(agentOf(V1, { agent: 'nobody' }).say('hello'), /404/);
});

// --- the validator of others

/**
 * What ag-ui-validate 0.4.0 takes for an error and is none under 1.0: it knows results only as text, no members that 1.0 has
 * (AGUI005), no message that is opened again (AGUI104), and no arguments that a join divides (AGUI204).
 */
const EXCEPTIONS = ['AGUI005', 'AGUI104', 'AGUI204'];
const isException = ({ rule, message }) => rule === 'AGUI504' && message === "TOOL_CALL_RESULT: field 'content' must be a string, got array";

test('a validator of somebody else finds nothing in any stream', async () => {
  const folder = await mkdtemp(joinPath(tmpdir(), 'headwater-agui-'));
  const program = new URL('.venv/bin/ag-ui-validate', import.meta.url).pathname;
  try {
    const streams = [];
    for (const version of VERSIONS) {
      for (const { input, declare } of SCENARIOS) {
        const agent = agentOf(version);
        await agent.say(input, declare && { tools: [PICK_TOOL] });
        streams.push([`${version.name} ${input}`, await agent.streams.at(-1)]);
        const joined = await join(version, server, agent.threadId);
        streams.push([`${version.name} ${input}, joined`, joined.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')]);
      }
    }
    for (const [at, [name, text]] of streams.entries()) {
      const file = joinPath(folder, `${at}.sse`);
      await writeFile(file, text);
      const args = [file, '--json', ...EXCEPTIONS.flatMap((rule) => ['--off', rule])];
      const { stdout } = await promisify(execFile)(program, args).catch((error) => error);
      const findings = JSON.parse(stdout).diagnostics.filter((found) => found.severity !== 'info' && !isException(found));
      assert.deepEqual(findings, [], name);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
