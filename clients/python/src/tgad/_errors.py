"""The one base class of what the daemon refuses. _codes.py has a class for each code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional

if TYPE_CHECKING:
    from ._result import Result
    from ._wire import Problem


class Error(Exception):
    """A refusal, with the code that says why. Catch the class of a code, or compare `code`."""

    #: The stable code, as in "EFFECT_IN_DOUBT".
    code: str = ""
    #: Whether the same request may succeed later. The daemon says so in its refusal; for an error that was made
    #: here it follows from the code.
    retryable: bool = False

    def __init__(
        self,
        detail: str,
        *,
        code: Optional[str] = None,
        problem: Optional[Problem] = None,
        call: Optional[Result] = None,
        trace_id: Optional[str] = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code
        #: The whole refusal as it travelled; None where it was made here.
        self.problem = problem
        self._facts: Dict[str, Any] = dict(problem or {})
        self.retryable = self._facts.get("retryable", self.retryable)
        #: What is known of the call that the request was about.
        self.call = call
        #: The trace that it is about.
        self.trace_id = trace_id or self._facts.get("trace_id") or (call.trace_id if call else None)

    def __str__(self) -> str:
        pointer = self._facts.get("pointer")
        return f"{self.code}: {self.detail}" + (f" (at {pointer})" if pointer else "")

    @property
    def causes(self) -> List[str]:
        """The codes of the errors behind this one."""
        return list(self._facts.get("causes", []))

    @property
    def retry_after(self) -> float:
        """For how many seconds the tool server asked to be left alone; 0 if it did not ask."""
        return float(self._facts.get("retry_after_ms", 0)) / 1000
