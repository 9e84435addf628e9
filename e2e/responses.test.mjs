// Responses, read by the openai SDKs for Python and Node: every scenario of the demo, from every cursor.

import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import OpenAI from 'openai';
import { startWorker } from './lib/python.mjs';
import { SCENARIOS, each, request, said, words } from './lib/scenarios.mjs';
import { startServer } from './lib/server.mjs';
import { open, take } from './lib/sse.mjs';
import { Disorder, checkFrames, checkOrder } from './responses/order.mjs';

let server;
let python;
let node;
before(async () => {
  server = await startServer();
  python = startWorker('responses/openai_sdk.py', server.url);
  node = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  await python?.stop();
  await server?.stop();
});

const create = (params) => python.ask('call', { path: 'responses.create', ...params });
const retrieve = (response_id, params) => python.ask('call', { path: 'responses.retrieve', response_id, ...params });
const scenario = (input) => SCENARIOS.find((one) => one.input === input);

/** What a helper adds to an object when it is asked to parse it: nothing, here. */
const unparsed = (value) => JSON.parse(JSON.stringify(value, (key, inner) => (key === 'parsed' || key === 'parsed_arguments' ? undefined : inner)));

/** Everything that a scenario must show, in a response that has ended or waits. */
function holds({ text, tools = [], cites = [], thinks = 0, asks, question, pictures, end = 'completed' }, response) {
  assert.equal(response.status, end);
  assert.match(words(response), text);
  const of = (type) => response.output.filter((item) => item.type === type);
  assert.deepEqual(of('reasoning').map((item) => item.summary.length), thinks ? [thinks] : []);
  const calls = of('mcp_call');
  assert.deepEqual(calls.map((call) => call.name), tools.map((tool) => tool.name));
  calls.forEach((call, at) => {
    assert.deepEqual([call.status, call.error, call.server_label], ['completed', null, 'headwater']);
    if (tools[at].arguments instanceof RegExp) assert.match(call.arguments, tools[at].arguments);
    else assert.equal(call.arguments, tools[at].arguments);
    assert.match(call.output, tools[at].output);
  });
  const annotations = of('message').flatMap((item) => item.content).flatMap((part) => part.annotations);
  assert.deepEqual(annotations.map((one) => [one.type, one.title]), cites.map((n) => ['url_citation', `[${n}]`]));
  for (const { url } of annotations) assert.match(url, /^headwater:\/threads\/thr_\w+\/references\/1$/);
  const questions = of('mcp_approval_request').map(({ name, arguments: given }) => ({ name, arguments: given }));
  assert.deepEqual(questions, asks === 'approval' ? [question] : []);
  const own = of('function_call').map(({ name, arguments: given, status }) => [name, given, status]);
  assert.deepEqual(own, asks === 'client_tool' ? [['pick', '{}', 'completed']] : []);
  assert.equal(of('image_generation_call').length, pictures ? 1 : 0);
}

test('every scenario streams in order, matches the types of the SDK, and ends with what GET returns', async () => {
  await each(async (one) => {
    const events = await create(request(one, { stream: true }));
    checkOrder(events);
    assert.deepEqual(await python.ask('misfits', { kind: 'event', values: events }), [], one.input);
    const { response } = events.at(-1);
    holds(one, response);
    assert.equal(said(events), words(response), one.input);
    if (one.words) assert.equal(events.filter((event) => event.type === 'response.output_text.delta').length, one.words);
    const pictures = events.filter((event) => event.type === 'response.image_generation_call.partial_image');
    assert.equal(pictures.length, one.pictures ?? 0);
    const got = await retrieve(response.id);
    assert.deepEqual(got, response, one.input);
    assert.deepEqual(await python.ask('misfits', { kind: 'response', values: [got] }), [], one.input);
  });
});

test('the Python SDK accumulates what GET returns, for every scenario and from every cursor', async () => {
  await each(async (one) => {
    const live = await python.ask('stream', request(one));
    const { response } = live.events.at(-1);
    const expected = await retrieve(response.id);
    const agrees = ({ events, final, text, why }, place) => {
      assert.deepEqual(unparsed(events.at(-1).response), expected, `${one.input} from ${place}`);
      const snapshots = events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.snapshot);
      if (snapshots.length > 0) assert.ok(words(expected).endsWith(snapshots.at(-1)), `${one.input} from ${place}`);
      if (one.end === 'failed') return assert.match(why, /Didn't receive a `response\.completed` event/);
      assert.deepEqual(unparsed(final), expected, `${one.input} from ${place}`);
      return assert.equal(text, words(expected));
    };
    agrees(live, 'the start');
    for (const { sequence_number: starting_after } of live.events.slice(0, -1)) {
      const resumed = await python.ask('stream', { response_id: response.id, starting_after });
      assert.deepEqual(resumed.events, live.events.slice(starting_after + 1), `${one.input} from ${starting_after}`);
      agrees(resumed, starting_after);
    }
  });
});

test('retrieve with starting_after gives exactly the rest, for every scenario and from every cursor', async () => {
  await each(async (one) => {
    const events = await create(request(one, { stream: true }));
    const { id } = events[0].response;
    assert.deepEqual(await retrieve(id, { stream: true }), events, one.input);
    for (const { sequence_number: starting_after } of events) {
      const rest = await retrieve(id, { stream: true, starting_after });
      assert.deepEqual(rest, events.slice(starting_after + 1), `${one.input} from ${starting_after}`);
    }
  });
});

