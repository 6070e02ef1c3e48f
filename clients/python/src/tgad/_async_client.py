"""The client that does not block."""

from __future__ import annotations

import asyncio
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Coroutine, Generator, List, Optional, Set, Type, TypeVar

from . import _verbs
from ._aio import Wires
from ._begun import LAST_WORD, TAKEN_BACK, UNREPORTED, Begun
from ._errors import Error
from ._exchange import Broken, Closed, Steps, Unheard, own_headers
from ._json import encode
from ._result import Result, Unreachable
from ._verbs import MISSING, Args, Deadline
from ._wire import Approval, Entry, ExecutionState, LogLine, OpenTrace, Receipt, Timeline

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._requests import BeginMore, More

T = TypeVar("T")


class AsyncClient:
    """A connection to a daemon, for the tasks of event loops. Its methods are those of `Client`.

    When a task is cancelled, only its waiting ends: the call goes on. To learn what became of it, make it again
    with the same key. If a begin gets no answer in time, or its task is cancelled, or the client is closed, the
    client returns the permit.
    """

    def __init__(self, socket: Optional[str] = None, *, name: str = "tgad-python", timeout: float = 30.0, receipts: bool = False) -> None:
        self._socket, self._headers = _verbs.default_socket(socket), own_headers(name, receipts)
        self._wires = Wires(self._socket, self._headers)
        self._timeout = timeout
        self._reports: Set[asyncio.Task[Any]] = set()  # reports that possibly no task of the caller waits for

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            here = [task for task in list(self._reports) if task.get_loop() is asyncio.get_running_loop()]
            if here:
                await asyncio.wait(here, timeout=LAST_WORD)
        finally:
            self.close()

    def _aside(self, report: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Makes a report in a task of its own, which the end of the client waits for."""
        task = asyncio.ensure_future(report)
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)
        return task

    def close(self) -> None:
        """Ends all connections, and the waiting of all tasks."""
        self._wires.close()

    def _within(self, timeout: Optional[float]) -> float:
        return _verbs.within(self._timeout if timeout is None else timeout)

    async def _run(self, steps: Steps[T]) -> T:
        return await self._wires.run(steps)

    async def call(
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
        """Makes one governed call; see `Client.call`."""
        texts = _verbs.wanted(server, tool, args, key, deadline, more)
        return await self._run(_verbs.call(texts, self._within(timeout)))

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
    ) -> AsyncOpening:
        """Asks to send a call yourself: `async with client.begin(…) as begun`, or await it."""
        texts = _verbs.wanted(server, tool, args, key, deadline, more)
        asked = begin_id or str(uuid.uuid4())
        return AsyncOpening(self, lambda within, unheard: _verbs.begin(texts, asked, within, unheard), self._within(timeout), own=begin_id is None)

    async def decide(self, trace_id: str, approve: bool, rationale: str, *, about: Optional[str] = None, timeout: Optional[float] = None) -> Result:
        """Votes on the question that a call asks people; see `Client.decide`."""
        texts = _verbs.vote(approve, rationale, about)
        return await self._run(_verbs.once(trace_id, "decide", texts, self._within(timeout)))

    async def resolve(
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
        """Ends a call in doubt: you say what its effect was, and give the evidence; see `Client.resolve`."""
        texts = _verbs.resolution(value, raw, status, evidence, attempts, facts)
        return await self._run(_verbs.once(trace_id, "resolve", texts, self._within(timeout)))

    async def abandon(self, trace_id: str, reason: str, *, timeout: Optional[float] = None) -> Result:
        """Gives up a call in doubt; see `Client.abandon`."""
        return await self._run(_verbs.once(trace_id, "abandon", {"reason": encode(reason)}, self._within(timeout)))

    async def recover(self, trace_id: str, *, timeout: Optional[float] = None) -> Result:
        """Continues a call from where a crash, a cancellation or an approval left it."""
        return await self._run(_verbs.recover(trace_id, self._within(timeout)))

    async def delivered(self, trace_id: str, *, timeout: Optional[float] = None) -> None:
        """Reports that you have the whole answer of a call that `scope` and `step` name: the same
        call in that step is a new one from then on."""
        await self._run(_verbs.delivered(trace_id, self._within(timeout)))

    async def state(self, trace_id: str, *, timeout: Optional[float] = None) -> ExecutionState:
        """The execution state of a call, its digest checked."""
        return await self._run(_verbs.state(trace_id, self._within(timeout)))

    async def show(self, trace_id: str, *, timeout: Optional[float] = None) -> Timeline:
        """Everything about one call: entries, artifacts, notes."""
        return await self._run(_verbs.show(trace_id, self._within(timeout)))

    async def receipt(self, trace_id: str, *, timeout: Optional[float] = None) -> Receipt:
        """Proofs of where a call stands in the store's tree."""
        return await self._run(_verbs.receipt(trace_id, self._within(timeout)))

    async def in_doubt(self, *, timeout: Optional[float] = None) -> List[OpenTrace]:
        """The calls that may have run and have no recorded effect."""
        return await self._run(_verbs.in_doubt(self._within(timeout)))

    async def approvals(self, *, timeout: Optional[float] = None) -> List[Approval]:
        """What waits for people."""
        return await self._run(_verbs.approvals(self._within(timeout)))

    async def ready(self, *, timeout: Optional[float] = None) -> None:
        """Waits until the daemon takes calls."""
        await self._run(_verbs.ready(self._within(timeout)))

    def follow(self, after: Optional[str] = None) -> AsyncIterator[LogLine]:
        """The appends of the store after a cursor, as they come; see `Client.follow`."""
        return self._follow(_verbs.Followed(None, after))

    def follow_trace(self, trace_id: str, after: int = 0) -> AsyncIterator[Entry]:
        """The entries of a call after a number, as they come; see `Client.follow_trace`."""
        return self._follow(_verbs.Followed(trace_id, after))

    async def _follow(self, at: _verbs.Followed) -> AsyncIterator[Any]:
        while True:
            try:
                opening = at.opening()
                if opening is not None:
                    async for line in self._wires.stream(opening):
                        at.find(line)
                async for line in self._wires.stream(at.request()):
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
            await self._wires.rest(at.rest())


class AsyncOpening:
    """A begin that was not asked yet: await it, or use it with `async with`."""

    def __init__(self, client: AsyncClient, steps: Callable[[float, Unheard], Steps[Any]], timeout: float, own: bool) -> None:
        self._client = client
        self._steps = steps
        self._timeout = timeout
        self._own = own  # only this object knows the begin id
        self._begun: Optional[AsyncBeginning] = None

    def __await__(self) -> Generator[Any, None, AsyncBeginning]:
        return self._ask().__await__()

    async def _ask(self) -> AsyncBeginning:
        unheard = Unheard()
        try:
            return AsyncBeginning(self._client, await self._client._run(self._steps(self._timeout, unheard)))
        except (Exception, asyncio.CancelledError):
            if self._own and unheard.may:
                self._client._aside(self._take_back())
            raise

    async def _take_back(self) -> None:
        """Returns the permit of a begin whose caller has stopped waiting: nothing was sent under it.
        Without this report the call would be in doubt although it certainly did not run."""
        wires = Wires(self._client._socket, self._client._headers)  # the client may be closed meanwhile

        async def report() -> None:
            begun = Begun(await wires.run(self._steps(LAST_WORD, Unheard())))
            if begun.standing == "send":
                await wires.run(begun.not_sent_steps(TAKEN_BACK, LAST_WORD))

        try:
            await _last_word(report())
        finally:
            wires.close()

    async def __aenter__(self) -> AsyncBeginning:
        self._begun = await self._ask()
        return self._begun

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        assert self._begun is not None
        await self._begun.__aexit__(kind, error, at)


class AsyncBeginning(Begun):
    """A begun call of an `AsyncClient`."""

    def __init__(self, client: AsyncClient, begun: Any) -> None:
        super().__init__(begun)
        self._client = client

    async def finish(
        self, value: Any = MISSING, *, raw: Optional[bytes] = None, status: str = "SUCCESS", timeout: Optional[float] = None, **facts: Any
    ) -> Result:
        """Records what the tool said: a JSON value, or its bytes as `raw`."""
        return await self._client._run(self.finish_steps(value, raw, status, facts, self._client._within(timeout)))

    async def not_sent(self, reason: str, *, timeout: Optional[float] = None) -> Result:
        """Reports that certainly nothing reached the tool. The key can be used again."""
        return await self._client._run(self.not_sent_steps(reason, self._client._within(timeout)))

    async def give_up(self, cause: str, *, timeout: Optional[float] = None) -> None:
        """Reports that you do not know whether the call ran."""
        await self._client._run(self.give_up_steps(cause, self._client._within(timeout)))

    async def __aenter__(self) -> AsyncBeginning:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], at: Optional[TracebackType]) -> None:
        steps = self.leaving_steps(error)
        if steps is None:
            return
        # Shielded, and the client waits for it before it ends, so that a cancelled task still reports.
        await _last_word(asyncio.shield(self._client._aside(self._client._run(steps))))
        if self.left_open(error):
            raise RuntimeError(UNREPORTED)


async def _last_word(report: Awaitable[Any]) -> None:
    """Makes a report that another error must not hide: without it the call is in doubt all the
    same, only later."""
    try:
        await report
    except (Error, OSError):
        pass
