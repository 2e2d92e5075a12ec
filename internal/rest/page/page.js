// The page of the API. It shows the operations of openapi.json and sends requests. It needs nothing but this
// server.
'use strict';

const root = location.pathname.replace(/docs\/.*$/, ''); // where the handler is mounted
const $ = (id) => document.getElementById(id);
let description;

// el makes an element with attributes and children. Text is never read as HTML.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (value === true) e.setAttribute(key, '');
    else if (value !== false && value != null) e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

// The token stays in this tab.
const stored = {
  get: () => { try { return sessionStorage.getItem('token') || ''; } catch { return ''; } },
  set: (t) => { try { t ? sessionStorage.setItem('token', t) : sessionStorage.removeItem('token'); } catch { /* it is for this page only */ } },
};
let token = stored.get();
const authorized = (headers) => (token ? { ...headers, Authorization: 'Bearer ' + token } : { ...headers });

async function load() {
  const list = $('operations');
  let answer;
  try {
    answer = await fetch(root + 'api/v1/openapi.json', { headers: authorized({}) });
  } catch (err) {
    list.replaceChildren(el('p', { class: 'error' }, 'The server does not answer: ' + err.message));
    return;
  }
  if (!answer.ok) {
    const why = answer.status === 401 ? 'Enter a token: the description is for those who have one. `mscheduler token create` makes one.' : 'The server answers ' + answer.status + '.';
    list.replaceChildren(el('p', { class: answer.status === 401 ? 'hint' : 'error' }, why));
    $('index').replaceChildren();
    $('token').focus();
    return;
  }
  description = await answer.json();
  $('version').textContent = description.info.version || '';
  show();
}

// operations lists all operations by tag, in the order of the description.
function operations() {
  const byTag = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, op] of Object.entries(methods)) {
      const tag = (op.tags || ['other'])[0];
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push({ path, method, op });
    }
  }
  const first = ['tasks', 'bulk', 'events', 'pull'];
  const place = (tag) => (first.indexOf(tag) < 0 ? first.length : first.indexOf(tag));
  return [...byTag].sort((a, b) => place(a[0]) - place(b[0]) || a[0].localeCompare(b[0]));
}

function show() {
  const index = [], list = [el('p', { class: 'hint' }, ...prose(description.info.description))];
  for (const [tag, ops] of operations()) {
    index.push(el('h2', {}, tag));
    list.push(el('h2', {}, tag));
    for (const o of ops) {
      index.push(el('a', { href: '#' + o.op.operationId, title: o.path, 'data-words': words(o, tag) },
        el('span', { class: 'method ' + o.method }, o.method.toUpperCase()), el('span', {}, o.op.summary || o.path)));
      list.push(operation(o, tag));
    }
  }
  $('index').replaceChildren(...index);
  $('operations').replaceChildren(...list);
  search();
  jump();
}

const words = (o, tag) => [tag, o.method, o.path, o.op.summary, o.op.operationId].join(' ').toLowerCase();

// search hides what has not all of the words.
function search() {
  const wanted = $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const e of document.querySelectorAll('[data-words]')) e.hidden = !wanted.every((w) => e.dataset.words.includes(w));
  for (const h of document.querySelectorAll('#index h2, #operations h2')) {
    let next = h.nextElementSibling, any = false;
    for (; next && next.tagName !== 'H2'; next = next.nextElementSibling) any = any || !next.hidden;
    h.hidden = !any;
  }
}

// jump opens the operation that the address names.
function jump() {
  const e = location.hash && document.getElementById(location.hash.slice(1));
  if (e && e.tagName === 'DETAILS') { e.open = true; e.scrollIntoView(); }
}

function operation(o, tag) {
  const e = el('details', { class: 'operation', id: o.op.operationId, 'data-words': words(o, tag) },
    el('summary', {}, el('span', { class: 'method ' + o.method }, o.method.toUpperCase()), el('span', { class: 'path' }, o.path),
      el('span', { class: 'says' }, o.op.summary || ''), o.op['x-role'] ? el('span', { class: 'role', title: 'the role that a token needs' }, o.op['x-role']) : null));
  e.addEventListener('toggle', () => { if (e.open && e.children.length === 1) e.append(inside(o)); }); // when somebody looks
  return e;
}

// prose is text in which what stands between backticks is code.
const prose = (text) => text.split('`').map((part, i) => (i % 2 ? el('code', {}, part) : part));

