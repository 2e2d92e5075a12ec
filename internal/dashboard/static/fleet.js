// What the pages of tokens and events do in the browser, besides app.js.
"use strict";

// A token that was created is shown once.
document.addEventListener("called", (event) => {
  if (event.target.id !== "create-token") return;
  document.getElementById("minted-text").value = event.detail.token;
  document.getElementById("minted").hidden = false;
  event.target.reset();
});
document.getElementById("minted-copy")?.addEventListener("click", () => copied(document.getElementById("minted-text")));

// The live list of events: the last 500 of them. While it is paused, what happens is kept, and shown later.
const eventTable = document.getElementById("events");
if (eventTable) {
  const most = 500, body = eventTable.tBodies[0], state = document.getElementById("events-state"), button = document.getElementById("events-pause");
  const none = document.getElementById("events-none"), nothing = none.textContent;
  let source, paused = false, kept = [], asked = false, shown = []; // kept wait to be shown; shown begins with the newest
  const linkTo = (path, text) => { const a = document.createElement("a"); a.href = base + path; a.textContent = text; a.className = "id"; return a; };
  function rowOf(name, doc) {
    const row = document.createElement("tr");
    row.dataset.row = "";
    const at = doc.at || doc.updated_at || doc.heartbeat_at, time = document.createElement("time");
    if (at) { time.dateTime = at; time.textContent = at; }
    let of = document.createTextNode(typeof doc === "string" ? doc : doc.id || doc.rule_name || "");
    if (doc.task_id && doc.kind) of = linkTo("/tasks/" + escaped(doc.task_id, 3), doc.task_id);
    else if (name === "worker") of = linkTo("/workers/" + encodeURIComponent(doc.id), doc.id);
    const words = [doc.worker_id, doc.attempt && "attempt " + doc.attempt, doc.fail_kind, doc.reason, doc.progress && JSON.stringify(doc.progress), name === "worker" && doc.running !== undefined && doc.running + " of " + doc.concurrency + " slots"];
    for (const part of [time, name, of, doc.status || "", words.filter(Boolean).join(" · ")]) row.insertCell().append(part);
    return row;
  }
  function show() {
    none.hidden = true;
    shown = [...kept.reverse(), ...shown].slice(0, most);
    body.prepend(...kept.map(([name, doc]) => rowOf(name, doc)));
    kept = [];
    while (body.rows.length > most) body.lastElementChild.remove();
    showTimes(body);
  }
  const tell = () => { state.classList.toggle("off", paused || source.readyState !== EventSource.OPEN); state.textContent = paused ? "paused, " + kept.length + " more" : source.readyState === EventSource.OPEN ? "live" : "not live"; };
  function listen() {
    source = new EventSource(eventTable.dataset.stream);
    for (const name of kinds) source.addEventListener(name, (event) => heard(name, event));
    source.onopen = () => { none.textContent = nothing; none.hidden = shown.length > 0; tell(); };
    source.onerror = () => { tell(); if (source.readyState === EventSource.CLOSED) refused(); }; // it does not try again by itself
  }
  // A stream that is refused does not say why: a request does.
  async function refused() {
    let why = "the server does not answer";
    const request = new AbortController();
    try {
      const answer = await fetch(eventTable.dataset.stream, { signal: request.signal });
      if (answer.status === 401) {
        signedOut(base + "/sign-in?to=" + encodeURIComponent("/ui" + location.pathname.slice(base.length) + location.search));
        document.addEventListener("signed-in", listen, { once: true });
        return;
      }
      if (!answer.ok) { const problem = await answer.json(); why = problem.detail || problem.title; }
      else why = "";
    } catch { /* no answer, or none of the API */ }
    request.abort();
    if (why) {
      none.textContent = `Events cannot be followed: ${why.replace(/\.$/, "")}. Trying again every 10 s.`;
      none.hidden = false;
    }
    setTimeout(listen, 10000);
  }
  const kinds = ["sent", "claimed", "taken_over", "progress", "parked", "released", "failed", "succeeded", "cancelling", "changed", "ended", "run", "flow", "worker", "worker_gone", "missed"];
  function heard(name, event) {
    let doc;
    try { doc = JSON.parse(event.data); } catch { doc = event.data; }
    if (name === "missed") doc = { reason: "some events were missed" };
    kept.push([name, doc]);
    if (kept.length > most) kept.shift();
    if (!paused && !asked) { asked = true; setTimeout(() => { asked = false; if (!paused) show(); }, 200); }
    tell();
  }
  listen();
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", paused);
    button.textContent = paused ? "Go on" : "Pause";
    if (!paused && kept.length) show();
    tell();
  });
  document.getElementById("events-clear").addEventListener("click", () => { body.replaceChildren(); kept = []; shown = []; tell(); });
  // A file of the events that are shown: in CSV as the table has them, with their exact times.
  const cell = (text) => '"' + (/^[=+\-@;\t\r\n]/.test(text) ? "'" + text : text).replaceAll('"', '""') + '"';
  const files = {
    csv: () => [["At", "Event", "Of", "Status", "What"], ...[...body.rows].map((r) => [...r.cells].map((c) => $("time", c)?.dateTime ?? c.textContent))].map((r) => r.map(cell).join(",") + "\r\n"),
    jsonl: () => shown.map(([event, doc]) => JSON.stringify({ event, ...(typeof doc === "string" ? { id: doc } : doc) }) + "\n"),
  };
  for (const button of $$("[data-events-file]")) button.addEventListener("click", () => {
    const a = document.createElement("a"), format = button.dataset.eventsFile;
    a.href = URL.createObjectURL(new Blob(files[format](), { type: format === "csv" ? "text/csv" : "application/jsonl" }));
    a.download = "events." + format;
    a.click();
    URL.revokeObjectURL(a.href);
  });
}
