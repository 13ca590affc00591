// Live updates: events of the server change cells and rows. Rows never move under the pointer or the focus.
import { icon, notice, rowFrom } from "./html.js";
import { update as updateTimes } from "./times.js";

const HIDDEN_PAUSE = 5_000, POLL = 10_000, FIRST_WAIT = 1_000, LONGEST_WAIT = 30_000;

/** Texts that are dimmed, because they mean zero or unknown. */
const QUIET = new Set(["0", "0 %", "–"]);

/** @typedef {{table: string, order: string[], put: Record<string, string>}} RowChange */

/** Row changes that are applied when the reader asks for them, by table. @type {Map<string, RowChange>} */
const waiting = new Map();

/** @type {EventSource | null} */
let source = null;
let failures = 0;
/** @type {number | undefined} */
let timer;

/** Begins live updates if the page has them. */
export function startLive() {
  if (!address()) return;
  connect();
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(disconnect, HIDDEN_PAUSE);
    else if (!source) connect();
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => { if (event.persisted && !source) connect(); });
}

/** Applies the pending row changes. */
export function showChanges() {
  for (const change of waiting.values()) applyRows(change);
  waiting.clear();
  showPill();
}

/** Stops live updates, or resumes them. */
export function toggleFreeze() {
  const body = document.body;
  if (body.dataset.frozen) { delete body.dataset.frozen; connect(); }
  else { body.dataset.frozen = "yes"; disconnect(); showState("paused", "Frozen", ""); }
}

/** @returns {string} */
function address() { return document.body.dataset.live ?? ""; }

function connect() {
  disconnect();
  if (document.body.dataset.frozen) return;
  source = new EventSource(address());
  source.addEventListener("open", () => { failures = 0; });
  for (const [name, handler] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => handler(JSON.parse(/** @type {MessageEvent} */ (event).data)));
  }
  source.addEventListener("error", () => {
    failures += 1;
    disconnect();
    if (failures > 2) { poll(); return; }
    showState("warning", "Reconnecting", "warn");
    timer = setTimeout(connect, Math.min(FIRST_WAIT * 2 ** failures, LONGEST_WAIT) * (0.5 + Math.random()));
  });
}

function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

/** Polls the whole page every 10 s, where event streams are blocked. */
async function poll() {
  clearTimeout(timer);
  if (!document.hidden && !document.body.dataset.frozen) {
    try {
      const response = await fetch(address().replace(/(^|\/)live\?/, "$1live.json?"), { headers: { accept: "application/json" } });
      if (response.status === 401) { location.reload(); return; }
      const { events } = await response.json();
      for (const { event, data } of events) handlers[event]?.(data);
      showState("live", "Every 10 s", "good");
    } catch {
      showState("warning", "No answer", "warn");
    }
  }
  timer = setTimeout(poll, POLL * (0.9 + Math.random() * 0.2));
}

/** Handlers by event name. @type {Record<string, (data: any) => void>} */
const handlers = {
  fresh() {
    document.querySelector("#notices [data-stale]")?.remove();
    for (const table of document.querySelectorAll("table.stale")) table.classList.remove("stale");
    for (const button of document.querySelectorAll("[data-off]")) { button.removeAttribute("disabled"); button.removeAttribute("data-off"); }
    showState("live", "Live", "good");
  },
  cells(/** @type {Record<string, string>} */ cells) {
    for (const element of document.querySelectorAll("[data-k]")) {
      const text = cells[/** @type {HTMLElement} */ (element).dataset.k ?? ""];
      if (text === undefined || element.textContent === text) continue;
      // The page's buttons depend on this text, and are not part of updates: reload.
      if (element.hasAttribute("data-reload")) {
        const dialog = document.querySelector("dialog[open]");
        if (!dialog) { location.reload(); return; }
        // Text that is typed in the dialog must not be lost.
        dialog.addEventListener("close", () => { location.reload(); }, { once: true });
        continue;
      }
      element.textContent = text;
      element.classList.toggle("zero", QUIET.has(text));
    }
    showState("live", "Live", "good");
  },
  rows(/** @type {RowChange} */ change) {
    const body = bodyOf(change.table);
    if (!body) return;
    const earlier = waiting.get(change.table);
    const whole = earlier ? { ...change, put: { ...earlier.put, ...change.put } } : change;
    if (isBusy(body)) waiting.set(change.table, whole);
    else { waiting.delete(change.table); applyRows(whole); }
    showPill();
  },
  title(/** @type {{text: string}} */ { text }) {
    document.title = [text, ...document.title.split(" – ").slice(1)].join(" – ");
  },
  stale(/** @type {{text: string}} */ { text }) {
    notice(text, "bad").dataset.stale = "yes";
    for (const table of document.querySelectorAll("main table")) table.classList.add("stale");
    for (const button of document.querySelectorAll("main :is(form[method=post] button, button[formaction]):not([disabled])")) { button.setAttribute("disabled", ""); button.setAttribute("data-off", ""); }
    const time = document.querySelector(".foot time")?.textContent ?? "";
    showState("warning", `As of ${time}`, "warn");
  },
  bye() { location.reload(); },
};

