// A server of one's own: the real binary, a port that the system chose, a data folder that goes away with it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { NODES, createDatabase, startBalancer } from './cluster.mjs';
import { open, take } from './sse.mjs';

const READY_MS_MAX = 20_000;
const STOP_MS_MAX = 15_000;
/** Those that run. The runner ends a file that takes too long by a signal, and they would outlive it. */
const children = new Set();
process.on('SIGTERM', () => {
  for (const child of children) child.kill('SIGKILL');
  process.exit(1);
});
const HEADWATER = process.env.HEADWATER_BIN ?? new URL('../../target/release/headwater', import.meta.url).pathname;

/**
 * Starts `headwater serve`, the demo or a `config`, with more variables in `env`. Gives its `url`, calls to it,
 * `killAndRestart` and `stop`. With HEADWATER_E2E_NODES it is a cluster of that many nodes on one database, behind a load
 * balancer.
 */
export async function startServer({ config, env } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'headwater-e2e-'));
  const database = await createDatabase();
  const place = database ? ['--database-url', database.url] : ['--data-dir', join(folder, 'data')];
  let nodes = await serveAll(folder, config, env, database);
  const balancer = nodes.length > 1 ? await startBalancer(() => nodes.map(({ url }) => url)) : undefined;
  const address = () => balancer?.url ?? nodes[0].url;
  const stopAll = (signal) => Promise.all(nodes.map(({ child }) => ended(child, signal)));
  const call = (path, init) => fetch(address() + path, init).then(answer);
  return {
    get url() {
      return address();
    },
    get: (path) => call(path),
    post: (path, body) =>
      call(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    /** Makes a key for a user. */
    key: async (user) => {
      const { code, stdout, stderr } = await runHeadwater(['keys', 'create', '--user', user, ...place]);
      if (code !== 0) throw new Error(`no key: ${stderr}`);
      return /hw_\S+/.exec(stdout)[0];
    },
    /** Stops, has the data looked through, and starts again. Gives what was found. */
    verify: async () => {
      await stopAll('SIGTERM');
      const found = await runHeadwater(['verify', ...place, ...dataDirOf(folder, database), ...(config ? ['--config', config] : [])], { env });
      nodes = await serveAll(folder, config, env, database);
      return found;
    },
    killAndRestart: async () => {
      await stopAll('SIGKILL');
      nodes = await serveAll(folder, config, env, database);
    },
    stop: async () => {
      await stopAll('SIGTERM');
      await balancer?.stop();
      await database?.drop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The files of a cluster without a config are in the folder of its first node, which the others share. */
const dataDirOf = (folder, database) => (database ? ['--data-dir', join(folder, 'data')] : []);

async function serveAll(folder, config, env, database) {
  const first = join(folder, 'data');
  const nodes = [await serve(first, config, env, database)];
  for (let n = 2; n <= NODES; n += 1) {
    const data = join(folder, `data-${n}`);
    await mkdir(data, { recursive: true });
    await symlink(join(first, 'files'), join(data, 'files')).catch(() => {});
    nodes.push(await serve(data, config, env, database));
  }
  return nodes;
}

async function serve(data, config, env, database) {
  const args = ['serve', '--listen', '127.0.0.1:0', '--data-dir', data];
  if (database) args.push('--database-url', database.url);
  if (config) args.push('--config', config);
  const child = spawn(HEADWATER, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  children.add(child);
  child.on('exit', () => children.delete(child));
  let said = '';
  child.stderr.on('data', (chunk) => (said = (said + chunk).slice(-20_000)));
  return { child, url: await address(child, () => said) };
}

async function address(child, said) {
  const lines = createInterface({ input: child.stdout });
  const timer = setTimeout(() => child.kill('SIGKILL'), READY_MS_MAX);
  try {
    for await (const line of lines) {
      const found = /^headwater listening on (http:\/\/\S+)$/.exec(line);
      if (found) {
        child.stdout.resume();
        return found[1];
      }
    }
  } finally {
    clearTimeout(timer);
  }
  throw new Error(`the server did not get ready: ${said()}`);
}

async function ended(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
  await exit;
  clearTimeout(timer);
}

async function answer(response) {
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.status} from ${response.url}: ${text}`);
  return JSON.parse(text);
}

/** Runs a verb of the binary to its end. */
export async function runHeadwater(args, { onOutput = () => {}, env } = {}) {
  const child = spawn(HEADWATER, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (chunk) => onOutput((stdout += chunk)));
  child.stderr.setEncoding('utf8').on('data', (chunk) => (stderr += chunk));
  const [code] = await once(child, 'close');
  return { code, stdout, stderr };
}

/** The words of a task's last message. */
export function lastWords(task) {
  const message = task.output.findLast((item) => item.type === 'message');
  return message.block_list.map((block) => block.text).join('\n');
}

/** A task's events as the log has them, to the end or up to one that `isLast`. */
export async function events(url, task_id, isLast = () => false) {
  const taken = await take(await open(`${url}/v1/tasks/${task_id}/events`), ({ data }) => isLast(data));
  return taken.map(({ data }) => data);
}
