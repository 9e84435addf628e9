// Links that let others read a conversation: create, copy, revoke.

import { at, button, element, setNote } from './elements.js';

const DAY_SECONDS = 86_400;

export class ShareDialog {
  constructor(api) {
    this.api = api;
    const dialog = at('share-dialog');
    at('share-close').addEventListener('click', () => dialog.close());
    dialog.addEventListener('click', (e) => e.target === dialog && dialog.close());
    at('share-form').addEventListener('submit', (e) => {
      e.preventDefault();
      this.attempt(() => this.create());
    });
    at('share-copy').addEventListener('click', () => this.copy());
  }

  open(thread_id) {
    this.path = `v1/threads/${thread_id}/shares`;
    this.thread_id = thread_id;
    at('share-link-field').hidden = true;
    at('shares').replaceChildren();
    at('share-dialog').showModal();
    this.attempt(() => this.list());
  }

  async attempt(action) {
    try {
      setNote(at('share-problem'), '');
      await action();
    } catch (error) {
      setNote(at('share-problem'), error.message);
    }
  }

  /** The token is in the part of the address that browsers do not send. */
  async create() {
    const mode = at('share-form').elements.mode.value;
    const days = Number(at('share-days').value);
    const { token } = await this.api.post(this.path, { mode, expires_in_seconds: days * DAY_SECONDS });
    at('share-link').value = new URL(`#${this.thread_id}/${token}`, location.href.split('#')[0]).href;
    at('share-link-field').hidden = false;
    at('share-copy').textContent = 'Copy';
    at('share-link').select();
    await this.list();
  }

  async copy() {
    at('share-link').select();
    try {
      await navigator.clipboard.writeText(at('share-link').value);
      at('share-copy').textContent = 'Copied';
    } catch {
      // Without permission the selected text can be copied by hand.
      at('share-copy').textContent = 'Press Ctrl+C';
    }
  }

  async list() {
    const { data } = await this.api.get(this.path);
    const valid = data.filter((share) => !share.revoked_at && share.expires_at > this.api.now());
    at('shares').replaceChildren(...valid.map((share) => {
      const revoke = button('Revoke');
      revoke.addEventListener('click', () => this.attempt(() => this.revoke(share.share_id)));
      const until = new Date(share.expires_at).toLocaleDateString();
      return element('li', '', element('span', '', `${share.mode === 'live' ? 'Live' : 'Frozen'}, until ${until}`), revoke);
    }));
  }

  async revoke(share_id) {
    await this.api.send(`${this.path}/${share_id}`, { method: 'DELETE' });
    await this.list();
  }
}
