// What pages do beyond links and forms: the colour scheme, updates, keys, local times, copying. Pages work without it.
"use strict";

const scheme = {
  get: () => { try { return localStorage.getItem("scheme"); } catch { return null; } },
  set: (name) => { try { localStorage.setItem("scheme", name); } catch { /* a browser that stores nothing forgets the choice */ } },
  isDark: () => (scheme.get() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark",
};
if (scheme.get()) document.documentElement.dataset.scheme = scheme.get();

const POLL_MS = 2000;
const POLL_MAX_MS = 30000; // between two requests while the server does not answer
const POLL_TIMEOUT_MS = 20000;

function showTimes(within) {
  for (const one of within.querySelectorAll("time[title]")) {
    const at = new Date(one.dateTime);
    if (!Number.isNaN(at.valueOf())) one.title = `${at.toLocaleString()} (${one.dateTime})`;
  }
}

function prepare(within) {
  showTimes(within);
  for (const one of within.querySelectorAll("[data-copy]")) one.hidden = !navigator.clipboard;
}

function isInUse(region) {
  const active = document.activeElement;
  const selected = getSelection();
  return (region.contains(active) && active.matches("input, select, textarea, [data-copy], details[open] *"))
    || (!selected.isCollapsed && region.contains(selected.anchorNode));
}

// Replaces a part of the page, and keeps what was opened and where the focus was.
function replace(region, fresh) {
  prepare(fresh);
  if (region.isEqualNode(fresh) || isInUse(region)) return;
  for (const one of region.querySelectorAll("details[data-keep][open]")) {
    const same = [...fresh.querySelectorAll("details[data-keep]")].find((each) => each.dataset.keep === one.dataset.keep);
    if (same) same.open = true;
  }
  const active = region.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  region.replaceWith(fresh);
  if (active !== null) [...fresh.querySelectorAll("a[href]")].find((one) => one.getAttribute("href") === active)?.focus();
}

async function update() {
  const answer = await fetch(location.href, {
    headers: { Accept: "text/html", "PinLater-Update": "1" }, redirect: "error", signal: AbortSignal.timeout(POLL_TIMEOUT_MS),
  });
  if (answer.status === 401) location.reload(); // the session has ended: shows the log-in page
  if (!answer.ok) throw new Error(`${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const region of document.querySelectorAll("[data-live]")) {
    const found = fresh.getElementById(region.id);
    if (found) replace(region, document.adoptNode(found));
  }
}

// One request at a time, none while the tab is hidden, and fewer after errors.
function keepUpdating() {
  let delay = POLL_MS;
  let timer = 0;
  let running = false;
  const again = () => { clearTimeout(timer); if (!document.hidden) timer = setTimeout(step, delay); };
  const step = async () => {
    if (running || document.hidden) return;
    running = true;
    try {
      await update();
      delay = POLL_MS;
      document.body.classList.remove("stale");
    } catch {
      delay = Math.min(2 * delay, POLL_MAX_MS);
      document.body.classList.add("stale");
    }
    running = false;
    again();
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : step()));
  again();
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.querySelector("a"));
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[now < 0 ? (step > 0 ? 0 : rows.length - 1) : now + step];
  next?.querySelector("a").focus();
}

function moveTab(step) {
  const tabs = [...document.querySelectorAll("#states a")];
  tabs[tabs.findIndex((tab) => tab.ariaCurrent === "true") + step]?.click();
}

// The buttons of the row that has the focus, or of the page.
function toActions() {
  const place = document.activeElement.closest("[data-row]")?.querySelector(".actions") ?? document.getElementById("actions");
  place?.querySelector("button, summary, a")?.focus();
}

const ON_KEY = {
  j: () => moveRow(1),
  k: () => moveRow(-1),
  a: toActions,
  "[": () => moveTab(-1),
  "]": () => moveTab(1),
  n: () => document.querySelector("a[rel=next]")?.click(),
  p: () => document.querySelector("a[rel=prev]")?.click(),
  "?": () => document.getElementById("keys").showModal(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") {
    (document.querySelector("[data-filter]") ?? document.querySelector(".find input")).focus();
    event.preventDefault();
  }
  ON_KEY[event.key]?.();
  if (/^[1-9]$/.test(event.key)) document.querySelectorAll("header nav a")[event.key - 1]?.click();
  if (event.key === "Escape") for (const one of document.querySelectorAll(".confirm[open]")) one.open = false;
}

async function onClick(event) {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.previousElementSibling.textContent);
  button.textContent = "Copied";
}

function offerSchemes() {
  const button = document.querySelector("button[data-scheme]");
  const show = () => { button.textContent = scheme.isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    scheme.set(scheme.isDark() ? "light" : "dark");
    document.documentElement.dataset.scheme = scheme.get();
    show();
  });
  show();
}

document.addEventListener("DOMContentLoaded", () => {
  const url = new URL(location.href);
  if (url.searchParams.has("done")) { // the message is shown once
    url.searchParams.delete("done");
    history.replaceState(null, "", url);
  }
  for (const one of document.querySelectorAll("[data-keys]")) one.hidden = false;
  document.querySelector("[data-keys] button").addEventListener("click", ON_KEY["?"]);
  offerSchemes();
  prepare(document);
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", onClick);
  if ("polls" in document.body.dataset) keepUpdating();
});
