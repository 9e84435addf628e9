// The OpenAPI document lists every event and route.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { pageModule } from './lib/page-module.mjs';
import { runHeadwater, startServer } from './lib/server.mjs';

const read = (path) => readFileSync(new URL(`../${path}`, import.meta.url), 'utf8');
const document = JSON.parse(read('crates/server/openapi.json'));

test('the model, the document and the page know the same events', async () => {
  const model = [...read('crates/model/src/event.rs').matchAll(/rename = "((?:task|thread)\.[a-z_.]+)"/g)].map(([, type]) => type);
  const { EVENT_TYPES } = await pageModule();
  assert.ok(model.length > 40);
  assert.deepEqual(Object.keys(document.components.schemas.Event.discriminator.mapping).sort(), model.sort());
  assert.deepEqual([...EVENT_TYPES].sort(), model);
});

test('the server and the command line give the document', async () => {
  const server = await startServer();
  try {
    assert.deepEqual(await server.get('/openapi.json'), document);
  } finally {
    await server.stop();
  }
  assert.deepEqual(JSON.parse((await runHeadwater(['openapi'])).stdout), document);
});
