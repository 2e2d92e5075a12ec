// What the pages of types, tokens and events do in the browser, besides app.js.
"use strict";

// A form that is saved only after its changes were shown: data-review. Each field says what a change of it does.
const shownValue = (f, now) => f.type === "checkbox" ? ((now ? f.checked : f.defaultChecked) ? "yes" : "")
  : f.matches("select") ? (now ? f.value : ([...f.options].find((o) => o.defaultSelected) || f.options[0]).value)
  : (now ? f.value : f.defaultValue).trim();
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-review]"), dialog = document.getElementById("review");
  if (!form) return;
  if (dialog.open) { dialog.close(); return; } // it was shown, and app.js saves it
  event.preventDefault();
  event.stopImmediatePropagation();
  const rows = document.getElementById("review-rows");
  rows.replaceChildren();
  for (const f of form.querySelectorAll("[data-effect]")) {
    const was = shownValue(f, false), is = shownValue(f, true);
    if (was === is) continue;
    const row = rows.insertRow();
    for (const text of [f.dataset.label, was || "not set", is || "not set", f.dataset.effect]) row.insertCell().textContent = text;
  }
  const none = rows.rows.length === 0;
  if (none) { const cell = rows.insertRow().insertCell(); cell.colSpan = 4; cell.textContent = "Nothing has changed."; }
  dialog.querySelector("button.primary").disabled = none && form.dataset.fresh === undefined;
  dialog.showModal();
}, true);
