// The command palette (Ctrl K): go to a page of the navigation, a queue, or a search.

const MOST = 12;

/** @typedef {{label: string, href: string}} Command */

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

  const fixed = pages();
  /** @type {Command[]} */
  let shown = [];
  let at = 0;
  let turn = 0;
  const draw = () => {
    list.replaceChildren(...shown.map(({ label, href }, number) => {
      const option = document.createElement("li");
      option.id = `p${number}`;
      option.className = "opt";
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", String(number === at));
      option.textContent = label;
      option.addEventListener("click", () => { location.href = href; });
      return option;
    }));
    box.setAttribute("aria-activedescendant", `p${at}`);
  };
  const find = async () => {
    const mine = ++turn;
    const text = box.value.trim();
    const matching = fixed.filter(({ label }) => label.toLowerCase().includes(text.toLowerCase()));
    const root = document.body.dataset.root ?? "./";
    const search = text ? [{ label: `Search tasks with “${text}”`, href: `${root}tasks?q=${encodeURIComponent(text)}` }] : [];
    shown = [...matching, ...search].slice(0, MOST);
    at = 0;
    draw();
    if (!text) return;
    try {
      const response = await fetch(`${root}palette.json?q=${encodeURIComponent(text)}`);
      const { commands } = await response.json();
      if (mine !== turn) return;
      shown = [...commands.map((/** @type {Command} */ one) => ({ label: one.label, href: `${root}${one.href}` })), ...matching, ...search].slice(0, MOST);
      draw();
    } catch { /* the pages and the search are there anyway */ }
  };
  box.addEventListener("input", find);
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + shown.length) % Math.max(shown.length, 1);
      draw();
    } else if (event.key === "Enter" && shown[at]) {
      event.preventDefault();
      location.href = shown[at].href;
    }
  });
  find();
  dialog.showModal();
  box.focus();
}

/** @returns {Command[]} */
function pages() {
  return [...document.querySelectorAll("#nav a")].map((link) => ({
    label: `Go to ${link.firstChild?.textContent?.trim() ?? ""}`,
    href: /** @type {HTMLAnchorElement} */ (link).href,
  }));
}
