"""Connections of the client that blocks."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
import weakref
from typing import Dict, Iterator, List, Optional, Set

from ._exchange import Answer, Broken, Closed, Request, Send, Sleep, Steps, T, refusal

#: How long a connection without a request is kept: less than the daemon keeps it.
MOST_IDLE = 30.0
#: A stream shows a sign of life every 15 s.
STREAM_SILENCE = 60.0


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("tgad")
        self._path = path
        self.used = time.monotonic()

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise

    def within(self, seconds: float) -> None:
        """Sets how long one wait for the socket takes at most."""
        self.timeout = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)


#: The pools of this process.
_all: "weakref.WeakSet[Wires]" = weakref.WeakSet()


def _forget() -> None:
    for wires in list(_all):
        wires.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Wires:
    """A pool of connections to one socket, for any number of threads."""

    def __init__(self, path: str, headers: Dict[str, str]) -> None:
        self._path, self._headers = path, headers
        self._lock = threading.Lock()
        self._idle: List[_Connection] = []
        self._busy: Set[_Connection] = set()
        self._closed = False
        _all.add(self)

    def forget(self) -> None:
        """Leaves the connections to the process that this one was forked from. Both would read the answers of both."""
        self._lock = threading.Lock()  # a thread of the parent process may have held the old one
        inherited, self._idle = self._idle, []
        for wire in inherited:
            wire.close()
        self._busy = set()

    def close(self) -> None:
        """Closes all connections. Requests that wait on one fail."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for wire in self._busy:
                if wire.sock is not None:
                    try:
                        wire.sock.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass  # it is gone already
        for wire in idle:
            wire.close()

    def run(self, steps: Steps[T]) -> T:
        """Runs the steps of a verb."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                    step = next(steps)
                    continue
                try:
                    answer = self._send(step)
                except Broken as broken:
                    step = steps.throw(broken)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def stream(self, request: Request) -> Iterator[bytes]:
        """The lines of an answer as they come. An incomplete last line is dropped."""
        wire = self._take(fresh=True)
        try:
            response = self._ask(wire, Send(request, STREAM_SILENCE, 0), stream=True)
            if response.status >= 300:
                raise refusal(request, Answer(response.status, response.read()))
            while True:
                line = response.readline()
                if not line.endswith(b"\n"):
                    return
                yield line
        except (OSError, http.client.HTTPException) as cause:
            raise self._broken(cause, True) from cause
        finally:
            self._put(wire, keep=False)

    def _send(self, send: Send) -> Answer:
        wire = self._take(fresh=not send.request.again)
        keep = False
        try:
            response = self._ask(wire, send)
            body = response.read()
            keep = not response.will_close
        except (OSError, http.client.HTTPException) as cause:
            raise self._broken(cause, True) from cause
        finally:
            self._put(wire, keep)
        return Answer(response.status, body, float(response.headers.get("Retry-After", "0")))

    def _ask(self, wire: _Connection, send: Send, stream: bool = False) -> http.client.HTTPResponse:
        wire.within(send.timeout)
        if wire.sock is None:
            try:
                wire.connect()
            except OSError as cause:
                raise self._broken(cause, False) from cause
        headers = send.headers(self._headers)
        if stream:
            del headers["Tgad-Timeout"]
        try:
            # As bytes, because http.client encodes text as Latin-1.
            fields = {name: value.encode("utf-8") for name, value in headers.items()}
            wire.request(send.request.method, send.request.path, send.request.body, fields)  # type: ignore[arg-type]
        except (BrokenPipeError, ConnectionResetError):
            pass  # the daemon does not read a body that it refuses to its end; its answer says why
        return wire.getresponse()

    def _broken(self, cause: Exception, sent: bool) -> Broken:
        if self._closed:
            return Closed("the client was closed", sent)
        return Broken(cause or type(cause).__name__, sent)

    def _take(self, fresh: bool) -> _Connection:
        stale: Optional[_Connection] = None
        with self._lock:
            if self._closed:
                raise Closed("the client is closed", False)
            wire = self._idle.pop() if self._idle and not fresh else _Connection(self._path)
            if time.monotonic() - wire.used > MOST_IDLE:
                stale, wire = wire, _Connection(self._path)
            self._busy.add(wire)
        if stale is not None:
            stale.close()
        return wire

    def _put(self, wire: _Connection, keep: bool) -> None:
        with self._lock:
            self._busy.discard(wire)
            if keep and not self._closed:
                wire.used = time.monotonic()
                self._idle.append(wire)
                return
        wire.close()
