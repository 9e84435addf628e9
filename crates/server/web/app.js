// The page: start a task, watch its log, reload at any moment.
//
// `fold.js` turns events into the task's object, `draw.js` turns the object into elements, `follow.js` keeps one event
// stream open. This file connects them to the page. The object is the only state: a reload fetches it and continues
// after its `seq`.

import { drawItems, element } from './draw.js';
import { EVENT_TYPES, blank, fold, isOver, same } from './fold.js';
import { Follower, SILENCE_MS } from './follow.js';

const ROWS_MAX = 2_000;
const TITLES_MAX = 50;
const CONNECTION = {
  idle: 'Idle',
  connecting: 'Connecting',
  live: 'Live',
  reconnecting: 'Reconnecting',
  ended: 'Ended',
};
const NO_KEY = 'This server requires a key, which this page cannot send. Use the API, or a server without keys.';

class Page {
  constructor() {
    this.at = (id) => document.getElementById(id);
    this.agent = new URLSearchParams(location.search).get('agent') ?? 'demo';
    this.fresh = [];
    this.at('ask').addEventListener('submit', (e) => {
      e.preventDefault();
      this.start(this.at('input').value.trim());
    });
    this.at('scenarios').addEventListener('click', (e) => {
      const { input } = e.target.closest('button')?.dataset ?? {};
      if (input) this.start(input);
    });
    this.at('output').addEventListener('click', (e) => {
      const { decision, approval } = e.target.closest('button')?.dataset ?? {};
      if (decision) this.decide(approval, decision, e.target.closest('.question'));
    });
    this.at('cancel').addEventListener('click', () => this.cancel());
    this.at('reload').addEventListener('click', () => location.reload());
    this.at('earlier').addEventListener('click', () => this.replay());
    this.at('events').addEventListener('toggle', (e) => unfold(e.target), true);
    addEventListener('hashchange', () => this.route());
    addEventListener('popstate', () => this.route());
    addEventListener('online', () => this.follower?.check(0));
    document.addEventListener('visibilitychange', () => document.hidden || this.follower?.check(SILENCE_MS / 3));
    this.route();
    this.list();
  }

  /** The URL selects the task and its source. */
  async route() {
    const [id, reference] = location.hash.slice(1).split('/');
    if (id !== (this.task?.task_id ?? '')) {
      this.leave();
      if (/^[A-Za-z0-9_-]{1,64}$/.test(id)) await this.load(id);
      this.draw();
    }
    if (reference) this.showSource(reference);
  }

  async load(id) {
    const task = await this.call(`v1/tasks/${id}`);
    if (task && location.hash.slice(1).split('/')[0] === id) this.show(task);
  }

  async start(input) {
    if (!input) return;
    const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');
    const body = { model: this.agent, input, metadata: { title: input } };
    const task = await this.call('v1/tasks', { body, headers: { 'Idempotency-Key': key } });
    if (!task) return;
    remember(task.task_id, input);
    this.leave();
    history.pushState(null, '', `#${task.task_id}`);
    this.at('input').value = '';
    this.show(task);
    this.list();
  }

  async cancel() {
    this.at('cancel').disabled = true;
    await this.call(`v1/tasks/${this.task.task_id}/cancel`, { body: { mode: 'immediate' } });
  }

  /** The first decision counts; the server reports if somebody else was first. */
  async decide(key, decision, card) {
    const buttons = [...card.querySelectorAll('button')];
    for (const button of buttons) button.disabled = true;
    const decided = await this.call(`v1/tasks/${this.task.task_id}/approvals/${key}`, { body: { decision } });
    if (!decided) for (const button of buttons) button.disabled = false;
  }

  /** Fetches JSON. Shows errors on the page unless `quiet`, and returns `undefined` then. */
  async call(path, { body, headers, quiet } = {}) {
    const json = { 'Content-Type': 'application/json', ...headers };
    const post = { method: 'POST', body: JSON.stringify(body), headers: json };
    let problem = '';
    try {
      const response = await fetch(path, { cache: 'no-store', ...(body && post) });
      const answer = await response.json().catch(() => ({}));
      if (response.ok && !quiet) this.showProblem('');
      if (response.ok) return answer;
      problem = response.status === 401 ? NO_KEY : (answer.detail ?? `The server answered ${response.status}.`);
    } catch {
      problem = 'The server does not answer. Is it running?';
    }
    if (!quiet) this.showProblem(problem);
    return undefined;
  }

