// The page: pick an agent, talk to it, reload at any moment.
//
// `api.js` sends requests, `follow.js` keeps one event stream open, `fold.js` turns events into the objects of runs,
// `conversation.js` holds those of a thread, `draw.js` turns them into elements. This file connects them to the page. The
// address selects the thread (`#thr_…`, or `#thr_…/hws_…` for a share), so a reload shows the same.

import { Api, isKeyText, tabKey } from './api.js';
import { readDecision, showCardProblem, tickCountdowns } from './approval.js';
import { Composer } from './composer.js';
import { Conversation } from './conversation.js';
import { drawRuns, inputWords } from './draw.js';
import { at, setNote } from './elements.js';
import { EventLog } from './log.js';
import { Recent } from './recent.js';
import { ShareDialog } from './share.js';

const CONNECTION = { idle: 'Idle', connecting: 'Connecting', live: 'Live', reconnecting: 'Reconnecting', ended: 'Ended' };
// The agents of the embedded demo, for which the page has examples.
const DEMO_AGENTS = ['WeatherAgent', 'demo', 'specialist'];
const WRONG_KEY = 'This key is not valid: it is mistyped, or it was revoked.';
const RETRY_MS = 2_000;
const LOW_PIXELS = 80;

class Page {
  constructor() {
    this.own = new Api(tabKey.get);
    this.api = new Api(() => this.token ?? tabKey.get());
    this.log = new EventLog();
    this.recent = new Recent(this.own);
    this.shares = new ShareDialog(this.own);
    this.composer = new Composer(this.own, { send: (parts) => this.send(parts), stop: () => this.stop() });
    this.listen();
    setInterval(() => tickCountdowns(this.own.now()), 1_000);
    this.begin();
  }

  listen() {
    at('sign-in').addEventListener('submit', (e) => {
      e.preventDefault();
      this.signIn(at('key').value.trim());
    });
    at('sign-out').addEventListener('click', () => {
      this.composer.clear();
      this.signOut('');
    });
    at('scenarios').addEventListener('click', (e) => {
      const { input } = e.target.closest('button')?.dataset ?? {};
      if (input) this.composer.submit(input);
    });
    at('runs').addEventListener('click', (e) => this.clicked(e));
    at('runs').addEventListener('submit', (e) => e.preventDefault());
    at('earlier-runs').addEventListener('click', () => this.attempt(() => this.conversation.fetchRuns()));
    at('share').addEventListener('click', () => this.shares.open(this.conversation.thread_id));
    at('latest').addEventListener('click', () => this.scrollDown());
    at('scroll').addEventListener('scroll', () => this.drawLatest(), { passive: true });
    for (const panel of ['recent', 'log']) {
      at(`show-${panel}`).addEventListener('click', () => this.showPanel(document.body.dataset.panel === panel ? '' : panel));
    }
    for (const link of [at('new'), document.querySelector('.brand')]) link.addEventListener('click', (e) => this.startNew(e));
    document.addEventListener('keydown', (e) => this.pressed(e));
    addEventListener('hashchange', () => this.route());
    addEventListener('popstate', () => this.route());
    addEventListener('online', () => this.conversation?.follower.retryNow());
    document.addEventListener('visibilitychange', () => (document.hidden ? this.conversation?.rest() : this.wake()));
    addEventListener('focus', () => this.wake());
    // Browsers open six connections per host: of the pages where no run is open, the latest keeps its stream.
    this.resting = new BroadcastChannel('headwater.resting');
    this.resting.onmessage = () => this.conversation?.rest();
  }

  wake() {
    this.conversation?.wake();
    this.resting.postMessage('');
  }

  pressed(e) {
    if (e.key !== 'Escape' || e.defaultPrevented || at('share-dialog').open) return;
    if (document.body.dataset.panel) this.showPanel('');
    else if (!this.token && this.conversation?.active()) this.stop();
  }

  clicked(e) {
    const { cites, authorizes } = e.target.closest('a')?.dataset ?? {};
    if (cites) {
      e.preventDefault();
      showSource(cites);
    }
    if (authorizes && tabKey.get()) {
      e.preventDefault();
      this.authorize(authorizes);
    }
    const { decision } = e.target.closest('button')?.dataset ?? {};
    const card = e.target.closest('.question');
    if (decision && card) this.decide(card, decision);
  }

  /** A link cannot send a key, so the page asks where it leads. The tab is opened first: later a browser would block it. */
  async authorize(path) {
    const tab = open('', '_blank');
    if (tab) tab.opener = null;
    try {
      const { authorization_url } = await this.own.post(path.slice(1), {});
      if (!/^https?:/.test(authorization_url)) throw new Error('The authorization server has no web address.');
      if (tab) tab.location.replace(authorization_url);
    } catch (error) {
      tab?.close();
      this.showError(error);
    }
  }

  // ---- who we are

