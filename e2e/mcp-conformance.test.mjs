// The official conformance suite of the Model Context Protocol for clients, in both generations of the protocol. The quick form
// runs what is about the transport; the full form everything that a revision requires.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { EXPECTED_FAILURES } from './mcp/conformance/expected-failures.mjs';

const here = (path) => new URL(path, import.meta.url).pathname;
const SUITE = ['--import', here('mcp/conformance/node20.mjs'), here('node_modules/@modelcontextprotocol/conformance/dist/index.js')];
const QUICK = {
  '2025-11-25': ['initialize', 'tools_call', 'elicitation-sep1034-client-defaults', 'sse-retry', 'auth/metadata-var3', 'auth/scope-step-up'],
  '2026-07-28': ['tools_call', 'request-metadata', 'sep-2322-client-request-state', 'http-standard-headers', 'http-custom-headers', 'http-invalid-tool-headers', 'json-schema-ref-no-deref', 'auth/metadata-default', 'auth/iss-wrong-issuer'],
};

async function run(args) {
  const child = spawn('node', [...SUITE, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (chunk) => (said += chunk));
  const [code] = await once(child, 'close');
  return { code, said };
}

/** The client scenarios that a revision requires. */
async function required(revision) {
  const { said } = await run(['list', '--client', '--requirements', revision]);
  const [, section] = said.split('Client scenarios (test against a client):');
  const names = section.split('\n\n')[0].matchAll(/^\s+- (\S+)/gm);
  return [...names].map(([, name]) => name);
}

async function check(context, revision) {
  const names = process.env.HEADWATER_TEST_FULL ? await required(revision) : QUICK[revision];
  for (const name of names) {
    const reason = EXPECTED_FAILURES[revision][name];
    await context.test(`${name}${reason ? ` fails: ${reason}` : ''}`, async () => {
      const folder = await mkdtemp(join(tmpdir(), 'headwater-suite-'));
      const command = `node ${here('mcp/conformance/client.mjs')}`;
      const { code, said } = await run(['client', '--command', command, '--scenario', name, '--spec-version', revision, '-o', folder]);
      await rm(folder, { recursive: true, force: true });
      if (reason) assert.notEqual(code, 0, 'it passes: take it from the list of expected failures');
      else assert.equal(code, 0, said.slice(-6000));
    });
  }
}

test('the conformance suite of 2025-11-25 passes', (context) => check(context, '2025-11-25'));
test('the conformance suite of 2026-07-28 passes', (context) => check(context, '2026-07-28'));
