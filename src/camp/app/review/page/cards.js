/* The overview: a card a category, those that need a person first. */

import { discard, merge, mergeInto, split, tellApart } from "./actions.js";
import { button, colour, h, many, moment, number, percent, thumbnail } from "./dom.js";
import { complain, store } from "./store.js";
import { fillKept } from "./kept.js";
import { title } from "./title.js";

const SORTS = {
  need: ["needs you most", (a, b) => b.need - a.need || b.pictures - a.pictures],
  name: ["name", (a, b) => (a.name === null) - (b.name === null) || a.title.localeCompare(b.title, "en", { numeric: true })],
  size: ["size", (a, b) => b.pictures - a.pictures],
  newest: ["newest", (a, b) => b.step - a.step || b.id - a.id],
};
const ORIGINS = { labelled: "came with labels", discovered: "discovered", made: "made by a person" };

// What outlives a visit to another view.
let sort = "need";
let filter = "";
let order = [];
let focused = null;

export function show(root) {
  let editing = false;
  order = []; // sorted anew at every visit, and left alone in between: cards must not run away under one's hands
  const grid = h("div", { class: "cards", role: "list", "aria-label": "Categories" });
  const search = h("input", { type: "search", id: "filter", placeholder: "Filter  /", "aria-label": "Filter categories", value: filter, autocomplete: "off", spellcheck: "false",
    oninput: () => { filter = search.value; fill(); },
    onkeydown: (event) => {
      if (event.key !== "Escape" && event.key !== "Enter") return;
      if (event.key === "Escape") { filter = search.value = ""; fill(); }
      event.preventDefault();
      focus(shown()[0]);
    } });
  const sorts = h("select", { "aria-label": "Sort by", onchange: () => { sort = sorts.value; order = []; fill(); } },
    Object.entries(SORTS).map(([key, [label]]) => h("option", { value: key, selected: key === sort }, label)));
  const lines = h("div", { class: "summary" });
  const pairs = h("div");
  const kept = h("div");
  root.replaceChildren(lines, pairs, kept, h("div", { class: "row controls" }, search, h("label", { class: "row quiet" }, "Sorted by ", sorts)), grid);

  function fill() {
    if (editing) return; // drawn when the name is saved
    const within = grid.contains(document.activeElement) || document.activeElement === document.body;
    lines.replaceChildren(...summary());
    pairs.replaceChildren(...alike());
    const wanted = filter.trim().toLowerCase();
    grid.replaceChildren(...ordered().filter((one) => one.title.toLowerCase().includes(wanted)).map(card));
    if (!grid.children.length) grid.append(h("p", { class: "quiet" }, store.data.categories.length ? "No category has this name." : "There is no category left; undo brings them back."));
    if (within && focused !== null) focus(focused);
  }

  function card(category) {
    const heading = title(category, { started: () => { editing = true; focused = category.id; }, done: () => { editing = false; fill(); focus(category.id); } });
    const { version } = store.data;
    const box = h("article", { class: "card", role: "listitem", tabindex: "0", "data-id": category.id, "aria-label": `${category.title}, ${many(category.pictures, "picture")}, ${category.reason}`,
      onfocus: () => { focused = category.id; } },
      h("a", { class: "mosaic", href: `#/category/${category.id}`, tabindex: "-1", "aria-label": `Open ${category.title}` }, category.typical.map((tile) => thumbnail(tile, version))),
      h("div", { class: "row" }, h("span", { class: `dot ${colour(category.id)}` }), heading, h("span", { class: "count", title: "pictures" }, number(category.pictures))),
      h("p", { class: category.reason === "looks settled" ? "reason settled" : "reason" }, category.reason),
      category.uncertain.length > 0 && h("div", { class: "doubts row" }, category.uncertain.map((tile) => thumbnail(tile, version)), h("span", { class: "quiet" }, `${many(category.doubtful, "doubtful one")}`)),
      h("div", { class: "meter", title: "How sure, on average" }, h("i", { style: `width:${100 * (category.sure ?? 0)}%` })),
      h("p", { class: "quiet facts" }, facts(category)),
      h("div", { class: "row acts" }, button("Merge…", () => act("m"), { tabindex: "-1" }), button("Split…", () => act("s"), { tabindex: "-1" }), button("Discard", () => act("d"), { tabindex: "-1" }),
        h("a", { class: "push", href: `#/map/${category.id}`, tabindex: "-1" }, "Map")));
    box.edit = () => heading.edit();
    const act = (key) => { focused = category.id; keys[key](); };
    return box;
  }

  const shown = () => [...grid.querySelectorAll(".card")].map((one) => Number(one.dataset.id));
  const at = (id) => grid.querySelector(`.card[data-id="${id}"]`);

  function focus(id) {
    const box = at(id);
    if (!box) return;
    box.focus();
    box.scrollIntoView({ block: "nearest" });
  }

  function step(by) {
    const ids = shown();
    const here = ids.indexOf(focused);
    const onCard = grid.contains(document.activeElement);
    focus(ids[onCard && here >= 0 ? Math.min(Math.max(here + by, 0), ids.length - 1) : Math.max(here, 0)]);
  }

  /** Do something to the card in focus; if it is gone afterwards, the one that took its place is next. */
  async function on(action) {
    const ids = shown();
    if (!ids.includes(focused)) return;
    const here = ids.indexOf(focused);
    const made = await action(focused);
    const left = shown();
    focus(typeof made === "number" && left.includes(made) ? made : left.includes(focused) ? focused : left[Math.min(here, left.length - 1)]);
  }

  const row = () => Math.max(1, getComputedStyle(grid).gridTemplateColumns.split(" ").length);
  const keys = {
    j: () => step(1), k: () => step(-1),
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => step(row()), ArrowUp: () => step(-row()),
    Enter: () => { if (document.activeElement === at(focused)) location.hash = `#/category/${focused}`; else return false; },
    n: () => at(focused)?.edit(), m: () => on(merge), s: () => on(split), d: () => on(discard),
    "/": () => search.focus(),
  };
  const update = (what) => { fill(); if (what !== "selection") fillKept(kept); };
  update("data");
  return { keys, update, close() {} };
}

