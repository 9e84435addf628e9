// A reporter of the test runner, for `run`: how many tests passed and did not (`pass 12`), and the files of those that did not
// (`file agui.test.mjs`), a line each.

import { relative } from 'node:path';

const COUNT = /^(pass|fail|cancelled) \d+$/;

export default async function* summary(events) {
  const files = new Set();
  for await (const { type, data } of events) {
    if (type === 'test:diagnostic' && COUNT.test(data.message)) yield `${data.message}\n`;
    // A file that was stopped is a test of its own, whose name is its path.
    if (type === 'test:fail') files.add(data.file ?? data.name);
  }
  for (const file of files) yield `file ${relative('.', file)}\n`;
}
