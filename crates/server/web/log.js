// The panel with the events of a conversation, numbered as the server numbers them.

import { at, element, setNote } from './elements.js';
import { inputWords } from './draw.js';
import { storage } from './storage.js';

const ROWS_MAX = 2_000;
const DELTAS_ITEM = 'headwater.deltas';

export class EventLog {
  constructor() {
    this.fresh = [];
    this.deltas = 0;
    const list = at('events');
    list.addEventListener('toggle', (e) => unfold(e.target), true);
    at('deltas').checked = storage.get(DELTAS_ITEM) === 'shown';
    at('deltas').addEventListener('change', () => {
      storage.set(DELTAS_ITEM, at('deltas').checked ? 'shown' : 'hidden');
      this.filter();
      list.scrollTop = list.scrollHeight;
    });
    at('earlier').addEventListener('click', () => this.replay());
    this.filter();
  }

  filter() {
    at('events').classList.toggle('without-deltas', !at('deltas').checked);
  }

  /** Shows another conversation, or none. */
  clear() {
    this.fresh = [];
    this.deltas = 0;
    at('events').replaceChildren();
    at('replayed').hidden = true;
    delete at('replayed').dataset.same;
  }

  add(event) {
    this.fresh.push(event);
    this.deltas += isDelta(event) ? 1 : 0;
  }

  draw(conversation) {
    this.conversation = conversation;
    const list = at('events');
    const isLow = list.scrollTop + list.clientHeight > list.scrollHeight - 40;
    list.append(...this.fresh.splice(0).map(row));
    while (list.children.length > ROWS_MAX) list.firstChild.remove();
    if (isLow) list.scrollTop = list.scrollHeight;
    at('no-events').hidden = Boolean(conversation);
    const skipped = conversation?.snapshot ?? 0;
    at('earlier').hidden = skipped === 0 || !at('replayed').hidden;
    at('earlier').textContent = `Events up to ${skipped} are in the fetched objects. Show them`;
    const { events, gaps, repeats, cuts } = conversation?.tally ?? {};
    const seq = conversation?.seq ?? 0;
    const parts = [`seq ${seq}`, `${events} live`, `${gaps} gaps`, `${repeats} repeats`, cuts && `${cuts} cuts`];
    at('counts').textContent = conversation ? parts.filter(Boolean).join(' · ') : '';
    at('delta-count').textContent = this.deltas > 0 ? String(this.deltas) : '';
    this.drawCommands(conversation);
  }

  drawCommands(conversation) {
    const task = conversation?.last()?.task;
    at('terminal').hidden = !task;
    if (!task) return;
    const thread = new URL(`v1/threads/${task.thread_id}/events`, location.href).href;
    const key = conversation.api.credential() ? ' -H "Authorization: Bearer $KEY"' : '';
    const text = [
      `curl -N '${thread}'${key}`,
      `curl -N '${thread}?after=${conversation.snapshot ?? 0}'${key}`,
      `headwater tail ${task.task_id} --url ${location.origin}`,
    ].join('\n');
    if (at('commands').textContent !== text) at('commands').textContent = text;
  }

  /** Reads the log up to the fetched objects, and shows whether it folds to them. */
  async replay() {
    const { conversation } = this;
    const note = at('replayed');
    setNote(note, 'Reading …');
    at('earlier').hidden = true;
    let found;
    try {
      found = await conversation.replay();
    } catch {
      if (this.conversation === conversation) setNote(note, 'Cannot read the log. Try again.');
      return;
    }
    if (this.conversation !== conversation) return;
    const { events, fits } = found;
    at('events').prepend(...events.slice(-ROWS_MAX).map(row));
    at('events').scrollTop = 0;
    this.deltas += events.filter(isDelta).length;
    note.dataset.same = fits;
    const verdict = fits ? 'exactly' : 'other objects than';
    setNote(note, `Events ${events[0].seq} to ${events.at(-1).seq} fold to ${verdict} the fetched objects.`);
    this.draw(conversation);
  }
}

const isDelta = ({ type }) => type.endsWith('.delta');

function row(event) {
  const cells = { seq: String(event.seq), type: event.type.replace(/^task\./, ''), gist: gist(event).replaceAll('\n', ' ') };
  const head = element('summary', '', ...Object.entries(cells).map(([name, text]) => element('span', name, text)));
  const details = element('details', '', head);
  details.event = event;
  const item = element('li', '', details);
  item.dataset.seq = event.seq;
  item.dataset.type = event.type;
  return item;
}

function unfold(details) {
  if (!details.open || !details.event || details.querySelector('pre')) return;
  details.append(element('pre', '', JSON.stringify(details.event, null, 2)));
}

/** A short summary of an event. */
function gist(e) {
  if (e.delta !== undefined) return typeof e.delta === 'string' ? e.delta : JSON.stringify(e.delta);
  if (e.type === 'task.created') return inputWords(e.task.input);
  if (e.item?.type === 'text') return e.item.text ?? '';
  if (e.item?.type === 'image') return e.item.image_url.url.slice(0, 40);
  if (e.item) return [e.item.type.replaceAll('_', ' '), e.item.name, e.item.status].filter(Boolean).join(' · ');
  if (e.annotation) return `[^${e.annotation.reference_id ?? e.annotation.url ?? ''}]`;
  if (e.error) return e.error.code;
  const people = [e.action_requests?.[0]?.name, e.decisions?.[0]?.type, e.by];
  const parts = [...people, e.step && `step ${e.step}`, e.stop_reason, e.state, e.arguments, e.message, e.reason];
  return parts.filter((part) => typeof part === 'string' && part).join(' · ');
}
