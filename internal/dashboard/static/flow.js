// The graph of a flow: drawn by the API, coloured by app.css, moved and zoomed here. Nodes are links to their pages.
"use strict";
{
  const place = $("[data-picture]");
  const step = 1.25, readable = 0.45; // below that many pixels for each unit no text can be read
  let svg, whole, view;

  // show makes the picture what the API has drawn; where somebody looks at stays.
  function show(text) {
    const drawn = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    if (drawn.localName !== "svg") throw new Error("it is no picture");
    const fresh = document.importNode(drawn, true);
    const [, , width, height] = fresh.getAttribute("viewBox").split(" ").map(Number);
    const head = 60; // the title and the dates are above the picture already
    whole = { x: 0, y: head, width, height: height - head };
    fresh.setAttribute("role", "group"); // it has links
    fresh.removeAttribute("width");
    fresh.removeAttribute("height");
    if (place.dataset.node) for (const node of $$(".node", fresh)) link(node);
    const focused = svg?.contains(document.activeElement) ? document.activeElement.dataset.of : undefined;
    place.replaceChildren(fresh);
    svg = fresh;
    if (view) draw(); else begin();
    if (focused) $(`a[data-of="${CSS.escape(focused)}"]`, svg)?.focus({ preventScroll: true });
  }
  function link(node) {
    const a = document.createElementNS("http://www.w3.org/2000/svg", "a");
    a.setAttribute("href", place.dataset.node + encodeURIComponent(node.dataset.node));
    a.dataset.of = node.dataset.node;
    node.replaceWith(a);
    a.append(node);
  }

  const pixels = () => place.clientWidth / view.width;
  function draw() {
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
    svg.classList.toggle("far", pixels() < readable / 2);
  }
  // around is a view of a width whose middle is at a place.
  function around(x, y, width) {
    const height = width * place.clientHeight / place.clientWidth;
    view = { x: x - width / 2, y: y - height / 2, width, height };
    draw();
  }
  function fit() {
    const wide = Math.max(whole.width, whole.height * place.clientWidth / place.clientHeight, place.clientWidth / 1.2);
    around(whole.x + whole.width / 2, whole.y + whole.height / 2, wide);
    if (view.y < whole.y) move(0, whole.y - view.y);
  }
  // begin shows all of a small graph, and the beginning of a large one.
  function begin() {
    fit();
    if (pixels() >= readable) return;
    around(whole.x + whole.width / 2, 0, Math.min(whole.width, place.clientWidth / readable));
    view.y = whole.y;
    draw();
  }
  function zoom(by, x = view.x + view.width / 2, y = view.y + view.height / 2) {
    const width = Math.min(Math.max(view.width / by, 150), 4 * Math.max(whole.width, whole.height));
    const rest = width / view.width;
    view = { x: x - (x - view.x) * rest, y: y - (y - view.y) * rest, width, height: view.height * rest };
    draw();
  }
  const move = (x, y) => { view.x += x; view.y += y; draw(); };

  document.addEventListener("click", (event) => {
    const how = event.target.closest("[data-zoom]")?.dataset.zoom;
    if (!how || !svg) return;
    if (how === "fit") fit(); else zoom(how === "in" ? step : 1 / step);
  });
  // The wheel zooms with Ctrl, or when the picture was clicked or tabbed into: else the page scrolls.
  place.addEventListener("wheel", (event) => {
    if (!svg || !event.ctrlKey && !event.metaKey && !place.contains(document.activeElement)) return;
    event.preventDefault();
    const box = place.getBoundingClientRect(), size = view.width / box.width;
    zoom(event.deltaY < 0 ? step : 1 / step, view.x + (event.clientX - box.left) * size, view.y + (event.clientY - box.top) * size);
  }, { passive: false });
  place.addEventListener("keydown", (event) => {
    if (!svg || event.ctrlKey || event.metaKey || event.altKey) return;
    const far = view.width / 10;
    const does = {
      "+": () => zoom(step), "=": () => zoom(step), "-": () => zoom(1 / step), "0": fit,
      ArrowLeft: () => move(-far, 0), ArrowRight: () => move(far, 0), ArrowUp: () => move(0, -far), ArrowDown: () => move(0, far),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  });

  // Dragging moves the picture; a click that did not move is for the node.
  let from, dragged = false;
  place.addEventListener("pointerdown", (event) => {
    if (!svg || event.button !== 0) return;
    from = { x: event.clientX, y: event.clientY };
    dragged = false;
  });
  window.addEventListener("pointermove", (event) => {
    if (!from) return;
    const x = from.x - event.clientX, y = from.y - event.clientY;
    if (!dragged && Math.hypot(x, y) < 4) return;
    dragged = true;
    const size = view.width / place.clientWidth;
    move(x * size, y * size);
    from = { x: event.clientX, y: event.clientY };
  });
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => { from = undefined; });
  place.addEventListener("dragstart", (event) => event.preventDefault());
  place.addEventListener("click", (event) => { if (dragged) { event.preventDefault(); dragged = false; } }, true);

  $("#find-node")?.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); }); // it may stand in a form
  $("#find-node")?.addEventListener("input", (event) => {
    if (!svg) return;
    $$(".found", svg).forEach((n) => n.classList.remove("found"));
    const wanted = event.target.value.toLowerCase();
    const node = wanted && $$(".node", svg).find((n) => n.dataset.node.toLowerCase().includes(wanted));
    if (!node) return;
    node.classList.add("found");
    const [x, y] = node.getAttribute("transform").match(/-?[\d.]+/g).map(Number);
    around(x + 70, y + 25, place.clientWidth / 1.1);
  });

  // Reading follows the page, but a graph that takes long to draw is not drawn all the time.
  let loading = false, wanted = false;
  async function load() {
    if (loading) { wanted = true; return; }
    loading = true;
    const began = performance.now();
    try {
      const answer = await fetch(place.dataset.picture);
      if (!answer.ok) throw new Error(answer.statusText);
      show(await answer.text());
    } catch (e) {
      if (!svg) place.textContent = "The graph cannot be drawn: " + e.message;
    }
    setTimeout(() => { loading = false; if (wanted) { wanted = false; load(); } }, Math.max(1000, 5 * (performance.now() - began)));
  }
  if (place.dataset.picture) { load(); document.addEventListener("part", load); }
  document.addEventListener("picture", (event) => { view = undefined; show(event.detail); });
}
