// The page in Chromium: it shows the state of the server after any number of reloads and disconnects.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { ask, drawn, ended, hooks, life, startBrowser } from './lib/browser.mjs';
import { startProxy } from './lib/proxy.mjs';
import { events, lastWords, startServer } from './lib/server.mjs';

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

const said = (page) => page.locator('#output > .message').last().evaluate((node) => node.querySelector('.text').textContent);

/** Nothing went wrong that the test did not do itself. */
async function assertQuiet(page, expected = /^$/) {
  assert.deepEqual(page.complaints.filter((complaint) => !expected.test(complaint)), []);
  assert.deepEqual(await page.evaluate(() => violations), []);
}

/** One life of a page saw every event after its snapshot, once. */
function assertGapless({ snapshot, seqs }) {
  assert.deepEqual(seqs, seqs.map((_, at) => snapshot + 1 + at), `after ${snapshot}`);
}

test('a story survives two reloads and a broken connection', async () => {
  const page = await browser.page(proxy.url);
  const task_id = await ask(page, 'story 500');
  const lives = [];
  for (const seq of [50, 110]) {
    await drawn(page, seq);
    assert.equal((await hooks(page)).status, 'running', 'reloaded in mid-sentence');
    lives.push(await life(page));
    await page.reload();
    await page.waitForFunction(() => document.body.dataset.snapshot !== undefined);
    assert.ok((await said(page)).length > 0, 'what was said before is there at once');
  }
  await drawn(page, 170);
  proxy.refuse = 1;
  proxy.cut();
  await page.waitForFunction(() => document.body.dataset.connection === 'reconnecting');
  await ended(page, 'completed');
  lives.push(await life(page));

  const task = await server.get(`/v1/tasks/${task_id}`);
  const log = await events(server.url, task_id);
  assert.equal(log.filter((event) => event.type === 'task.text.delta').length, 500);
  assert.equal(await said(page), lastWords(task));
  assert.equal((await hooks(page)).same, 'true', 'what the page folded is what the server has');
  for (const one of lives) assertGapless(one);
  const [first, second, third] = lives;
  assert.ok(second.snapshot > first.snapshot && third.snapshot > second.snapshot, 'each life began where the log was');
  assert.equal(third.seqs.at(-1), task.seq);
  assert.match(await page.textContent('#counts'), / 0 gaps · 0 repeats · 1 cuts$/);
  // The browser itself reports the connection that the test broke.
  await assertQuiet(page, /^Failed to load resource: net::ERR_/);
});

test('a page continues when the network is back', async () => {
  const page = await browser.page(proxy.url);
  const task_id = await ask(page, 'story 200');
  await drawn(page, 40);
  await browser.context.setOffline(true);
  proxy.cut();
  await page.waitForFunction(() => document.body.dataset.connection === 'reconnecting');
  await browser.context.setOffline(false);
  await ended(page, 'completed');
  assert.equal(await said(page), lastWords(await server.get(`/v1/tasks/${task_id}`)));
  assert.equal((await hooks(page)).same, 'true');
});

test('a page survives a server restart, and shows how its task ended', async () => {
  const page = await browser.page(proxy.url);
  const task_id = await ask(page, 'story 300');
  await drawn(page, 60);
  const before = await said(page);
  await server.killAndRestart();
  proxy.target = server.url;
  await page.waitForFunction(() => document.body.dataset.connection === 'ended', undefined, { timeout: 60_000 });
  const task = await server.get(`/v1/tasks/${task_id}`);
  assert.equal((await hooks(page)).status, task.status);
  assert.ok(lastWords(task).startsWith(before), 'nothing that was shown is lost');
  assert.equal(await said(page), lastWords(task));
});

