"""The verbs of the protocol, for both clients. No input or output happens here."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union, cast
from urllib.parse import quote, urlencode

from ._codes import StateChecksumMismatch
from ._exchange import FIRST_PAUSE, LONGEST_PAUSE, Request, Sleep, Steps, Unheard, exchange, is_time
from ._json import encode, members, parse, plain
from ._result import Result, error_of
from ._wire import Approval, Entry, ExecutionState, OpenTrace, Receipt, Timeline

#: The arguments of a call: an object, or the JSON text of one, which travels as it is.
Args = Union[Mapping[str, Any], bytes, None]
#: Until when a call may be sent: a time with a zone, or how long from now.
Deadline = Union[datetime, timedelta, None]


class Missing:
    """The type of MISSING: nothing was given, which is not None."""


MISSING = Missing()


def default_socket(socket: Optional[str]) -> str:
    """The socket that was named; else the one that the command tgad takes."""
    path = socket or os.environ.get("TGAD_SOCKET")
    return path or os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/run", "tgad", "tgad.sock")


def wanted(server: str, tool: str, args: Args, key: Optional[str], deadline: Deadline, more: Mapping[str, Any]) -> Dict[str, str]:
    """The members of a request for a call, each as JSON text."""
    message: Dict[str, Any] = {"tool_server": server, "tool_name": tool, "idempotency_key": key, **more}
    if deadline is not None:
        message["deadline"] = timestamp(deadline)
    texts = {name: encode(value) for name, value in message.items() if value is not None}
    if args is not None:
        texts["args"] = encode(args if isinstance(args, bytes) else dict(args))
    return texts


def timestamp(deadline: Union[datetime, timedelta]) -> str:
    """A time as the protocol writes it."""
    if not isinstance(deadline, (datetime, timedelta)):
        raise TypeError(f"a deadline is a datetime with a time zone, or a timedelta from now, not {deadline!r}")
    if isinstance(deadline, timedelta):
        deadline = datetime.now(timezone.utc) + deadline
    if deadline.tzinfo is None:
        raise ValueError("a deadline needs a time zone: datetime.now(timezone.utc) + …")
    return deadline.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{deadline.microsecond // 1000:03d}Z"


#: The longest wait, in seconds: 2^31 milliseconds, 24 days. A longer one is made as long.
LONGEST = (2**31 - 1) / 1000


def within(timeout: float) -> float:
    """A time to wait that a timer can hold."""
    if timeout != timeout:
        raise ValueError("a timeout is a number of seconds, not NaN")
    return min(timeout, LONGEST)


def new_trace_id() -> str:
    """A UUIDv7."""
    text = f"{int(time.time() * 1000):012x}7{secrets.randbits(12):03x}{0b10 << 62 | secrets.randbits(62):016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def post(path: str, texts: Mapping[str, str], again: bool = True) -> Request:
    """A request whose members are JSON texts."""
    body = ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items())
    return Request("POST", path, ("{" + body + "}").encode("utf-8"), again)


def get(path: str, **query: Optional[str]) -> Request:
    """A request that reads."""
    given = {name: value for name, value in query.items() if value}
    return Request("GET", path + ("?" + urlencode(given) if given else ""))


def trace_path(trace: str, rest: str = "") -> str:
    """The path of something of a trace."""
    return "/v1/traces/" + quote(trace, safe="") + rest


def call(texts: Mapping[str, str], timeout: float) -> Steps[Result]:
    """Makes a governed call. A repeat names the trace of the first request, so it is the same call
    whatever the first one did, and the answer is about that trace."""
    texts = {"trace_id": encode(new_trace_id()), **texts}
    return Result((yield from exchange(post("/v1/tool-calls", texts), timeout)))


def clocks() -> Tuple[float, float]:
    """The monotonic and the wall clock. The first stands still on many systems while the machine sleeps, and the
    second can be set back: of two such readings the larger difference counts."""
    return time.monotonic(), time.time()


def begin(texts: Mapping[str, str], begin_id: str, timeout: float, unheard: Unheard) -> Steps[Dict[str, Any]]:
    """Asks for permission to send a call, and asks again while another executor executes it. Whenever it is
    left, `unheard` says whether the call may have been permitted."""
    request = post("/v1/begin", {**texts, "begin_id": encode(begin_id)})
    end = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while True:
        asked = clocks()
        answer = members((yield from unheard.watch(exchange(request, max(end - asked[0], 0.001)))))
        cause, result, args = answer.pop("cause", None), Result(answer.pop("call")), answer.pop("args", None)
        begun: Dict[str, Any] = {name: parse(text) for name, text in answer.items()}
        begun.update(asked=asked, call=result, cause=error_of(cause) if cause else None, args=args, begin_id=begin_id)
        if begun["standing"] != "wait" or not is_time(pause, end):
            return begun
        unheard.may = False
        yield Sleep(pause)
        if not is_time(0, end):  # the pause took longer than planned
            return begun
        pause = min(2 * pause, LONGEST_PAUSE)


def outcome(status: str, value: Any, raw: Optional[bytes], facts: Mapping[str, Any]) -> Dict[str, str]:
    """The members that describe the outcome of a call. The answer is always sent as bytes, so that every
    byte is kept, whether it is JSON or not."""
    if raw is None and value is not MISSING:
        raw = encode(value).encode("utf-8")
    texts = {"status": encode(status)}
    if raw is not None:
        texts["result_base64"] = encode(base64.b64encode(raw).decode("ascii"))
    texts.update({name: encode(plain(fact) if isinstance(fact, str) else fact) for name, fact in facts.items() if fact is not None})
    return texts


def by_digest(texts: Mapping[str, str]) -> Dict[str, str]:
    """The same members with the length and the digest of an answer in its place."""
    raw = base64.b64decode(parse(texts["result_base64"]))
    rest = {name: text for name, text in texts.items() if name != "result_base64"}
    return {**rest, "result_bytes": encode(len(raw)), "result_digest": encode(hashlib.sha256(raw).hexdigest())}


def report(trace: str, verb: str, texts: Mapping[str, str], timeout: float) -> Steps[Result]:
    """Reports about an attempt, which the permit names. A repeated report gets the same answer as the first."""
    return Result((yield from exchange(post(trace_path(trace, "/" + verb), texts), timeout)))


def give_up(trace: str, permit: str, cause: str, timeout: float) -> Steps[None]:
    """Reports that the outcome of an attempt is unknown."""
    texts = {"permit": encode(permit), "cause": encode(plain(cause))}
    yield from exchange(post(trace_path(trace, "/give-up"), texts), timeout)


def recover(trace: str, timeout: float) -> Steps[Result]:
    """Continues a call from where it was left."""
    return Result((yield from exchange(post(trace_path(trace, "/recover"), {}), timeout)))


def delivered(trace: str, timeout: float) -> Steps[None]:
    """Reports that an answer has reached its caller."""
    yield from exchange(post(trace_path(trace, "/delivered"), {}), timeout)


def once(trace: str, verb: str, texts: Mapping[str, str], timeout: float) -> Steps[Result]:
    """A person's decision. It is not repeated automatically: a repeated vote would be another vote."""
    return Result((yield from exchange(post(trace_path(trace, "/" + verb), texts, again=False), timeout)))


