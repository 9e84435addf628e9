// Where files can be kept, each as its own server that believes nobody.
//
// `start()` gives the variables by which Headwater gets in, where addresses begin, what is kept, and `stop`. `altered` is
// what somebody might change in an address that was signed; `expired` is what one gets whose time is up.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const BUCKET = 'e2e-files';
const path = (name) => new URL(name, import.meta.url).pathname;

/** Starts a program that prints lines. Gives its lines, its standard input, and how to end it. */
function start(program, args, env = {}) {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...env } });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const stop = async (signal) => {
    const exit = once(child, 'exit');
    child.stdin.end();
    if (signal) child.kill(signal);
    await exit;
  };
  const line = async () => {
    const { value, done } = await lines.next();
    assert.ok(!done, `${args[0]} has ended`);
    return value;
  };
  return { line, say: (words) => child.stdin.write(words), stop };
}

/** One of the servers in Python. */
async function python(script, env) {
  const server = start(path('../.venv/bin/python'), [path(script)]);
  const ready = JSON.parse(await server.line());
  const url = `http://127.0.0.1:${ready.port}`;
  return {
    env: env(url, ready),
    addresses: `${url}/${BUCKET}`,
    kept: async () => {
      server.say('\n');
      return JSON.parse(await server.line());
    },
    stop: () => server.stop(),
  };
}

/** Another character in front. */
const flip = (text) => text.replace(/^./, (c) => (c === '0' ? '1' : '0'));
const change = (name, value) => (url) => url.searchParams.set(name, value(url.searchParams.get(name)));
const remove = (name) => (url) => url.searchParams.delete(name);

const s3 = {
  name: 'S3',
  url: `s3://${BUCKET}`,
  start: () =>
    python('s3.py', (url) => ({
      AWS_ENDPOINT_URL: url,
      AWS_ACCESS_KEY_ID: 'e2e-key',
      AWS_SECRET_ACCESS_KEY: 'e2e-secret',
      AWS_REGION: 'us-east-1',
    })),
  altered: [
    change('X-Amz-Expires', () => '86400'),
    change('X-Amz-Signature', flip),
    change('response-content-type', () => 'text/html'),
    remove('X-Amz-Signature'),
  ],
  expired: /^AccessDenied: Request has expired$/,
};

const google = {
  name: 'Google',
  url: `gs://${BUCKET}`,
  start: () =>
    python('gcs.py', (gcs_base_url, { account }) => ({
      GOOGLE_SERVICE_ACCOUNT_KEY: JSON.stringify({ ...JSON.parse(account), gcs_base_url }),
    })),
  altered: [
    change('X-Goog-Expires', () => '86400'),
    change('X-Goog-Signature', flip),
    change('response-content-type', () => 'text/html'),
    remove('X-Goog-Signature'),
  ],
  expired: /^ExpiredToken: Request has expired$/,
};

const AZURITE = path('../node_modules/azurite/dist/src/blob/main.js');
const ACCOUNT = 'e2eaccount';
const AZURE_VERSION = '2021-10-04';

/** What lets somebody do anything with containers, for an hour. */
function azureToken(key) {
  const until = new Date(Date.now() + 3_600_000).toISOString().replace(/\.\d+/, '');
  const said = { sp: 'rwdlac', ss: 'b', srt: 'sco', se: until, spr: 'https,http', sv: AZURE_VERSION };
  const signed = [ACCOUNT, said.sp, said.ss, said.srt, '', said.se, '', said.spr, said.sv, '', ''].join('\n');
  const sig = createHmac('sha256', Buffer.from(key, 'base64')).update(signed).digest('base64');
  return new URLSearchParams({ ...said, sig });
}

async function azurite() {
  const key = randomBytes(32).toString('base64');
  const args = [AZURITE, '--blobPort', '0', '--inMemoryPersistence', '--silent', '--disableTelemetry'];
  const server = start(process.execPath, args, { AZURITE_ACCOUNTS: `${ACCOUNT}:${key}` });
  let found;
  while (!found) found = /listens on (http:\S+)/.exec(await server.line());
  const endpoint = `${found[1]}/${ACCOUNT}`;
  const container = (more) => `${endpoint}/${BUCKET}?restype=container&${azureToken(key)}${more}`;
  assert.equal((await fetch(container(''), { method: 'PUT' })).status, 201);
  return {
    env: { AZURE_STORAGE_ACCOUNT_NAME: ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY: key, AZURE_STORAGE_ENDPOINT: endpoint },
    addresses: `${endpoint}/${BUCKET}`,
    // Blocks that became no file are Azure's to forget, after a week: there is no word for giving them up.
    kept: async () => {
      const list = await (await fetch(container('&comp=list'))).text();
      return { objects: [...list.matchAll(/<Name>([^<]+)<\/Name>/g)].map(([, name]) => name), uploads: [] };
    },
    stop: () => server.stop('SIGTERM'),
  };
}

const azure = {
  name: 'Azure',
  url: `az://${BUCKET}`,
  start: azurite,
  altered: [
    change('se', () => new Date(Date.now() + 86_400_000).toISOString().replace(/\.\d+/, '')),
    change('sp', () => 'rwd'),
    change('sig', flip),
    change('rsct', () => 'text/html'),
    remove('sig'),
  ],
  // To it, that is one of the ways in which an address does not let one in.
  expired: /<Code>AuthorizationFailure</,
};

export const PLACES = [s3, google, azure];
export { BUCKET };
