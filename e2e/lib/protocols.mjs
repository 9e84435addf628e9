// Every protocol that can resume: where it tells a run, and how it is followed from there, or from a place that it gave.
//
// A place is what a frame carries for those who come back, and how it is sent: in a header, or with what is asked.

import assert from 'node:assert/strict';
import { V0, V1, threadAddress } from './agui.mjs';
import { responseId } from './scenarios.mjs';
import { messages } from './socket.mjs';
import { frames, open } from './sse.mjs';
import { SEVEN, SIX } from './ui-chat.mjs';

const ENDS = /^(task\.(completed|incomplete|failed|cancelled)|run_ended)$/;

async function* sse(url, { headers } = {}) {
  const response = await open(url, headers);
  if (response) yield* frames(response);
}

/** An address with one thing more to ask. */
const asking = (address, name, value) => `${address}${address.includes('?') ? '&' : '?'}${name}=${value}`;

/** Frames with an `id`, over HTTP. */
const withIds = (name, address, isLast) => ({
  name,
  hasCursors: true,
  addresses: (run) => [address(run)],
  isLast,
  place: (frame) => ({ header: frame.id }),
  follow: (url, at, { header, query } = {}) =>
    sse(url + (query === undefined ? at : asking(at, 'after', query)), { headers: header && { 'last-event-id': header } }),
  refusal: async (url, at, { query }) => {
    const response = await fetch(url + asking(at, 'after', query));
    assert.equal(response.status, 409);
    return (await response.json()).code;
  },
});

// Sub-agents end, too; the run ends with its own task.
const isEnd = (frame, { task_id }) => ENDS.test(frame.event) && (frame.data.task_id ?? task_id) === task_id;

export const task = withIds('task', ({ task_id }) => `/v1/tasks/${task_id}/events`, isEnd);

export const taskThread = {
  ...withIds('task, the whole thread', ({ thread_id }) => `/v1/threads/${thread_id}/events`, isEnd),
  neverEnds: true,
};

export const runItems = withIds('run items', ({ task_id }) => `/v1/tasks/${task_id}/events?format=run-items`, isEnd);

export const runItemsThread = {
  ...withIds('run items, the whole thread', ({ thread_id }) => `/v1/threads/${thread_id}/events?format=run-items`, isEnd),
  neverEnds: true,
};

export const agentRuns = {
  ...withIds(
    'agent runs',
    ({ thread_id }) => `/api/v1/agent/runs/${thread_id}/events`,
    (frame, { task_id }) => /^RUN_(FINISHED|ERROR)$/.test(frame.event) && frame.data.runId === task_id,
  ),
  neverEnds: true,
};

/**
 * AG-UI. Without a place it gives a snapshot first, which is no part of the log: these readers begin before the first record.
 * A run's part after a pause has an id of its own; 0.0.59 does not say that a part waits for a tool of the client.
 */
const agui = (version) => {
  const rows = withIds(
    `AG-UI ${version.name}`,
    ({ thread_id }) => threadAddress(version, thread_id),
    ({ event, data }, { task_id, parts }) =>
      event === 'RUN_ERROR' ||
      (event === 'RUN_FINISHED' && data.outcome?.type !== 'interrupt' && !data.outcome?.pendingToolCallIds &&
        (!parts || !data.runId.startsWith('task_') || data.runId === task_id + (parts > 1 ? `_${parts}` : ''))),
  );
  return { ...rows, neverEnds: true, follow: (url, at, place = { query: 0 }) => rows.follow(url, at, place) };
};

export const agui1 = agui(V1);
export const agui0 = agui(V0);

/** The UI message stream. Without a place it is a replay, which has no cursors: these readers begin before the first record. */
const uiStream = ({ name, query }) => {
  const rows = withIds(`UI message stream ${name}`, ({ thread_id }) => `/api/chat/${thread_id}/stream${query}`, () => false);
  return { ...rows, follow: (url, at, place = { query: 0 }) => rows.follow(url, at, place) };
};

export const uiStream6 = uiStream(SIX);
export const uiStream7 = uiStream(SEVEN);

async function* blocksFrames(url, message) {
  for await (const text of messages(`${url}/ws`, message)) {
    const data = JSON.parse(text);
    if (data.type === 'error') throw Object.assign(new Error(text), data);
    yield { text, id: data.cursor, event: data.type, data };
  }
}

export const blocks = {
  name: 'blocks',
  neverEnds: true,
  hasCursors: true,
  addresses: ({ thread_id }) => [thread_id],
  isLast: (frame, { task_id }) => frame.event === 'message_stop' && frame.data.message_id === task_id,
  place: (frame) => ({ query: frame.id }),
  follow: (url, session_id, { query } = {}) =>
    blocksFrames(url, { type: 'resume', session_id, after: query === undefined ? undefined : `${query}` }),
  /** Says something that has more to it, and follows what comes. */
  say: blocksFrames,
  /** Begins a run in a session of this name, and follows it. */
  begin: (url, session_id, content) => blocksFrames(url, { type: 'chat', session_id, content }),
  refusal: async (url, session_id, place) => {
    const error = await blocks.follow(url, session_id, place).next().then(() => undefined, (error) => error);
    return error?.code;
  },
};

/** Its parts between two pauses are responses of their own, and count by themselves. */
export const responses = {
  name: 'responses',
  addresses: ({ task_id, parts = 1 }) =>
    Array.from({ length: parts }, (_, at) => `/v1/responses/${responseId(task_id, at + 1)}?stream=true`),
  isLast: (frame) => /^response\.(completed|incomplete|failed)$/.test(frame.event),
  place: (frame) => ({ query: frame.data.sequence_number }),
  follow: (url, at, { query } = {}) => sse(url + (query === undefined ? at : asking(at, 'starting_after', query))),
};
