// Event streams as bytes: what came is kept as it came, because a resumed stream must have the same bytes.

import assert from 'node:assert/strict';

/** No stream of a test lasts longer. One that is still open then waits for something that will not come. */
export const STREAM_MS_MAX = 120_000;

/**
 * Ends a request that the tests would wait for without end. A timer of our own: Node may forget the one of `AbortSignal.timeout`
 * when only `AbortSignal.any` refers to it.
 */
export function deadline(signal) {
  const controller = new AbortController();
  const error = new Error(`a stream was still open after ${STREAM_MS_MAX} ms`);
  setTimeout(() => controller.abort(error), STREAM_MS_MAX).unref();
  if (signal?.aborted) controller.abort(signal.reason);
  signal?.addEventListener('abort', () => controller.abort(signal.reason), { once: true });
  return controller.signal;
}

/**
 * The frames of a stream: `text` as it came, `id`, `event`, and `data` read as JSON. Comments, `retry:` and `[DONE]` are
 * how the stream is carried, not what it says, and are left out. Stopping to read breaks the connection.
 */
export async function* frames(response) {
  let rest = '';
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const pieces = (rest + chunk).split('\n\n');
    rest = pieces.pop();
    for (const piece of pieces) {
      const frame = read(`${piece}\n\n`);
      if (frame) yield frame;
    }
  }
  assert.equal(rest, '', 'the stream ends with a whole frame');
}

function read(text) {
  const fields = {};
  for (const line of text.split('\n')) {
    const [, name, value] = /^([a-z]+): ?(.*)$/s.exec(line) ?? [];
    // A reader that takes `data` over several lines is not what every client has.
    assert.ok(name === undefined || fields[name] === undefined, `${name} stands twice in ${text}`);
    if (name) fields[name] = value;
  }
  if (fields.data === undefined || fields.data === '[DONE]') return undefined;
  return { text, id: fields.id, event: fields.event, data: JSON.parse(fields.data) };
}

/** Asks for a stream. `undefined` when there is nothing more to come (204). */
export async function open(url, headers = {}) {
  const response = await fetch(url, { headers: { accept: 'text/event-stream', ...headers }, signal: deadline() });
  if (response.status === 204) return undefined;
  if (!response.ok) throw new Error(`${response.status} from ${url}: ${await response.text()}`);
  assert.match(response.headers.get('content-type'), /^text\/event-stream\b/);
  return response;
}

/** The frames of a response, or of whatever else gives frames, until `isLast` says so, or until there are no more. */
export async function take(source, isLast = () => false) {
  const taken = [];
  if (source === undefined) return taken;
  for await (const frame of source.body ? frames(source) : source) {
    taken.push(frame);
    if (isLast(frame, taken.length)) break;
  }
  return taken;
}

/** The bytes of frames, one after the other. */
export const bytes = (taken) => taken.map((frame) => frame.text).join('');
