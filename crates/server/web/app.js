// The page: start a task, watch its log, reload at any moment.
//
// Four parts. `fold` turns events into the task's object, by the rules of the server's own fold. `draw` turns the
// object into elements; words of models and tools get in as text nodes only. `Follower` keeps one event stream open
// and says how it is. The rest connects them to the page. There is no state but the object: a reload fetches it and
// goes on after its `seq`.

// -------------------------------------------------------------------------------------------------- events → object

const ENDS = {
  'task.completed': 'completed',
  'task.incomplete': 'incomplete',
  'task.failed': 'failed',
  'task.cancelled': 'cancelled',
};

// What a `done` may leave out because it was said before. How an item ended is the `done`'s alone to say.
const KEPT = {
  reasoning: ['summary', 'agent'],
  tool_call: ['arguments', 'kind', 'display_name', 'gate', 'agent'],
  tool_result: ['block_list', 'summary', 'artifact', 'ui_hints', 'agent'],
  message: ['block_list', 'phase', 'agent'],
  hosted_call: ['block_list', 'state', 'action', 'agent'],
  file_processing: ['agent'],
  text: ['text', 'id', 'annotations', 'refusal'],
  image: ['id'],
};

// What items become whose step was cut.
const CUTS = { error: 'failed', cancelled: 'cancelled', lost: 'recovered' };

// Events that say something but change nothing that is drawn.
const QUIET = [
  'task.retrying', 'task.input.added', 'task.tool.started', 'task.tool.progress', 'task.approval.requested',
  'task.approval.resolved', 'task.state.snapshot', 'task.state.delta', 'task.custom', 'task.provider_event',
  'task.cancelling', 'thread.history.compacted', 'thread.run.hidden',
];

const RULES = {
  'task.created': (task, e) => {
    if (e.task_id !== task.task_id) return true;
    const { thread_id, agent, metadata } = e.task;
    Object.assign(task, { thread_id, agent, metadata, status: 'queued', created_at: e.at });
    return true;
  },
  'task.started': (task, e) => status(task, e, 'running'),
  'task.paused': (task, e) => status(task, e, 'paused', e.pending),
  'task.resumed': (task, e) => status(task, e, 'running', []),
  'task.agent.updated': (task, e) => {
    if (e.task_id === task.task_id) task.agent = e.agent;
    return true;
  },
  'task.step.started': (task, e) => {
    attempts.set(task, { ...attempts.get(task), [e.task_id]: e });
    return true;
  },
  'task.step.done': stepDone,
  'task.recovered': (task, e) => {
    for (const item of outputOf(task, e.task_id) ?? []) if (e.cut.includes(item.id)) dropped.add(item);
    return true;
  },
  'task.output_item.added': itemAdded,
  'task.output_item.done': (task, e) => settle(itemAt(task, e, e.item.id), e.item),
  'task.reasoning_summary_item.added': (task, e) => put(itemAt(task, e), 'summary', e.summary_index, e.item),
  'task.reasoning_summary_text.delta': (task, e) => grow(itemAt(task, e)?.summary?.[e.summary_index], 'text', e.delta),
  'task.reasoning_summary_item.done': (task, e) => {
    const item = itemAt(task, e);
    const part = item?.summary?.[e.summary_index];
    return part ? settle(part, e.item) : put(item, 'summary', e.summary_index, e.item);
  },
  'task.tool_call_arguments.delta': (task, e) => grow(itemAt(task, e), 'arguments', e.delta),
  'task.tool_call_arguments.done': (task, e) => assign(itemAt(task, e), 'arguments', e.arguments),
  'task.hosted_call.updated': (task, e) => {
    const item = itemAt(task, e);
    return assign(item, 'state', e.state) && assign(item, 'action', e.action);
  },
  'task.file_processing.updated': (task, e) => {
    const files = outputOf(task, e.task_id)?.[e.output_index]?.files;
    const now = { url: e.url, status: e.status, ...(e.message === undefined ? {} : { message: e.message }) };
    const at = files?.findIndex((file) => file.url === e.url);
    if (files) files.splice(at < 0 ? files.length : at, 1, now);
    return Boolean(files);
  },
  'task.text.added': addBlock,
  'task.text.delta': (task, e) => grow(blockAt(task, e), 'text', e.delta),
  'task.text.annotation.added': (task, e) => put(blockAt(task, e), 'annotations', e.annotation_index, e.annotation),
  'task.text.done': (task, e) => settle(blockAt(task, e), e.item) || addBlock(task, e),
  'task.image.added': addBlock,
  'task.image.delta': (task, e) => settle(blockAt(task, e), e.item),
  'task.image.done': (task, e) => settle(blockAt(task, e), e.item) || addBlock(task, e),
  ...Object.fromEntries(Object.keys(ENDS).map((type) => [type, end])),
  ...Object.fromEntries(QUIET.map((type) => [type, () => true])),
};

