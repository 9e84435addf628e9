// Blocks that are configuration of other programs, checked by these: a proxy is started and has to pass everything on.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { freePort } from '../lib/free-port.mjs';

const run = promisify(execFile);
const NAME = 'agents.example';
const READY_MS_MAX = 10_000;
// e2e/run unpacks the proxies here without installing them.
const UNPACKED = new URL('../.proxies/usr/', import.meta.url).pathname;

const CHECKS = { nginx: checkNginx, caddy: checkCaddy, systemd: checkUnit };

/** Checks a block with its program. A program that is not there is said, and nothing is checked. */
export async function checkBlock(name, body, folder) {
  const program = findProgram({ systemd: 'systemd-analyze' }[name] ?? name);
  if (!program) return void console.error(`SKIPPED docs/operating.md: ${name} is not installed`);
  const dir = await mkdtemp(join(tmpdir(), `headwater-${name}-`));
  try {
    await CHECKS[name](program, folder.here(body), { dir, folder });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

function findProgram(name) {
  const folders = [join(UNPACKED, 'sbin'), join(UNPACKED, 'bin'), ...process.env.PATH.split(':'), '/usr/sbin'];
  return folders.map((folder) => join(folder, name)).find((file) => existsSync(file));
}

async function checkUnit(program, body, { dir }) {
  const file = join(dir, 'headwater.service');
  await writeFile(file, body.replace('/usr/local/bin/headwater', process.execPath));
  // It exits with 0 also where it ignored a line.
  const { stderr } = await run(program, ['verify', file]);
  assert.ok(!stderr.includes(file), stderr);
}

async function checkNginx(program, body, { dir, folder }) {
  const port = await freePort();
  const { key, certificate } = await makeCertificate(dir);
  const site = replaceOnce(body, 'listen 443 ssl', `listen 127.0.0.1:${port} ssl`)
    .replace(/ssl_certificate .*;/, `ssl_certificate ${certificate};`)
    .replace(/ssl_certificate_key .*;/, `ssl_certificate_key ${key};`);
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${dir}/${name};`);
  const file = join(dir, 'nginx.conf');
  await writeFile(file, `pid ${dir}/pid;\nevents {}\nhttp {\naccess_log off;\n${temporary.join('\n')}\n${site}}\n`);
  const args = ['-e', 'stderr', '-p', dir, '-c', file];
  await run(program, [...args, '-t']);
  await checkProxy(spawn(program, [...args, '-g', 'daemon off;'], { stdio: 'ignore' }), port, folder);
}

async function checkCaddy(program, body, { dir, folder }) {
  const port = await freePort();
  const { key, certificate } = await makeCertificate(dir);
  const site = replaceOnce(body, `${NAME} {`, `https://${NAME}:${port} {\n    tls ${certificate} ${key}`);
  const file = join(dir, 'Caddyfile');
  await writeFile(file, `{\n    admin off\n    auto_https disable_redirects\n}\n${site}`);
  const env = { ...process.env, HOME: dir, XDG_DATA_HOME: dir, XDG_CONFIG_HOME: dir };
  const args = ['--config', file, '--adapter', 'caddyfile'];
  await run(program, ['validate', ...args], { env });
  await checkProxy(spawn(program, ['run', ...args], { stdio: 'ignore', env }), port, folder);
}

function replaceOnce(text, from, to) {
  assert.equal(text.split(from).length, 2, `\`${from}\` stands there once`);
  return text.replace(from, to);
}

async function makeCertificate(dir) {
  const [key, certificate] = [join(dir, 'key.pem'), join(dir, 'certificate.pem')];
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', key, '-out', certificate];
  await run('openssl', ['req', '-x509', ...made, '-days', '2', '-subj', `/CN=${NAME}`, '-addext', `subjectAltName=DNS:${NAME}`]);
  return { key, certificate };
}

/** A proxy that runs: events come one by one, bodies may be large, sockets open, and what is for the operator stays inside. */
async function checkProxy(child, port, folder) {
  const key = (await folder.run('sh', 'echo $KEY')).trim();
  const call = (method, path, { headers = {}, body } = {}) => {
    const length = body ? { 'content-length': Buffer.byteLength(body) } : {};
    const all = { host: NAME, authorization: `Bearer ${key}`, ...headers, ...length };
    const target = { host: '127.0.0.1', port, servername: NAME, rejectUnauthorized: false, agent: false };
    return request({ ...target, method, path, headers: all }).end(body);
  };
  const answer = async (...args) => (await once(call(...args), 'response'))[0];
  const status = async (...args) => {
    const response = await answer(...args);
    response.resume();
    return response.statusCode;
  };
  try {
    await ready(() => status('GET', '/healthz'));
    assert.equal(await status('GET', '/metrics'), 404);

    const json = { 'content-type': 'application/json' };
    const story = await answer('POST', '/v1/tasks', { headers: json, body: '{"model":"helper","input":"story 40","stream":true}' });
    assert.equal(story.statusCode, 200);
    let reads = 0;
    for await (const chunk of story) reads += chunk.length > 0;
    assert.ok(reads > 20, `40 deltas, 20 ms apart, came in ${reads} reads`);

    const upload = { headers: { 'content-type': 'text/plain' }, body: 'x'.repeat(2 * 1024 * 1024) };
    assert.equal(await status('POST', '/api/v1/agent/attachments?name=x.txt', upload), 201);

    const socketKey = randomBytes(16).toString('base64');
    const upgrade = { connection: 'upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': socketKey };
    const asked = call('GET', '/ws', { headers: upgrade });
    const [{ statusCode }] = await Promise.race([once(asked, 'upgrade'), once(asked, 'response')]);
    assert.equal(statusCode, 101);
    asked.destroy();
  } finally {
    child.kill('SIGTERM');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
}

async function ready(status) {
  const end = Date.now() + READY_MS_MAX;
  for (;;) {
    const found = await status().catch((error) => error);
    if (found === 200) return;
    assert.ok(Date.now() < end, `the proxy does not get ready: ${found}`);
    await new Promise((later) => setTimeout(later, 50));
  }
}