test('the weather shows reasoning, the call, its result with an image, and a citation that links to it', async () => {
  const page = await browser.page(server.url);
  await page.click('text=Weather');
  await ended(page, 'completed');
  const texts = (selector) => page.locator(selector).allTextContents();
  assert.deepEqual(await texts('.reasoning .words'), ['Thinking about the weather in Paris.', 'Decided to call get_weather function.']);
  assert.deepEqual(await texts('.tool_call .arguments'), ['{"location":"Paris, France"}']);
  assert.match((await texts('.tool_call > .tool_result > .text')).join(), /15C/);
  assert.ok(await page.locator('.tool_result img').evaluate(async (img) => (await img.decode(), img.naturalWidth > 0)));
  assert.equal(await said(page), 'The weather in Paris is sunny with a temperature of 15C.[^1]');
  await page.click('.message .citation');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'reference-1');
  const { same, status } = await hooks(page);
  assert.deepEqual([same, status], ['true', 'completed'], 'a citation does not leave the task');
  await assertQuiet(page);
});

test('partial images are shown', async () => {
  const page = await browser.page(server.url);
  const task_id = await ask(page, 'an image please');
  await ended(page, 'completed');
  const shown = (await events(server.url, task_id)).filter((event) => /^task\.image\.(delta|done)$/.test(event.type));
  const sent = shown.map((event) => new URL(event.item.image_url.url, server.url).href);
  const pictures = await page.evaluate(() => globalThis.pictures);
  assert.equal(sent.length, 4, 'three partial pictures and the whole one');
  // States between two animation frames are not rendered.
  assert.ok(pictures.length > 1, 'it was drawn before it was done');
  assert.ok(pictures.every((url) => sent.includes(url)));
  assert.equal(pictures.at(-1), sent.at(-1));
  assert.ok(await page.locator('.hosted_call img').evaluate(async (img) => (await img.decode(), img.naturalWidth > 0)));
  assert.equal((await hooks(page)).same, 'true');
  await assertQuiet(page);
});

test('a failure and a cancel keep the partial text', async () => {
  const page = await browser.page(server.url);
  const failed = await ask(page, 'fail');
  await ended(page, 'failed');
  assert.match(await page.textContent('#end'), /provider_error/);
  assert.equal(await said(page), lastWords(await server.get(`/v1/tasks/${failed}`)));

  const cancelled = await ask(page, 'story 5000');
  await drawn(page, 30);
  await page.click('#cancel');
  await ended(page, 'cancelled');
  assert.equal(await said(page), lastWords(await server.get(`/v1/tasks/${cancelled}`)));
  assert.equal((await hooks(page)).same, 'true');
  await assertQuiet(page);
});

test('two pages that watch one task show the same', async () => {
  const first = await browser.page(server.url);
  const task_id = await ask(first, 'story 80');
  await drawn(first, 20);
  const second = await browser.page(`${server.url}/#${task_id}`);
  await Promise.all([ended(first, 'completed'), ended(second, 'completed')]);
  assert.equal(await said(first), await said(second));
  assert.equal((await hooks(second)).same, 'true');
});

test('the list leads back to a task, and its log folds to the object that was fetched', async () => {
  const page = await browser.page(server.url);
  const task_id = await ask(page, 'hello <img src=x onerror=alert(1)>');
  await ended(page, 'completed');
  await ask(page, 'hello again');
  await page.click(`#tasks a[href="#${task_id}"]`);
  await page.waitForFunction((id) => location.hash === `#${id}` && document.body.dataset.status === 'completed', task_id);
  assert.equal(await page.textContent('#asked'), 'hello <img src=x onerror=alert(1)>');
  await page.click('#earlier');
  await page.waitForSelector('#replayed[data-same]');
  assert.equal(await page.getAttribute('#replayed', 'data-same'), 'true');
  const log = await events(server.url, task_id);
  assert.deepEqual((await life(page)).seqs, log.map((event) => event.seq));
  await assertQuiet(page);
});

test('a missing task is reported', async () => {
  const page = await browser.page(`${server.url}/#task_${'0'.repeat(32)}`);
  await page.waitForSelector('#problem:not([hidden])');
  assert.equal((await hooks(page)).status, 'none');
});