/** Categories in the order of this visit; what is new comes first. */
function ordered() {
  const { data, byId } = store;
  const sorted = [...data.categories].sort(SORTS[sort][1]).map((category) => category.id);
  order = order.length ? [...sorted.filter((id) => !order.includes(id)), ...order.filter((id) => byId.has(id))] : sorted;
  return order.map((id) => byId.get(id));
}

function facts(category) {
  const sources = [[category.label, "labelled"], [category.person, "by you"], [category.found, "found"]];
  const counts = sources.filter(([count]) => count).map(([count, word]) => `${number(count)} ${word}`);
  return [...counts, category.sure === null ? null : `${percent(category.sure)} sure`, `${ORIGINS[category.origin]}, batch ${category.step}`].filter(Boolean).join(" · ");
}

function summary() {
  const { data } = store;
  const named = data.categories.length - data.unnamed;
  const last = data.last;
  return [
    h("p", { class: "lead" }, h("b", null, number(data.pictures)), ` picture${data.pictures === 1 ? "" : "s"} in `, h("b", null, number(data.categories.length)), data.categories.length === 1 ? " category. " : " categories. ",
      data.unnamed ? [h("b", null, number(data.unnamed)), ` of them ${data.unnamed === 1 ? "has" : "have"} no name yet, `] : "All have a name, ",
      h("b", null, number(data.doubtful)), data.doubtful === 1 ? " picture is doubtful." : " pictures are doubtful."),
    last && h("p", { class: "quiet" }, `The last batch${last.folder ? `, ${last.folder},` : ""} brought ${many(last.pictures ?? 0, "picture")}`,
      last.n_new === null ? "" : ` and ${many(last.n_new, "new kind")}`, last.time ? ` on ${moment(last.time)}` : "", ". ", h("a", { href: "#/batches" }, "What happened")),
    h("div", { class: "meter named", role: "img", "aria-label": `${named} of ${data.categories.length} categories have a name` }, h("i", { style: `width:${(100 * named) / Math.max(1, data.categories.length)}%` })),
  ];
}

/** Pairs that look like one kind. */
function alike() {
  const { data, byId } = store;
  const found = data.alike.filter(([a, b]) => byId.has(a) && byId.has(b));
  if (!found.length) return [];
  const side = (one) => h("a", { class: "side", href: `#/category/${one.id}` },
    h("span", { class: "mosaic three" }, one.typical.slice(0, 3).map((tile) => thumbnail(tile, data.version))),
    h("span", { class: "row" }, h("span", { class: `dot ${colour(one.id)}` }), h("span", { class: "grow cut" }, one.title), h("span", { class: "quiet" }, number(one.pictures))));
  const pair = ([a, b]) => {
    // A name is kept before none, and the larger one's before the smaller one's.
    const [into, from] = [byId.get(a), byId.get(b)].sort((x, y) => (x.name === null) - (y.name === null) || y.pictures - x.pictures);
    return h("li", { class: "pair" }, h("div", { class: "sides" }, side(into), side(from)),
      h("div", { class: "row end" }, button("Different", () => tellApart(a, b).catch(complain)),
        button(`Merge as ${into.title}`, () => mergeInto(from.id, into.id).catch(complain), { class: "strong cut" })));
  };
  return [h("section", { class: "alike" }, h("h2", null, "The same kind?"), h("ul", null, found.map(pair)))];
}
