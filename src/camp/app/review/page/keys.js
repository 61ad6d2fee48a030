/* Keys: what each does, who gets it, and the list of them. */

import { dialog, h } from "./dom.js";

const LIST = [
  ["Everywhere", [["g q", "queue"], ["g o", "categories"], ["g m", "map"], ["g b", "batches"], ["u  Ctrl Z", "undo"], ["h", "decisions so far"], ["Esc", "close, or choose nothing"], ["?", "these keys"]]],
  ["Queue", [["y  Enter", "yes"], ["n", "no, or type a name"], ["arrows  Space", "go to a picture, pick it out"], ["m", "another category for this picture"], ["1 … 9", "a name that is offered, for the group or the picture"], ["0", "something else"], ["Shift click", "the same for all pictures in between"], ["s", "skip"]]],
  ["Categories", [["j k  arrows", "next, previous"], ["Enter", "open"], ["n", "name"], ["m", "merge into another"], ["s", "split in two"], ["d", "discard"], ["/", "filter"]]],
  ["Pictures", [["j k  arrows", "next, previous"], ["x  Space", "choose"], ["Shift arrows", "choose several"], ["a", "choose all shown"], ["m", "move the chosen ones"], ["d", "discard the chosen ones"], ["Backspace", "back to the categories"]]],
  ["Map", [["l", "lasso, or drag with Shift"], ["arrows  + −  0", "move, zoom, show all"], ["[ ]", "step through categories"], ["x", "choose a category's pictures"], ["Enter", "open it"]]],
];
const WAIT = 1500;

/** A key with its modifiers as views write it: "j", "Shift+ArrowLeft", "Ctrl+z". */
function named(event) {
  if (event.ctrlKey || event.metaKey) return event.altKey ? null : `Ctrl+${event.key.toLowerCase()}`;
  if (event.altKey) return null;
  return event.shiftKey && event.key.length > 1 ? `Shift+${event.key}` : event.key;
}

/** Send keys to `table()`, unless someone is typing or a dialog is open. A handler that returns false did not want it. */
export function listen(table) {
  let goes = 0;
  document.addEventListener("keydown", (event) => {
    const key = named(event);
    if (key === null || event.isComposing || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const after = Date.now() - goes < WAIT;
    goes = key === "g" && !after ? Date.now() : 0;
    const action = table()[after ? `g ${key}` : key];
    if (!action) return;
    // A button or link in focus keeps its own keys.
    if ((key === "Enter" || key === " ") && event.target.closest("button:not(.tile), a[href], summary")) return;
    if (action(event) !== false) event.preventDefault();
  });
}

export function help() {
  const column = ([title, keys]) => h("section", null, h("h3", null, title), h("dl", null, keys.map(([key, words]) =>
    [h("dt", null, key.split(/\s+/).map((one) => h("kbd", null, one))), h("dd", null, words)]).flat()));
  const box = dialog("Keys", { class: "wide keys" }, h("h2", null, "Keys"), h("div", { class: "columns" }, LIST.map(column)),
    h("div", { class: "row end" }, h("button", { type: "button", autofocus: true, onclick: () => box.close() }, "Close")));
}
