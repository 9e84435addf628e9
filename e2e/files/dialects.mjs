// How each service of models is told what people and tools gave, and how it answers.
//
// `said` finds what the user said last in a request, `got` what the last tool gave. `words`, `picture` and `paper` are how
// each kind of part must then look. `answer` is a stream of events: words, or a call of a tool.

import assert from 'node:assert/strict';
import { dataUrl } from './made.mjs';

/** What the user said last, if that is more than a text. Hints on what to remember are the service's own business. */
function lastUser(messages) {
  const { content } = messages.findLast(({ role }) => role === 'user');
  return typeof content === 'string' ? content : content.map(({ cache_control: _, ...part }) => part);
}
const png = (bytes) => dataUrl('image/png', bytes);
const pdf = (bytes) => dataUrl('application/pdf', bytes);

function responsesAnswer({ text, call, draw }) {
  const response = { id: 'resp_1', object: 'response', created_at: 1, status: 'in_progress', model: 'm', output: [] };
  const events = [['response.created', { response }]];
  const output = [];
  const add = (item, between) => {
    const output_index = output.length;
    const { content: _, result: __, ...begun } = item;
    const empty = item.type === 'message' ? { ...begun, content: [] } : begun;
    events.push(['response.output_item.added', { output_index, item: { ...empty, status: 'in_progress' } }]);
    for (const [type, data] of between) events.push([type, { item_id: item.id, output_index, ...data }]);
    events.push(['response.output_item.done', { output_index, item: { ...item, status: 'completed' } }]);
    output.push({ ...item, status: 'completed' });
  };
  if (draw) {
    const partial = (b64, at) => [
      'response.image_generation_call.partial_image',
      { partial_image_index: at, partial_image_b64: b64, size: '1024x1024', output_format: 'png' },
    ];
    add({ id: 'ig_1', type: 'image_generation_call', output_format: 'png', result: draw.at(-1) }, [
      ['response.image_generation_call.in_progress', {}],
      ['response.image_generation_call.generating', {}],
      ...draw.slice(0, -1).map(partial),
      ['response.image_generation_call.completed', {}],
    ]);
  }
  if (call) {
    const given = JSON.stringify(call.arguments);
    add({ id: 'fc_1', type: 'function_call', call_id: 'call_1', name: call.name, arguments: given }, [
      ['response.function_call_arguments.delta', { delta: given }],
      ['response.function_call_arguments.done', { arguments: given }],
    ]);
  } else {
    const part = { type: 'output_text', annotations: [], text };
    add({ id: 'msg_1', type: 'message', role: 'assistant', content: [part] }, [
      ['response.content_part.added', { content_index: 0, part: { ...part, text: '' } }],
      ['response.output_text.delta', { content_index: 0, delta: text }],
      ['response.output_text.done', { content_index: 0, text }],
      ['response.content_part.done', { content_index: 0, part }],
    ]);
  }
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  events.push(['response.completed', { response: { ...response, status: 'completed', output, usage } }]);
  return events.map(([type, data], sequence_number) => ({ event: type, data: { type, sequence_number, ...data } }));
}

function chatAnswer({ text, call }) {
  const chunk = (delta, finish_reason = null) => ({
    data: { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason }] },
  });
  if (!call) return [chunk({ role: 'assistant', content: text }), chunk({}, 'stop'), { data: '[DONE]' }];
  const given = { name: call.name, arguments: JSON.stringify(call.arguments) };
  const tool_calls = [{ index: 0, id: 'call_1', type: 'function', function: given }];
  return [chunk({ role: 'assistant', tool_calls }), chunk({}, 'tool_calls'), { data: '[DONE]' }];
}

function messagesAnswer({ text, call }) {
  const usage = { input_tokens: 1, output_tokens: 1 };
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null, stop_sequence: null, usage };
  const block = call ? { type: 'tool_use', id: 'toolu_1', name: call.name, input: {} } : { type: 'text', text: '' };
  const delta = call ? { type: 'input_json_delta', partial_json: JSON.stringify(call.arguments) } : { type: 'text_delta', text };
  return [
    { type: 'message_start', message },
    { type: 'content_block_start', index: 0, content_block: block },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: call ? 'tool_use' : 'end_turn', stop_sequence: null }, usage },
    { type: 'message_stop' },
  ].map((data) => ({ event: data.type, data }));
}

export const DIALECTS = [
  {
    name: 'responses',
    kind: 'openai-responses',
    path: '/v1/responses',
    said: ({ input }) => lastUser(input),
    got: ({ input }) => input.findLast(({ type }) => type === 'function_call_output')?.output,
    words: (text) => ({ type: 'input_text', text }),
    picture: (bytes) => ({ type: 'input_image', detail: 'auto', image_url: png(bytes) }),
    pictureAt: (url) => ({ type: 'input_image', detail: 'auto', image_url: url }),
    paper: (bytes, filename) => ({ type: 'input_file', filename, file_data: pdf(bytes) }),
    answer: responsesAnswer,
  },
  {
    name: 'chat',
    kind: 'openai-chat',
    path: '/v1/chat/completions',
    said: ({ messages }) => lastUser(messages),
    // A result is words in this dialect: its pictures are said by the user, right behind it.
    got: ({ messages }) => {
      const at = messages.findLastIndex(({ role }) => role === 'tool');
      if (at < 0) return undefined;
      assert.equal(typeof messages[at].content, 'string');
      return messages[at + 1].content;
    },
    words: (text) => ({ type: 'text', text }),
    picture: (bytes) => ({ type: 'image_url', image_url: { url: png(bytes) } }),
    pictureAt: (url) => ({ type: 'image_url', image_url: { url } }),
    paper: (bytes, filename) => ({ type: 'file', file: { filename, file_data: pdf(bytes) } }),
    answer: chatAnswer,
  },
  {
    name: 'messages',
    kind: 'anthropic',
    path: '/v1/messages',
    said: ({ messages }) => lastUser(messages),
    got: ({ messages }) => {
      const results = messages.flatMap(({ content }) => content).filter(({ type }) => type === 'tool_result');
      return results.at(-1)?.content;
    },
    words: (text) => ({ type: 'text', text }),
    picture: (bytes) => ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: bytes.toString('base64') } }),
    pictureAt: (url) => ({ type: 'image', source: { type: 'url', url } }),
    paper: (bytes, title) => ({
      type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: bytes.toString('base64') }, title,
    }),
    answer: messagesAnswer,
  },
];
