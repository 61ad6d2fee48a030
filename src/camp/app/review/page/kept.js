/* Unknown pictures that predictions kept: categories proposed for them, which a person accepts or dismisses. */

import { baseName, button, h, many } from "./dom.js";
import { complain, get, send } from "./store.js";

/** Fill `root` with the section of kept pictures; it stays empty where there are none. */
export async function fillKept(root) {
  let found;
  try {
    found = await get("/api/kept");
  } catch (error) {
    return complain(error);
  }
  const outdated = found.outdated > 0 && h("p", { class: "quiet" }, `${many(found.outdated, "picture")} kept before the last training cannot be compared any more; predict again with --keep-unknown.`);
  if (!found.pictures && !outdated) return root.replaceChildren();
  const sentence = found.proposals.length
    ? `${many(found.pictures, "unknown picture")} kept. These look like categories that are not known yet.`
    : `${many(found.pictures, "unknown picture")} kept. Not enough of them look alike yet.`;
  return root.replaceChildren(h("section", { class: "alike", id: "kept" }, h("h2", null, "Kept unknown pictures"),
    h("p", { class: "quiet" }, sentence), outdated, h("ul", null, found.proposals.map(proposal))));
}

function proposal(one) {
  const name = h("input", { type: "text", placeholder: "Name (may stay empty)", "aria-label": "Name of the new category", autocomplete: "off", spellcheck: "false" });
  const accept = () => send("/api/kept/accept", { digests: one.digests, name: name.value.trim().normalize("NFC") || null });
  name.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") accept();
  });
  return h("li", { class: "pair" }, h("div", { class: "mosaic even" }, one.tiles.map(picture)),
    h("p", { class: "quiet" }, `${many(one.digests.length, "picture")}, most like ${one.nearest}`),
    h("div", { class: "row end" }, name, button("Dismiss", () => send("/api/kept/dismiss", { digests: one.digests })),
      button("Make a category", accept, { class: "strong" })));
}

function picture(tile) {
  const text = baseName(tile.file);
  return tile.kept
    ? h("img", { src: `/thumbnails/kept/${tile.digest}`, alt: text, title: text, loading: "lazy", decoding: "async", draggable: "false" })
    : h("span", { class: "blank" }, text);
}
