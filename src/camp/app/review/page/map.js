/* The map: all pictures at their places, coloured by category, with a lasso. */

import { make, move } from "./actions.js";
import { button, colour, h, number, thumbnail } from "./dom.js";
import { Plot } from "./plot.js";
import { complain, get, getBytes, select, store } from "./store.js";
import { about } from "./tiles.js";
import { hideTip, showTip } from "./tip.js";

// Positions change with a batch only; they are asked for once.
let positions = { version: null, xy: null };
let view = null;

export function show(root, highlighted = null) {
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Map of all pictures. Arrows move it, plus and minus zoom, brackets step through the categories." });
  const overlay = h("canvas", { class: "overlay", "aria-hidden": "true" });
  const plot = new Plot(canvas);
  const legend = h("ul", { class: "legend", "aria-label": "Categories" });
  const lasso = button("Lasso", () => arm(!armed), { "aria-pressed": "false", title: "Draw around pictures to choose them (l, or drag with Shift)" });
  const tools = h("div", { class: "row maptools" }, lasso, button("−", () => plot.zoom(1 / 1.5), { "aria-label": "Zoom out" }), button("+", () => plot.zoom(1.5), { "aria-label": "Zoom in" }), button("All", fit, { title: "Show everything (0)" }));
  const empty = h("p", { class: "quiet mapnote" }, "Loading the map…");
  const stage = h("div", { class: "stage" }, canvas, overlay, tools, empty);
  root.replaceChildren(h("div", { class: "map" }, stage, h("aside", null, h("h2", null, "Categories"), legend)));
  let armed = false;
  let seen = null;

  const about1 = new Map(); // what was asked about single pictures
  plot.highlighted = highlighted;
  const sized = new ResizeObserver(() => { if (plot.resize() && !view) plot.fit(); });
  sized.observe(canvas);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const dye = () => { plot.dye(); plot.redraw(); };
  scheme.addEventListener("change", dye);
  load();

  async function load() {
    seen = store.data.events;
    const { version } = store.data;
    try {
      const [xy, category] = await Promise.all([
        positions.version === version ? positions.xy : getBytes("/api/map/positions").then((bytes) => new Float32Array(bytes)),
        getBytes("/api/map/categories").then((bytes) => new Int32Array(bytes)),
      ]);
      const fresh = positions.version !== version;
      positions = { version, xy };
      about1.clear();
      plot.titles = new Map(store.data.categories.map((one) => [one.id, one.title]));
      plot.resize();
      plot.set(xy, category);
      plot.choose(store.selection);
      if (fresh || !view) fit();
      else Object.assign(plot, view);
      empty.textContent = category.length ? "" : "There are no pictures.";
      list();
    } catch (error) {
      complain(error);
    }
  }

  function fit() {
    plot.fit();
    view = { view: plot.view, fitted: plot.fitted };
  }

  function list() {
    const sorted = [...store.data.categories].sort((a, b) => a.title.localeCompare(b.title, "en", { numeric: true }));
    legend.replaceChildren(...sorted.map((one) => h("li", null,
      h("button", { type: "button", "aria-pressed": String(plot.highlighted === one.id), "data-id": one.id, onclick: () => highlight(plot.highlighted === one.id ? null : one.id) },
        h("span", { class: `dot ${colour(one.id)}` }), h("span", { class: "grow cut" }, one.title), h("span", { class: "quiet" }, number(one.pictures))),
      h("a", { href: `#/category/${one.id}`, "aria-label": `Open ${one.title}` }, "Open"))));
  }

  function highlight(id) {
    plot.highlighted = id;
    [...legend.querySelectorAll("button")].forEach((one) => one.setAttribute("aria-pressed", String(Number(one.dataset.id) === id)));
    legend.querySelector(`[data-id="${id}"]`)?.scrollIntoView({ block: "nearest" });
    history.replaceState(null, "", id === null ? "#/map" : `#/map/${id}`);
    plot.redraw();
  }

  function arm(on) {
    armed = on;
    lasso.setAttribute("aria-pressed", String(on));
    canvas.classList.toggle("armed", on);
  }

  // Pointers: one drags or draws, two pinch.
  const pointers = new Map();
  let path = null;
  let moved = false;
  const spot = (event) => [event.offsetX, event.offsetY];

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, spot(event));
    moved = false;
    hideTip();
    path = pointers.size === 1 && (armed || event.shiftKey) ? [spot(event)] : null;
  });

  canvas.addEventListener("pointermove", (event) => {
    const here = spot(event);
    const last = pointers.get(event.pointerId);
    if (!last) return hover(event, here);
    if (Math.hypot(here[0] - last[0], here[1] - last[1]) < (moved ? 1 : 4)) return;
    moved = true;
    if (path) {
      path.push(here);
      trace();
    } else if (pointers.size === 2) {
      const [other] = [...pointers].filter(([key]) => key !== event.pointerId).map(([, at]) => at);
      const spread = (at) => Math.max(10, Math.hypot(at[0] - other[0], at[1] - other[1]));
      plot.zoom(spread(here) / spread(last), (here[0] + other[0]) / 2, (here[1] + other[1]) / 2);
    } else {
      plot.pan(here[0] - last[0], here[1] - last[1]);
    }
    pointers.set(event.pointerId, here);
  });

  function released(event) {
    if (!pointers.delete(event.pointerId)) return;
    if (path && moved) {
      const rows = plot.inside(path);
      select(event.ctrlKey || event.metaKey ? [...store.selection, ...rows] : rows);
    } else if (!moved && event.type === "pointerup") {
      const row = plot.nearest(...spot(event));
      highlight(row < 0 || plot.category[row] === plot.highlighted ? null : plot.category[row]);
    }
    path = null;
    trace();
  }
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", released);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    plot.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...spot(event));
  }, { passive: false });

  /** The line being drawn. */
  function trace() {
    overlay.width = canvas.width;
    overlay.height = canvas.height;
    if (!path) return;
    const context = overlay.getContext("2d");
    context.scale(plot.ratio, plot.ratio);
    context.beginPath();
    path.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.closePath();
    context.fillStyle = `rgba(${plot.ink}, 0.07)`;
    context.fill();
    context.strokeStyle = `rgb(${plot.ink})`;
    context.lineWidth = 1.5;
    context.setLineDash([5, 4]);
    context.stroke();
  }

  let resting;
  let hovered = -1;
  function hover(event, here) {
    clearTimeout(resting);
    const row = event.pointerType === "touch" ? -1 : plot.nearest(...here);
    if (row !== hovered) hideTip();
    hovered = row;
    if (row < 0) return;
    const at = { x: event.clientX, y: event.clientY };
    resting = setTimeout(async () => {
      const picture = about1.get(row) ?? (await get(`/api/pictures?row=${row}`).catch(() => null))?.pictures[0];
      if (!picture || hovered !== row || !canvas.isConnected) return;
      about1.set(row, picture);
      showTip(at, h("div", { class: "peek" }, thumbnail(picture, store.data.version), about(picture)));
    }, about1.has(row) ? 0 : 60);
  }

  const next = (by) => {
    const ids = [...legend.querySelectorAll("button")].map((one) => Number(one.dataset.id));
    const here = ids.indexOf(plot.highlighted);
    highlight(ids[(here + by + ids.length + (here < 0 && by < 0 ? 1 : 0)) % ids.length] ?? null);
  };
  const onMap = (action) => () => (document.activeElement?.closest(".legend") ? false : action());
  const keys = {
    ArrowLeft: () => plot.pan(60, 0), ArrowRight: () => plot.pan(-60, 0), ArrowUp: onMap(() => plot.pan(0, 60)), ArrowDown: onMap(() => plot.pan(0, -60)),
    "+": () => plot.zoom(1.5), "=": () => plot.zoom(1.5), "-": () => plot.zoom(1 / 1.5), 0: fit, l: () => arm(!armed), "]": () => next(1), "[": () => next(-1), j: () => next(1), k: () => next(-1),
    x: () => { if (plot.highlighted !== null) select([...store.selection, ...[...plot.category.keys()].filter((row) => plot.category[row] === plot.highlighted)]); },
    m: () => move(), n: () => store.selection.size && make(),
    Enter: () => { if (document.activeElement === canvas && plot.highlighted !== null) location.hash = `#/category/${plot.highlighted}`; else return false; },
    Escape: () => { if (store.selection.size) select([]); else if (armed) arm(false); else highlight(null); },
  };
  const update = (what) => {
    if (what === "selection") plot.choose(store.selection);
    else if (seen !== store.data.events) load();
  };
  const close = () => {
    view = { view: plot.view, fitted: plot.fitted };
    clearTimeout(resting);
    sized.disconnect();
    scheme.removeEventListener("change", dye);
    hideTip();
  };
  return { keys, near: () => nearOf(plot.category), update, close, opens: true };
}

/** Categories of the chosen pictures, the most frequent first: one of them is often where all belong. */
function nearOf(category) {
  const counts = new Map();
  for (const row of store.selection) counts.set(category[row], (counts.get(category[row]) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([id]) => id);
}