def vote(approve: bool, rationale: str, about: Optional[str]) -> Dict[str, str]:
    """The members of a decide."""
    texts = {"approve": encode(approve), "rationale": encode(rationale)}
    if about is not None:
        texts["about"] = encode(about)
    return texts


def resolution(
    value: Any, raw: Optional[bytes], status: str, evidence: Any, attempts: Optional[int], facts: Mapping[str, Any]
) -> Dict[str, str]:
    """The members of a resolve."""
    texts = outcome(status, value, raw, facts)
    if isinstance(evidence, bytes):
        texts["evidence_base64"] = encode(base64.b64encode(evidence).decode("ascii"))
    else:
        texts["evidence"] = encode(evidence)
    if attempts is not None:
        texts["attempts"] = encode(attempts)
    return texts


def show(trace: str, timeout: float) -> Steps[Timeline]:
    """Everything about one trace."""
    return cast(Timeline, parse((yield from exchange(get(trace_path(trace)), timeout))))


def state(trace: str, timeout: float) -> Steps[ExecutionState]:
    """The execution state of a trace, its digest checked."""
    text = yield from exchange(get(trace_path(trace, "/state")), timeout)
    found = cast(ExecutionState, parse(text))
    sealed = {name: value for name, value in found.items() if name != "state_digest"}
    # Its names are ASCII and its numbers are small: this is the canonical form.
    digest = hashlib.sha256(json.dumps(sealed, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()
    if digest != found["state_digest"]:
        raise StateChecksumMismatch(f"the state has the digest {digest}, and says {found['state_digest']}", trace_id=trace)
    return found


def receipt(trace: str, timeout: float) -> Steps[Receipt]:
    """The proofs of where a trace stands in the tree of the store."""
    return cast(Receipt, parse((yield from exchange(get(trace_path(trace, "/receipt")), timeout))))


def in_doubt(timeout: float) -> Steps[List[OpenTrace]]:
    """The calls that may have run and have no recorded effect."""
    return cast(List[OpenTrace], parse((yield from exchange(get("/v1/in-doubt"), timeout)))["traces"])


def approvals(timeout: float) -> Steps[List[Approval]]:
    """What waits for people."""
    return cast(List[Approval], parse((yield from exchange(get("/v1/approvals"), timeout)))["approvals"])


def ready(timeout: float) -> Steps[None]:
    """Waits until the daemon takes calls."""
    yield from exchange(get("/readyz"), timeout)


TERMINAL = ("COMPLETED", "FAILED", "DENIED")


class Followed:
    """The position of a follower. It continues after the last line that it yielded, over any number of
    connections. So it misses no line and yields none twice."""

    def __init__(self, trace: Optional[str], after: Union[str, int, None]) -> None:
        self._trace = trace
        self._after = str(after) if after is not None else None
        self._over = False
        self.pause = FIRST_PAUSE

    def opening(self) -> Optional[Request]:
        """What is asked before the next connection, None for nothing: where the log ends now, for a follower that begins
        there. Without that number a break before the first line would move the beginning to the end of then."""
        return get("/metrics") if self._trace is None and self._after == "newest" else None

    def find(self, line: bytes) -> None:
        """Reads a line of the answer to the opening."""
        if line.startswith(b"tgad_log_cursor "):
            self._after = str(int(float(line.split()[1])))

    def request(self) -> Request:
        """The request of the next connection."""
        path = "/v1/log" if self._trace is None else trace_path(self._trace, "/entries")
        return get(path, after=self._after, follow="1")

    def take(self, line: bytes) -> Optional[Any]:
        """Reads a line. Returns None for a keep-alive. Raises the error in the last line of a stream that is cut."""
        if not line.strip():
            return None
        text = line.decode("utf-8")
        if text.startswith('{"problem":'):
            raise error_of(members(text)["problem"])
        item = parse(text)
        if self._trace is None:
            self._after = item["cursor"]
        else:
            entry = cast(Entry, item)["entry"]
            self._after, self._over = str(entry["sequence_number"]), entry["to_state"] in TERMINAL
        self.pause = FIRST_PAUSE
        return item

    def end(self) -> None:
        """The answer has come to its end, and no problem cut it. For a trace this means that it has ended."""
        self._over = self._trace is not None

    def over(self) -> bool:
        """Whether nothing more comes: the trace has ended."""
        return self._over

    def rest(self) -> float:
        """How long to wait before the next connection."""
        pause, self.pause = self.pause, min(2 * self.pause, LONGEST_PAUSE)
        return pause