/** Every event type that this page knows: a browser hands over named events only to those who ask for the name. */
export const EVENT_TYPES = Object.keys(RULES);

// What the object does not say: which attempt of a step is open, and which items will be left out at the end.
const attempts = new WeakMap();
const attemptOf = new WeakMap();
const dropped = new WeakSet();

/** A task of which nothing is known yet. */
export function blank(task_id) {
  const usage = { input_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, output_tokens: 0, reasoning_tokens: 0 };
  return {
    task_id, thread_id: '', agent: '', status: 'queued', output: [], pending: [], usage,
    error: null, reason: null, metadata: {}, created_at: 0, ended_at: null, seq: 0,
  };
}

/** Puts the next event into the task's object. False when it does not fit: then the object is to be fetched anew. */
export function fold(task, event) {
  if (task.seq !== 0 && event.seq !== task.seq + 1) return false;
  if (isOver(task)) return false;
  task.seq = event.seq;
  const rule = Object.hasOwn(RULES, event.type) ? RULES[event.type] : () => true;
  // The object takes the event's parts and lets them grow; the event itself stays as it came.
  return rule(task, structuredClone(event));
}

const isOver = (task) => Object.values(ENDS).includes(task.status);
const isItem = (block) => block.type !== 'text' && block.type !== 'image';

/** A task's items: the root's output, or what a sub-agent has put into the result of the call that asked for it. */
function outputOf(task, task_id) {
  if (task_id === task.task_id) return task.output;
  return resultOf(task.output, task_id)?.block_list?.filter(isItem);
}

function resultOf(items, call_id) {
  for (const item of items) {
    if (item.type !== 'tool_result') continue;
    const found = item.call_id === call_id ? item : resultOf((item.block_list ?? []).filter(isItem), call_id);
    if (found) return found;
  }
  return undefined;
}

function itemAt(task, e, id = e.item_id) {
  const item = outputOf(task, e.task_id)?.[e.output_index];
  return item?.id === id ? item : undefined;
}

const ownBlocks = (item) => (item.block_list ?? []).filter((block) => !isItem(block));

function blockAt(task, e) {
  const item = itemAt(task, e);
  return item && ownBlocks(item)[e.block_index];
}

function addBlock(task, e) {
  const item = itemAt(task, e);
  if (!item || ownBlocks(item).length !== e.block_index) return false;
  (item.block_list ??= []).push(e.item);
  return true;
}

function itemAdded(task, e) {
  const items = outputOf(task, e.task_id) ?? [];
  if (items.length !== e.output_index) return false;
  if (e.item.type !== 'tool_result') attemptOf.set(e.item, attempts.get(task)?.[e.task_id]);
  if (e.task_id === task.task_id) task.output.push(e.item);
  else {
    const result = resultOf(task.output, e.task_id);
    if (!result) return false;
    (result.block_list ??= []).push(e.item);
  }
  return true;
}

function settle(held, done) {
  if (!held || held.type !== done.type) return false;
  const kept = KEPT[held.type] ?? [];
  for (const key of Object.keys(held)) if (!kept.includes(key)) delete held[key];
  Object.assign(held, done);
  return true;
}

function grow(held, key, delta) {
  if (!held) return false;
  held[key] = (held[key] ?? '') + delta;
  return true;
}

function assign(held, key, value) {
  if (held && value !== undefined) held[key] = value;
  return Boolean(held);
}

function put(held, key, index, value) {
  if (!held || (held[key]?.length ?? 0) !== index) return false;
  (held[key] ??= []).push(value);
  return true;
}

function status(task, e, word, pending = task.pending) {
  if (e.task_id === task.task_id) Object.assign(task, { status: word, pending });
  return true;
}

function stepDone(task, e) {
  for (const key of Object.keys(task.usage)) task.usage[key] += e.usage[key] ?? 0;
  const why = CUTS[e.stop_reason];
  if (!why) return true;
  for (const item of ofAttempt(outputOf(task, e.task_id) ?? [], attempts.get(task)?.[e.task_id])) {
    item.status = 'incomplete';
    item.reason ??= why;
  }
  return true;
}

