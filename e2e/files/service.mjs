// Everybody whom the server asks, in one place: a service of models in each dialect, a web site, and a tool behind an address.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { DIALECTS } from './dialects.mjs';

/**
 * Starts it. `answer(dialect, body)` says what a model answers; `pages` are what is on the site, by path. What models are
 * asked is kept in `asked`.
 */
export async function startService({ answer, pages }) {
  const asked = [];
  const server = createServer(async (request, response) => {
    const body = await buffer(request);
    const dialect = DIALECTS.find(({ path }) => path === request.url);
    if (dialect) {
      const question = JSON.parse(body);
      asked.push({ dialect: dialect.name, body: question });
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const { event, data } of dialect.answer(answer(dialect, question))) {
        if (event) response.write(`event: ${event}\n`);
        response.write(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`);
      }
      response.end();
      return;
    }
    const page = pages[request.url.split('?')[0]];
    response.writeHead(page ? 200 : 404, page && { 'content-type': page.type });
    response.end(page?.bytes);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    asked,
    stop: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}
