"use strict";
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

// stored is a trace as it is stored: a report has it in itself, the view has it behind an address.
async function stored(url) {
  if (!url) return JSON.parse(document.getElementById("raw").textContent);
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) throw new Error("the trace cannot be had: " + answer.status);
  return answer.json();
}

// verify computes every digest of a trace anew, and follows its links.
async function verify(url) {
  const trace = await stored(url);
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

