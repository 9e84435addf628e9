// Pages of another origin, with keys: `useChat`, AG-UI's client, and requests as CopilotKit sends them, in Chromium.

import assert from 'node:assert/strict';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { startBrowser } from './lib/browser.mjs';
import { startHost } from './lib/page-host.mjs';
import { startServer } from './lib/server.mjs';

/** A name that is not of this machine, so that only the config allows it. */
const NAME = 'app.example';
const PAGES = {
  'useChat 7': ['ai-sdk/page.jsx', {}],
  'useChat 6': ['ai-sdk/page.jsx', { ai: 'ai-6', '@ai-sdk/react': 'ai-sdk-react-3' }],
  'AG-UI 1.0': ['agui/page.mjs', {}],
  'AG-UI 0.0.59': ['agui/page.mjs', { '@ag-ui/client': 'ag-ui-client-0' }],
};
const from = (name) => new URL(`page/${name}`, import.meta.url);

const hosts = new Map();
let folder;
let server;
let browser;
let key;
before(async () => {
  for (const [name, [entry, alias]] of Object.entries(PAGES)) hosts.set(name, await startHost(undefined, entry, alias));
  const origins = [...hosts.values()].map(({ port }) => `http://${NAME}:${port}`);
  folder = await mkdtemp(join(tmpdir(), 'headwater-origins-'));
  await copyFile(from('scenarios.toml'), join(folder, 'scenarios.toml'));
  const config = `[server]\norigins = ${JSON.stringify(origins)}\n\n${await readFile(from('headwater.toml'), 'utf8')}`;
  await writeFile(join(folder, 'headwater.toml'), config);
  server = await startServer({ config: join(folder, 'headwater.toml') });
  key = await server.key('ann');
  browser = await startBrowser({}, [`--host-resolver-rules=MAP *.${NAME} 127.0.0.1, MAP ${NAME} 127.0.0.1`]);
});
after(async () => {
  await browser?.stop();
  for (const host of hosts.values()) await host.stop();
  await server?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/** Opens a page under the name that the config allows, or as `origin`. */
async function openPage(name, parameters = {}, origin = NAME) {
  const page = await browser.page(`http://${origin}:${hosts.get(name).port}/?${new URLSearchParams(parameters)}`);
  await page.waitForSelector('main');
  return page;
}

const answered = (page, words) => page.locator('.assistant .text').filter({ hasText: words }).last().waitFor();
const rested = (page) => page.waitForSelector('main[data-status=ready]');

async function say(page, words) {
  await page.fill('input', words);
  await page.press('input', 'Enter');
}

for (const ui of [6, 7]) {
  const chat = (more) => ({ ui, id: crypto.randomUUID(), agent: 'clerk', server: server.url, ...more });

  test(`useChat ${ui} talks, approves, reloads and stops across origins`, async () => {
    const page = await openPage(`useChat ${ui}`, chat({ key }));
    assert.deepEqual(page.complaints, [], 'a chat without messages has nothing to resume');
    await say(page, 'weather');
    await answered(page, 'Sunny in Oslo');
    await rested(page);
    await say(page, 'refund');
    await page.waitForSelector('.approval');
    await page.reload();
    await page.waitForSelector('.approval');
    await rested(page);
    await page.click('.approve');
    await answered(page, 'The money is on its way');
    await rested(page);
    await say(page, 'count to 5000');
    await answered(page, '1 2 3');
    await page.reload();
    await answered(page, '1 2 3');
    await page.click('#stop');
    await rested(page);
    assert.deepEqual(page.complaints, []);
    assert.deepEqual(hosts.get(`useChat ${ui}`).calls, [], 'all requests cross the origin');
  });

  test(`useChat ${ui} can read why it is refused`, async () => {
    for (const wrong of [{}, { key: 'hw_wrong' }]) {
      const page = await openPage(`useChat ${ui}`, chat(wrong));
      await say(page, 'hello');
      await page.locator('.error').filter({ hasText: /unauthorized|invalid_api_key/ }).waitFor();
    }
  });
}

for (const version of ['1.0', '0.0.59']) {
  test(`AG-UI ${version} runs, joins and is refused across origins`, async () => {
    const page = await openPage(`AG-UI ${version}`);
    const threadId = crypto.randomUUID();
    const roles = await page.evaluate(async ({ url, threadId, key }) => {
      const agent = newAgent({ url: `${url}/agui/clerk`, threadId, key });
      agent.addMessage({ id: 'm-1', role: 'user', content: 'weather' });
      await agent.runAgent();
      const other = newAgent({ url: `${url}/agui/clerk/connect`, threadId, key });
      await other.runAgent();
      return [agent, other].map(({ messages }) => messages.map(({ role }) => role).join());
    }, { url: server.url, threadId, key });
    assert.deepEqual(roles, Array(2).fill('user,reasoning,assistant,tool,assistant'));
    const refusal = await page.evaluate(async ({ url }) => {
      const agent = newAgent({ url: `${url}/agui/clerk`, threadId: 'refused', key: 'hw_wrong' });
      return agent.runAgent().catch((error) => error.message);
    }, { url: server.url });
    assert.match(refusal, /401/);
  });
}

/** What a page can read of a response from another origin. */
const ask = (page, path, init) =>
  page.evaluate(async ([url, init]) => {
    const response = await fetch(url, init).catch((error) => ({ status: String(error), headers: new Headers(), text: () => '' }));
    const { status, headers } = response;
    return { status, id: headers.get('x-request-id'), challenge: headers.get('www-authenticate'), wait: headers.get('retry-after'), text: await response.text() };
  }, [server.url + path, init]);

test('the requests of CopilotKit and all new routes can be read from another origin', async () => {
  const page = await openPage('AG-UI 1.0');
  const threadId = crypto.randomUUID();
  const headers = { authorization: `Bearer ${key}`, accept: 'text/event-stream', 'x-copilotcloud-public-api-key': 'none', 'x-copilotkit-runtime-client-gql-version': '1.74.0' };
  const post = (body, more = {}) => ({ method: 'POST', headers: { ...headers, 'content-type': 'application/json', ...more }, body: JSON.stringify(body) });
  const input = { threadId, runId: 'r-1', messages: [{ id: 'm-1', role: 'user', content: 'weather' }], tools: [], context: [], state: {}, forwardedProps: {} };
  const chat = { id: crypto.randomUUID(), agent: 'clerk', trigger: 'submit-message', messages: [{ id: 'm-1', role: 'user', parts: [{ type: 'text', text: 'weather' }] }] };
  const expected = [
    ['/copilotkit/info', { headers }, 200],
    ['/copilotkit', post({ method: 'info' }), 200],
    ['/copilotkit/agent/clerk/connect', post(input), 200],
    ['/copilotkit/agent/clerk/run', post(input), 200],
    [`/copilotkit/agent/clerk/stop/${threadId}`, post({}), 200],
    ['/copilotkit/threads', { headers }, 404],
    ['/agui/nobody', post(input), 404],
    ['/agui/clerk', post({ threadId }), 400],
    [`/agui/clerk/stop/${threadId}`, post({}), 200],
    [`/agui/clerk/threads/${crypto.randomUUID()}/events`, { headers }, 404],
    [`/api/chat/${chat.id}/stream`, { headers }, 204],
    [`/api/chat/${chat.id}/messages`, { headers }, 200],
    ['/api/chat', post({}), 400],
    ['/api/chat', post(chat, { 'idempotency-key': crypto.randomUUID(), 'user-agent': 'ai-sdk' }), 200],
    [`/api/chat/${chat.id}/stream`, { headers: { ...headers, 'last-event-id': 'nonsense' } }, 400],
    [`/api/chat/${chat.id}/stop`, post({}), 200],
    ['/api/chat', { ...post(chat), method: 'DELETE' }, 405],
  ];
  for (const [path, init, status] of expected) {
    const seen = await ask(page, path, init);
    assert.deepEqual([path, seen.status], [path, status], seen.text);
    assert.match(seen.id ?? '', /^req_/, path);
  }
  const refused = await ask(page, '/copilotkit/info', {});
  assert.deepEqual([refused.status, refused.challenge], [401, 'Bearer'], 'the page can tell a missing key from a wrong one');
});

test('a page of an origin that the config does not have is refused', async () => {
  const page = await openPage('AG-UI 1.0', {}, 'localhost');
  assert.equal((await ask(page, '/copilotkit/info', { headers: { authorization: `Bearer ${key}` } })).status, 200, 'of this machine');
  const stranger = await openPage('AG-UI 1.0', {}, `other.${NAME}`);
  const { status } = await ask(stranger, '/copilotkit/info', { headers: { authorization: `Bearer ${key}` } });
  assert.match(status, /Failed to fetch/);
});
