// The form of a question: one field per property of its schema, or a text field for JSON where the schema has others.

import { button, element, indented } from './elements.js';

/** The fields and buttons for an answer to `question`. */
export function answerParts({ message, schema, url }, countdown, mayDecide) {
  const line = element('p', 'asks', element('span', 'message', message), ' ', ...link(url), countdown);
  if (!mayDecide) return [line];
  const fields = Object.entries(schema?.properties ?? {}).map(([name, property]) => field(name, property, schema));
  const isForm = fields.length > 0 && fields.every(Boolean);
  const parts = isForm ? fields : schemaIsEmpty(schema) ? [] : [jsonField(schema)];
  const buttons = element(
    'div',
    'buttons',
    button('Send', 'main', { decision: 'answer' }),
    button('Decline', '', { decision: 'reject' }),
  );
  return [line, element('div', 'answer', ...parts), buttons];
}

/** To an address of this server alone: what it leads to opens beside the page. */
function link(url) {
  if (!url?.startsWith('/v1/')) return [];
  const anchor = element('a', '', 'Open');
  Object.assign(anchor, { href: url, target: '_blank', rel: 'noopener noreferrer' });
  anchor.dataset.authorizes = url;
  return [anchor, ' '];
}

const schemaIsEmpty = (schema) => schema?.type === 'object' && Object.keys(schema.properties ?? {}).length === 0;

/** A labelled field, or `undefined` for a property that needs JSON. */
function field(name, property, schema) {
  const isRequired = (schema.required ?? []).includes(name);
  const input = control(property ?? {}, isRequired);
  if (!input) return undefined;
  input.dataset.name = name;
  input.dataset.required = isRequired;
  const title = element('span', 'title', property.title ?? name, isRequired ? '' : ' (optional)');
  const help = property.description ? [element('small', '', property.description)] : [];
  return element('label', 'field', title, input, ...help);
}

function control({ type, enum: values, oneOf, default: first, format }, isRequired) {
  const options = values?.map((value) => [value, value]) ?? oneOf?.map((one) => [one.const, one.title ?? one.const]);
  if (options?.every(([value]) => typeof value === 'string')) return choice(options, first, isRequired);
  if (options || Array.isArray(type)) return undefined;
  const input = element('input');
  switch (type) {
    case 'boolean':
      input.type = 'checkbox';
      input.checked = first === true;
      break;
    case 'integer':
    case 'number':
      input.type = 'text';
      input.inputMode = type === 'integer' ? 'numeric' : 'decimal';
      input.value = first ?? '';
      break;
    case 'string':
      input.type = { email: 'email', uri: 'url', date: 'date' }[format] ?? 'text';
      input.value = first ?? '';
      break;
    default:
      return undefined;
  }
  input.dataset.type = type;
  return input;
}

function choice(options, first, isRequired) {
  const select = element('select');
  if (!isRequired || first === undefined) select.append(element('option'));
  for (const [value, title] of options) {
    const option = element('option', '', title);
    option.value = value;
    option.selected = value === first;
    select.append(option);
  }
  select.dataset.type = 'string';
  return select;
}

function jsonField(schema) {
  const editor = element('textarea', 'editor');
  editor.spellcheck = false;
  editor.rows = 4;
  editor.value = '{}';
  editor.setAttribute('aria-label', 'The answer, as JSON');
  const note = element('pre', '', indented(JSON.stringify(schema ?? {})));
  return element('div', 'field', editor, ...(schema ? [element('details', '', element('summary', '', 'Its schema'), note)] : []));
}

/** What was filled in, as the text of a JSON object, or a `problem`. Numbers are sent as they were typed. */
export function readAnswer(form) {
  const editor = form.querySelector('.editor');
  if (editor) return isObject(editor.value) ? { text: editor.value } : { problem: 'The answer must be a JSON object.' };
  const members = [];
  for (const input of form.querySelectorAll('[data-name]')) {
    const { name, type, required } = input.dataset;
    const label = JSON.stringify(name);
    if (type === 'boolean') members.push(`${label}:${input.checked}`);
    else if (input.value === '' && (type !== 'string' || required !== 'true' || input.tagName === 'SELECT')) {
      if (required === 'true') return { problem: `“${name}” is missing.` };
    } else if (type === 'string') members.push(`${label}:${JSON.stringify(input.value)}`);
    else if (isNumber(input.value)) members.push(`${label}:${input.value.trim()}`);
    else return { problem: `“${name}” must be a number.` };
  }
  return { text: `{${members.join(',')}}` };
}

const isNumber = (text) => typeof parsed(text) === 'number';

function isObject(text) {
  const value = parsed(text);
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
