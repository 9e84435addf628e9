// A client for the conformance suite: Headwater with an agent whose scripted model calls the tools of the scenario.
// The suite gives the URL of its server as the last argument, and the scenario in variables.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startServer } from '../../lib/server.mjs';
import { setTimeout } from 'node:timers/promises';

const url = process.argv.at(-1);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? 'initialize';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT || '{}');
/** Answers to questions of one scenario. */
const ROUNDS_MAX = 10;
const ENDS = ['completed', 'failed', 'cancelled'];
/** Authorizations of one scenario. */
const AUTHORIZATIONS_MAX = 3;
const usesOAuth = scenario.startsWith('auth/');
const SAMPLES = { string: 'text', boolean: true, integer: 1, number: 1, array: [] };

const CALLS = {
  tools_call: [['add_numbers', { a: 5, b: 3 }]],
  'elicitation-sep1034-client-defaults': [['test_client_elicitation_defaults', {}]],
  'sse-retry': [['test_reconnection', {}]],
  'sep-2322-client-request-state': ['echo_state', 'no_state', 'unrelated', 'no_result_type'].map((name) => [`test_mrtr_${name}`, {}]),
  'http-standard-headers': [['test_headers', {}], ['my-hyphenated-tool', {}]],
  'http-invalid-tool-headers': [['valid_tool', { region: 'us-west1' }]],
};

// The suite wants a `null` where the schema of its tool allows none. Headwater does not call a tool with arguments that its schema
// refuses, and a model leaves such an argument out.
const withoutNulls = (args) => Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null));
const calls = context.toolCalls?.map((call) => [call.name, withoutNulls(call.arguments)]) ?? CALLS[scenario] ?? (usesOAuth ? [['test-tool', {}]] : []);
const folder = await mkdtemp(join(tmpdir(), 'headwater-conformance-'));
await writeFile(join(folder, 'headwater.toml'), config());
await writeFile(join(folder, 'scenarios.toml'), script(calls));
const env = { HEADWATER_CREDENTIALS_KEY: '0123456789abcdef'.repeat(4), CLIENT_SECRET: context.client_secret ?? 'not used here' };
const server = await startServer({ config: join(folder, 'headwater.toml'), env });
try {
  let task = await run();
  for (let round = 0; usesOAuth && hasFailed(task) && round < AUTHORIZATIONS_MAX; round += 1) {
    if (!(await authorize())) break;
    task = await run();
  }
  console.log(JSON.stringify(task));
} finally {
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}

function config() {
  return `
    [agents.client]
    model = "script/client"
    tools = ["mcp:suite"]
    [mcp.suite]
    url = ${JSON.stringify(url)}
    approval = "never"
    ${usesOAuth ? `auth = ${auth()}` : ''}
    [providers.script]
    kind = "scripted"
    file = "scenarios.toml"
  `;
}

function auth() {
  const id = scenario === 'auth/basic-cimd' ? 'https://conformance-test.local/client-metadata.json' : context.client_id;
  const kind = scenario.startsWith('auth/client-credentials') ? 'client_credentials' : 'oauth';
  const known = id ? `, client_id = ${JSON.stringify(id)}` : '';
  return `{ kind = "${kind}"${known}${context.client_secret ? ', client_secret = "env:CLIENT_SECRET"' : ''} }`;
}

async function run() {
  let task = await server.post('/v1/tasks', { model: 'client', input: 'go', wait: true });
  for (let round = 0; task.status === 'paused' && round < ROUNDS_MAX; round += 1) task = await answer(task);
  return task;
}

function hasFailed(task) {
  return task.output.some(({ type, error }) => type === 'tool_result' && error);
}

/** The user opens the URL and consents; the browser comes back. Says whether that has authorized anything. */
async function authorize() {
  const response = await fetch(`${server.url}/v1/mcp/suite/authorize`, { method: 'POST' });
  const { authorization_url, detail } = await response.json();
  if (!authorization_url) console.log(detail);
  if (!authorization_url) return false;
  const consent = await fetch(authorization_url, { redirect: 'manual' });
  const page = await fetch(consent.headers.get('location'));
  console.log(await page.text());
  return page.ok;
}

/** One turn for each call, and a last one. */
function script(calls) {
  const turn = (step) => `[[scenario.turn]]\nsteps = [${step}]\n`;
  const text = (words) => JSON.stringify(JSON.stringify(words));
  const steps = calls.map(([name, args]) => `{ call = ${JSON.stringify(`suite__${name}`)}, arguments = ${text(args)} }`);
  return `[[scenario]]\n${[...steps, '{ text = ["Done."] }'].map(turn).join('')}`;
}

/** Fills in the forms of the server as a person would who changes nothing, and waits for the run. */
async function answer(task) {
  const { data } = await server.get('/v1/approvals');
  for (const { key, question } of data.filter(({ key }) => task.pending.some((pending) => pending.key === key))) {
    const fields = Object.entries(question?.schema?.properties ?? {});
    const args = Object.fromEntries(fields.map(([name, field]) => [name, field.default ?? SAMPLES[field.type]]));
    await server.post(`/v1/tasks/${task.task_id}/approvals/${key}`, { decision: 'approve', arguments: args });
  }
  const answered = new Set(task.pending.map(({ key }) => key));
  const isOpen = ({ status, pending }) => !ENDS.includes(status) && !(status === 'paused' && pending.some(({ key }) => !answered.has(key)));
  let next = task;
  while (isOpen(next)) {
    await setTimeout(50);
    next = await server.get(`/v1/tasks/${task.task_id}`);
  }
  return next;
}
