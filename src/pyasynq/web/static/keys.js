// Keys of one letter. They can be switched off in the settings (WCAG 2.1.4), and do nothing while one types.
import { showChanges, toggleFreeze } from "./live.js";
import { currentRow, move, selectAll, toggleCurrent } from "./table.js";

const PLACES = /** @type {Record<string, string>} */ ({ o: "", q: "queues", t: "tasks", e: "errors", w: "servers", s: "schedules", v: "events", y: "task-types", a: "audit" });
const AFTER_G = 1_500;

let goesSince = 0;

/** Begins to listen to keys. */
export function startKeys() {
  if (!document.body.dataset.keys) return;
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(target) || document.querySelector("dialog[open]")) return;
    if (handle(event)) event.preventDefault();
  });
}

/** @param {HTMLElement} target */
function isTyping(target) {
  return target.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
}

/**
 * @param {KeyboardEvent} event
 * @returns {boolean} whether the key did something
 */
function handle(event) {
  const { key } = event;
  if (goesSince && event.timeStamp - goesSince < AFTER_G && key in PLACES) {
    location.href = `${document.body.dataset.root ?? "./"}${PLACES[key]}`;
    return true;
  }
  goesSince = 0;
  switch (key) {
    case "g": goesSince = event.timeStamp; return true;
    case "j": move(1); return true;
    case "k": move(-1); return true;
    case "x": toggleCurrent(); return true;
    case "*": selectAll(true); return true;
    case ".": showChanges(); return true;
    case "z": toggleFreeze(); return true;
    case "?": location.href = `${document.body.dataset.root ?? "./"}help`; return true;
    case "/": {
      const box = /** @type {HTMLInputElement | null} */ (document.querySelector("main [data-key=filter]") ?? document.getElementById("q"));
      box?.focus();
      box?.select();
      return Boolean(box);
    }
    case "Enter": {
      const link = currentRow()?.querySelector("th a");
      if (!link || document.activeElement === link) return false;
      /** @type {HTMLElement} */ (link).click();
      return true;
    }
    default: return pressButton(key);
  }
}

/** @param {string} key */
function pressButton(key) {
  if (!/^[a-z#]$/.test(key)) return false;
  const button = /** @type {HTMLElement | null} */ (document.querySelector(`main [data-key="${CSS.escape(key)}"]`));
  if (!button || button.closest("[hidden]") || button.matches("input, [disabled]")) return false;
  button.click();
  return true;
}
