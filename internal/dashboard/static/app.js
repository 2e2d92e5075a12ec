// What pages do in the browser: times, live parts, keys, forms that call the API, rows that are selected.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
const base = document.body.dataset.base, api = document.body.dataset.api;

// Times: how long ago they are, or how soon they come; the title has the exact time, here and in UTC.
const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function ago(time) {
  const seconds = (Date.now() - time) / 1000, size = Math.abs(seconds);
  if (size < 1) return "now";
  const i = units.findIndex(([, n]) => size >= n);
  const [unit, n] = units[i], whole = Math.floor(size / n);
  let out = whole + " " + unit;
  if (units[i + 1] && whole < 10 && unit !== "min") {
    const rest = Math.floor((size % n) / units[i + 1][1]);
    if (rest) out += " " + rest + " " + units[i + 1][0];
  }
  return seconds > 0 ? out + " ago" : "in " + out;
}
function showTimes(from = document) {
  for (const t of $$("time[datetime]", from)) {
    const at = new Date(t.dateTime);
    if (isNaN(at)) continue;
    const text = ago(at);
    if (t.textContent !== text) t.textContent = text; // what is written anew loses its selection
    t.title ||= at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" }) + "\n" + at.toISOString().replace("T", " ").replace("Z", " UTC");
  }
}
const sent = new Map($$("[data-part]").map((part) => [part.dataset.part, part.innerHTML])); // what the server sent last
showTimes();
setInterval(showTimes, 1000);

function toast(text, ms = 6000) {
  const p = document.createElement("p");
  p.textContent = text;
  $("#toast").append(p);
  setTimeout(() => p.remove(), ms);
}

