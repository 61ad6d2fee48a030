/* One category with all its pictures; and, alike, the pictures that were chosen on the map. */

import { discard, discardChosen, merge, move, split } from "./actions.js";
import { button, colour, h, many, percent } from "./dom.js";
import { get, select, store } from "./store.js";
import { tiles } from "./tiles.js";
import { title } from "./title.js";

const PAGE = 60;
const ORDERS = { typical: "typical", doubtful: "doubtful", newest: "newest" };
let order = "typical";

export function show(root, id) {
  const grid = tiles((start) => get(`/api/category/${id}?order=${order}&start=${start}`));
  const head = h("div", { class: "head" });
  const radios = h("div", { class: "segments", role: "group", "aria-label": "Order" }, Object.entries(ORDERS).map(([key, label]) =>
    button(label, () => { order = key; press(); grid.reload(); }, { "data-order": key })));
  const press = () => [...radios.children].forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.order === order)));
  root.replaceChildren(h("a", { class: "quiet back", href: "#/categories" }, "← All categories"), head,
    h("div", { class: "row controls" }, h("span", { class: "quiet" }, "First the"), radios, button("Select all shown", grid.selectShown, { class: "push", title: "a" })), grid.element);
  let editing = false;
  let seen = store.data.events;

  function fill() {
    const category = store.byId.get(id);
    if (!category) {
      // Merged, discarded, or never there: the way back is the overview.
      location.hash = "#/categories";
      return;
    }
    if (editing) return;
    const heading = title(category, { started: () => { editing = true; }, done: () => { editing = false; fill(); }, level: "h1" });
    head.replaceChildren(
      h("div", { class: "row" }, h("span", { class: `dot ${colour(id)}` }), heading),
      h("p", { class: "quiet" }, `${many(category.pictures, "picture")} · ${percent(category.sure)} sure · ${category.reason}`),
      h("div", { class: "row acts" }, button("Name", keys.n), button("Merge into…", keys.m), button("Split in two…", keys.s), button("Discard category", keys.d),
        h("a", { class: "button", href: `#/map/${id}` }, "On the map")));
    if (seen !== store.data.events) {
      seen = store.data.events;
      grid.reload();
    }
  }

  const near = () => store.byId.get(id)?.near ?? [];
  const keys = {
    ...grid.keys,
    n: () => head.querySelector("button.name")?.click(),
    m: async () => { if (store.selection.size) move(near()); else if (await merge(id)) location.hash = "#/categories"; },
    s: () => split(id),
    d: () => (store.selection.size ? discardChosen() : discard(id)),
    Backspace: () => { location.hash = "#/categories"; },
    Escape: () => { if (store.selection.size) select([]); else location.hash = "#/categories"; },
  };
  press();
  fill();
  grid.reload();
  return { keys, near, update: (what) => (what === "selection" ? grid.mark() : fill()), close: grid.close };
}

/** The pictures chosen on the map, to look at one by one. */
export function showChosen(root) {
  const rows = [...store.selection];
  if (!rows.length) {
    location.hash = "#/map";
    return { keys: {}, update() {}, close() {} };
  }
  const grid = tiles(async (start) => {
    const part = rows.slice(start, start + PAGE);
    const { pictures } = await get(`/api/pictures?${part.map((row) => `row=${row}`).join("&")}`);
    return { total: rows.length, pictures };
  });
  root.replaceChildren(h("a", { class: "quiet back", href: "#/map" }, "← The map"), h("h1", null, many(rows.length, "chosen picture")),
    h("p", { class: "quiet" }, "Click those that do not belong, then move the rest."), grid.element);
  grid.reload();
  let seen = store.data.events;
  const update = (what) => {
    if (what === "selection") grid.mark();
    else if (seen !== store.data.events) location.hash = "#/map";
  };
  return { keys: { ...grid.keys, Escape: () => { location.hash = "#/map"; } }, near: () => [], update, close: grid.close };
}
