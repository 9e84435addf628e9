// The server of a React page: it serves the bundle, and passes everything else on to Headwater, so that both have one origin.

import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { build } from 'esbuild';

const PAGE = '<!doctype html><meta charset="utf-8"><title>A chat</title><div id="root"></div><script type="module" src="/page.js"></script>';

/**
 * Starts it before `target`, with the page `entry` of this folder; `alias` replaces packages. `calls` are what the page asked
 * Headwater for. Without a `target` the page has to know Headwater's own address.
 */
export async function startHost(target, entry, alias = {}) {
  const { outputFiles: [bundle] } = await build({
    entryPoints: [new URL(`../${entry}`, import.meta.url).pathname],
    bundle: true, write: false, format: 'esm', jsx: 'automatic', logLevel: 'error', alias,
    define: { 'process.env.NODE_ENV': '"production"' },
    loader: { '.css': 'empty', '.woff': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl' },
  });
  const calls = [];
  const server = createServer((asked, answer) => {
    const { pathname } = new URL(asked.url, 'http://page');
    if (pathname === '/') return answer.writeHead(200, { 'content-type': 'text/html' }).end(PAGE);
    if (pathname === '/page.js') return answer.writeHead(200, { 'content-type': 'text/javascript' }).end(bundle.contents);
    if (pathname === '/favicon.ico') return answer.writeHead(204).end();
    calls.push(`${asked.method} ${pathname}`);
    if (!target) return answer.writeHead(404).end();
    const passed = request(new URL(asked.url, target), { method: asked.method, headers: asked.headers }, (got) => {
      answer.writeHead(got.statusCode, got.headers);
      got.pipe(answer);
    });
    passed.on('error', () => answer.destroy());
    answer.on('close', () => passed.destroy());
    asked.pipe(passed);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    port: server.address().port,
    calls,
    stop: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
