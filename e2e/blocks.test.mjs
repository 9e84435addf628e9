// Content blocks over a WebSocket, read by the two reducers that clients have. The tests are in blocks/agree.mjs: Node 20
// has a WebSocket only behind a flag, so they run in a process of their own that has it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

test('both reducers agree with the server, from every cursor', async () => {
  const flags = typeof WebSocket === 'undefined' ? ['--experimental-websocket', '--no-warnings'] : [];
  // Otherwise the child would report to this runner in its binary format.
  const { NODE_TEST_CONTEXT, ...env } = process.env;
  const file = fileURLToPath(new URL('blocks/agree.mjs', import.meta.url));
  const child = spawn(process.execPath, [...flags, '--test', '--test-reporter=spec', file], { env });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
  const [code] = await once(child, 'close');
  assert.equal(code, 0, said);
  assert.match(said, /pass [1-9]/, said);
});
