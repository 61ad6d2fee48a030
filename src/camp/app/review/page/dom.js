/* Small helpers for building the page. Text is always text: nothing is ever read as HTML. */

function build(node, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An element with attributes, listeners (`onclick`) and children. */
export const h = (tag, props, ...children) => build(document.createElement(tag), props, children);

/** The same for SVG. */
export const svg = (tag, props, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

export const button = (text, onclick, props) => h("button", { type: "button", onclick, ...props }, text);

const numbers = new Intl.NumberFormat("en");
export const number = (value) => numbers.format(value);
export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)} %`);
export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;
export const baseName = (file) => file.slice(file.lastIndexOf("/") + 1);
export const colour = (id) => `c${id % 8}`;

export function moment(time) {
  const date = new Date(time ?? NaN);
  if (Number.isNaN(date.getTime())) return "";
  return date.toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
}

/** A thumbnail, or a neutral tile with the file's name where none was kept. */
export function thumbnail(tile, version) {
  const blank = () => h("span", { class: "blank" }, baseName(tile.file));
  if (!tile.kept) return blank();
  const image = h("img", { src: `/thumbnails/${version}/${tile.row}`, alt: baseName(tile.file), loading: "lazy", decoding: "async", draggable: "false" });
  image.addEventListener("error", () => image.replaceWith(blank()), { once: true });
  return image;
}

/** A modal dialog that removes itself when it closes. `onclose` is called with its return value. */
export function dialog(label, props, ...children) {
  const { onclose, ...rest } = props ?? {};
  const box = h("dialog", { "aria-label": label, ...rest }, ...children);
  box.addEventListener("click", (event) => event.target === box && box.close());
  box.addEventListener("close", () => {
    box.remove();
    onclose?.(box.returnValue);
  });
  document.body.append(box);
  box.showModal();
  return box;
}

let hiding;
/** A sentence at the bottom of the page, for a while; `action` is a [label, function]. */
export function toast(text, { action = null, bad = false } = {}) {
  const box = document.getElementById("toast");
  clearTimeout(hiding);
  const hide = () => box.replaceChildren();
  const acted = action && button(action[0], () => { hide(); action[1](); });
  box.replaceChildren(h("div", { class: bad ? "note bad" : "note" }, h("span", null, text), acted));
  hiding = setTimeout(hide, bad ? 9000 : 6000);
}