// Live parts. The page reads itself again, and each element with data-part gets its new content. What somebody has
// folded, selected or is typing in stays.
let reading = false, again = false, skipped = false;
async function refresh() {
  if (reading) { again = true; return; }
  reading = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Live": "1" } });
    if (answer.redirected) { signedOut(answer.url); return; }
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of $$("[data-part]")) {
      const next = $(`[data-part="${part.dataset.part}"]`, fresh);
      if (!next) continue;
      if ($("dialog[open], form[data-busy]", part) || part.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox]), textarea, select")) { skipped = true; continue; }
      const text = next.innerHTML;
      if (text === sent.get(part.dataset.part)) continue;
      sent.set(part.dataset.part, text);
      keep(part, next);
      const stay = placesIn(part);
      part.replaceChildren(...next.childNodes);
      showTimes(part);
      stay();
      document.dispatchEvent(new CustomEvent("part", { detail: part }));
    }
    if ($("#signed-out")) {
      $("#signed-out").remove();
      listen();
      document.dispatchEvent(new Event("signed-in"));
    }
    if (!document.body.dataset.live || source?.readyState === EventSource.OPEN) alive(true);
  } catch { alive(false); } finally {
    reading = false;
    if (again) { again = false; setTimeout(refresh, 500); }
  }
}
// A part that somebody was working in is read when they have finished.
function catchUp() { if (skipped) { skipped = false; setTimeout(refresh, 300); } }
document.addEventListener("focusout", catchUp);
document.addEventListener("close", catchUp, true);
function keep(old, fresh) {
  const some = "input:not([type=checkbox], [type=radio], [type=hidden]), textarea, select";
  const nameOf = (f) => (f.form?.dataset.call || f.form?.action || "") + " " + (f.name || f.id), typed = new Map();
  for (const f of $$(some, old)) {
    const first = f.defaultValue ?? ([...f.options].find((o) => o.defaultSelected) ?? f.options[0])?.value;
    if (f.value !== first) typed.set(nameOf(f), f.value);
  }
  for (const f of $$(some, fresh)) if (typed.has(nameOf(f))) f.value = typed.get(nameOf(f));
  const open = new Map($$("details", old).map((d, i) => [d.id || i, d.open]));
  $$("details", fresh).forEach((d, i) => { const was = open.get(d.id || i); if (was !== undefined) d.open = was; });
  const chosen = new Set($$("input[type=checkbox]:checked", old).map((c) => c.value));
  for (const c of $$("input[type=checkbox][name=row]", fresh)) c.checked = chosen.has(c.value);
  for (const e of $$("form[data-call] .error", old)) { // what was refused
    const form = e.closest("form"), same = $$("form", fresh).find((f) => f.dataset.call === form.dataset.call), before = e.previousElementSibling;
    if (same) errorAt(before?.name && $(`[name="${CSS.escape(before.name)}"]`, same) || same.lastElementChild, e.textContent);
    else toast(e.textContent, 20000);
  }
}
// placesIn notes where somebody is in a part: the focus, the row of the keys, how far things are scrolled, what is
// searched for in a value. The function that it returns brings them there again in the part's new content.
function placesIn(part) {
  const focusable = "a[href], button, input, summary, [tabindex]";
  const nameOf = (e) => [e.tagName, e.id, e.getAttribute("href"), e.closest("form")?.dataset.call, e.getAttribute("aria-label"), e.type === "checkbox" && e.value, e.matches("button, summary") && e.textContent.trim()].join(" ");
  const like = (e) => $$(focusable, part).filter((other) => nameOf(other) === nameOf(e));
  const focus = part.contains(document.activeElement) ? document.activeElement : null, nth = focus && like(focus).indexOf(focus);
  const here = $("tr.here a[href]", part)?.getAttribute("href");
  const scrolled = $$(".scroll, .tree", part).map((e) => [nameOf(e), e.scrollLeft, e.scrollTop]);
  return () => {
    if (focus) { const same = like(focus); (same[nth] ?? same[0])?.focus({ preventScroll: true }); }
    if (here !== undefined) $$("tr[data-row]", part).find((r) => $("a[href]", r)?.getAttribute("href") === here)?.classList.add("here");
    for (const f of $$("[data-search]", part)) if (f.value) f.dispatchEvent(new Event("input", { bubbles: true }));
    for (const e of $$(".scroll, .tree", part)) {
      const [, left, top] = scrolled.find(([name]) => name === nameOf(e)) ?? [];
      if (left || top) e.scrollTo(left, top);
    }
  };
}
// A page whose session has ended stays as it is: it may show a token that nobody can read again, or have what somebody
// is typing. It asks for nothing until somebody comes back to it: the server would count that as failed sign-ins.
function signedOut(signIn) {
  alive(false);
  source?.close();
  source = null;
  if ($("#signed-out")) return;
  const note = document.createElement("p"), link = document.createElement("a");
  note.id = "signed-out";
  note.className = "card ask";
  note.setAttribute("role", "alert");
  link.href = signIn;
  link.target = "_blank";
  link.textContent = "Sign in again in another tab";
  note.append("You are signed out. ", link, "; what you have typed stays here.");
  $("main").prepend(note);
}
function alive(is) {
  const mark = $("#live");
  if (!mark) return;
  mark.classList.toggle("off", !is);
  mark.textContent = is ? "live" : "not live";
}
// A hidden page gives its connection away: a browser has six for a server. Whatever happened before the stream was open
// is read when it is.
let source = null, retry = 0;
function listen() {
  clearTimeout(retry);
  if (!document.body.dataset.live || document.hidden || source || $("#signed-out")) return;
  source = new EventSource(document.body.dataset.live);
  source.onmessage = refresh;
  source.onopen = () => { alive(true); refresh(); };
  source.onerror = () => {
    alive(false);
    if (source?.readyState === EventSource.CLOSED) { // refused: it does not try again by itself, and the page learns why
      source = null;
      retry = setTimeout(listen, 10000);
      refresh();
    }
  };
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { source?.close(); source = null; alive(false); } else { listen(); refresh(); }
});
addEventListener("focus", () => { if ($("#signed-out")) refresh(); });
addEventListener("pagehide", () => { source?.close(); source = null; });
addEventListener("pageshow", listen);
listen();
function poll() { if (!document.hidden && !$("#signed-out")) refresh(); }
if (document.body.dataset.poll) setInterval(poll, 1000 * document.body.dataset.poll);

