// The page's own script, outside of a page: what it exports, without what it draws.

import { readFileSync } from 'node:fs';

const SCRIPT = new URL('../../crates/server/web/fold.js', import.meta.url);

/** The exports of fold.js. Read as text, so that its name needs no `.mjs` and its folder no package.json. */
export function pageModule() {
  return import(`data:text/javascript;base64,${readFileSync(SCRIPT).toString('base64')}`);
}
