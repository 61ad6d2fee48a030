/* What a person does: name, merge, split, move, discard. Each asks what is missing, then decides. */

import { choose } from "./chooser.js";
import { button, dialog, h, many, thumbnail } from "./dom.js";
import { complain, decide, get, select, send, store } from "./store.js";

/** Resolves to true if the person agrees. */
function agree(label, text, yes, no) {
  return new Promise((resolve) => {
    const box = dialog(label, { class: "small", onclose: (value) => resolve(value === "yes") },
      h("h2", null, label), h("p", null, text),
      h("div", { class: "row end" }, button(no, () => box.close()), button(yes, () => box.close("yes"), { class: "strong", autofocus: true })));
  });
}

/** Name a category; a name that is taken offers to merge. Returns whether anything was decided. */
export async function name(id, text) {
  const wanted = text.trim().normalize("NFC") || null;
  const category = store.byId.get(id);
  if (!category || wanted === category.name) return false;
  const other = store.data.categories.find((one) => wanted !== null && one.name === wanted && one.id !== id);
  if (!other) return (await decide({ kind: "named", category: id, name: wanted })) !== null;
  const text2 = `There is a category called “${wanted}” already, with ${many(other.pictures, "picture")}. If ${category.title} is the same kind, merge the two.`;
  if (!(await agree("This name is taken", text2, "Merge the two", "Choose another name"))) return false;
  return mergeInto(id, other.id);
}

export const mergeInto = async (id, into) => (await decide({ kind: "merged", category: id, into })) !== null;

export const tellApart = async (id, other) => (await decide({ kind: "apart", category: id, other })) !== null;

/** Ask what a category is the same as. */
export async function merge(id) {
  const category = store.byId.get(id);
  const answer = await choose(`Merge ${category.title} into`, { near: category.near, without: id });
  return answer !== null && mergeInto(id, answer.id);
}

export const discard = async (id) => (await decide({ kind: "discarded", category: id })) !== null;

/** Show the two halves, and split if they are two kinds. Returns the new category's id, or null. */
export async function split(id) {
  let found;
  try {
    found = await get(`/api/category/${id}/halves`);
  } catch (error) {
    complain(error);
    return null;
  }
  const title = store.byId.get(id).title;
  const side = (label, half) => h("section", null,
    h("h3", null, label, " ", h("span", { class: "quiet" }, many(half.pictures, "picture"))),
    h("div", { class: "mosaic even" }, half.tiles.map((tile) => thumbnail(tile, store.data.version))));
  const yes = await new Promise((resolve) => {
    const box = dialog("Split in two", { class: "wide", onclose: (value) => resolve(value === "yes") },
      h("h2", null, `Split ${title} in two?`),
      h("div", { class: "halves" }, side(`Stays ${title}`, found.stays), side("Becomes a new category", found.leaves)),
      h("div", { class: "row end" }, button("Leave it whole", () => box.close()), button("Split", () => box.close("yes"), { class: "strong", autofocus: true })));
  });
  if (!yes) return null;
  return (await send("/api/split", { category: id }))?.category ?? null;
}

/** Ask where the chosen pictures belong, and move them. */
export async function move(near = []) {
  const rows = [...store.selection];
  if (!rows.length) return false;
  const answer = await choose(`Move ${many(rows.length, "picture")} to`, { near, offerNew: true });
  if (answer === null) return false;
  const outcome = answer.id === undefined
    ? await send("/api/make", { rows, name: answer.name ?? null })
    : await decide({ kind: "moved", rows, into: answer.id });
  if (outcome) select([]);
  return outcome !== null;
}

/** Make a category of the chosen pictures. */
export async function make() {
  const outcome = await send("/api/make", { rows: [...store.selection] });
  if (!outcome) return;
  select([]);
  location.hash = `#/category/${outcome.category}`;
}

/** Discard the chosen pictures. */
export async function discardChosen() {
  if (store.selection.size && (await decide({ kind: "discarded", rows: [...store.selection] }))) select([]);
}
