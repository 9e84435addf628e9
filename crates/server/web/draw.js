// Draws a run: what was asked, its items, and how it ended. The output of models and tools becomes text nodes only.

import { drawApproval } from './approval.js';
import { button, child, duration, element, foldedText, isLong } from './elements.js';
import { isItem, isOver, ownBlocks, progressOf, resultOf } from './fold.js';

/**
 * Draws the runs of a conversation into `parent`, and reuses its elements.
 * `view` has `api`, `approvals` (by call id) and `mayDecide`.
 */
export function drawRuns(parent, runs, view) {
  runs.forEach((run, index) => {
    const node = child(parent, run.task.task_id, () => element('article', 'run'));
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
    drawRun(node, run, { ...view, task: run.task });
  });
  const known = new Set(runs.map((run) => run.task.task_id));
  for (const node of [...parent.children]) if (!known.has(node.dataset.key)) node.remove();
}

function drawRun(node, run, view) {
  const { task } = run;
  // A run that has ended and was drawn since does not change any more.
  const state = [task, task.seq, run.input, run.same];
  if (isOver(task) && node.drawnState?.every((part, index) => part === state[index])) return;
  node.drawnState = state;
  node.dataset.status = task.status;
  node.setAttribute('aria-busy', String(task.status === 'running' || task.status === 'queued'));
  const asked = child(node, 'asked', () => element('div', 'asked'));
  if (node.drawnInput !== run.input) asked.replaceChildren(...inputParts(run.input, view));
  node.drawnInput = run.input;
  drawItems(child(node, 'output', () => element('div', 'output')), task.output, view);
  drawEnd(child(node, 'end', () => element('div', 'end')), run);
}

/** The words of the messages that the user added last. */
export const inputWords = (input) =>
  latestUserMessages(input).flatMap((message) => message.content).map((part) => part.text ?? '').join(' ').trim();

function latestUserMessages(input) {
  // A client may have sent a whole history along.
  const start = input.findLastIndex((message) => message.role !== 'user') + 1;
  return input.slice(start);
}

function inputParts(input, view) {
  return latestUserMessages(input).map((message) => {
    const files = message.content.filter((part) => part.type === 'file').map((part) => fileLink(part.file, view));
    const pictures = message.content.filter((part) => part.type === 'image_url').map((part) => {
      const figure = element('figure');
      drawImage(figure, part.image_url.url, 'Attached picture', view);
      return figure;
    });
    const words = message.content.map((part) => part.text ?? '').filter(Boolean).join('\n');
    return element('div', 'bubble', ...pictures, ...files, ...(words ? [element('p', 'text', words)] : []));
  });
}

/** A file that was attached. Its address is signed when somebody opens it. */
function fileLink(file, view) {
  const name = file.name ?? file.path?.split('/').at(-1) ?? file.url ?? 'file';
  if (file.url) return element('span', 'attachment', name);
  const link = button(name, 'attachment');
  link.title = 'Open';
  if (/\.(png|jpe?g|gif|webp)$/i.test(file.path)) showThumbnail(link, file, name, view);
  link.addEventListener('click', async () => {
    const url = await view.api.signedUrl(file).catch(() => undefined);
    if (url) open(url, '_blank', 'noopener');
    else link.title = 'This file cannot be read.';
  });
  return link;
}

/** A picture in a bucket has another origin, and stays a name. */
async function showThumbnail(link, file, name, view) {
  const url = await view.api.signedUrl(file).catch(() => undefined);
  if (!url || new URL(url, location.href).origin !== location.origin) return;
  const picture = Object.assign(element('img'), { src: url, alt: name });
  link.classList.add('thumbnail');
  link.replaceChildren(picture);
}

/** Draws items into `parent`, and reuses its elements. */
function drawItems(parent, items, view) {
  const calls = new Map();
  for (const item of items) {
    // A result is drawn inside the card of its call.
    const room = item.type === 'tool_result' ? (calls.get(item.call_id) ?? parent) : parent;
    const node = child(room, item.id, () => element(item.type === 'reasoning' ? 'details' : 'section', `item ${item.type}`));
    node.dataset.state = item.status ?? '';
    DRAW[item.type]?.(node, item, view);
    if (item.type === 'tool_call') calls.set(item.call_id, node);
    cutNote(node, item);
  }
  const known = new Set(items.map((item) => item.id));
  for (const node of [...parent.children]) if (node.dataset.key && !known.has(node.dataset.key)) node.remove();
}

