// The page's fold against the fixtures of the server's own: the same events give the same objects, from every prefix on.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { pageModule } from './lib/page-module.mjs';

const { blank, fold, same } = await pageModule();

const FIXTURES = new URL('../crates/model/tests/it/fixtures/', import.meta.url);
const text = (name) =>
  readFileSync(new URL(name, FIXTURES), 'utf8')
    .split('\n')
    .filter((line) => !line.startsWith('//'))
    .join('\n');
const events = (name) => text(name).split('\n').filter(Boolean).map((line) => JSON.parse(line));
const object = (name) => JSON.parse(text(name));

const FOUR = (result) => ['reasoning.jsonl', 'tool_call.jsonl', result, 'message.jsonl'];

/** A log with a beginning, which the fixtures leave out, and numbers. */
function log(names) {
  const task_id = 'task_1234xyz';
  const task = { thread_id: 'thr_1', agent: 'demo', metadata: {} };
  const all = [{ type: 'task.created', task_id, task }, { type: 'task.started', task_id }, ...names.flatMap(events)];
  return all.map((event, at) => ({ ...structuredClone(event), seq: at + 1, at: 5 }));
}

function folded(records, from = blank('task_1234xyz')) {
  for (const event of structuredClone(records)) assert.ok(fold(from, event), `${event.seq} does not fit: ${event.type}`);
  return from;
}

for (const result of ['tool_result.jsonl', 'tool_result_partial.jsonl', 'tool_result_at_once.jsonl']) {
  test(`the four items fold to the final state, with ${result}`, () => {
    assert.deepEqual(folded(log(FOUR(result))).output, object('task.json').output);
  });
}

test('a sub-agent fills the result of its parent call', () => {
  assert.deepEqual(folded(log(['embedding.jsonl'])).output, object('embedding.json').output);
});

test('a page that attaches in mid-stream ends with the same state', () => {
  for (const names of [FOUR('tool_result_partial.jsonl'), ['embedding.jsonl']]) {
    const records = log(names);
    const whole = folded(records);
    for (let cut = 1; cut < records.length; cut += 1) {
      const snapshot = JSON.parse(JSON.stringify(folded(records.slice(0, cut))));
      assert.deepEqual(folded(records.slice(cut), snapshot), whole, `after ${cut}`);
    }
  }
});

test('a text has the id of the group that it cites first', () => {
  const at = { task_id: 'task_1234xyz', item_id: 'msg_1', output_index: 0, block_index: 0 };
  const item = { type: 'message', id: 'msg_1', role: 'assistant', block_list: [] };
  const cited = [{ type: 'file_citation', file_id: 'f', index: 0 }, ...[3, 2].map((reference_id) => ({ type: 'reference_to_block', reference_id }))];
  const said = [
    { type: 'task.output_item.added', task_id: at.task_id, output_index: 0, item },
    { type: 'task.text.added', ...at, item: { type: 'text', text: '' } },
    ...cited.map((annotation, annotation_index) => ({ type: 'task.text.annotation.added', ...at, annotation_index, annotation })),
  ];
  const records = [...log([]), ...said].map((event, index) => ({ ...event, seq: index + 1, at: 5 }));
  assert.equal('id' in folded(records.slice(0, -2)).output[0].block_list[0], false);
  assert.deepEqual(folded(records).output[0].block_list[0], { type: 'text', text: '', annotations: cited, id: 3 });
});

test('a gap, a repeat and an event after the end do not fit', () => {
  const records = log(FOUR('tool_result.jsonl'));
  const task = folded(records.slice(0, 5));
  assert.equal(fold(task, records[4]), false);
  assert.equal(fold(task, records[6]), false);
  assert.equal(task.seq, 5);
  const usage = blank('').usage;
  assert.ok(fold(task, { type: 'task.cancelled', task_id: task.task_id, seq: 6, at: 9, by: 'user', usage }));
  assert.equal(task.status, 'cancelled');
  assert.equal(fold(task, { ...records[6], seq: 7 }), false);
});

test('a cut-off item is incomplete, and a completed one stays completed', () => {
  const task_id = 'task_1';
  const usage = { ...blank('').usage, output_tokens: 3 };
  const message = (id, more) => ({ type: 'message', id, role: 'assistant', block_list: [], ...more });
  const cut = { status: 'incomplete', reason: 'recovered' };
  const story = [
    { type: 'task.step.started', step: 1, attempt: 1 },
    { type: 'task.output_item.added', output_index: 0, item: message('msg_1') },
    { type: 'task.output_item.done', output_index: 0, item: message('msg_1', { status: 'completed' }) },
    { type: 'task.output_item.added', output_index: 1, item: message('msg_2') },
    { type: 'task.output_item.done', output_index: 1, item: message('msg_2', cut) },
    { type: 'task.step.done', step: 1, stop_reason: 'lost', usage },
    { type: 'task.recovered', step: 1, attempt: 2, cut: ['msg_1', 'msg_2'] },
    { type: 'task.step.started', step: 1, attempt: 2 },
    { type: 'task.output_item.added', output_index: 2, item: message('msg_3', { status: 'completed' }) },
    { type: 'task.step.done', step: 1, stop_reason: 'stop', usage },
    { type: 'task.completed', usage },
  ];
  const task = blank(task_id);
  story.forEach((event, at) => assert.ok(fold(task, { ...event, task_id, seq: at + 1, at: 5 }), event.type));
  const shown = task.output.map((item) => [item.id, item.status, item.reason]);
  const completed = ['completed', undefined];
  assert.deepEqual(shown, [['msg_1', ...completed], ['msg_2', 'incomplete', 'recovered'], ['msg_3', ...completed]]);
});

test('a call has the arguments that its tool got, and those of the model beside them', () => {
  const task_id = 'task_1';
  const call = { type: 'tool_call', id: 'fc_1', call_id: 'call_1', name: 'refund', arguments: '{"amount":500}' };
  const written = { original_arguments: call.arguments };
  const started = (attempt, args, more) => ({ type: 'task.tool.started', call_id: 'call_1', attempt, arguments: args, ...more });
  const task = blank(task_id);
  const story = [
    [{ type: 'task.output_item.added', output_index: 0, item: call }, call],
    [started(1, '{"amount":7}', written), { ...call, arguments: '{"amount":7}', ...written }],
    [started(2, '{"amount":8}', written), { ...call, arguments: '{"amount":8}', ...written }],
    [started(3, call.arguments), call],
  ];
  story.forEach(([event, expected], at) => {
    assert.ok(fold(task, { ...event, task_id, seq: at + 1, at: 5 }), event.type);
    assert.deepEqual(task.output, [expected]);
  });
});

test('objects are compared whole, whatever the order of their keys', () => {
  assert.ok(same({ a: [1, { b: null }], c: 'x' }, { c: 'x', a: [1, { b: null }] }));
  for (const other of [{ a: 1 }, { a: 1, b: undefined, c: 1 }, { a: 1, b: [2] }, { a: 1, b: null }]) {
    assert.equal(same({ a: 1, b: { 0: 2 } }, other), false);
  }
});
