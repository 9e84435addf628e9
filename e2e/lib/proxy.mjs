// A network that breaks: passes bytes on to a server, and cuts when it is told to.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/** A proxy before `target`. `cut()` breaks what is open; the next `refuse` connections do not get through. */
export async function startProxy(target) {
  const open = new Set();
  const proxy = { target, refuse: 0 };
  const server = createServer((client) => {
    client.on('error', () => {});
    if (proxy.refuse > 0) {
      proxy.refuse -= 1;
      client.resetAndDestroy();
      return;
    }
    const { hostname, port } = new URL(proxy.target);
    const upstream = connect(Number(port), hostname);
    const pair = [client, upstream];
    open.add(pair);
    upstream.on('error', () => client.destroy());
    for (const socket of pair) {
      socket.on('close', () => {
        open.delete(pair);
        for (const other of pair) other.destroy();
      });
    }
    client.pipe(upstream).pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return Object.assign(proxy, {
    url: `http://127.0.0.1:${server.address().port}`,
    cut: () => {
      for (const pair of open) for (const socket of pair) socket.resetAndDestroy();
    },
    stop: async () => {
      server.close();
      proxy.cut();
      await once(server, 'close');
    },
  });
}
