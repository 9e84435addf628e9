// Files in conversations: what a client of each protocol sends reaches the model in the format of each service, byte for byte.
//
// The models are played by files/service.mjs, which keeps what it is asked. Every client is a row of `SENDERS` (it brings the
// bytes) or of `POINTERS` (it says where they are), and speaks to one agent for each service.

import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import OpenAI from 'openai';
import { DIALECTS } from './files/dialects.mjs';
import { blobOf, dataUrl, paper, picture } from './files/made.mjs';
import { startService } from './files/service.mjs';
import { blocks, responses } from './lib/protocols.mjs';
import { startWorker } from './lib/python.mjs';
import { taskId } from './lib/scenarios.mjs';
import { events, startServer } from './lib/server.mjs';
import { bytes, take } from './lib/sse.mjs';

const PNG = picture(40, 'sent');
const PDF = paper('The river begins here');
const LARGE = picture(600, 'large');
const SKETCHES = [picture(120, 'first sketch'), picture(250, 'second sketch')];
const READ_HERE = /^\[The file paper\.pdf, from [^\n]*\/paper\.pdf[^\n]*\]\n\s*The river begins here\s*$/;

const PAGES = {
  '/paper.pdf': { type: 'application/pdf', bytes: PDF },
  '/picture.png': { type: 'image/png', bytes: PNG },
  '/camera': {
    type: 'application/json',
    bytes: JSON.stringify({
      message_content: [{ type: 'text', text: 'click' }, { type: 'image_url', image_url: { url: dataUrl('image/png', LARGE) } }],
      block_list: [{ type: 'image', image_url: { url: dataUrl('image/png', LARGE) } }],
    }),
  },
};

/** A model that does as it is told: it uses a tool once, the server's or the caller's, or draws, or has seen enough. */
function answer({ said, got }, body) {
  const words = JSON.stringify(said(body));
  if (/take a photo/.test(words) && got(body) === undefined) return { call: { name: 'camera', arguments: {} } };
  if (/show me yours/.test(words) && got(body) === undefined) return { call: { name: 'album', arguments: {} } };
  if (/draw a picture/.test(words)) return { text: 'Drawn.', draw: [...SKETCHES, LARGE].map((one) => one.toString('base64')) };
  return { text: 'Seen.' };
}

const config = ({ url, port }, mode) => `
${DIALECTS.map(({ name, kind }) => `
[agents.${name}]
model = "${name}/m"
tools = ["camera"]
[providers.${name}]
kind = "${kind}"
base_url = "${url}/v1"
image_urls = "pass"
`).join('')}
[tools.camera]
kind = "http"
url = "${url}/camera"
output_bytes_max = 10_000_000
[fetch]
allow_private = ["127.0.0.1"]
ports = [${port}]
[auth]
mode = "${mode}"
`;

