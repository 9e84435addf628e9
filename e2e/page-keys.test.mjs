// The page of a server that is not the demo, with keys, on a phone: sign in, pick an agent, talk, send files, edit an
// approval, share, reload in mid-sentence.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test, { after, before } from 'node:test';
import { ask, drawn, ended, hooks, life, said, startBrowser } from './lib/browser.mjs';
import { lastWords, startServer } from './lib/server.mjs';

const CONFIG = new URL('page/headwater.toml', import.meta.url).pathname;
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };

let server;
let browser;
let visitor;
let key;
before(async () => {
  server = await startServer({ config: CONFIG });
  key = await server.key('ann');
  browser = await startBrowser(PHONE);
  visitor = await startBrowser(PHONE);
});
after(async () => {
  await browser?.stop();
  await visitor?.stop();
  await server?.stop();
});

const get = async (path) => (await fetch(server.url + path, { headers: { authorization: `Bearer ${key}` } })).json();
const shown = (page, selector) => page.locator(`${selector}:visible`).count();

/** Opens the page and signs in. */
async function signedIn(address = '') {
  const page = await browser.page(`${server.url}/${address}`);
  await page.fill('#key', key);
  await page.click('#sign-in button');
  await page.waitForSelector('#ask:visible');
  return page;
}

/** What sticks out to the right. */
const sticksOut = (page) =>
  page.evaluate((width) => {
    const isShown = (node) => node.checkVisibility({ visibilityProperty: true }) && !node.closest('.unseen, #events, pre, .quiet');
    const all = [...document.querySelectorAll('body *')].filter(isShown);
    return all.filter((node) => node.getBoundingClientRect().right > width + 1).map((node) => `${node.tagName}.${node.className}`);
  }, PHONE.viewport.width);

/** Nothing sticks out, and nothing went wrong that the test did not do itself. */
async function assertTidy(page, expected = /^$/) {
  // The window of a phone grows with what sticks out, so its own width tells nothing, and it shrinks a moment after that.
  let wide = await sticksOut(page);
  for (let tries = 0; wide.length > 0 && tries < 50; tries += 1) {
    await page.waitForTimeout(100);
    wide = await sticksOut(page);
  }
  assert.deepEqual(wide, []);
  assert.deepEqual(page.complaints.filter((complaint) => !expected.test(complaint)), []);
  assert.deepEqual(await page.evaluate(() => violations), []);
}

const REFUSED = /^Failed to load resource: .* 4\d\d /;

test('the page asks for a key, says when it is wrong, and keeps the right one for this tab', async () => {
  const page = await browser.page(server.url);
  await page.waitForSelector('#sign-in:visible');
  assert.equal(await shown(page, '#key-problem'), 0, 'nobody has done anything wrong yet');
  for (const [wrong, why] of [['hw_wrong', /not valid/], ['two words', /cannot be a key/], ['hw_…', /cannot be a key/]]) {
    await page.fill('#key', wrong);
    await page.press('#key', 'Enter');
    await page.locator('#key-problem').getByText(why).waitFor();
  }
  await page.fill('#key', key);
  await page.press('#key', 'Enter');
  await page.waitForSelector('#ask:visible');
  assert.deepEqual(await page.locator('#agent option').allTextContents(), ['clerk', 'poet'], 'the agents of this server');
  assert.equal(await shown(page, '#scenarios'), 0, 'examples are the demo’s');
  await page.reload();
  await page.waitForSelector('#ask:visible');
  await assertTidy(page, REFUSED);

  const other = await browser.page(server.url);
  await other.waitForSelector('#sign-in:visible');
  await page.fill('#input', 'not for everybody');
  await page.click('#show-recent');
  await page.click('#sign-out');
  await page.waitForSelector('#sign-in:visible');
  assert.equal(await page.inputValue('#input'), '', 'the next user of the tab is somebody else');
  await page.reload();
  await page.waitForSelector('#sign-in:visible');
});

