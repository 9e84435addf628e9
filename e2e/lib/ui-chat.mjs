// Chats of the AI SDK, of both versions that people have, without a framework around them.

import assert from 'node:assert/strict';
import * as ai7 from 'ai';
import * as ai6 from 'ai-6';
import { PICK } from './scenarios.mjs';
import { deadline } from './sse.mjs';

/** `query` asks the server for that version. */
export const SIX = { name: '6', ai: ai6, query: '' };
export const SEVEN = { name: '7', ai: ai7, query: '?ui=7' };
export const SDKS = [SIX, SEVEN];

/** The caller's own tool, as this server's requests declare it. */
export const PICK_TOOL = { name: PICK.name, description: PICK.description, parameters: PICK.parameters };

/** A chat that posts more often than this goes round in circles. */
const POSTS_MAX = 8;

class State {
  status = 'ready';
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = (message) => (this.messages = [...this.messages, message]);
  popMessage = () => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (at, message) => (this.messages = this.messages.with(at, structuredClone(message)));
  snapshot = (thing) => structuredClone(thing);
}

/**
 * A chat over HTTP. `posts` are the bodies that it sent, `streams` the texts that came; `answers` are what its own tools
 * say, by name. Approvals and outputs are sent by the SDK's own rules.
 */
export function startChat(sdk, server, { id = crypto.randomUUID(), messages = [], answers = {}, body = {} } = {}) {
  const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } = sdk.ai;
  const [posts, streams] = [[], []];
  const transport = new DefaultChatTransport({
    api: `${server.url}/api/chat${sdk.query}`,
    body: { agent: 'demo', ...body },
    fetch: async (url, init) => {
      if (init?.method === 'POST') posts.push(JSON.parse(init.body));
      assert.ok(posts.length <= POSTS_MAX, 'the chat posts again and again');
      const response = await fetch(url, { ...init, signal: deadline(init?.signal) });
      if (response.status !== 200) return response;
      assert.equal(response.headers.get('x-vercel-ai-ui-message-stream'), 'v1');
      const [own, copy] = response.body.tee();
      streams.push(new Response(copy).text().catch(() => ''));
      return new Response(own, { headers: response.headers });
    },
  });
  class Chat extends AbstractChat {
    constructor() {
      super({
        id,
        transport,
        state: new State(messages),
        generateId: () => crypto.randomUUID(),
        sendAutomaticallyWhen: (options) =>
          lastAssistantMessageIsCompleteWithApprovalResponses(options) || lastAssistantMessageIsCompleteWithToolCalls(options),
        onToolCall: ({ toolCall: { toolName: tool, toolCallId } }) => {
          if (tool in answers) void chat.addToolOutput({ tool, toolCallId, output: answers[tool] });
        },
        onError: (error) => chat.errors.push(error),
      });
    }
  }
  const chat = new Chat();
  return Object.assign(chat, {
    posts,
    streams,
    errors: [],
    /** Waits until nothing is sent or received any more. */
    rested: async () => {
      for (let quiet = 0; quiet < 3; ) {
        quiet = ['ready', 'error'].includes(chat.status) ? quiet + 1 : 0;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    /** Says something, and waits for the answer, or for what it asks. */
    say: async (text, options) => {
      await chat.sendMessage({ text }, options);
      await chat.rested();
      return chat.last();
    },
    /** The last answer. */
    last: () => chat.messages.findLast(({ role }) => role === 'assistant'),
  });
}

/** The chunks of a stream's text. */
export const chunksOf = (text) =>
  text.split('\n\n').flatMap((frame) => /^data: (.*)$/m.exec(frame)?.[1] ?? []).filter((data) => data !== '[DONE]').map((data) => JSON.parse(data));

/** A message as JSON has it. */
export const plain = (message) => JSON.parse(JSON.stringify(message));

export const textOf = ({ parts }) => parts.filter(({ type }) => type === 'text').map(({ text }) => text).join('');

/** The calls of a message, without those of sub-agents, which are shown only while they wait. */
export const callsOf = ({ parts }) =>
  parts.filter((part) => part.toolCallId && !part.toolMetadata?.subagent).map((part) => ({
    id: part.toolCallId,
    kind: part.toolMetadata?.kind,
    name: part.toolName ?? part.type.replace(/^tool-/, ''),
    input: part.input,
    state: part.state,
    output: part.output,
    errorText: part.errorText,
    approval: part.approval,
  }));

/** How a stream ended, in the words of the task protocol. */
export function statusOf(chunks) {
  const last = chunks.findLast(({ type }) => ['finish', 'abort', 'error'].includes(type));
  if (chunks.some(({ type }) => type === 'abort')) return 'cancelled';
  if (last.type === 'error') return 'failed';
  return { stop: 'completed', 'tool-calls': 'paused', length: 'incomplete', 'content-filter': 'incomplete' }[last.finishReason];
}

/** The SDK's own reducer over a stream that came in any way. Gives the message that it ends with. */
export async function reduce(sdk, chunks, message) {
  const stream = new ReadableStream({
    start: (controller) => {
      for (const chunk of structuredClone(chunks)) controller.enqueue(chunk);
      controller.close();
    },
  });
  let last = message;
  for await (const one of sdk.ai.readUIMessageStream({ stream, message })) last = one;
  return plain(last);
}
