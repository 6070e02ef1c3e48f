#!/usr/bin/env python3
"""Check the golden vectors without any of tgad's code.

Standard library only. Reads the folder given as argument (default: tga, beside this
file), recomputes every digest, link and verdict, prints what it counted, and exits 1 at
the first difference.
"""

import base64
import hashlib
import json
import os
import sys

ZEROS = "0" * 64
EDGES = {
    ("PENDING", "AUTHORIZED"): "supervisor_decision",
    ("PENDING", "DENIED"): "supervisor_decision",
    ("AUTHORIZED", "EXECUTING"): "tool_call",
    ("EXECUTING", "COMPLETED"): "tool_effect",
    ("EXECUTING", "FAILED"): "tool_effect",
}
NAMES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def number(x):
    """ECMAScript's Number::toString. repr() gives the same shortest digits."""
    if x == 0:
        return "0"
    sign, x = ("-", -x) if x < 0 else ("", x)
    mantissa, _, exp = repr(x).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + ("" if fraction == "0" else fraction)
    point = len(whole) + int(exp or 0)
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0") if "." in mantissa or exp else digits.lstrip("0")
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    e = point - 1
    text = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return sign + text + "e" + ("+" if e > 0 else "-") + str(abs(e))


def string(s):
    return '"' + "".join(NAMES.get(c) or ("\\u%04x" % ord(c) if c < " " else c) for c in s) + '"'


def canonical(v):
    """RFC 8785."""
    if v is None or v is True or v is False:
        return {None: "null", True: "true", False: "false"}[v]
    if isinstance(v, str):
        return string(v)
    if isinstance(v, float):
        return number(v)
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    members = sorted(v.items(), key=lambda m: m[0].encode("utf-16-be"))
    return "{" + ",".join(string(k) + ":" + canonical(x) for k, x in members) + "}"


