// README and docs are followed word for word: every block is run in a fresh folder against the real binary, or says why not.

import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { basename } from 'node:path';
import test from 'node:test';
import { pageText } from './docs/browser.mjs';
import { checkBlock } from './docs/checks.mjs';
import { ROOT, fences, readPage } from './docs/fences.mjs';
import { consoleSteps, matchOutput, openFolder, outputPattern } from './docs/folder.mjs';
import { begin, ended } from './lib/runs.mjs';
import { SCENARIOS } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { open, take } from './lib/sse.mjs';

const DOCS = readdirSync(new URL('docs/', ROOT)).filter((name) => name.endsWith('.md'));
const PAGES = ['README.md', ...DOCS.map((name) => `docs/${name}`)];

// Blocks that a test finds by their bare language. It covers every such block of the page.
const COVERED = {
  'docs/configuration.md toml': 'crates/server/tests/it/check_config.rs::the_documented_examples_pass_parser_and_schema',
  'docs/configuration.md text': 'crates/server/tests/it/check_config.rs::the_documented_error_example_gives_the_documented_message',
  'docs/scenarios.md text': 'crates/providers/tests/it/docs.rs::the_documented_error_example_gives_the_documented_message',
};

// What a page takes for granted: a service that answers as OpenAI does, or ids and files of the reader's own.
const PREPARE = {
  'README.md': { upstream: true },
  'docs/operating.md': { upstream: true },
  'docs/tools.md': { files: { examples: 'examples' }, ports: [8901] },
  'docs/quick-starts.md': { files: { examples: 'examples' }, ports: [3000] },
  'docs/protocols.md': {
    files: { 'chart.png': 'docs/page.png' },
    variables: `KEY=unused
TASK=$(curl -s http://127.0.0.1:8787/v1/tasks -H 'content-type: application/json' \\
  -d '{"model":"demo","input":"hi"}' | grep -o 'task_[0-9a-f]\\{32\\}' | head -1)
THREAD=$(curl -s http://127.0.0.1:8787/v1/tasks/$TASK | grep -o 'thr_[0-9a-f]\\{32\\}' | head -1)`,
  },
};

test('every command and snippet of README and docs does what is shown, or says why it is not run', async (t) => {
  for (const page of PAGES) {
    await t.test(page, async () => {
      const blocks = fences(page);
      blocks.forEach(checkMarks);
      if (blocks.some(({ marks }) => marks.run || marks.serve)) await follow(page, blocks);
    });
  }
});

/** A block without a mark is a block that nobody tests. */
function checkMarks({ page, line, language, body, marks }) {
  const where = `${page}:${line}`;
  const test = marks.tested ?? COVERED[`${page} ${language}`];
  const help = 'a block has to say how it is tested (e2e/docs/fences.mjs lists the marks)';
  assert.ok(test ?? Object.keys(marks).length > 0, `${where}: ${help}`);
  if (marks.skip) assert.ok(marks.skip.length > 10, `${where}: \`skip\` needs a reason`);
  if (marks.from) assert.equal(body, readPage(marks.from), `${where} is not ${marks.from}`);
  if (marks.part) assert.ok(readPage(marks.part).includes(body), `${where} is not in ${marks.part}`);
  if (test) {
    const [file, name] = test.split('::');
    assert.ok(readPage(file).includes(name), `${where}: there is no ${test}`);
  }
}

async function follow(page, blocks) {
  const { upstream, files = {}, ports = [], variables } = PREPARE[page] ?? {};
  const service = upstream && (await startServer({ config: new URL('docs/upstream.toml', import.meta.url).pathname }));
  const folder = await openFolder(service ? { OPENAI_BASE_URL: `${service.url}/v1` } : {});
  try {
    for (const port of ports) await folder.replacePort(port);
    for (const [name, path] of Object.entries(files)) await folder.copy(name, new URL(path, ROOT).pathname);
    if (variables) {
      await folder.serve('headwater serve');
      await folder.run('sh', variables);
    }
    for (const block of blocks) await followBlock(folder, block);
  } finally {
    await folder.remove();
    await service?.stop();
  }
}

