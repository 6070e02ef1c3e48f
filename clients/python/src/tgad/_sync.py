"""Connections of the client that blocks."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Set, Union

from ._exchange import Answer, Broken, Closed, Request, Send, Sleep, Steps, T, pause_of, refusal, take_lines

if TYPE_CHECKING:
    from . import _aio

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

    def quiet(self) -> bool:
        """Whether the daemon has neither closed this idle connection nor sent anything on it."""
        try:
            self.sock.settimeout(0)
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


#: The pools of this process, of clients of both kinds.
pools: "weakref.WeakSet[Union[Wires, _aio.Wires]]" = weakref.WeakSet()


def _forget() -> None:
    for wires in list(pools):
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
        self._closed = threading.Event()
        pools.add(self)

    def forget(self) -> None:
        """Leaves the connections to the process that this one was forked from. Both would read the answers of both."""
        self._lock = threading.Lock()  # a thread of the parent process may have held the old one
        inherited, self._idle = self._idle, []
        for wire in inherited:
            wire.close()
        self._busy = set()
        closed, self._closed = self._closed, threading.Event()  # its lock may have been held too
        if closed.is_set():
            self._closed.set()

    def close(self) -> None:
        """Closes all connections. Requests that wait on one fail."""
        with self._lock:
            self._closed.set()
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
                    self.rest(step.seconds)
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

    def rest(self, seconds: float) -> None:
        """Pauses. The end of the client ends the pause."""
        self._closed.wait(seconds)

    def stream(self, request: Request) -> Iterator[bytes]:
        """The lines of an answer as they come. An answer that breaks off is Broken."""
        wire = self._take(fresh=True)
        try:
            response = self._ask(wire, Send(request, STREAM_SILENCE, 0), stream=True)
            if response.status >= 300:
                raise refusal(request, Answer(response.status, response.read()))
            rest = bytearray()
            while True:
                chunk = response.read1()  # readline would not say that the answer broke off
                if not chunk:
                    return
                yield from take_lines(rest, chunk)
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
        return Answer(response.status, body, pause_of(response.headers.get("Retry-After")))

    def _ask(self, wire: _Connection, send: Send, stream: bool = False) -> http.client.HTTPResponse:
        wire.within(send.timeout)
        if wire.sock is None:
            try:
                wire.connect()
            except OSError as cause:
                raise self._broken(cause, False) from cause
            if self._closed.is_set():  # `close` shuts down what is connected, and may have come before
                raise Closed("the client was closed", False)
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
        if self._closed.is_set():
            return Closed("the client was closed", sent)
        return Broken(cause or type(cause).__name__, sent)

    def _take(self, fresh: bool) -> _Connection:
        stale: List[_Connection] = []
        wire: Optional[_Connection] = None
        with self._lock:
            if self._closed.is_set():
                raise Closed("the client is closed", False)
            while self._idle and not fresh and wire is None:
                wire = self._idle.pop()
                if time.monotonic() - wire.used > MOST_IDLE or not wire.quiet():
                    stale.append(wire)
                    wire = None
            if wire is None:
                wire = _Connection(self._path)
            self._busy.add(wire)
        for old in stale:
            old.close()
        return wire

    def _put(self, wire: _Connection, keep: bool) -> None:
        with self._lock:
            self._busy.discard(wire)
            if keep and not self._closed.is_set():
                wire.used = time.monotonic()
                self._idle.append(wire)
                return
        wire.close()
