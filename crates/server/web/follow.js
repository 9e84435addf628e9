// Keeps a thread's event stream open, and reports its state. `fetch` instead of `EventSource`, which cannot send a key.

import { RequestError } from './api.js';

const SILENCE_MS = 45_000;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8_000;
// What another attempt cannot change.
const FINAL_STATUSES = [400, 401, 403, 404, 409, 410, 422];

export class Follower {
  /**
   * @param event Called with each event.
   * @param state Called with `connecting`, `live`, `reconnecting` or `ended`.
   * @param refused Called once with the error when it is no use to try again.
   */
  constructor(api, path, { event, state, refused }) {
    Object.assign(this, { api, path, event, state, refused, retryMs: RETRY_MS_MIN });
    this.wake = () => {};
  }

  /** Follows after `seq`. A reconnect continues after the last event that came. */
  async open(seq) {
    this.close();
    const turn = {};
    this.turn = turn;
    const isCurrent = () => this.turn === turn;
    this.watch = setInterval(() => this.check(SILENCE_MS), SILENCE_MS / 3);
    this.state('connecting');
    let cursor = String(seq);
    while (isCurrent()) {
      try {
        if (await this.read(cursor, (id) => (cursor = id))) return this.end();
      } catch (error) {
        if (!isCurrent()) return undefined;
        if (error instanceof RequestError && FINAL_STATUSES.includes(error.status)) {
          this.close();
          return this.refused(error);
        }
      }
      if (!isCurrent()) return undefined;
      this.state('reconnecting');
      await this.pause();
    }
    return undefined;
  }

  /** Reads one connection. Returns true when there is nothing more to come. */
  async read(cursor, heard) {
    this.abort = new AbortController();
    this.heardAt = Date.now();
    const url = `${this.path}?after=${encodeURIComponent(cursor)}`;
    const response = await this.api.send(url, { headers: { Accept: 'text/event-stream' }, signal: this.abort.signal });
    if (response.status === 204) return true;
    this.state('live');
    for await (const { id, data } of frames(response.body, () => (this.heardAt = Date.now()))) {
      this.retryMs = RETRY_MS_MIN;
      heard(id);
      this.event(data);
    }
    return false;
  }

  pause() {
    const ms = this.retryMs * (0.75 + Math.random() / 2);
    this.retryMs = Math.min(this.retryMs * 2, RETRY_MS_MAX);
    return new Promise((resolve) => {
      this.wake = resolve;
      this.timer = setTimeout(resolve, ms);
    });
  }

  /** Breaks a connection that was silent for this long: keep-alive comments come more often. */
  check(silenceMs) {
    if (Date.now() - this.heardAt >= silenceMs) this.abort?.abort();
  }

  /** The network is back: does not wait for the time-outs. */
  retryNow() {
    this.retryMs = RETRY_MS_MIN;
    this.abort?.abort();
    this.wake();
  }

  isOpen() {
    return this.turn !== undefined;
  }

  end() {
    this.close();
    this.state('ended');
  }

  close() {
    clearInterval(this.watch);
    clearTimeout(this.timer);
    this.turn = undefined;
    this.abort?.abort();
    this.wake();
  }
}

/** The frames of an event stream that have data. */
export async function* frames(body, heard = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const pieces = (rest + value).split('\n\n');
      rest = pieces.pop();
      for (const piece of pieces) {
        const id = /^id: ?(.*)$/m.exec(piece)?.[1];
        const data = /^data: ?(.*)$/m.exec(piece)?.[1];
        if (data !== undefined) yield { id, data: JSON.parse(data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
