"""Connections of the client that does not block."""

from __future__ import annotations

import asyncio
import time
from typing import AsyncIterator, Dict, List, Optional, Set, Tuple

from ._exchange import Answer, Broken, Closed, Request, Send, Sleep, Steps, T, refusal
from ._sync import MOST_IDLE, STREAM_SILENCE

#: What a broken connection looks like.
_FAULTS = (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError)


class _Wire:
    """One connection, and HTTP/1.1 on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.used = time.monotonic()

    def close(self) -> None:
        self._writer.close()

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


class Wires:
    """Connections to one socket, for the tasks of each event loop its own."""

    def __init__(self, path: str, headers: Dict[str, str]) -> None:
        self._path, self._headers = path, headers
        # A connection belongs to the loop that made it. A loop has one thread, and each has its own list.
        self._idle: Dict[asyncio.AbstractEventLoop, List[_Wire]] = {}
        self._busy: Set[_Wire] = set()
        self._closed = False

    def close(self) -> None:
        """Closes all connections. Requests that wait on one fail."""
        self._closed = True
        for loop, idle in list(self._idle.items()):
            if not loop.is_closed():
                self._busy.update(idle)
        for wire in list(self._busy):
            wire.close()
        self._idle.clear()

    async def run(self, steps: Steps[T]) -> T:
        """Runs the steps of a verb."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
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

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        """The lines of an answer as they come. An incomplete last line is dropped."""
        wire = await self._take(STREAM_SILENCE, fresh=True)
        try:
            send = Send(request, STREAM_SILENCE, 0)
            headers = send.headers(self._headers)
            del headers["Tgad-Timeout"]
            status, fields = await asyncio.wait_for(wire.ask(send, headers), STREAM_SILENCE)
            chunks = wire.chunks(fields).__aiter__()
            if status >= 300:
                raise refusal(request, Answer(status, b"".join([chunk async for chunk in chunks])))
            rest = b""
            while True:
                try:
                    rest += await asyncio.wait_for(chunks.__anext__(), STREAM_SILENCE)
                except StopAsyncIteration:
                    return
                *lines, rest = rest.split(b"\n")
                for line in lines:
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
        return Answer(status, body, float(fields.get("retry-after", "0"))), keep

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
            if time.monotonic() - wire.used > MOST_IDLE:
                wire.close()
                wire = None
        if wire is None:
            try:
                wire = _Wire(*await asyncio.wait_for(asyncio.open_unix_connection(self._path), timeout))
            except _FAULTS as cause:
                raise self._broken(cause, False) from cause
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