// typeOf is the type of a schema, which may also be null.
const typeOf = (s) => [].concat(s.type || []).find((t) => t !== 'null');

const resolve = (schema) => (schema && schema.$ref ? description.components.schemas[schema.$ref.split('/').pop()] : schema) || {};

function inside(o) {
  const inputs = (o.op.parameters || []).map((p) => ({ p, field: parameterField(p) }));
  const media = o.op.requestBody && o.op.requestBody.content['application/json'];
  const body = media && el('textarea', { spellcheck: 'false', 'aria-label': 'body' });
  if (media && media.example !== undefined) body.value = JSON.stringify(media.example, null, 2);
  if (body) body.rows = Math.min(body.value.split('\n').length + 1, 24);
  const result = el('div', {});
  const send = el('button', { type: 'submit' }, 'Send');
  const stop = el('button', { type: 'button', class: 'plain', disabled: true }, 'Stop');
  const form = el('form', {
    onsubmit: (event) => { event.preventDefault(); request(o, inputs, body, result, send, stop); },
  },
  inputs.length ? el('h3', {}, 'Parameters') : null,
  inputs.length ? el('table', {}, ...inputs.map(({ p, field }) => el('tr', {},
    el('td', { class: 'name' }, p.name, p.required ? el('b', { title: 'required' }, ' *') : ''),
    el('td', { class: 'value' }, field), el('td', { class: 'doc' }, documented(p))))) : null,
  body ? el('h3', {}, 'Body') : null, body || null, body ? fields(media.schema, body) : null,
  el('div', { class: 'actions' }, send, stop), result);
  return el('div', { class: 'inside' }, o.op.description ? el('p', {}, ...prose(o.op.description)) : null, form);
}

// documented is what is said of a parameter.
function documented(p) {
  const s = resolve(p.schema), more = [];
  if (p.in !== 'path' && p.in !== 'query') more.push(p.in);
  if (typeOf(s) === 'array') more.push('several, separated by commas');
  if (s.default !== undefined) more.push('default ' + s.default);
  if (s.minimum !== undefined || s.maximum !== undefined) more.push((s.minimum ?? '') + ' to ' + (s.maximum ?? ''));
  return [p.description || s.description || '', more.join(', ')].filter(Boolean).join('; ');
}

function parameterField(p) {
  const s = resolve(p.schema);
  const known = { tenant: '-', 'If-Match': '*' }[p.in === 'query' ? '' : p.name] || '';
  if (s.enum || typeOf(s) === 'boolean') {
    const values = s.enum || [true, false];
    return el('select', { 'aria-label': p.name, required: p.required }, ...(p.required ? [] : [el('option', { value: '' }, '')]), ...values.map((v) => el('option', { value: v }, String(v))));
  }
  return el('input', { 'aria-label': p.name, required: p.required, value: known, placeholder: typeOf(s) === 'array' ? (resolve(s.items).enum || []).join(',') : s.format || typeOf(s) || '' });
}

// fields is the tree of what a body may say. A click adds the field to the body.
function fields(schema, body) {
  const tree = (schema, path, seen) => {
    let s = resolve(schema);
    if (s.anyOf) s = resolve(s.anyOf[0]);
    if (typeOf(s) === 'array') return tree(s.items, [...path, 0], seen);
    const name = schema && schema.$ref;
    if (!s.properties || seen.includes(name)) return null;
    return el('ul', {}, ...Object.entries(s.properties).map(([key, p]) => {
      const here = [...path, key], inner = resolve(p);
      const below = tree(p, here, [...seen, name]);
      const line = [el('button', { type: 'button', title: 'add to the body', onclick: () => insert(body, here, sample(p)) }, key), ' ',
        el('i', {}, (typeOf(inner) || (inner.properties || inner.anyOf ? 'object' : 'any')) + (p.description || inner.description ? ': ' + (p.description || inner.description) : ''))];
      return below ? el('li', {}, el('details', {}, el('summary', {}, ...line), below)) : el('li', {}, ...line);
    }));
  };
  const list = tree(schema, [], []);
  return list && el('details', { class: 'fields' }, el('summary', {}, 'Fields'), list);
}

// sample is a value that a field may have.
function sample(schema) {
  const s = resolve(schema);
  if (s.examples && s.examples.length) return s.examples[0];
  if (s.anyOf) return sample(s.anyOf[0]);
  return { string: '', integer: 1, number: 1, boolean: true, array: [] }[typeOf(s)] ?? {};
}

