// The fenced blocks of a page, and what the words behind their language say about how each is tested.

import { readFileSync } from 'node:fs';

export const ROOT = new URL('../../', import.meta.url);

/** Words that stand alone, and words with a value. `skip` and `tested` say why a block is not run here. */
const MARKS = {
  run: 'run it to its end; it must succeed',
  refused: 'one of its requests is refused, as the output shows',
  serve: 'run it in the background until the next `serve` or the end of the page, once it says that it listens',
  output: 'what the block before it printed; `…` stands for any text',
  file: 'write it to this file',
  from: 'write it to the folder; it is this file of the repository, word for word',
  part: 'it is a part of this file of the repository, word for word',
  browser: 'the text of the page at this address, in Chromium',
  check: 'have it checked by this program',
  tested: 'this test of the repository covers it',
  skip: 'why it cannot be run',
};

export const readPage = (page) => readFileSync(new URL(page, ROOT), 'utf8');

/** The blocks of a page, in order. */
export function fences(page, text = readPage(page)) {
  const found = [...text.matchAll(/^```(\w*)([^\n`]*)\n(.*?)^```$/gms)];
  if (found.length * 2 !== (text.match(/^```/gm) ?? []).length) throw new Error(`${page} has a block that is not closed`);
  return found.map(({ 1: language, 2: info, 3: body, index }) => {
    const line = text.slice(0, index).split('\n').length;
    return { page, line, language, body, marks: parseMarks(info, `${page}:${line}`) };
  });
}

function parseMarks(info, where) {
  const marks = {};
  for (const [, name, quoted, plain] of info.matchAll(/([^\s=]+)(?:="([^"]*)"|=(\S+))?/g)) {
    if (!(name in MARKS)) throw new Error(`${where}: unknown mark \`${name}\`; known are: ${Object.keys(MARKS).join(', ')}`);
    marks[name] = quoted ?? plain ?? true;
  }
  return marks;
}