let folder;
let service;
let server;
let python;
let chat;
let anthropic;
let node;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'headwater-files-'));
  service = await startService({ answer, pages: PAGES });
  server = await serverWith('none');
  python = startWorker('responses/openai_sdk.py', server.url);
  chat = startWorker('messages/chat_sdk.py', server.url);
  anthropic = startWorker('messages/anthropic_sdk.py', server.url);
  node = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(async () => {
  await Promise.all([python?.stop(), chat?.stop(), anthropic?.stop()]);
  await server?.stop();
  await service?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function serverWith(mode) {
  const file = join(folder, `${mode}.toml`);
  await writeFile(file, config(service, mode));
  return startServer({ config: file, env: { NO_PROXY: '127.0.0.1' } });
}

const bytesOf = async (response) => Buffer.from(await response.arrayBuffer());
const runOf = (id) => `task_${/[0-9a-f]{32}/.exec(id)[0]}`;
const user = (content) => [{ role: 'user', content }];
let names = 0;

/** Follows a run to its end. Gives its task. */
async function ended(task_id) {
  await events(server.url, task_id);
  return server.get(`/v1/tasks/${task_id}`);
}

/** What the model of this dialect was asked, in the requests with these words: one, unless it went on. */
function asked(dialect, words) {
  const found = service.asked.filter((one) => one.dialect === dialect.name && JSON.stringify(one.body).includes(words));
  assert.ok(found.length > 0, `${dialect.name} was not asked: ${words}`);
  return found.map(({ body }) => body);
}

// --- clients that send the bytes

async function upload(name, bytes) {
  const response = await fetch(`${server.url}/api/v1/agent/attachments?name=${name}`, { method: 'POST', body: bytes });
  assert.equal(response.status, 201);
  const { bucket, path } = await response.json();
  return { bucket, path };
}

const responsesInput = (words) => user([
  { type: 'input_text', text: words },
  { type: 'input_image', detail: 'auto', image_url: dataUrl('image/png', PNG) },
  { type: 'input_file', filename: 'paper.pdf', file_data: dataUrl('application/pdf', PDF) },
]);
const chatMessages = (words) => user([
  { type: 'text', text: words },
  { type: 'image_url', image_url: { url: dataUrl('image/png', PNG) } },
  { type: 'file', file: { filename: 'paper.pdf', file_data: dataUrl('application/pdf', PDF) } },
]);
const base64 = (media_type, bytes) => ({ type: 'base64', media_type, data: bytes.toString('base64') });

/** `send` says these words with the picture and the paper, in this order, to an agent. Gives the id of what came of it. */
const SENDERS = [
  {
    name: 'the openai SDK for Node, Responses',
    send: async (model, words) => (await node.responses.create({ model, input: responsesInput(words) })).id,
  },
  {
    name: 'the openai SDK for Python, Responses',
    send: async (model, words) => (await python.ask('call', { path: 'responses.create', model, input: responsesInput(words) })).id,
  },
  {
    name: 'the openai SDK for Node, Chat Completions',
    send: async (model, words) => (await node.chat.completions.create({ model, messages: chatMessages(words) })).id,
  },
  {
    name: 'the openai SDK for Python, Chat Completions',
    send: async (model, words) => {
      const { id, error } = await chat.ask('create', { messages: chatMessages(words), extra_body: { model } });
      assert.equal(error, undefined);
      return id;
    },
  },
  {
    name: 'the anthropic SDK, Messages',
    send: async (model, words) => {
      const messages = user([
        { type: 'text', text: words },
        { type: 'image', source: base64('image/png', PNG) },
        { type: 'document', title: 'paper.pdf', source: base64('application/pdf', PDF) },
      ]);
      const { id, error } = await anthropic.ask('create', { model, messages });
      assert.equal(error, undefined);
      return id;
    },
  },
  {
    name: 'tasks, with the bytes in the request',
    send: async (model, words) => {
      const image_url = { url: dataUrl('image/png', PNG) };
      const file = { name: 'paper.pdf', url: dataUrl('application/pdf', PDF) };
      const input = [{ type: 'text', text: words }, { type: 'image_url', image_url }, { type: 'file', file }];
      return (await server.post('/v1/tasks', { model, input, wait: true })).task_id;
    },
  },
  {
    name: 'tasks, with attachments',
    attaches: true,
    send: async (model, words) => {
      const files = [await upload('picture.png', PNG), await upload('paper.pdf', PDF)];
      const input = [{ type: 'text', text: words }, ...files.map((file) => ({ type: 'file', file }))];
      return (await server.post('/v1/tasks', { model, input, wait: true })).task_id;
    },
  },
  {
    name: 'agent runs, with attachments',
    attaches: true,
    send: async (agent, message) => {
      const attachments = [await upload('picture.png', PNG), await upload('paper.pdf', PDF)];
      return (await server.post('/api/v1/agent/runs', { agent, message, attachments, threadId: `talk-${(names += 1)}` })).runId;
    },
  },
];

for (const { name, send, attaches } of SENDERS) {
  test(`${name}: an image and a PDF reach every service in its own format`, async () => {
    await Promise.all(DIALECTS.map(async (dialect) => {
      const words = `look ${(names += 1)}.`;
      const task_id = runOf(await send(dialect.name, words));
      assert.equal((await ended(task_id)).status, 'completed');
      const [body] = asked(dialect, words);
      assert.deepEqual(dialect.said(body), [dialect.words(words), dialect.picture(PNG), dialect.paper(PDF, 'paper.pdf')], dialect.name);
      const log = JSON.stringify(await events(server.url, task_id));
      assert.ok(!log.includes('base64'), 'events say where files are, and not what is in them');
      if (!attaches) for (const one of [PNG, PDF]) assert.ok(log.includes(blobOf(one)));
    }));
  });
}

test('an uploaded file is served at the URL in the events', async () => {
  for (const [bytes, type] of [[PNG, 'image/png'], [PDF, 'application/pdf']]) {
    const got = await fetch(server.url + blobOf(bytes));
    assert.deepEqual([got.status, got.headers.get('content-type')], [200, type]);
    assert.deepEqual(await bytesOf(got), bytes);
  }
});

test('only its owner can read a file, while a conversation uses it', async () => {
  const guarded = await serverWith('keys');
  try {
    const own = { authorization: `Bearer ${await guarded.key('u1')}` };
    const other = { authorization: `Bearer ${await guarded.key('u10')}` };
    const input = [{ type: 'image_url', image_url: { url: dataUrl('image/png', PNG) } }];
    const ask = async (headers, input) => {
      const body = JSON.stringify({ model: 'chat', input, wait: true });
      const asked = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body };
      const response = await fetch(`${guarded.url}/v1/tasks`, asked);
      return [response.status, (await response.json()).thread_id];
    };
    const get = (headers) => fetch(guarded.url + blobOf(PNG), { headers });
    const forget = async (thread) => {
      const { status } = await fetch(`${guarded.url}/v1/threads/${thread}`, { method: 'DELETE', headers: own });
      assert.equal(status, 204);
    };
    assert.equal((await get(own)).status, 404, 'nobody sent it yet');
    const [taken, first] = await ask(own, input);
    assert.equal(taken, 200);
    assert.deepEqual(await bytesOf(await get(own)), PNG);
    assert.equal((await get(other)).status, 404);
    assert.equal((await get({})).status, 401);
    const again = [{ type: 'image_url', image_url: { url: blobOf(PNG) } }];
    assert.equal((await ask(other, again))[0], 404, 'knowing the address is not enough');
    const [retaken, second] = await ask(own, again);
    assert.equal(retaken, 200);
    // It exists as long as one of its conversations does.
    await forget(first);
    await guarded.killAndRestart();
    assert.deepEqual(await bytesOf(await get(own)), PNG);
    await forget(second);
    assert.equal((await get(own)).status, 404);
  } finally {
    await guarded.stop();
  }
});

// --- clients that send URLs

/** `point` says these words after the paper at this address. Gives the id of what came of it. */
const POINTERS = [
  {
    name: 'the openai SDK for Node, Responses',
    point: async (model, words, url) => {
      const input = user([{ type: 'input_file', file_url: url }, { type: 'input_text', text: words }]);
      return (await node.responses.create({ model, input })).id;
    },
  },
  {
    name: 'the openai SDK for Python, Responses',
    point: async (model, words, url) => {
      const input = user([{ type: 'input_file', file_url: url }, { type: 'input_text', text: words }]);
      return (await python.ask('call', { path: 'responses.create', model, input })).id;
    },
  },
  {
    name: 'the anthropic SDK, Messages',
    point: async (model, words, url) => {
      const messages = user([{ type: 'document', source: { type: 'url', url } }, { type: 'text', text: words }]);
      const { id, error } = await anthropic.ask('create', { model, messages });
      assert.equal(error, undefined);
      return id;
    },
  },
  {
    name: 'tasks',
    point: async (model, words, url) => {
      const input = [{ type: 'file', file: { url } }, { type: 'text', text: words }];
      return (await server.post('/v1/tasks', { model, input, wait: true })).task_id;
    },
  },
  {
    name: 'blocks over a WebSocket',
    point: async (agent, words, url) => (await turn(agent, words, [url]))[0].data.message_id,
  },
];

/** The words of what was said. A service may be given them as one text. */
const textOf = (said) => (typeof said === 'string' ? said : said.map((part) => part.text ?? '').join('\n'));

/** A turn of blocks, with files to read first. */
function turn(agent, content, content_urls) {
  const said = { type: 'chat', session_id: `talk-${(names += 1)}`, agent, content, content_urls };
  return take(blocks.say(server.url, said), ({ event }) => event === 'message_stop');
}

for (const { name, point } of POINTERS) {
  test(`${name}: a PDF on the web is read before any model is called`, async () => {
    await Promise.all(DIALECTS.map(async (dialect) => {
      const words = `read ${(names += 1)}.`;
      const task = await ended(runOf(await point(dialect.name, words, `${service.url}/paper.pdf?${names}`)));
      assert.equal(task.status, 'completed');
      const [first] = task.output;
      assert.deepEqual([first.type, first.status, first.files.map(({ status }) => status)], ['file_processing', 'completed', ['completed']]);
      const said = textOf(dialect.said(asked(dialect, words)[0]));
      assert.ok(said.endsWith(words), said);
      assert.match(said.slice(0, -words.length), READ_HERE, dialect.name);
    }));
  });
}

test('blocks: files are read in the first block, an image reaches the model, and a missing file is a note', async () => {
  for (const dialect of DIALECTS) {
    const words = `read ${(names += 1)}.`;
    const urls = ['/picture.png', '/gone.pdf', '/paper.pdf'].map((path) => service.url + path);
    const frames = await turn(dialect.name, words, urls);
    const starts = frames.filter(({ event }) => event === 'content_block_start').map(({ data }) => [data.index, data.content_block.type]);
    assert.deepEqual(starts, [[0, 'file_processing'], [1, 'text']]);
    assert.equal(frames.findLast(({ event }) => event === 'message_delta').data.delta.stop_reason, 'end_turn');
    const shown = dialect.said(asked(dialect, words)[0]);
    const { type } = dialect.picture(PNG);
    assert.deepEqual(shown.filter((part) => part.type === type), [dialect.picture(PNG)], dialect.name);
    assert.match(textOf(shown), /The river begins here/);
    assert.match(textOf(shown), /\[The file \S+\/gone\.pdf could not be read: .+\]/);
    assert.ok(textOf(shown).endsWith(words));
  }
});

test('an image on the web is passed as a URL to services that fetch it themselves', async () => {
  const url = 'https://pictures.example/river.png';
  const ways = [
    (model, text) => node.responses.create({
      model, input: user([{ type: 'input_text', text }, { type: 'input_image', detail: 'auto', image_url: url }]),
    }),
    (model, text) => node.chat.completions.create({ model, messages: user([{ type: 'text', text }, { type: 'image_url', image_url: { url } }]) }),
    (model, text) => anthropic.ask('create', { model, messages: user([{ type: 'text', text }, { type: 'image', source: { type: 'url', url } }]) }),
  ];
  for (const dialect of DIALECTS) {
    for (const way of ways) {
      const words = `look ${(names += 1)}.`;
      await way(dialect.name, words);
      assert.deepEqual(dialect.said(asked(dialect, words)[0]), [dialect.words(words), dialect.pictureAt(url)]);
    }
  }
});

// --- images from tools and models

test('a tool image is a URL in the events, and an image for every service', async () => {
  for (const dialect of DIALECTS) {
    const words = `take a photo ${(names += 1)}.`;
    const { task_id, status } = await server.post('/v1/tasks', { model: dialect.name, input: words, wait: true });
    assert.equal(status, 'completed');
    const told = JSON.stringify(await events(server.url, task_id));
    assert.ok(told.includes(blobOf(LARGE)), dialect.name);
    assert.ok(told.length < 20_000, `${told.length} bytes`);
    const [, second] = asked(dialect, words);
    const got = dialect.got(second);
    assert.deepEqual(got.filter(({ type }) => type === dialect.picture(LARGE).type), [dialect.picture(LARGE)], dialect.name);
  }
  const got = await fetch(server.url + blobOf(LARGE));
  assert.deepEqual(await bytesOf(got), LARGE);
});

const ALBUM = { description: 'Pictures of the caller.', parameters: { type: 'object', properties: {} } };

/** `show` says these words with a tool of the caller's, and gives a picture when it is asked for it. Gives the id of the end. */
const SHOWERS = [
  {
    name: 'the openai SDK for Node, Responses',
    show: async (model, words) => {
      const tools = [{ type: 'function', name: 'album', strict: false, ...ALBUM }];
      const { id, output } = await node.responses.create({ model, input: words, tools });
      const { call_id } = output.find(({ type }) => type === 'function_call');
      const result = [{ type: 'input_image', detail: 'auto', image_url: dataUrl('image/png', PNG) }];
      const input = [{ type: 'function_call_output', call_id, output: result }];
      return (await node.responses.create({ model, input, tools, previous_response_id: id })).id;
    },
  },
  {
    name: 'the anthropic SDK, Messages',
    show: async (model, words) => {
      const { description, parameters: input_schema } = ALBUM;
      const tools = [{ name: 'album', description, input_schema }];
      const { content } = await anthropic.ask('create', { model, tools, messages: user(words) });
      const { id: tool_use_id } = content.find(({ type }) => type === 'tool_use');
      const result = { type: 'tool_result', tool_use_id, content: [{ type: 'image', source: base64('image/png', PNG) }] };
      const messages = [...user(words), { role: 'assistant', content }, ...user([result])];
      const { id, error } = await anthropic.ask('create', { model, tools, messages });
      assert.equal(error, undefined);
      return id;
    },
  },
];

for (const { name, show } of SHOWERS) {
  test(`${name}: an image from a client tool is an image for every service`, async () => {
    await Promise.all(DIALECTS.map(async (dialect) => {
      const words = `show me yours ${(names += 1)}.`;
      const task_id = runOf(await show(dialect.name, words));
      assert.equal((await ended(task_id)).status, 'completed');
      const { type } = dialect.picture(PNG);
      const got = dialect.got(asked(dialect, words).at(-1));
      assert.deepEqual(got.filter((part) => part.type === type), [dialect.picture(PNG)], dialect.name);
      assert.ok(!JSON.stringify(await events(server.url, task_id)).includes('base64'));
    }));
  });
}

test('images and files stay available when the conversation continues', async () => {
  for (const dialect of DIALECTS) {
    const [first, second] = [`look ${(names += 1)}.`, `and now ${(names += 1)}.`];
    const { id } = await node.responses.create({ model: dialect.name, input: responsesInput(first) });
    await node.responses.create({ model: dialect.name, input: second, previous_response_id: id });
    const [body] = asked(dialect, second);
    const text = JSON.stringify(body);
    for (const one of [PNG, PDF]) assert.equal(text.split(one.toString('base64')).length, 2, dialect.name);
  }
});

const drawnIn = ({ output }) => Buffer.from(output.find(({ type }) => type === 'image_generation_call').result, 'base64');
const sketches = (events) =>
  events.filter(({ type }) => type === 'response.image_generation_call.partial_image').map((event) => Buffer.from(event.partial_image_b64, 'base64'));

test('a generated image reaches the openai SDKs byte for byte, streamed and retrieved', async () => {
  const request = () => ({ model: 'responses', input: `draw a picture ${(names += 1)}.`, stream: true });
  const seen = [];
  for await (const event of await node.responses.create(request())) seen.push(event);
  for (const events of [seen, await python.ask('call', { path: 'responses.create', ...request() })]) {
    assert.deepEqual(sketches(events), SKETCHES);
    const { response } = events.at(-1);
    assert.deepEqual(drawnIn(response), LARGE);
    const done = events.find(({ type, item }) => type === 'response.output_item.done' && item.type === 'image_generation_call');
    assert.deepEqual(drawnIn({ output: [done.item] }), LARGE);
    assert.deepEqual(drawnIn(await node.responses.retrieve(response.id)), LARGE);
    assert.deepEqual(drawnIn(await python.ask('call', { path: 'responses.retrieve', response_id: response.id })), LARGE);
    const again = await python.ask('call', { path: 'responses.retrieve', response_id: response.id, stream: true });
    assert.deepEqual(sketches(again), SKETCHES);
    assert.deepEqual(drawnIn(again.at(-1).response), LARGE);
    const log = JSON.stringify(await server.get(`/v1/tasks/${taskId(response.id)}`));
    assert.ok(log.includes(blobOf(LARGE)) && log.length < 20_000, 'the log says where it is');
  }
});

test('a generated image is sent back to its model byte for byte', async () => {
  const { id } = await node.responses.create({ model: 'responses', input: `draw a picture ${(names += 1)}.` });
  const words = `and now ${(names += 1)}.`;
  await node.responses.create({ model: 'responses', input: words, previous_response_id: id });
  const [{ input }] = asked(DIALECTS[0], words);
  const { result } = input.find(({ type }) => type === 'image_generation_call');
  assert.deepEqual(Buffer.from(result, 'base64'), LARGE);
});

test('a generated image is copied with a fork of a share, and stays there', async () => {
  const guarded = await serverWith('keys');
  try {
    const [own, other] = await Promise.all(['u1', 'u2'].map(async (user) => ({ authorization: `Bearer ${await guarded.key(user)}` })));
    const post = async (headers, path, body) => {
      const asked = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body: JSON.stringify(body) };
      const response = await fetch(guarded.url + path, asked);
      assert.ok(response.ok, `${path}: ${response.status}`);
      return response.json();
    };
    const drawing = await post(own, '/v1/tasks', { model: 'responses', input: `draw a picture ${(names += 1)}.`, wait: true });
    const { token } = await post(own, `/v1/threads/${drawing.thread_id}/shares`, { mode: 'frozen' });
    const { thread_id } = await post(other, '/v1/tasks', { model: 'responses', input: 'on', share: token, wait: true });
    const forgotten = await fetch(`${guarded.url}/v1/threads/${drawing.thread_id}`, { method: 'DELETE', headers: own });
    assert.equal(forgotten.status, 204);
    // Its own service gets it back unchanged, the others get it as an image.
    for (const dialect of DIALECTS) {
      const words = `and now ${(names += 1)}.`;
      await post(other, '/v1/tasks', { model: dialect.name, input: words, thread_id, wait: true });
      const text = JSON.stringify(asked(dialect, words)[0]);
      assert.equal(text.split(LARGE.toString('base64')).length, 2, dialect.name);
    }
  } finally {
    await guarded.stop();
  }
});

test('a stream with generated images resumes at every cursor, byte for byte', async () => {
  const { id } = await node.responses.create({ model: 'responses', input: `draw a picture ${(names += 1)}.` });
  const run = { task_id: taskId(id) };
  const [address] = responses.addresses(run);
  const read = (place) => take(responses.follow(server.url, address, place), (frame) => responses.isLast(frame, run));
  const whole = await read();
  assert.deepEqual(sketches(whole.map(({ data }) => data)), SKETCHES);
  for (const [at, frame] of whole.slice(0, -1).entries()) {
    const rest = await read(responses.place(frame));
    assert.ok(bytes(whole.slice(0, at + 1)) + bytes(rest) === bytes(whole), `after frame ${at}`);
  }
});