/** The items of the attempt that is cut. Somebody who came in the middle of it takes those behind the last result. */
function ofAttempt(items, attempt) {
  if (attempt) return items.filter((item) => attemptOf.get(item) === attempt);
  const behind = items.slice(items.findLastIndex((item) => item.type === 'tool_result') + 1);
  return behind.filter((item) => !item.reason && item.type !== 'file_processing');
}

function end(task, e) {
  if (e.task_id !== task.task_id) {
    const result = resultOf(task.output, e.task_id);
    if (result?.block_list) result.block_list = result.block_list.filter((block) => !isDropped(block));
    return Boolean(result);
  }
  const reason = e.type === 'task.incomplete' ? e.reason : e.type === 'task.cancelled' ? e.by : null;
  const { usage, error = null } = e;
  Object.assign(task, { status: ENDS[e.type], ended_at: e.at, pending: [], usage, error, reason });
  task.output = task.output.filter((item) => !isDropped(item));
  return true;
}

const isDropped = (item) => dropped.has(item) || item.reason === 'recovered';

/** Are two JSON values the same? The order of keys does not count. */
export function same(a, b) {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}

// ------------------------------------------------------------------------------------------------ object → elements

function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** Draws a list of items into `parent`, keeping the elements that are there. */
function drawItems(parent, items, task) {
  const calls = new Map();
  for (const item of items) {
    // A result is drawn inside the card of its call.
    const room = item.type === 'tool_result' ? (calls.get(item.call_id) ?? parent) : parent;
    const node = child(room, item.id, () => element('section', `item ${item.type}`));
    node.dataset.state = item.status ?? '';
    DRAW[item.type]?.(node, item, task);
    if (item.type === 'tool_call') calls.set(item.call_id, node);
    cutNote(node, item);
  }
  const known = new Set(items.map((item) => item.id));
  for (const node of [...parent.children]) if (node.dataset.key && !known.has(node.dataset.key)) node.remove();
}

const DRAW = {
  reasoning(node, item) {
    label(node, 'Thinking');
    (item.summary ?? []).forEach((part, at) => {
      drawText(child(node, `part-${at}`, () => element('p', 'words')), part.text ?? '');
    });
  },
  tool_call(node, item, task) {
    const line = child(node, 'line', () => element('p', 'line', element('b'), element('code', 'arguments')));
    line.firstChild.textContent = item.display_name ?? item.name;
    line.firstChild.title = item.name;
    drawText(line.lastChild, item.arguments ?? '');
    const answered = resultOf(task.output, item.call_id);
    node.classList.toggle('waiting', !answered && !isOver(task) && item.status === 'completed');
  },
  tool_result(node, item, task) {
    drawBlocks(node, item, task);
    drawItems(child(node, 'inner', () => element('div', 'inner')), (item.block_list ?? []).filter(isItem), task);
    if (item.error) child(node, 'error', () => element('p', 'failure')).textContent = item.error.message;
  },
  message(node, item, task) {
    drawBlocks(node, item, task);
  },
  hosted_call(node, item, task) {
    const state = item.status === 'in_progress' ? (item.state ?? '') : '';
    label(node, item.name.replaceAll('_', ' '), state.replaceAll('_', ' '));
    drawBlocks(node, item, task);
  },
  file_processing(node, item) {
    label(node, 'Files');
    item.files.forEach((file, at) => {
      child(node, `file-${at}`, () => element('p', 'words')).textContent = `${file.url} ${file.message ?? file.status}`;
    });
  },
};

/** The child of that name, made when there is none. */
function child(parent, key, make) {
  for (const node of parent.children) if (node.dataset.key === key) return node;
  const node = make();
  node.dataset.key = key;
  parent.append(node);
  return node;
}

function label(node, word, state = '') {
  const line = child(node, 'label', () => element('h3', '', element('span'), element('small')));
  line.firstChild.textContent = word;
  line.lastChild.textContent = state;
}

const CUT_WORDS = { incomplete: 'cut short', rejected: 'not allowed', unknown: 'nobody knows whether it was done' };

function cutNote(node, item) {
  if (!Object.hasOwn(CUT_WORDS, item.status)) return;
  const note = child(node, 'cut', () => element('p', 'cut'));
  note.textContent = CUT_WORDS[item.status] + (item.reason ? `: ${item.reason}` : '');
  node.append(note);
}

