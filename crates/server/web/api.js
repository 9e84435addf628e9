// Requests to this server, with the key of this tab or the token of a share.

import { storage } from './storage.js';

const KEY_ITEM = 'headwater.key';
const PICTURES_MAX = 200;

/** A request that the server refused, or did not answer (`status` 0). The message is for people. */
export class RequestError extends Error {
  constructor(message, { status = 0, code = '' } = {}) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export const tabKey = {
  get: () => storage.get(KEY_ITEM),
  set: (key) => storage.set(KEY_ITEM, key),
  clear: () => storage.remove(KEY_ITEM),
};

/** Whether a header can carry it; `fetch` throws otherwise. */
export const isKeyText = (text) => /^[\x21-\x7e]{1,512}$/.test(text);

export class Api {
  /** @param credential Gives the key or token to send, or `undefined`. */
  constructor(credential) {
    this.credential = credential;
    this.pictures = new Map();
    // The server's clock minus ours, for countdowns.
    this.skewMs = 0;
  }

  headers(more) {
    const credential = this.credential();
    return { ...(credential && { Authorization: `Bearer ${credential}` }), ...more };
  }

  /** Sends a request. Throws a [`RequestError`] unless the answer is 2xx. */
  async send(path, { headers, ...init } = {}) {
    let response;
    try {
      response = await fetch(path, { cache: 'no-store', ...init, headers: this.headers(headers) });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new RequestError('The server does not answer. Is it running?');
    }
    const date = Date.parse(response.headers.get('date') ?? '');
    if (date) this.skewMs = date - Date.now();
    if (response.ok) return response;
    const answer = await response.json().catch(() => ({}));
    const message = answer.detail ?? answer.error?.message ?? `The server answered ${response.status}.`;
    throw new RequestError(sentence(message), { status: response.status, code: answer.code ?? answer.error?.code });
  }

  async get(path) {
    return (await this.send(path)).json();
  }

  /** Posts JSON: a text as it is, anything else as its JSON. */
  async post(path, body, headers) {
    const json = { 'Content-Type': 'application/json', ...headers };
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return (await this.send(path, { method: 'POST', body: text, headers: json })).json();
  }

  async upload(file, signal) {
    const body = new FormData();
    body.append('file', file);
    return (await this.send('api/v1/agent/attachments', { method: 'POST', body, signal })).json();
  }

  async signedUrl({ bucket, path }) {
    const query = new URLSearchParams({ bucket, path });
    return (await this.get(`api/v1/agent/attachments/signed-url?${query}`)).url;
  }

  /** An address that an `<img>` can show. It cannot send a key, so with one the bytes are fetched here. */
  picture(url) {
    if (!this.credential() || !url.startsWith('/v1/blobs/')) return Promise.resolve(url);
    if (!this.pictures.has(url)) {
      if (this.pictures.size >= PICTURES_MAX) this.forgetPictures();
      const fetched = this.send(url.slice(1), { cache: 'default' }).then((response) => response.blob());
      this.pictures.set(url, fetched.then((blob) => URL.createObjectURL(blob)));
    }
    return this.pictures.get(url);
  }

  forgetPictures() {
    for (const picture of this.pictures.values()) picture.then((url) => URL.revokeObjectURL(url), () => {});
    this.pictures.clear();
  }

  now() {
    return Date.now() + this.skewMs;
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');
