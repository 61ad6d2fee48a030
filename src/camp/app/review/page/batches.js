/* What each batch taught: the newest first. */

import { colour, h, many, moment, number, percent, svg } from "./dom.js";
import { complain, get, store } from "./store.js";

const KINDS = { known: "new, with labels", returned: "seen before", discovered: "discovered" };
const DRIFTS = 12;

export function show(root) {
  let seen = null;
  async function fill() {
    if (seen === store.data.events) return;
    seen = store.data.events;
    try {
      const { batches } = await get("/api/batches");
      root.replaceChildren(h("h1", null, "Batches"), h("p", { class: "quiet" }, "What camp learn made of each batch of pictures, the newest first."),
        ...batches.map((report, index) => batch(report, index + 1)).reverse());
    } catch (error) {
      complain(error);
    }
  }
  fill();
  return { keys: {}, update: fill, close() {} };
}

function batch(report, place) {
  const categories = report.categories ?? [];
  return h("section", { class: "batch" },
    h("h2", null, `Batch ${report.step ?? place}`, report.folder && h("span", { class: "soft" }, ` ${report.folder}`), h("small", { class: "quiet" }, moment(report.time))),
    h("p", null, sentence(report)),
    (report.remarks ?? []).map((remark) => h("p", { class: "note" }, remark)),
    h("div", { class: "panels" },
      ...Object.entries(KINDS).map(([kind, words]) => kinds(words, categories.filter((one) => one.kind === kind))),
      linked(report.linked ?? []), drift(report.drift ?? []), curve(report)),
    effort(report));
}

function sentence(report) {
  const parts = [many(report.pictures ?? 0, "picture")];
  if (report.labelled !== undefined) parts.push(`${number(report.labelled)} labelled`);
  if (report.doubtful !== undefined) parts.push(`${number(report.doubtful)} doubtful`);
  if (typeof report.confidence === "number") parts.push(`${percent(report.confidence)} sure on average`);
  if (report.repeated) parts.push(`${number(report.repeated)} there more than once`);
  if (report.unreadable) parts.push(`${number(Array.isArray(report.unreadable) ? report.unreadable.length : report.unreadable)} could not be read`);
  const kinds = typeof report.n_new === "number" ? ` ${many(report.n_new, "new kind")}${report.new_given ? ", as you asked for." : ", as estimated."}` : "";
  return `${parts.join(", ")}.${kinds}`;
}

const panel = (title, ...content) => h("div", { class: "panel" }, h("h3", null, title), ...content);

/** What a category is called now, whatever it was called then. */
const present = (id, then) => store.byId.get(id)?.title ?? then ?? `category ${id}`;
const link = (id, then) => (store.byId.has(id) ? h("a", { href: `#/category/${id}`, class: "cut grow" }, present(id, then)) : h("span", { class: "cut grow soft" }, present(id, then)));

function kinds(words, found) {
  if (!found.length) return null;
  const sorted = [...found].sort((a, b) => (b.pictures ?? 0) - (a.pictures ?? 0));
  return panel(`${number(found.length)} ${words}`, h("ul", { class: "plain tall" }, sorted.map((one) =>
    h("li", { class: "row" }, h("span", { class: `dot ${colour(one.id)}` }), link(one.id, one.name), h("span", { class: "quiet" }, number(one.pictures ?? 0))))));
}

function linked(found) {
  if (!found.length) return null;
  return panel("Got their names from labels", h("ul", { class: "plain" }, found.map((one) =>
    h("li", { class: "row" }, link(one.id, one.name), h("span", { class: "quiet" }, typeof one.agree === "number" ? (one.agree <= 1 ? `${percent(one.agree)} agree` : `${number(one.agree)} agree`) : "")))));
}

function drift(found) {
  const sorted = found.filter((one) => Number.isFinite(one.moved)).sort((a, b) => b.moved - a.moved);
  if (!sorted.length) return null;
  if (!sorted[0].moved) return panel("How far old kinds moved", h("p", { class: "quiet" }, "Not at all: this batch was learned without training."));
  const most = Math.max(1, sorted[0].moved);
  const rest = sorted.length - DRIFTS;
  return panel("How far old kinds moved", h("p", { class: "quiet" }, "As training moved the features; 1 is the average distance of the pictures of a kind from its centre."),
    h("ul", { class: "plain bars" }, sorted.slice(0, DRIFTS).map((one) => h("li", null, h("div", { class: "row" }, link(one.id, one.name), h("span", { class: "quiet" }, one.moved.toFixed(2))),
      h("div", { class: "meter" }, h("i", { class: one.moved > 1 ? "far" : "near", style: `width:${(100 * one.moved) / most}%` }))))),
    rest > 0 && h("p", { class: "quiet" }, `and ${many(rest, "other")} that moved less`));
}

/** Accuracy of the estimate against the number of new kinds. */
function curve(report) {
  const points = (report.curve ?? []).filter(([k, accuracy]) => Number.isFinite(k) && Number.isFinite(accuracy)).sort((a, b) => a[0] - b[0]);
  if (points.length < 2) return null;
  const [width, height, left, bottom] = [300, 120, 34, 22];
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const [low, high] = [Math.min(...points.map((p) => p[1])), Math.max(...points.map((p) => p[1]))];
  const x = (k) => left + ((k - first) / (last - first || 1)) * (width - left - 10);
  const y = (value) => 10 + (1 - (value - low) / (high - low || 1)) * (height - bottom - 16);
  const used = points.find(([k]) => k === report.n_new);
  const label = `Agreement with the labels for ${first} to ${last} new kinds${used ? `; ${used[0]} were taken` : ""}`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    [low, high].map((value) => svg("g", null, svg("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value)))),
    [first, last].map((k) => svg("text", { x: x(k), y: height - 4, "text-anchor": "middle" }, String(k))),
    svg("polyline", { class: "line", points: points.map(([k, value]) => `${x(k)},${y(value)}`).join(" ") }),
    used && svg("circle", { class: "used", cx: x(used[0]), cy: y(used[1]), r: 4.5 }),
    used && svg("text", { class: "mark", x: x(used[0]), y: height - 4, "text-anchor": "middle" }, used[0] === first || used[0] === last ? "" : String(used[0])));
  return panel("How many new kinds", h("p", { class: "quiet" }, "How well the labels agree, for each number tried."), drawing);
}

function effort(report) {
  const seconds = report.seconds?.total;
  const facts = [Number.isFinite(seconds) && (seconds < 90 ? `${seconds.toFixed(0)} s` : `${(seconds / 60).toFixed(1)} min`), report.epochs && many(report.epochs, "epoch"), report.views && many(report.views, "view")].filter(Boolean);
  return facts.length ? h("p", { class: "quiet" }, `Learned in ${facts.join(", ")}.`) : null;
}