  /** A conversation that the address names is loaded at once; whether that needs a key is found out beside it. */
  async begin() {
    const routed = this.route();
    try {
      await this.loadAgents();
    } catch (error) {
      this.showError(error);
      if (error.status === 0) setTimeout(() => this.begin(), RETRY_MS);
      return;
    }
    if (!this.isKnown && !this.token && tabKey.get()) this.signOut(WRONG_KEY);
    await routed;
    this.composer.setAgent(this.conversation?.last()?.task.agent);
    this.draw();
  }

  /** The agents that one may talk to, which also tells whether a key is needed. */
  async loadAgents() {
    try {
      const { data } = await this.own.get('v1/models');
      this.agents = data.map((model) => model.id);
      this.isKnown = true;
    } catch (error) {
      if (error.status !== 401) throw error;
      this.isKnown = false;
      this.agents = [];
    }
    this.composer.setAgents(this.agents);
    const isDemo = this.agents.length === DEMO_AGENTS.length && DEMO_AGENTS.every((name) => this.agents.includes(name));
    at('scenarios').hidden = !isDemo;
    at('hero-title').textContent = isDemo ? 'Reload in mid-sentence.' : 'Talk to your agents.';
    if (isDemo) at('input').placeholder = 'Weather, an image, a story 200 …';
    if (this.isKnown) this.recent.refresh();
  }

  async signIn(key) {
    if (!isKeyText(key)) return setNote(at('key-problem'), 'This cannot be a key: it has spaces or unusual characters.');
    tabKey.set(key);
    try {
      await this.loadAgents();
    } catch (error) {
      return this.signOut(error.message);
    }
    if (!this.isKnown) return this.signOut(WRONG_KEY);
    at('key').value = '';
    setNote(at('key-problem'), '');
    await this.route();
    return at('input').focus();
  }

  signOut(problem) {
    tabKey.clear();
    this.isKnown = false;
    this.leave();
    this.recent.clear();
    this.own.forgetPictures();
    setNote(at('key-problem'), problem);
    this.draw();
    at('key').focus();
  }

  // ---- which conversation

  readAddress() {
    const [id, token] = location.hash.slice(1).split('/');
    this.token = /^hws_[0-9a-f]+$/.test(token ?? '') ? token : undefined;
    return /^(thr|task)_[A-Za-z0-9_-]{1,64}$/.test(id) ? id : '';
  }

  async route() {
    const id = this.readAddress();
    this.showPanel('');
    setNote(at('problem'), '');
    if (id === (this.conversation?.thread_id ?? '') && this.conversation?.token === this.token) return this.draw();
    this.leave();
    this.draw();
    if (!id || (this.isKnown === false && !this.token)) return undefined;
    return this.attempt(() => this.load(id));
  }

  /** A task’s address leads to its thread. */
  async load(id) {
    if (id.startsWith('task_')) {
      const { thread_id } = await this.api.get(`v1/tasks/${id}`);
      if (this.readAddress() !== id) return undefined;
      history.replaceState(null, '', `#${thread_id}`);
      return this.load(thread_id);
    }
    const conversation = this.open(id);
    try {
      await conversation.load();
    } catch (error) {
      if (this.conversation === conversation) this.leave();
      throw error;
    }
    if (this.conversation !== conversation) return undefined;
    this.composer.setAgent(conversation.last()?.task.agent);
    this.resting.postMessage('');
    this.draw();
    return this.scrollDown();
  }

  open(thread_id) {
    const conversation = new Conversation(this.api, thread_id, {
      changed: () => this.later(),
      logged: (event) => this.log.add(event),
      state: (state) => this.showConnection(state),
      failed: (error) => this.showError(error),
      ended: () => {
        this.resting.postMessage('');
        this.recent.refresh();
      },
    });
    conversation.token = this.token;
    this.conversation = conversation;
    return conversation;
  }

  leave() {
    this.conversation?.close();
    this.conversation = undefined;
    this.api.forgetPictures();
    this.log.clear();
    at('runs').replaceChildren();
    this.showConnection('idle');
  }

  startNew(e) {
    e.preventDefault();
    if (location.hash) history.pushState(null, '', location.pathname + location.search);
    this.route();
    at('input').focus();
  }

  // ---- commands

  /** Sends a message. Gives whether it was taken. */
  send(parts) {
    return this.attempt(async () => {
      const goesOn = this.token ? { share: this.token } : this.conversation && { thread_id: this.conversation.thread_id };
      const body = { model: this.composer.agent, input: parts, ...goesOn };
      const text = JSON.stringify(body);
      // The same message sent again after an error must not be heard twice.
      if (this.unanswered?.text !== text) this.unanswered = { text, key: randomKey() };
      const task = await this.own.post('v1/tasks', body, { 'Idempotency-Key': this.unanswered.key });
      this.unanswered = undefined;
      this.showStarted(task, [{ role: 'user', content: parts }]);
      this.recent.refresh();
    });
  }

