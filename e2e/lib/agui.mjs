// AG-UI's own clients of both generations, and what their streams are checked with.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import * as client1 from '@ag-ui/client';
import * as client0 from 'ag-ui-client-0';
import { EventSchemas as schemas0 } from 'ag-ui-core-0';
import Ajv from 'ajv/dist/2020.js';
import { from } from 'rxjs';
import { PICK } from './scenarios.mjs';
import { deadline, open, take } from './sse.mjs';

const schema = async (name) =>
  JSON.parse(await readFile(new URL(`../../crates/protocol/tests/it/agui/schemas/agui-1.0-${name}.json`, import.meta.url)));
const ajv = new Ajv({ strict: false, allErrors: false });
const isEvent = ajv.compile(await schema('event'));

/** Every frame of 1.0 is valid under its JSON Schema, which knows no further members. */
function check1(event) {
  assert.ok(isEvent(event), `${JSON.stringify(event)}: ${ajv.errorsText(isEvent.errors)}`);
}

function check0(event) {
  const { success, error } = schemas0.safeParse(event);
  assert.ok(success, `${JSON.stringify(event)}: ${error?.message}`);
  for (const member of ['protocolVersion', 'expiresAt']) assert.ok(!JSON.stringify(event).includes(`"${member}"`), `${event.type} has ${member}`);
}

/** `query` asks for the same generation where a request has no body. */
export const V1 = { name: '1.0', client: client1, check: check1, query: 'protocolVersion=1.0' };
export const V0 = { name: '0.0.59', client: client0, check: check0, query: '' };
export const VERSIONS = [V1, V0];

/** The caller's own tool, as AG-UI declares it. */
export const PICK_TOOL = { name: PICK.name, description: PICK.description, parameters: PICK.parameters };

const TERMINAL = /^RUN_(FINISHED|ERROR)$/;

/** How a stream ended, in the words of the task protocol. */
export function statusOf(events) {
  const last = events.findLast(({ type }) => TERMINAL.test(type));
  if (last.type === 'RUN_ERROR') return last.code === 'abort' ? 'cancelled' : 'failed';
  const { type, pendingToolCallIds } = last.outcome ?? {};
  if (type === 'cancelled') return 'cancelled';
  if (type === 'interrupt' || pendingToolCallIds?.length > 0) return 'paused';
  return last.result?.reason ? 'incomplete' : 'completed';
}

/**
 * An agent of the client's own class. `events` are those of its last stream, each checked against the schema of its
 * generation; `streams` are the texts of all. What the client complains about is an error.
 */
export function startAgent(version, server, { threadId, agent = 'demo', path = '', ...more } = {}) {
  const streams = [];
  const http = new version.client.HttpAgent({
    url: `${server.url}/agui/${agent}${path}`,
    threadId,
    ...more,
    fetch: async (url, init) => {
      const response = await fetch(url, { ...init, signal: deadline(init?.signal) });
      if (!response.ok) return response;
      assert.match(response.headers.get('content-type'), /^text\/event-stream\b/);
      const [own, copy] = response.body.tee();
      streams.push(new Response(copy).text().catch(() => ''));
      return new Response(own, { status: response.status, headers: response.headers });
    },
  });
  const events = async () => (await Promise.all(streams)).map(eventsOf);
  return Object.assign(http, {
    streams,
    /** Says something, and follows the run to its end or pause. Gives the events of its stream. */
    say: async (content, parameters) => {
      http.addMessage({ id: crypto.randomUUID(), role: 'user', content });
      return http.go(parameters);
    },
    /** Sends what there is. */
    go: async (parameters = {}) => {
      await withoutWarnings(() => http.runAgent(parameters));
      const last = (await events()).at(-1);
      last.forEach(version.check);
      return last;
    },
  });
}

/** The events of a stream's text. */
export const eventsOf = (text) =>
  text.split('\n\n').flatMap((frame) => /^data: (.*)$/m.exec(frame)?.[1] ?? []).map((data) => JSON.parse(data));

/** Both clients warn where they drop something. */
async function withoutWarnings(work) {
  const { warn, error } = console;
  const complaints = [];
  console.warn = console.error = (...words) => complaints.push(words.map(String).join(' '));
  try {
    await work();
  } finally {
    Object.assign(console, { warn, error });
  }
  assert.deepEqual(complaints, []);
}

/** The client's own reducer over events that came in any way. Gives its messages and its state. */
export async function reduce(version, events) {
  class Reader extends version.client.AbstractAgent {
    run() {
      return from(structuredClone(events));
    }
  }
  const reader = new Reader({ threadId: events[0].threadId });
  await reader.runAgent();
  return { messages: plain(reader.messages), state: reader.state, interrupts: reader.pendingInterrupts };
}

/** Messages without members that are not there. */
export const plain = (messages) => JSON.parse(JSON.stringify(messages));

/** Where a thread's events are. */
export const threadAddress = (version, threadId, agent = 'demo') =>
  `/agui/${agent}/threads/${threadId}/events${version.query && `?${version.query}`}`;

/** What a client without a cursor gets, up to the first frame that `isLast`. */
export async function join(version, server, threadId, isLast = ({ data }) => TERMINAL.test(data.type)) {
  const taken = await take(await open(server.url + threadAddress(version, threadId)), isLast);
  const events = taken.map(({ data }) => data);
  events.forEach(version.check);
  return events;
}

/** The messages of a thread that rests, as its snapshot has them. */
export async function snapshot(version, server, threadId) {
  const events = await join(version, server, threadId);
  return events.find(({ type }) => type === 'MESSAGES_SNAPSHOT').messages;
}

/** What the root of a run says. */
export const textOf = (messages) =>
  messages.filter((message) => message.role === 'assistant' && !message.subagentRunId).map(({ content }) => content ?? '').join('');

/** The content of a tool message as one text. */
export const contentText = (content) =>
  typeof content === 'string' ? content : content.map((part) => part.text ?? `[image ${part.source.value}]`).join('\n');

/** The calls of a run's root, each with its result. */
export function callsOf(messages) {
  const own = messages.filter((message) => !message.subagentRunId);
  const output = ({ id }) => own.find((message) => message.role === 'tool' && message.toolCallId === id)?.content;
  return own.flatMap(({ toolCalls = [] }) => toolCalls).map((call) => {
    const content = output(call);
    return { id: call.id, ...call.function, ...(content !== undefined && { output: contentText(content) }) };
  });
}
