// The form below the conversation: the message, its files, and the agent that gets it.

import { at, button, element } from './elements.js';
import { storage } from './storage.js';

const AGENT_ITEM = 'headwater.agent';
const FILES_MAX = 10;

export class Composer {
  /** @param send Called with the parts of a message. @param stop Called when the run shall stop. */
  constructor(api, { send, stop }) {
    Object.assign(this, { api, send, stop, files: [], isBusy: false });
    const input = at('input');
    at('ask').addEventListener('submit', (e) => {
      e.preventDefault();
      this.submit();
    });
    input.addEventListener('keydown', (e) => {
      // A key that ends the input of a composed character is not meant for us.
      if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
      e.preventDefault();
      this.submit();
    });
    input.addEventListener('input', () => this.fit());
    input.addEventListener('paste', (e) => this.attach(e.clipboardData.files, e));
    at('stop').addEventListener('click', () => stop());
    at('attach').addEventListener('click', () => at('file').click());
    at('file').addEventListener('change', () => {
      this.attach(at('file').files);
      at('file').value = '';
    });
    document.addEventListener('dragover', (e) => e.dataTransfer.types.includes('Files') && e.preventDefault());
    document.addEventListener('drop', (e) => !at('ask').hidden && this.attach(e.dataTransfer.files, e));
    at('agent').addEventListener('change', () => storage.set(AGENT_ITEM, at('agent').value));
  }

  /** Lists the agents, and keeps the chosen one if it is still there. `?agent=` may also name a bare model. */
  setAgents(agents) {
    const asked = new URLSearchParams(location.search).get('agent');
    const names = asked && !agents.includes(asked) ? [...agents, asked] : agents;
    const options = names.map((name) => Object.assign(element('option', '', name), { value: name }));
    const wanted = [asked, storage.get(AGENT_ITEM), 'demo'];
    at('agent').replaceChildren(...options);
    at('agent').value = wanted.find((name) => names.includes(name)) ?? names[0] ?? '';
    at('agent').disabled = names.length < 2;
  }

  get agent() {
    return at('agent').value;
  }

  /** A conversation goes on with the agent that it has. */
  setAgent(name) {
    if ([...at('agent').options].some((option) => option.value === name)) at('agent').value = name;
  }

  /** The field is as high as its text, within the limits of the style sheet. */
  fit() {
    const input = at('input');
    input.style.height = 'auto';
    input.style.height = `${input.scrollHeight}px`;
  }

  async submit(text = at('input').value.trim()) {
    if (this.isBusy || this.files.some((file) => file.abort) || (!text && this.files.length === 0)) return;
    const attached = this.files.filter((file) => file.reference);
    const parts = [
      ...(text ? [{ type: 'text', text }] : []),
      ...attached.map(({ reference: { bucket, path, name } }) => ({ type: 'file', file: { bucket, path, name } })),
    ];
    this.setBusy(true);
    const isSent = await this.send(parts);
    this.setBusy(false);
    if (!isSent) return;
    at('input').value = '';
    this.fit();
    this.files = this.files.filter((file) => !attached.includes(file));
    this.drawFiles();
  }

  setBusy(isBusy) {
    this.isBusy = isBusy;
    at('send').disabled = isBusy;
  }

  /** Forgets what was written: the next user of this tab is somebody else. */
  clear() {
    at('input').value = '';
    this.fit();
    for (const file of [...this.files]) this.remove(file);
  }

  // ---- files

  attach(list, event) {
    if (list.length === 0) return;
    event?.preventDefault();
    for (const file of [...list].slice(0, FILES_MAX - this.files.length)) this.upload(file);
  }

  async upload(file) {
    const entry = { name: file.name, size: file.size, abort: new AbortController() };
    if (file.type.startsWith('image/')) entry.preview = URL.createObjectURL(file);
    this.files.push(entry);
    this.drawFiles();
    try {
      entry.reference = await this.api.upload(file, entry.abort.signal);
    } catch (error) {
      entry.problem = error.message;
    }
    entry.abort = undefined;
    this.drawFiles();
  }

  remove(entry) {
    entry.abort?.abort();
    if (entry.preview) URL.revokeObjectURL(entry.preview);
    this.files = this.files.filter((file) => file !== entry);
    this.drawFiles();
  }

  drawFiles() {
    at('files').replaceChildren(...this.files.map((entry) => {
      const state = entry.problem ? 'failed' : entry.abort ? 'uploading' : 'ready';
      const thumbnail = entry.preview ? [Object.assign(element('img'), { src: entry.preview, alt: '' })] : [];
      const detail = entry.problem ?? (entry.abort ? 'Uploading …' : bytes(entry.size));
      const cross = button('×');
      cross.setAttribute('aria-label', `Remove ${entry.name}`);
      cross.addEventListener('click', () => this.remove(entry));
      const item = element('li', '', ...thumbnail, element('span', 'name', entry.name), element('small', '', detail), cross);
      item.dataset.state = state;
      return item;
    }));
  }
}

function bytes(size) {
  if (size < 1_000) return `${size} B`;
  return size < 1_000_000 ? `${Math.round(size / 1_000)} kB` : `${(size / 1_000_000).toFixed(1)} MB`;
}
