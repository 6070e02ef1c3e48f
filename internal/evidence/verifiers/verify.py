#!/usr/bin/env python3
"""Check evidence from a tgad store: a file that `tgad evidence export` wrote, or a receipt that
`tgad receipt --json` printed.

Needs Python 3.8 or later and nothing else: no package, no network, no tgad. The format and the
checks are those of docs/FORMAT.md, section 11.

Exit codes: 0 all in the file is proved; 3 a file is not what it says; 2 the command line makes no
sense; 1 anything else: a file that cannot be read, parts of it that are not covered, or no --key.
"""

import argparse
import base64
import decimal
import functools
import hashlib
import io
import json
import re
import sys
from json.decoder import JSONDecoder, scanstring
from json.encoder import encode_basestring as quoted  # escapes no more than RFC 8785 does

VERSION = "1"
MAX_TREE_LINE, MAX_NOTE, MAX_PROOF = 256 << 10, 64 << 10, 128
MAX_LINE, MAX_TRACE, MAX_DEPTH, MAX_RECEIPT = 128 << 20, 256 << 20, 131, 16 << 20
MAX_SAFE = 2**53 - 1
ZEROS = "0" * 64


class Refused(Exception):
    """Why a bundle is not believed: a code of tgad, and words."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.line = code, 0


class Unanswered(Refused):
    """The file may be good: this program, or this file, cannot answer what was asked."""


def must(condition, code, message):
    if not condition:
        raise Refused(code, message)


def form(condition, message):
    must(condition, "SCHEMA_VIOLATION", message)


def sound(condition, message):
    must(condition, "STATE_CHECKSUM_MISMATCH", message)


def there(condition, message):
    must(condition, "STATE_SEQUENCE_GAP", message)


def sha256(data):
    return hashlib.sha256(data).digest()


# Ed25519 (RFC 8032 §5.1.7): [S]B = R + [k]A, compared without the cofactor.

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def point_of(b):
    """The point (X, Y, Z, T) that 32 bytes encode, None where they encode none."""
    y = int.from_bytes(b, "little")
    sign, y = y >> 255, (y & (1 << 255) - 1) % P
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    if (v * x * x - u) % P:
        x = x * ROOT % P
    if (v * x * x - u) % P:
        return None
    if x & 1 != sign:
        x = -x % P
    return x, y, 1, x * y % P


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


BASE = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


@functools.lru_cache(maxsize=256)
def ed25519(key, message, signature):
    """Whether a signature is that of a message by a key."""
    a, s = point_of(key), int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or a is None or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    minus = -a[0] % P, a[1], 1, -a[3] % P
    both, sum_ = add(BASE, minus), (0, 1, 1, 0)
    for bit in range(max(s, k).bit_length() - 1, -1, -1):  # [S]B - [k]A, both at once
        sum_ = add(sum_, sum_)
        pick = (None, BASE, minus, both)[(s >> bit & 1) | (k >> bit & 1) << 1]
        sum_ = add(sum_, pick) if pick else sum_
    inverse = pow(sum_[2], P - 2, P)
    x, y = sum_[0] * inverse % P, sum_[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]


# JSON: what may be digested without loss, and its one form (RFC 8785).


class Number(str):
    """A number as ECMAScript prints its double."""


def es6(x):
    if x == 0:
        return "0"
    t = decimal.Decimal(repr(abs(x))).as_tuple()
    digits, point = "".join(map(str, t.digits)).rstrip("0"), len(t.digits) + t.exponent
    sign = "-" if x < 0 else ""
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    e = point - 1
    return sign + digits[0] + ("." + digits[1:] if digits[1:] else "") + "e" + ("+" if e > 0 else "-") + str(abs(e))


def exactly(text):
    """Sign, digits and exponent of a decimal, without zeros at either end."""
    mantissa, _, e = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = int(e or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return (text[0] == "-", digits, point) if digits else None


def number(text):
    x = float(text)
    printed = es6(x) if abs(x) != float("inf") else ""
    if printed != text and (not printed or exactly(printed) != exactly(text)):
        raise ValueError(f"number {text[:80]} is not what its double prints as")
    return Number(printed)


def members_once(pairs):
    d = dict(pairs)
    if len(d) != len(pairs):
        raise ValueError("a member name is repeated")
    return d


def no_constant(text):
    raise ValueError(f"{text} is no number")


DECODER = JSONDecoder(object_pairs_hook=members_once, parse_int=number, parse_float=number, parse_constant=no_constant)
INTEGERS = JSONDecoder(object_pairs_hook=members_once, parse_float=no_constant, parse_constant=no_constant)
SPACE = re.compile(r"[ \t\n\r]*")
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def check_inside(v, depth):
    """Refuses what is nested too deep, and half a surrogate pair."""
    if isinstance(v, str):
        v.encode()
    elif isinstance(v, (dict, list)):
        must(depth < MAX_DEPTH, "LIMIT_EXCEEDED", f"nesting deeper than {MAX_DEPTH}")
        for x in v.items() if isinstance(v, dict) else v:
            if isinstance(v, dict):
                x[0].encode()
                x = x[1]
            check_inside(x, depth + 1)


def members(line):
    """The members of the JSON object that a line is: name → value, and name → its text."""
    values, texts = {}, {}

    def space(at):
        return SPACE.match(text, at).end()

    try:
        text = line.decode()
        at = space(0)
        if text[at : at + 1] != "{":
            check_inside(DECODER.decode(text), 0)
            form(False, "line is no JSON object")
        at = space(at + 1)
        while text[at : at + 1] != "}" or values:
            if text[at : at + 1] != '"':
                raise ValueError("want a member name")
            name, at = scanstring(text, at + 1, True)
            at = space(at)
            if text[at : at + 1] != ":" or name in values:
                raise ValueError("want : after a member name, and each name once")
            start = space(at + 1)
            values[name], end = DECODER.raw_decode(text, start)
            texts[name], at = text[start:end], space(end)
            if text[at : at + 1] == "}":
                break
            if text[at : at + 1] != ",":
                raise ValueError("want , or } after a member")
            at = space(at + 1)
        if space(at + 1) != len(text):
            raise ValueError("more text after the value")
        if text.count("[") + text.count("{") > MAX_DEPTH or SURROGATE.search(text):
            check_inside(values, 0)
    except RecursionError:
        raise Refused("LIMIT_EXCEEDED", f"nesting deeper than {MAX_DEPTH}") from None
    except ValueError as e:
        raise Refused("VALIDATION_ERROR", str(e)) from None
    return values, texts


def canonical(v):
    if v is None or v is True or v is False:
        return {None: "null", True: "true", False: "false"}[v]
    if isinstance(v, Number):
        return str(v)
    if isinstance(v, str):
        return quoted(v)
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    inside = sorted(v.items(), key=lambda m: m[0].encode("utf-16-be"))
    return "{" + ",".join(quoted(name) + ":" + canonical(x) for name, x in inside) + "}"


def digest_without(v, name):
    return sha256(canonical({k: x for k, x in v.items() if k != name}).encode()).hex()


def unbase64(text, what):
    """The bytes of base64 in its one spelling."""
    try:
        b = base64.b64decode(text.encode(), validate=True)
    except ValueError:
        b = None
    form(b is not None and base64.b64encode(b).decode() == text, f"{what} is no base64 in its one spelling")
    return b


# Lines about the tree: they have one spelling.

HASH = "H"  # base64 of 32 bytes
KINDS = {
    "evidence": {"version": str, "about": [str], "origin": str, "key": str, "from": 64, "to": 64, "leaves": 63, "traces": 63},
    "hand_over": {"note": str},
    "checkpoint": {"note": str},
    "prefix": {"size": 63, "head": HASH, "proof": [HASH]},
    "leaf": {"index": 64, "leaf": str, "proof": [HASH]},
}


def kind_of(line, beginning=b'{"kind":"'):
    if not line.startswith(beginning):
        return ""
    text, end, _ = line[len(beginning) :].partition(b'"')
    return text.decode("latin-1") if end and len(text) <= 20 else ""


def spelled(v, want):
    """A value as the format writes it."""
    if isinstance(want, list):
        form(isinstance(v, list), "want a list")
        return "[" + ",".join(spelled(x, want[0]) for x in v) + "]"
    if isinstance(want, int):
        form(type(v) is int and -(1 << 63) * (want == 63) <= v < 1 << want, "want an integer")
        return str(v)
    form(isinstance(v, str), "want a string")
    form(want is str or len(unbase64(v, "a hash")) == 32, "want a hash")
    return quoted(v).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def tree_line(line):
    kind = kind_of(line)
    try:
        text = line.decode()
        values = INTEGERS.decode(text)
    except (ValueError, RecursionError) as e:
        raise Refused("SCHEMA_VIOLATION", f"no JSON: {e}") from None
    form(values.keys() == {"kind": 0, **KINDS[kind]}.keys(), f"a line of kind {kind} with other members")
    again = '{"kind":' + quoted(kind) + "".join(f',"{name}":' + spelled(values[name], want) for name, want in KINDS[kind].items()) + "}"
    form(again == text, "it is not in the one spelling of this format")
    return values


# Keys, signed notes (C2SP signed-note, tlog-checkpoint, tlog-cosignature).


def good_name(name):
    return name != "" and "+" not in name and not any(c in "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" or "\u2000" <= c <= "\u200a" for c in name)


class Key:
    """A public key: name+hash+base64. witness is one whose signatures have a time."""

    def __init__(self, text, witness=False):
        name, _, rest = text.partition("+")
        hash16, _, key64 = rest.partition("+")
        try:
            raw = base64.b64decode(key64.encode(), validate=True)
        except ValueError:
            raw = b""
        good = good_name(name) and re.fullmatch("[0-9a-fA-F]{8}", hash16) and len(raw) == 33
        if not good or raw[0] not in ((1, 4) if witness else (1,)) or sha256(name.encode() + b"\n" + raw)[:4].hex() != hash16.lower():
            raise ValueError("it is no public key of a signed note with Ed25519: want NAME+HASH+KEY")
        if witness:
            raw = b"\4" + raw[1:]
        self.name, self.key, self.witness = name, raw[1:], witness
        self.id = name, sha256(name.encode() + b"\n" + raw)[:4]
        self.until = None  # the largest tree that it may speak of, once it was handed over

    def signed(self, text, signature):
        if not self.witness:
            return ed25519(self.key, text, signature)
        when = b"cosignature/v1\ntime %d\n" % int.from_bytes(signature[:8], "big")
        return len(signature) == 72 and text.count(b"\n") > 1 and ed25519(self.key, when + text, signature[8:])


def open_note(note, by, others):
    """The text of a signed note, and which keys signed it. One of by at least did."""
    raw = note.encode()
    must(len(raw) <= MAX_NOTE, "LIMIT_EXCEEDED", f"signed note of {len(raw)} bytes: at most {MAX_NOTE}")
    split = note.rfind("\n\n")
    ok = split >= 0 and note[split + 2 :] and note.endswith("\n") and not any(c < " " and c != "\n" for c in note)
    must(ok, "PERMISSION_DENIED", "it is no signed note")
    text, lines, signed, loose = note[: split + 1], note[split + 2 : -1].split("\n"), set(), False
    must(len(lines) <= 100, "PERMISSION_DENIED", "signed note with over 100 signatures")
    for line in lines:
        name, _, b64 = line[2:].partition(" ")
        try:
            sig = base64.b64decode(b64.encode(), validate=True)
        except ValueError:
            sig = b""
        must(line.startswith("— ") and good_name(name) and len(sig) >= 5, "PERMISSION_DENIED", "it is no signed note")
        loose = loose or base64.b64encode(sig).decode() != b64
        known = [k for k in by + others if k.id == (name, sig[:4])]
        must(len(known) < 2, "PERMISSION_DENIED", f"two keys have the name {name} and one hash")
        if known and known[0] not in signed:
            must(known[0].signed(text.encode(), sig[4:]), "PERMISSION_DENIED", f"the signature of {name} is not that of this text")
            signed.add(known[0])
    must(signed, "PERMISSION_DENIED", "no trusted key signed it")
    form(not loose, "a signature is not in its one spelling")
    must(any(k in signed for k in by), "PERMISSION_DENIED", "no trusted key of the log signed it")
    return text, signed


class Keys:
    """The keys of an origin that are trusted, and those of witnesses."""

    def __init__(self, origin, first, witnesses):
        self.origin, self.log = origin or first.name, [first]
        self.witnesses = [k for i, k in enumerate(witnesses) if k.id not in [w.id for w in witnesses[:i]]]

    def open(self, note):
        """Size and head of a checkpoint, and the names of the witnesses that signed it."""
        text, signed = open_note(note, self.log, self.witnesses)
        lines = text.split("\n")
        form(len(lines) > 3 and lines[0] and re.fullmatch("0|[1-9][0-9]*", lines[1]) and len(lines[1]) < 20, "it is no checkpoint")
        size, head = int(lines[1]), unbase64(lines[2], "the head")
        form(size <= 1 << 62 and len(head) == 32, "it is no checkpoint")
        must(lines[0] == self.origin, "PERMISSION_DENIED", f"checkpoint of {lines[0]!r}, want one of {self.origin!r}")
        ok = any(k in signed and (k.until is None or size <= k.until) for k in self.log)
        must(ok, "PERMISSION_DENIED", f"checkpoint of {size} leaves by a key that was handed over before")
        return size, head, [k.name for k in self.witnesses if k in signed]

    def follow(self, note):
        """Takes over the key of a hand-over."""
        text = note.partition("\n\n")[0]
        lines = text.split("\n")
        form(len(lines) == 6 and lines[0] == "tgad key hand-over v1", "it is no hand-over")
        form(re.fullmatch("0|[1-9][0-9]*", lines[4]) and len(lines[4]) < 20 and lines[1] == self.origin, "a hand-over of another origin, or no size")
        size = int(lines[4])
        form(size < 1 << 63 and len(unbase64(lines[5], "the head")) == 32, "a hand-over without a head")
        try:
            old, new = Key(lines[2]), Key(lines[3])
        except ValueError as e:
            raise Refused("SCHEMA_VIOLATION", f"hand-over: {e}") from None
        old = next((k for k in self.log if k.id == old.id), None)
        must(old and old.until is None, "PERMISSION_DENIED", "hand-over by a key that is not trusted")
        must(all(k.id != new.id for k in self.log), "VALIDATION_ERROR", "hand-over to a key that it had before")
        form(open_note(note, [old], self.witnesses)[0] == text + "\n", "hand-over: more than five lines were signed")
        open_note(note, [new], self.witnesses)
        old.until = size
        self.log.append(new)


# The tree (RFC 6962 §2.1): heads that follow from proofs.


def node(left, right):
    return sha256(b"\1" + left + right)


def left_part(n):
    """The largest power of two below n."""
    return 1 << (n - 1).bit_length() - 1


def head_from_leaf(proof, index, size, leaf):
    """The head of a tree in which a leaf has a place, from 0; None where the proof is no proof."""
    turns = []
    while size > 1:
        k = left_part(size)
        turns.append(index >= k)
        index, size = (index - k, size - k) if index >= k else (index, k)
    if len(turns) != len(proof):
        return None
    at = leaf
    for right, other in zip(reversed(turns), proof):
        at = node(other, at) if right else node(at, other)
    return at


def heads_from_prefix(proof, old, size, head):
    """The heads of the old and of the new tree, as a consistency proof has them."""
    turns, whole = [], True  # whole: the old tree is all of this part, from its beginning
    while old != size:
        k = left_part(size)
        right = old > k
        turns.append(right)
        whole = whole and not right
        old, size = (old - k, size - k) if right else (old, k)
    proof = list(proof)
    if len(proof) != len(turns) + (not whole):
        return None, None
    before = after = head if whole else proof.pop(0)
    for right, other in zip(reversed(turns), proof):
        if right:
            before, after = node(other, before), node(other, after)
        else:
            after = node(after, other)
    return before, after


class Leaf:
    def __init__(self, b):
        form(len(b) == 121 and b[8] == 1, f"leaf of {len(b)} bytes, or of another version")
        take = lambda at, n: int.from_bytes(b[at : at + n], "big")  # noqa: E731
        h = b[9:25].hex()
        self.trace = "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))
        self.index, self.first_seq, self.entries = take(0, 8), take(25, 8), take(33, 2)
        self.first_note, self.notes = take(35, 4), take(39, 2)
        self.head, self.note = b[41:73].hex(), b[73:105].hex()
        self.hash = sha256(b"\0" + b)
        form(self.index, "a leaf without an index")


# The contract's objects: which members they have, and what each may be.


def text(low, high=1 << 62):
    def check(v):
        form(isinstance(v, str) and not isinstance(v, Number) and low <= len(v) <= high, f"want a string of {low} to {high} characters")

    return check


def like(pattern, what):
    def check(v):
        form(isinstance(v, str) and not isinstance(v, Number) and re.fullmatch(pattern, v), f"want {what}")

    return check


def one_of(*words):
    return like("|".join(map(re.escape, words)), "one of " + ", ".join(words))


def integer(low, high):
    def check(v):
        form(isinstance(v, Number) and re.fullmatch("[0-9]{1,16}", v) and low <= int(v) <= high, f"want an integer from {low} to {high}")

    return check


def items(table, least):
    def check(v):
        form(isinstance(v, list), "want an array")
        for x in v:
            closed(table, x)
        form(len(v) >= least, f"want at least {least}")

    return check


def nullable(check):
    return lambda v: v is None or check(v)


def any_object(v):
    form(isinstance(v, dict), "want an object")


def boolean(v):
    form(v is True or v is False, "want true or false")


def scalars(v):
    any_object(v)
    form(not any(isinstance(x, (dict, list)) for x in v.values()), "meta holds scalars only")


def is_time(v):
    m = isinstance(v, str) and re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.[0-9]{3}Z", v)
    if not m:
        return False
    year, month, day, hour, minute, second = map(int, m.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return 1 <= month <= 12 and 1 <= day <= days[month - 1] and hour < 24 and minute < 60 and second < 60


def ts(v):
    form(is_time(v), "want a time as YYYY-MM-DDThh:mm:ss.mmmZ")


ID = like("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "a lowercase UUIDv7")
DIGEST = like("[0-9a-f]{64}", "64 lowercase hex digits")
NAME = like("[A-Za-z0-9_./-]{1,128}", "a name of a tool or its server")
SIZE = integer(0, MAX_SAFE)
STATE = one_of("PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "FAILED", "DENIED")
TYPES = ("action_request", "supervisor_decision", "tool_call", "tool_effect")
B64URL = "(?:[A-Za-z0-9_-]{4})*(?:|[A-Za-z0-9_-][AQgw]|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048])"
JWS = like(r"(?=[^.])%s\.(?=[^.])%s\.(?=.)%s" % (B64URL, B64URL, B64URL), "a compact JWS")


def call_id(v):
    must(v is not None and v != "", "MISSING_TOOL_CALL_ID", "tool_call_id is empty")
    ID(v)


# name → what it may be; a name with ? may be missing.
PROPOSAL = {"tool_server": NAME, "tool_name": NAME, "args": any_object}
EXPECTED = {"pointer": like("(?s:/.*)", "a JSON Pointer"), "hash": DIGEST}
OUTCOME = {
    "status": one_of("SUCCESS", "FAILURE", "DENIED", "ERROR"), "summary?": text(0, 500),
    "external_refs?": items({"kind": one_of("github_pr", "github_issue", "doc_id", "commit_sha"), "id": text(1)}, 0),
    "error?": lambda v: closed({"code": like("[A-Z0-9_]+", "A-Z 0-9 _"), "message?": text(0, 200), "retryable?": boolean}, v),
}  # fmt: skip
COMMON = {"schema_version": one_of("tga.v1"), "trace_id": ID, "plan_id": ID, "ts": ts, "_digest_alg": one_of("sha256"), "_digest": DIGEST, "meta?": scalars}
ARTIFACTS = {
    "action_request": {
        "action_request_id": ID, "agent_id": ID, "risk_level": one_of("READ", "WRITE", "HIGH_RISK"), "intent": text(10, 1000),
        "resources": items({"kind": one_of("repo", "doc", "service", "db"), "id": text(1)}, 1),
        "proposal": lambda v: closed(PROPOSAL, v), "idempotency_key?": text(1, 255),
    },
    "supervisor_decision": {
        "supervisor_decision_id": ID, "action_request_id": ID, "action_request_digest": DIGEST,
        "decision": one_of("APPROVE", "DENY", "NEEDS_APPROVAL"), "rationale": text(10, 1000), "minted_capability?": JWS, "policy_hash?": DIGEST,
    },
    "tool_call": {
        "tool_call_id": call_id, "supervisor_decision_id": ID, "supervisor_decision_digest": DIGEST, "capability_digest?": DIGEST,
        "call": lambda v: closed(PROPOSAL, v), "idempotency_key": text(1, 255), "tool_class?": one_of("read", "write"),
        "expected_document_hashes?": items(EXPECTED, 0), "batch_total_bytes?": SIZE,
    },
    "tool_effect": {
        "tool_effect_id": ID, "tool_call_id": call_id, "tool_call_digest": DIGEST, "outcome": lambda v: closed(OUTCOME, v),
        "document_hashes?": items({**EXPECTED, "size_bytes?": SIZE}, 0), "batch_total_bytes?": SIZE, "content_hash_alg?": one_of("sha256"),
    },
}  # fmt: skip
MISSING = {"tool_call_id": "MISSING_TOOL_CALL_ID", "idempotency_key": "IDEMPOTENCY_KEY_REQUIRED"}
ENTRY = {
    "schema_id": one_of("talos.tga.execution_log_entry"), "schema_version": one_of("v1"), "trace_id": ID, "sequence_number": integer(1, MAX_SAFE),
    "prev_entry_digest": DIGEST, "ts": ts, "from_state": STATE, "to_state": STATE, "artifact_type": one_of(*TYPES), "artifact_id": ID,
    "artifact_digest": DIGEST, "tool_call_id?": nullable(ID), "idempotency_key?": nullable(text(1, 255)), "entry_digest": DIGEST,
}  # fmt: skip
NOTE = {
    "schema_id": one_of("tgad.note"), "schema_version": one_of("v1"), "trace_id": ID, "note_number": integer(1, 2**32 - 1), "prev_note_digest": DIGEST,
    "head_entry_digest": DIGEST, "ts": ts, "kind": like("[a-z][a-z0-9_]{0,63}", "a word"), "who": text(1, 255), "body": any_object, "note_digest": DIGEST,
}  # fmt: skip


def list_of(check):
    def check_list(v):
        form(isinstance(v, list) and v, "want an array with something in it")
        for x in v:
            check(x)

    return check_list


def base64_of(what, size):
    def check(v):
        form(isinstance(v, str) and not isinstance(v, Number) and len(unbase64(v, what)) == size, f"want {what}")

    return check


# A receipt (docs/FORMAT.md, section 11).
RECEIPT = {
    "trace_id": ID, "key": text(0), "hand_overs?": list_of(text(0)), "checkpoint?": text(1), "pending?": integer(1, MAX_SAFE),
    "leaves": items({"index": integer(1, MAX_SAFE), "leaf": base64_of("a leaf", 121), "proof?": list_of(base64_of("a hash", 32))}, 1),
}  # fmt: skip


def closed(table, v):
    """Refuses an object that has other members, lacks one, or has one that may not be so."""
    any_object(v)
    known = {name.rstrip("?"): name for name in table}
    for name in sorted(known.keys() | v.keys()):
        form(name in known, f"unknown member {name[:80]!r}")
        if name in v:
            table[known[name]](v[name])
        else:
            must(known[name] != name, MISSING.get(name, "SCHEMA_VIOLATION"), f"member {name} is missing")


def entry_of(v):
    closed(ENTRY, v)
    v = {"tool_call_id": None, "idempotency_key": None, **v}
    missing = v["tool_call_id"] is None and v["artifact_type"] in TYPES[2:]
    must(not missing, "MISSING_TOOL_CALL_ID", f"a {v['artifact_type']} without tool_call_id")
    sound(digest_without(v, "entry_digest") == v["entry_digest"], "entry_digest is not that of the entry")
    return v


def artifact_of(v):
    any_object(v)
    schema = v.get("schema_id")
    kind = schema[10:] if isinstance(schema, str) and schema.startswith("talos.tga.") else ""
    form(kind in ARTIFACTS, "no artifact's schema_id")
    closed({"schema_id": text(1), **COMMON, **ARTIFACTS[kind]}, v)
    sound(digest_without(v, "_digest") == v["_digest"], "_digest is not that of the artifact")
    return kind, v


# The traces: an export (docs/FORMAT.md, section 7), and what makes entries a log.

LINES = {
    "entry": ("committed epoch entry", ""), "artifact": ("seq", "artifact erased"), "document": ("seq pointer", "json base64 erased"),
    "note": ("note", ""), "head": ("trace_id entries notes state head_digest note_digest", ""), "end": ("traces", ""),
}  # fmt: skip
EDGES = {
    ("", "action_request", ""): "PENDING", ("PENDING", "supervisor_decision", "APPROVE"): "AUTHORIZED",
    ("PENDING", "supervisor_decision", "DENY"): "DENIED", ("AUTHORIZED", "tool_call", ""): "EXECUTING",
    ("EXECUTING", "tool_effect", "SUCCESS"): "COMPLETED", ("EXECUTING", "tool_effect", "FAILURE"): "FAILED",
    ("EXECUTING", "tool_effect", "ERROR"): "FAILED", ("EXECUTING", "tool_effect", "DENIED"): "FAILED",
}  # fmt: skip
PAIRS = {(before, kind, to) for (before, kind, _), to in EDGES.items() if before} | {("PENDING", "action_request", "PENDING")}
STORED = ("/result", "/state_changes", "/evidence")


class Trace:
    """A trace while it is read: what its entries and notes lead to."""

    def __init__(self, id):
        self.id, self.state, self.plan = id, "", None
        self.entries, self.notes, self.artifacts, self.note_head = [], [], {}, 0
        self.covered_entries = self.covered_notes = 0

    def entry(self, kind):
        return next((e for e in self.entries if e["artifact_type"] == kind), None)

    def apply(self, e, artifact, documents):
        seq = len(self.entries) + 1
        there(int(e["sequence_number"]) == seq, f"entry {e['sequence_number']} follows entry {seq - 1}")
        sound(e["prev_entry_digest"] == (self.entries[-1]["entry_digest"] if self.entries else ZEROS), "prev_entry_digest is not that of the entry before")
        kind, a = artifact or (None, None)
        sound(a is None or a["_digest"] == e["artifact_digest"], "artifact_digest is not that of the artifact")
        self.check_machine(e, kind, a)
        self.check_members(e, kind, a)
        if a is not None:
            self.check_links(kind, a)
        check_documents(a, documents)
        if kind == "action_request":
            meta = a.get("meta", {})
            namespace = meta.get("namespace", "default")
            form(isinstance(namespace, str) and not isinstance(namespace, Number) and namespace, "meta.namespace is no string with characters")
            form("deadline" not in meta or is_time(meta["deadline"]), "meta.deadline is no time")
        if a is not None:
            self.plan, self.artifacts[kind] = a["plan_id"], a
        self.entries.append({k: e[k] for k in ("artifact_type", "artifact_id", "artifact_digest", "entry_digest", "idempotency_key")})
        self.state = e["to_state"]

    def check_machine(self, e, kind, a):
        before, to, of = e["from_state"], e["to_state"], e["artifact_type"]
        ok = before == (self.state or "PENDING") and (self.state == "") == (of == "action_request") and (before, of, to) in PAIRS
        if a is not None:
            verdict = {"supervisor_decision": a.get("decision"), "tool_effect": a.get("outcome", {}).get("status")}.get(kind, "") if kind == of else ""
            ok = ok and EDGES.get((self.state, of, verdict)) == to
        must(ok, "STATE_INVALID_TRANSITION", f"no edge from {self.state or 'no entry'} to {to} by {of}")

    def check_members(self, e, kind, a):
        is_call = e["artifact_type"] in TYPES[2:]
        form(e["trace_id"] == self.id, f"entry of trace {e['trace_id']}")
        form(is_call or e["tool_call_id"] is None, "tool_call_id where there is no call")
        if a is None:
            return
        form(kind == e["artifact_type"] and a[kind + "_id"] == e["artifact_id"] and a["trace_id"] == self.id, "entry and artifact differ")
        form(self.plan in (None, a["plan_id"]), "plan_id is another than before")
        form(not is_call or a["tool_call_id"] == e["tool_call_id"], "tool_call_id of entry and artifact differ")
        call = self.entry("tool_call")
        want = call and call["idempotency_key"] if kind == "tool_effect" else a.get("idempotency_key")
        form(e["idempotency_key"] == want or e["idempotency_key"] is None and kind != "tool_call", "idempotency_key of entry and artifact differ")

    def check_links(self, kind, a):
        if kind == "action_request":
            return
        name = TYPES[TYPES.index(kind) - 1]
        before = self.entry(name)
        form(a[name + "_id"] == before["artifact_id"], f"{name}_id is not that of the trace")
        sound(a[name + "_digest"] == before["artifact_digest"], f"{name}_digest is not that of the trace")
        if kind != "tool_call":
            return
        decision, request = self.artifacts.get("supervisor_decision"), self.artifacts.get("action_request")
        if decision is not None:
            token, got = decision.get("minted_capability"), a.get("capability_digest", ZEROS)
            form((token is None) == (got == ZEROS), "capability_digest without a capability, or the other way round")
            sound(token is None or sha256(token.encode()).hex() == got, "capability_digest is not that of the capability")
        if request is not None:
            form(canonical(a["call"]) == canonical(request["proposal"]), "call is not the request's proposal")
            form(request.get("idempotency_key") in (None, a["idempotency_key"]), "idempotency_key is not the request's")

    def apply_note(self, n):
        number = len(self.notes) + 1
        there(int(n["note_number"]) == number, f"note {n['note_number']} follows note {number - 1}")
        sound(n["prev_note_digest"] == (self.notes[-1] if self.notes else ZEROS), "prev_note_digest is not that of the note before")
        form(n["trace_id"] == self.id, f"note of trace {n['trace_id']}")
        digests = [e["entry_digest"] for e in self.entries]
        sound(n["head_entry_digest"] in digests, "head_entry_digest is none of the trace's")
        head = digests.index(n["head_entry_digest"])
        there(head >= self.note_head, "the head of a note is before that of the note before it")
        self.notes.append(n["note_digest"])
        self.note_head = head


def check_documents(a, documents):
    """Each document is bound by the effect, in the order of document_hashes; data None is erased."""
    must(len(documents) <= 254 and all(len(p.encode()) <= 1024 for p, _ in documents), "LIMIT_EXCEEDED", "too many documents, or too long a pointer")
    sound(a is not None or not documents, "a document of an erased artifact")
    rest, seen = list(documents), set()
    for bound in (a or {}).get("document_hashes", []):
        pointer = bound["pointer"]
        sound(pointer not in seen, f"document {pointer} is bound twice")
        seen.add(pointer)
        if not rest or rest[0][0] != pointer:
            sound(pointer not in STORED, f"document {pointer} is bound but not there")
            continue
        data = rest.pop(0)[1]
        if data is not None:
            sound(int(bound.get("size_bytes", len(data))) == len(data), f"document {pointer} has another size")
            sound(sha256(data).hex() == bound["hash"], f"document {pointer} has another digest")
    sound(not rest, "a document is not bound by document_hashes at its place")


def uint(texts, name, bits):
    ok = re.fullmatch("[0-9]{1,20}", texts[name]) and int(texts[name]) < 1 << bits
    form(ok, f"{name} is no number")
    return int(texts[name])


def string(values, name):
    v = values[name]
    form(isinstance(v, str) and not isinstance(v, Number), f"{name} is no string")
    return v


class Export:
    """Reads an export. Each trace is handed to ended once it was found to be right."""

    def __init__(self, ended):
        self.ended, self.trace, self.pending = ended, None, None
        self.lines = self.traces = self.entries = self.notes = self.documents = self.erased = 0
        self.size = self.before = 0
        self.whole = False  # the newest line is an end

    def take(self, line):
        form(not self.whole, "there is a line after the end line")
        values, texts = members(line)
        kind = string(values, "kind") if "kind" in values else ""
        form(kind in LINES, f"kind {kind[:80]!r} is none of an export")
        always, one = LINES[kind][0].split(), LINES[kind][1].split()
        form(all(name in values for name in always), f"{kind} line without one of {always}")
        form(not one or sum(name in values for name in one) == 1, f"{kind} line without exactly one of {one}")
        form(len(values) == 1 + len(always) + bool(one), f"{kind} line with other members")
        form(values.get("erased", True) is True, "erased is not true")
        if kind not in ("artifact", "document"):
            self.apply()
        getattr(self, "take_" + kind)(values, texts)
        self.lines += 1

    def take_entry(self, values, texts):
        e = entry_of(values["entry"])
        must(is_time(string(values, "committed")), "VALIDATION_ERROR", "committed is no time")
        form(re.fullmatch("[0-9]+", string(values, "epoch")) and len(values["epoch"]) < 4000 and int(values["epoch"]) < 1 << 64, "epoch is no number of 64 bits")
        self.trace = self.trace or Trace(e["trace_id"])
        form(not self.trace.notes, "entry after a note")
        self.pending = [e, False, None, []]

    def part(self, texts, behind_artifact):
        form(self.pending and self.pending[1] == behind_artifact, "artifact or document that is not in its place")
        form(uint(texts, "seq", 64) == int(self.pending[0]["sequence_number"]), "seq is not that of the entry before it")

    def take_artifact(self, values, texts):
        self.part(texts, False)
        self.pending[1] = True
        if "artifact" in values:
            self.pending[2] = artifact_of(values["artifact"])

    def take_document(self, values, texts):
        self.part(texts, True)
        pointer, data = string(values, "pointer"), None
        if "json" in values:
            form(canonical(values["json"]) == texts["json"], "json is not in canonical form")
            data = texts["json"].encode()
        elif "base64" in values:
            data = unbase64(string(values, "base64"), "base64")
        self.pending[3].append((pointer, data))

    def apply(self):
        """Checks the entry that was read, now that its parts are there."""
        if self.pending is None:
            return
        e, with_parts, artifact, documents = self.pending
        form(with_parts, "entry without its artifact line")
        self.trace.apply(e, artifact, documents)
        self.entries += 1
        self.erased += (artifact is None) + sum(data is None for _, data in documents)
        self.documents += sum(data is not None for _, data in documents)
        self.pending = None

    def take_note(self, values, texts):
        form(self.trace, "note outside a trace")
        n = values["note"]
        closed(NOTE, n)
        sound(digest_without(n, "note_digest") == n["note_digest"], "note_digest is not that of the note")
        self.trace.apply_note(n)
        self.notes += 1

    def take_head(self, values, texts):
        t = self.trace
        form(t, "head outside a trace")
        for name in ("head_digest", "note_digest"):
            must(re.fullmatch("[0-9a-f]{64}", string(values, name)), "VALIDATION_ERROR", f"{name} is no digest")
        entries, notes = uint(texts, "entries", 64), uint(texts, "notes", 32)
        form(string(values, "trace_id") == t.id, "head of another trace")
        there((entries, notes) == (len(t.entries), len(t.notes)), f"head says {entries} entries and {notes} notes, there are {len(t.entries)} and {len(t.notes)}")
        sound(values["head_digest"] == t.entries[-1]["entry_digest"], "head_digest is not that of the last entry")
        sound(values["note_digest"] == (t.notes[-1] if t.notes else ZEROS), "note_digest is not that of the last note")
        sound(string(values, "state") == t.state, "state is not that of the trace")
        self.traces += 1
        self.trace, self.size = None, 0
        self.ended(t)

    def take_end(self, values, texts):
        form(self.trace is None, "end inside a trace")
        have = self.traces - self.before
        there(uint(texts, "traces", 63) == have, f"end says {texts['traces']} traces, there are {have}")
        self.whole, self.before, self.size = True, self.traces, 0

    def end(self):
        sound(self.trace is None, "export ends inside a trace: no head line")
        sound(self.whole, "export was cut off behind a trace: no end line")


class Signed:
    """Who signed a checkpoint, and why that is believed."""

    def __init__(self, key, witnesses):
        self.key, self.witnesses, self.key_given, self.number = key, list(witnesses), key is not None, 0
        self.origin = self.keys = self.root = None
        self.size, self.cosigned, self.hand_overs, self.grew = 0, [], 0, 0

    def trust(self, origin, own):
        """Takes the reader's key, and where that is none the file's own."""
        if not self.key_given:
            try:
                self.key = Key(own)
            except ValueError as e:
                raise Refused("VALIDATION_ERROR", f"key: {e}") from None
        self.origin, self.keys = origin, Keys(origin, self.key, self.witnesses)

    def hand_over(self, note):
        try:
            self.keys.follow(note)
        except Refused as e:
            # A reader who was given a later key has no use for how that was reached.
            if self.key_given and self.hand_overs == 0 and e.code == "PERMISSION_DENIED":
                return
            raise
        self.hand_overs += 1

    def checkpoint(self, note):
        self.size, self.root, self.cosigned = self.keys.open(note)

    def includes(self, leaf, proof):
        must(len(proof) <= MAX_PROOF, "LIMIT_EXCEEDED", "a proof of too many hashes")
        ok = leaf.index <= self.size and head_from_leaf(proof, leaf.index - 1, self.size, leaf.hash) == self.root
        sound(ok, f"leaf {leaf.index} is not in the tree of the checkpoint")

    def who(self):
        """What was proved of the checkpoint and what was not, a sentence each."""
        proved, left = [], []
        if self.key_given:
            proved.append(f"The key you gave signed the checkpoint of {self.origin} with {self.size} appends.")
        else:
            proved.append(f"The key that the file itself names signed the checkpoint of {self.origin} with {self.size} appends.")
            left.append("Whose key that is. Whoever made the file could have made the key too. Get the key from the operator, and check again with it.")
        if self.hand_overs:
            proved.append(f"That key came from the first one through {self.hand_overs} hand-overs, which both keys signed.")
        proved += [f"Witness {name} signed the checkpoint." for name in self.cosigned]
        if not self.cosigned:
            left.append("Whether the store showed others another history: no witness that you trust signed the checkpoint.")
        return proved, left


class Bundle(Signed):
    """Checks a bundle. What it has after that is the report."""

    def __init__(self, file, key=None, witnesses=(), old=None):
        super().__init__(key, witnesses)
        self.file, self.old, self.head, self.size, self.grown = file, old, None, None, False
        self.leaves, self.traces = [], {}
        self.export = Export(self.trace_ended)

    def check(self):
        try:
            self.tree_lines()
            self.compare()
        except Refused as e:
            e.line = self.number
            raise
        return self

    def next_line(self, most):
        self.number += 1
        return self.file.readline(most + 1)

    def tree_lines(self):
        first = None
        while first is None:
            line = self.next_line(MAX_TREE_LINE)
            must(len(line) <= MAX_TREE_LINE, "LIMIT_EXCEEDED", f"a line of more than {MAX_TREE_LINE} bytes")
            sound(line, "the file ends before its traces")
            sound(line.endswith(b"\n"), "it ends inside a line")
            line = line[:-1]
            kind = kind_of(line)
            if self.number == 1:
                self.begin(line)
            elif self.size is None:
                form(kind in ("hand_over", "checkpoint"), f"a line of kind {kind!r} before the checkpoint")
                getattr(self, kind)(tree_line(line)["note"])
            elif kind == "prefix" and not self.leaves and not self.grown:
                self.prefix(tree_line(line))
            elif kind == "leaf":
                self.leaf(tree_line(line))
            else:
                form(kind not in KINDS, f"a line of kind {kind!r} that is not in its place")
                first = line
        if self.old is not None and self.grew == 0:
            self.grew_from(None)
        there(len(self.leaves) == self.head["leaves"], f"{len(self.leaves)} leaves, the first line says {self.head['leaves']}")
        line = first + b"\n"
        while line:
            self.export.size += len(line)
            must(len(line) <= MAX_LINE and self.export.size <= MAX_TRACE, "LIMIT_EXCEEDED", "a line or a trace that is too long")
            self.export.take(line[:-1] if line.endswith(b"\n") else line)
            line = self.next_line(MAX_LINE)
        self.export.end()

    def begin(self, line):
        form(kind_of(line) == "evidence", "this is no evidence file of tgad: it does not begin with a line of kind evidence")
        version = kind_of(line, b'{"kind":"evidence","version":"')
        if version not in ("", VERSION):
            raise Unanswered("FORMAT_TOO_NEW", f"evidence of format {version!r}, this program reads {VERSION!r}")
        h = self.head = tree_line(line)
        form(h["version"] == VERSION and h["origin"] != "", "the first line has no version, or no origin")
        ok = h["from"] <= h["to"] and (h["from"] or not h["to"]) and h["leaves"] >= 0 and h["traces"] >= 0
        form(ok and (not h["from"] or h["leaves"] > h["to"] - h["from"]), "a range that has no room for its leaves")
        self.trust(h["origin"], h["key"])

    def prefix(self, line):
        must(len(line["proof"]) <= MAX_PROOF, "LIMIT_EXCEEDED", "a proof of too many hashes")
        self.grown, size = True, line["size"]
        head, proof = base64.b64decode(line["head"]), map(base64.b64decode, line["proof"])
        ok = 1 <= size <= self.size and heads_from_prefix(proof, size, self.size, head) == (head, self.root)
        sound(ok, f"the tree of {self.size} leaves did not grow from that of {size}")
        if self.old is not None:
            self.grew_from((size, head))

    def grew_from(self, prefix):
        """Compares the reader's old checkpoint with the one that the bundle grew from."""
        size, head, _ = self.keys.open(self.old)
        there(size <= self.size, f"the old checkpoint has {size} leaves, the bundle's has {self.size}: the store was rolled back, or the bundle is older")
        same = (size != self.size or head == self.root) and (prefix is None or prefix[0] != size or prefix[1] == head)
        sound(same, f"the tree of {size} leaves had another head in the old checkpoint: what happened was rewritten")
        proved = size in (0, self.size) or (prefix is not None and prefix[0] == size)
        if not proved:
            raise Unanswered("VALIDATION_ERROR", f"the bundle has no proof that it grew from the old checkpoint of {size} leaves: export it with that checkpoint")
        self.grew = size

    def leaf(self, line):
        leaf = Leaf(unbase64(line["leaf"], "a leaf"))
        form(leaf.index == line["index"], f"index {line['index']} on the leaf of index {leaf.index}")
        form(not self.leaves or leaf.index > self.leaves[-1].index, f"leaf {leaf.index} is not behind the one before")
        form(len(self.leaves) < self.head["leaves"], "more leaves than the first line says")
        self.includes(leaf, [base64.b64decode(h) for h in line["proof"]])
        self.leaves.append(leaf)

    def trace_ended(self, t):
        t.artifacts = None
        t.entries = [e["entry_digest"] for e in t.entries]
        self.traces.setdefault(t.id, t)

    def compare(self):
        """Finds out whether the leaves are those of the traces."""
        self.number = self.others = 0
        form(self.export.traces == len(self.traces), "a trace stands in the file twice")
        there(len(self.traces) == self.head["traces"], f"{len(self.traces)} traces, the first line says {self.head['traces']}")
        for leaf in self.leaves:
            self.take(leaf)
        if self.head["from"]:
            have = {leaf.index for leaf in self.leaves}
            gone = next((i for i in range(self.head["from"], self.head["to"] + 1) if i not in have), None)
            there(gone is None, f"leaf {gone} is missing in the range from {self.head['from']} to {self.head['to']}")
        for t in self.traces.values():
            there(t.covered_entries, f"trace {t.id} has no leaf")

    def take(self, leaf):
        """Compares a leaf with its trace, and that with the leaves of it before."""
        t = self.traces.get(leaf.trace)
        if not t and not leaf.entries and not leaf.notes:  # the journal of a turn, a working state, a timer
            self.others += 1
            return
        there(t, f"leaf {leaf.index} is of trace {leaf.trace}, which is not in the file")
        first = (not leaf.entries or leaf.first_seq == t.covered_entries + 1) and (not leaf.notes or leaf.first_note == t.covered_notes + 1)
        there(first, f"a leaf of trace {t.id} before leaf {leaf.index} is missing")
        t.covered_entries += leaf.entries
        t.covered_notes += leaf.notes
        there(t.covered_entries <= len(t.entries) and t.covered_notes <= len(t.notes), f"the end of trace {t.id} was cut off: leaf {leaf.index} has more")
        for what, says, digests, n in (("entry", leaf.head, t.entries, t.covered_entries), ("note", leaf.note, t.notes, t.covered_notes)):
            if says != (digests[n - 1] if n else ZEROS):
                there(says not in digests[n:], f"leaf {leaf.index} follows a later {what} of trace {t.id} than {n}: a leaf is missing")
                sound(False, f"{what} {n} of trace {t.id} has another digest than leaf {leaf.index} says")

    def verdict(self):
        if not self.key_given:
            return "own key"
        return "proved" if all(covered(t) for t in self.traces.values()) else "not covered"

    def words(self):
        """What was proved and what was not, a sentence each."""
        (proved, left), x = self.who(), self.export
        first, last = self.head["from"], self.head["to"]
        if self.grew:
            proved.append(f"The tree grew from your old checkpoint of {self.grew} appends without a change.")
        else:
            left.append("Whether the history before this checkpoint was rewritten: you gave no older checkpoint.")
        proved.append(
            f"{len(self.leaves)} appends of {len(self.traces)} traces are in the checkpoint, and {x.entries} entries, "
            f"{x.documents} documents and {x.notes} notes are those that they had."
        )
        if self.others:
            left.append(f"What {self.others} appends did that are of no trace in the file: they changed a working state, the journal of a turn or a timer.")
        if not first:
            left.append("Whether these traces have later appends, and what other traces there are: the file holds chosen traces.")
        elif last == self.size:
            proved.append(f"From append {first} to the last one of the checkpoint, {last}, none is missing.")
        else:
            proved.append(f"From append {first} to {last} none is missing.")
            left.append(f"What happened after append {last}: the checkpoint has {self.size}.")
        for t in self.traces.values():
            if not covered(t):
                e, n = len(t.entries), len(t.notes)
                left.append(
                    f"Trace {t.id}: {e - t.covered_entries} of {e} entries and {n - t.covered_notes} of {n} notes are not covered. "
                    "They came after the checkpoint."
                )
        if x.erased:
            left.append(f"What {x.erased} erased artifacts and documents said. Their digests are proved.")
        left.append(
            "Whether the tools told the truth, whether the store's clock was right, and the members committed and epoch of the export, "
            "which stand under no digest."
        )
        return proved, left

    def report(self):
        """What the check found, as JSON for other programs."""
        x = self.export
        proved, left = self.words()
        return {
            "verdict": self.verdict(), "origin": self.origin, "size": self.size, "hand_overs": self.hand_overs, "cosigned": self.cosigned, "grew_from": self.grew,
            "from": self.head["from"], "to": self.head["to"], "leaves": len(self.leaves), "entries": x.entries, "notes": x.notes, "documents": x.documents,
            "erased": x.erased, "proved": proved, "not_proved": left,
            "traces": [[t.id, len(t.entries), t.covered_entries, len(t.notes), t.covered_notes, t.state] for t in self.traces.values()],
        }  # fmt: skip