// Dark or light.
$("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("mscheduler-theme", root.dataset.theme); } catch { /* not kept */ }
});

function confirmed(title, text) {
  const dialog = $("#confirm");
  $("#confirm-title").textContent = title;
  $("#confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

// Forms that call the API: data-call="POST /tasks/…/cancel". Named fields become the body. data-as says what a field
// is: number, bool, json, list (one of each line), or text, which is the default. An empty field is left out, unless it has
// data-keep. "a.b" is a field within a field.
function bodyOf(form) {
  const body = {};
  let whole;
  for (const f of $$("[name]", form)) {
    if (f.type === "radio" && !f.checked) continue;
    const as = f.dataset.as || (f.type === "checkbox" ? "bool" : "text");
    if (as === "bool" ? !f.checked : f.value === "" && f.dataset.keep === undefined) continue;
    if (f.dataset.changed !== undefined && f.value === f.defaultValue) continue; // it stays as it is, digit by digit
    let value = f.value;
    if (as === "number") value = Number(value);
    if (as === "bool") value = true;
    if (as === "list") value = value.split("\n").map((l) => l.trim()).filter(Boolean);
    if (as === "json") {
      try { JSON.parse(value); } catch (e) { throw new FieldError(f, "is no JSON: " + e.message); }
      value = new Typed(value);
    }
    if (f.name === "") continue;
    if (f.name === ".") { whole = value; continue; }
    const names = f.name.split("."), last = names.pop();
    let into = body;
    for (const n of names) into = into[n] ??= {};
    into[last] = value;
  }
  return whole === undefined ? body : whole;
}
// Typed is JSON as somebody has typed it. JavaScript cannot hold all of its numbers, so it is sent as it is.
class Typed {
  constructor(text) { this.text = text; }
}
function jsonOf(value) {
  if (value instanceof Typed) return value.text;
  if (Array.isArray(value)) return "[" + value.map(jsonOf).join(",") + "]";
  if (value && typeof value === "object") return "{" + Object.entries(value).map(([name, one]) => JSON.stringify(name) + ":" + jsonOf(one)).join(",") + "}";
  return JSON.stringify(value);
}
// tooLarge reports whether a JSON text has a number that JavaScript cannot hold.
function tooLarge(text) {
  const numbers = text.replace(/"(?:[^"\\]|\\.)*"/g, "").match(/\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g) || [];
  return numbers.some((n) => {
    const digits = n.replace(/[eE].*/, "").replace(".", "").replace(/^0+/, "");
    return digits.length > 15 || digits !== "" && (!isFinite(n) || Number(n) === 0);
  });
}
// escaped is the path of an id of n parts: the last one may have slashes.
function escaped(id, n) {
  const parts = id.split("/");
  return [...parts.slice(0, n - 1), parts.slice(n - 1).join("/")].map(encodeURIComponent).join("/");
}
// pathTo is the path of a page, such as /tasks/{id:3}: with the field of a document that is an id of three parts.
function pathTo(path, doc) {
  return path.replace(/\{(\w+)(?::(\d))?\}/g, (_, name, n) => escaped(String(doc[name]), Number(n || 1)));
}
class FieldError extends Error {
  constructor(field, message) { super(message); this.field = field; }
}
function showErrors(form, problem) {
  if (!form.isConnected) toast(problem.detail || problem.title || "the request failed", 20000);
  $$(".error", form).forEach((e) => e.remove());
  const rest = [];
  for (const e of problem.errors || []) {
    const name = (e.location || "").replace(/^(body|query|path|header)\.?/, "");
    const field = name && $(`[name="${CSS.escape(name)}"]`, form);
    if (field && field.type !== "hidden") errorAt(field, e.message);
    else rest.push(e.message);
  }
  if (rest.length || !(problem.errors || []).length) errorAt(form.lastElementChild, [...rest, ...(rest.length ? [] : [problem.detail || problem.title || "the request failed"])].join("; "));
}
function errorAt(element, message) {
  const p = document.createElement("p");
  p.className = "error";
  p.setAttribute("role", "alert");
  p.textContent = message;
  element.after(p);
  if (element.name) element.setAttribute("aria-invalid", "true");
}
// keyFor is the idempotency key of a form's request: a repetition has the same one, another request does not.
function keyFor(form, body) {
  const text = typeof body === "string" ? body : jsonOf(body);
  if (form.dataset.keyOf !== text) {
    form.dataset.keyOf = text;
    form.dataset.key = crypto.randomUUID?.() ?? String(Math.random()).slice(2);
  }
  return "idempotent" in form.dataset ? form.dataset.key : undefined;
}
const signedOutText = "you are signed out: sign in again in another tab, and repeat this";
async function call(what, body, { match, fresh, key } = {}) {
  const [method, path] = what.split(" ");
  const headers = { "Content-Type": "application/json" };
  if (match) headers["If-Match"] = match;
  if (fresh) headers["If-None-Match"] = "*";
  if (key) headers["Idempotency-Key"] = key;
  const answer = await fetch(api + path, { method, headers, body: method === "GET" || body === undefined ? undefined : typeof body === "string" ? body : jsonOf(body) });
  const text = await answer.text();
  let doc = {};
  try { doc = text ? JSON.parse(text) : {}; } catch { doc = { detail: text }; }
  if (answer.status === 401) doc = { detail: signedOutText };
  return { ok: answer.ok, status: answer.status, doc };
}
document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-call]");
  if (!form) return;
  event.preventDefault();
  const button = event.submitter || $("button", form);
  $$("[aria-invalid]", form).forEach((f) => f.removeAttribute("aria-invalid"));
  let body;
  try { body = bodyOf(form); } catch (e) {
    if (!(e instanceof FieldError)) throw e;
    showErrors(form, {}); $$(".error", form).forEach((x) => x.remove()); errorAt(e.field, e.message);
    return;
  }
  form.dataset.busy = ""; // its part stays until it is done
  if (form.dataset.confirm && !await confirmed(button.textContent, form.dataset.confirm)) { delete form.dataset.busy; catchUp(); return; }
  button.disabled = true;
  try {
    if ("counts" in form.dataset) { // a job: somebody sees first how many tasks it goes over
      const { ok, status, doc } = await call(form.dataset.call, { ...body, dry_run: true }).catch(() => ({ status: 503 }));
      if (!ok && status < 500) { showErrors(form, doc); return; }
      const many = ok ? `${matching(doc)} now.` : "The tasks that match cannot be counted in time.";
      if (!await confirmed(`${button.textContent.trim()}: ${body.action}`, `${many} Each is changed whose status allows it.`)) return;
    }
    const { ok, doc } = await call(form.dataset.call, body, { match: form.dataset.match, fresh: "fresh" in form.dataset, key: keyFor(form, body) });
    if (!ok) { showErrors(form, doc); return; }
    delete form.dataset.keyOf;
    delete form.dataset.busy;
    $$(".error", form).forEach((e) => e.remove());
    form.dispatchEvent(new CustomEvent("called", { bubbles: true, detail: doc }));
    if (form.dataset.then) {
      location.href = base + pathTo(form.dataset.then, doc);
      return;
    }
    toast((form.dataset.said || button.textContent.trim()) + ": done");
    form.reset();
    form.closest("dialog")?.close();
    await refresh();
  } catch { showErrors(form, { detail: "the server does not answer; retry" }); } finally { button.disabled = false; delete form.dataset.busy; catchUp(); }
});

