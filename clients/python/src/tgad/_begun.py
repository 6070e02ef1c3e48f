"""A call that the caller sends itself, between its begin and its report."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional

from . import _verbs
from ._codes import EffectInDoubt, LimitExceeded, PolicyViolation
from ._errors import Error
from ._exchange import Steps
from ._json import encode, parse, plain
from ._result import Result

#: How long a report from an except block may take, in seconds.
LAST_WORD = 5.0


class NotSent(Exception):
    """Raise it if certainly nothing reached the tool. The call then ends as not sent, and its key can be used
    again."""


class Begun:
    """What the daemon answered to a begin. Send only if `standing` is "send", and send only once.

    The other standings are serve (`call` has the recorded answer), wait, needs_approval, denied,
    conflict and in_doubt.
    """

    def __init__(self, begun: Mapping[str, Any]) -> None:
        #: What you are to do.
        self.standing: str = begun["standing"]
        #: Where the call stands; with serve it has the recorded answer.
        self.call: Result = begun["call"]
        #: Why it may not be sent.
        self.cause: Optional[Error] = begun["cause"]
        #: The number of this attempt.
        self.attempt: Optional[int] = begun.get("attempt")
        #: The key to send with the call.
        self.key: Optional[str] = begun.get("idempotency_key")
        #: The arguments to send, byte for byte.
        self.args_raw: Optional[bytes] = begun["args"].encode("utf-8") if begun["args"] else None
        #: Your name of this begin: the same again finds the same call.
        self.begin_id: str = begun["begin_id"]
        self.permit: Optional[str] = begun.get("permit")
        self.reported = False
        #: The report that was made last, where it may be made again: no answer came, or one that is not final.
        self._unheard: Optional[Callable[[float], Steps[Any]]] = None
        self._begun: Dict[str, Any] = dict(begun)

    @property
    def trace_id(self) -> Optional[str]:
        """The id of the call."""
        return self.call.trace_id

    @property
    def args(self) -> Any:
        """The arguments to send, as values."""
        return None if self.args_raw is None else parse(self.args_raw)

    def late(self) -> bool:
        """Whether it is too late to send. Ask this last, directly before you send. If it is too late, report
        `not_sent`."""
        within = self._begun.get("send_within_ms")
        return within is not None and any(now - asked >= within / 1000 for now, asked in zip(_verbs.clocks(), self._begun["asked"]))

    def check(self) -> None:
        """Raises the error that says why the call may not be sent and has no record; returns where
        the standing is send or serve."""
        if self.standing in ("send", "serve"):
            return
        if self.cause is not None:
            if self.cause.trace_id is None:
                self.cause.trace_id = self.trace_id
            raise self.cause
        if self.standing == "denied":
            raise PolicyViolation(self.call.call.get("rationale", "a supervisor denied the call"), call=self.call)
        raise EffectInDoubt(f"the standing of the call is {self.standing}", call=self.call)

    def finish_steps(self, value: Any, raw: Optional[bytes], status: str, facts: Mapping[str, Any], timeout: float) -> Steps[Result]:
        """The steps of `finish`. An answer that is too long for the daemon is recorded by its digest:
        the call has run, and that must not get lost. A daemon that is only too busy gets it whole, later."""
        texts = _verbs.outcome(status, value, raw, facts)
        try:
            return (yield from self._report("finish", texts, timeout))
        except LimitExceeded as error:
            if error.retryable or "result_base64" not in texts:
                raise
        return (yield from self._report("finish", _verbs.by_digest(texts), timeout))

    def not_sent_steps(self, reason: str, timeout: float) -> Steps[Result]:
        """The steps of `not_sent`."""
        return self._report("not-sent", {"reason": encode(plain(reason))}, timeout)

    def give_up_steps(self, cause: str, timeout: float) -> Steps[None]:
        """The steps of `give_up`."""
        trace, permit = self._held()
        yield from _verbs.give_up(trace, permit, cause, timeout)
        self.reported = True

    def leaving_steps(self, error: Optional[BaseException]) -> Optional[Steps[Any]]:
        """What is reported where the block ends without a report, None for nothing."""
        if self.standing != "send" or self.reported:
            return None
        if self._unheard is not None:
            return self._unheard(LAST_WORD)  # the outcome of the call is known; giving up would lose it
        if isinstance(error, NotSent):
            return self.not_sent_steps(str(error), LAST_WORD)
        why = "its block ended without a report" if error is None else f"{type(error).__name__}: {error}"
        return self.give_up_steps(why, LAST_WORD)

    def left_open(self, error: Optional[BaseException]) -> bool:
        """Whether the block ended without an error and without a report. Ask it after the leaving steps."""
        return error is None and not (self.reported and self._unheard is not None)

    def _report(self, verb: str, texts: Mapping[str, str], timeout: float) -> Steps[Result]:
        trace, permit = self._held()
        self._unheard = lambda within: self._report(verb, texts, within)
        try:
            result = yield from _verbs.report(trace, verb, {"permit": encode(permit), **texts}, timeout)
        except Error as error:
            if not error.retryable:
                self._unheard = None
            raise
        self.reported = True
        self.call = result
        return result

    def _held(self) -> "tuple[str, str]":
        if self.permit is None or self.trace_id is None:
            raise RuntimeError(f"there is nothing to report: the standing of the call is {self.standing}, and only send permits a send")
        return self.trace_id, self.permit


#: What ends a block without a report.
UNREPORTED = "the block ended without finish(), not_sent() or give_up(): the call is in doubt"


#: The reason of the report that returns the permit of a begin whose caller has stopped waiting.
TAKEN_BACK = "the caller stopped waiting for the permit, and sent nothing"


def last_word(run: Callable[[], object]) -> None:
    """Makes a report that another error must not hide: without it the call is in doubt all the
    same, only later."""
    try:
        run()
    except (Error, OSError):
        pass
