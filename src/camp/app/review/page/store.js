/* What the page knows, and how it asks. Every answer carries the number of events; a greater one means that something
happened elsewhere, and everything is asked again. */

import { toast } from "./dom.js";

export const store = { data: null, byId: new Map(), selection: new Set() };

const watchers = new Set();
/** Call `watcher` after every change; returns how to stop. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}
const tell = (what) => watchers.forEach((watcher) => watcher(what));

async function answered(response) {
  if (response.ok) return response;
  let error = response.status === 403 ? "Access was refused; open the address that camp review printed." : "";
  try {
    error = (await response.json()).error ?? error;
  } catch { /* not ours: the status says it */ }
  throw new Error(error || `The server answered ${response.status}.`);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer; is camp review still running?");
  }
  return answered(response);
}

/** An answer as JSON. */
export async function get(path) {
  const answer = await (await ask(path)).json();
  notice(answer.events);
  return answer;
}

/** An answer as bytes. */
export async function getBytes(path) {
  const response = await ask(path);
  notice(Number(response.headers.get("X-Events")));
  return response.arrayBuffer();
}

/** Say what went wrong. */
export const complain = (error) => toast(error.message, { bad: true });

let refreshing = null;
let deciding = false;
/** Ask everything again; views that watch draw themselves anew. */
export function refresh() {
  refreshing ??= load().finally(() => { refreshing = null; });
  return refreshing;
}

async function load() {
  const data = await (await ask("/api/overview")).json();
  const before = store.data;
  store.data = data;
  store.byId = new Map(data.categories.map((category) => [category.id, category]));
  if (before && before.version !== data.version) {
    select([]);
    if (before.step !== data.step) toast("A new batch was learned; the page shows it now.");
  }
  tell("data");
}

function notice(events) {
  if (!store.data || deciding || refreshing || !(events > store.data.events)) return;
  refresh().then(() => toast("The workspace changed; the page shows it now."), complain);
}

/** Send a request that changes something, then ask everything again. Returns the outcome, or null if it was refused. */
export async function send(path, body = {}) {
  if (deciding) return null;
  deciding = true;
  document.documentElement.classList.add("deciding");
  let outcome = null;
  try {
    const options = {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, events: store.data.events }),
    };
    outcome = await (await ask(path, options)).json();
    toast(outcome.said, path === "/api/undo" ? {} : { action: ["Undo", undo] });
  } catch (error) {
    complain(error);
  }
  try {
    await refresh(); // also after a refusal: what was decided about may have changed
  } catch (error) {
    complain(error);
  }
  deciding = false;
  document.documentElement.classList.remove("deciding");
  return outcome;
}

/** Take back the last decision. */
export const undo = () => send("/api/undo");

/** Send a decision, which is an event of the log. */
export const decide = (decision) => send("/api/decide", { decision });

/** Choose exactly these pictures. */
export function select(rows) {
  store.selection = new Set(rows);
  tell("selection");
}

/** Choose one more picture, or one less. */
export function toggle(row, on = !store.selection.has(row)) {
  if (on) store.selection.add(row);
  else store.selection.delete(row);
  tell("selection");
}

/** Look now and then whether something happened elsewhere. */
export function keepLooking() {
  const look = () => document.visibilityState === "visible" && get("/api/events").catch(() => {});
  document.addEventListener("visibilitychange", look);
  window.addEventListener("focus", look);
  setInterval(look, 20_000);
}
