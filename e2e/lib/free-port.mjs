// A port for a program that cannot choose one itself.

import { once } from 'node:events';
import { createServer } from 'node:net';

export async function freePort() {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  listener.close();
  await once(listener, 'close');
  return port;
}
