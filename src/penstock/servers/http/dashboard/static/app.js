// What pages do beyond links and forms: live regions, keys, copying, the theme. Everything works without it, but slower.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// -- live regions: one stream for each page that is seen ------------------------------------------------------------

const live = {
  source: null,
  paused: false,

  start() {
    const address = document.body.dataset.events;
    if (!address || this.source || this.paused || document.hidden) return;
    this.source = new EventSource(address);
    this.source.addEventListener("open", () => this.show("live"));
    this.source.addEventListener("error", () => this.show(this.source?.readyState === EventSource.CLOSED ? "lost" : "waiting"));
    this.source.addEventListener("sample", (event) => this.take(JSON.parse(event.data)));
  },

  stop() {
    this.source?.close();
    this.source = null;
  },

  toggle() {
    if (!document.body.dataset.events) return;
    this.paused = !this.paused;
    if (this.paused) this.stop(); else this.start();
    this.show(this.paused ? "paused" : "waiting");
  },

  show(state) {
    const button = $("#live");
    if (!button) return;
    button.hidden = false;
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(state !== "paused"));
    $("span", button).textContent = state;
  },

  take({regions, chart, changed}) {
    let strange = false;
    for (const [id, html] of Object.entries(regions)) {
      const target = document.getElementById(id);
      if (target) htmx.swap({target, text: html, swap: "outerMorph"});
      else strange = true;
    }
    // A line for a queue that the page does not have yet: the list is read again, where it shows all of them.
    if (strange && $("#queues[data-all]")) document.body.dispatchEvent(new CustomEvent("penstock:rows"));
    if (chart) document.dispatchEvent(new CustomEvent("penstock:chart", {detail: chart}));
    document.body.dispatchEvent(new CustomEvent("penstock:sample"));
    if (changed) document.body.dispatchEvent(new CustomEvent("penstock:changed"));
  },
};

// What is open or being typed in must not change or close under the cursor, also when the answer was under way before.
document.addEventListener("htmx:before:swap", (event) => {
  if (event.detail.tasks.some(({target}) => target instanceof Element && $("details.sure[open], details.settle[open]", target))) event.preventDefault();
});

// A tab that nobody sees keeps no connection: browsers allow six to one server.
document.addEventListener("visibilitychange", () => (document.hidden ? live.stop() : live.start()));
addEventListener("pagehide", () => live.stop());

// -- questions in a dialog -----------------------------------------------------------------------------------------

document.addEventListener("htmx:after:swap", () => {
  const dialog = $("#ask");
  if (dialog && dialog.childElementCount && !dialog.open) {
    dialog.showModal();
    $("button, a", dialog)?.focus();
  }
});

document.addEventListener("click", (event) => {
  const closes = event.target.closest("dialog [data-close]");
  if (closes) {
    event.preventDefault();
    const dialog = closes.closest("dialog");
    dialog.close();
  }
  if (event.target instanceof HTMLDialogElement) event.target.close();
  if (event.target.closest('a[href^="#"]')) setTimeout(unfold);
});
document.addEventListener("close", (event) => {
  if (event.target.id === "ask") event.target.replaceChildren();
}, true);

// -- copying: also on plain HTTP, where browsers offer no clipboard ------------------------------------------------------

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await copy(button.dataset.copy || $("code", button.parentElement).textContent);
  const said = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = said; }, 1200);
});

// -- theme -------------------------------------------------------------------------------------------------------------

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("penstock-theme", root.dataset.theme); } catch { /* it lasts for this page */ }
  document.dispatchEvent(new CustomEvent("penstock:theme"));
}

// -- durations that grow while they are looked at -----------------------------------------------------------------------

function spelled(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [size, unit, smaller, smallerUnit] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / smaller);
      return `${Math.floor(whole / size)} ${unit}` + (rest ? ` ${rest} ${smallerUnit}` : "");
    }
  }
  return `${whole} s`;
}

// Times are those of the store's clock, which need not be the browser's.
function grow() {
  for (const place of $$("[data-now]")) {
    if (place.dataset.seen !== place.dataset.now) {
      place.dataset.seen = place.dataset.now;
      place.dataset.ahead = String(Date.now() - Date.parse(place.dataset.now));
    }
    for (const time of $$("[data-since]", place)) {
      const elapsed = Date.now() - Number(place.dataset.ahead) - Date.parse(time.dataset.since);
      time.textContent = spelled(Math.max(0, elapsed / 1000));
    }
  }
}
setInterval(() => { if (!document.hidden) grow(); }, 1000);

// -- keys --------------------------------------------------------------------------------------------------------------

let going = 0;

function move(step) {
  const rows = $$("main table.list tbody tr").filter((row) => $("a[href]", row));
  if (!rows.length) return;
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[now < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(now + step, 0), rows.length - 1)];
  $("a[href]", next).focus();
  next.scrollIntoView({block: "nearest"});
}

const keys = {
  "/": () => $("#find")?.focus(),
  "?": () => $("#help")?.showModal(),
  j: () => move(1),
  k: () => move(-1),
  t: switchTheme,
  p: () => live.toggle(),
  g: () => { going = Date.now(); },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (Date.now() - going < 1500) {
    going = 0;
    const goal = $(`nav.side a[data-key="${CSS.escape(event.key)}"]`);
    if (goal) { event.preventDefault(); location.assign(goal.href); }
    return;
  }
  if ($("dialog[open]")) return;
  const action = keys[event.key];
  if (action) { event.preventDefault(); action(); }
});

// A link to something folded opens it.
function unfold() {
  const goal = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (goal instanceof HTMLDetailsElement) {
    goal.open = true;
    goal.scrollIntoView();
    $("textarea, input:not([type=hidden])", goal)?.focus();
  }
}
addEventListener("hashchange", unfold);

document.addEventListener("DOMContentLoaded", () => {
  // On a phone the pages lie side by side, and the one that is open may be out of sight.
  const here = $(".side a[aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - 40;
  unfold();
  $("#theme")?.addEventListener("click", switchTheme);
  $("#keys")?.addEventListener("click", keys["?"]);
  $("#live")?.addEventListener("click", () => live.toggle());
  live.start();
});