// copied copies the text of a field. Over plain HTTP browsers do not: then the field is shown, and its text selected.
async function copied(field) {
  try {
    await navigator.clipboard.writeText(field.value);
    toast("Copied");
  } catch {
    if (field.hidden) {
      field.hidden = false;
      field.addEventListener("blur", () => { field.hidden = true; }, { once: true });
    }
    field.select();
    toast("Press Ctrl+C: the browser does not allow copying here");
  }
}
// emptied has a dialog as the server sent it: what somebody has left in it is not sent with what comes next.
function emptied(dialog) {
  for (const form of $$("form", dialog)) {
    form.reset();
    $$(".error", form).forEach((e) => e.remove());
    $$("[aria-invalid]", form).forEach((f) => f.removeAttribute("aria-invalid"));
  }
}
document.addEventListener("close", (event) => emptied(event.target), true);
// Buttons that show a dialog or an element.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) { const d = document.getElementById(opener.dataset.opens); if (d instanceof HTMLDialogElement) { emptied(d); d.showModal(); } else d.hidden = !d.hidden; }
  const closer = event.target.closest("[data-closes]");
  if (closer) closer.closest("dialog").close();
  const copier = event.target.closest("[data-copy]");
  if (copier) {
    copied($(".source", copier.closest("details")));
  }
});