def unique(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("repeated name")
    return dict(pairs)


def read(text):
    return json.loads(text, parse_int=float, parse_float=float, object_pairs_hook=unique)


def digest(v, without=None):
    return hashlib.sha256(canonical({k: x for k, x in v.items() if k != without}).encode()).hexdigest()


def equal(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")


def refusal(entry, head):
    """Why an entry may not follow head, or None."""
    state, seq, last = head
    kind, call = entry["artifact_type"], entry.get("tool_call_id")
    if entry["sequence_number"] != seq + 1:
        return "STATE_SEQUENCE_GAP"
    if entry["prev_entry_digest"] != last or digest(entry, "entry_digest") != entry["entry_digest"]:
        return "STATE_CHECKSUM_MISMATCH"
    pair = (entry["from_state"], entry["to_state"])
    if seq == 0:
        if kind != "action_request" or pair != ("PENDING", "PENDING"):
            return "STATE_INVALID_TRANSITION"
    elif entry["from_state"] != state or EDGES.get(pair) != kind:
        return "STATE_INVALID_TRANSITION"
    if kind in ("tool_call", "tool_effect") and not call:
        return "MISSING_TOOL_CALL_ID"
    return None


def fold(name, entries):
    """The state and head after the entries that are accepted, and the first refusal."""
    head = ("", 0, ZEROS)
    for i, entry in enumerate(entries, 1):
        code = refusal(entry, head)
        if code:
            return head, {"at": float(i), "code": code}
        head = (entry["to_state"], int(entry["sequence_number"]), entry["entry_digest"])
    return head, None


def check_artifacts(name, artifacts, entries):
    for a, e in zip(artifacts, entries, strict=True):
        kind = a["schema_id"].removeprefix("talos.tga.")
        equal(f"{name}: digest of {kind}", digest(a, "_digest"), a["_digest"])
        equal(f"{name}: artifact_type", e["artifact_type"], kind)
        equal(f"{name}: artifact_digest", e["artifact_digest"], a["_digest"])
        equal(f"{name}: artifact_id", e["artifact_id"], a[kind + "_id"])
        equal(f"{name}: ts", e["ts"], a["ts"])
    links = [("action_request", 0, 1), ("supervisor_decision", 1, 2), ("tool_call", 2, 3)]
    for kind, before, after in links:
        if after < len(artifacts):
            equal(f"{name}: {kind}_id", artifacts[after][kind + "_id"], artifacts[before][kind + "_id"])
            equal(f"{name}: {kind}_digest", artifacts[after][kind + "_digest"], artifacts[before]["_digest"])
    if len(artifacts) > 2:
        equal(f"{name}: call", canonical(artifacts[2]["call"]), canonical(artifacts[0]["proposal"]))


def check_notes(name, notes, entries):
    last = ZEROS
    for i, n in enumerate(notes, 1):
        equal(f"{name}: note_number", n["note_number"], float(i))
        equal(f"{name}: prev_note_digest", n["prev_note_digest"], last)
        equal(f"{name}: note_digest", digest(n, "note_digest"), n["note_digest"])
        if n["head_entry_digest"] not in [e["entry_digest"] for e in entries]:
            sys.exit(f"{name}: note {i} names an entry that is not there")
        last = n["note_digest"]


def check_chain(path):
    with open(path, encoding="utf-8") as f:
        data = read(f.read())
    known = data["known_answer"]
    equal("known answer", hashlib.sha256(known["preimage"].encode()).hexdigest(), known["entry"]["entry_digest"])
    equal("known answer", digest(known["entry"], "entry_digest"), known["entry"]["entry_digest"])
    for t in data["traces"]:
        name, entries = t["name"], t["entries"]
        check_artifacts(name, t["artifacts"], entries)
        for e, preimage in zip(entries, t["entry_preimages"], strict=True):
            without = {k: v for k, v in e.items() if k != "entry_digest"}
            equal(f"{name}: preimage", canonical(without), preimage)
        (state, seq, last), refused = fold(name, entries)
        equal(f"{name}: refused", refused, None)
        check_notes(name, t["notes"], entries)
        for d in t["documents"]:
            effect = t["artifacts"][int(d["sequence_number"]) - 1]
            bound = {h["pointer"]: h for h in effect["document_hashes"]}[d["pointer"]]
            equal(f"{name}: document", hashlib.sha256(d["text"].encode()).hexdigest(), bound["hash"])
            equal(f"{name}: size", float(len(d["text"].encode())), bound["size_bytes"])
        s, c = t["state"], t["checkpoint"]
        equal(f"{name}: state_digest", digest(s, "state_digest"), s["state_digest"])
        equal(f"{name}: checkpoint_digest", digest(c["checkpoint_state"]), c["checkpoint_digest"])
        for derived in (s, c["checkpoint_state"]):
            got = (derived["current_state"], int(derived["last_sequence_number"]), derived["last_entry_digest"])
            equal(f"{name}: state", got, (state, seq, last))
    return f"{len(data['traces'])} traces"


def check_transitions(path):
    with open(path, encoding="utf-8") as f:
        data = read(f.read())
    for s in data["sequences"]:
        (state, _, _), refused = fold(s["name"], s["entries"])
        equal(s["name"], (state, refused), (s["state"], s["refused"]))
    for r in data["recovery"]:
        check_artifacts(r["name"], r["artifacts"], r["entries"])
        check_notes(r["name"], r["notes"], r["entries"])
        (state, _, _), refused = fold(r["name"], r["entries"])
        equal(r["name"], (state, refused), (r["expect"]["state_before"], None))
        call = r["artifacts"][2]
        equal(r["name"], call["tool_call_id"], r["expect"]["tool_call_id"])
        equal(r["name"], call["idempotency_key"], r["expect"]["idempotency_key"])
        fused = call["meta"].get("attempt", "fused") != "apart"
        marked = [n["body"]["attempt"] for n in r["notes"] if n["kind"] == "attempt"]
        equal(r["name"] + ": attempts", float(fused + len(marked)), r["attempts"])
    return f"{len(data['sequences'])} sequences, {len(data['recovery'])} recoveries"


def check_canonical(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    for a in data["accepted"]:
        equal(a["name"], canonical(read(a["input"])), a["canonical"])
        equal(a["name"], hashlib.sha256(a["canonical"].encode()).hexdigest(), a["sha256"])
    for r in data["refused"]:
        base64.b64decode(r["input_base64"], validate=True)
    return f"{len(data['accepted'])} canonical forms"


def joined(*parts):
    """SHA-256 of the parts, each after its length in 4 bytes, big-endian."""
    raw = [p.encode() for p in parts]
    return hashlib.sha256(b"".join(len(p).to_bytes(4, "big") + p for p in raw)).hexdigest()


def check_keys(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    for k in data["keys"]:
        parts = [k[part] for part in ("namespace", "server_id", "tool_name", "idempotency_key")]
        equal(f"hash of key {parts}", joined(*parts), k["sha256"])
    for b in data["begin_ids"]:
        parts = [b[part] for part in ("namespace", "submitter", "begin_id")]
        equal(f"hash of begin id {parts}", joined(*parts), b["sha256"])
    return f"{len(data['keys'])} keys, {len(data['begin_ids'])} begin ids"


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tga")
    folder = sys.argv[1] if len(sys.argv) > 1 else here
    print(check_chain(os.path.join(folder, "golden_chain.json")))
    print(check_transitions(os.path.join(folder, "state_transition_vectors.json")))
    print(check_canonical(os.path.join(folder, "canonical_json.json")))
    print(check_keys(os.path.join(folder, "ledger_decisions.json")))


if __name__ == "__main__":
    main()
