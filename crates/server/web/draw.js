// Draws the task's object. The output of models and tools becomes text nodes only.

import { isItem, isOver, ownBlocks, progressOf, resultOf } from './fold.js';

export function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** Draws items into `parent`, and reuses its elements. */
export function drawItems(parent, items, task) {
  const calls = new Map();
  for (const item of items) {
    // A result is drawn inside the card of its call.
    const room = item.type === 'tool_result' ? (calls.get(item.call_id) ?? parent) : parent;
    const node = child(room, item.id, () => element('section', `item ${item.type}`));
    node.dataset.state = item.status ?? '';
    DRAW[item.type]?.(node, item, task);
    if (item.type === 'tool_call') calls.set(item.call_id, node);
    cutNote(node, item);
  }
  const known = new Set(items.map((item) => item.id));
  for (const node of [...parent.children]) if (node.dataset.key && !known.has(node.dataset.key)) node.remove();
}

const DRAW = {
  reasoning(node, item) {
    label(node, 'Thinking');
    (item.summary ?? []).forEach((part, at) => {
      drawText(child(node, `part-${at}`, () => element('p', 'words')), part.text ?? '');
    });
  },
  tool_call(node, item, task) {
    const line = child(node, 'line', () => element('p', 'line', element('b'), element('code', 'arguments')));
    line.firstChild.textContent = item.display_name ?? item.name;
    line.firstChild.title = item.name;
    drawText(line.lastChild, item.arguments ?? '');
    const answered = resultOf(task.output, item.call_id);
    const pending = task.pending.find((one) => one.call_id === item.call_id);
    const going = !answered && !isOver(task) && item.status === 'completed';
    node.classList.toggle('waiting', going && !pending);
    drawProgress(node, going ? progressOf(task, item.call_id) : undefined);
    drawQuestion(node, pending);
  },
  tool_result(node, item, task) {
    drawBlocks(node, item, task);
    drawItems(child(node, 'inner', () => element('div', 'inner')), (item.block_list ?? []).filter(isItem), task);
    if (item.error) child(node, 'error', () => element('p', 'failure')).textContent = item.error.message;
  },
  message(node, item, task) {
    drawBlocks(node, item, task);
  },
  hosted_call(node, item, task) {
    const state = item.status === 'in_progress' ? (item.state ?? '') : '';
    label(node, item.name.replaceAll('_', ' '), state.replaceAll('_', ' '));
    drawBlocks(node, item, task);
  },
  file_processing(node, item) {
    label(node, 'Files');
    item.files.forEach((file, at) => {
      const line = child(node, `file-${at}`, () => element('p', 'file', element('code'), element('span')));
      line.dataset.state = file.status;
      line.firstChild.textContent = file.url;
      line.lastChild.textContent = file.message ?? (file.status === 'processing' ? 'Reading …' : file.status);
    });
  },
};

/** The progress of a tool: its message, and a bar if it reports a total. */
function drawProgress(node, now) {
  const line = child(node, 'progress', () => element('p', 'progress', element('span'), element('progress')));
  line.hidden = !now;
  if (!now) return;
  line.firstChild.textContent = now.message ?? '';
  line.lastChild.hidden = typeof now.progress !== 'number';
  line.lastChild.max = now.total ?? 1;
  line.lastChild.value = now.progress ?? 0;
}

/** A call that waits for approval. The buttons have the key and the decision that the page sends. */
function drawQuestion(node, pending) {
  const card = child(node, 'question', () => Object.assign(element('div', 'question'), { hidden: true }));
  if (!pending) card.hidden = true;
  if (!pending || !card.hidden) return;
  const asks = pending.kind === 'approval';
  const answers = asks ? [['approve', 'Approve'], ['reject', 'Reject']] : [];
  const buttons = answers.map(([decision, word]) => {
    const button = element('button', decision === 'approve' ? 'main' : '', word);
    button.type = 'button';
    Object.assign(button.dataset, { decision, approval: pending.key });
    return button;
  });
  const words = asks ? 'This call needs your decision.' : 'Waiting for the client’s result.';
  card.replaceChildren(element('p', '', words), ...buttons);
  card.hidden = false;
}

