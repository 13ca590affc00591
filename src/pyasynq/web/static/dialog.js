// Questions as dialogs: the page that a link leads to, shown over this one. Without a script the link is followed.
import { pageFrom } from "./html.js";

/** Begins to open marked links as dialogs. */
export function startDialogs() {
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLElement} */ (event.target)?.closest?.("a[data-dialog]");
    if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(link).catch(() => { location.href = link.href; });
  });
}

/** @param {HTMLAnchorElement} link */
async function open(link) {
  const response = await fetch(link.href, { headers: { accept: "text/html" } });
  const form = pageFrom(await response.text()).querySelector("form[data-question]");
  if (!form) { location.href = link.href; return; }
  const dialog = document.createElement("dialog");
  const heading = form.querySelector("h1");
  const title = document.createElement("h2");
  title.id = "dialog-title";
  title.textContent = heading?.textContent ?? "";
  heading?.replaceWith(title);
  dialog.setAttribute("aria-labelledby", title.id);
  // Addresses in the form are relative to its own page, not to this one.
  form.setAttribute("action", new URL(form.getAttribute("action") ?? "", link.href).href);
  for (const inner of form.querySelectorAll("a[href]")) inner.setAttribute("href", new URL(inner.getAttribute("href") ?? "", link.href).href);
  dialog.append(document.importNode(form, true));
  dialog.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target === dialog || target.closest("[data-close]")) { event.preventDefault(); dialog.close(); }
  });
  dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
  document.body.append(dialog);
  dialog.showModal();
  /** @type {HTMLElement | null} */ (dialog.querySelector("input:not([type=hidden]), button"))?.focus();
}
