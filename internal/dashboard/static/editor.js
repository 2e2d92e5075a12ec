// The form and the YAML of a document, which say the same. Whichever changes, the other follows.
"use strict";
{
  const form = $("#editor"), source = $("#source"), fields = $$("[data-field]", form);
  let doc = {}, broken = false, turn = 0, dirty = ""; // dirty is what was changed last and is not converted yet: source, form
  const late = new Set(); // the fields whose values wait until the source is converted
  let large = null; // the field with a number that JavaScript cannot hold: nothing is sent before it is gone

  const at = (path) => path.split(".").reduce((o, name) => o?.[name], doc);
  function put(path, value) {
    const names = path.split("."), last = names.pop();
    let into = doc;
    for (const n of names) into = typeof into[n] === "object" && into[n] !== null ? into[n] : into[n] = {};
    if (value === undefined) delete into[last]; else into[last] = value;
    if (names.length && !Object.keys(into).length) put(names.join("."), undefined);
  }
  // Unconverted says why the server has not converted a text. Nothing is lost: it is tried again.
  class Unconverted extends Error {}
  async function convert(to, text) {
    const answer = await fetch(base + "/text/" + to, { method: "POST", body: text });
    if (answer.status === 401) { signedOut(base + "/sign-in"); throw new Unconverted(signedOutText); }
    if (!answer.ok) throw new Unconverted((await answer.text()).trim() || "the text cannot be converted now; retry");
    return answer.json();
  }
  const why = (e) => e instanceof Unconverted ? e.message : "the server does not answer; retry";
  // unconverted shows it at the text, until form and YAML say the same.
  function unconverted(e) {
    $("#source-error").hidden = false;
    $("#source-error").textContent = why(e);
  }
  function sourceError(message) {
    if (large) message ||= "A number of 16 digits or more: write it in the YAML";
    broken = !!message;
    $("#source-error").hidden = !message;
    $("#source-error").textContent = message || "";
  }
  function valueOf(f) {
    if (f.type === "checkbox") return f.checked || undefined;
    if (f.value === "") return undefined;
    switch (f.dataset.as) {
      case "number": return isNaN(f.value) ? f.value : Number(f.value);
      case "list": return f.value.split("\n").map((l) => l.trim()).filter(Boolean);
      case "json": try { return JSON.parse(f.value); } catch { return f.value; }
      default: return f.value;
    }
  }
  function show(f) {
    const value = at(f.dataset.field);
    if (f.type === "checkbox") f.checked = value === true;
    else if (value === undefined || value === null) f.value = "";
    else if (f.dataset.as === "list" && Array.isArray(value)) f.value = value.join("\n");
    else f.value = typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
  }
  // unfold shows what is written in a part of the form that is folded.
  function unfold() { for (const d of $$("[data-folds]", form)) if (fields.some((f) => d.contains(f) && at(f.dataset.field) !== undefined)) d.open = true; }
  async function fromSource() {
    const mine = ++turn, out = await convert("json", source.value);
    if (mine !== turn) return;
    if (!out.error) {
      const read = JSON.parse(out.text);
      if (read && typeof read === "object" && !Array.isArray(read)) {
        // A number that JavaScript cannot hold is edited as text only.
        const textOnly = tooLarge(out.text);
        fields.forEach((f) => { f.disabled = textOnly; f.title = textOnly ? "The document has numbers that a browser cannot hold: edit the YAML" : ""; });
        const kept = textOnly ? [] : [...late];
        dirty = ""; late.clear();
        doc = read; fields.forEach((f) => { if (f !== document.activeElement && !kept.includes(f)) show(f); }); unfold(); sourceError("");
        kept.forEach(take);
        return;
      }
    }
    sourceError(out.error || "want fields, such as type: mail");
  }
  async function toSource() {
    const mine = ++turn, out = await convert("yaml", JSON.stringify(doc));
    if (mine === turn && !out.error) { dirty = ""; source.value = out.text === "{}\n" ? "" : out.text; sourceError(""); }
  }
  let later = 0;
  const soon = (f) => { clearTimeout(later); later = setTimeout(() => f().catch(unconverted), 250); };
  source.addEventListener("input", () => { dirty = "source"; large = null; soon(fromSource); });
  // take has the document say what a field says.
  function take(f) {
    if (f.dataset.as === "json" && tooLarge(f.value)) { large = f; sourceError(""); return; }
    if (large === f) large = null;
    put(f.dataset.field, valueOf(f));
    dirty = "form";
    soon(toSource);
  }
  for (const f of fields) f.addEventListener("input", async () => {
    if (dirty !== "source") { take(f); return; }
    late.add(f); // what was typed there comes first
    try { await settle(); } catch (e) { unconverted(e); }
  });
  // settle makes form and YAML say the same.
  async function settle() {
    clearTimeout(later);
    if (large) return;
    if (dirty === "source" || broken) await fromSource();
    if (dirty === "form" && !broken && !large) await toSource();
  }
  // written is the document as JSON, as the YAML says it: digit by digit.
  async function written() {
    await settle();
    return broken ? "" : (await convert("json", source.value)).text;
  }
  $("#editor-back").addEventListener("click", () => history.back());
  let first = {}; // the document as it was before anybody changed it
  fromSource().then(() => { first = structuredClone(doc); if ($("#drawn")) preview(); }, unconverted);

  function clear() {
    $$(".error:not(#source-error, #editor-errors)", form).forEach((e) => e.remove());
    fields.forEach((f) => f.removeAttribute("aria-invalid"));
    $("#editor-errors").replaceChildren();
    $("#editor-errors").hidden = true;
  }
  // errorsOf is the list for an error at a path: those of a node stand together.
  function errorsOf(path) {
    const all = $("#editor-errors"), at = path.match(/^nodes\[(\d+)\]/)?.[1];
    if (at === undefined) return all;
    let of = $(`[data-node="${at}"]`, all);
    if (!of) {
      const li = document.createElement("li"), name = document.createElement("b");
      name.textContent = doc.nodes?.[at]?.id ? `Node ${doc.nodes[at].id}` : `The node at place ${Number(at) + 1}`;
      of = document.createElement("ul");
      of.dataset.node = at;
      li.append(name, of);
      all.append(li);
    }
    return of;
  }
  function tell(problem) {
    const place = (e) => Number(e.location?.match(/^body\.nodes\[(\d+)\]/)?.[1] ?? -1);
    const all = problem.errors?.length ? problem.errors.toSorted((a, b) => place(a) - place(b)) : [{ message: problem.detail || problem.title }];
    for (const e of all) {
      const name = (e.location || "").replace(/^body\.?/, "");
      const field = fields.find((f) => f.dataset.field === name || f.dataset.field.endsWith("." + name));
      if (field) {
        errorAt(field, e.message);
        field.setAttribute("aria-invalid", "true");
        if (field.closest("[data-folds]")) field.closest("[data-folds]").open = true;
        continue;
      }
      const li = document.createElement("li");
      li.textContent = e.message;
      errorsOf(name).append(li);
      $("#editor-errors").hidden = false;
    }
    $("[aria-invalid]", form)?.focus();
  }
  // What the API says that it would do: the lines of a difference, the next times, and whatever else.
  function previewOf(said) {
    const { result, changes, ticks, times, plan_id: id, tenant, ...rest } = said;
    const lines = [];
    if (times) lines.push("Steps of " + (tenant ? tenant + "/" : "") + id + ":", ...times.map((t) => "  " + [t.step, t.local || t.utc, t.skipped && t.skipped + " skipped", t.over && "over", t.why].filter(Boolean).join("  ")), "");
    if (changes?.length) lines.push("Changes:", ...changes.map((c) => "  " + c), "");
    if (ticks?.length) lines.push("Next ticks:", ...ticks.map((t) => "  " + (t.local || t.utc) + (t.fires === false ? "  skipped" : "")), "");
    if (Object.keys(rest).length) lines.push("Forecast:", JSON.stringify(rest.forecast ?? rest, null, 2));
    $("#previewed-title").textContent = result ? "Nothing is stored yet. It would be " + result + "." : "Nothing is stored yet.";
    $("#previewed-text").textContent = lines.join("\n");
    $("#previewed").hidden = false;
  }
  // What the API has drawn of a definition. flow.js shows it.
  function drawingOf({ nodes, picture }) {
    $("#drawn").textContent = nodes + (nodes === 1 ? " node" : " nodes") + ", nothing is wrong; nothing is started yet";
    document.dispatchEvent(new CustomEvent("picture", { detail: picture }));
  }
  let previews = 0;
  async function preview() {
    const mine = ++previews;
    clear();
    if ($("#drawn")) $("#drawn").textContent = "";
    try {
      const text = await written();
      if (broken) { source.focus(); return; }
      const { ok, doc: said } = await call($("#editor-preview").dataset.call, text);
      if (mine !== previews) return;
      if (ok) { if (said.picture) drawingOf(said); else previewOf(said); return; }
      $("#previewed").hidden = true;
      tell(said);
      if ($("#drawn") && $(".picture svg")) $("#drawn").textContent = "as it was before";
    } catch (e) { tell({ detail: why(e) }); }
  }
  $("#editor-preview")?.addEventListener("click", preview);
  // What changes, before it is sent: values by their paths. A field says how it is called and what a change of it does.
  const review = $("#review");
  function leaves(value, path, out) {
    const field = fields.find((f) => f.dataset.field === path);
    if (!field && value && typeof value === "object" && !Array.isArray(value)) for (const [name, one] of Object.entries(value)) leaves(one, path ? path + "." + name : name, out);
    else out.set(path, value === true ? "yes" : typeof value === "string" ? value : JSON.stringify(value));
    return out;
  }
  async function showReview() {
    clear();
    try { await written(); } catch (e) { tell({ detail: why(e) }); return; }
    if (broken) { source.focus(); return; }
    const rows = $("#review-rows"), was = leaves(first, "", new Map()), is = leaves(doc, "", new Map());
    rows.replaceChildren();
    const place = (path) => { const i = fields.findIndex((f) => f.dataset.field === path); return i < 0 ? fields.length : i; };
    for (const path of [...new Set([...was.keys(), ...is.keys()])].sort((a, b) => place(a) - place(b))) {
      if (was.get(path) === is.get(path)) continue;
      const field = fields[place(path)], row = rows.insertRow();
      for (const text of [field ? field.labels[0].textContent.trim() : path, was.get(path) ?? "not set", is.get(path) ?? "not set", field?.dataset.effect ?? ""]) row.insertCell().textContent = text;
    }
    const none = rows.rows.length === 0;
    if (none) { const cell = rows.insertRow().insertCell(); cell.colSpan = 4; cell.textContent = "Nothing has changed."; }
    $("#review-save").disabled = none && !("fresh" in form.dataset);
    review.showModal();
  }
  $("#review-save")?.addEventListener("click", () => { review.close(); send(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!$("button.primary", form)) preview(); else if (review) showReview(); else send();
  });
  async function send() {
    clear();
    const button = $("button.primary", form);
    button.disabled = true;
    try {
      const text = await written();
      if (broken) { source.focus(); return; }
      const { ok, doc: answer } = await call(form.dataset.sends, text, { match: form.dataset.match, fresh: "fresh" in form.dataset, key: keyFor(form, text) });
      if (!ok) { tell(answer); return; }
      location.href = base + pathTo(form.dataset.then, answer);
    } catch (e) { tell({ detail: why(e) }); } finally { button.disabled = false; }
  }
}
