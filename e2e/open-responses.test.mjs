// What the public suite of Open Responses asks of a server, asked of the demo: 17 checks, of which one needs no server.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { startWorker } from './lib/python.mjs';
import { startServer } from './lib/server.mjs';
import { take } from './lib/sse.mjs';
import { EVENTS, checkCompaction, checkResponse } from './responses/open-responses.mjs';

const PICTURE = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const WEATHER = {
  type: 'function', name: 'get_weather', description: 'Get the current weather for a location',
  parameters: { type: 'object', properties: { location: { type: 'string' } }, required: ['location'] },
};
const message = (role, content, more = {}) => ({ type: 'message', role, content, ...more });

let server;
let python;
before(async () => {
  server = await startServer();
  python = startWorker('responses/socket_sdk.py', server.url);
});
after(async () => {
  await python?.stop();
  await server?.stop();
});

async function answered(input, more = {}) {
  const response = await server.post('/v1/responses', { model: 'demo', input, ...more });
  checkResponse(response);
  assert.equal(response.status, 'completed');
  assert.ok(response.output.length > 0);
  return response;
}

/** Turns on one socket, each of which is checked as a whole. */
async function turns(...requests) {
  const answers = await python.ask('turns', { requests: requests.map((request) => ({ model: 'demo', ...request })) });
  for (const events of answers.filter((events) => events[0].type !== 'error')) {
    for (const { type } of events) assert.ok(EVENTS.has(type), `${type} is no event of Open Responses`);
    checkResponse(events.at(-1).response);
  }
  return answers.map((events) => events.at(-1));
}

const completed = (end) => assert.equal(end.type, 'response.completed', JSON.stringify(end));
const notFound = (end) => assert.deepEqual([end.type, end.status, end.error.code], ['error', 400, 'previous_response_not_found']);

test('a plain answer, a history with phases, a system message, several turns and an object with phases', async () => {
  await answered([message('user', 'Say hello in three words.')]);
  await answered([
    message('assistant', 'I look it up.', { phase: 'commentary' }),
    message('assistant', 'Four.', { phase: 'final_answer' }),
    message('user', 'Repeat the number.'),
  ]);
  await answered([message('system', 'You are a pirate.'), message('user', 'Say hello.')]);
  await answered([message('user', 'I am Alice.'), message('assistant', 'Hello Alice!'), message('user', 'Who am I?')]);
});

test('an event stream has known events and ends with the response', async () => {
  const body = JSON.stringify({ model: 'demo', input: 'Count from 1 to 5.', stream: true });
  const stream = await fetch(`${server.url}/v1/responses`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  const read = (await take(stream)).map(({ data }) => data);
  for (const { type } of read) assert.ok(EVENTS.has(type), type);
  completed(read.at(-1));
  checkResponse(read.at(-1).response);
});

test('a declared function is called, although the agent has one of that name', async () => {
  const response = await answered([message('user', "What's the weather like in San Francisco?")], { tools: [WEATHER] });
  assert.ok(response.output.some((item) => item.type === 'function_call' && item.name === 'get_weather'));
  assert.equal(response.tools[0].strict, null);
});

test('a picture with a question is answered', async () => {
  const content = [{ type: 'input_text', text: 'What do you see in this image? Answer in one sentence.' }, { type: 'input_image', image_url: PICTURE }];
  await answered([message('user', content)]);
});

test('a conversation is compacted, and a request without a model is refused', async () => {
  checkCompaction(await server.post('/v1/responses/compact', { model: 'demo', input: [message('user', 'Hello'), message('assistant', 'Hi!')] }));
  const refused = await fetch(`${server.url}/v1/responses/compact`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ input: 'Hello' }),
  });
  assert.equal(refused.status, 400);
  assert.ok((await refused.json()).error.message);
});

test('a socket answers, answers again, continues, forgets and starts anew', async () => {
  (await turns({ input: [message('user', 'Count from 1 to 3.')] })).forEach(completed);
  (await turns({ store: false, input: 'Say first.' }, { store: false, input: 'Say second.' })).forEach(completed);
  (await turns({ store: false, input: 'Remember cobalt.' }, { store: false, input: 'Which word?', previous_response_id: '$0' })).forEach(completed);
  const [made] = await turns({ store: false, input: 'Remember copper.' });
  const [lost, fresh] = await turns({ store: false, input: 'Which word?', previous_response_id: made.response.id }, { store: false, input: 'Start anew.' });
  notFound(lost);
  completed(fresh);
  notFound((await turns({ store: false, input: 'Fails.', previous_response_id: 'resp_missing_1' }))[0]);
  const unasked = [{ type: 'function_call_output', call_id: 'call_missing', output: '{}' }];
  const ends = await turns(
    { store: false, input: 'Remember ember.' },
    { store: false, input: unasked, previous_response_id: '$0' },
    { store: false, input: 'Which word?', previous_response_id: '$0' },
  );
  completed(ends[0]);
  assert.equal(ends[1].type, 'error');
  notFound(ends[2]);
  const window = await server.post('/v1/responses/compact', { model: 'demo', input: 'Remember quartz.' });
  (await turns({ store: false, tools: [], input: [...window.output, message('user', 'Which word?')] })).forEach(completed);
});