const DRAW = {
  reasoning(node, item) {
    const isGoing = item.status === 'in_progress';
    const head = child(node, 'label', () => element('summary', ''));
    head.textContent = isGoing ? 'Thinking' : 'Thoughts';
    // Open while it thinks; afterwards as people leave it.
    if (node.drawnGoing !== isGoing) node.open = isGoing;
    node.drawnGoing = isGoing;
    (item.summary ?? []).forEach((part, index) => {
      drawText(child(node, `part-${index}`, () => element('p', 'words')), part.text ?? '');
    });
  },
  tool_call(node, item, view) {
    const { task, approvals, mayDecide } = view;
    const line = child(node, 'line', () => element('p', 'line', element('b'), element('code', 'arguments')));
    line.firstChild.textContent = item.display_name ?? item.name;
    line.firstChild.title = item.name;
    drawArguments(node, line.lastChild, item);
    const isAnswered = resultOf(task.output, item.call_id) !== undefined;
    const asked = approvals.get(item.call_id);
    const pending = task.pending.find((one) => one.call_id === item.call_id);
    const isGoing = !isAnswered && !isOver(task) && item.status === 'completed';
    const isPending = isGoing && (pending !== undefined || (asked !== undefined && !asked.decision));
    node.classList.toggle('waiting', isGoing && !isPending);
    drawProgress(node, isGoing && !isPending ? progressOf(task, item.call_id) : undefined);
    const isClientCall = pending?.kind === 'client_tool';
    drawApproval(node, item, { asked: asked ?? pending, isPending, isClientCall, mayDecide });
  },
  tool_result(node, item, view) {
    drawBlocks(node, item, view);
    drawItems(child(node, 'inner', () => element('div', 'inner')), (item.block_list ?? []).filter(isItem), view);
    if (item.error) child(node, 'error', () => element('p', 'failure')).textContent = item.error.message;
  },
  message(node, item, view) {
    drawBlocks(node, item, view);
  },
  hosted_call(node, item, view) {
    const state = item.status === 'in_progress' ? (item.state ?? '') : '';
    label(node, item.name.replaceAll('_', ' '), state.replaceAll('_', ' '));
    drawBlocks(node, item, view);
  },
  file_processing(node, item) {
    label(node, 'Files');
    item.files.forEach((file, index) => {
      const line = child(node, `file-${index}`, () => element('p', 'file', element('code'), element('span')));
      line.dataset.state = file.status;
      line.firstChild.textContent = file.url;
      line.lastChild.textContent = file.message ?? (file.status === 'processing' ? 'Reading …' : file.status);
    });
  },
};

/** Arguments beside the name; folded below it once they are complete and long. */
function drawArguments(node, code, item) {
  const text = item.arguments ?? '';
  const isFolded = item.status !== 'in_progress' && isLong(text);
  code.hidden = isFolded;
  if (!isFolded) drawText(code, text);
  else if (node.drawnArguments !== text) child(node, 'folded', () => element('div', 'long')).replaceChildren(foldedText(text));
  node.drawnArguments = isFolded ? text : undefined;
  if (item.original_arguments === undefined) return;
  child(node, 'original', () => element('p', 'decision')).textContent = `The model asked for ${item.original_arguments}`;
}

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

function drawBlocks(node, item, view) {
  ownBlocks(item).forEach((block, index) => {
    const drawn = child(node, `block-${index}`, () => element(block.type === 'text' ? 'div' : 'figure', block.type));
    if (block.id !== undefined && item.type === 'tool_result') {
      drawn.dataset.reference = block.id;
      if (!document.getElementById(`reference-${block.id}`)) {
        drawn.id = `reference-${block.id}`;
        drawn.tabIndex = -1;
      }
    }
    const title = item.name ? `Picture by ${item.name.replaceAll('_', ' ')}` : 'Picture from the tool';
    if (block.type !== 'text') drawImage(drawn, block.image_url.url, title, view);
    else if (item.type === 'tool_result' && item.status !== 'in_progress' && isLong(block.text ?? '')) drawFolded(drawn, block.text);
    else drawText(drawn, block.text ?? '', block.annotations ?? []);
  });
}

function drawFolded(node, text) {
  if (node.drawnFolded === text) return;
  node.drawnFolded = text;
  node.replaceChildren(foldedText(text));
}