/**
 * Returns the body of a table, or a list whose entries are its rows.
 * @param {string} table
 * @returns {HTMLElement | null}
 */
function bodyOf(table) { return document.querySelector(`[data-table="${CSS.escape(table)}"]`); }

/**
 * @param {HTMLElement} body
 * @returns {HTMLElement[]}
 */
function rowsOf(body) { return [...body.children].map((row) => /** @type {HTMLElement} */ (row)); }

/**
 * Whether the pointer or the focus is in the table, or a row is selected or current.
 * @param {HTMLElement} body
 */
function isBusy(body) {
  return body.matches(":hover") || body.contains(document.activeElement) || Boolean(body.querySelector("input:checked, tr.at"));
}

/** @param {RowChange} change */
function applyRows({ table, order, put }) {
  const body = bodyOf(table);
  if (!body) return;
  /** @type {Map<string, HTMLElement>} */
  const rows = new Map();
  for (const row of rowsOf(body)) rows.set(row.dataset.row ?? "", row);
  if (order.some((key) => !rows.has(key) && !(key in put))) { location.reload(); return; }
  for (const [key, html] of Object.entries(put)) {
    const row = rowFrom(html);
    const old = rows.get(key);
    if (!row) continue;
    if (old) old.replaceWith(row);
    rows.set(key, row);
  }
  const wanted = order.flatMap((key) => rows.get(key) ?? []);
  for (const row of rowsOf(body)) if (!wanted.includes(row)) row.remove();
  wanted.forEach((row, at) => { if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null); });
  updateTimes();
}

/** Shows the number of pending rows in a pill over the table's head, so that nothing moves. */
function showPill() {
  let count = 0;
  for (const { table, order, put } of waiting.values()) {
    const known = new Set([...(bodyOf(table)?.children ?? [])].map((row) => /** @type {HTMLElement} */ (row).dataset.row));
    count += Math.max(Object.keys(put).length, order.filter((key) => !known.has(key)).length, 1);
  }
  let pill = document.getElementById("pill");
  if (!count) { pill?.remove(); return; }
  if (!pill) {
    pill = document.createElement("button");
    pill.id = "pill";
    pill.className = "pill";
    pill.setAttribute("type", "button");
    pill.addEventListener("click", showChanges);
    const body = document.querySelector("[data-table]");
    (body?.closest("table") ?? body)?.before(pill);
  }
  pill.textContent = `${count.toLocaleString("en")} ${count === 1 ? "change" : "changes"} – show`;
}

/**
 * @param {string} symbol
 * @param {string} text
 * @param {string} tone
 */
function showState(symbol, text, tone) {
  const state = document.getElementById("live-state");
  if (!state || state.textContent === text) return;
  state.hidden = false;
  state.className = `st ${tone}`.trim();
  const words = document.createElement("span");
  words.textContent = text;
  state.replaceChildren(icon(symbol), words);
}