// insert puts a value into the JSON of the body.
function insert(body, path, value) {
  let doc;
  try { doc = JSON.parse(body.value || '{}'); } catch { return; } // who is in the middle of writing keeps it
  let at = doc;
  path.slice(0, -1).forEach((key, i) => {
    if (at[key] == null || typeof at[key] !== 'object') at[key] = typeof path[i + 1] === 'number' ? [] : {};
    at = at[key];
  });
  const last = path[path.length - 1];
  if (at[last] === undefined) at[last] = value;
  body.value = JSON.stringify(doc, null, 2);
  body.rows = Math.min(body.value.split('\n').length + 1, 24);
}

// request sends what the form says and shows the answer.
async function request(o, inputs, body, result, send, stop) {
  let path = o.path;
  const query = new URLSearchParams(), headers = {};
  for (const { p, field } of inputs) {
    const value = field.value;
    if (p.in === 'path') path = path.replace('{' + p.name + '}', encodeURIComponent(value));
    else if (value === '') continue;
    else if (p.in === 'query') query.append(p.name, value);
    else headers[p.name] = value;
  }
  const url = root.replace(/\/$/, '') + path + (query.size ? '?' + query : '');
  const init = { method: o.method.toUpperCase(), headers: authorized(headers) };
  if (body && body.value.trim() !== '') { init.body = body.value; init.headers['Content-Type'] = 'application/json'; }
  const shown = el('pre', {}, curl(url, init, headers));
  const status = el('span', { class: 'status' }, '…'), text = el('pre', {});
  result.replaceChildren(el('h3', {}, 'Request'), shown, el('h3', {}, 'Answer ', status), text);
  const ctl = new AbortController();
  stop.onclick = () => ctl.abort();
  send.disabled = true; stop.disabled = false;
  const began = performance.now();
  try {
    const answer = await fetch(url, { ...init, signal: ctl.signal });
    status.className = 'status ' + (answer.ok ? 'good' : 'bad');
    const about = ['ETag', 'Location', 'Retry-After', 'WWW-Authenticate'].filter((h) => answer.headers.get(h)).map((h) => h + ': ' + answer.headers.get(h));
    status.textContent = [answer.status + ' ' + answer.statusText, Math.round(performance.now() - began) + ' ms', ...about].join(' · ');
    await read(answer, text);
  } catch (err) {
    if (err.name === 'AbortError') text.append('\n(stopped)');
    else { status.className = 'status bad'; status.textContent = 'no answer'; text.textContent = err.message; }
  } finally {
    send.disabled = false; stop.disabled = true;
  }
}

// read shows a body: a stream as it comes, JSON in lines, a picture as its text.
async function read(answer, pre) {
  const type = answer.headers.get('Content-Type') || '';
  if (type.startsWith('text/event-stream')) {
    const decode = new TextDecoder();
    for (const reader = answer.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) return;
      pre.textContent = (pre.textContent + decode.decode(value, { stream: true })).slice(-200000);
      pre.scrollTop = pre.scrollHeight;
    }
  }
  const text = await answer.text();
  try { pre.textContent = type.includes('json') ? JSON.stringify(JSON.parse(text), null, 2) : text; } catch { pre.textContent = text; }
  if (pre.textContent === '') pre.textContent = '(no body)';
}

// curl is the request as a command. It does not show the token.
function curl(url, init, headers) {
  const quote = (s) => "'" + s.replaceAll("'", "'\\''") + "'";
  const parts = ['curl ' + (init.method === 'GET' ? '' : '-X ' + init.method + ' ') + quote(location.origin + url)];
  if (token) parts.push('-H "Authorization: Bearer $TOKEN"');
  for (const [name, value] of Object.entries(headers)) parts.push('-H ' + quote(name + ': ' + value));
  if (init.body) parts.push("-H 'Content-Type: application/json'", '-d ' + quote(init.body));
  return parts.join(' \\\n  ');
}

$('access').addEventListener('submit', (event) => {
  event.preventDefault();
  token = $('token').value.trim();
  stored.set(token);
  load();
});
$('forget').addEventListener('click', () => { token = ''; $('token').value = ''; stored.set(''); load(); });
$('search').addEventListener('input', search);
window.addEventListener('hashchange', jump);
$('token').value = token;
load();
