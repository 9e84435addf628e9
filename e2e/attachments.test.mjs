// Files in a bucket: a real S3 server keeps them and signs for them; the addresses are its own.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { after, before } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { startServer } from './lib/server.mjs';

const ROUTE = '/api/v1/agent/attachments';
const EXPIRED_MS_MAX = 15_000;
const CONFIG = `
[agents.demo]
model = "mine/demo"
[providers.mine]
kind = "scripted"
file = "scenarios.toml"
[files]
url = "s3://e2e-files/some/prefix"
signed_url_seconds = 2
user_bytes_max = 20_000_000
`;
const PYTHON = new URL('.venv/bin/python', import.meta.url).pathname;

let bucket;
let lines;
let folder;
let server;
before(async () => {
  bucket = spawn(PYTHON, [new URL('attachments/s3.py', import.meta.url).pathname], { stdio: ['pipe', 'pipe', 'inherit'] });
  lines = createInterface({ input: bucket.stdout })[Symbol.asyncIterator]();
  const { value: port } = await lines.next();
  Object.assign(process.env, {
    AWS_ENDPOINT_URL: `http://127.0.0.1:${port}`,
    AWS_ACCESS_KEY_ID: 'e2e-key',
    AWS_SECRET_ACCESS_KEY: 'e2e-secret',
    AWS_REGION: 'us-east-1',
    NO_PROXY: '127.0.0.1',
  });
  folder = await mkdtemp(join(tmpdir(), 'headwater-files-'));
  await writeFile(join(folder, 'headwater.toml'), CONFIG);
  await writeFile(join(folder, 'scenarios.toml'), '[[scenario]]\nmodel = "demo"\n[[scenario.turn]]\nsteps = [{ text = "hi" }]\n');
  server = await startServer({ config: join(folder, 'headwater.toml') });
});
after(async () => {
  await server?.stop();
  if (bucket) {
    const exit = once(bucket, 'exit');
    bucket.stdin.end();
    await exit;
  }
  if (folder) await rm(folder, { recursive: true, force: true });
});

const send = async (bytes, query = '') => {
  const response = await fetch(`${server.url}${ROUTE}${query}`, { method: 'POST', body: bytes });
  return { status: response.status, ...(await response.json()) };
};
/** What the bucket keeps. */
const kept = async () => {
  bucket.stdin.write('\n');
  return JSON.parse((await lines.next()).value);
};
const sign = ({ bucket, path }) => server.get(`${ROUTE}/signed-url?${new URLSearchParams({ bucket, path })}`);

test('a file goes into the bucket and comes out by an address that the bucket signed', async () => {
  // One in a single step, one in parts.
  for (const size of [1_000, 11_000_000]) {
    const bytes = new Uint8Array(size).map((_, n) => n % 251);
    const file = await send(bytes, '?name=b%22ytes.bin');
    assert.deepEqual(
      [file.status, file.bucket, file.contentType, file.size],
      [201, 'e2e-files', 'application/octet-stream', size],
    );
    const { url } = await sign(file);
    assert.ok(url.startsWith(`${process.env.AWS_ENDPOINT_URL}/e2e-files/some/prefix/${file.path}?`), url);
    const got = await fetch(url);
    assert.equal(got.status, 200);
    assert.deepEqual(Buffer.from(await got.arrayBuffer()), Buffer.from(bytes));
    assert.equal(got.headers.get('content-type'), 'application/octet-stream');
    assert.match(got.headers.get('content-disposition'), /^attachment; filename="b_ytes.bin"/);
  }
});

test('an address that was altered opens nothing, and neither does one whose time is up', async () => {
  const [file, other] = [await send('mine'), await send('other')];
  const { url } = await sign(file);
  const address = new URL(url);
  const altered = (change) => {
    const copy = new URL(url);
    change(copy);
    return copy;
  };
  const signature = address.searchParams.get('X-Amz-Signature');
  for (const copy of [
    altered((copy) => (copy.pathname = copy.pathname.replace(file.path, other.path))),
    altered((copy) => copy.searchParams.set('X-Amz-Expires', '86400')),
    altered((copy) => copy.searchParams.set('X-Amz-Signature', signature.replace(/^./, (c) => (c === '0' ? '1' : '0')))),
    altered((copy) => copy.searchParams.set('response-content-type', 'text/html')),
    altered((copy) => copy.searchParams.delete('X-Amz-Signature')),
  ]) {
    assert.equal((await fetch(copy)).status, 403, copy.href);
  }
  assert.equal((await fetch(url, { method: 'DELETE' })).status, 403, 'it is for reading');
  assert.equal(await (await fetch((await sign(file)).url)).text(), 'mine');
  const until = Date.now() + EXPIRED_MS_MAX;
  let got = await fetch(url);
  while (got.status === 200 && Date.now() < until) {
    await setTimeout(100);
    got = await fetch(url);
  }
  assert.deepEqual([got.status, await got.text()], [403, 'AccessDenied: Request has expired']);
});

test('only ones own files are signed for, and only in this bucket', async () => {
  const file = await send('mine');
  const code = async (query) => {
    const response = await fetch(`${server.url}${ROUTE}/signed-url?${new URLSearchParams(query)}`);
    return [response.status, (await response.json()).code];
  };
  const { bucket, path } = file;
  assert.deepEqual(await code({ bucket: 'headwater', path }), [404, 'bucket_not_found']);
  assert.deepEqual(await code({ bucket, path: path.replace('/local/', '/local2/') }), [404, 'not_found']);
  assert.deepEqual(await code({ bucket, path: `some/prefix/${path}` }), [404, 'not_found']);
  assert.deepEqual(await code({ bucket, path: path.replace('/local/', '/local/../local2/') }), [400, 'invalid_path']);
});

test('what is too much leaves nothing in the bucket', async () => {
  const before = await send('here');
  const then = await kept();
  const refused = await send(new Uint8Array(20_000_000));
  assert.deepEqual([refused.status, refused.code], [413, 'quota_exceeded']);
  const endless = await send(new Uint8Array(30_000_000));
  assert.deepEqual([endless.status, endless.code], [413, 'body_too_large']);
  assert.deepEqual(await kept(), then);
  assert.deepEqual(then.uploads, []);
  await server.killAndRestart();
  assert.equal(await (await fetch((await sign(before)).url)).text(), 'here');
});
