"""Connections of the client that does not block."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import AsyncIterator, Callable, Dict, List, Optional, Set, Tuple

from ._exchange import Answer, Broken, Closed, Request, Send, Sleep, Steps, T, pause_of, refusal, take_lines
from ._sync import MOST_IDLE, STREAM_SILENCE, pools

#: What a broken connection looks like.
_FAULTS = (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError)


class _Wire:
    """One connection, and HTTP/1.1 on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.loop = asyncio.get_running_loop()
        self.used = time.monotonic()

    @classmethod
    async def to(cls, path: str) -> _Wire:
        """Connects to a socket."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # This does not wait. If the queue of the daemon is full it fails, which the event loop would take for a success.
            sock.connect(path)
            return cls(*await asyncio.open_unix_connection(sock=sock))
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Drops the connection, with what is not sent yet: a daemon that does not read would keep it open for ever."""
        self._writer.transport.abort()

    def quiet(self) -> bool:
        """Whether the daemon has not closed this idle connection."""
        return not self._reader.at_eof()

    async def ask(self, send: Send, headers: Dict[str, str]) -> Tuple[int, Dict[str, str]]:
        """Sends a request and reads the head of its answer."""
        request = send.request
        body = request.body or b""
        lines = [f"{request.method} {request.path} HTTP/1.1", "Host: tgad", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        # Do not wait until all is sent: the daemon does not read a body that it refuses to its end.
        self._writer.write("\r\n".join(lines + ["", ""]).encode("utf-8") + body)
        status = await self._line()
        fields: Dict[str, str] = {}
        while True:
            line = await self._line()
            if not line:
                return int(status.split(" ", 2)[1]), fields
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()

    async def chunks(self, fields: Dict[str, str]) -> AsyncIterator[bytes]:
        """The body of an answer, in parts."""
        if "chunked" in fields.get("transfer-encoding", ""):
            while True:
                size = int((await self._line()).split(";")[0], 16)
                if size:
                    yield await self._reader.readexactly(size)
                if await self._line():
                    raise ValueError("a chunk has no end")
                if not size:
                    return
        elif "content-length" in fields:
            yield await self._reader.readexactly(int(fields["content-length"]))
        else:
            raise ValueError("an answer has no length")

    async def _line(self) -> str:
        line = await self._reader.readuntil(b"\n")
        return line.decode("latin-1").rstrip("\r\n")


def _on(loop: asyncio.AbstractEventLoop, do: Callable[[], object]) -> None:
    """Does something in the thread of a loop: at once in this thread, else as soon as the loop can."""
    try:
        here = loop is asyncio.get_running_loop()
    except RuntimeError:
        here = False
    if here:
        do()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(do)


class Wires:
    """Connections to one socket, for the tasks of each event loop its own."""

    def __init__(self, path: str, headers: Dict[str, str]) -> None:
        self._path, self._headers = path, headers
        # A connection belongs to the loop that made it. A loop has one thread, and each has its own list.
        self._idle: Dict[asyncio.AbstractEventLoop, List[_Wire]] = {}
        self._busy: Set[_Wire] = set()
        self._pauses: Set["asyncio.Future[None]"] = set()
        self._closed = False
        self._parents: List[object] = []
        pools.add(self)

    def forget(self) -> None:
        """Leaves the connections to the process that this one was forked from. Even closing one here would change the
        selector of the parent's loop, which both processes have."""
        self._parents.append((self._idle, self._busy, self._pauses))
        self._idle, self._busy, self._pauses = {}, set(), set()

    def close(self) -> None:
        """Closes all connections. Requests that wait on one fail, and pauses end."""
        self._closed = True
        for wire in [*self._busy, *(wire for idle in list(self._idle.values()) for wire in idle)]:
            _on(wire.loop, wire.close)
        for pause in list(self._pauses):
            _on(pause.get_loop(), pause.cancel)
        self._idle.clear()

    async def run(self, steps: Steps[T]) -> T:
        """Runs the steps of a verb."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Sleep):
                    await self.rest(step.seconds)
                    step = next(steps)
                    continue
                try:
                    answer = await self._send(step)
                except Broken as broken:
                    step = steps.throw(broken)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def rest(self, seconds: float) -> None:
        """Pauses. The end of the client ends the pause."""
        pause: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()
        self._pauses.add(pause)
        try:
            await asyncio.wait([pause], timeout=0 if self._closed else seconds)
        finally:
            self._pauses.discard(pause)

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        """The lines of an answer as they come. An answer that breaks off is Broken."""
        wire = await self._take(STREAM_SILENCE, fresh=True)
        try:
            send = Send(request, STREAM_SILENCE, 0)
            headers = send.headers(self._headers)
            del headers["Tgad-Timeout"]
            status, fields = await asyncio.wait_for(wire.ask(send, headers), STREAM_SILENCE)
            chunks = wire.chunks(fields).__aiter__()
            if status >= 300:
                raise refusal(request, Answer(status, b"".join([chunk async for chunk in chunks])))
            rest = bytearray()
            while True:
                try:
                    chunk = await asyncio.wait_for(chunks.__anext__(), STREAM_SILENCE)
                except StopAsyncIteration:
                    return
                for line in take_lines(rest, chunk):
                    yield line
        except _FAULTS as cause:
            raise self._broken(cause, True) from cause
        finally:
            self._put(wire, keep=False)

    async def _send(self, send: Send) -> Answer:
        begun = time.monotonic()
        wire = await self._take(send.timeout, fresh=not send.request.again)
        keep = False
        try:
            answer, keep = await asyncio.wait_for(self._exchange(wire, send), send.timeout - (time.monotonic() - begun))
            return answer
        except _FAULTS as cause:
            raise self._broken(cause, True) from cause
        finally:
            self._put(wire, keep)

    async def _exchange(self, wire: _Wire, send: Send) -> Tuple[Answer, bool]:
        status, fields = await wire.ask(send, send.headers(self._headers))
        body = b"".join([chunk async for chunk in wire.chunks(fields)])
        keep = fields.get("connection", "").lower() != "close"
        return Answer(status, body, pause_of(fields.get("retry-after"))), keep

    def _broken(self, cause: BaseException, sent: bool) -> Broken:
        if self._closed:
            return Closed("the client was closed", sent)
        return Broken(str(cause) or type(cause).__name__, sent)

    async def _take(self, timeout: float, fresh: bool) -> _Wire:
        if self._closed:
            raise Closed("the client is closed", False)
        idle = self._here()
        wire: Optional[_Wire] = None
        while idle and not fresh and wire is None:
            wire = idle.pop()
            if time.monotonic() - wire.used > MOST_IDLE or not wire.quiet():
                wire.close()
                wire = None
        if wire is None:
            try:
                wire = await asyncio.wait_for(_Wire.to(self._path), timeout)
            except _FAULTS as cause:
                raise self._broken(cause, False) from cause
            if self._closed:  # meanwhile
                wire.close()
                raise Closed("the client was closed", False)
        self._busy.add(wire)
        return wire

    def _here(self) -> List[_Wire]:
        """The idle connections of the loop that runs here."""
        loop = asyncio.get_running_loop()
        if loop not in self._idle:
            for other in list(self._idle):
                if other.is_closed():  # connections live no longer than their loop
                    self._idle.pop(other, None)
        return self._idle.setdefault(loop, [])

    def _put(self, wire: _Wire, keep: bool) -> None:
        self._busy.discard(wire)
        if keep and not self._closed:
            wire.used = time.monotonic()
            self._here().append(wire)
        else:
            wire.close()
