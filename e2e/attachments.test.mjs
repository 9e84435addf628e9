// Files in a bucket: a real object store keeps them and signs URLs, or checks our signatures.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { BUCKET, PLACES } from './attachments/places.mjs';
import { blobOf, dataUrl, picture } from './files/made.mjs';
import { startServer } from './lib/server.mjs';

const ROUTE = '/api/v1/agent/attachments';
const EXPIRED_MS_MAX = 15_000;
const UPLOAD_BYTES_MAX = 12_000_000;
const config = (url) => `
[agents.demo]
model = "mine/demo"
[providers.mine]
kind = "scripted"
file = "scenarios.toml"
[files]
url = "${url}/some/prefix"
signed_url_seconds = 2
upload_bytes_max = ${UPLOAD_BYTES_MAX}
user_bytes_max = 20_000_000
`;

for (const { name, url: place, start, altered, expired } of PLACES) describe(name, () => {
  let bucket;
  let folder;
  let server;
  before(async () => {
    bucket = await start();
    folder = await mkdtemp(join(tmpdir(), 'headwater-files-'));
    await writeFile(join(folder, 'headwater.toml'), config(place));
    await writeFile(join(folder, 'scenarios.toml'), '[[scenario]]\nmodel = "demo"\n[[scenario.turn]]\nsteps = [{ text = "hi" }]\n');
    server = await startServer({ config: join(folder, 'headwater.toml'), env: { ...bucket.env, NO_PROXY: '127.0.0.1' } });
  });
  after(async () => {
    await server?.stop();
    await bucket?.stop();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  const send = async (bytes, query = '') => {
    const response = await fetch(`${server.url}${ROUTE}${query}`, { method: 'POST', body: bytes });
    return { status: response.status, ...(await response.json()) };
  };
  /** Sends a byte too much, without a word on how much will come, and what it is told then. */
  const endless = async () => {
    const asked = request(`${server.url}${ROUTE}`, { method: 'POST' });
    asked.write(new Uint8Array(UPLOAD_BYTES_MAX + 1));
    const [response] = await once(asked, 'response');
    const { code } = await json(response);
    asked.destroy();
    return [response.statusCode, code];
  };
  const sign = ({ bucket, path }) => server.get(`${ROUTE}/signed-url?${new URLSearchParams({ bucket, path })}`);

  test('a file is stored in the bucket and downloaded by a URL that the bucket signed', async () => {
    // One in a single request, one as a multipart upload.
    for (const size of [1_000, 11_000_000]) {
      const bytes = new Uint8Array(size).map((_, n) => n % 251);
      const file = await send(bytes, '?name=b%22ytes.bin');
      assert.deepEqual(
        [file.status, file.bucket, file.contentType, file.size],
        [201, BUCKET, 'application/octet-stream', size],
      );
      const { url } = await sign(file);
      assert.ok(url.startsWith(`${bucket.addresses}/some/prefix/${file.path}?`), url);
      const got = await fetch(url);
      assert.equal(got.status, 200);
      assert.deepEqual(Buffer.from(await got.arrayBuffer()), Buffer.from(bytes));
      assert.equal(got.headers.get('content-type'), 'application/octet-stream');
      assert.match(got.headers.get('content-disposition'), /^attachment; filename="b_ytes.bin"/);
    }
  });

  test('a changed or expired URL is refused', async () => {
    const [file, other] = [await send('mine'), await send('other')];
    const { url } = await sign(file);
    assert.equal(await (await fetch(url)).text(), 'mine');
    const elsewhere = (copy) => (copy.pathname = copy.pathname.replace(file.path, other.path));
    for (const change of [elsewhere, ...altered]) {
      const copy = new URL(url);
      change(copy);
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
    assert.equal(got.status, 403);
    assert.match(await got.text(), expired);
  });

  test('only own files in this bucket are signed', async () => {
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

  test('an image of a conversation is stored in the bucket, read from there, and deleted with the conversation', async () => {
    const sent = picture(1_400, name);
    const then = await bucket.kept();
    const input = [{ type: 'image_url', image_url: { url: dataUrl('image/png', sent) } }];
    const { status, thread_id } = await server.post('/v1/tasks', { model: 'demo', input, wait: true });
    assert.equal(status, 'completed');
    const { objects } = await bucket.kept();
    const [kept, ...others] = objects.filter((object) => !then.objects.includes(object));
    assert.match(kept, /^some\/prefix\/blobs\/local\/\w+/);
    assert.deepEqual(others, []);
    const address = server.url + blobOf(sent);
    assert.deepEqual(Buffer.from(await (await fetch(address)).arrayBuffer()), sent);
    const part = await fetch(address, { headers: { range: 'bytes=1000-1999' } });
    assert.equal(part.status, 206);
    assert.deepEqual(Buffer.from(await part.arrayBuffer()), sent.subarray(1_000, 2_000));
    assert.equal((await fetch(`${server.url}/v1/threads/${thread_id}`, { method: 'DELETE' })).status, 204);
    assert.equal((await fetch(address)).status, 404);
    assert.deepEqual(await bucket.kept(), then);
  });

  test('an oversized upload leaves nothing in the bucket', async () => {
    const here = await send('here');
    const then = await bucket.kept();
    // The whole body is in flight when the response comes, which must not be lost.
    for (let n = 0; n < 20; n += 1) {
      const { status, code } = await send(new Uint8Array(2 * UPLOAD_BYTES_MAX));
      assert.deepEqual([status, code], [413, 'body_too_large'], `upload ${n}`);
    }
    const refused = await send(new Uint8Array(11_000_000));
    assert.deepEqual([refused.status, refused.code], [413, 'quota_exceeded']);
    assert.deepEqual(await endless(), [413, 'body_too_large']);
    assert.deepEqual(await bucket.kept(), then);
    assert.deepEqual(then.uploads, []);
    await server.killAndRestart();
    assert.equal(await (await fetch((await sign(here)).url)).text(), 'here');
  });

  test('a missing bucket gives the same error as an unreachable one', async () => {
    const elsewhere = join(folder, 'elsewhere.toml');
    await writeFile(elsewhere, config(place.replace(BUCKET, 'nowhere-files')));
    const other = await startServer({ config: elsewhere, env: { ...bucket.env, NO_PROXY: '127.0.0.1' } });
    try {
      const input = [{ type: 'image_url', image_url: { url: dataUrl('image/png', picture(20, name)) } }];
      for (const [path, body] of [
        [ROUTE, 'in one step'],
        [ROUTE, new Uint8Array(11_000_000)],
        ['/v1/tasks', JSON.stringify({ model: 'demo', input })],
      ]) {
        const headers = { 'content-type': 'application/json' };
        const response = await fetch(other.url + path, { method: 'POST', headers, body });
        assert.deepEqual([response.status, (await response.json()).code], [503, 'files_unavailable'], path);
      }
    } finally {
      await other.stop();
    }
  });

  test('the rows of the server match the objects in the bucket', async () => {
    const { objects } = await bucket.kept();
    const { code, stdout, stderr } = await server.verify();
    assert.equal(code, 0, stdout + stderr);
    assert.ok(objects.length > 0);
    assert.match(stdout, new RegExp(`^${objects.length} files$`, 'm'));
  });
});