async function followBlock(folder, { page, line, language, body, marks }) {
  try {
    if (marks.file) await folder.write(marks.file, body);
    if (marks.from) await folder.write(basename(marks.from), body);
    if (marks.check) await checkBlock(marks.check, body, folder);
    if (marks.serve) await folder.serve(body);
    if (marks.browser) {
      const isShown = (text) => outputPattern(body).test(`${text.trim()}\n`);
      matchOutput(await pageText(folder.here(marks.browser), isShown), body);
    }
    if (marks.output) matchOutput(folder.printed, body);
    if (!marks.run) return;
    if (!folder.isServing) await folder.serve('headwater serve');
    if (language !== 'console') return void (await folder.run(language, body, marks));
    for (const { command, output } of consoleSteps(body)) matchOutput(await folder.run('sh', command), output);
  } catch (error) {
    error.message = `${page}:${line}: ${error.message}`;
    throw error;
  }
}

test('the fold of docs/events.md gives what GET gives, for every scenario of the demo and from a snapshot', async () => {
  const { body } = fences('docs/events.md').find(({ marks }) => marks.file === 'fold.mjs');
  const { fold } = await import(`data:text/javascript;base64,${Buffer.from(body).toString('base64')}`);
  const server = await startServer();
  const compare = async (task, after = '') => {
    for (const { data } of await take(await open(`${server.url}/v1/tasks/${task.task_id}/events${after}`))) fold(task, data);
    assert.deepEqual(task, await server.get(`/v1/tasks/${task.task_id}`), task.task_id);
  };
  try {
    const file = [{ type: 'file', file: { url: 'http://127.0.0.1/x' } }, { type: 'text', text: 'hi' }];
    for (const input of [...SCENARIOS.map((scenario) => scenario.input), 'slow 1', file]) {
      const { task_id } = await ended(server, input);
      await compare({ task_id, output: [] });
    }
    const { task_id } = await begin(server, 'story 200');
    await take(await open(`${server.url}/v1/tasks/${task_id}/events`), ({ data }) => data.type === 'task.text.delta');
    const snapshot = await server.get(`/v1/tasks/${task_id}`);
    await server.post(`/v1/tasks/${task_id}/cancel`, {});
    await compare(snapshot, `?after=${snapshot.seq}`);
  } finally {
    await server.stop();
  }
});

test('a block that says nothing, or something unknown, is refused', () => {
  const check = (text) => () => fences('a.md', text).forEach(checkMarks);
  assert.doesNotThrow(check('# A\n\n```sh run\necho\n```\n'));
  assert.throws(check('# A\n\n```sh\necho\n```\n'), /a\.md:3: a block has to say how it is tested/);
  assert.throws(check('```\necho\n```\n'), /how it is tested/);
  assert.throws(check('```sh runn\necho\n```\n'), /unknown mark `runn`/);
  assert.throws(check('```sh skip=no\necho\n```\n'), /needs a reason/);
  assert.throws(check('```sh tested=e2e/docs.test.mjs::no-such\u2010test\necho\n```\n'), /there is no/);
  assert.throws(check('```toml part=examples/tools/headwater.toml\n[tools.none]\n```\n'), /is not in/);
  assert.throws(check('```sh from=examples/clients/quote.sh\necho\n```\n'), /is not examples/);
  assert.throws(() => matchOutput('a\nb\n', 'a\nc'), /the page shows/);
  assert.doesNotThrow(() => matchOutput('a\nb 1\nc\n', '…\nb …\nc'));
});

test('every link between pages leads somewhere', () => {
  const anchor = (title) => title.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-');
  const anchors = (text) => [...text.replace(/^```.*?^```$/gms, '').matchAll(/^#+ (.*)$/gm)].map(([, title]) => anchor(title));
  for (const page of PAGES) {
    for (const [, link] of readPage(page).replace(/^```.*?^```$/gms, '').matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https?:/.test(link)) continue;
      const [path, fragment] = link.split('#');
      const target = path ? new URL(path, new URL(page, ROOT)) : new URL(page, ROOT);
      assert.ok(existsSync(target), `${page}: ${link}`);
      if (fragment) assert.ok(anchors(readPage(target)).includes(fragment), `${page}: there is no title for ${link}`);
    }
  }
});