test('a live stream that is dropped at any event resumes there', async () => {
  const whole = await create(request({ input: 'story 20' }, { stream: true }));
  const places = whole.map((event) => event.sequence_number);
  // Concurrently: a dropped reader must not disturb another.
  await Promise.all(
    places.map(async (until) => {
      const first = await create(request({ input: 'story 20' }, { stream: true, until }));
      const { id } = first[0].response;
      assert.equal(first.length, until + 1);
      const rest = await retrieve(id, { stream: true, starting_after: until });
      const events = [...first, ...rest];
      checkOrder(events);
      assert.equal(said(events), said(whole));
      assert.deepEqual(events.at(-1).response, await retrieve(id));
    }),
  );
});

test('the Node SDK accumulates what GET returns, for every scenario and from every cursor', async () => {
  await each(async (one) => {
    const raw = [];
    for await (const event of await node.responses.create(request(one, { stream: true }))) raw.push(event);
    checkOrder(raw);
    const { id } = raw[0].response;
    const expected = plainNode(await node.responses.retrieve(id));
    holds(one, expected);
    for (const starting_after of [undefined, ...raw.slice(0, -1).map((event) => event.sequence_number)]) {
      const stream = node.responses.stream({ response_id: id, starting_after });
      const events = [];
      for await (const event of stream) events.push(event);
      assert.deepEqual(events, raw.slice((starting_after ?? -1) + 1), `${one.input} from ${starting_after}`);
      assert.deepEqual(plainNode(await stream.finalResponse()), expected, `${one.input} from ${starting_after}`);
    }
  });
});

test('the helper of the Node SDK follows a stream, drops it, and resumes', async () => {
  const stream = node.responses.stream(request(scenario('weather')));
  let text = '';
  let last;
  for await (const event of stream) {
    last = event;
    if (event.type === 'response.created') text = '';
    if (event.type === 'response.output_text.delta') {
      text += event.delta;
      break;
    }
  }
  const id = last.item_id.replace(/^msg_([0-9a-f]{32}).*$/, 'resp_$1');
  for await (const event of await node.responses.retrieve(id, { stream: true, starting_after: last.sequence_number })) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  holds(scenario('weather'), last.response);
  assert.equal(text, words(last.response));
});

/** The helper adds what it parsed, and `output_text`. */
const plainNode = ({ output_text: _, output_parsed: __, _request_id: ___, ...rest }) => unparsed(rest);

test('a response without streaming equals GET and the end of the stream', async () => {
  await each(async (one) => {
    const response = await create(request(one));
    holds(one, response);
    assert.deepEqual(await retrieve(response.id), response, one.input);
    const events = await retrieve(response.id, { stream: true });
    checkOrder(events);
    assert.deepEqual(events.at(-1).response, response);
  });
});

test('the stream is server-sent events as every client reads them, and ends with [DONE]', async () => {
  const { id } = await create(request(scenario('weather')));
  const url = `${server.url}/v1/responses/${id}?stream=true`;
  checkFrames(await take(await open(url)));
  const text = await (await open(url)).text();
  assert.ok(text.endsWith('\n\ndata: [DONE]\n\n'), text.slice(-100));
  assert.ok(!text.includes('\r'));
  const end = (await retrieve(id, { stream: true })).at(-1).sequence_number;
  const last = await (await open(`${url}&starting_after=${end}`)).text();
  assert.deepEqual(last.split('\n').filter((line) => line !== '' && !line.startsWith(':')), ['data: [DONE]']);
  await assert.rejects(retrieve(id, { stream: true, starting_after: end + 1 }), { name: 'BadRequestError' });
});

test('the order check detects a reordered stream', async () => {
  const good = await create(request(scenario('weather'), { stream: true }));
  const at = (type) => good.findIndex((event) => event.type === `response.${type}`);
  const changed = (index, change) => {
    const copy = structuredClone(good);
    change(copy[index], copy);
    return copy;
  };
  const renumbered = (events) => events.map((event, sequence_number) => ({ ...event, sequence_number }));
  const without = (index) => renumbered(good.filter((_, place) => place !== index));
  const delta = at('output_text.delta');
  const planted = {
    'a number that is left out': changed(5, (event) => (event.sequence_number += 1)),
    'a delta of another item': changed(delta, (event) => (event.item_id = 'msg_other')),
    'a delta before its part': without(at('content_part.added')),
    'an item that was never added': without(at('output_item.added')),
    'a text that is not its deltas': without(delta),
    'a part that stays open': without(at('content_part.done')),
    'an item that stays open': without(good.findLastIndex((event) => event.type === 'response.output_item.done')),
    'an id that changes': changed(at('output_item.done'), (event) => (event.item.id = 'rs_other')),
    'a response that changes its id': changed(at('completed'), (event) => (event.response.id = 'resp_other')),
    'no end': good.slice(0, -1),
    'two ends': renumbered([...good, good.at(-1)]),
    'a last word that leaves something out': changed(at('completed'), (event) => event.response.output.pop()),
    'a half object': changed(0, (event) => delete event.response.tools),
    'no beginning': without(0),
    'an error beside the response': changed(3, (event) => (event.error = { message: 'no' })),
    'an event that nobody knows': changed(3, (event) => (event.type = 'response.reasoning.delta')),
  };
  checkOrder(good);
  for (const [what, events] of Object.entries(planted)) assert.throws(() => checkOrder(events), Disorder, what);
});
