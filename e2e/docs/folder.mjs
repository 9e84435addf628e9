// A fresh folder in which the blocks of a page are followed word for word, with the real binary and the SDKs of e2e.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../lib/free-port.mjs';

const HEADWATER = process.env.HEADWATER_BIN ?? new URL('../../target/release/headwater', import.meta.url).pathname;
const E2E = new URL('..', import.meta.url).pathname;
const VENV = join(E2E, '.venv');
const BLOCK_MS_MAX = 120_000;
const READY_MS_MAX = 20_000;

/** The port of the pages. Tests take a free one, which is replaced on the way in and back on the way out. */
const PORT = 8787;

// Pages say `cargo run` where a reader has built nothing yet.
const CARGO = `#!/bin/sh
[ "$1 $2 $3 $4 $5" = "run --release --bin headwater --" ] || { echo "tests do not run: cargo $*" >&2; exit 1; }
shift 5
exec headwater "$@"
`;
// A status that is an error ends curl with one.
const CURLRC = 'fail-with-body\nshow-error\n';
// What a block assigned, the next one has. A command that was given so many seconds (124) has not failed.
const shell = (body) => `[ ! -f .variables ] || . ./.variables
trap 'code=$?; [ $code -eq 124 ] || exit $code' ERR
set -a -E -o pipefail
${body}
declare -p | grep -E '^declare -x [A-Z]+=' > .variables || true
`;

export async function openFolder(env = {}) {
  const root = await mkdtemp(join(tmpdir(), 'headwater-docs-'));
  const bin = join(root, '.bin');
  await mkdir(bin);
  await symlink(HEADWATER, join(bin, 'headwater'));
  await writeFile(join(bin, 'cargo'), CARGO, { mode: 0o755 });
  await writeFile(join(bin, '.curlrc'), CURLRC);
  await symlink(join(E2E, 'node_modules'), join(root, 'node_modules'));
  const variables = {
    PATH: [bin, join(VENV, 'bin'), process.env.PATH].join(':'),
    HOME: root,
    CURL_HOME: bin,
    LANG: 'C.UTF-8',
    ...env,
  };
  const folder = new Folder(root, variables);
  const port = await folder.replacePort(PORT);
  Object.assign(variables, { HEADWATER_LISTEN: `127.0.0.1:${port}`, HEADWATER_URL: `http://127.0.0.1:${port}` });
  return folder;
}

class Folder {
  #server;
  #ports = new Map();
  #groups = [];

  constructor(root, env) {
    this.root = root;
    this.env = env;
    /** What the last block printed. */
    this.printed = '';
  }

  get isServing() {
    return this.#server !== undefined;
  }

  here(text) {
    return [...this.#ports].reduce((so_far, [port, free]) => so_far.replaceAll(port, free), text);
  }

  #there(text) {
    return [...this.#ports].reduce((so_far, [port, free]) => so_far.replaceAll(free, port), text);
  }

  /** Uses a free port in place of one that the page names. */
  async replacePort(port) {
    const free = String(await freePort());
    this.#ports.set(String(port), free);
    return free;
  }

  /** Copies a file or a folder of the repository. */
  async copy(name, path) {
    const target = join(this.root, name);
    await cp(path, target, { recursive: true });
    if ((await stat(target)).isFile()) return;
    for (const entry of await readdir(target, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const file = join(entry.path, entry.name);
      await writeFile(file, this.here(await readFile(file, 'utf8')));
    }
  }

  async write(name, body) {
    await writeFile(join(this.root, name), this.here(body));
    if (body.startsWith('#!')) await chmod(join(this.root, name), 0o755);
  }

  /** Runs a block to its end. Gives what it printed. */
  async run(language, body, { refused } = {}) {
    switch (language) {
      case 'sh':
        return this.#execute('bash', ['-c', shell(`${refused ? 'unset CURL_HOME\n' : ''}${this.here(body)}`)]);
      case 'python':
        return this.#execute(join(VENV, 'bin/python'), ['-c', this.here(body)]);
      case 'js':
        await this.write('.snippet.mjs', body);
        return this.#execute(process.execPath, ['.snippet.mjs']);
      default:
        throw new Error(`nothing runs \`${language}\``);
    }
  }

  #spawn(program, args) {
    const options = { cwd: this.root, env: this.env, stdio: ['ignore', 'pipe', 'pipe'], detached: true };
    const child = spawn(program, args, options);
    this.#groups.push(child);
    child.said = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) {
      child[name].setEncoding('utf8').on('data', (chunk) => (child.said[name] += chunk));
    }
    return child;
  }

  async #execute(program, args) {
    const child = this.#spawn(program, args);
    const timer = setTimeout(() => signalGroup(child, 'SIGKILL'), BLOCK_MS_MAX);
    const [code, signal] = await once(child, 'close');
    clearTimeout(timer);
    const { stdout, stderr } = child.said;
    assert.equal(code ?? signal, 0, `it ended with ${code ?? signal}:\n${stdout.slice(-2_000)}\n${stderr.slice(-4_000)}`);
    this.printed = this.#there(stdout);
    return this.printed;
  }

  /** Runs a block that does not end, in place of the one before. */
  async serve(body) {
    await this.stopServer();
    const child = this.#spawn('bash', ['-c', body]);
    const timer = setTimeout(() => signalGroup(child, 'SIGKILL'), READY_MS_MAX);
    const ready = () => /^headwater listening on http/m.test(child.said.stdout);
    while (!ready()) {
      const next = await Promise.race([once(child.stdout, 'data'), once(child, 'close').then(() => undefined)]);
      assert.ok(next || ready(), `the server did not get ready: ${child.said.stderr}`);
    }
    clearTimeout(timer);
    this.#server = child;
    this.printed = this.#there(child.said.stdout);
  }

  async stopServer() {
    if (!this.#server) return;
    const child = this.#server;
    this.#server = undefined;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'close');
    signalGroup(child, 'SIGTERM');
    const timer = setTimeout(() => signalGroup(child, 'SIGKILL'), READY_MS_MAX);
    await exit;
    clearTimeout(timer);
  }

  async remove() {
    await this.stopServer();
    // What a block left running in the background is in its group.
    for (const child of this.#groups) signalGroup(child, 'SIGKILL');
    await rm(this.root, { recursive: true, force: true });
  }
}


/** A block is a shell and what it started. */
function signalGroup(child, signal) {
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

/** What a page shows of some output: `…` is any text of a line, and as a line of its own any lines. */
export function outputPattern(shown) {
  const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const line = (text) => (text === '…' ? '(?:[^\\n]*\\n)*?' : `${text.split('…').map(escape).join('[^\\n]*?')}\\n`);
  return new RegExp(`^${shown.trim().split('\n').map(line).join('')}$`);
}

/** Holds what was printed against what a page shows of it. */
export function matchOutput(printed, shown) {
  const found = `${printed.trim().replace(/ +$/gm, '')}\n`;
  assert.ok(outputPattern(shown).test(found), `the page shows\n${shown}\nand what came is\n${found.slice(0, 3_000)}`);
}

/** The commands of a console block, each with what is shown behind it. */
export function consoleSteps(body) {
  const steps = body.split(/^\$ /m).slice(1);
  return steps.map((step) => {
    const [, command, output] = /^((?:[^\n]*\\\n)*[^\n]*\n)([\s\S]*)$/.exec(step);
    return { command, output };
  });
}
