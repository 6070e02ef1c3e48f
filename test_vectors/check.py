#!/usr/bin/env python3
"""Check the golden vectors without any of tgad's code.

Standard library only. Reads the folder given as argument (default: tga, beside this
file), recomputes every digest, link and verdict, prints what it counted, and exits 1 at
the first difference.
"""

import base64
import datetime
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


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def be(b, at, n):
    return int.from_bytes(b[at : at + n], "big")


def up8(n):
    return (n + 7) // 8 * 8


def body_of(b):
    return "hex:" + b.hex() if len(b) <= 100 else "sha256:" + hashlib.sha256(b).hexdigest()


def log_operations(name, raw, bodies, count):
    """The operations of a record, or None where a body of them is not what was written."""
    out, at, body = [], 0, 0
    for _ in range(count):
        kind, place, key_len, zero = raw[at : at + 4]
        value_len, body_len, checksum = be(raw, at + 4, 4), be(raw, at + 8, 4), be(raw, at + 12, 4)
        equal(f"{name}: kind, place and zero", (1 <= kind <= 6, place <= 2, zero), (True, True, 0))
        at += 16
        file = raw[at : at + 56] if place == 2 else b""
        at += len(file)
        key, value = raw[at : at + key_len], raw[at + key_len : at + key_len + value_len]
        at += key_len + value_len
        op = {"kind": kind, "place": place, "key": key.hex(), "value": value.hex()}
        if place == 1:
            data = bodies[body : body + body_len]
            body += body_len
            if crc32c(key + data) != checksum:
                return None
            op["body"] = body_of(data)
        else:
            equal(f"{name}: no body", (body_len, checksum), (0, 0))
        if place == 2:
            op["file"] = file.hex()
        out.append(op)
    equal(f"{name}: operations and bodies fill the record", (at, body), (len(raw), len(bodies)))
    return out


def log_record(name, seg, at, salt, number):
    """The record at an offset of a segment, or None where there is no whole one."""
    h = seg[at : at + 64]
    seed = salt + number.to_bytes(8, "big") + at.to_bytes(4, "big")
    if len(h) < 64 or h[4:8] != b"R\1\0\0" or be(h, 0, 4) != crc32c(seed + h[4:]):
        return None
    equal(f"{name}: zeros of a header", be(h, 60, 4), 0)
    ops_len, bodies_len = be(h, 48, 4), be(h, 52, 4)
    ops = seg[at + 64 : at + 64 + ops_len]
    bodies_at = at + 64 + up8(ops_len)
    end = bodies_at + up8(bodies_len)
    if end > len(seg) or crc32c(ops) != be(h, 56, 4):
        return None
    decoded = log_operations(name, ops, seg[bodies_at : bodies_at + bodies_len], be(h, 20, 4))
    if decoded is None:
        return None
    return {
        "start": at, "end": end, "group": be(h, 8, 8), "checksum": h[:4].hex(), "first_index": be(h, 24, 8),
        "committed": be(h, 32, 8), "ts": be(h, 40, 8), "operations": decoded,
    }, be(h, 16, 4)  # fmt: skip


def log_segment(s, before):
    """Read a segment as its format says, from its identity to where it ends."""
    name, seg = s["name"], bytearray(s["size"])
    for piece in s["pieces"]:
        raw = bytes.fromhex(piece["hex"])
        seg[piece["offset"] : piece["offset"] + len(raw)] = raw
    seg = bytes(seg)
    equal(f"{name}: magic, version, size", (seg[:8], be(seg, 8, 4), be(seg, 12, 4)), (b"TGADLOG\n", 2, len(seg)))
    equal(f"{name}: store and timeline", (seg[16:32].hex(), seg[32:48].hex()), (s["store"], s["timeline"]))
    equal(f"{name}: number and salt", (be(seg, 48, 8), seg[56:64].hex()), (s["number"], s["salt"]))
    equal(f"{name}: zeros behind the identity", any(seg[64:4092]), False)
    equal(f"{name}: checksum of the identity", crc32c(seg[:4092]), be(seg, 4092, 4))
    found, at, last = [], 4096, before
    while True:
        got = log_record(name, seg, at, seg[56:64], s["number"])
        if got is None:
            break
        record, prev = got
        want = (last["group"] + 1, last["checksum"]) if last else (1, "00000000")
        if (record["group"], prev.to_bytes(4, "big").hex()) != want:
            break
        if not found:  # the link
            value = (last["start"].to_bytes(4, "big") + last["end"].to_bytes(4, "big") if last else bytes(8)).hex()
            timeline = s["timeline"] if last else "0" * 32
            equal(f"{name}: link", record["operations"], [{"kind": 4, "place": 0, "key": "", "value": value + timeline}])
        found.append(record)
        at, last = record["end"], record
    equal(f"{name}: records", found, s["records"])
    closed = bool(found) and found[-1]["operations"][-1]["kind"] == 5
    equal(f"{name}: closed", closed, s["closed"])
    return found