  showProblem(text) {
    this.at('problem').textContent = text;
    this.at('problem').hidden = text === '';
  }

  // ---- one task

  show(task) {
    this.snapshot = structuredClone(task);
    this.task = task;
    this.tally = { events: 0, gaps: 0, repeats: 0, cuts: 0 };
    document.body.dataset.snapshot = task.seq;
    this.follower = new Follower({
      event: (event) => this.take(event),
      state: (state) => this.state(state),
      stale: () => this.refresh(),
    });
    this.attend();
    this.draw();
  }

  attend() {
    if (!isOver(this.task)) return this.follower.open(this.task);
    this.follower.close();
    return this.state('ended');
  }

  take(event) {
    if (event.seq <= this.task.seq) {
      this.tally.repeats += 1;
      return;
    }
    if (!fold(this.task, event)) {
      this.tally.gaps += 1;
      this.follower.pause();
      this.refresh();
      return;
    }
    this.tally.events += 1;
    this.fresh.push(event);
    if (event.type === 'task.created') remember(event.task_id, words(event));
    if (isOver(this.task)) this.ended();
    this.later();
  }

  /** The stream cannot continue: fetch the task, and continue after it. */
  async refresh() {
    const { follower } = this;
    const now = await this.call(`v1/tasks/${this.task.task_id}`, { quiet: true });
    if (this.follower !== follower || isOver(this.task)) return;
    // No event was missed.
    if (now?.seq === this.task.seq && follower.isOpen()) return;
    if (now && now.seq >= this.task.seq) this.task = now;
    this.attend();
    this.later();
  }

  /** The folded object must equal the server’s. */
  async ended() {
    const { task } = this;
    this.follower.close();
    this.state('ended');
    this.list();
    const theirs = await this.call(`v1/tasks/${task.task_id}`, { quiet: true });
    if (!theirs || this.task !== task) return;
    document.body.dataset.same = same(task, theirs);
    this.task = theirs;
    this.draw();
  }

  leave() {
    this.follower?.close();
    this.follower = this.task = this.snapshot = this.asked = undefined;
    this.fresh = [];
    this.showProblem('');
    delete document.body.dataset.same;
    delete document.body.dataset.snapshot;
    for (const id of ['output', 'events']) this.at(id).replaceChildren();
    this.at('replayed').hidden = true;
    this.at('cancel').disabled = false;
    this.state('idle');
  }

  state(state) {
    if (state === 'reconnecting' && document.body.dataset.connection === 'live') this.tally.cuts += 1;
    document.body.dataset.connection = state;
    this.at('connection-word').textContent = CONNECTION[state];
    this.later();
  }

  /** Draws all events between two frames at once. A hidden page has no frames. */
  later() {
    if (this.due) return;
    this.due = true;
    const draw = () => {
      this.due = false;
      this.draw();
    };
    if (document.hidden) setTimeout(draw, 100);
    else requestAnimationFrame(draw);
  }

  draw() {
    const { task } = this;
    const low = innerHeight + scrollY > document.documentElement.scrollHeight - 80;
    this.at('hero').hidden = Boolean(task);
    this.at('task').hidden = !task;
    document.body.dataset.status = task?.status ?? 'none';
    if (task) {
      drawItems(this.at('output'), task.output, task);
      this.drawHead(task);
      this.drawEnd(task);
      if (low && !isOver(task)) scrollTo(0, document.documentElement.scrollHeight);
    }
    this.drawLog(task);
    this.drawList(task);
    document.title = task ? `${task.status} · Headwater` : 'Headwater';
    document.body.dataset.seq = task?.seq ?? 0;
  }

