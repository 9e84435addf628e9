// A database of one's own, and a load balancer that sends every request to another node than the last one.

import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { connect } from 'node:net';
import { promisify } from 'node:util';

const run = promisify(execFile);
/** The URL of a server on which databases may be created. Without one, data is in a folder. */
const ADMIN_URL = process.env.HEADWATER_TEST_POSTGRES_URL;
/** How many nodes a server is. More than one need a database. */
export const NODES = Number(process.env.HEADWATER_E2E_NODES ?? '0');

let count = 0;

/** Creates a database, or nothing if the tests run on folders. */
export async function createDatabase() {
  if (NODES === 0) return undefined;
  const name = `e2e_${process.pid}_${(count += 1)}`;
  const sql = (text) => run('psql', ['-X', '-q', ADMIN_URL, '-c', text]);
  await sql(`CREATE DATABASE ${name}`);
  const url = new URL(ADMIN_URL);
  url.pathname = `/${name}`;
  return { url: url.href, drop: () => sql(`DROP DATABASE ${name} WITH (FORCE)`) };
}

/** A load balancer before the nodes that `targets` gives. Every request and every socket goes to the next one. */
export async function startBalancer(targets) {
  let turn = 0;
  const next = () => {
    const urls = targets();
    return new URL(urls[(turn += 1) % urls.length]);
  };
  const server = createServer((incoming, outgoing) => {
    const { hostname, port } = next();
    const { method, url: path, headers } = incoming;
    const passed = request({ hostname, port, method, path, headers, agent: false }, (response) => {
      outgoing.writeHead(response.statusCode, response.rawHeaders);
      outgoing.flushHeaders();
      response.pipe(outgoing);
      response.on('error', () => outgoing.destroy());
      response.on('aborted', () => outgoing.destroy());
    });
    passed.on('error', () => outgoing.destroy());
    outgoing.on('close', () => passed.destroy());
    incoming.pipe(passed);
  });
  server.on('upgrade', (incoming, client, head) => {
    const { hostname, port } = next();
    const upstream = connect(Number(port), hostname, () => {
      const lines = [`${incoming.method} ${incoming.url} HTTP/1.1`];
      for (let i = 0; i < incoming.rawHeaders.length; i += 2) lines.push(`${incoming.rawHeaders[i]}: ${incoming.rawHeaders[i + 1]}`);
      upstream.write(`${lines.join('\r\n')}\r\n\r\n`);
      upstream.write(head);
      client.pipe(upstream).pipe(client);
    });
    for (const [one, other] of [[client, upstream], [upstream, client]]) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
