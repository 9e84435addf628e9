// One thread: its runs as objects, kept current by the thread's events.
//
// A reload fetches the objects and continues after them, so nothing is replayed that an object already has. What the
// objects do not have (the input, the approvals) is fetched beside them.

import { RequestError } from './api.js';
import { blank, fold, isOver, same } from './fold.js';
import { Follower, frames } from './follow.js';

const RUNS_PER_PAGE = 20;
const WAKE_SILENCE_MS = 16_000;

export class Conversation {
  /**
   * @param changed Called when there is something to draw.
   * @param logged Called with each event that came live.
   * @param state Called with the state of the stream.
   * @param failed Called with an error that ends the conversation on this page.
   * @param ended Called when a run has ended.
   */
  constructor(api, thread_id, { changed, logged, state, failed, ended }) {
    Object.assign(this, { api, thread_id, changed, logged, state, failed, ended });
    this.runs = [];
    this.approvals = new Map();
    this.tally = { events: 0, gaps: 0, repeats: 0, cuts: 0 };
    this.hasEarlier = false;
    this.follower = new Follower(api, `v1/threads/${thread_id}/events`, {
      event: (event) => this.take(event),
      state: (state) => this.connection(state),
      refused: (error) => this.refused(error),
    });
  }

  /** A thread that was just created: everything is still to come. */
  begin(task, input) {
    this.add(task, input);
    this.start(0);
  }

  /** A thread that exists. */
  async load() {
    await this.fetchRuns();
    if (this.isClosed) return;
    const open = this.runs.filter(({ task }) => !isOver(task) && task.seq > 0).map(({ task }) => task.seq);
    const seqs = this.runs.map(({ task }) => task.seq);
    // A run that another one followed while they were fetched is caught up by its events.
    this.start(open.length > 0 ? Math.min(...open) : Math.max(0, ...seqs));
  }

  start(seq) {
    this.seq = this.snapshot = seq;
    this.snapshots = new Map(this.runs.map(({ task }) => [task.task_id, structuredClone(task)]));
    this.follower.open(seq);
    this.changed();
  }

  /** Fetches the newest runs, or those before the ones that are here. */
  async fetchRuns() {
    const oldest = this.runs[0]?.task.task_id;
    const query = `thread_id=${this.thread_id}&limit=${RUNS_PER_PAGE}${oldest ? `&before=${oldest}` : ''}`;
    const [page] = await Promise.all([this.api.get(`v1/tasks?${query}`), oldest ? undefined : this.fetchApprovals()]);
    // A thread without a run is one that is not there.
    if (page.data.length === 0 && !oldest) await this.api.get(`v1/threads/${this.thread_id}`);
    const runs = await Promise.all(page.data.reverse().map(async (row) => {
      const [task, input] = await Promise.all([this.api.get(`v1/tasks/${row.task_id}`), fetchInput(this.api, row)]);
      return { task, input };
    }));
    this.hasEarlier = page.has_more;
    this.runs.unshift(...runs.filter(({ task }) => !this.find(task.task_id)));
    this.changed();
  }

  /** Decided ones, too: the objects do not tell what was edited. A viewer of a share may not list them. */
  async fetchApprovals() {
    const page = await this.api.get('v1/approvals?limit=100').catch(() => undefined);
    // A call may have asked several times: its newest row counts, which is the first of the page.
    for (const row of [...(page?.data ?? [])].reverse()) {
      if (row.thread_id !== this.thread_id) continue;
      const decision = row.decision && { ...row.decision, by: row.decided_by };
      const { key, arguments: args, expires_at, question } = row;
      this.approvals.set(row.call_id, { key, args, expires_at, question, decision });
    }
  }

  add(task, input) {
    const known = this.find(task.task_id);
    if (known) return Object.assign(known, { input });
    const { task_id, agent, created_at } = task;
    this.runs.push({ task: { ...blank(task_id), thread_id: this.thread_id, agent, created_at }, input });
    this.changed();
    return undefined;
  }

  find(task_id) {
    return this.runs.find(({ task }) => task.task_id === task_id);
  }

  /** The run that works or waits. */
  active() {
    return this.runs.find(({ task }) => !isOver(task));
  }

  last() {
    return this.runs.at(-1);
  }

  // ---- events

  take(event) {
    if (event.seq <= this.seq) {
      this.tally.repeats += 1;
      return;
    }
    if (this.seq !== 0 && event.seq !== this.seq + 1) this.tally.gaps += 1;
    this.seq = event.seq;
    this.tally.events += 1;
    this.logged(event);
    const run = this.runOf(event);
    this.note(run, event);
    // The object may have been fetched after this event.
    if (run && event.seq > run.task.seq) {
      if (!fold(run.task, event)) this.refresh(run);
      else if (isOver(run.task)) this.check(run);
    }
    this.changed();
  }

