// Selection of rows, and the current row, which the keys j and k move.

/** @type {HTMLInputElement | null} */
let last = null;

/** Begins to follow the selection. */
export function startSelection() {
  const form = bar();
  if (!form) return;
  document.addEventListener("click", (event) => {
    const box = /** @type {HTMLElement} */ (event.target);
    if (!(box instanceof HTMLInputElement) || box.form !== form || box.type !== "checkbox") return;
    if (box.hasAttribute("data-all")) selectAll(box.checked);
    else if (event.shiftKey && last) selectRange(last, box);
    if (!box.hasAttribute("data-all")) last = box;
    show();
  });
  form.addEventListener("reset", () => requestAnimationFrame(show));
  addEventListener("pageshow", show);
  show();
}

/** @returns {HTMLFormElement | null} */
function bar() { return /** @type {HTMLFormElement | null} */ (document.getElementById("bulk")); }

/** @returns {HTMLInputElement[]} */
function boxes() { return [...document.querySelectorAll("input[type=checkbox][name=id][form=bulk]")].map((box) => /** @type {HTMLInputElement} */ (box)); }

/** @param {boolean} on */
export function selectAll(on) {
  for (const box of boxes()) box.checked = on;
  show();
}

/**
 * @param {HTMLInputElement} from
 * @param {HTMLInputElement} to
 */
function selectRange(from, to) {
  const all = boxes();
  const [first, end] = [all.indexOf(from), all.indexOf(to)].sort((a, b) => a - b);
  for (const box of all.slice(Math.max(first, 0), end + 1)) box.checked = to.checked;
}

/** Shows the selection: rows, count, and the bar, which is hidden without a selection. */
export function show() {
  const form = bar();
  if (!form) return;
  const all = boxes();
  const chosen = all.filter((box) => box.checked);
  for (const box of all) {
    if (box.checked) box.closest("tr")?.setAttribute("aria-selected", "true");
    else box.closest("tr")?.removeAttribute("aria-selected");
  }
  const head = /** @type {HTMLInputElement | null} */ (document.querySelector("input[data-all]"));
  if (head) {
    head.checked = chosen.length > 0 && chosen.length === all.length;
    head.indeterminate = chosen.length > 0 && chosen.length < all.length;
  }
  form.hidden = chosen.length === 0;
  const words = form.querySelector("[data-selected]");
  if (words) words.textContent = `${chosen.length.toLocaleString("en")} selected`;
}

/** @returns {HTMLTableRowElement | null} */
export function currentRow() { return document.querySelector("table.rows tr.at"); }

/**
 * Moves to the next row, or the one before.
 * @param {number} step
 */
export function move(step) {
  const rows = [...document.querySelectorAll("table.rows tbody tr")].map((row) => /** @type {HTMLTableRowElement} */ (row));
  if (!rows.length) return;
  const at = rows.indexOf(/** @type {any} */ (currentRow()));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
  for (const row of rows) row.classList.toggle("at", row === next);
  /** @type {HTMLElement | null} */ (next.querySelector("th a, a"))?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

/** Selects or deselects the current row. */
export function toggleCurrent() {
  const box = /** @type {HTMLInputElement | null} */ (currentRow()?.querySelector("input[name=id]"));
  if (!box) return;
  box.checked = !box.checked;
  last = box;
  show();
}
