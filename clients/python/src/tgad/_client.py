"""The client that blocks."""

from __future__ import annotations

import threading
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Type, TypeVar

from . import _verbs
from ._begun import LAST_WORD, TAKEN_BACK, UNREPORTED, Begun, last_word
from ._errors import Error
from ._exchange import Broken, Closed, Steps, Unheard, own_headers
from ._json import encode
from ._result import Result, Unreachable
from ._sync import Wires
from ._verbs import MISSING, Args, Deadline
from ._wire import Approval, Entry, ExecutionState, LogLine, OpenTrace, Receipt, Timeline

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._requests import BeginMore, More

T = TypeVar("T")


class Client:
    """A connection to a daemon, for any number of threads.

    `timeout` is how many seconds a method waits for its answer; each method also takes a `timeout` for itself.
    When that time is over, or another thread calls `close`, only the waiting ends: the call goes on. To learn
    what became of it, make it again with the same key. If the waiting for a begin ends in this way, or by an
    exception such as KeyboardInterrupt, the client returns the permit in a thread of its own.

    With `receipts` each result has its receipt. A checkpoint covers a call some seconds later; from then on the
    method `receipt` has the proofs.
    """

    def __init__(self, socket: Optional[str] = None, *, name: str = "tgad-python", timeout: float = 30.0, receipts: bool = False) -> None:
        self._socket, self._headers = _verbs.default_socket(socket), own_headers(name, receipts)
        self._wires = Wires(self._socket, self._headers)
        self._timeout = timeout

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections, and the waiting of all threads."""
        self._wires.close()

    def _within(self, timeout: Optional[float]) -> float:
        return _verbs.within(self._timeout if timeout is None else timeout)

    def _run(self, steps: Steps[T]) -> T:
        return self._wires.run(steps)

    def call(
        self,
        server: str,
        tool: str,
        args: Args = None,
        *,
        key: Optional[str] = None,
        deadline: Deadline = None,
        timeout: Optional[float] = None,
        **more: Unpack[More],
    ) -> Result:
        """Makes one governed call and returns where it stands, whatever the tool said.

        While the daemon is away it is asked again, with the same key. `deadline` is until when the
        call may be sent at all.
        """
        texts = _verbs.wanted(server, tool, args, key, deadline, more)
        return self._run(_verbs.call(texts, self._within(timeout)))

    def begin(
        self,
        server: str,
        tool: str,
        args: Args = None,
        *,
        key: Optional[str] = None,
        deadline: Deadline = None,
        begin_id: Optional[str] = None,
        timeout: Optional[float] = None,
        **more: Unpack[BeginMore],
    ) -> Beginning:
        """Asks to send a call yourself. Use it as a context manager; a block that ends without a
        report leaves the call in doubt."""
        texts = _verbs.wanted(server, tool, args, key, deadline, more)
        asked, unheard = begin_id or str(uuid.uuid4()), Unheard()
        try:
            return Beginning(self, self._run(_verbs.begin(texts, asked, self._within(timeout), unheard)))
        except BaseException:
            if begin_id is None and unheard.may:  # with an id of its own, the caller may ask again
                self._take_back(lambda: _verbs.begin(texts, asked, LAST_WORD, Unheard()))
            raise

    def _take_back(self, steps: Callable[[], Steps[Any]]) -> None:
        """Returns the permit of a begin whose caller has stopped waiting: nothing was sent under it. Without this
        report the call would be in doubt although it certainly did not run. The caller does not wait for the
        report; the end of the program does, a few seconds at most."""
        wires = Wires(self._socket, self._headers)  # the client may be closed meanwhile

        def report() -> None:
            begun = Begun(wires.run(steps()))
            if begun.standing == "send":
                wires.run(begun.not_sent_steps(TAKEN_BACK, LAST_WORD))

        def reports() -> None:
            last_word(report)
            wires.close()

        try:
            threading.Thread(target=reports, name="tgad takes a begin back", daemon=False).start()
        except RuntimeError:
            pass  # no thread can be started, as at the end of the program: the call stays in doubt

    def decide(self, trace_id: str, approve: bool, rationale: str, *, about: Optional[str] = None, timeout: Optional[float] = None) -> Result:
        """Votes on the question that a call asks people; after the last vote that is needed the call goes on.
        `about` names the question that you were shown: `approvals` lists it with each question. If the call asks
        another question by now, an approval is refused."""
        texts = _verbs.vote(approve, rationale, about)
        return self._run(_verbs.once(trace_id, "decide", texts, self._within(timeout)))

    def resolve(
        self,
        trace_id: str,
        value: Any = MISSING,
        *,
        evidence: Any,
        status: str = "SUCCESS",
        raw: Optional[bytes] = None,
        attempts: Optional[int] = None,
        timeout: Optional[float] = None,
        **facts: Any,
    ) -> Result:
        """Ends a call in doubt: you say what its effect was, and give the evidence. You vouch for both. `attempts`
        is the number of attempts that `in_doubt` showed you. If there are more by now, a word that frees the key is
        refused."""
        texts = _verbs.resolution(value, raw, status, evidence, attempts, facts)
        return self._run(_verbs.once(trace_id, "resolve", texts, self._within(timeout)))

    def abandon(self, trace_id: str, reason: str, *, timeout: Optional[float] = None) -> Result:
        """Gives up a call in doubt: it ends FAILED, and its key is never sent again."""
        return self._run(_verbs.once(trace_id, "abandon", {"reason": encode(reason)}, self._within(timeout)))

    def recover(self, trace_id: str, *, timeout: Optional[float] = None) -> Result:
        """Continues a call from where a crash, a cancellation or an approval left it."""
        return self._run(_verbs.recover(trace_id, self._within(timeout)))

    def delivered(self, trace_id: str, *, timeout: Optional[float] = None) -> None:
        """Reports that you have the whole answer of a call that `scope` and `step` name: the same
        call in that step is a new one from then on."""
        self._run(_verbs.delivered(trace_id, self._within(timeout)))

    def state(self, trace_id: str, *, timeout: Optional[float] = None) -> ExecutionState:
        """The execution state of a call, its digest checked."""
        return self._run(_verbs.state(trace_id, self._within(timeout)))

    def show(self, trace_id: str, *, timeout: Optional[float] = None) -> Timeline:
        """Everything about one call: entries, artifacts, notes."""
        return self._run(_verbs.show(trace_id, self._within(timeout)))

    def receipt(self, trace_id: str, *, timeout: Optional[float] = None) -> Receipt:
        """Proofs of where a call stands in the store's tree."""
        return self._run(_verbs.receipt(trace_id, self._within(timeout)))

    def in_doubt(self, *, timeout: Optional[float] = None) -> List[OpenTrace]:
        """The calls that may have run and have no recorded effect."""
        return self._run(_verbs.in_doubt(self._within(timeout)))

    def approvals(self, *, timeout: Optional[float] = None) -> List[Approval]:
        """What waits for people."""
        return self._run(_verbs.approvals(self._within(timeout)))

    def ready(self, *, timeout: Optional[float] = None) -> None:
        """Waits until the daemon takes calls."""
        self._run(_verbs.ready(self._within(timeout)))

    def follow(self, after: Optional[str] = None) -> Iterator[LogLine]:
        """The appends of the store after a cursor, as they come, for ever. Without one it begins
        at the beginning, with "newest" at the end. It outlives restarts of the daemon."""
        return self._follow(_verbs.Followed(None, after))

    def follow_trace(self, trace_id: str, after: int = 0) -> Iterator[Entry]:
        """The entries of a call after a number, as they come, until the call has ended."""
        return self._follow(_verbs.Followed(trace_id, after))

    def _follow(self, at: _verbs.Followed) -> Iterator[Any]:
        while True:
            try:
                opening = at.opening()
                if opening is not None:
                    for line in self._wires.stream(opening):
                        at.find(line)
                for line in self._wires.stream(at.request()):
                    item = at.take(line)
                    if item is not None:
                        yield item
                at.end()
            except Closed as closed:
                raise Unreachable(str(closed)) from closed
            except Broken:
                pass
            except Error as error:
                if not error.retryable:
                    raise
            if at.over():
                return
            self._wires.rest(at.rest())


class Beginning(Begun):
    """A begun call of a `Client`."""

    def __init__(self, client: Client, begun: Any) -> None:
        super().__init__(begun)
        self._client = client

    def finish(
        self, value: Any = MISSING, *, raw: Optional[bytes] = None, status: str = "SUCCESS", timeout: Optional[float] = None, **facts: Any
    ) -> Result:
        """Records what the tool said: a JSON value, or its bytes as `raw`."""
        return self._client._run(self.finish_steps(value, raw, status, facts, self._client._within(timeout)))

    def not_sent(self, reason: str, *, timeout: Optional[float] = None) -> Result:
        """Reports that certainly nothing reached the tool. The key can be used again."""
        return self._client._run(self.not_sent_steps(reason, self._client._within(timeout)))

    def give_up(self, cause: str, *, timeout: Optional[float] = None) -> None:
        """Reports that you do not know whether the call ran."""
        self._client._run(self.give_up_steps(cause, self._client._within(timeout)))

    def __enter__(self) -> Beginning:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        steps = self.leaving_steps(error)
        if steps is None:
            return
        report = steps
        last_word(lambda: self._client._run(report))
        if self.left_open(error):
            raise RuntimeError(UNREPORTED)
