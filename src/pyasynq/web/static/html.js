// The only conversion of HTML text to elements (trusted types policy `rows`): fragments from our own server.

/** @type {{createHTML: (text: string) => any}} */
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("rows", { createHTML: (/** @type {string} */ text) => text })
  ?? { createHTML: (text) => text };

/**
 * Returns a row of a table or an entry of a list from its HTML, or null for other HTML.
 * @param {string} html
 * @returns {HTMLElement | null}
 */
export function rowFrom(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content.querySelector("[data-row]");
}

/**
 * Returns a whole page from its HTML; scripts in it do not run.
 * @param {string} html
 * @returns {Document}
 */
export function pageFrom(html) {
  return new DOMParser().parseFromString(policy.createHTML(html), "text/html");
}

/**
 * Shows a notice at the top of the page; screen readers read it.
 * @param {string} text
 * @param {"good" | "warn" | "bad"} tone
 * @returns {HTMLElement}
 */
export function notice(text, tone) {
  const symbol = { good: "completed", warn: "warning", bad: "danger" }[tone];
  const box = document.createElement("div");
  box.className = `note ${tone}`;
  box.setAttribute("role", tone === "bad" ? "alert" : "status");
  const words = document.createElement("p");
  words.textContent = text;
  box.append(icon(symbol), words);
  document.getElementById("notices")?.replaceChildren(box);
  return box;
}

/**
 * Returns a symbol of the sprite.
 * @param {string} name
 * @returns {SVGSVGElement}
 */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "i");
  svg.setAttribute("width", "14");
  svg.setAttribute("height", "14");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#${name}`);
  svg.append(use);
  return svg;
}
