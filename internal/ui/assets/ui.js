"use strict";
// Somebody is writing: the page is not made anew under their hands.
document.addEventListener("htmx:beforeRequest", (event) => {
  const busy = document.activeElement?.closest("#inbox") ||
    [...document.querySelectorAll("#inbox input[name=why]")].some((i) => i.value !== "");
  if (event.target.id !== "inbox" || !busy) return;
  event.preventDefault();
  if (document.hidden) lookAside();
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

const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");
const sha256 = async (text) => hex(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));

// without is canonical JSON without one of its top-level members, whose value is a string. The text is
// cut, not parsed and written again: what was stored is what is digested.
function without(text, member) {
  const value = JSON.parse(text)[member];
  const pair = JSON.stringify(member) + ":" + JSON.stringify(value);
  for (const piece of [pair + ",", "," + pair, pair]) {
    const at = text.indexOf(piece);
    if (at >= 0 && text.indexOf(piece, at + 1) < 0) return text.slice(0, at) + text.slice(at + piece.length);
  }
  throw new Error("it has not one " + member);
}

// verify computes every digest of a trace anew, and follows its links.
async function verify(url) {
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) throw new Error("the trace cannot be had: " + answer.status);
  const trace = await answer.json();
  let prev = "0".repeat(64), seq = 0, artifacts = 0, erased = 0;
  const heads = new Set();
  for (const e of trace.entries) {
    const entry = JSON.parse(e.entry);
    seq++;
    if (entry.trace_id !== trace.trace_id) throw new Error("entry " + seq + " is of another trace");
    if (entry.sequence_number !== seq) throw new Error("entry " + seq + " has the number " + entry.sequence_number);
    if (entry.prev_entry_digest !== prev) throw new Error("entry " + seq + " does not follow from the one before");
    prev = await sha256(without(e.entry, "entry_digest"));
    if (prev !== entry.entry_digest) throw new Error("the digest of entry " + seq + " is not that of its bytes");
    heads.add(prev);
    if (!e.artifact) { erased++; continue; }
    const artifact = JSON.parse(e.artifact);
    const digest = await sha256(without(e.artifact, "_digest"));
    if (digest !== artifact._digest || digest !== entry.artifact_digest) throw new Error("the artifact of entry " + seq + " is another one");
    artifacts++;
  }
  let before = "0".repeat(64), number = 0;
  for (const text of trace.notes) {
    const note = JSON.parse(text);
    number++;
    if (note.note_number !== number || note.prev_note_digest !== before) throw new Error("note " + number + " does not follow from the one before");
    if (!heads.has(note.head_entry_digest)) throw new Error("note " + number + " was written under an entry that is not here");
    before = await sha256(without(text, "note_digest"));
    if (before !== note.note_digest) throw new Error("the digest of note " + number + " is not that of its bytes");
  }
  return `Checked here: ${seq} entries in an unbroken chain, ${artifacts} artifacts` + (erased ? `, ${erased} erased` : "") + `, ${number} notes. ` +
    "That nothing was cut off or rewritten as a whole only a receipt proves.";
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("#verify");
  if (!button) return;
  const verdict = document.getElementById("verdict");
  verdict.className = "";
  verdict.textContent = "…";
  try {
    verdict.textContent = await verify(button.dataset.raw);
    verdict.className = "good";
  } catch (err) {
    verdict.textContent = "It does not verify: " + err.message + ".";
    verdict.className = "bad";
  }
});

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
