/* The page: which view is shown, what stands above and below it, and the keys that work everywhere. */

import { discardChosen, make, move } from "./actions.js";
import * as batches from "./batches.js";
import * as cards from "./cards.js";
import * as category from "./category.js";
import { button, dialog, h, many, moment, number } from "./dom.js";
import { help, listen } from "./keys.js";
import * as map from "./map.js";
import * as queue from "./queue.js";
import { keepLooking, refresh, select, store, undo, watch } from "./store.js";

const main = document.getElementById("main");
const bar = document.getElementById("bar");
let view = null;

/** Show the view that the address names. */
function route() {
  const [place = "", id] = location.hash.replace(/^#\/?/, "").split("/");
  if (location.hash === "#main") return main.focus();
  const keeps = place === "chosen" || (place === "map" && view?.name === "chosen");
  view?.shown.close();
  const root = h("div");
  main.replaceChildren(root);
  main.removeAttribute("aria-busy");
  if (!keeps) store.selection = new Set();
  const number = id === undefined ? null : Number(id);
  const shown = {
    category: () => category.show(root, number),
    chosen: () => category.showChosen(root),
    map: () => map.show(root, number),
    batches: () => batches.show(root),
    categories: () => cards.show(root),
  }[place]?.() ?? queue.show(root);
  view = { name: { "": "queue", categories: "cards" }[place] ?? place, shown };
  const tab = { category: "cards", chosen: "map" }[view.name] ?? view.name;
  document.querySelectorAll("nav a").forEach((link) => link.toggleAttribute("aria-current", link.dataset.view === tab));
  document.title = `${{ queue: "Queue", cards: "Categories", map: "Map", batches: "Batches", category: store.byId.get(number)?.title ?? "Category", chosen: "Chosen pictures" }[view.name] ?? "Review"} · ${main.dataset.workspace}`;
  window.scrollTo(0, 0);
  drawBar();
}

/** What can be done with the chosen pictures. */
function drawBar() {
  const count = store.selection.size;
  bar.hidden = count === 0;
  document.body.classList.toggle("choosing", count > 0);
  if (!count) return bar.replaceChildren();
  if (bar.children.length && bar.dataset.view === view.name) {
    bar.querySelector("b").textContent = many(count, "picture");
    return undefined;
  }
  bar.dataset.view = view.name;
  const look = view.shown.opens ? [button("Look at them", () => { location.hash = "#/chosen"; })] : [];
  bar.replaceChildren(h("b", null, many(count, "picture")),
    button("Move to…", () => move(view.shown.near?.()), { class: "strong" }), button("New category", make), button("Discard", discardChosen),
    ...look, button("Clear", () => select([]), { class: "push" }));
  return undefined;
}

function drawTop() {
  const { decisions } = store.data;
  document.querySelector("#history .count").textContent = number(decisions);
  document.getElementById("undo").disabled = decisions === 0;
}

function showHistory() {
  const { history, decisions } = store.data;
  const box = dialog("Decisions", { class: "drawer" }, h("h2", null, "Decisions since the last batch"),
    h("p", { class: "quiet" }, decisions ? "The next camp learn uses them. The last one can be undone, then the one before it." : "None yet. What you decide here is used by the next camp learn."),
    h("ol", { class: "plain history" }, history.map((one) => h("li", null, h("span", { class: "grow" }, one.said), h("small", { class: "quiet" }, moment(one.time))))),
    h("div", { class: "row end" }, button("Close", () => box.close()), button("Undo the last one", async () => { box.close(); await undo(); }, { class: "strong", disabled: decisions === 0 })));
}

const everywhere = {
  u: undo, "Ctrl+z": undo, "?": help, h: showHistory,
  g: () => {}, "g q": () => { location.hash = "#/"; }, "g o": () => { location.hash = "#/categories"; }, "g m": () => { location.hash = "#/map"; }, "g b": () => { location.hash = "#/batches"; },
  "/": () => { location.hash = "#/categories"; setTimeout(() => document.getElementById("filter")?.focus()); },
  Escape: () => select([]),
};

document.getElementById("undo").addEventListener("click", undo);
document.getElementById("history").addEventListener("click", showHistory);
document.getElementById("help").addEventListener("click", help);

refresh().then(() => {
  drawTop();
  route();
  window.addEventListener("hashchange", route);
  listen(() => ({ ...everywhere, ...view.shown.keys }));
  watch((what) => {
    drawTop();
    view.shown.update(what);
    drawBar();
  });
  keepLooking();
}, (error) => {
  main.removeAttribute("aria-busy");
  main.replaceChildren(h("p", { class: "note bad", role: "alert" }, error.message));
});
