// Chromium with nothing but a page: a profile of its own, no updates, no network but ours.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

/** Starts a browser, with more `options` of its context and more `flags`. `page(url)` opens a page that remembers what went wrong on it. */
export async function startBrowser(options = {}, flags = []) {
  const profile = await mkdtemp(join(tmpdir(), 'headwater-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    args: [...FLAGS, ...flags],
    viewport: { width: 1280, height: 900 },
    ...options,
  });
  // Runs before the page's own script, in every life of the page.
  await context.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener('securitypolicyviolation', (e) => violations.push(`${e.violatedDirective} ${e.blockedURI}`));
    globalThis.pictures = [];
    const look = () => {
      const src = document.querySelector('.hosted_call img')?.src;
      if (src && src !== pictures.at(-1)) pictures.push(src);
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ['src'] });
  });
  return {
    context,
    page: async (url) => {
      const page = await context.newPage();
      page.complaints = [];
      page.on('console', (message) => ['error', 'warning'].includes(message.type()) && page.complaints.push(message.text()));
      page.on('pageerror', (error) => page.complaints.push(String(error)));
      await page.goto(url);
      return page;
    },
    stop: async () => {
      await context.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}

/** Says something on the page. Gives the task that begins. */
export async function ask(page, words) {
  const before = (await hooks(page)).task;
  await page.fill('#input', words);
  await page.press('#input', 'Enter');
  await page.waitForFunction((old) => (document.body.dataset.task ?? '') !== (old ?? ''), before);
  return (await hooks(page)).task;
}

/** What the last message on the page says. */
export const said = (page) =>
  page.locator('.run:last-child > .output > .message').last().evaluate((node) => node.querySelector('.text').textContent);

/** What the page says of itself. */
export const hooks = (page) => page.evaluate(() => ({ ...document.body.dataset }));

/** Waits until the page has drawn the task up to `seq`. */
export const drawn = (page, seq) => page.waitForFunction((n) => Number(document.body.dataset.seq) >= n, seq, { polling: 'raf' });

/** Waits until the page says that the task has ended like this, and that it has compared itself with the server. */
export const ended = (page, status) =>
  page.waitForFunction((word) => document.body.dataset.status === word && document.body.dataset.same !== undefined, status);

/** The numbers of the events that this life of the page got, and where it began. */
export const life = (page) =>
  page.evaluate(() => ({
    snapshot: Number(document.body.dataset.snapshot),
    seqs: [...document.querySelectorAll('#events li')].map((row) => Number(row.dataset.seq)),
  }));