function drawBlocks(node, item, task) {
  ownBlocks(item).forEach((block, at) => {
    const drawn = child(node, `block-${at}`, () => element(block.type === 'text' ? 'p' : 'figure', block.type));
    if (block.id !== undefined && item.type === 'tool_result') {
      drawn.dataset.reference = block.id;
      if (!document.getElementById(`reference-${block.id}`)) {
        drawn.id = `reference-${block.id}`;
        drawn.tabIndex = -1;
      }
    }
    if (block.type === 'text') drawText(drawn, block.text ?? '', block.annotations ?? [], task);
    else drawImage(drawn, block, item);
  });
}

/** Draws words. Most often they have only grown, and then the last text node grows with them. */
function drawText(node, text, annotations = [], task = undefined) {
  const before = node.drawn ?? { text: '', marks: 0 };
  if (before.text === text && before.marks === annotations.length) return;
  const tail = node.lastChild;
  if (before.marks === annotations.length && text.startsWith(before.text) && tail?.nodeType === Node.TEXT_NODE) {
    tail.appendData(text.slice(before.text.length));
  } else {
    node.replaceChildren(...pieces(text, annotations, task));
  }
  node.drawn = { text, marks: annotations.length };
}

/** Cuts words at their annotations. Offsets count code points, which JavaScript's own do not. */
function pieces(text, annotations, task) {
  const points = Array.from(text);
  const out = [];
  let at = 0;
  const sorted = annotations.filter((mark) => mark.start_index >= 0).sort((a, b) => a.start_index - b.start_index);
  for (const mark of sorted) {
    if (mark.start_index < at || mark.end_index > points.length) continue;
    out.push(points.slice(at, mark.start_index).join(''));
    out.push(citation(mark, points.slice(mark.start_index, mark.end_index).join(''), task));
    at = mark.end_index;
  }
  out.push(document.createTextNode(points.slice(at).join('')));
  return out;
}

function citation(mark, words, task) {
  const link = element('a', 'citation');
  if (mark.type === 'reference_to_block') {
    // The marker's brackets stay in the text, for those who copy it, and out of sight.
    const number = String(mark.reference_id);
    const [open, close] = words.split(number, 2);
    link.append(element('span', 'quiet', open ?? ''), number, element('span', 'quiet', close ?? ''));
    link.href = `#${task.task_id}/${number}`;
    link.title = `Source ${number}`;
    return link;
  }
  link.append(words);
  link.classList.add('page');
  if (/^https?:\/\//i.test(mark.url ?? '')) {
    const title = mark.title ?? mark.url;
    Object.assign(link, { href: mark.url, title, target: '_blank', rel: 'noopener noreferrer' });
  }
  return link;
}

function drawImage(node, block, item) {
  const { url } = block.image_url;
  if (url === '' || node.drawn === url) return;
  node.drawn = url;
  // Pictures from elsewhere would tell that elsewhere who is looking.
  if (!/^data:image\/|^\/v1\/blobs\//.test(url)) {
    node.replaceChildren(element('span', 'elsewhere', url));
    return;
  }
  const picture = node.querySelector('img') ?? node.appendChild(element('img'));
  picture.alt = item.name ? `Picture by ${item.name.replaceAll('_', ' ')}` : 'Picture from the tool';
  picture.src = url;
}

// ------------------------------------------------------------------------------------------------------- the stream

const SILENCE_MS = 45_000;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8_000;

/** Keeps a task's event stream open. A cut that the browser can mend, it mends; after any other the task is fetched. */
class Follower {
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

// ---------------------------------------------------------------------------------------------------------- the page

const ROWS_MAX = 2_000;
const TITLES_MAX = 50;
const CONNECTION = {
  idle: 'Idle',
  connecting: 'Connecting',
  live: 'Live',
  reconnecting: 'Reconnecting',
  ended: 'Ended',
};
const NO_KEY = 'This server asks for a key, which this page cannot send. Use the API, or a server without keys.';

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

  /** The address says which task is shown, and which of its sources. */
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

  /** Fetches JSON. What goes wrong is said on the page, unless that is `quiet`, and then there is no answer. */
  async call(path, { body, headers, quiet } = {}) {
    const json = { 'Content-Type': 'application/json', ...headers };
    const post = { method: 'POST', body: JSON.stringify(body), headers: json };
    let said = '';
    try {
      const response = await fetch(path, { cache: 'no-store', ...(body && post) });
      const answer = await response.json().catch(() => ({}));
      if (response.ok && !quiet) this.say('');
      if (response.ok) return answer;
      said = response.status === 401 ? NO_KEY : (answer.detail ?? `The server answered ${response.status}.`);
    } catch {
      said = 'The server does not answer. Is it running?';
    }
    if (!quiet) this.say(said);
    return undefined;
  }

