// `useChat` of the AI SDK in Chromium, versions 6 and 7: reloads, approvals, tools of the page, stop and regenerate.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startBrowser } from './lib/browser.mjs';
import { startHost } from './lib/page-host.mjs';
import { events, lastWords, startServer } from './lib/server.mjs';

const VERSIONS = [
  { ui: 7, alias: {} },
  { ui: 6, alias: { ai: 'ai-6', '@ai-sdk/react': 'ai-sdk-react-3' } },
];

let server;
let browser;
const hosts = new Map();
before(async () => {
  server = await startServer();
  for (const { ui, alias } of VERSIONS) hosts.set(ui, await startHost(server.url, 'ai-sdk/page.jsx', alias));
  browser = await startBrowser();
});
after(async () => {
  await browser?.stop();
  for (const host of hosts.values()) await host.stop();
  await server?.stop();
});

/** A test with both versions of the SDK. */
const inBoth = {
  test: (title, work) => VERSIONS.forEach(({ ui }) => test(`${title} (${ui})`, () => work(ui))),
};

async function openChat(ui) {
  const page = await browser.page(`${hosts.get(ui).url}/?ui=${ui}&id=${crypto.randomUUID()}`);
  await page.waitForSelector('main');
  return page;
}

const newestRun = async () => (await server.get('/v1/tasks?limit=1')).data[0];

/** Says something. Gives the run that begins. */
async function say(page, words) {
  const before = await newestRun();
  await page.fill('input', words);
  await page.press('input', 'Enter');
  for (;;) {
    const run = await newestRun();
    if (run && run.task_id !== before?.task_id) return run.task_id;
  }
}

const answered = (page, words) => page.locator('.assistant .text').filter({ hasText: words }).last().waitFor();
const rested = (page) => page.waitForSelector('main[data-status=ready]');
const count = (page, selector) => page.locator(selector).count();
const ended = async (task_id) => {
  await events(server.url, task_id);
  return server.get(`/v1/tasks/${task_id}`);
};

inBoth.test('a conversation, and the page that comes back to it', async (ui) => {
  const page = await openChat(ui);
  for (const [input, answer] of [['hello', "Headwater's demo"], ['weather', 'sunny with a temperature']]) {
    await say(page, input);
    await answered(page, answer);
    await rested(page);
  }
  await page.reload();
  await answered(page, 'sunny with a temperature');
  await rested(page);
  assert.deepEqual([await count(page, '.user'), await count(page, '.assistant')], [2, 2]);
  assert.deepEqual(page.complaints, []);
});

inBoth.test('a page that is reloaded in the middle of a sentence goes on where it is', async (ui) => {
  const page = await openChat(ui);
  // Long enough for two reloads on a slow machine.
  const task = await say(page, 'story 300');
  for (let reloads = 0; reloads < 2; reloads += 1) {
    await answered(page, 'Once upon a time');
    await page.reload();
  }
  await answered(page, 'Once upon a time');
  assert.equal((await server.get(`/v1/tasks/${task}`)).status, 'running', 'it was reloaded before the end');
  const words = lastWords(await ended(task));
  await rested(page);
  assert.equal(await page.locator('.assistant .text').innerText(), words.trim());
  assert.deepEqual([await count(page, '.user'), await count(page, '.assistant')], [1, 1]);
  assert.deepEqual(page.complaints, []);
});

inBoth.test('an approval is answered, also after a reload', async (ui) => {
  for (const [reloads, button, expected] of [[0, 'approve', 'Done: bought VNM'], [1, 'approve', 'Done: bought VNM'], [1, 'reject', 'The order was not placed']]) {
    const page = await openChat(ui);
    const task = await say(page, 'trade');
    await page.waitForSelector('.approval');
    if (reloads) {
      await page.reload();
      await page.waitForSelector('.approval');
    }
    await rested(page);
    await page.click(`.${button}`);
    await answered(page, expected);
    assert.equal((await ended(task)).status, 'completed');
    await rested(page);
    assert.deepEqual([await count(page, '.user'), await count(page, '.assistant'), await count(page, '.approval')], [1, 1, 0]);
    await say(page, 'hello');
    await answered(page, "Headwater's demo");
    assert.deepEqual(page.complaints, []);
    await page.close();
  }
});

inBoth.test("a tool of the page is called, and its result is the model's", async (ui) => {
  const page = await openChat(ui);
  await say(page, 'client');
  await answered(page, 'Your tool pick says: red');
  await rested(page);
  assert.equal(await count(page, '.assistant'), 1);
  assert.deepEqual(page.complaints, []);
});

inBoth.test('a stop cancels the run, and the next message works', async (ui) => {
  const page = await openChat(ui);
  const task = await say(page, 'story 5000');
  await answered(page, 'Once upon a time');
  await page.click('#stop');
  assert.equal((await ended(task)).status, 'cancelled');
  await rested(page);
  assert.equal(await count(page, '.error'), 0);
  await say(page, 'hello');
  await answered(page, "Headwater's demo");
  assert.deepEqual(page.complaints, []);
});

inBoth.test('an answer is generated again', async (ui) => {
  const page = await openChat(ui);
  await say(page, 'hello');
  await answered(page, "Headwater's demo");
  await rested(page);
  const first = await page.getAttribute('.assistant', 'data-id');
  await page.click('#regenerate');
  await page.waitForFunction((old) => {
    const message = document.querySelector('.assistant');
    return message && message.dataset.id !== old && document.querySelector('main').dataset.status === 'ready';
  }, first);
  assert.deepEqual([await count(page, '.user'), await count(page, '.assistant')], [1, 1]);
  await page.reload();
  await answered(page, "Headwater's demo");
  assert.deepEqual([await count(page, '.user'), await count(page, '.assistant')], [1, 1]);
  assert.deepEqual(page.complaints, []);
});
