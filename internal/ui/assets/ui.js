"use strict";
// Somebody is writing, choosing or copying: that part of the page is not made anew under their hands.
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.target, marked = getSelection();
  const busy = part.contains(document.activeElement) ||
    [...part.querySelectorAll("input[name=why]")].some((i) => i.value !== "") ||
    (marked !== null && !marked.isCollapsed && part.contains(marked.anchorNode));
  if (!busy) return;
  event.preventDefault();
  if (document.hidden && part.id === "inbox") lookAside();
});

// What waits is remembered by its kind and call. What comes while the page is hidden raises a notification, one for
// all that came at once. It names a tool and no more: others may see the screen.
const waits = (root) => new Map([...root.querySelectorAll("#inbox article[data-kind]")].map((a) =>
  [a.dataset.kind + a.querySelector("a.id")?.getAttribute("href"), a]));
let known = null;
function look(root) {
  const bell = document.getElementById("bell"), now = waits(root);
  const came = known === null ? [] : [...now].filter(([name]) => !known.has(name)).map(([, article]) => article);
  known = new Set(now.keys());
  if (!bell || !document.hidden || came.length === 0 || !("Notification" in window) || Notification.permission !== "granted") return;
  const title = came.length === 1 ? bell.dataset[came[0].dataset.kind] : came.length + " " + bell.dataset.many;
  const tools = new Set(came.map((a) => a.querySelector("h3")?.textContent ?? ""));
  const raised = new Notification("tgad: " + title, { tag: "tgad", renotify: true, body: [...tools].slice(0, 3).join(", ") });
  raised.onclick = () => { window.focus(); raised.close(); };
}

// lookAside reads what waits without making the page anew.
async function lookAside() {
  const answer = await fetch("/", { credentials: "same-origin" }).catch(() => null);
  if (answer?.ok) look(new DOMParser().parseFromString(await answer.text(), "text/html"));
}

// The bell is there where a person can still say yes or no.
function ring(asked) {
  const bell = document.getElementById("bell");
  if (!bell || !("Notification" in window)) return;
  const say = Notification.permission, button = bell.querySelector("button");
  bell.hidden = say === "denied" && !asked;
  button.hidden = say !== "default";
  bell.querySelector("span").textContent = say === "granted" ? bell.dataset.on : say === "denied" ? bell.dataset.off : "";
}
document.addEventListener("click", async (event) => {
  if (!event.target.closest("#bell button")) return;
  await Notification.requestPermission();
  ring(true);
});

// Times are shown as ages, with the exact one beside.
function ages() {
  for (const t of document.querySelectorAll("time[datetime]")) {
    const s = Math.round((Date.now() - Date.parse(t.dateTime)) / 1000);
    const in_ = s < 0, n = Math.abs(s);
    const text = n < 60 ? n + " s" : n < 3600 ? Math.round(n / 60) + " min" : n < 172800 ? Math.round(n / 3600) + " h" : Math.round(n / 86400) + " days";
    t.textContent = in_ ? "in " + text : text + " ago";
    t.title = t.dateTime;
  }
}

// j and k go through what waits, Enter begins to answer it. What is chosen stays so when the page is
// made anew.
let chosen = null;
const name_ = (article) => article.querySelector("a.id")?.getAttribute("href");
function choose() {
  for (const a of document.querySelectorAll("article")) a.classList.toggle("chosen", chosen !== null && name_(a) === chosen);
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA|BUTTON|A)$/.test(event.target.tagName)) return;
  const all = [...document.querySelectorAll("article")];
  let at = all.findIndex((a) => name_(a) === chosen);
  if (event.key === "Enter" && at >= 0) {
    event.preventDefault();
    all[at].querySelector("input[name=why]")?.focus();
    return;
  }
  if (event.key !== "j" && event.key !== "k") return;
  at = Math.min(all.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)));
  chosen = all[at] ? name_(all[at]) : null;
  choose();
  all[at]?.scrollIntoView({ block: "nearest" });
});

document.addEventListener("DOMContentLoaded", () => { ages(); look(document); ring(false); });
document.addEventListener("htmx:afterSettle", () => { ages(); choose(); look(document); });
setInterval(ages, 5000);
