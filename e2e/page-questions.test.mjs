// Questions of tools on the page: a form of the schema in the card of the call.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { ask, ended, hooks, startBrowser } from './lib/browser.mjs';
import { startServer } from './lib/server.mjs';

let server;
let browser;
before(async () => {
  server = await startServer({ config: new URL('page/questions.toml', import.meta.url).pathname });
  browser = await startBrowser();
});
after(async () => {
  await browser?.stop();
  await server?.stop();
});

const result = async (page) => {
  const task = await server.get(`/v1/tasks/${(await hooks(page)).task}`);
  return task.output.find(({ type }) => type === 'tool_result');
};

test('a question is a form that survives a reload and is answered', async () => {
  const page = await browser.page(server.url);
  await ask(page, 'form');
  await page.waitForSelector('.question:not([hidden]) .answer');
  assert.match(await page.textContent('.run:last-child > .end'), /waiting for an answer/);
  await page.reload();
  await page.waitForSelector('.question:not([hidden]) .answer');
  assert.match(await page.textContent('.question .message'), /Which color\?/);
  await page.click('.question >> text=Send');
  await page.waitForSelector('.question .failure:not([hidden])');
  assert.match(await page.textContent('.question .failure'), /color/);
  await page.selectOption('.answer select', 'blue');
  await page.fill('.answer input[data-name="amount"]', '12345678901234567890');
  await page.check('.answer input[type="checkbox"]');
  await page.fill('.answer input[data-name="name"]', 'Ann "the" <b>');
  await page.click('.question >> text=Send');
  await ended(page, 'completed');
  const { status, block_list } = await result(page);
  assert.deepEqual([status, block_list[0].text], ['completed', '{"amount":12345678901234567890,"color":"blue","name":"Ann \\"the\\" <b>","sure":true}']);
  assert.equal(await page.locator('.question:not([hidden])').count(), 0);
  assert.match(await page.textContent('.decision'), /Answered/);
  assert.equal((await hooks(page)).same, 'true');
  assert.deepEqual(page.complaints, []);
});

test('a question is declined, and one with another schema is answered with JSON', async () => {
  const page = await browser.page(server.url);
  await ask(page, 'nested');
  await page.waitForSelector('.question:not([hidden]) .answer .editor');
  await page.fill('.answer .editor', '[1]');
  await page.click('.question >> text=Send');
  await page.waitForSelector('.question .failure:not([hidden])');
  await page.fill('.answer .editor', '{"stops":["Hue","Vinh"]}');
  await page.click('.question >> text=Send');
  await ended(page, 'completed');
  assert.equal((await result(page)).block_list[0].text, '{"stops":["Hue","Vinh"]}');
  await ask(page, 'nested');
  await page.click('.run:last-child .question >> text=Decline');
  await ended(page, 'completed');
  assert.equal((await result(page)).status, 'rejected');
  assert.deepEqual(page.complaints, []);
});
