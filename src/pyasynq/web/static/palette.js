// The command palette (Ctrl K): act on the selection or the page, go to a page or a queue, or search.

const MOST = 12;

/** @typedef {{label: string, href: string, press?: HTMLElement, isFirst?: boolean}} Command */

/** Begins to listen for the palette's key. */
export function startPalette() {
  if (!document.getElementById("nav")) return;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
}

function open() {
  if (document.querySelector("dialog[open]")) return;
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Commands");
  const box = document.createElement("input");
  box.setAttribute("role", "combobox");
  box.setAttribute("aria-expanded", "true");
  box.setAttribute("aria-controls", "pl");
  box.setAttribute("aria-label", "Command");
  box.setAttribute("autocomplete", "off");
  box.placeholder = "Go to a page or a queue, or search tasks";
  const list = document.createElement("ul");
  list.id = "pl";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Commands");
  const line = document.createElement("div");
  line.className = "line";
  line.append(box);
  const query = document.createElement("div");
  query.className = "query";
  query.append(line);
  const body = document.createElement("div");
  body.className = "body facets";
  body.append(query, list);
  dialog.append(body);
  document.body.append(dialog);
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  dialog.addEventListener("close", () => { dialog.remove(); before?.focus(); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  const acts = verbs();
  const fixed = pages();
  /** @type {Command[]} */
  let shown = [];
  let at = 0;
  let turn = 0;
  const take = (/** @type {number} */ number) => {
    const { href, press } = shown[number];
    if (!press) { location.href = href; return; }
    dialog.close();
    press.click();
  };
  const draw = () => {
    list.replaceChildren(...shown.map(({ label }, number) => {
      const option = document.createElement("li");
      option.id = `p${number}`;
      option.className = "opt";
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", String(number === at));
      option.textContent = label;
      option.addEventListener("click", () => take(number));
      return option;
    }));
    box.setAttribute("aria-activedescendant", `p${at}`);
  };
  const find = async () => {
    const mine = ++turn;
    const text = box.value.trim();
    const matches = (/** @type {Command} */ { label }) => label.toLowerCase().includes(text.toLowerCase());
    // Actions stay first, so that the chosen entry does not move when the answer arrives; they match by prefix.
    const isNamed = (/** @type {Command} */ { label }) => text.length > 1 && label.toLowerCase().startsWith(text.toLowerCase());
    const [first, matching] = [acts.filter(text ? isNamed : ({ isFirst }) => isFirst), fixed.filter(matches)];
    const root = document.body.dataset.root ?? "./";
    const search = text ? [{ label: `Search tasks with “${text}”`, href: `${root}tasks?q=${encodeURIComponent(text)}` }] : [];
    shown = [...first, ...matching, ...search].slice(0, MOST);
    // Enter alone opens a page: an action must be typed or chosen.
    at = text ? 0 : Math.min(first.length, MOST - 1);
    draw();
    if (!text) return;
    try {
      const response = await fetch(`${root}palette.json?q=${encodeURIComponent(text)}`);
      const { commands } = await response.json();
      if (mine !== turn) return;
      shown = [...first, ...commands.map((/** @type {Command} */ one) => ({ label: one.label, href: `${root}${one.href}` })), ...matching, ...search].slice(0, MOST);
      draw();
    } catch { /* without the server's answer, pages and search remain */ }
  };
  box.addEventListener("input", find);
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + shown.length) % Math.max(shown.length, 1);
      draw();
    } else if (event.key === "Enter" && shown[at]) {
      event.preventDefault();
      take(at);
    }
  });
  find();
  dialog.showModal();
  box.focus();
}

const SELECTION = "#bulk:not([hidden]) button[name=verb]";
const HEAD = "main .head .acts :is(a.btn, button.btn)";
const OTHERS = "main :is(a.btn, button.btn)";

/**
 * Returns the page's buttons as commands: the buttons of the selection, of the page's head, then all others, which
 * are only found by name. A command presses its button, so a confirmation appears as usual.
 * @returns {Command[]}
 */
function verbs() {
  const selected = document.querySelector("#bulk [data-selected]")?.textContent ?? "";
  const buttons = [SELECTION, HEAD, OTHERS].flatMap((selector) => [...document.querySelectorAll(selector)]);
  const seen = new Set();
  /** @type {Command[]} */
  const found = [];
  for (const one of buttons) {
    const press = /** @type {HTMLElement} */ (one);
    if (seen.has(press) || !press.checkVisibility() || press.matches(":disabled")) continue;
    seen.add(press);
    const label = [...press.childNodes].filter((node) => !(node instanceof HTMLElement && node.matches("kbd"))).map((node) => node.textContent).join("").trim();
    found.push({ label: press.matches(SELECTION) ? `${label}: ${selected}` : label, href: "", press, isFirst: press.matches(`${SELECTION}, ${HEAD}`) });
  }
  return found;
}

/** @returns {Command[]} */
function pages() {
  return [...document.querySelectorAll("#nav a")].map((link) => ({
    label: `Go to ${link.firstChild?.textContent?.trim() ?? ""}`,
    href: /** @type {HTMLAnchorElement} */ (link).href,
  }));
}
