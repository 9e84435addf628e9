// The streams that our ingests are tested on, decoded by each service's own SDK: the same text, calls and tokens.
//
// The result of our ingest is in the file next to the stream, which crates/upstream/tests/it/streams.rs writes and checks.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import test, { before } from 'node:test';
import { runScript } from './lib/python.mjs';

const path = (name) => new URL(name, import.meta.url).pathname;
const STREAMS = path('../crates/upstream/tests/it/streams');

// How an SDK reports a failed answer. Ours has a code in the same field.
const FAILED = {
  'chat/error': /^APIError\('Provider disconnected unexpectedly'\)$/,
  'messages/overloaded': /^APIStatusError\(.*overloaded_error/,
  'responses/error': /^rate_limit_exceeded: Rate limit reached for gpt-5\.$/,
  'responses/failed': /^server_error$/,
};

// Intended differences between an SDK and our ingest, with reasons.
const DIFFERS = {
  // To an SDK the end of the connection is the end of the answer, however incomplete. To us it is a failure.
  'chat/truncated': { stop: null },
  'messages/cut': { stop: null },
  // An SDK passes on missing and unknown stop reasons. We map them, because the run loop depends on them.
  'chat/no-finish-reason': { stop: null },
  'messages/unknown': { stop: 'bored' },
  // An SDK leaves it to its user what a computer call and a request for approval wait for. Here the run waits for it.
  'responses/computer-action': { stop: 'stop' },
  'responses/computer-actions': { stop: 'stop' },
  'responses/mcp': { stop: 'stop' },
  // Python can hold half a character. It cannot be written as UTF-8, so we replace it.
  'messages/lone-surrogate': { text: 'broken \ud83d emoji' },
};

let made;
before(async () => {
  const [openai, anthropic] = await Promise.all(['openai', 'anthropic'].map((name) => runScript(`streams/${name}_sdk.py`)));
  made = { ...openai, ...anthropic };
});

/** Arguments are compared as what they mean; those that were cut in the middle mean nothing, and stay text. */
function plain({ calls, ...rest }) {
  const meaning = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  };
  return { ...rest, calls: calls.map((call) => ({ ...call, arguments: meaning(call.arguments) })) };
}

function expected(name) {
  const { error, ...ours } = plain(JSON.parse(readFileSync(`${STREAMS}/${name}.json`, 'utf8')));
  const known = name in FAILED || DIFFERS[name]?.stop === null;
  assert.ok(error === undefined || known, `${name}: we say ${error}, and nobody wrote down what the SDK says`);
  return { ...ours, ...DIFFERS[name] };
}

const ofRoom = (room) => (name) => name.startsWith(`${room}/`);

function same(room) {
  const streams = readdirSync(`${STREAMS}/${room}`).filter((file) => file.endsWith('.sse'));
  const names = streams.map((file) => `${room}/${file.slice(0, -'.sse'.length)}`).sort();
  assert.deepEqual(Object.keys(made).filter(ofRoom(room)).sort(), names, 'every stream is read');
  for (const name of [...Object.keys(FAILED), ...Object.keys(DIFFERS)].filter(ofRoom(room))) {
    assert.ok(names.includes(name), `there is no ${name}`);
  }
  for (const name of names) {
    const { error, ...theirs } = plain(made[name]);
    assert.deepEqual(theirs, expected(name), name);
    if (name in FAILED) assert.match(error, FAILED[name], name);
    else assert.equal(error, undefined, name);
  }
}

test('the OpenAI SDK decodes the same from every Responses stream', () => same('responses'));

test('the OpenAI SDK decodes the same from every Chat Completions stream', () => same('chat'));

test('the Anthropic SDK decodes the same from every Messages stream', () => same('messages'));
