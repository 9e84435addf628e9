// Small helpers for elements. The output of models and tools becomes text nodes only.

export const at = (id) => document.getElementById(id);

export function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

export function button(word, className = '', data = {}) {
  const node = element('button', className, word);
  node.type = 'button';
  Object.assign(node.dataset, data);
  return node;
}

/** The child with this key, created if missing, so that drawing again reuses elements. */
export function child(parent, key, make) {
  for (const node of parent.children) if (node.dataset.key === key) return node;
  const node = make();
  node.dataset.key = key;
  parent.append(node);
  return node;
}

/** Shows a text, or hides its element when there is none. */
export function setNote(node, text) {
  node.textContent = text;
  node.hidden = text === '';
}

const LONG_CHARS = 280;
const LONG_LINES = 8;
const PREVIEW_CHARS = 90;

export const isLong = (text) => text.length > LONG_CHARS || text.split('\n', LONG_LINES + 1).length > LONG_LINES;

/** A long text, folded; JSON is indented. */
export function foldedText(text) {
  const preview = text.slice(0, PREVIEW_CHARS).replace(/\s+/g, ' ').trim();
  const size = text.length < 1_000 ? `${text.length} characters` : `${(text.length / 1_000).toFixed(1)} k characters`;
  const summary = element('summary', '', element('code', '', `${preview} …`), element('small', '', size));
  const pre = element('pre', '', indented(text));
  pre.tabIndex = 0;
  return element('details', 'folded', summary, pre);
}

const JSON_TOKENS = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;

/** Indents JSON. Its numbers keep their text, which parsing would round. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let [out, depth, before] = ['', 0, ''];
  const newLine = () => `\n${'  '.repeat(depth)}`;
  for (const token of text.match(JSON_TOKENS)) {
    const isClosing = token === '}' || token === ']';
    if (isClosing) depth -= 1;
    const isFirst = before === '{' || before === '[';
    if (isClosing ? !isFirst : isFirst || before === ',') out += newLine();
    out += token === ':' ? ': ' : token;
    if (token === '{' || token === '[') depth += 1;
    before = token;
  }
  return out;
}

export const duration = (ms) => (ms < 1_000 ? `${ms} ms` : `${(ms / 1_000).toFixed(1)} s`);

export function when(millis) {
  const date = new Date(millis);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) : date.toLocaleDateString();
}