def check_log(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    first, n = None, 0
    for s in data["segments"]:
        found = log_segment(s, first if s["number"] > 1 else None)
        first = found[-1] if s["number"] == 1 else first
        n += len(found)
    p, row = data["position"], bytes.fromhex(data["position"]["row"])
    equal("position: length, kind of row, version", (len(row), row[:2]), (62, b"\1\1"))
    got = {
        "row": row.hex(), "segment": be(row, 2, 8), "start": be(row, 10, 4), "end": be(row, 14, 4), "group": be(row, 18, 8),
        "checksum": row[26:30].hex(), "timeline": row[30:46].hex(), "ledger_keys": be(row, 46, 8), "ledger_sum": row[54:62].hex(),
    }  # fmt: skip
    equal("position", got, p)
    return f"{len(data['segments'])} segments, {n} records"


def watermark_slot(raw, place):
    """The mark in one of the two slots, or None where it is not whole or not of this place."""
    little = lambda at, n: int.from_bytes(raw[at : at + n], "little")
    if len(raw) < 64 or raw[:8] != b"tgadwm\0\2" or little(60, 4) != crc32c(raw[:60]) or little(8, 8) % 2 != place:
        return None
    return {
        "generation": little(8, 8), "group": little(16, 8), "checksum": f"{little(24, 4):08x}",
        "store": raw[28:44].hex(), "timeline": raw[44:60].hex(),
    }  # fmt: skip


def check_watermark(path):
    with open(path, encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    for c in cases:
        raw = bytearray(c["size"])
        for piece in c["slots"]:
            b = bytes.fromhex(piece["hex"])
            raw[piece["offset"] : piece["offset"] + len(b)] = b
        equal(f"watermark, {c['name']}: size", len(raw), c["size"])
        whole = [m for m in (watermark_slot(bytes(raw[at : at + 64]), n) for n, at in enumerate((0, 4096))) if m]
        equal(f"watermark, {c['name']}", max(whole, key=lambda m: m["generation"], default=None), c["mark"])
    return f"{len(cases)} watermarks"


def body_verdict(raw, id, key, body):
    if len(raw) < 80:
        return "STATE_CHECKSUM_MISMATCH"
    if raw[:8] == b"TGADBODY" and be(raw, 8, 4) != 1:
        return "FORMAT_TOO_NEW"
    head = raw[:8] + raw[8:16] + id + hashlib.sha256(body).digest() + len(body).to_bytes(8, "big")
    named = raw[:72] == head and raw[:8] == b"TGADBODY" and be(raw, 12, 4) == len(key)
    whole = raw[72:] == crc32c(head + key).to_bytes(4, "big") + bytes(4) + key + body
    return "ok" if named and whole else "STATE_CHECKSUM_MISMATCH"


def check_body_file(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    id, key, body = (bytes.fromhex(data[m]) for m in ("id", "key", "body"))
    for c in data["cases"]:
        equal(f"body, {c['name']}", body_verdict(bytes.fromhex(c["hex"]), id, key, body), c["verdict"])
    return f"{len(data['cases'])} files of bodies"


def unpacked(frame):
    """What a zstd frame of stored blocks holds (RFC 8878), or None where it is none. Python has no zstd,
    so the vectors have no compressed block."""
    if len(frame) < 9 or frame[:5] != b"\x28\xb5\x2f\xfd\xa0":
        return None
    size, at, out, last = int.from_bytes(frame[5:9], "little"), 9, b"", False
    while not last:
        head = int.from_bytes(frame[at : at + 3], "little")
        last, n, at = bool(head & 1), head >> 3, at + 3
        if head >> 1 & 3 != 0 or at + n > len(frame):
            return None
        out, at = out + frame[at : at + n], at + n
    return out if at == len(frame) and len(out) == size else None


STATES = ["", "PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "FAILED", "DENIED"]
ARTIFACTS = ["", "action_request", "supervisor_decision", "tool_call", "tool_effect"]
BAD = "STATE_CHECKSUM_MISMATCH"


class Refused(Exception):
    """Its argument is the code."""


def must(condition, code=BAD):
    if not condition:
        raise Refused(code)


class Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, b):
        self.b = b

    def take(self, n):
        must(n <= len(self.b))
        taken, self.b = self.b[:n], self.b[n:]
        return taken

    def int(self, n):
        return int.from_bytes(self.take(n), "big")


def uuid(b):
    h = b.hex()
    return "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))


def timestamp(ms):
    at = datetime.datetime.fromtimestamp(ms // 1000, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def entry_frame(b, spill):
    """The entry of a frame, and its parts as (pointer, bytes); the bytes are None where they are erased."""
    must(len(b) >= 192)
    must(b[0:1] == b"E")
    must(b[1] == 1, "FORMAT_TOO_NEW")
    key, length = be(b, 112, 4), be(b, 116, 4)
    must(length == len(b) and b[4] < len(STATES) and b[5] < len(STATES) and b[6] < len(ARTIFACTS))
    entry = {
        "schema_id": "talos.tga.execution_log_entry", "schema_version": "v1", "trace_id": uuid(b[16:32]),
        "sequence_number": float(be(b, 8, 8)), "from_state": STATES[b[4]], "to_state": STATES[b[5]],
        "artifact_type": ARTIFACTS[b[6]], "artifact_id": uuid(b[152:168]), "artifact_digest": b[120:152].hex(),
        "prev_entry_digest": b[48:80].hex(), "entry_digest": b[80:112].hex(), "ts": timestamp(be(b, 184, 8)),
        "tool_call_id": uuid(b[168:184]) if any(b[168:184]) else None,
    }  # fmt: skip
    rest = Bytes(b[192:])
    entry["idempotency_key"] = rest.take(key).decode() if key else None
    parts, flags, spill = [], 0, Bytes(spill)
    for _ in range(b[7]):
        encoding, place, pointer, size = rest.int(1), rest.int(1), rest.int(2), rest.int(8)
        pointer = rest.take(pointer).decode()
        must(encoding in (0, 2) and place in (0, 1) and (encoding == 0 or size == 0))
        flags |= (place == 1) << 0 | (encoding == 2) << 1 | (pointer != "") << 2
        data = (spill if place else rest).take(size)
        parts.append((pointer, data if encoding == 0 else None))
    must(not rest.b and not spill.b and flags == be(b, 2, 2) and parts and parts[0][0] == "")
    return entry, parts


def note_frame(b):
    must(len(b) >= 112 and b[0:1] == b"N" and be(b, 108, 4) == len(b) and be(b, 104, 4) == len(b) - 112)
    must(b[1] == 1, "FORMAT_TOO_NEW")
    must(hashlib.sha256(b[112:]).digest() == b[72:104])
    return be(b, 4, 4), b[40:72], b[72:104], uuid(b[24:40])


def trace_record(r):
    """What a list and a footer have to say of the next trace, after its chains were followed."""
    id = r.take(16)
    entries, notes = r.int(4), r.int(4)
    must(entries > 0)
    head, deadline, call, key, request = ("", 0, ZEROS), 0, bytes(16), "", None
    for _ in range(entries):
        length, spill = r.int(4), r.int(8)
        frame = r.take(length)
        entry, parts = entry_frame(frame, r.take(spill))
        code = refusal(entry, head)
        must(code is None, code)
        must(entry["trace_id"] == uuid(id))
        head = (entry["to_state"], int(entry["sequence_number"]), entry["entry_digest"])
        body = parts[0][1]
        if body is not None:
            artifact = read(body.decode())
            must(canonical(artifact).encode() == body and artifact["_digest"] == entry["artifact_digest"])
            must(digest(artifact, "_digest") == artifact["_digest"])
            bound = {h["pointer"]: h["hash"] for h in artifact.get("document_hashes", [])}
            for pointer, data in parts[1:]:
                must(pointer in bound and (data is None or hashlib.sha256(data).hexdigest() == bound[pointer]))
            request = artifact if request is None else request
        call = frame[168:184] if any(frame[168:184]) else call
        key = entry["idempotency_key"] or key
    note = bytes(32)
    for i in range(1, notes + 1):
        number, before, after, trace = note_frame(r.take(r.int(4)))
        must((number, before, trace) == (i, note, uuid(id)))
        note = after
    must(head[0] in ("COMPLETED", "FAILED", "DENIED"))
    meta = request.get("meta", {})
    must("deadline" not in meta)  # none of the vectors has one
    shown = frame[184:192] + bytes(8) + call
    texts = (head[0], meta.get("namespace", "default"), request["proposal"]["tool_server"], request["proposal"]["tool_name"], key)
    for s in texts:
        shown += len(s.encode()).to_bytes(4, "big") + s.encode()
    says = notes.to_bytes(4, "big") + (1).to_bytes(8, "big") + head[1].to_bytes(8, "big") + bytes.fromhex(head[2]) + note
    return id, shown, says


def sealed_segment(b):
    must(len(b) >= 16 + 16 + 16 + 48 + 88 and b[:8] == b"TGADSEG\n")
    must(be(b, 8, 4) == 2, "FORMAT_TOO_NEW" if be(b, 8, 4) else BAD)
    must(be(b, 12, 4) == 0)
    tail = b[-88:]
    foot, length = be(tail, 0, 8), be(tail, 8, 8)
    must(tail[80:] == b"TGADEND\n" and foot + length == len(b) - 88)
    # A reader in the order of the file meets what the traces say before what the footer says of them.
    at, traces, footer = 16, {}, b""
    blocks = 0
    while b[at : at + 4] == b"BLOK":
        count, n = be(b, at + 4, 4), be(b, at + 8, 8)
        frame = b[at + 16 : at + 16 + n]
        plain = unpacked(frame)
        must(count > 0 and plain is not None)
        r = Bytes(plain)
        for _ in range(count):
            id, shown, says = trace_record(r)
            must(id not in traces)
            traces[id] = (shown, blocks.to_bytes(4, "big") + says)
        must(not r.b)
        footer += at.to_bytes(8, "big") + n.to_bytes(8, "big") + hashlib.sha256(frame).digest()
        at, blocks = at + 16 + n, blocks + 1
    n = be(b, at + 8, 8)
    frame = b[at + 16 : at + 16 + n]
    must(b[at : at + 4] == b"LIST" and be(b, at + 4, 4) == len(traces))
    must(unpacked(frame) == b"".join(traces[id][0] for id in sorted(traces)))
    footer += at.to_bytes(8, "big") + n.to_bytes(8, "big") + hashlib.sha256(frame).digest()
    footer += b"".join(id + traces[id][1] for id in sorted(traces))
    footer = b"FOOT" + blocks.to_bytes(4, "big") + len(traces).to_bytes(4, "big") + bytes(4) + footer
    must(at + 16 + n == foot and b[foot : foot + length] == footer)
    must(tail[16:48] == hashlib.sha256(footer).digest() and tail[48:80] == hashlib.sha256(b[:-40]).digest())
    return len(traces)


def verdict(reader, b):
    try:
        reader(b)
    except Refused as code:
        return str(code)
    return "ok"


def changed(good, case):
    b = bytearray(good[: case["size"]].ljust(case["size"], b"\0"))
    for c in case["changes"]:
        raw = bytes.fromhex(c["hex"])
        b[c["offset"] : c["offset"] + len(raw)] = raw
    return bytes(b)


def check_sealed(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    for c in data["cases"]:
        got = verdict(sealed_segment, changed(bytes.fromhex(data["hex"]), c))
        equal(f"sealed segment, {c['name']}", got, c["verdict"])
    return f"{len(data['cases'])} sealed segments"


def packed_pieces(b):
    """Headers and operations, and bodies, by their offset in the raw segment; and the end of its records."""
    must(len(b) >= 40 and b[:8] == b"TGADPAK\n" and b[-8:] == b"TGADEND\n")
    must(be(b, 8, 4) == 2, "FORMAT_TOO_NEW")
    tail = b[-24:]
    count, at = be(tail, 0, 4), 16
    table = len(b) - 24 - 24 * count
    must(table >= at and crc32c(b[:16] + b[table:-24] + tail[:4] + tail[8:]) == be(tail, 4, 4))
    pieces, before = {1: {}, 2: {}}, (1, -1)
    for i in range(table, len(b) - 24, 24):
        kind, first, plain, size = b[i], be(b, i + 8, 4), be(b, i + 12, 4), be(b, i + 20, 4)
        must(kind in pieces and b[i + 1 : i + 4] == bytes(3) and be(b, i + 16, 4) == at and before < (kind, first))
        frame = b[at : at + size]
        must(at + size <= table and crc32c(frame) == be(b, i + 4, 4))
        data = unpacked(frame)
        must(data is not None and len(data) == plain)
        r = Bytes(data)
        places = [(r.int(4), r.int(4)) for _ in range(r.int(4))]
        must(places and places[0][0] == first)
        end = first
        for offset, n in places:
            must(offset >= end)
            pieces[kind][offset], end = r.take(n), offset + n
        must(not r.b)
        at, before = at + size, (kind, end - 1)
    must(at == table and sum(map(len, pieces[2].values())) == be(tail, 12, 4))
    return pieces[1], pieces[2], be(tail, 8, 4)


def packed_segment(b):
    """The records of a packed segment, the first of its log, with the bodies that it still has."""
    heads, bodies, end = packed_pieces(b)
    id = heads.get(0, b"")
    must(len(id) == 4096 and id[:8] == b"TGADLOG\n" and crc32c(id[:4092]) == be(id, 4092, 4))
    must(be(id, 8, 4) == 2 and be(id, 48, 8) == 1 and not any(id[64:4092]))
    at, group, prev, records, known = 4096, 1, bytes(4), [], 0
    while at < end:
        raw = heads.get(at, b"")
        must(len(raw) >= 64 and raw[4:8] == b"R\1\0\0")
        must(crc32c(id[56:64] + id[48:56] + at.to_bytes(4, "big") + raw[4:64]) == be(raw, 0, 4))
        must((be(raw, 8, 8), raw[16:20]) == (group, prev))
        length = be(raw, 48, 4)
        must(len(raw) == 64 + up8(length) and crc32c(raw[64 : 64 + length]) == be(raw, 56, 4))
        body, ops, r = at + len(raw), [], Bytes(raw[64 : 64 + length])
        for _ in range(be(raw, 20, 4)):
            kind, place, key, _, value, length, checksum = (r.int(n) for n in (1, 1, 1, 1, 4, 4, 4))
            r.take(56 if place == 2 else 0)
            op = {"kind": kind, "key": r.take(key), "value": r.take(value).hex(), "body": None}
            if place == 1:
                data = b"" if length == 0 else bodies.get(body)
                if data is not None:
                    must(len(data) == length and crc32c(op["key"] + data) == checksum)
                    op["body"] = data.hex()
                    known += length > 0
                body += length
            op["key"] = op["key"].hex()
            ops.append(op)
        must(not r.b)
        records.append({"start": at, "group": group, "operations": ops})
        at, group, prev = at + len(raw) + up8(be(raw, 52, 4)), group + 1, raw[:4]
    must(at == end and len(heads) == 1 + len(records) and len(bodies) == known)
    return records


def check_packed(path):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    good = bytes.fromhex(data["hex"])
    equal("packed segment", packed_segment(good), data["records"])
    for c in data["cases"]:
        equal(f"packed segment, {c['name']}", verdict(packed_segment, changed(good, c)), c["verdict"])
    return f"{len(data['cases'])} packed segments"


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tga")
    folder = sys.argv[1] if len(sys.argv) > 1 else here
    print(check_chain(os.path.join(folder, "golden_chain.json")))
    print(check_transitions(os.path.join(folder, "state_transition_vectors.json")))
    print(check_canonical(os.path.join(folder, "canonical_json.json")))
    print(check_keys(os.path.join(folder, "ledger_decisions.json")))
    print(check_log(os.path.join(folder, "log_bytes.json")))
    print(check_body_file(os.path.join(folder, "body_file.json")))
    print(check_sealed(os.path.join(folder, "sealed_segment.json")))
    print(check_packed(os.path.join(folder, "packed_segment.json")))
    print(check_watermark(os.path.join(folder, "watermark.json")))


if __name__ == "__main__":
    main()