  drawHead(task) {
    this.asked ??= titleOf(task) ?? titles()[task.task_id];
    this.at('asked').textContent = this.asked ?? task.task_id;
    this.at('status').textContent = task.status;
    this.at('output').setAttribute('aria-busy', String(!isOver(task)));
    const spent = task.ended_at ? [duration(task.ended_at - task.created_at)] : [];
    const tokens = task.usage.output_tokens ? [`${task.usage.output_tokens} tokens`] : [];
    this.at('facts').textContent = [task.agent, ...spent, ...tokens].join(' · ');
    this.at('cancel').hidden = this.at('reload').hidden = isOver(task);
    const url = new URL(`v1/tasks/${task.task_id}`, location.href).href;
    this.at('commands').textContent = [
      `curl -N '${url}/events'`,
      `curl -N '${url}/events?after=${this.snapshot.seq}'`,
      `headwater tail ${task.task_id} --url ${location.origin}`,
    ].join('\n');
  }

  drawEnd(task) {
    const notes = [];
    if (task.error) notes.push(element('p', 'failure', element('b', '', task.error.code), ` ${task.error.message}`));
    else if (task.status === 'cancelled') notes.push(element('p', 'failure', 'Cancelled. The output up to here is kept.'));
    else if (task.status === 'incomplete') notes.push(element('p', 'failure', `Ended by a limit: ${task.reason}.`));
    else if (task.status === 'paused') notes.push(element('p', 'waits', waitsFor(task.pending)));
    const { same: equal } = document.body.dataset;
    const good = `The object folded from events equals the server’s at ${task.seq}.`;
    const bad = 'The object folded from events differed from the server’s and was replaced.';
    if (equal) notes.push(equal === 'true' ? element('p', 'checked', good) : element('p', 'failure', bad));
    this.at('end').replaceChildren(...notes);
    this.at('end').hidden = notes.length === 0;
  }

  showSource(number) {
    const source = document.getElementById(`reference-${number}`);
    source?.scrollIntoView({ block: 'center' });
    source?.focus({ preventScroll: true });
  }

  // ---- the log

  drawLog(task) {
    const list = this.at('events');
    const low = list.scrollTop + list.clientHeight > list.scrollHeight - 40;
    list.append(...this.fresh.splice(0).map(row));
    while (list.children.length > ROWS_MAX) list.firstChild.remove();
    if (low) list.scrollTop = list.scrollHeight;
    this.at('no-events').hidden = Boolean(task);
    const skipped = this.snapshot?.seq ?? 0;
    this.at('earlier').hidden = !task || skipped === 0 || !this.at('replayed').hidden;
    this.at('earlier').textContent = `Events up to ${skipped} are in the fetched object. Show them`;
    const { events, gaps, repeats, cuts } = this.tally ?? {};
    const parts = [`seq ${task?.seq}`, `${events} live`, `${gaps} gaps`, `${repeats} repeats`, cuts && `${cuts} cuts`];
    this.at('counts').textContent = task ? parts.filter(Boolean).join(' · ') : '';
  }

  /** Reads the log up to the fetched object, and checks that it folds to that object. */
  replay() {
    const { snapshot } = this;
    const [task, events] = [blank(snapshot.task_id), []];
    const source = new EventSource(`v1/tasks/${snapshot.task_id}/events?after=0`);
    this.at('replayed').hidden = false;
    this.at('replayed').textContent = 'Reading …';
    source.onerror = () => (this.at('replayed').textContent = 'Cannot read the log. Try again.');
    const take = (message) => {
      const event = JSON.parse(message.data);
      events.push(event);
      fold(task, event);
      if (event.seq < snapshot.seq) return;
      source.close();
      if (this.snapshot !== snapshot) return;
      const fits = same(task, snapshot);
      this.asked = words(events[0]) || this.asked;
      this.at('events').prepend(...events.slice(-ROWS_MAX).map(row));
      this.at('events').scrollTop = 0;
      const verdict = fits ? 'exactly' : 'an object other than';
      const range = `Events ${events[0].seq} to ${snapshot.seq}`;
      this.at('replayed').dataset.same = fits;
      this.at('replayed').textContent = `${range} fold to ${verdict} the fetched object.`;
      this.later();
    };
    for (const type of EVENT_TYPES) source.addEventListener(type, take);
  }

