// Live updates: events of the server change cells and rows. Rows never move under the pointer or the focus.
import { icon, notice, rowFrom } from "./html.js";
import { update as updateTimes } from "./times.js";

const HIDDEN_PAUSE = 5_000, POLL = 10_000, FIRST_WAIT = 1_000, LONGEST_WAIT = 30_000;

/** Milliseconds without an event after which a stream is given up; the server sends one every 15 s. */
const LONGEST_SILENCE = 40_000;

/** Where streams are blocked, one of this many polls is followed by an attempt to open a stream. */
const POLLS_PER_STREAM = 6;

/** Texts that are dimmed, because they mean zero or unknown. */
const QUIET = new Set(["0", "0 %", "–"]);

/** @typedef {{table: string, order: string[], put: Record<string, string>}} RowChange */

/** Row changes that are applied when the reader asks for them, by table. @type {Map<string, RowChange>} */
const waiting = new Map();

/** Newest texts of cells, for rows that are shown later than their cells change. @type {Map<string, string>} */
const newest = new Map();

/** @type {EventSource | null} */
let source = null;
let failures = 0, polls = 0, heard = 0;
/** Whether the last poll had no answer. */
let isAway = false;
/** @type {number | undefined} */
let timer;

/** Begins live updates if the page has them. */
export function startLive() {
  if (!address()) return;
  connect();
  const button = freezeButton();
  if (button) {
    button.hidden = false;
    button.addEventListener("click", toggleFreeze);
  }
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(disconnect, HIDDEN_PAUSE);
    else if (!source) connect();
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => { if (event.persisted && !source) connect(); });
  addEventListener("online", () => { if (!document.hidden) connect(); });
  // A computer that slept, or a network that drops packets, ends no connection.
  setInterval(() => { if (source && Date.now() - heard > LONGEST_SILENCE) reconnect(); }, HIDDEN_PAUSE);
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
  const button = freezeButton();
  if (button) button.textContent = body.dataset.frozen ? "Resume" : "Freeze";
}

/** @returns {HTMLElement | null} */
function freezeButton() { return document.querySelector("[data-freeze]"); }

/** @returns {string} */
function address() { return document.body.dataset.live ?? ""; }

function connect() {
  disconnect();
  if (document.body.dataset.frozen) return;
  source = new EventSource(address());
  heard = Date.now();
  for (const [name, handler] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => {
      heard = Date.now();
      failures = polls = 0;
      handler(JSON.parse(/** @type {MessageEvent} */ (event).data));
    });
  }
  source.addEventListener("error", reconnect);
}

/** Opens the stream again, after a pause that grows with the number of failures; polls after three. */
function reconnect() {
  failures += 1;
  disconnect();
  if (failures > 2) { poll(); return; }
  showState("warning", "Reconnecting", "warn");
  timer = setTimeout(connect, Math.min(FIRST_WAIT * 2 ** failures, LONGEST_WAIT) * (0.5 + Math.random()));
}

function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

/** Polls the whole page every 10 s, where event streams are blocked or the server is away. */
async function poll() {
  clearTimeout(timer);
  /** @type {() => void} */
  let next = poll;
  if (!document.hidden && !document.body.dataset.frozen) {
    try {
      const response = await fetch(address().replace(/(^|\/)live\?/, "$1live.json?"), { headers: { accept: "application/json" } });
      if (response.status === 401) { location.reload(); return; }
      const { events } = await response.json();
      if (source) return;
      for (const { event, data } of events) handlers[event]?.(data);
      showState("live", "Every 10 s", "good");
      if (isAway) { isAway = false; connect(); return; }
      polls += 1;
      if (polls % POLLS_PER_STREAM === 1) next = connect;
    } catch {
      if (source) return;
      isAway = true;
      showState("warning", "No answer", "warn");
    }
  }
  timer = setTimeout(next, POLL * (0.9 + Math.random() * 0.2));
}

/** Handlers by event name. @type {Record<string, (data: any) => void>} */
const handlers = {
  fresh(/** @type {{tables: string[]}} */ { tables }) {
    for (const { dataset } of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-table]"))) {
      const table = dataset.table ?? "";
      if (!tables.includes(table)) handlers.rows?.({ table, order: [], put: {} });
    }
    document.querySelector("#notices [data-stale]")?.remove();
    for (const table of document.querySelectorAll("table.stale")) table.classList.remove("stale");
    for (const button of document.querySelectorAll("[data-off]")) { button.removeAttribute("disabled"); button.removeAttribute("data-off"); }
    showState("live", "Live", "good");
  },
  alive() { /* Hearing it is enough. */ },
  cells(/** @type {Record<string, string>} */ cells) {
    for (const [key, text] of Object.entries(cells)) newest.set(key, text);
    for (const element of document.querySelectorAll("[data-k]")) {
      const text = cells[/** @type {HTMLElement} */ (element).dataset.k ?? ""];
      if (text === undefined || element.textContent === text) continue;
      // The page's buttons depend on this text, and are not part of updates.
      if (element.hasAttribute("data-reload")) reload();
      else showText(element, text);
    }
    showState("live", "Live", "good");
  },
  rows(/** @type {RowChange} */ change) {
    const body = bodyOf(change.table);
    if (!body) {
      // The page has no table for a list that was empty.
      if (change.order.length) reload();
      return;
    }
    const put = { ...waiting.get(change.table)?.put, ...change.put };
    const rows = new Map(rowsOf(body).map((row) => [row.dataset.row ?? "", row]));
    // A stream begins with all rows: those that are shown already are not changes.
    for (const [key, html] of Object.entries(put)) if (isShown(rows.get(key), html)) delete put[key];
    const whole = { ...change, put };
    const isNothing = !Object.keys(put).length && change.order.join("\n") === [...rows.keys()].join("\n");
    if (!isNothing && isBusy(body)) waiting.set(change.table, whole);
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

/** Loads the page again, once no dialog is open: text that is typed there must not be lost. */
function reload() {
  const dialog = document.querySelector("dialog[open]");
  if (dialog) dialog.addEventListener("close", () => { location.reload(); }, { once: true });
  else location.reload();
}

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

/**
 * Whether a row is shown as this HTML says, except for ages and cells, which are updated in place.
 * @param {HTMLElement | undefined} row
 * @param {string} html
 */
function isShown(row, html) {
  const made = rowFrom(html);
  return Boolean(row && made && withoutCells(row).isEqualNode(withoutCells(made)));
}

/**
 * Returns a copy of a row without selection, ages and texts of cells.
 * @param {HTMLElement} row
 * @returns {HTMLElement}
 */
function withoutCells(row) {
  const copy = /** @type {HTMLElement} */ (row.cloneNode(true));
  copy.removeAttribute("aria-selected");
  copy.classList.remove("at");
  if (!copy.classList.length) copy.removeAttribute("class");
  for (const element of copy.querySelectorAll("time, [data-k]")) element.textContent = "";
  for (const element of copy.querySelectorAll("[data-k]")) element.removeAttribute("class");
  return copy;
}

/**
 * @param {Element} element
 * @param {string} text
 */
function showText(element, text) {
  element.textContent = text;
  element.classList.toggle("zero", QUIET.has(text));
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
    for (const element of row.querySelectorAll("[data-k]")) {
      const text = newest.get(/** @type {HTMLElement} */ (element).dataset.k ?? "");
      if (text !== undefined && text !== element.textContent) showText(element, text);
    }
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