def covered(t):
    return t.covered_entries == len(t.entries) and t.covered_notes == len(t.notes)


class Receipt(Signed):
    """Checks a receipt: where the appends of one trace stand in the tree."""

    def __init__(self, raw, key=None, witnesses=(), old=None):
        super().__init__(key, witnesses)
        self.raw, self.old, self.trace = raw, old, None
        self.appends, self.pending, self.now, self.proved = 0, 0, (0, 0), (0, 0, ZEROS)

    def check(self):
        must(len(self.raw) <= MAX_RECEIPT, "LIMIT_EXCEEDED", f"receipt of over {MAX_RECEIPT} bytes")
        try:
            r, _ = members(self.raw)
            closed(RECEIPT, r)
        except Refused as e:
            raise Refused("SCHEMA_VIOLATION", f"receipt: {e}") from None
        if self.old is not None:
            raise Unanswered("VALIDATION_ERROR", "a receipt does not say what its store grew from: export an evidence file with the old checkpoint")
        self.trace = r["trace_id"]
        # A receipt has no member for its origin: the checkpoint says it, or where that is none the first hand-over.
        lines = r["checkpoint"].split("\n") if "checkpoint" in r else r.get("hand_overs", [""])[0].split("\n")[1:]
        self.trust(lines[0] if lines else "", r["key"])
        self.origin = self.keys.origin
        for note in r.get("hand_overs", ()):
            self.hand_over(note)
        if "checkpoint" in r:
            self.checkpoint(r["checkpoint"])
        before = None
        for line in r["leaves"]:
            leaf = Leaf(base64.b64decode(line["leaf"]))
            self.take(leaf, int(line["index"]), [base64.b64decode(h) for h in line.get("proof", ())], before)
            before = leaf
        form(self.pending == int(r.get("pending", 0)), f"{self.pending} appends came after the checkpoint, the receipt says {r.get('pending', 0)}")
        return self

    def take(self, leaf, index, proof, before):
        nothing = leaf.entries == 0 and leaf.notes == 0
        form(leaf.trace == self.trace and not nothing, f"leaf {leaf.index} is none of trace {self.trace}")
        form(leaf.index == index and (before is None or index > before.index), f"leaf {leaf.index} stands as that of index {index}")
        entries, notes = self.now
        first = (not leaf.entries or leaf.first_seq == entries + 1) and (not leaf.notes or leaf.first_note == notes + 1)
        head, note = (before.head, before.note) if before else (ZEROS, ZEROS)
        there(first and (leaf.entries or leaf.head == head) and (leaf.notes or leaf.note == note), f"an append of the trace is missing before leaf {index}")
        self.now = entries + leaf.entries, notes + leaf.notes
        if index > self.size:
            must(len(proof) <= MAX_PROOF, "LIMIT_EXCEEDED", "a proof of too many hashes")
            form(not proof, f"leaf {index} has a proof, and came after the checkpoint of {self.size}")
            self.pending += 1
            return
        self.includes(leaf, proof)
        self.appends += 1
        self.proved = *self.now, leaf.head

    def report(self):
        """What the check found, as JSON for other programs."""
        verdict = "own key" if self.appends and not self.key_given else "not covered" if self.pending else "proved"
        proved, left = self.who() if self.appends else ([], [])
        entries, notes, head = self.proved
        if self.appends:
            proved.append(
                f"The first {self.appends} appends of trace {self.trace} are in it. After them the trace had {entries} entries "
                f"and {notes} notes, the last entry with digest {head}."
            )
        if self.pending:
            left.append(f"{self.pending} appends of trace {self.trace}: no checkpoint covered them when the receipt was given. Ask for it again.")
        left.append("What the entries say, which is in an evidence file, and whether the trace has later appends.")
        return {
            "verdict": verdict, "origin": self.origin, "size": self.size, "hand_overs": self.hand_overs, "cosigned": self.cosigned,
            "trace": self.trace, "appends": self.appends, "pending": self.pending, "entries": entries, "notes": notes, "head": head,
            "proved": proved, "not_proved": left,
        }  # fmt: skip


