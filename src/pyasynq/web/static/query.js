// Completion of queries. The server computes them; this module shows and inserts them.

const DELAY = 120;

/** @typedef {{insert: string, label: string, detail: string, start: number, end: number}} Offer */

/** Begins completion in the query bar. */
export function startQuery() {
  const box = /** @type {HTMLInputElement | null} */ (document.querySelector(".query input[role=combobox]"));
  const list = document.getElementById("comp");
  if (!box || !list || !box.dataset.complete) return;
  new Completion(box, list);
}

class Completion {
  /**
   * @param {HTMLInputElement} box
   * @param {HTMLElement} list
   */
  constructor(box, list) {
    this.box = box;
    this.list = list;
    /** @type {Offer[]} */
    this.offers = [];
    this.at = -1;
    this.asked = 0;
    /** @type {number | undefined} */
    this.timer = undefined;
    box.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.ask(), DELAY); });
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("blur", () => setTimeout(() => this.hide(), 150));
    list.addEventListener("mousedown", (event) => {
      const option = /** @type {HTMLElement} */ (event.target).closest("[role=option]");
      if (!option) return;
      event.preventDefault();
      this.at = [...list.children].indexOf(option);
      this.take();
    });
  }

  async ask() {
    const turn = ++this.asked;
    const address = new URL(this.box.dataset.complete ?? "", location.href);
    address.searchParams.set("q", this.box.value);
    address.searchParams.set("caret", String(this.box.selectionStart ?? this.box.value.length));
    try {
      const response = await fetch(address, { headers: { accept: "application/json" } });
      const { offers, explain } = await response.json();
      if (turn !== this.asked) return;
      this.show(offers);
      const words = document.getElementById("explain");
      if (words && explain) words.textContent = explain;
    } catch { this.hide(); }
  }

  /** @param {Offer[]} offers */
  show(offers) {
    this.offers = offers;
    this.at = -1;
    this.list.replaceChildren(...offers.map(({ label, detail }, number) => {
      const option = document.createElement("li");
      option.id = `o${number}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      const code = document.createElement("code");
      code.textContent = label;
      const words = document.createElement("span");
      words.textContent = detail;
      option.append(code, words);
      return option;
    }));
    this.toggle(offers.length > 0 && document.activeElement === this.box);
  }

  hide() { this.toggle(false); }

  /** @param {boolean} on */
  toggle(on) {
    /** @type {HTMLElement} */ (this.list.parentElement).hidden = !on;
    this.box.setAttribute("aria-expanded", String(on));
    if (!on) this.box.removeAttribute("aria-activedescendant");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (this.box.getAttribute("aria-expanded") !== "true") return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.choose(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Tab" && !event.shiftKey && this.offers.length) { this.at = Math.max(this.at, 0); this.take(); }
    else if (event.key === "Enter" && this.at >= 0) this.take();
    else if (event.key === "Escape") this.hide();
    else return;
    event.preventDefault();
  }

  /** @param {number} step */
  choose(step) {
    this.at = (this.at + step + this.offers.length) % this.offers.length;
    [...this.list.children].forEach((option, number) => option.setAttribute("aria-selected", String(number === this.at)));
    this.box.setAttribute("aria-activedescendant", `o${this.at}`);
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
  }

  take() {
    const offer = this.offers[this.at];
    if (!offer) return;
    this.box.setRangeText(offer.insert, offer.start, offer.end, "end");
    this.hide();
    this.box.focus();
    this.box.dispatchEvent(new Event("input", { bubbles: true }));
  }
}