/** Draws text. Usually it has only grown, and then its last text node is extended. */
function drawText(node, text, annotations = []) {
  const before = node.drawn ?? { text: '', marks: 0 };
  if (before.text === text && before.marks === annotations.length) return;
  const tail = node.lastChild;
  if (before.marks === annotations.length && text.startsWith(before.text) && tail?.nodeType === Node.TEXT_NODE) {
    tail.appendData(text.slice(before.text.length));
  } else {
    node.replaceChildren(...pieces(text, annotations));
  }
  node.drawn = { text, marks: annotations.length };
}

/** Splits text at its annotations. Offsets count code points, unlike JavaScript's. */
function pieces(text, annotations) {
  const points = Array.from(text);
  const out = [];
  let from = 0;
  const sorted = annotations.filter((mark) => mark.start_index >= 0).sort((a, b) => a.start_index - b.start_index);
  for (const mark of sorted) {
    if (mark.start_index < from || mark.end_index > points.length) continue;
    out.push(points.slice(from, mark.start_index).join(''));
    out.push(citation(mark, points.slice(mark.start_index, mark.end_index).join('')));
    from = mark.end_index;
  }
  out.push(document.createTextNode(points.slice(from).join('')));
  return out;
}

function citation(mark, words) {
  const link = element('a', 'citation');
  if (mark.type === 'reference_to_block') {
    // The brackets of the marker are hidden but stay in the text for copying.
    const number = String(mark.reference_id);
    const [open, close] = words.split(number, 2);
    link.append(element('span', 'quiet', open ?? ''), number, element('span', 'quiet', close ?? ''));
    link.href = `#reference-${number}`;
    link.dataset.cites = number;
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

async function drawImage(node, url, title, view) {
  if (url === '' || node.drawn === url) return;
  node.drawn = url;
  // Images of other hosts would reveal the viewer to them.
  if (!/^data:image\/|^\/v1\/blobs\//.test(url)) {
    node.replaceChildren(element('span', 'elsewhere', url));
    return;
  }
  const picture = node.querySelector('img') ?? node.appendChild(element('img'));
  picture.alt = title;
  if (!view.api.credential()) {
    picture.src = url;
    return;
  }
  const source = await view.api.picture(url).catch(() => undefined);
  if (node.drawn !== url) return;
  if (source) picture.src = source;
  else node.replaceChildren(element('span', 'elsewhere', 'This picture cannot be read.'));
}

function drawEnd(node, run) {
  const { task } = run;
  const notes = [];
  if (task.error) notes.push(element('p', 'failure', element('b', '', task.error.code), ` ${task.error.message}`));
  else if (task.status === 'cancelled') notes.push(element('p', 'failure', 'Stopped. The output up to here is kept.'));
  else if (task.status === 'incomplete') notes.push(element('p', 'failure', `Ended by a limit: ${task.reason}.`));
  else if (task.status === 'paused') notes.push(element('p', 'waits', waitsFor(task.pending)));
  else if (task.status === 'queued') notes.push(element('p', 'facts', 'Waiting for its turn'));
  else if (task.status === 'running' && task.output.length === 0) notes.push(element('p', 'facts working', 'Working'));
  if (isOver(task)) notes.push(element('p', 'facts', facts(run)));
  if (run.same === false) {
    notes.push(element('p', 'failure', 'The object folded from events differed from the server’s and was replaced.'));
  }
  const text = notes.map((note) => note.textContent).join('\n');
  if (node.drawn === text) return;
  node.drawn = text;
  node.replaceChildren(...notes);
}

function facts({ task, same }) {
  const tokens = task.usage.output_tokens ? [`${task.usage.output_tokens} tokens`] : [];
  const checked = same ? ['✓ matches the server'] : [];
  return [task.agent, duration(task.ended_at - task.created_at), ...tokens, ...checked].join(' · ');
}

function waitsFor(pending) {
  const count = (kind) => pending.filter((one) => one.kind === kind).length;
  const named = (number, one, many) => number && (number === 1 ? one : `${number} ${many}`);
  const parts = [
    named(count('approval'), 'a decision', 'decisions'),
    named(count('question'), 'an answer', 'answers'),
    named(count('client_tool'), 'a client tool', 'client tools'),
  ];
  return `Paused: waiting for ${parts.filter(Boolean).join(' and ')}.`;
}