test('three turns with the agent that was picked are one conversation', async () => {
  const page = await signedIn();
  await page.selectOption('#agent', 'poet');
  const first = await ask(page, 'a verse please');
  await ended(page, 'completed');
  assert.equal(await said(page), 'The river knows no hurry.');

  await page.selectOption('#agent', 'clerk');
  await ask(page, 'what about the weather?');
  await ended(page, 'completed');
  const picture = page.locator('.tool_result img');
  await page.waitForFunction(() => document.querySelector('.tool_result img')?.naturalWidth > 0);
  assert.match(await picture.getAttribute('src'), /^blob:/, 'an <img> cannot send a key');
  assert.equal(await page.locator('.reasoning').getAttribute('open'), null, 'thoughts fold when they are done');
  assert.match(await page.locator('.reasoning').textContent(), /A delivery depends on the weather\. I look it up\./);

  const third = await ask(page, 'the report');
  await ended(page, 'completed');
  assert.equal(await page.locator('.run').count(), 3);
  assert.deepEqual(await page.locator('.run:last-child .folded').evaluateAll((all) => all.map((one) => one.open)), [false, false]);
  await page.locator('.run:last-child .folded summary').first().click();
  assert.match(await page.locator('.run:last-child .folded pre').first().textContent(), /^\{\n  "lines": \[\n/);
  const [task, last] = [await get(`/v1/tasks/${first}`), await get(`/v1/tasks/${third}`)];
  assert.deepEqual([task.agent, last.agent, last.thread_id], ['poet', 'clerk', task.thread_id]);
  assert.equal((await hooks(page)).same, 'true');
  await assertTidy(page, REFUSED);

  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll('.run').length === 3);
  assert.deepEqual(await page.locator('.asked').allTextContents(), ['a verse please', 'what about the weather?', 'the report']);
  assert.equal(await page.inputValue('#agent'), 'clerk', 'it goes on with the agent that answered last');
  await page.click('#show-recent');
  await page.locator('#tasks a[aria-current]').getByText('the report').waitFor();
  await assertTidy(page, REFUSED);
});

test('files are uploaded, sent and shown again after a reload', async () => {
  const page = await signedIn();
  const png = await readFile(new URL('../docs/page.png', import.meta.url));
  await page.setInputFiles('#file', [
    { name: 'order.txt', mimeType: 'text/plain', buffer: Buffer.from('Order A-7: one boat.') },
    { name: 'a photograph of the parcel with a long name.png', mimeType: 'image/png', buffer: png },
    { name: 'empty.txt', mimeType: 'text/plain', buffer: Buffer.from('') },
  ]);
  await page.waitForFunction(() => document.querySelectorAll('#files [data-state="ready"]').length === 2);
  await page.waitForSelector('#files [data-state="failed"]');
  await assertTidy(page, REFUSED);
  await page.click('[aria-label="Remove empty.txt"]');
  const task_id = await ask(page, 'see these');
  await ended(page, 'completed');
  assert.equal(await shown(page, '#files li'), 0);
  const items = await get(`/v1/responses/${task_id.replace('task_', 'resp_')}/input_items`);
  assert.deepEqual(items.data[0].content.map((part) => part.text ?? part.filename), ['see these', 'order.txt', 'a photograph of the parcel with a long name.png']);
  await page.reload();
  await page.locator('.bubble').getByText('order.txt').waitFor();
  await page.waitForFunction(() => document.querySelector('.bubble img')?.naturalWidth > 0);
  await assertTidy(page, REFUSED);
});

test('the arguments of a call are edited before it runs, with the time that is left', async () => {
  const page = await signedIn();
  const task_id = await ask(page, 'a refund for A-7');
  await page.locator('.countdown').getByText(/^2:[0-3]\d left$/).waitFor();
  await page.click('.question >> text=Edit');
  const send = async (text) => {
    await page.fill('.question .editor', text);
    await page.click('.question >> text=Approve edited');
  };
  await send('{"order": ');
  await page.locator('.question .failure').getByText('must be a JSON object').waitFor();
  await send('{"order":"A-7","amount":0}');
  await page.locator('.question .failure').getByText(/amount|minimum/).waitFor();
  await assertTidy(page, REFUSED);
  await page.reload();
  await page.locator('.countdown').getByText(/^2:[0-3]\d left$/).waitFor();
  await page.click('.question >> text=Edit');
  await send('{"order":"A-7","amount":7}');
  await ended(page, 'completed');
  const task = await get(`/v1/tasks/${task_id}`);
  assert.match(lastWords(task), /"amount":\s*7\b/, 'the tool ran with what was written');
  assert.match(await page.textContent('.decision'), /Approved with other arguments/);
  assert.equal((await hooks(page)).same, 'true');
  await page.reload();
  await page.locator('.decision').getByText('Approved with other arguments').waitFor();
  await assertTidy(page, REFUSED);
});

test('a conversation is shared by a link, live, and read only, until it is revoked', async () => {
  const page = await signedIn();
  await ask(page, 'the weather');
  await ended(page, 'completed');
  await page.click('#share');
  await page.click('text=Create link');
  await page.waitForSelector('#share-link-field:visible');
  const link = await page.inputValue('#share-link');
  await assertTidy(page, REFUSED);
  await page.keyboard.press('Escape');

  const guest = await visitor.page(link);
  await guest.waitForFunction(() => document.body.dataset.status === 'completed');
  assert.equal(await said(guest), await said(page));
  assert.equal(await guest.textContent('.asked'), 'the weather');
  await guest.waitForFunction(() => document.querySelector('.tool_result img')?.naturalWidth > 0);
  assert.deepEqual([await shown(guest, '#ask'), await shown(guest, '#share'), await shown(guest, '#shared')], [0, 0, 1]);
  await ask(page, 'and a refund');
  await guest.waitForSelector('.question:visible');
  assert.equal(await shown(guest, '.question button'), 0, 'a guest decides nothing');
  await assertTidy(guest, REFUSED);
  await page.click('.question >> text=Reject');
  await ended(page, 'completed');
  await guest.waitForFunction(() => document.body.dataset.status === 'completed');
  assert.equal(await said(guest), 'Nothing was paid back.');

  await page.click('#share');
  await page.click('#shares >> text=Revoke');
  await guest.locator('#problem').getByText('expired or was revoked').waitFor();
});

test('a guest with a key continues a frozen conversation in one of their own', async () => {
  const page = await signedIn();
  await ask(page, 'the weather');
  await ended(page, 'completed');
  await page.click('#share');
  await page.click('text=Frozen');
  await page.click('text=Create link');
  await page.waitForSelector('#share-link-field:visible');
  const link = await page.inputValue('#share-link');
  await page.click('#share-close');
  await ask(page, 'the report, which nobody else shall see');
  await ended(page, 'completed');

  const guest = await visitor.page(server.url);
  await guest.fill('#key', await server.key('cem'));
  await guest.press('#key', 'Enter');
  await guest.waitForSelector('#ask:visible');
  await guest.goto(link);
  await guest.waitForFunction(() => document.body.dataset.connection === 'ended');
  assert.deepEqual(await guest.locator('.asked').allTextContents(), ['the weather']);
  await ask(guest, 'hello');
  await ended(guest, 'completed');
  assert.doesNotMatch(await guest.evaluate(() => location.hash), /hws_/, 'the address is that of the copy');
  assert.notEqual(await guest.evaluate(() => location.hash), await page.evaluate(() => location.hash));
  await assertTidy(guest, REFUSED);
});

test('a conversation that was reloaded in mid-sentence goes on, and what is written meanwhile waits its turn', async () => {
  const page = await signedIn();
  const task_id = await ask(page, 'count to 300');
  await drawn(page, 60);
  assert.equal((await hooks(page)).status, 'running', 'reloaded in mid-sentence');
  const before = await said(page);
  await page.reload();
  await page.waitForFunction(() => document.body.dataset.snapshot !== undefined);
  assert.ok((await said(page)).startsWith(before), 'what was said before is there at once');
  await page.fill('#input', 'first line');
  await page.press('#input', 'Shift+Enter');
  await page.keyboard.type('second line');
  await page.press('#input', 'Enter');
  await page.locator('.run[data-status="queued"]').getByText('Waiting for its turn').waitFor();
  await ended(page, 'completed');
  assert.equal(await page.locator('.run').first().locator('.message .text').textContent(), lastWords(await get(`/v1/tasks/${task_id}`)));
  assert.equal(await page.locator('.run').last().locator('.asked').textContent(), 'first line\nsecond line');
  const { snapshot, seqs } = await life(page);
  assert.deepEqual(seqs, seqs.map((_, index) => snapshot + 1 + index), 'no gap, no repeat');
  await assertTidy(page, REFUSED);
});

test('Escape stops a run; deltas are hidden in the log until they are wanted', async () => {
  const page = await signedIn();
  await ask(page, 'count to 3000');
  await drawn(page, 40);
  await page.keyboard.press('Escape');
  await ended(page, 'cancelled');
  assert.match(await page.textContent('.run:last-child > .end'), /The output up to here is kept/);
  await page.click('#show-log');
  const deltas = '#events [data-type="task.text.delta"]';
  assert.equal(await shown(page, deltas), 0);
  await page.check('#deltas');
  assert.ok((await shown(page, deltas)) > 10);
  await page.keyboard.press('Escape');
  assert.equal(await shown(page, '#events'), 0, 'Escape closes the panel');
  await assertTidy(page, REFUSED);
});

test('a key that is no longer valid leads back to the form, and is forgotten', async () => {
  const page = await signedIn();
  const lose = () => page.evaluate(() => sessionStorage.setItem('headwater.key', 'hw_revoked'));
  const isForgotten = async () => {
    await page.locator('#key-problem:visible').getByText('revoked').waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.getItem('headwater.key')), null);
  };
  await lose();
  await page.fill('#input', 'hello');
  await page.press('#input', 'Enter');
  await isForgotten();
  await page.fill('#key', key);
  await page.press('#key', 'Enter');
  await page.waitForSelector('#ask:visible');
  assert.equal(await page.inputValue('#input'), 'hello', 'what was written is still there');
  await lose();
  await page.reload();
  await isForgotten();
});

test('an address that leads nowhere, and somebody else’s conversation, are said so', async () => {
  const page = await signedIn(`#thr_${'0'.repeat(32)}`);
  await page.locator('#problem').getByText('no such conversation').waitFor();
  await page.click('#show-recent');
  await page.click('#new');
  await page.waitForFunction(() => document.querySelector('#problem').hidden && location.hash === '');
  await ask(page, 'hello');
  await ended(page, 'completed');
  const mine = await page.evaluate(() => location.hash);
  const other = await visitor.page(`${server.url}/${mine}`);
  await other.fill('#key', await server.key('ben'));
  await other.press('#key', 'Enter');
  await other.locator('#problem').getByText('not yours').waitFor();
});