def check_file(file, key=None, witnesses=(), old=None):
    """The report on an open file; verdict is refused, with a code, where it is not believed."""
    file = io.BufferedReader(file)
    head = file.peek(512)[:512]
    if head.lstrip(b" \t\r\n").startswith(b"{") and not kind_of(head):
        b = Receipt(file.read(MAX_RECEIPT + 1), key, witnesses, old)
    else:
        b = Bundle(file, key, witnesses, old)
    try:
        return b.check().report()
    except Refused as e:
        return {"verdict": "refused", "code": e.code, "line": e.line, "message": str(e), "damage": not isinstance(e, Unanswered)}


SAYS = {
    "proved": "PROVED", "not covered": "NOT ALL IS COVERED", "own key": "NOT PROVED: it agrees with itself, but only it says whose key signed it",
    "refused": "REFUSED",
}  # fmt: skip


def clean(s):
    """Text of a file that may want to play with the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in s)


def tell(path, r):
    print(f"{clean(path)}: {SAYS[r['verdict']]}")
    if r["verdict"] == "refused":
        print(f"  {'line %d: ' % r['line'] if r['line'] else ''}{clean(r['message'])} ({r['code']})")
        print("Nothing else in the file is believed.")
        return
    print("Proved:")
    for s in r["proved"]:
        print("  " + clean(s))
    print("Not proved:")
    for s in r["not_proved"]:
        print("  " + clean(s))


def main(args):
    p = argparse.ArgumentParser(description="Check evidence from a tgad store.")
    p.add_argument("file", nargs="+")
    p.add_argument("--key", help="the store's public key, which you got from its operator")
    p.add_argument("--witness", action="append", default=[], metavar="KEY", help="the public key of a witness that you trust; repeat it for each")
    p.add_argument("--checkpoint", metavar="FILE", help="a checkpoint that you kept from before")
    p.add_argument("--json", action="store_true", help="one JSON object for each file")
    o = p.parse_args(args)
    try:
        key = Key(o.key.strip()) if o.key else None
        witnesses = [Key(w.strip(), witness=True) for w in o.witness]
    except ValueError as e:
        p.error(str(e))
    try:
        old = open(o.checkpoint, encoding="utf-8", newline="").read() if o.checkpoint else None
    except (OSError, ValueError) as e:
        print(f"verify.py: {o.checkpoint}: {e}", file=sys.stderr)
        return 1
    worst = 0
    for path in o.file:
        try:
            with open(path, "rb", buffering=0) as f:
                r = check_file(f, key, witnesses, old)
        except OSError as e:
            print(f"verify.py: {e}", file=sys.stderr)
            worst = max(worst, 1)
            continue
        if o.json:
            print(json.dumps({"file": path, **r}))
        else:
            tell(path, r)
        bad = 0 if r["verdict"] == "proved" else 3 if r.get("damage") else 1
        worst = max(worst, bad)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
