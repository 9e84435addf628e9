// A WebSocket of our own: messages are kept as they came, and who stops reading is gone without a goodbye, as in a tunnel.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import { STREAM_MS_MAX } from './sse.mjs';

const MAGIC = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const TEXT = 1;
const CLOSE = 8;
const PING = 9;
const PONG = 10;
const LAST_OF_MESSAGE = 0x80;
const MASKED = 0x80;

/** Says `message`, or several, on a new socket at `url`, and gives the texts that come, each a whole message. */
export async function* messages(url, message) {
  const socket = await connect(url);
  const timer = setTimeout(() => socket.destroy(new Error(`a socket was open for ${STREAM_MS_MAX} ms`)), STREAM_MS_MAX);
  try {
    for (const one of [message].flat()) socket.write(pack(TEXT, JSON.stringify(one)));
    let came = Buffer.alloc(0);
    for await (const chunk of socket) {
      came = Buffer.concat([came, chunk]);
      for (let one = unpack(came); one; one = unpack(came)) {
        came = came.subarray(one.end);
        if (one.opcode === CLOSE) return;
        if (one.opcode === PING) socket.write(pack(PONG, one.payload));
        if (one.opcode === TEXT) yield one.payload.toString('utf8');
      }
    }
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}

async function connect(url) {
  const key = randomBytes(16).toString('base64');
  const headers = { connection: 'upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': key };
  const asked = request(url, { headers });
  asked.on('response', ({ statusCode }) => asked.destroy(new Error(`${statusCode} instead of a socket at ${url}`)));
  asked.end();
  const [response, socket, head] = await once(asked, 'upgrade');
  const accepted = createHash('sha1').update(key + MAGIC).digest('base64');
  assert.equal(response.headers['sec-websocket-accept'], accepted);
  socket.unshift(head);
  return socket;
}

/** A frame as clients must write it, under a mask. */
function pack(opcode, text) {
  const payload = Buffer.from(text);
  assert.ok(payload.length < 0x10000, 'what tests say is short');
  const length = payload.length < 126 ? [payload.length] : [126, payload.length >> 8, payload.length & 0xff];
  const mask = randomBytes(4);
  const masked = payload.map((byte, at) => byte ^ mask[at % 4]);
  return Buffer.concat([Buffer.from([LAST_OF_MESSAGE | opcode, MASKED | length[0], ...length.slice(1)]), mask, masked]);
}

/** The first frame of what came, once it is whole. */
function unpack(came) {
  if (came.length < 2) return undefined;
  assert.ok(came[0] & LAST_OF_MESSAGE, 'a message comes in one frame');
  const short = came[1];
  assert.ok(short < MASKED, 'a server does not mask');
  const start = { 126: 4, 127: 10 }[short] ?? 2;
  if (came.length < start) return undefined;
  const length = { 2: () => short, 4: () => came.readUInt16BE(2), 10: () => Number(came.readBigUInt64BE(2)) }[start]();
  const end = start + length;
  return came.length < end ? undefined : { opcode: came[0] & 0x0f, payload: came.subarray(start, end), end };
}
