// Approvals on the page: the request in its call's card, tool progress, a sub-agent's items.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { ask, ended, hooks, startBrowser } from './lib/browser.mjs';
import { startServer } from './lib/server.mjs';

let server;
let browser;
before(async () => {
  server = await startServer();
  browser = await startBrowser();
});
after(async () => {
  await browser?.stop();
  await server?.stop();
});

const task = (page) => page.evaluate(() => location.hash.slice(1)).then((id) => server.get(`/v1/tasks/${id}`));
const result = (object) => object.output.find((item) => item.type === 'tool_result');

for (const [button, status] of [['Approve', 'completed'], ['Reject', 'rejected']]) {
  test(`an approval request survives a reload and is answered with ${button}`, async () => {
    const page = await browser.page(server.url);
    await page.click('#scenarios >> text=Trade');
    await page.waitForSelector('.question:not([hidden])');
    assert.match(await page.textContent('#end'), /waiting for a decision/);
    assert.equal((await hooks(page)).status, 'paused');
    await page.reload();
    await page.waitForSelector('.question:not([hidden])');
    await page.click(`.question >> text=${button}`);
    await ended(page, 'completed');
    assert.equal(result(await task(page)).status, status);
    assert.equal(await page.locator('.question:not([hidden])').count(), 0);
    assert.equal((await hooks(page)).same, 'true');
    assert.deepEqual(page.complaints, []);
  });
}

test('a tool shows its progress', async () => {
  const page = await browser.page(server.url);
  await ask(page, 'slow 2');
  await page.waitForSelector('.tool_call > .progress:not([hidden])');
  await ended(page, 'completed');
  assert.equal(await page.locator('.progress:not([hidden])').count(), 0);
  assert.equal((await hooks(page)).same, 'true');
});

test('the items of a sub-agent are shown under its parent call', async () => {
  const page = await browser.page(server.url);
  await page.click('#scenarios >> text=Help');
  await ended(page, 'completed');
  const inner = '#output > .tool_call > .tool_result > .inner';
  assert.equal(await page.locator(`${inner} > .tool_call > .tool_result`).count(), 1);
  assert.match(await page.locator(`${inner} > .message`).textContent(), /sunny/);
  assert.equal((await hooks(page)).same, 'true');
  assert.deepEqual(page.complaints, []);
});
