/* A grid of pictures that loads as one scrolls, and in which pictures are chosen by mouse or keyboard. */

import { baseName, h, percent, thumbnail } from "./dom.js";
import { complain, select, store, toggle } from "./store.js";
import { hideTip, showTip } from "./tip.js";

const WHO = { label: "its label says so", person: "a person said so", found: "found by similarity" };

/** What is known about a picture, for the tip beside it. */
export function about(picture) {
  const category = store.byId.get(picture.category);
  const folder = picture.file.slice(0, Math.max(0, picture.file.lastIndexOf("/")));
  return h("div", null,
    h("b", null, baseName(picture.file)), h("br"),
    category ? `${category.title}: ${WHO[picture.who]}` : "discarded", h("br"),
    category ? `${percent(picture.sure)} sure${picture.rival ? `, else ${picture.rival}` : ""}` : null, category ? h("br") : null,
    h("span", { class: "faint" }, `batch ${picture.batch}${folder ? `, in ${folder}` : ""}`));
}

/**
 * `load(start)` resolves to {total, pictures}. Returns {element, keys, reload, mark, shown, close}.
 */
export function tiles(load) {
  const grid = h("div", { class: "tiles", role: "group", "aria-label": "Pictures" });
  const end = h("p", { class: "quiet more" });
  const element = h("div", null, grid, end);
  let pictures = [];
  let total = Infinity;
  let turn = 0; // answers of an earlier order are not for this one
  let busy = false;
  let anchor = 0;
  const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && more(), { rootMargin: "800px" });
  watcher.observe(end);

  async function more() {
    if (busy || pictures.length >= total) return;
    busy = true;
    const mine = turn;
    try {
      const page = await load(pictures.length);
      if (mine !== turn) return;
      total = page.total;
      const first = pictures.length;
      if (first === 0) renew();
      pictures.push(...page.pictures);
      grid.append(...page.pictures.map((picture, index) => tile(picture, first + index)));
      end.textContent = total === 0 ? "There are no pictures here." : "";
    } catch (error) {
      total = pictures.length;
      complain(error);
    } finally {
      if (mine === turn) busy = false;
    }
    // The end may still be in sight, and then nothing would call again.
    if (mine === turn && pictures.length < total && end.getBoundingClientRect().top < innerHeight + 800) more();
  }

  /** Load again. What is shown stays until the answer comes, but cannot be chosen any more. */
  async function reload() {
    const here = grid.contains(document.activeElement) ? index() : -1;
    turn += 1;
    busy = false;
    pictures = [];
    total = Infinity;
    grid.setAttribute("aria-busy", "true");
    await more();
    if (here >= 0) grid.children[Math.min(here, grid.children.length - 1)]?.focus();
  }

  function renew() {
    hideTip();
    grid.replaceChildren();
    grid.removeAttribute("aria-busy");
  }

  function tile(picture, position) {
    const marks = [picture.who === "label" && h("span", { class: "badge", title: "Labelled" }, "label"), picture.who === "person" && h("span", { class: "badge", title: "A person said so" }, "you")];
    const box = h("button", { type: "button", class: picture.doubtful ? "tile doubtful" : "tile", "aria-pressed": String(store.selection.has(picture.row)), "data-row": picture.row,
      "aria-label": `${baseName(picture.file)}, ${WHO[picture.who]}, ${percent(picture.sure)} sure${picture.doubtful ? ", doubtful" : ""}`,
      onclick: (event) => choose(position, event.shiftKey),
      onpointerenter: () => showTip(box, about(picture)), onpointerleave: hideTip,
      onfocus: () => box.matches(":focus-visible") && showTip(box, about(picture)), onblur: hideTip },
      thumbnail(picture, store.data.version), ...marks.filter(Boolean), h("span", { class: "tick", "aria-hidden": "true" }, "✓"));
    return box;
  }

  function choose(position, through) {
    if (!pictures[position]) return;
    const { row } = pictures[position];
    if (through) {
      const [from, to] = [Math.min(anchor, position), Math.max(anchor, position)];
      select([...store.selection, ...pictures.slice(from, to + 1).map((one) => one.row)]);
    } else {
      toggle(row);
      anchor = position;
    }
  }

  const index = () => [...grid.children].indexOf(document.activeElement);
  const columns = () => Math.max(1, getComputedStyle(grid).gridTemplateColumns.split(" ").length);
  function step(by, through = false) {
    const here = index();
    if (!pictures.length) return;
    if (through && here >= 0 && !store.selection.size) anchor = here;
    const next = here < 0 ? 0 : Math.min(Math.max(here + by, 0), pictures.length - 1);
    grid.children[next].focus();
    if (through) choose(next, true);
  }
  const flip = () => { if (index() >= 0) choose(index(), false); else return false; };
  const keys = {
    j: () => step(1), k: () => step(-1), x: flip, " ": flip,
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => step(columns()), ArrowUp: () => step(-columns()),
    "Shift+ArrowRight": () => step(1, true), "Shift+ArrowLeft": () => step(-1, true), "Shift+ArrowDown": () => step(columns(), true), "Shift+ArrowUp": () => step(-columns(), true),
    a: () => selectShown(),
  };
  const selectShown = () => select([...store.selection, ...pictures.map((one) => one.row)]);
  const mark = () => [...grid.children].forEach((box) => box.setAttribute("aria-pressed", String(store.selection.has(Number(box.dataset.row)))));
  const close = () => { watcher.disconnect(); hideTip(); turn += 1; };
  return { element, keys, reload, mark, selectShown, close };
}