  // ---- the list

  async list() {
    const page = await this.call('v1/tasks?limit=20', { quiet: true });
    const tasks = page?.data ?? [];
    const rows = tasks.map((task) => {
      const title = titleOf(task) ?? titles()[task.task_id];
      const words = title ? title : element('code', '', `${task.task_id.slice(0, 5)}…${task.task_id.slice(-8)}`);
      const link = element('a', '', element('span', '', words), element('small', '', when(task.created_at)));
      link.href = `#${task.task_id}`;
      link.dataset.status = link.title = task.status;
      return element('li', '', link);
    });
    this.at('tasks').replaceChildren(...rows);
    this.at('no-tasks').hidden = rows.length > 0;
    this.later();
  }

  /** The shown task is newer than its row in the list. */
  drawList(task) {
    for (const link of this.at('tasks').querySelectorAll('a')) {
      const current = link.hash === `#${task?.task_id}`;
      link.toggleAttribute('aria-current', current);
      if (current) link.dataset.status = link.title = task.status;
    }
  }
}

function waitsFor(pending) {
  const questions = pending.filter((one) => one.kind === 'approval').length;
  const results = pending.length - questions;
  const parts = [
    questions && (questions === 1 ? 'a decision' : `${questions} decisions`),
    results && (results === 1 ? 'a client tool' : `${results} client tools`),
  ];
  return `Paused: waiting for ${parts.filter(Boolean).join(' and ')}.`;
}

function row(event) {
  const cells = { seq: String(event.seq), type: event.type.replace(/^task\./, ''), gist: gist(event) };
  const head = element('summary', '', ...Object.entries(cells).map(([name, text]) => element('span', name, text)));
  const details = element('details', '', head);
  details.event = event;
  const item = element('li', '', details);
  item.dataset.seq = event.seq;
  item.dataset.type = event.type;
  return item;
}

function unfold(details) {
  if (!details.open || !details.event || details.querySelector('pre')) return;
  details.append(element('pre', '', JSON.stringify(details.event, null, 2)));
}

/** A short summary of an event. */
function gist(e) {
  if (e.delta !== undefined) return typeof e.delta === 'string' ? e.delta : JSON.stringify(e.delta);
  if (e.type === 'task.created') return words(e);
  if (e.item?.type === 'text') return e.item.text ?? '';
  if (e.item?.type === 'image') return e.item.image_url.url.slice(0, 40);
  if (e.item) return [e.item.type.replaceAll('_', ' '), e.item.name, e.item.status].filter(Boolean).join(' · ');
  if (e.annotation) return `[^${e.annotation.reference_id ?? e.annotation.url ?? ''}]`;
  if (e.error) return e.error.code;
  const people = [e.action_requests?.[0]?.name, e.decisions?.[0]?.type, e.by];
  const parts = [...people, e.step && `step ${e.step}`, e.stop_reason, e.state, e.arguments, e.message, e.reason];
  return parts.filter(Boolean).join(' · ');
}

/** The input, from `task.created`. */
function words(event) {
  const parts = event.task?.input?.flatMap((message) => message.content) ?? [];
  return parts.map((part) => part.text ?? '').join(' ').trim();
}

const titleOf = (task) => (typeof task.metadata?.title === 'string' ? task.metadata.title : undefined);

/** The list has no inputs; this browser remembers its own. */
function titles() {
  try {
    return JSON.parse(localStorage.getItem('headwater.titles') ?? '{}');
  } catch {
    return {};
  }
}

function remember(task_id, title) {
  const kept = Object.entries(titles()).filter(([id]) => id !== task_id).slice(1 - TITLES_MAX);
  const now = Object.fromEntries([...kept, [task_id, title.slice(0, 200)]]);
  try {
    localStorage.setItem('headwater.titles', JSON.stringify(now));
  } catch {
    // Storage may be full or disabled; the list shows ids then.
  }
}

const duration = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);

function when(millis) {
  const at = new Date(millis);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) : at.toLocaleDateString();
}

new Page();
