// Summarises a run from the frames of each protocol: its text, its tools, and how it ended.

import assert from 'node:assert/strict';
import { StreamProcessor } from '../blocks/flutter.mjs';
import { useStreamProcessor } from '../blocks/react.mjs';
import { callsOf, reduce, statusOf, textOf } from './agui.mjs';
import { pageModule } from './page-module.mjs';
import { words } from './scenarios.mjs';
import * as ui from './ui-chat.mjs';

const { blank, fold, isItem, ownBlocks, resultOf } = await pageModule();

/** Arguments are compared as what they mean. */
const tool = (name, given, output) => ({ name, arguments: typeof given === 'string' ? JSON.parse(given) : given, output });

/** The task protocol, by the fold of the page. */
export function ofTask(frames) {
  const object = blank(frames[0].data.task_id);
  for (const { data } of frames) assert.ok(fold(object, data), data.type);
  const of = (type) => object.output.filter((item) => item.type === type);
  return {
    text: of('message').flatMap(ownBlocks).map((block) => block.text).join(''),
    tools: of('tool_call').map((call) => tool(call.name, call.arguments, resultText(resultOf(object.output, call.call_id)))),
    status: object.status,
  };
}

/** The words of a result; a sub-agent's are those of its last message. */
function resultText(result) {
  const message = result.block_list.filter(isItem).findLast((item) => item.type === 'message');
  return ownBlocks(message ?? result).map((block) => block.text ?? `[image ${block.image_url.url}]`).join('\n');
}

/** Run items, by the items alone: the raw responses say the same, and more. */
export function ofRunItems(frames) {
  let text = '';
  let status;
  const calls = new Map();
  for (const { data } of frames) {
    if (data.type === 'run_paused') status = 'paused';
    if (data.type === 'run_ended') status = data.status;
    if (data.type !== 'run_item_stream_event') continue;
    const { raw_item, output } = data.item;
    switch (data.name) {
      case 'message_output_created':
        text += raw_item.content.map((part) => part.text).join('');
        break;
      case 'tool_called':
      case 'handoff_requested':
        // A hosted tool has a type of its own, and no name.
        calls.set(raw_item.call_id ?? raw_item.id, tool(raw_item.name ?? raw_item.type, raw_item.arguments));
        break;
      case 'tool_output':
      case 'handoff_occured':
        calls.get(raw_item.call_id).output = output ?? raw_item.output;
        break;
    }
  }
  return { text, tools: [...calls.values()], status };
}

/** A response, by what it says of itself. */
export function ofResponse(response) {
  const calls = response.output.filter((item) => item.type === 'mcp_call');
  return {
    text: words(response),
    tools: calls.map((call) => tool(call.name, call.arguments, call.output)),
    status: response.status,
  };
}

/** A response's events: their deltas must say what the last of them says. */
export function ofResponseEvents(events) {
  const last = ofResponse(events.at(-1).response);
  const deltas = events.filter((event) => event.type === 'response.output_text.delta');
  assert.equal(deltas.map((event) => event.delta).join(''), last.text);
  return last;
}

const STOP_REASONS = { end_turn: 'completed', max_tokens: 'incomplete', error: 'failed', user_stopped: 'cancelled' };

/** Blocks, by both reducers, which must agree. What sub-agents say and do is not the run's own. */
export function ofBlocks(frames) {
  const [react, flutter] = [useStreamProcessor(), new StreamProcessor()];
  for (const { data } of frames) {
    react.handleEvent(data);
    flutter.handleEvent(data);
  }
  const { stop_reason } = frames.findLast(({ event }) => event === 'message_delta').data.delta;
  const told = (blocks, fields) => {
    const own = blocks.filter((block) => !fields(block).subagent);
    const calls = own.filter((block) => block.type === 'tool_use');
    return {
      text: own.filter((block) => block.type === 'text').map((block) => block.text).join(''),
      tools: calls.map((block) => tool(fields(block).name, fields(block).input, block.toolResult)),
      status: STOP_REASONS[stop_reason],
    };
  };
  const end = told(react.state.blocks, (block) => block);
  assert.deepEqual(told(flutter.blocks, (block) => block.data), end);
  return end;
}

/** Agent runs. A call is told with its result, and results come as tools end; their ids count in the order of the calls. */
export function ofAgentRuns(frames) {
  const texts = new Map();
  const results = new Map();
  let status;
  for (const { data } of frames) {
    if (data.type === 'TEXT_MESSAGE_START') texts.set(data.messageId, '');
    if (data.type === 'TEXT_MESSAGE_CONTENT') texts.set(data.messageId, texts.get(data.messageId) + data.delta);
    if (data.type === 'TEXT_MESSAGE_END') assert.equal(data.workerAgentOutput.answer, texts.get(data.messageId));
    // The same call may occur twice: first as pending, then with its result.
    if (data.type === 'TOOL_CALL_RESULT') results.set(data.toolCallId, data.toolAgentOutput);
    if (data.type === 'RUN_FINISHED') status = 'completed';
    if (data.type === 'RUN_ERROR') status = data.message === 'cancelled' ? 'cancelled' : 'failed';
  }
  const inOrder = [...results].sort(([a], [b]) => a.localeCompare(b, 'en', { numeric: true })).map(([, result]) => result);
  return {
    text: [...texts.values()].join(''),
    tools: inOrder.map((result) => tool(result.tool_name, result.tool_call_args, result.result_summary)),
    status,
  };
}

/** AG-UI, by the reducer of its own client. */
export const ofAgUi = (version) => async (frames) => {
  const events = frames.map(({ data }) => data);
  const { messages } = await reduce(version, events);
  return ofAgUiMessages(messages, events);
};

export function ofAgUiMessages(messages, events) {
  const tools = callsOf(messages).map((call) => tool(call.name, call.arguments, call.output));
  return { text: textOf(messages), tools, status: statusOf(events) };
}

/** The UI message stream, by the reducer of the AI SDK. */
export const ofUiStream = (sdk) => async (frames) => {
  const chunks = frames.map(({ data }) => data);
  return ofUiMessage(await ui.reduce(sdk, chunks), chunks);
};

export function ofUiMessage(message, chunks) {
  const own = ui.callsOf(message).filter(({ kind }) => kind !== 'hosted');
  return { text: ui.textOf(message), tools: own.map((call) => tool(call.name, call.input, call.output?.text)), status: ui.statusOf(chunks) };
}

/** A message of Messages. */
export function ofMessage({ content, stop_reason }) {
  const of = (type) => content.filter((block) => block.type === type);
  const output = ({ id }) => of('mcp_tool_result').find((block) => block.tool_use_id === id).content;
  return {
    text: of('text').map((block) => block.text).join(''),
    tools: of('mcp_tool_use').map((call) => tool(call.name, call.input, output(call).map((part) => part.text).join('\n'))),
    status: STOP_REASONS[stop_reason],
  };
}

/** A chat completion, which has no words for tools that the server runs. */
export function ofCompletion({ choices: [{ message, finish_reason }] }) {
  return { text: message.content, status: { stop: 'completed', length: 'incomplete' }[finish_reason] };
}
