// A session over the platform's own WebSocket.

const EVENT_MS_MAX = 20_000;

/** Opens a socket to the server at `url`. Events are taken one after the other with `next`. */
export async function openSocket(url) {
  const socket = new WebSocket(`${url.replace('http', 'ws')}/ws`);
  const waiting = [];
  const events = [];
  let closed;
  const wake = () => waiting.splice(0).forEach((resolve) => resolve());
  socket.addEventListener('message', ({ data }) => {
    events.push(JSON.parse(data));
    wake();
  });
  socket.addEventListener('close', ({ code }) => {
    closed = code;
    wake();
  });
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve);
    socket.addEventListener('error', () => reject(new Error(`no socket at ${url}`)));
  });
  return {
    say: (message) => socket.send(JSON.stringify(message)),
    close: () => socket.close(),
    next: async () => {
      const late = AbortSignal.timeout(EVENT_MS_MAX);
      while (events.length === 0) {
        if (closed !== undefined) throw new Error(`closed with ${closed}`);
        await new Promise((resolve, reject) => {
          waiting.push(resolve);
          late.addEventListener('abort', () => reject(new Error('no event in time')));
        });
      }
      return events.shift();
    },
  };
}

/** Takes events up to the end of a turn, or until `isEnough` says so. */
export async function readTurn(socket, { onEvent = () => {}, isEnough = () => false } = {}) {
  const events = [];
  for (;;) {
    const event = await socket.next();
    if (event.type === 'error') throw new Error(`${event.code}: ${event.message}`);
    events.push(event);
    onEvent(event, socket);
    if (event.type === 'message_stop' || isEnough(events)) return events;
  }
}
