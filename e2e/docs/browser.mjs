// A page of an example in Chromium.

import { startBrowser } from '../lib/browser.mjs';

const PAGE_MS_MAX = 20_000;

/** Opens a page and waits until its text is one that `isDone`. Gives the last text that it had. */
export async function pageText(url, isDone) {
  const browser = await startBrowser();
  try {
    await listening(url);
    const page = await browser.page(url);
    const body = () => page.evaluate(() => document.body.innerText);
    const end = Date.now() + PAGE_MS_MAX;
    let text = await body();
    while (!isDone(text) && Date.now() < end) {
      await page.waitForFunction((old) => document.body.innerText !== old, text, { timeout: PAGE_MS_MAX }).catch(() => {});
      text = await body();
    }
    return text;
  } finally {
    await browser.stop();
  }
}

/** Waits until a server that a block has just started answers. */
async function listening(url) {
  const end = Date.now() + PAGE_MS_MAX;
  for (;;) {
    try {
      return void (await fetch(url));
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((later) => setTimeout(later, 50));
    }
  }
}
