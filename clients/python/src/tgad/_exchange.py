"""How a request is sent, and when it is sent again. No input or output happens here.

A verb is a generator. It yields what is to be done, a Send or a Sleep, and gets the answer; so the
rules stand once, for the client that blocks and for the one that does not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Dict, Generator, List, Optional, TypeVar, Union

from ._codes import IdempotencyKeyInFlight, StateConflict
from ._errors import Error
from ._json import plain
from ._result import Unreachable, error_of

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A request. `again` says that it may be repeated although the first one may have arrived: the
    daemon answers the repeat like the first. Without `again`, the first answer of the daemon counts."""

    method: str
    path: str
    body: Optional[bytes] = None
    again: bool = True


def own_headers(name: str, receipts: bool) -> Dict[str, str]:
    """The headers that a client sends with each request. Characters of the name that would end the line become spaces."""
    return {"Tgad-Client": "".join(" " if c < " " or c == "\x7f" else c for c in plain(name)), **({"Tgad-Receipt": "wanted"} if receipts else {})}


@dataclass(frozen=True)
class Send:
    """A request to send now, and how many seconds its answer may take."""

    request: Request
    timeout: float
    #: The time that the daemon is given: a little less, so that its answer arrives in time.
    wait: float

    def headers(self, own: Dict[str, str]) -> Dict[str, str]:
        """The headers of the request, with those that the client sends with each."""
        headers = {**own, "Tgad-Timeout": f"{max(1, int(self.wait * 1000))}ms"}
        if self.request.body is not None:
            headers["Content-Type"] = "application/json"
        return headers


@dataclass(frozen=True)
class Sleep:
    """A pause before the next step."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    retry_after: float = 0


def pause_of(header: Optional[str]) -> float:
    """The seconds that the header Retry-After asks for. What is not a whole number, for example a date, counts as 0."""
    return float(header) if header and header.isascii() and header.isdigit() else 0.0


def take_lines(rest: bytearray, part: bytes) -> List[bytes]:
    """The lines that end in this part of an answer. `rest` has the beginning of the first one, and then of the next one."""
    lines = []
    *ends, begins = part.split(b"\n")
    for end in ends:
        lines.append(bytes(rest) + end)
        rest.clear()
    rest += begins
    return lines


class Broken(Exception):
    """A connection gave no answer. `sent` says whether the daemon may have the request."""

    def __init__(self, cause: object, sent: bool) -> None:
        super().__init__(str(cause))
        self.sent = sent


class Closed(Broken):
    """The client was closed: nothing is asked again."""


Steps = Generator[Union[Send, Sleep], Answer, T]


class Unheard:
    """Whether the daemon may have acted on a request although the caller has no answer."""

    def __init__(self) -> None:
        self.may = False

    def watch(self, steps: Steps[T]) -> Steps[T]:
        """The same steps. Wherever they are left, `may` is right."""
        try:
            step = next(steps)
            while True:
                before = self.may
                self.may = before or isinstance(step, Send)
                try:
                    answer = yield step
                except Broken as broken:
                    self.may = before or broken.sent
                    step = steps.throw(broken)
                else:
                    if isinstance(step, Send) and answer.status >= 300:
                        self.may = before  # a refusal of this send does not say what an earlier send did
                    step = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

#: The pauses between two sends, in seconds: the first, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


def is_time(pause: float, end: float) -> bool:
    """Whether there is time left for the answer to a repeat after a pause. If not, the last answer counts:
    a repeat would only turn it into a time-out."""
    return time.monotonic() + pause + FIRST_PAUSE <= end


def exchange(request: Request, timeout: float) -> Steps[str]:
    """Sends a request until it has an answer that counts, for at most so many seconds.

    The text of the answer is returned; a refusal is raised. A request is sent again, byte for
    byte, where nothing of it was sent, or where its repeat is answered as the first one; and
    where the daemon says that it may succeed later.
    """
    end = time.monotonic() + timeout
    pause = FIRST_PAUSE
    sent = False  # whether the daemon may have the request; a repeat that was not sent does not reset it
    while True:
        left = max(end - time.monotonic(), 0.001)
        send = Send(request, left, left - min(left / 4, 1.0))
        failure: Error
        try:
            answer = yield send
        except Broken as broken:
            failure = Unreachable(f"{request.method} {request.path}: {broken}")
            failure.sent = sent = sent or broken.sent
            final = isinstance(broken, Closed) or broken.sent and not request.again
        else:
            if answer.status < 300:
                return answer.body.decode("utf-8")
            failure = refusal(request, answer)
            sent = sent or isinstance(failure, Unreachable)
            # A refusal may be about what followed a vote. The answer to a second vote would hide that the first one counts.
            final = not request.again or not may_repeat(failure, answer, send.timeout - (end - time.monotonic()) >= send.wait * 0.9)
            pause = max(pause, answer.retry_after)
        if final or not is_time(pause, end):
            raise failure
        yield Sleep(pause)
        if not is_time(0, end):  # the pause took longer than planned
            raise failure
        pause = min(2 * pause, LONGEST_PAUSE)


def refusal(request: Request, answer: Answer) -> Error:
    """The error for an answer that is not valid."""
    try:
        return error_of(answer.body.decode("utf-8"))
    except ValueError:
        failure = Unreachable(f"{request.method} {request.path}: status {answer.status}: {answer.body[:200]!r}")
        failure.sent = True
        return failure


def may_repeat(failure: Error, answer: Answer, waited: bool) -> bool:
    """Whether the same request may succeed within the time that is left."""
    if isinstance(failure, IdempotencyKeyInFlight) and waited:
        return False  # the daemon has waited as long as the caller wanted
    if isinstance(failure, StateConflict):
        return False  # the caller must first read again what it changes
    return failure.retryable or answer.status == 503
