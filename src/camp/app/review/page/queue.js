/* The queue: one question at a time, the most useful one first. */

import { choose } from "./chooser.js";
import { baseName, button, colour, h, many, percent, thumbnail } from "./dom.js";
import { complain, decide, get, send, store } from "./store.js";

const ON_TILE = 4; // of the categories that are offered for a picture, those on the picture itself
const WORTH = 0.4; // questions with fewer expected corrections per decision are hardly worth a person's time

export function show(root) {
  let queue = null;
  let skip = 0;
  let seen = -1;
  let turn = 0;
  let keys = {}; // of the question that is shown
  let picked = new Map(); // row -> category it goes to, or null for "left out"
  let last = null; // row of the picture that was picked last, from where a click with shift reaches
  let dropped = new Set(); // categories that are not the same kind
  const head = h("div", { class: "progress" });
  const body = h("section", { class: "question", "aria-live": "polite" });
  root.replaceChildren(head, body);

  async function load() {
    const mine = ++turn;
    seen = store.data.events;
    body.setAttribute("aria-busy", "true");
    let answer;
    try {
      answer = await get(`/api/queue?skip=${skip}`);
    } catch (error) {
      complain(error);
      return;
    }
    if (mine !== turn) return;
    queue = answer;
    body.dataset.skipped = String(skip);
    picked = new Map();
    last = null;
    dropped = new Set();
    body.removeAttribute("aria-busy");
    draw();
  }

  function draw() {
    const { settled, decisions, left, question } = queue;
    head.replaceChildren(
      h("p", { class: "quiet" }, h("b", null, `${decisions} of about ${decisions + left} decisions`), `, ${percent(settled)} of the pictures settled`),
      h("div", { class: "meter named", role: "img", "aria-label": `${percent(settled)} of the pictures settled` }, h("i", { style: `width:${100 * settled}%` })));
    keys = {};
    if (!question) {
      body.replaceChildren(h("h1", null, skip ? "No other question" : "Nothing to ask"),
        h("p", { class: "lead" }, skip ? "You have skipped the rest." : "Every picture has a name that you or its label gave."),
        skip > 0 && button("Back to the skipped questions", again, { class: "strong" }));
      return;
    }
    const view = VIEWS[question.kind](question);
    keys = view.keys;
    const rare = question.gain / question.cost < WORTH && h("p", { class: "note" }, "What is left is probably right. You may stop here; the next camp learn uses your decisions.");
    body.replaceChildren(...[rare, h("h1", null, ...view.title), h("p", { class: "lead" }, view.text), view.content,
      h("div", { class: "row answers" }, ...view.answers, button("Skip", later, { class: "push", title: "Ask something else (s)" }))].filter(Boolean));
    body.querySelector("[data-first]")?.focus({ preventScroll: true });
  }

  const name = (id) => store.byId.get(id)?.title ?? `category ${id}`;
  const label = (id) => h("span", { class: "row" }, h("span", { class: `dot ${colour(id)}` }), h("span", { class: "cut" }, name(id)));

  /** A picture that can be picked out; `caption` says where it goes then, `offers` are places to pick at once. */
  function tile(picture, { caption = null, click, first = false, offers = [] }) {
    const chosen = picked.has(picture.row);
    const offer = (id, place) => h("span", { class: "offer cut", onclick: (event) => { event.stopPropagation(); pick(picture.row, id); } }, h("kbd", null, String(place + 1)), " ", name(id));
    const box = h("button", { type: "button", class: "tile big", "aria-pressed": String(chosen), "data-row": picture.row, "data-first": first,
      "aria-label": `${baseName(picture.file)}${chosen ? `, picked out${caption ? `: ${caption}` : ""}` : ""}`,
      onclick: (event) => { if (event.shiftKey && last !== null) reach(picture.row); else { click(picture); last = picture.row; redraw(picture.row); } }, onpointerenter: () => box.focus({ preventScroll: true }) },
      thumbnail(picture, store.data.version), h("span", { class: "tick", "aria-hidden": "true" }, "✕"), chosen && caption && h("span", { class: "goes" }, caption),
      offers.length > 0 && h("span", { class: "offers" }, offers.map(offer)));
    return box;
  }

  /** Say where a picture goes. */
  function pick(row, into) {
    picked.set(row, into);
    last = row;
    redraw(row);
  }

  /** Do to all pictures up to this one what was done to the one that was picked last. */
  function reach(row) {
    const all = queue.question.pictures;
    const [from, to] = [last, row].map((one) => all.findIndex((picture) => picture.row === one)).sort((a, b) => a - b);
    const into = picked.get(last);
    for (const picture of all.slice(from, to + 1)) {
      if (into === undefined || into === picture.proposed) picked.delete(picture.row);
      else picked.set(picture.row, into);
    }
    redraw(row);
  }

  function redraw(row) {
    draw();
    body.querySelector(`[data-row="${row}"]`)?.focus();
  }

  const grid = (pictures, make) => h("div", { class: "tiles asked", role: "group", "aria-label": "Pictures" }, pictures.map(make));

  const VIEWS = {
    name(question) {
      const input = h("input", { type: "text", placeholder: "Type a name", "aria-label": "Name of most of these pictures", maxlength: 100, autocomplete: "off", spellcheck: "false", list: "names",
        onkeydown: (event) => {
          if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); event.stopPropagation(); call(input.value); }
          if (event.key === "Escape") { event.stopPropagation(); input.blur(); }
        } });
      const names = h("datalist", { id: "names" }, store.data.categories.filter((one) => one.name).map((one) => h("option", { value: one.name })));
      const call = async (text) => {
        const wanted = text.trim().normalize("NFC");
        if (wanted) await send("/api/name-group", { rows: rows(question), name: wanted, category: question.category, main: question.main });
      };
      const offers = question.others.filter((id) => store.byId.get(id)?.name).map((id, place) =>
        button([h("kbd", null, String(place + 1)), " ", name(id)], () => call(name(id)), { class: "cut" }));
      return {
        title: ["What are most of these?"],
        text: `${many(question.pictures.length, "picture")} that look alike. Say what most of them are; a few odd ones do no harm now.`,
        content: grid(question.pictures, (picture) => h("span", { class: "tile big" }, thumbnail(picture, store.data.version))),
        answers: [input, button("Name them", () => call(input.value), { class: "strong" }), ...offers, names,
          button("Discard", () => decide({ kind: "discarded", rows: rows(question) }), { title: "They show nothing useful" })],
        keys: { Enter: () => input.focus(), n: () => input.focus(), ...Object.fromEntries(question.others.map((id, place) => [String(place + 1), () => call(name(id))])) },
      };
    },

    same(question) {
      const others = question.others.filter((id) => store.byId.has(id));
      const side = (id, first) => {
        const one = store.byId.get(id);
        return h(first || others.length === 1 ? "div" : "button", { class: dropped.has(id) ? "kind out" : "kind", ...(first || others.length === 1 ? {} : { type: "button", "aria-pressed": String(!dropped.has(id)), onclick: () => { flip(id); } }) },
          h("span", { class: "mosaic even" }, (one?.typical ?? []).slice(0, 4).map((one) => thumbnail(one, store.data.version))), label(id), h("span", { class: "quiet" }, many(one?.pictures ?? 0, "picture")));
      };
      const flip = (id) => { if (!dropped.delete(id)) dropped.add(id); draw(); };
      const yes = () => {
        const same = others.filter((id) => !dropped.has(id));
        if (others.length === 1) return decide({ kind: "merged", category: others[0], into: question.category });
        return decide({ kind: "merged-several", into: question.category, categories: same, different: [...dropped] });
      };
      const no = () => (others.length === 1 ? decide({ kind: "apart", category: question.category, other: others[0] })
        : decide({ kind: "merged-several", into: question.category, categories: [], different: others }));
      return {
        title: ["The same kind?"],
        text: others.length === 1 ? "Yes makes one category of the two." : "Click those that are another kind. Yes makes one category of the rest.",
        content: h("div", { class: "kinds" }, side(question.category, true), ...others.map((id) => side(id, false))),
        answers: [button([h("kbd", null, "y"), " Yes, the same"], yes, { class: "strong", "data-first": true }), button([h("kbd", null, "n"), " No, different"], no)],
        keys: { y: yes, Enter: yes, n: no },
      };
    },

    check(question) {
      // Each click offers the next likely category, then "something else", then the picture is back.
      const click = (picture) => {
        const order = [undefined, ...picture.choices.slice(0, ON_TILE), ...(picture.choices.length ? [-1] : [])];
        const next = order[(order.indexOf(picked.get(picture.row)) + 1) % order.length];
        if (next === undefined) picked.delete(picture.row);
        else picked.set(picture.row, next);
      };
      const sections = [...new Set(question.pictures.map((picture) => picture.proposed))];
      const of = (id) => question.pictures.filter((picture) => picture.proposed === id);
      const part = (category) => {
        const [moved, others] = [new Map(), new Map()];
        for (const picture of of(category)) {
          const into = picked.get(picture.row);
          if (into === undefined) continue;
          const [places, id] = into === -1 ? [others, picture.choices[0]] : [moved, into];
          places.set(id, [...(places.get(id) ?? []), picture.row]);
        }
        const list = (places) => [...places].map(([into, rows]) => ({ into, rows }));
        return { category, rows: of(category).map((one) => one.row).filter((row) => !picked.has(row)), moved: list(moved), others: list(others) };
      };
      const yes = () => decide({ kind: "checked", parts: sections.map(part) });
      const here = () => question.pictures.find((one) => one.row === Number(document.activeElement?.dataset?.row ?? NaN));
      const move = async () => {
        const picture = here();
        if (!picture) return false;
        const answer = await choose(`What is ${baseName(picture.file)}?`, { near: picture.choices, without: picture.proposed, offerNew: true });
        const alike = rows(question).filter((row) => row === picture.row || picked.get(row) === -1);
        if (answer?.id !== undefined) pick(picture.row, answer.id);
        else if (answer) await send("/api/make", { rows: alike, name: answer.name ?? null });
        return true;
      };
      const take = (place) => {
        const picture = here();
        const into = place < 0 ? -1 : picture?.choices[place];
        if (!picture?.choices.length || into === undefined) return false;
        pick(picture.row, into);
        return true;
      };
      const digits = Object.fromEntries(Array.from({ length: 10 }, (_, digit) => [String(digit), () => take(digit - 1)]));
      const offered = h("span", { class: "keysof quiet" });
      const say = () => {
        const picture = here();
        const keys = [...(picture?.choices ?? []).map((id, place) => [place + 1, name(id)]), [0, "something else"], ["m", "search"]];
        offered.replaceChildren(...keys.map(([key, words]) => h("span", null, h("kbd", null, String(key)), " ", words)));
      };
      const caption = (picture) => { const into = picked.get(picture.row); return into === -1 ? "something else" : into === undefined ? null : `→ ${name(into)}`; };
      return {
        title: sections.length > 1 ? ["Is each of these in its place?"] : ["Are these all ", h("em", null, name(question.category)), "?"],
        text: "Point at a picture that is not, and press the number of what it is; a click takes the likeliest. A click with shift does the same to all pictures in between. Those that were put elsewhere come here with yes.",
        content: h("div", { class: "along", onfocusin: say }, sections.map((id) => h("section", { style: sections.length > 1 && `width:min(100%, ${160 * of(id).length - 10}px)` },
          sections.length > 1 && h("h2", { class: "row" }, label(id)),
          grid(of(id), (picture) => tile(picture, { caption: caption(picture), click, first: picture === question.pictures[0], offers: picture.choices.slice(0, ON_TILE) }))))),
        answers: [button([h("kbd", null, "y"), picked.size ? ` ${many(question.pictures.length - picked.size, "picture")} of ${question.pictures.length} ${question.pictures.length - picked.size === 1 ? "is" : "are"}` : " Yes, all"], yes, { class: "strong" }),
          offered],
        keys: { y: yes, Enter: yes, m: move, ...digits, ...walk },
      };
    },
  };

  const rows = (question) => question.pictures.map((picture) => picture.row);
  function step(by) {
    const boxes = [...body.querySelectorAll("button.tile")];
    const here = boxes.indexOf(document.activeElement);
    boxes[here < 0 ? 0 : Math.min(Math.max(here + by, 0), boxes.length - 1)]?.focus();
  }
  const columns = () => Math.max(1, getComputedStyle(body.querySelector(".tiles") ?? body).gridTemplateColumns.split(" ").length);
  const flip = () => { const box = document.activeElement?.closest?.("button.tile"); if (!box) return false; box.click(); return true; };
  const walk = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => step(columns()), ArrowUp: () => step(-columns()), j: () => step(1), k: () => step(-1), " ": flip, x: flip,
  };
  const later = () => { skip += 1; load(); };
  const again = () => { skip = 0; load(); };
  const update = (what) => {
    if (what === "selection" || seen === store.data.events) return;
    skip = 0;
    load();
  };
  load();
  return {
    get keys() {
      return { s: later, ...(body.hasAttribute("aria-busy") ? {} : keys) };
    },
    update,
    close() { turn += 1; },
  };
}
