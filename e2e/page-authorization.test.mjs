// A tool of an MCP server that wants an authorization, on the page of a server with keys: the question leads to the authorization
// server of the MCP SDK's example, and the run goes on when the browser comes back.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { ask, ended, startBrowser } from './lib/browser.mjs';
import { freePort } from './lib/free-port.mjs';
import { startServer } from './lib/server.mjs';

const EXAMPLE = 'node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js';
const SCENARIOS = `
[[scenario]]
match = '\\bauthorize\\b'
[[scenario.turn]]
steps = [{ call = "notes__authorize", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = "Thank you." }]

[[scenario]]
[[scenario.turn]]
steps = [{ call = "notes__greet", arguments = '{"name":"Ann"}' }]
[[scenario.turn]]
steps = [{ text = "It says: {result}" }]
`;

let [folder, mcp, server, browser, key] = [];
before(async () => {
  const [port, authPort] = [await freePort(), await freePort()];
  mcp = spawn('node', [new URL(EXAMPLE, import.meta.url).pathname, '--oauth'], {
    stdio: 'ignore', env: { ...process.env, MCP_PORT: port, MCP_AUTH_PORT: authPort },
  });
  await Promise.all([port, authPort].map(answers));
  folder = await mkdtemp(join(tmpdir(), 'headwater-authorization-'));
  const config = `
    [auth]
    mode = "keys"
    [agents.guide]
    model = "script/guide"
    tools = ["mcp:notes"]
    [mcp.notes]
    url = "http://localhost:${port}/mcp"
    auth = "oauth"
    approval = "never"
    [providers.script]
    kind = "scripted"
    file = "scenarios.toml"
  `;
  await writeFile(join(folder, 'headwater.toml'), config);
  await writeFile(join(folder, 'scenarios.toml'), SCENARIOS);
  // Nodes share the key that seals tokens.
  server = await startServer({ config: join(folder, 'headwater.toml'), env: { HEADWATER_CREDENTIALS_KEY: '5e'.repeat(32) } });
  key = await server.key('ann');
  browser = await startBrowser();
});
after(async () => {
  await browser?.stop();
  await server?.stop();
  mcp?.kill();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function answers(port) {
  for (let attempts = 0; attempts < 200; attempts += 1) {
    if (await fetch(`http://localhost:${port}/`).catch(() => undefined)) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`nothing answers on port ${port}`);
}

test('the link of a question authorizes an MCP server with the key of the page', async () => {
  const page = await browser.page(server.url);
  await page.fill('#key', key);
  await page.click('#sign-in button');
  await page.waitForSelector('#ask:visible');
  await ask(page, 'authorize');
  const link = page.locator('.question:not([hidden]) a');
  await link.waitFor();
  const [tab] = await Promise.all([page.context().waitForEvent('page'), link.click()]);
  await tab.waitForURL(/\/v1\/mcp\/callback/);
  assert.match(await tab.textContent('body'), /notes/);
  assert.equal(await tab.evaluate(() => opener), null);
  await tab.close();
  await ended(page, 'completed');
  await ask(page, 'greet');
  await page.locator('.run').filter({ hasText: 'It says: Hello, Ann!' }).waitFor();
  // Before the key was given.
  assert.deepEqual(page.complaints.filter((complaint) => !/401/.test(complaint)), []);
});
