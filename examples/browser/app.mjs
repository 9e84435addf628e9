// Your application's server: it knows the key, and gives tickets to its users. A ticket opens one stream, once, for a minute.

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';

const HEADWATER = 'http://127.0.0.1:8787';
const PAGES = { '/': 'event-source.html', '/chat': 'websocket.html' };

async function call(path, body) {
  const headers = { authorization: `Bearer ${process.env.KEY}`, 'content-type': 'application/json' };
  const response = await fetch(HEADWATER + path, { method: 'POST', headers, body: JSON.stringify(body) });
  return response.json();
}

createServer(async (request, response) => {
  // Check here who is signed in, before anything else.
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  if (PAGES[pathname]) return response.end(await readFile(new URL(PAGES[pathname], import.meta.url)));
  const send = (value) => response.end(JSON.stringify(value));
  if (pathname === '/ask') return send(await call('/v1/tasks', { model: 'helper', input: searchParams.get('input') }));
  if (pathname === '/ticket') return send(await call('/v1/tickets'));
  response.writeHead(404).end();
}).listen(3000, '127.0.0.1');
