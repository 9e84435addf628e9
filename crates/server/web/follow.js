// Keeps a task's event stream open, and says how it is.

import { EVENT_TYPES } from './fold.js';

export const SILENCE_MS = 45_000;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8_000;

/** Keeps a task's event stream open. A cut that the browser can mend, it mends; after any other the task is fetched. */
export class Follower {
  constructor({ event, state, stale }) {
    Object.assign(this, { event, state, stale, retryMs: RETRY_MS_MIN, heardAt: Date.now() });
    this.watch = setInterval(() => this.check(SILENCE_MS), SILENCE_MS / 3);
  }

  open(task) {
    this.source?.close();
    this.state('connecting');
    const source = new EventSource(`v1/tasks/${task.task_id}/events?after=${task.seq}`);
    this.source = source;
    source.onopen = () => this.source === source && this.heard();
    source.onerror = () => {
      if (this.source !== source) return;
      this.state('reconnecting');
      if (source.readyState === EventSource.CLOSED) this.later();
    };
    for (const type of EVENT_TYPES) {
      source.addEventListener(type, (message) => {
        if (this.source !== source) return;
        this.heard();
        this.retryMs = RETRY_MS_MIN;
        this.event(JSON.parse(message.data));
      });
    }
  }

  heard() {
    this.heardAt = Date.now();
    this.state('live');
  }

  /** The server refused, or had nothing more to say. Only the object can tell which. */
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.stale, this.retryMs * (0.75 + Math.random() / 2));
    this.retryMs = Math.min(this.retryMs * 2, RETRY_MS_MAX);
  }

  /** Comments that keep the stream alive do not reach a page, so silence is checked by asking. */
  check(silenceMs) {
    if (Date.now() - this.heardAt < silenceMs) return;
    this.heardAt = Date.now();
    this.stale();
  }

  isOpen() {
    return this.source?.readyState === EventSource.OPEN;
  }

  pause() {
    this.source?.close();
    this.source = undefined;
  }

  close() {
    clearInterval(this.watch);
    clearTimeout(this.timer);
    this.pause();
  }
}
