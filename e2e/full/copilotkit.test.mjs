// CopilotKit's React components in Chromium, with this server where their runtime would be.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startBrowser } from '../lib/browser.mjs';
import { startHost } from '../lib/page-host.mjs';
import { events, lastWords, startServer } from '../lib/server.mjs';

let server;
let host;
let browser;
before(async () => {
  server = await startServer();
  host = await startHost(server.url, 'full/copilotkit/page.jsx');
  browser = await startBrowser();
});
after(async () => {
  await browser?.stop();
  await host?.stop();
  await server?.stop();
});

/** A chat with a thread of its own. */
async function openChat() {
  const page = await browser.page(`${host.url}/?thread=${crypto.randomUUID()}`);
  page.on('request', (asked) => asked.url().startsWith(host.url) || page.complaints.push(`asks ${asked.url()}`));
  await page.waitForSelector('textarea');
  return page;
}

/** Says something. Gives the run that begins. */
async function say(page, words) {
  const before = await newestRun();
  await page.fill('textarea', words);
  await page.press('textarea', 'Enter');
  for (;;) {
    const run = await newestRun();
    if (run && run.task_id !== before?.task_id) return run.task_id;
  }
}

const newestRun = async () => (await server.get('/v1/tasks?limit=1')).data[0];
const messages = (page, who) => page.locator(`[data-testid=copilot-${who}-message]`);
/** Waits until the last answer on the page says this. */
const answered = (page, words) => messages(page, 'assistant').filter({ hasText: words }).last().waitFor();
const rested = (page) => page.waitForFunction(() => !document.querySelector('[data-testid=copilot-loading-cursor]'));
const ended = async (task_id) => {
  await events(server.url, task_id);
  return server.get(`/v1/tasks/${task_id}`);
};
const countOf = (text, words) => text.split(words).length - 1;

test('a conversation, and the page that comes back to it', async () => {
  const page = await openChat();
  await say(page, 'hello');
  await answered(page, "Headwater's demo");
  await say(page, 'weather');
  await answered(page, 'sunny with a temperature');
  await rested(page);
  for (const _life of ['first', 'after a reload']) {
    assert.equal(await messages(page, 'user').count(), 2);
    const text = await page.innerText('#root');
    assert.equal(countOf(text, "I am Headwater's demo"), 1);
    assert.equal(countOf(text, 'sunny with a temperature'), 1);
    await page.reload();
    await answered(page, 'sunny with a temperature');
  }
  assert.deepEqual(page.complaints, []);
});

test('a page that is reloaded in the middle of a sentence goes on where it is', async () => {
  const page = await openChat();
  const task = await say(page, 'story 120');
  await answered(page, 'Once upon a time');
  await page.reload();
  await answered(page, 'Once upon a time');
  assert.equal((await server.get(`/v1/tasks/${task}`)).status, 'running', 'it was reloaded before the end');
  const words = lastWords(await ended(task));
  await answered(page, words.trim().split(' ').slice(-8).join(' '));
  const text = (await messages(page, 'assistant').last().innerText()).trim();
  assert.equal(countOf(text, 'Once upon a time'), countOf(words, 'Once upon a time'));
  assert.equal(text.replace(/\s+/g, ' '), words.trim().replace(/\s+/g, ' '));
  assert.equal(await messages(page, 'user').count(), 1);
  assert.deepEqual(page.complaints, []);
});

for (const [reloads, button, expected] of [
  [false, 'approve', 'Done: bought VNM'],
  [true, 'approve', 'Done: bought VNM'],
  [true, 'reject', 'The order was not placed'],
]) {
  test(`an approval is answered with ${button}${reloads ? ' after a reload' : ''}`, async () => {
    const page = await openChat();
    const task = await say(page, 'trade');
    await page.waitForSelector('#interrupt');
    if (reloads) {
      await page.reload();
      await page.waitForSelector('#interrupt');
    }
    await page.click(`#${button}`);
    await answered(page, expected);
    assert.equal((await ended(task)).status, 'completed');
    assert.equal(await page.locator('#interrupt').count(), 0);
    await say(page, 'hello');
    await answered(page, "Headwater's demo");
    assert.equal(await messages(page, 'user').count(), 2);
    assert.deepEqual(page.complaints, []);
  });
}

test("a tool of the page is called, and its result is the model's", async () => {
  const page = await openChat();
  await say(page, 'client');
  await answered(page, 'Your tool pick says: red');
  assert.deepEqual(page.complaints, []);
});

test('the stop button cancels the run, and the next message works', async () => {
  const page = await openChat();
  const task = await say(page, 'story 5000');
  await answered(page, 'Once upon a time');
  await page.click('[data-testid=copilot-send-button]');
  assert.equal((await ended(task)).status, 'cancelled');
  await rested(page);
  assert.doesNotMatch(await page.innerText('#root'), /error|cancelled/i, 'a stop is no error');
  await say(page, 'hello');
  await answered(page, "Headwater's demo");
  assert.deepEqual(page.complaints, []);
});

test('a run that is stopped after a reload is cancelled, too', async () => {
  const page = await openChat();
  const task = await say(page, 'story 5000');
  await answered(page, 'Once upon a time');
  await page.reload();
  await answered(page, 'Once upon a time');
  await page.click('[data-testid=copilot-send-button]');
  assert.equal((await ended(task)).status, 'cancelled');
});

test('the page calls what the documentation lists', async () => {
  const known = [
    /^GET \/copilotkit\/info$/,
    /^POST \/copilotkit\/agent\/demo\/(run|connect)$/,
    /^POST \/copilotkit\/agent\/demo\/stop\/[0-9a-f-]+$/,
  ];
  for (const call of host.calls) assert.ok(known.some((pattern) => pattern.test(call)), call);
  assert.ok(host.calls.length > 0);
});
