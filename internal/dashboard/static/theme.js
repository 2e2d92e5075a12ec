// Before anything is shown: the viewer's choice of dark or light. Without one, the system's applies.
"use strict";
{
  let chosen = null;
  try { chosen = localStorage.getItem("mscheduler-theme"); } catch { /* no storage: the system's */ }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