/** The child with this key, created if missing. */
function child(parent, key, make) {
  for (const node of parent.children) if (node.dataset.key === key) return node;
  const node = make();
  node.dataset.key = key;
  parent.append(node);
  return node;
}

function label(node, word, state = '') {
  const line = child(node, 'label', () => element('h3', '', element('span'), element('small')));
  line.firstChild.textContent = word;
  line.lastChild.textContent = state;
}

const CUT_WORDS = { incomplete: 'cut short', rejected: 'rejected', unknown: 'outcome unknown' };

function cutNote(node, item) {
  if (!Object.hasOwn(CUT_WORDS, item.status)) return;
  const note = child(node, 'cut', () => element('p', 'cut'));
  note.textContent = CUT_WORDS[item.status] + (item.reason ? `: ${item.reason}` : '');
  node.append(note);
}

function drawBlocks(node, item, task) {
  ownBlocks(item).forEach((block, at) => {
    const drawn = child(node, `block-${at}`, () => element(block.type === 'text' ? 'p' : 'figure', block.type));
    if (block.id !== undefined && item.type === 'tool_result') {
      drawn.dataset.reference = block.id;
      if (!document.getElementById(`reference-${block.id}`)) {
        drawn.id = `reference-${block.id}`;
        drawn.tabIndex = -1;
      }
    }
    if (block.type === 'text') drawText(drawn, block.text ?? '', block.annotations ?? [], task);
    else drawImage(drawn, block, item);
  });
}

/** Draws text. Usually it has only grown, and then its last text node is extended. */
function drawText(node, text, annotations = [], task = undefined) {
  const before = node.drawn ?? { text: '', marks: 0 };
  if (before.text === text && before.marks === annotations.length) return;
  const tail = node.lastChild;
  if (before.marks === annotations.length && text.startsWith(before.text) && tail?.nodeType === Node.TEXT_NODE) {
    tail.appendData(text.slice(before.text.length));
  } else {
    node.replaceChildren(...pieces(text, annotations, task));
  }
  node.drawn = { text, marks: annotations.length };
}

/** Splits text at its annotations. Offsets count code points, unlike JavaScript's. */
function pieces(text, annotations, task) {
  const points = Array.from(text);
  const out = [];
  let at = 0;
  const sorted = annotations.filter((mark) => mark.start_index >= 0).sort((a, b) => a.start_index - b.start_index);
  for (const mark of sorted) {
    if (mark.start_index < at || mark.end_index > points.length) continue;
    out.push(points.slice(at, mark.start_index).join(''));
    out.push(citation(mark, points.slice(mark.start_index, mark.end_index).join(''), task));
    at = mark.end_index;
  }
  out.push(document.createTextNode(points.slice(at).join('')));
  return out;
}

function citation(mark, words, task) {
  const link = element('a', 'citation');
  if (mark.type === 'reference_to_block') {
    // The brackets of the marker are hidden but stay in the text for copying.
    const number = String(mark.reference_id);
    const [open, close] = words.split(number, 2);
    link.append(element('span', 'quiet', open ?? ''), number, element('span', 'quiet', close ?? ''));
    link.href = `#${task.task_id}/${number}`;
    link.title = `Source ${number}`;
    return link;
  }
  link.append(words);
  link.classList.add('page');
  if (/^https?:\/\//i.test(mark.url ?? '')) {
    const title = mark.title ?? mark.url;
    Object.assign(link, { href: mark.url, title, target: '_blank', rel: 'noopener noreferrer' });
  }
  return link;
}

function drawImage(node, block, item) {
  const { url } = block.image_url;
  if (url === '' || node.drawn === url) return;
  node.drawn = url;
  // Images of other hosts would reveal the viewer to them.
  if (!/^data:image\/|^\/v1\/blobs\//.test(url)) {
    node.replaceChildren(element('span', 'elsewhere', url));
    return;
  }
  const picture = node.querySelector('img') ?? node.appendChild(element('img'));
  picture.alt = item.name ? `Picture by ${item.name.replaceAll('_', ' ')}` : 'Picture from the tool';
  picture.src = url;
}
