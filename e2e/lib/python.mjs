// The Python SDKs at hand. Scripts are named by where they are in e2e; what they share is `worker.py`, beside this file.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

const SCRIPT_MS_MAX = 60_000;
const path = (name) => new URL(`../${name}`, import.meta.url).pathname;
const PYTHON = path('.venv/bin/python');

/** Runs a script to its end. Gives what it printed, read as JSON. */
export async function runScript(script, args = []) {
  const { stdout } = await promisify(execFile)(PYTHON, [path(script), ...args], { timeout: SCRIPT_MS_MAX });
  return JSON.parse(stdout);
}

/** What an SDK raised, as far as a caller can see it. */
export class Raised extends Error {
  constructor(what) {
    super(`${what.name}: ${what.message}`);
    Object.assign(this, what);
  }
}

/**
 * Starts a script that does what it is told, so that its SDK is loaded once. `ask(name, args)` calls one of its functions:
 * what it returns comes back as JSON, what it raises as `Raised`. Calls may overlap.
 */
export function startWorker(script, url) {
  const env = { ...process.env, PYTHONPATH: path('lib') };
  const child = spawn(PYTHON, [path(script), url], { stdio: ['pipe', 'pipe', 'pipe'], env });
  const waiting = new Map();
  let said = '';
  let asked = 0;
  child.stderr.setEncoding('utf8').on('data', (chunk) => (said = (said + chunk).slice(-20_000)));
  createInterface({ input: child.stdout }).on('line', (line) => {
    const { id, result, raised } = JSON.parse(line);
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (raised) reject(new Raised(raised));
    else resolve(result);
  });
  const exit = once(child, 'exit').then(() => {
    for (const { reject } of waiting.values()) reject(new Error(`${script} has ended: ${said}`));
  });
  return {
    ask: (name, args = {}) => {
      const id = (asked += 1);
      const answer = new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
      child.stdin.write(`${JSON.stringify({ id, name, args })}\n`);
      return answer;
    },
    stop: async () => {
      child.stdin.end();
      await exit;
    },
  };
}
