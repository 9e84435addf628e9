// Folds events into the task's object by the rules of the server. Independent of the page.

const ENDS = {
  'task.completed': 'completed',
  'task.incomplete': 'incomplete',
  'task.failed': 'failed',
  'task.cancelled': 'cancelled',
};

// Members that a `done` may omit because an earlier event had them. The status of an item is in its `done` only.
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

// Events that change nothing on the page.
const QUIET = [
  'task.step.started', 'task.retrying', 'task.recovered', 'task.input.added', 'task.approval.requested',
  'task.state.snapshot', 'task.state.delta', 'task.custom', 'task.provider_event',
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
  'task.step.done': (task, e) => {
    for (const key of Object.keys(task.usage)) task.usage[key] += e.usage[key] ?? 0;
    return true;
  },
  'task.tool.started': (task, e) => setArguments(callOf(task, e, (id) => id === e.call_id), e.arguments, e.original_arguments),
  'task.approval.resolved': approvalResolved,
  'task.tool.progress': (task, e) => {
    progress.set(task, { ...progress.get(task), [e.call_id]: e });
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
  'task.text.annotation.added': cite,
  'task.text.done': (task, e) => settle(blockAt(task, e), e.item) || addBlock(task, e),
  'task.image.added': addBlock,
  'task.image.delta': (task, e) => settle(blockAt(task, e), e.item),
  'task.image.done': (task, e) => settle(blockAt(task, e), e.item) || addBlock(task, e),
  ...Object.fromEntries(Object.keys(ENDS).map((type) => [type, end])),
  ...Object.fromEntries(QUIET.map((type) => [type, () => true])),
};

/** All event types: an `EventSource` delivers named events only to listeners of that name. */
export const EVENT_TYPES = Object.keys(RULES);

// State that is not in the object: the progress of tools.
const progress = new WeakMap();

/** A task before its first event. */
export function blank(task_id) {
  const usage = { input_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, output_tokens: 0, reasoning_tokens: 0 };
  return {
    task_id, thread_id: '', agent: '', status: 'queued', output: [], pending: [], usage,
    error: null, reason: null, metadata: {}, created_at: 0, ended_at: null, seq: 0,
  };
}

/** The last progress of a call's tool. */
export const progressOf = (task, call_id) => progress.get(task)?.[call_id];

/** Applies the next event. Returns false if it does not fit: then the object has to be fetched again. */
export function fold(task, event) {
  if (task.seq !== 0 && event.seq !== task.seq + 1) return false;
  if (isOver(task)) return false;
  task.seq = event.seq;
  const rule = Object.hasOwn(RULES, event.type) ? RULES[event.type] : () => true;
  // The object takes over parts of the event and changes them, so the event is copied.
  return rule(task, structuredClone(event));
}

export const isOver = (task) => Object.values(ENDS).includes(task.status);
export const isItem = (block) => block.type !== 'text' && block.type !== 'image';

/** A task's items: the output of the root, or the result of the call that started the sub-agent. */
function outputOf(task, task_id) {
  if (task_id === task.task_id) return task.output;
  return resultOf(task.output, task_id)?.block_list?.filter(isItem);
}

export function resultOf(items, call_id) {
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

export const ownBlocks = (item) => (item.block_list ?? []).filter((block) => !isItem(block));

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

/** A text has the `id` of the group that it cites first. */
function cite(task, e) {
  const block = blockAt(task, e);
  if (!put(block, 'annotations', e.annotation_index, e.annotation)) return false;
  return assign(block, 'id', block.id ?? e.annotation.reference_id);
}

function status(task, e, word, pending = task.pending) {
  if (e.task_id === task.task_id) Object.assign(task, { status: word, pending });
  return true;
}

const callOf = (task, e, isIt) =>
  outputOf(task, e.task_id)?.find((item) => item.type === 'tool_call' && isIt(item.call_id));

/** The arguments that the tool gets, and those of the model if a person changed them. */
function setArguments(call, args, original) {
  if (!call || (original ?? call.original_arguments) === undefined) return Boolean(call);
  call.arguments = args;
  if (original === undefined) delete call.original_arguments;
  else call.original_arguments = original;
  return true;
}

/** A tool of the client has no start: an edit counts from the decision on. */
function approvalResolved(task, e) {
  const [decision] = e.decisions;
  const call = callOf(task, e, (id) => id.replace(/^[a-z]+_/, 'apr_') === e.key);
  if (decision?.type !== 'edit' || call?.kind !== 'client' || same(parsed(call.arguments), decision.args)) return true;
  return setArguments(call, JSON.stringify(decision.args), call.original_arguments ?? call.arguments);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function end(task, e) {
  if (e.task_id !== task.task_id) return Boolean(resultOf(task.output, e.task_id));
  const reason = e.type === 'task.incomplete' ? e.reason : e.type === 'task.cancelled' ? e.by : null;
  const { usage, error = null } = e;
  Object.assign(task, { status: ENDS[e.type], ended_at: e.at, pending: [], usage, error, reason });
  return true;
}

/** Whether two JSON values are equal, whatever the order of keys. */
export function same(a, b) {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]));
}
