/* A search box over the categories: where to merge into, where to move to. */

import { colour, dialog, h, many, thumbnail } from "./dom.js";
import { store } from "./store.js";

const SHOWN = 60;

/**
 * Ask for a category. Resolves to {id}, to {name} for a new category (name may be null), or to null.
 * `near` are ids to offer first, `without` one that cannot be chosen.
 */
export function choose(label, { near = [], without = null, offerNew = false } = {}) {
  return new Promise((resolve) => {
    let chosen = null;
    let options = [];
    let at = 0;
    const input = h("input", {
      type: "text", placeholder: offerNew ? "Search, or type a new name" : "Search by name or number", autocomplete: "off", spellcheck: "false", role: "combobox",
      "aria-label": label, "aria-expanded": "true", "aria-controls": "choices", oninput: fill, onkeydown: onKey,
    });
    const list = h("ul", { id: "choices", role: "listbox", "aria-label": "Categories" });
    const box = dialog(label, { class: "chooser", onclose: () => resolve(chosen) }, h("h2", null, label), input, list);
    fill();
    input.focus();

    function fill() {
      const text = input.value.trim();
      options = found(text, near, without);
      const taken = options.some((option) => option.name === text);
      if (offerNew && !taken) options[text ? "push" : "unshift"]({ id: null, name: text || null });
      at = 0;
      list.replaceChildren(...options.map(line));
      if (!options.length) list.append(h("li", { class: "quiet" }, "No category has this name."));
      mark();
    }

    function line(option, index) {
      const text = option.id === null
        ? [h("span", { class: "plus", "aria-hidden": "true" }, "+"), h("span", { class: "grow" }, option.name ? `New category “${option.name}”` : "New category")]
        : [
            h("span", { class: "little" }, option.typical[0] ? thumbnail(option.typical[0], store.data.version) : null),
            h("span", { class: `dot ${colour(option.id)}` }),
            h("span", { class: "grow" }, option.title),
            h("span", { class: "quiet" }, many(option.pictures, "picture")),
          ];
      return h("li", { role: "option", id: `choice-${index}`, onclick: () => take(index), onpointermove: () => { at = index; mark(); } }, ...text);
    }

    function mark() {
      [...list.children].forEach((item, index) => item.role === "option" && item.setAttribute("aria-selected", index === at));
      if (options.length) input.setAttribute("aria-activedescendant", `choice-${at}`);
      else input.removeAttribute("aria-activedescendant");
    }

    function take(index) {
      if (!options[index]) return;
      chosen = options[index].id === null ? { name: options[index].name } : { id: options[index].id };
      box.close();
    }

    function onKey(event) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && options.length) {
        at = (at + step + options.length) % options.length;
        mark();
        list.children[at].scrollIntoView({ block: "nearest" });
      } else if (event.key === "Enter") {
        take(at);
      } else return;
      event.preventDefault();
    }
  });
}

/** Categories that match, the nearest first; among the rest those whose name begins with the text, then by name. */
function found(text, near, without) {
  const wanted = text.toLowerCase();
  const place = (category) => {
    const index = near.indexOf(category.id);
    return index < 0 ? near.length : index;
  };
  const begins = (category) => (category.title.toLowerCase().startsWith(wanted) ? 0 : 1);
  return store.data.categories
    .filter((category) => category.id !== without && category.title.toLowerCase().includes(wanted))
    .sort((a, b) => (wanted ? begins(a) - begins(b) : 0) || place(a) - place(b) || a.title.localeCompare(b.title, "en", { numeric: true }))
    .slice(0, SHOWN);
}