// Search in a value: what does not contain the text is hidden.
document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-search]")) return;
  const wanted = event.target.value.toLowerCase();
  for (const li of $$(".tree li", event.target.closest("details"))) {
    const own = [...li.children].filter((c) => c.matches("b, code")).map((c) => c.textContent).join(" ").toLowerCase();
    li.classList.toggle("found", wanted !== "" && own.includes(wanted));
    li.hidden = wanted !== "" && !li.textContent.toLowerCase().includes(wanted);
    if (wanted && !li.hidden) $$(":scope > details", li).forEach((d) => { d.open = true; });
  }
});

// Keys.
let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape" && field) { event.target.blur(); return; }
  if (field || $("dialog[open]")) return;
  const key = event.key;
  if (before === "g") {
    before = "";
    const link = $(`body > nav a[data-key="${CSS.escape(key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (key === "g") { before = "g"; setTimeout(() => { before = ""; }, 1500); return; }
  const rows = $$("main tbody tr[data-row]"), at = rows.findIndex((r) => r.classList.contains("here"));
  const go = (i) => {
    rows[at]?.classList.remove("here");
    rows[i]?.classList.add("here");
    rows[i]?.scrollIntoView({ block: "nearest" });
  };
  switch (key) {
    case "/": event.preventDefault(); $("#find")?.focus(); break;
    case "?": $("#keys").showModal(); break;
    case "j": go(Math.min(at + 1, rows.length - 1)); break;
    case "k": go(Math.max(at - 1, 0)); break;
    case "x": { const box = rows[at] && $("input[name=row]", rows[at]); if (box) box.click(); break; }
    case "Enter": if (at >= 0 && event.target === document.body) { $("a[href]", rows[at])?.click(); } break;
  }
});
$("#help").addEventListener("click", () => $("#keys").showModal());

// Rows that are selected, and what is done with them: each with a request of its own, so one that is refused stops no
// other one.
function chosen() { return $$("input[name=row]:checked"); }
function countChosen() {
  const bar = $("#chosen");
  if (!bar) return;
  const n = chosen().length;
  bar.hidden = n === 0;
  $("#chosen-count").textContent = n + (n === 1 ? " row" : " rows") + " selected";
  for (const box of $$("input[name=row]")) box.closest("tr").setAttribute("aria-selected", box.checked);
}
document.addEventListener("change", (event) => {
  if (event.target.id === "all") for (const box of $$("input[name=row]")) box.checked = event.target.checked;
  if (event.target.id === "all" || event.target.name === "row") countChosen();
});
document.addEventListener("part", countChosen);
let stopped = false;
document.addEventListener("click", async (event) => {
  if (event.target.id === "chosen-stop") { stopped = true; return; }
  const button = event.target.closest("[data-each]");
  if (!button) return;
  const boxes = chosen();
  if (!await confirmed(button.textContent.trim(), `${boxes.length} selected. ${button.dataset.confirm || ""}`)) return;
  stopped = false;
  const stop = $("#chosen-stop"), progress = $("#chosen-progress"), refused = [];
  stop.hidden = progress.hidden = false;
  progress.textContent = `0 of ${boxes.length} done`;
  $("#chosen-refused").hidden = true;
  let done = 0;
  for (const box of boxes) {
    if (stopped) break;
    const { ok, doc } = await call(`POST ${box.dataset.path}/${button.dataset.each}`, JSON.parse(button.dataset.body || "{}")).catch(() => ({ ok: false, doc: { detail: "the server does not answer" } }));
    if (ok) { done++; for (const same of $$("input[name=row]")) if (same.value === box.value) same.checked = false; } else refused.push(`${box.value}: ${doc.detail || doc.title}`);
    progress.textContent = `${done} of ${boxes.length} done` + (refused.length ? `, ${refused.length} refused` : "");
  }
  stop.hidden = true;
  toast(progress.textContent + (stopped ? "; stopped" : ""));
  if (refused.length) { $("#chosen-refused").textContent = refused.slice(0, 20).join("\n"); $("#chosen-refused").hidden = false; }
  countChosen();
  refresh();
});
countChosen();

// How many tasks a bulk job would change.
function matching(counted) { return counted.matched + (counted.matched === 1 ? " task matches" : " tasks match"); }
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-count]");
  if (!button) return;
  const form = button.closest("form"), said = $("output", form);
  said.textContent = "…";
  const { ok, doc } = await call(form.dataset.call, { ...bodyOf(form), dry_run: true });
  said.textContent = ok ? matching(doc) : [doc.detail, ...(doc.errors || []).map((e) => e.message)].join("; ");
});

// Views that this browser keeps: the filters of a list under a name.
function showViews() {
  const bar = $("[data-views]");
  if (!bar) return;
  const store = "mscheduler-views-" + bar.dataset.views;
  let views = {};
  try { views = JSON.parse(localStorage.getItem(store)) || {}; } catch { /* none */ }
  $$("[data-view]", bar).forEach((e) => e.remove());
  for (const [name, query] of Object.entries(views)) {
    const item = document.createElement("span"), link = document.createElement("a"), drop = document.createElement("button");
    item.dataset.view = name;
    link.href = location.pathname + query;
    link.textContent = name;
    drop.type = "button";
    drop.className = "quiet small";
    drop.textContent = "×";
    drop.title = "Forget the view " + name;
    drop.setAttribute("aria-label", drop.title);
    drop.addEventListener("click", () => { delete views[name]; localStorage.setItem(store, JSON.stringify(views)); showViews(); });
    item.append(link, drop);
    bar.insertBefore(item, $("form", bar));
  }
}
document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-save-view]");
  if (!form) return;
  event.preventDefault();
  const store = "mscheduler-views-" + form.closest("[data-views]").dataset.views, name = $("input", form).value.trim();
  if (!name) return;
  try {
    const views = JSON.parse(localStorage.getItem(store)) || {};
    views[name] = location.search;
    localStorage.setItem(store, JSON.stringify(views));
  } catch { toast("The browser keeps nothing"); }
  $("input", form).value = "";
  showViews();
});
showViews();

// Times in filters: people choose them in their zone; the API wants UTC.
for (const f of $$("input[data-utc]")) {
  const stored = f.getAttribute("value"), at = stored && new Date(stored);
  if (at && !isNaN(at)) f.value = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}
for (const form of $$("form.filters")) {
  form.addEventListener("formdata", ({ formData }) => {
    for (const name of new Set(formData.keys())) { // several fields may have the same one
      const given = formData.getAll(name), utc = $(`input[data-utc][name="${CSS.escape(name)}"]`, form);
      formData.delete(name);
      for (const value of given) if (value !== "") formData.append(name, utc ? new Date(value).toISOString() : value);
    }
  });
}

document.addEventListener("change", (event) => { if (event.target.matches("[data-submits]")) event.target.form.submit(); });