  showStarted(task, input) {
    if (task.thread_id === this.conversation?.thread_id) {
      this.conversation.add(task, input);
      this.conversation.wake();
    } else {
      this.leave();
      history.pushState(null, '', `#${task.thread_id}`);
      this.readAddress();
      this.open(task.thread_id).begin(task, input);
    }
    this.draw();
    this.scrollDown();
  }

  stop() {
    const run = this.conversation?.active();
    if (run) this.attempt(() => this.conversation.cancel(run));
  }

  async decide(card, pressed) {
    const decision = readDecision(card, pressed);
    if (!decision) return;
    const run = this.conversation.find(card.closest('.run').dataset.key);
    const { call } = card.dataset;
    const { key } = this.conversation.approvals.get(call) ?? run.task.pending.find((one) => one.call_id === call);
    const buttons = [...card.querySelectorAll('button')];
    for (const button of buttons) button.disabled = true;
    try {
      await this.conversation.decide(run, key, decision);
    } catch (error) {
      showCardProblem(card, error.message);
      for (const button of buttons) button.disabled = false;
    }
  }

  /** Runs an action, and shows its error. Gives whether it succeeded. */
  async attempt(action) {
    try {
      await action();
      setNote(at('problem'), '');
      return true;
    } catch (error) {
      this.showError(error);
      return false;
    }
  }

  showError(error) {
    if (error.status === 401 && this.token) error.message = 'This link has expired or was revoked.';
    else if (error.status === 401) return this.signOut(tabKey.get() ? WRONG_KEY : '');
    else if (error.code === 'not_found') error.message = 'There is no such conversation, or it is not yours.';
    setNote(at('problem'), error.message);
    return this.draw();
  }

  // ---- drawing

  showConnection(state) {
    document.body.dataset.connection = state;
    at('connection-word').textContent = CONNECTION[state];
    this.later();
  }

  showPanel(panel) {
    document.body.dataset.panel = panel;
    for (const name of ['recent', 'log']) at(`show-${name}`).setAttribute('aria-expanded', String(name === panel));
  }

  /** Draws all events between two frames at once. A hidden page has no frames. */
  later() {
    if (this.isDue) return;
    this.isDue = true;
    const draw = () => {
      this.isDue = false;
      this.draw();
    };
    if (document.hidden) setTimeout(draw, 100);
    else requestAnimationFrame(draw);
  }

  draw() {
    const { conversation, token } = this;
    const isLow = this.isLow();
    const { dataset } = document.body;
    dataset.view = this.view();
    const run = conversation?.last();
    if (conversation) {
      const { api, approvals } = conversation;
      drawRuns(at('runs'), conversation.runs, { api, approvals, mayDecide: !token });
      at('earlier-runs').hidden = !conversation.hasEarlier;
      if (isLow) this.scrollDown();
    }
    this.drawFoot(run);
    tickCountdowns(this.own.now());
    this.log.draw(conversation);
    this.recent.draw(conversation);
    const words = run && inputWords(run.input).slice(0, 60);
    document.title = words ? `${words} · Headwater` : 'Headwater';
    Object.assign(dataset, { status: run?.task.status ?? 'none', task: run?.task.task_id ?? '', seq: conversation?.seq ?? 0 });
    if (conversation?.snapshot === undefined) delete dataset.snapshot;
    else dataset.snapshot = conversation.snapshot;
    if (run?.same === undefined) delete dataset.same;
    else dataset.same = run.same;
    this.drawLatest();
  }

  view() {
    if (this.conversation) return 'thread';
    if (this.isKnown === undefined || this.token) return 'loading';
    return this.isKnown ? 'empty' : 'sign-in';
  }

  drawFoot(run) {
    const { token, isKnown, conversation } = this;
    at('ask').hidden = !isKnown;
    at('shared').hidden = !token;
    setNote(at('shared-hint'), isKnown ? 'What you write continues in a copy of your own.' : '');
    at('stop').hidden = Boolean(token) || !conversation?.active();
    at('share').hidden = Boolean(token) || !run;
    at('show-recent').hidden = !isKnown;
    at('show-log').hidden = !conversation;
    at('sign-out').hidden = !tabKey.get();
  }

  isLow() {
    const { scrollTop, clientHeight, scrollHeight } = at('scroll');
    return scrollTop + clientHeight > scrollHeight - LOW_PIXELS;
  }

  scrollDown() {
    at('scroll').scrollTop = at('scroll').scrollHeight;
  }

  drawLatest() {
    at('latest').hidden = !this.conversation || this.isLow();
  }
}

function showSource(number) {
  const source = at(`reference-${number}`);
  source?.scrollIntoView({ block: 'center' });
  source?.focus({ preventScroll: true });
}

function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

new Page();
