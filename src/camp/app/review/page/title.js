/* A category's name, which turns into an input in place: Enter saves, Escape leaves it as it was. */

import { name } from "./actions.js";
import { h } from "./dom.js";

/** The name as a button. `started` is called when it becomes an input, `done` when it is a name again. */
export function title(category, { started, done, level = "h3" }) {
  const shown = category.name ?? category.title;
  const text = h("button", { type: "button", class: category.name ? "name" : "name unnamed", title: "Name it (n)", onclick: edit }, shown);
  const box = h(level, { class: "title" }, text);

  function edit() {
    started();
    const input = h("input", { type: "text", value: category.name ?? "", placeholder: "What is it?", "aria-label": `Name of ${category.title}`, maxlength: 100, autocomplete: "off", spellcheck: "false" });
    let ended = false;
    const save = async () => {
      ended = true; // a dialog that opens takes the focus: that blur is no second save
      await name(category.id, input.value);
      ended = false;
      end();
    };
    const end = () => {
      if (ended) return;
      ended = true;
      box.replaceChildren(text);
      done();
    };
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") end();
      else if (event.key === "Enter") save();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    input.addEventListener("blur", () => {
      if (ended) return;
      if (input.value.trim()) save(); // what was typed is not lost by a click elsewhere
      else end();
    });
    box.replaceChildren(input);
    input.focus();
    input.select();
  }
  box.edit = edit;
  return box;
}