  say(words) {
    this.at('problem').textContent = words;
    this.at('problem').hidden = words === '';
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

  /** The stream cannot go on by itself: take the task as the server has it, and go on from there. */
  async refresh() {
    const { follower } = this;
    const now = await this.call(`v1/tasks/${this.task.task_id}`, { quiet: true });
    if (this.follower !== follower || isOver(this.task)) return;
    // Nothing was missed: it was only quiet.
    if (now?.seq === this.task.seq && follower.isOpen()) return;
    if (now && now.seq >= this.task.seq) this.task = now;
    this.attend();
    this.later();
  }

  /** What was folded here must be what the server has. */
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
    this.say('');
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

  /** Many events may come between two frames; they are drawn at once. A hidden page has no frames. */
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
    const said = [];
    if (task.error) said.push(element('p', 'failure', element('b', '', task.error.code), ` ${task.error.message}`));
    else if (task.status === 'cancelled') said.push(element('p', 'failure', 'Stopped. What had come by then is kept.'));
    else if (task.status === 'incomplete') said.push(element('p', 'failure', `Ended by a limit: ${task.reason}.`));
    else if (task.status === 'paused') said.push(element('p', 'failure', 'Waits for an answer from people.'));
    const { same: equal } = document.body.dataset;
    const good = `What this page put together from events equals the server’s object at ${task.seq}.`;
    const bad = 'The page had drawn something else than the server has. It was drawn anew.';
    if (equal) said.push(equal === 'true' ? element('p', 'checked', good) : element('p', 'failure', bad));
    this.at('end').replaceChildren(...said);
    this.at('end').hidden = said.length === 0;
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
    this.at('earlier').textContent = `Up to ${skipped} came with the object. Show them`;
    const { events, gaps, repeats, cuts } = this.tally ?? {};
    const parts = [`seq ${task?.seq}`, `${events} live`, `${gaps} gaps`, `${repeats} repeats`, cuts && `${cuts} cuts`];
    this.at('counts').textContent = task ? parts.filter(Boolean).join(' · ') : '';
  }

  /** Reads the log from its start up to the object that was fetched, and checks that it folds to just that object. */
  replay() {
    const { snapshot } = this;
    const [task, events] = [blank(snapshot.task_id), []];
    const source = new EventSource(`v1/tasks/${snapshot.task_id}/events?after=0`);
    this.at('replayed').hidden = false;
    this.at('replayed').textContent = 'Reading …';
    source.onerror = () => (this.at('replayed').textContent = 'The log could not be read. Try again.');
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
      const verdict = fits ? 'exactly' : 'something else than';
      const range = `Events ${events[0].seq} to ${snapshot.seq}`;
      this.at('replayed').dataset.same = fits;
      this.at('replayed').textContent = `${range} fold to ${verdict} the object that was fetched.`;
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

  /** The task that is shown is known better than the list knows it. */
  drawList(task) {
    for (const link of this.at('tasks').querySelectorAll('a')) {
      const current = link.hash === `#${task?.task_id}`;
      link.toggleAttribute('aria-current', current);
      if (current) link.dataset.status = link.title = task.status;
    }
  }
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

/** A few words on an event. */
function gist(e) {
  if (e.delta !== undefined) return typeof e.delta === 'string' ? e.delta : JSON.stringify(e.delta);
  if (e.type === 'task.created') return words(e);
  if (e.item?.type === 'text') return e.item.text ?? '';
  if (e.item?.type === 'image') return e.item.image_url.url.slice(0, 40);
  if (e.item) return [e.item.type.replaceAll('_', ' '), e.item.name, e.item.status].filter(Boolean).join(' · ');
  if (e.annotation) return `[^${e.annotation.reference_id ?? e.annotation.url ?? ''}]`;
  if (e.error) return e.error.code;
  const said = [e.step && `step ${e.step}`, e.stop_reason, e.state, e.arguments, e.message, e.reason];
  return said.filter(Boolean).join(' · ');
}

/** What was asked for, as `task.created` says. */
function words(event) {
  const parts = event.task?.input?.flatMap((message) => message.content) ?? [];
  return parts.map((part) => part.text ?? '').join(' ').trim();
}

const titleOf = (task) => (typeof task.metadata?.title === 'string' ? task.metadata.title : undefined);

/** The list does not say what was asked for; this browser remembers what it asked itself. */
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
    // Storage may be full or forbidden. Then the list shows ids.
  }
}

const duration = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);

function when(millis) {
  const at = new Date(millis);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) : at.toLocaleDateString();
}

if (typeof document !== 'undefined') new Page();