  /** A thread works on one run at a time, so an event of a sub-agent belongs to the run that is open. */
  runOf({ task_id, type, task }) {
    const known = this.find(task_id);
    if (known) return known;
    if (type !== 'task.created' || task.parent_task_id) {
      return this.runs.find((run) => !isOver(run.task) && run.task.seq > 0);
    }
    const run = { task: blank(task_id), input: [] };
    this.runs.push(run);
    return run;
  }

  /** Keeps what the objects do not have. */
  note(run, event) {
    if (event.type === 'task.created' && run?.task.task_id === event.task_id) run.input = event.task.input;
    if (event.type === 'task.input.added' && run) run.input = [...run.input, ...event.input];
    if (event.type === 'task.approval.requested') {
      const { key, call_id, expires_at, action_requests, question } = event;
      this.approvals.set(call_id, { key, expires_at, args: action_requests[0]?.args, question });
    }
    if (event.type === 'task.approval.resolved') {
      const asked = [...this.approvals.values()].find(({ key }) => key === event.key);
      if (asked) asked.decision = { ...event.decisions[0], by: event.by };
    }
  }

  /** The folded object must equal the server’s. */
  async check(run) {
    const folded = run.task;
    this.ended(run);
    const theirs = await this.api.get(`v1/tasks/${folded.task_id}`).catch(() => undefined);
    if (!theirs || run.task !== folded) return;
    run.same = same(folded, theirs);
    run.task = theirs;
    this.changed();
  }

  /** An event did not fit: the object has to be fetched again. */
  async refresh(run) {
    const { task } = run;
    this.tally.gaps += 1;
    const now = await this.api.get(`v1/tasks/${task.task_id}`).catch(() => undefined);
    if (now && run.task === task && now.seq >= task.seq) run.task = now;
    this.changed();
  }

  connection(state) {
    if (state === 'reconnecting' && this.isLive) this.tally.cuts += 1;
    this.isLive = state === 'live';
    this.state(state);
  }

  /** After 409 the log is another one than before: begin anew. Everything else is for people to read. */
  async refused(error) {
    if (error.status !== 409) return this.failed(error);
    this.runs = [];
    return this.load().catch((again) => this.failed(again));
  }

  // ---- commands

  async cancel(run) {
    const { task_id } = run.task;
    await this.api.post(`v1/tasks/${task_id}/cancel`, { mode: 'immediate' });
    // A run that had not begun has no events.
    if (run.task.seq === 0) run.task = await this.api.get(`v1/tasks/${task_id}`);
    this.changed();
  }

  /** The first decision counts; the server reports if somebody else was first. */
  decide(run, key, decision) {
    return this.api.post(`v1/tasks/${run.task.task_id}/approvals/${key}`, decision);
  }

  /** Reads the log up to the fetched objects. Tells whether it folds to these. */
  async replay() {
    const { snapshot, snapshots } = this;
    const [tasks, events] = [new Map(), []];
    const abort = new AbortController();
    const response = await this.api.send(`${this.follower.path}?after=0`, { signal: abort.signal });
    let current;
    for await (const { data: event } of frames(response.body)) {
      events.push(event);
      if (event.type === 'task.created' && !event.task.parent_task_id) {
        current = blank(event.task_id);
        tasks.set(event.task_id, current);
      }
      if (current && !isOver(current)) fold(current, event);
      if (event.seq >= snapshot) break;
    }
    abort.abort();
    const fits = [...snapshots].every(([id, task]) => task.seq === 0 || task.seq > snapshot || same(tasks.get(id), task));
    return { events, fits };
  }

  /** Stops following while no run is open. */
  rest() {
    if (this.seq === undefined || this.active()) return;
    this.follower.close();
    this.state('idle');
  }

  /** Follows again, or makes sure that it still does. */
  wake() {
    if (this.seq === undefined || this.isClosed) return;
    if (this.follower.isOpen()) this.follower.check(WAKE_SILENCE_MS);
    else this.follower.open(this.seq);
  }

  close() {
    this.isClosed = true;
    this.follower.close();
  }
}

/** What the user said: in the first event of the log, or, before there is one, as the Responses API lists it. */
async function fetchInput(api, { task_id, status }) {
  if (status === 'queued') return [{ role: 'user', content: [{ type: 'text', text: await fetchWords(api, task_id) }] }];
  const abort = new AbortController();
  try {
    const response = await api.send(`v1/tasks/${task_id}/events`, { signal: abort.signal });
    for await (const { data } of frames(response.body)) return data.task?.input ?? [];
  } catch (error) {
    if (error instanceof RequestError && error.status === 401) throw error;
  } finally {
    abort.abort();
  }
  return [];
}

/** The words of a run's input. */
export async function fetchWords(api, task_id) {
  const items = await api.get(`v1/responses/${task_id.replace(/^task_/, 'resp_')}/input_items?order=asc&limit=100`);
  const messages = items.data.filter((item) => item.type === 'message' && item.role === 'user');
  return (messages.at(-1)?.content ?? []).map((part) => part.text ?? part.filename ?? '').filter(Boolean).join(' ');
}
