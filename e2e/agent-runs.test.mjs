// Agent runs with nothing but the browser's own EventSource, over a connection that breaks.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startBrowser } from './lib/browser.mjs';
import { startProxy } from './lib/proxy.mjs';
import { begin, settle } from './lib/runs.mjs';
import { SCENARIOS } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { ofAgentRuns } from './lib/run-summary.mjs';

const RUNS = '/api/v1/agent/runs';
const TYPES = [
  'RUN_STARTED', 'STEP_STARTED', 'STEP_FINISHED', 'TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT', 'TEXT_MESSAGE_END',
  'TOOL_CALL_RESULT', 'RUN_FINISHED', 'RUN_ERROR',
];

let server;
let proxy;
let browser;
before(async () => {
  server = await startServer();
  proxy = await startProxy(server.url);
  browser = await startBrowser();
});
after(async () => {
  await browser?.stop();
  await proxy?.stop();
  await server?.stop();
});

/** Lets the page watch a thread; what it got is `seen` there, and how often it came back `opened`. */
const watch = (page, path) =>
  page.evaluate(([url, types]) => {
    globalThis.seen = [];
    globalThis.opened = 0;
    globalThis.source = new EventSource(url);
    source.addEventListener('open', () => opened++);
    for (const type of types) {
      source.addEventListener(type, (e) => seen.push({ type, id: e.lastEventId, data: JSON.parse(e.data) }));
    }
  }, [path, TYPES]);

const ended = async (page, runId) => {
  await page.waitForFunction((run) => seen.some(({ type, data }) => /^RUN_(FINISHED|ERROR)$/.test(type) && data.runId === run), runId);
  return page.evaluate(() => seen);
};

/** What somebody has who put the events together. */
function put(events) {
  const texts = new Map();
  const results = new Map();
  for (const { data } of events) {
    if (data.type === 'TEXT_MESSAGE_START') texts.set(data.messageId, '');
    if (data.type === 'TEXT_MESSAGE_CONTENT') texts.set(data.messageId, texts.get(data.messageId) + data.delta);
    if (data.type === 'TEXT_MESSAGE_END') assert.equal(data.workerAgentOutput.answer, texts.get(data.messageId));
    if (data.type === 'TOOL_CALL_RESULT') results.set(data.messageId, data.toolAgentOutput.result_summary);
  }
  return Object.fromEntries([...texts, ...results]);
}

/** What the server says was said by agents and tools. */
async function history(threadId) {
  const { snapshot } = await server.get(`/api/v1/agent/history?threadId=${threadId}`);
  const spoken = snapshot.messages.filter(({ role }) => role !== 'user');
  return Object.fromEntries(spoken.map(({ id, content }) => [id, content]));
}

test('a story over a connection that breaks twice is complete without duplicates, and the next run is on the same stream', async () => {
  const page = await browser.page(proxy.url);
  const { runId } = await server.post(RUNS, { message: 'story 300', threadId: 'cut' });
  await watch(page, `${RUNS}/cut/events`);
  for (const count of [40, 120]) {
    await page.waitForFunction((n) => seen.length >= n, count);
    proxy.cut();
  }
  const story = await ended(page, runId);
  assert.ok((await page.evaluate(() => opened)) >= 3, 'it came back by itself');
  assert.equal(new Set(story.map(({ id }) => id)).size, story.length, 'no event came twice');
  assert.equal(story.filter(({ type }) => type === 'TEXT_MESSAGE_CONTENT').length, 300);
  assert.deepEqual(put(story), await history('cut'));

  const next = await server.post(RUNS, { message: 'weather', threadId: 'cut' });
  const both = await ended(page, next.runId);
  assert.deepEqual(both.slice(0, story.length), story);
  assert.deepEqual(put(both), await history('cut'));
  await page.close();
});

test('the accumulated events of every scenario equal the history', async () => {
  const page = await browser.page(server.url);
  for (const { input, text, tools = [], end, asks } of SCENARIOS) {
    const { task_id, thread_id } = await begin(server, input);
    await watch(page, `${RUNS}/${thread_id}/events`);
    await settle(server, task_id);
    const events = await ended(page, task_id);
    await page.evaluate(() => source.close());
    assert.deepEqual(put(events), await history(thread_id), input);
    const told = ofAgentRuns(events);
    // A scenario with an approval expects the text before it; here the approval is answered.
    assert.match(told.text, asks ? new RegExp(text.source.replace(/\$$/, '')) : text, input);
    assert.equal(told.status, end ?? 'completed', input);
    for (const { name, output } of tools) assert.match(told.tools.find((tool) => tool.name === name).output, output);
  }
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('a page that opens during an approval sees the request, and then the result under the same id', async () => {
  const { runId } = await server.post(RUNS, { message: 'trade', threadId: 'trade' });
  const page = await browser.page(server.url);
  await watch(page, `${RUNS}/trade/events`);
  await page.waitForFunction(() => seen.some(({ type }) => type === 'TOOL_CALL_RESULT'));
  const asked = (await page.evaluate(() => seen)).find(({ type }) => type === 'TOOL_CALL_RESULT').data;
  assert.equal(asked.toolAgentOutput.status, 'partial');
  const { key } = asked.toolAgentOutput.ui_hints.approval;
  await server.post(`/v1/tasks/${runId}/approvals/${key}`, { decision: 'reject', message: 'too risky' });
  const events = await ended(page, runId);
  const final = events.filter(({ type }) => type === 'TOOL_CALL_RESULT').at(-1).data;
  assert.equal(final.messageId, asked.messageId);
  assert.equal(final.toolAgentOutput.status, 'failure');
  assert.deepEqual(put(events), await history('trade'));
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('a message of the history is a valid cursor', async () => {
  const { runId } = await server.post(RUNS, { message: 'parallel', threadId: 'place' });
  const page = await browser.page(server.url);
  await watch(page, `${RUNS}/place/events`);
  const all = await ended(page, runId);
  const { snapshot } = await server.get('/api/v1/agent/history?threadId=place');
  for (const { id, seq, role } of snapshot.messages.filter(({ role }) => role !== 'user')) {
    await page.evaluate(() => source.close());
    await watch(page, `${RUNS}/place/events?after=${seq}`);
    const rest = await ended(page, runId);
    const finished = all.findIndex(({ type, data }) => data.messageId === id && /END|RESULT/.test(type));
    assert.deepEqual(rest, all.slice(finished + 1), `after the ${role}'s ${id}`);
  }
  await page.close();
});
