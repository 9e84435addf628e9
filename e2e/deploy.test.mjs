// deploy/: what can be checked without an engine for containers.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { runHeadwater } from './lib/server.mjs';

const file = (name) => new URL(`../deploy/${name}`, import.meta.url).pathname;
const read = (name) => readFileSync(file(name), 'utf8');
const env = { DATABASE_URL: 'postgres://headwater:secret-password@postgres:5432/headwater', OPENAI_API_KEY: 'unused-key-for-a-check' };

async function checkConfig(path) {
  const { code, stdout, stderr } = await runHeadwater(['check-config', '--config', path], { env });
  assert.equal(code, 0, stdout + stderr);
  assert.doesNotMatch(stdout + stderr, /secret-password/);
}

test('the configuration of the compose file is valid', () => checkConfig(file('headwater.toml')));

test('the configuration in the manifest is valid, and the probes ask for what the server has', async () => {
  const manifest = read('kubernetes/headwater.yaml');
  const lines = manifest.split('\n');
  const begin = lines.findIndex((line) => line.includes('headwater.toml: |')) + 1;
  const length = lines.slice(begin).findIndex((line) => line === '---');
  const folder = mkdtempSync(join(tmpdir(), 'headwater-deploy-'));
  try {
    writeFileSync(join(folder, 'headwater.toml'), lines.slice(begin, begin + length).map((line) => line.slice(4)).join('\n'));
    await checkConfig(join(folder, 'headwater.toml'));
  } finally {
    rmSync(folder, { recursive: true });
  }
  for (const path of manifest.matchAll(/path: (\/\w+), port/g)) assert.match(path[1], /^\/(healthz|readyz)$/);
  assert.match(manifest, /kind: PodDisruptionBudget/);
});

test('the manifests are YAML with the fields that every object has', () => {
  const program = 'import json, sys, yaml; print(json.dumps([d for f in sys.argv[1:] for d in yaml.safe_load_all(open(f))]))';
  const python = new URL('.venv/bin/python', import.meta.url).pathname;
  const [compose, ...objects] = JSON.parse(
    execFileSync(python, ['-c', program, file('compose.yaml'), file('kubernetes/headwater.yaml')], { encoding: 'utf8' }),
  );
  assert.deepEqual(Object.keys(compose.services).sort(), ['balancer', 'files-owner', 'node-1', 'node-2', 'postgres']);
  for (const name of ['node-1', 'node-2']) assert.ok(compose.services[name].environment.DATABASE_URL.startsWith('postgres://'));
  assert.deepEqual(objects.map(({ kind }) => kind), ['ConfigMap', 'Deployment', 'Service', 'PodDisruptionBudget']);
  for (const object of objects) assert.ok(object.apiVersion && object.metadata.name === 'headwater');
  const [pod] = objects.filter(({ kind }) => kind === 'Deployment').map(({ spec }) => spec.template.spec);
  assert.equal(pod.securityContext.runAsNonRoot, true);
  assert.ok(pod.containers[0].readinessProbe && pod.containers[0].livenessProbe);
});

test('the image runs what the build makes, as an unprivileged user', () => {
  const dockerfile = read('Dockerfile');
  assert.match(dockerfile, /cargo build --locked --profile dist --bin headwater/);
  assert.match(dockerfile, /COPY --from=build \/src\/target\/dist\/headwater /);
  assert.match(dockerfile, /^USER nonroot$/m);
  const toolchain = /channel = "([\d.]+)"/.exec(readFileSync(new URL('../rust-toolchain.toml', import.meta.url), 'utf8'))[1];
  assert.ok(dockerfile.includes(`FROM rust:${toolchain.split('.').slice(0, 2).join('.')}-`), toolchain);
});

test('the unit is one that systemd accepts', (t) => {
  try {
    execFileSync('systemd-analyze', ['--version'], { stdio: 'ignore' });
  } catch {
    return t.skip('needs systemd-analyze');
  }
  const folder = mkdtempSync(join(tmpdir(), 'headwater-unit-'));
  try {
    // It checks that the program exists, which it does where the unit is installed.
    const unit = read('headwater.service').replace('/usr/local/bin/headwater', process.execPath);
    writeFileSync(join(folder, 'headwater.service'), unit);
    execFileSync('systemd-analyze', ['verify', join(folder, 'headwater.service')], { stdio: 'pipe' });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
