// The list of conversations, each with the words of its latest run.

import { fetchWords } from './conversation.js';
import { inputWords } from './draw.js';
import { at, element, when } from './elements.js';
import { storage } from './storage.js';

const ROWS_MAX = 20;
const WORDS_ITEM = 'headwater.words';
const WORDS_CHARS_MAX = 120;

export class Recent {
  constructor(api) {
    this.api = api;
    this.words = new Map(Object.entries(JSON.parse(storage.get(WORDS_ITEM) ?? '{}')));
  }

  /** Lists the threads of the newest runs. Their words do not change, so they are fetched once. */
  async refresh() {
    const page = await this.api.get('v1/tasks?limit=100').catch(() => undefined);
    if (!page) return;
    const newest = new Map();
    for (const task of page.data) if (!newest.has(task.thread_id)) newest.set(task.thread_id, task);
    this.tasks = [...newest.values()].slice(0, ROWS_MAX);
    this.draw();
    const unnamed = this.tasks.filter(({ task_id }) => !this.words.get(task_id));
    await Promise.all(unnamed.map(({ task_id }) => this.fetchWords(task_id)));
    storage.set(WORDS_ITEM, JSON.stringify(Object.fromEntries([...this.words].slice(-2 * ROWS_MAX))));
    this.draw();
  }

  async fetchWords(task_id) {
    const words = await fetchWords(this.api, task_id).catch(() => '');
    this.words.set(task_id, words.slice(0, WORDS_CHARS_MAX));
  }

  /** The shown conversation is newer than its row. */
  draw(conversation = this.conversation) {
    this.conversation = conversation;
    const rows = (this.tasks ?? []).map((task) => {
      const isCurrent = task.thread_id === conversation?.thread_id;
      const status = (isCurrent && conversation.last()?.task.status) || task.status;
      const run = isCurrent && conversation.find(task.task_id);
      const words = (run && inputWords(run.input)) || this.words.get(task.task_id);
      // Before its words are here a row must not look like something else.
      const title = words === '' ? element('code', '', task.thread_id.slice(-8)) : (words ?? '…');
      const note = `${task.agent} · ${when(task.created_at)}`;
      const link = element('a', '', element('span', '', title), element('small', '', note));
      link.href = `#${task.thread_id}`;
      link.dataset.status = status;
      link.title = words ? `${words} (${status})` : status;
      if (isCurrent) link.setAttribute('aria-current', 'true');
      return element('li', '', link);
    });
    // Unchanged rows are kept, so that a focused link stays focused.
    const html = rows.map((row) => row.outerHTML).join('');
    if (this.drawn !== html) at('tasks').replaceChildren(...rows);
    this.drawn = html;
    at('no-tasks').hidden = rows.length > 0;
  }

  clear() {
    this.tasks = [];
    this.words.clear();
    storage.remove(WORDS_ITEM);
    this.draw(undefined);
  }
}
