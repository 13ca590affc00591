// Keeps "34 s ago" current, by the clock of the server at the time of the page.

const MINUTE = 60, HOUR = 3_600, DAY = 86_400;

/** Milliseconds that the server's clock is ahead of this one. */
let ahead = 0;

/** Begins to update all relative times of the page. */
export function startTimes() {
  const made = document.querySelector("#made ~ time, .foot time");
  const then = Date.parse(made?.getAttribute("datetime") ?? "");
  if (Math.abs(then - Date.now()) > 5_000) ahead = then - Date.now();
  setInterval(update, 1_000);
}

/** Updates all relative times now. */
export function update() {
  if (document.hidden || document.body.dataset.frozen) return;
  const now = Date.now() + ahead;
  for (const element of document.querySelectorAll("time[data-ago]")) {
    const text = relative((now - Date.parse(element.getAttribute("datetime") ?? "")) / 1_000);
    if (text !== element.textContent) element.textContent = text;
  }
}

/**
 * Returns `34 s ago`, `in 3 min` or `now`, as the server writes it.
 * @param {number} seconds
 * @returns {string}
 */
export function relative(seconds) {
  if (Math.abs(seconds) < 1) return "now";
  const text = span(Math.round(Math.abs(seconds)));
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

/**
 * Returns a length of time in at most two units.
 * @param {number} seconds
 * @returns {string}
 */
export function span(seconds) {
  if (seconds < MINUTE) return `${seconds} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  if (seconds < DAY) {
    const minutes = Math.floor((seconds % HOUR) / MINUTE);
    return `${Math.floor(seconds / HOUR)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  const hours = seconds < 10 * DAY ? Math.floor((seconds % DAY) / HOUR) : 0;
  return `${Math.floor(seconds / DAY)} d${hours ? ` ${hours} h` : ""}`;
}
