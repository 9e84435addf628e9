// The card of a call that waits for a person: approve, reject, or edit its arguments, or answer its question, before its
// time is up.

import { button, child, element, indented, setNote } from './elements.js';
import { same } from './fold.js';
import { answerParts, readAnswer } from './question.js';

/** Draws what is asked about a call, or what was decided. The card is made once, because people type in it. */
export function drawApproval(node, call, { asked, isPending, isClientCall, mayDecide }) {
  const card = child(node, 'question', () => Object.assign(element('form', 'question'), { hidden: true }));
  card.dataset.call = call.call_id;
  drawDecision(node, call, asked);
  const key = asked?.key ?? '';
  if (isPending && (card.hidden || card.dataset.asked !== key)) {
    card.replaceChildren(...(isClientCall ? clientParts() : parts(call, asked, mayDecide)));
    card.dataset.asked = key;
    card.hidden = false;
  }
  if (!isPending) card.hidden = true;
  const clock = card.querySelector('.countdown');
  if (clock && asked?.expires_at) clock.dataset.expires = asked.expires_at;
}

const clientParts = () => [element('p', 'asks', 'Waiting for the client’s result.')];

function parts(call, asked, mayDecide) {
  if (asked?.question) {
    const [line, ...rest] = answerParts(asked.question, element('span', 'countdown'), mayDecide);
    return mayDecide ? [line, rest[0], problemNote(), rest[1]] : [line];
  }
  const words = mayDecide ? 'This call needs your decision.' : 'This call waits for a decision of its owner.';
  const line = element('p', 'asks', element('span', '', words), ' ', element('span', 'countdown'));
  if (!mayDecide) return [line];
  const editor = element('textarea', 'editor');
  editor.hidden = true;
  editor.spellcheck = false;
  editor.value = indented(call.arguments || JSON.stringify(asked?.args ?? {}));
  editor.rows = Math.min(12, editor.value.split('\n').length);
  editor.setAttribute('aria-label', `Arguments of ${call.display_name ?? call.name}, as JSON`);
  const buttons = element(
    'div',
    'buttons',
    button('Approve', 'main', { decision: 'approve' }),
    button('Edit', '', { decision: 'open-editor' }),
    button('Reject', '', { decision: 'reject' }),
  );
  return [line, editor, problemNote(), buttons];
}

function problemNote() {
  const problem = element('p', 'failure');
  problem.hidden = true;
  problem.setAttribute('role', 'alert');
  return problem;
}

/**
 * A button of a card was pressed. Gives the decision to send, as JSON, or `undefined` when there is none yet. Edited
 * arguments are sent as they were typed: parsing would round their numbers.
 */
export function readDecision(card, pressed) {
  const editor = card.querySelector('.editor');
  if (pressed === 'open-editor') {
    setEditing(card, editor.hidden);
    return undefined;
  }
  showCardProblem(card, '');
  if (pressed === 'answer') {
    const { text, problem } = readAnswer(card.querySelector('.answer'));
    if (problem) showCardProblem(card, problem);
    return text && `{"decision":"approve","arguments":${text}}`;
  }
  if (pressed !== 'edit') return JSON.stringify({ decision: pressed });
  const value = parsed(editor.value);
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  if (isObject) return `{"decision":"edit","arguments":${editor.value}}`;
  showCardProblem(card, 'The arguments must be a JSON object.');
  return undefined;
}

function setEditing(card, isEditing) {
  const editor = card.querySelector('.editor');
  editor.hidden = !isEditing;
  const [approve, edit] = card.querySelectorAll('button');
  approve.textContent = isEditing ? 'Approve edited' : 'Approve';
  approve.dataset.decision = isEditing ? 'edit' : 'approve';
  edit.textContent = isEditing ? 'Keep the original' : 'Edit';
  showCardProblem(card, '');
  if (isEditing) editor.focus();
}

export const showCardProblem = (card, text) => setNote(card.querySelector('.failure'), text);

const DECIDED = { approve: 'Approved', edit: 'Approved', reject: 'Rejected' };
const BY = { timeout: ' because the time was up', system: ' by the server', cancel: ' because the run was cancelled' };

function drawDecision(node, call, asked) {
  const note = child(node, 'decision', () => element('p', 'decision', element('span'), ' ', element('code')));
  const { type, by, args } = asked?.decision ?? {};
  note.hidden = !DECIDED[type];
  if (note.hidden) return;
  note.dataset.decision = type;
  if (asked.question) {
    note.firstChild.textContent = (type === 'reject' ? 'Declined' : 'Answered') + (BY[by] ?? '');
    note.lastChild.textContent = args === undefined ? '' : JSON.stringify(args);
    return;
  }
  const isEdited = type === 'edit' && !same(parsed(call.original_arguments ?? call.arguments), args);
  note.firstChild.textContent = (isEdited ? 'Approved with other arguments' : DECIDED[type]) + (BY[by] ?? '');
  // A call that has its original arguments shows the others itself.
  note.lastChild.textContent = isEdited && call.original_arguments === undefined ? JSON.stringify(args) : '';
}

/** Updates every countdown of the page. */
export function tickCountdowns(now) {
  for (const clock of document.querySelectorAll('.countdown[data-expires]')) {
    const seconds = Math.ceil((Number(clock.dataset.expires) - now) / 1_000);
    const text = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')} left`;
    clock.textContent = seconds > 0 ? text : 'The time is up.';
    clock.classList.toggle('soon', seconds <= 30);
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
