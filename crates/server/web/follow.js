// Keeps a task's event stream open, and reports its state.

import { EVENT_TYPES } from './fold.js';

export const SILENCE_MS = 45_000;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8_000;

/** Keeps a task's event stream open. The browser reconnects if it can; otherwise the task is fetched. */
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

  /** The server rejected the request or the stream has ended. Only the object tells which. */
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.stale, this.retryMs * (0.75 + Math.random() / 2));
    this.retryMs = Math.min(this.retryMs * 2, RETRY_MS_MAX);
  }

  /** Keep-alive comments do not reach the page, so it checks a silent stream by a request. */
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
