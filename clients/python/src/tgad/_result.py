"""Where a call stands."""

from __future__ import annotations

import base64
from typing import Any, Optional, cast

from ._codes import CLASSES, PolicyViolation, StateError, StoreUnavailable
from ._errors import Error
from ._json import members, parse
from ._wire import Call, Problem, Receipt


class Unreachable(StoreUnavailable):
    """No answer came. The daemon may have the request, and the call may go on.

    Make the same call again, with the same key: it is not sent twice.
    """

    #: Whether the daemon may have the request.
    sent: bool = False


class Result:
    """Where a call stands. `raw` is the tool's answer byte for byte, `value` is what it says."""

    def __init__(self, text: str) -> None:
        own = members(text)
        answer, kept = own.pop("result", None), own.pop("result_base64", None)
        #: The answer of the daemon, without the tool's own answer.
        self.call: Call = cast(Call, {name: parse(value) for name, value in own.items()})
        #: The tool's answer, byte for byte; None where it has none, or none is kept.
        self.raw: Optional[bytes] = None
        if kept is not None:
            self.raw = base64.b64decode(parse(kept), validate=True)
        elif answer is not None:
            self.raw = answer.encode("utf-8")

    def __repr__(self) -> str:
        return f"<tgad.Result {self.trace_id} {self.state} {self.status}>"

    @property
    def value(self) -> Any:
        """The tool's answer, read as JSON; ValueError where it is none. No number changes."""
        return None if self.raw is None else parse(self.raw.decode("utf-8"))

    @property
    def trace_id(self) -> Optional[str]:
        """The id of the call."""
        return self.call.get("trace_id")

    @property
    def state(self) -> Optional[str]:
        """PENDING, AUTHORIZED, EXECUTING, COMPLETED, FAILED or DENIED."""
        return self.call.get("state")

    @property
    def status(self) -> Optional[str]:
        """What the tool said: SUCCESS, FAILURE, DENIED or ERROR."""
        return self.call.get("status")

    @property
    def key(self) -> Optional[str]:
        """The idempotency key."""
        return self.call.get("idempotency_key")

    @property
    def replayed(self) -> bool:
        """Whether this is a recorded answer, for which nothing was sent now."""
        return self.call["replayed"]

    @property
    def receipt(self) -> Optional[Receipt]:
        """Where the call stands in the signed tree of the store, for a client with `receipts`; see Client.receipt."""
        return self.call.get("receipt")

    @property
    def ok(self) -> bool:
        """Whether the tool succeeded."""
        return self.status == "SUCCESS"

    def check(self) -> Result:
        """Returns this where the tool succeeded, else raises the error that is recorded."""
        if self.ok:
            return self
        if self.state == "DENIED":
            raise PolicyViolation(self.call.get("rationale", "a supervisor denied the call"), call=self)
        code = self.call.get("error_code", "TOOL_ERROR")
        detail = self.call.get("error_message") or self.call.get("summary") or f"the call is {self.state}"
        raise CLASSES.get(code, Error)(detail, code=code, call=self)


def error_of(text: str) -> Error:
    """Makes the error of a problem document."""
    own = members(text)
    call = own.pop("call", None)
    problem = cast(Problem, {name: parse(value) for name, value in own.items()})
    code = problem.get("code")
    if not isinstance(code, str):
        return StateError(f"the daemon's answer is not a problem document: {text[:200]}")
    result = Result(call) if call is not None else None
    return CLASSES.get(code, Error)(problem.get("detail", ""), code=code, problem=problem, call=result)
