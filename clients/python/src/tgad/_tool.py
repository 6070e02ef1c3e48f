"""Your own functions as governed calls."""

from __future__ import annotations

import functools
import inspect
import uuid
from typing import Any, Awaitable, Callable, Dict, Optional, Tuple, Type, TypeVar, Union, cast

from ._async_client import AsyncBeginning, AsyncClient
from ._begun import Begun, NotSent
from ._client import Beginning, Client
from ._json import encode
from ._result import Result

F = TypeVar("F", bound=Callable[..., Any])
Clients = Union[Client, AsyncClient]

_default: Dict[type, Any] = {}


def tool(
    *,
    server: str,
    key: Callable[..., Any],
    name: Optional[str] = None,
    args: Optional[Callable[..., Dict[str, Any]]] = None,
    failures: Tuple[Type[Exception], ...] = (),
    client: Optional[Clients] = None,
    timeout: Optional[float] = None,
    **more: Any,
) -> Callable[[F], F]:
    """Makes a function a governed call: it is begun, run here, and finished.

    `key` gets the function's arguments and returns the key: a string, an integer or a UUID that names this call
    and no other. If the key has a record, the function does not run: the recorded answer is returned. `args` gets
    the arguments too and returns what is recorded as the arguments; without `args` they are recorded by name.

    The function returns a JSON value. The caller gets the recorded value, the first time too.

    An exception of the types in `failures` means that the function did not do what it is for. It is recorded, and
    a repeat gets it again as an error. `NotSent` means that the function certainly did nothing: the key can be used
    again. After any other exception it is not known what the function did: the call is in doubt, as after a crash.

    `licence` says what running the function again would do: "dedupe_args", for example, means that a second run
    adds nothing. It can make a call in doubt stricter than the operator's licence; one that allows more is
    refused (PermissionDenied), unless the tool's row says `client_licence = true`.

    Without `client`, the function uses a client of the daemon that $TGAD_SOCKET names. An `async def` needs an
    AsyncClient.
    """

    def decorate(function: F) -> F:
        _fits(function, client)
        tool_name = name or function.__name__
        call = _Call(function, server, tool_name, key, args, {"timeout": timeout, **more})
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waits(*given: Any, **named: Any) -> Any:
                return await _run_async(cast(AsyncClient, client or _shared(AsyncClient)), call, failures, given, named)

            return cast(F, waits)

        @functools.wraps(function)
        def blocks(*given: Any, **named: Any) -> Any:
            return _run(cast(Client, client or _shared(Client)), call, failures, given, named)

        return cast(F, blocks)

    return decorate


def _fits(function: Callable[..., Any], client: Optional[Clients]) -> None:
    """Refuses a function that is not run where it is called, and a client of the other kind."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__name__} is a generator: a tool must return its answer")
    takes, other = (AsyncClient, Client) if inspect.iscoroutinefunction(function) else (Client, AsyncClient)
    if isinstance(client, other):
        raise TypeError(f"a tool that is {'an async def' if takes is AsyncClient else 'no async def'} needs a client of the class {takes.__name__}")


def _shared(kind: Type[Any]) -> Any:
    if kind not in _default:
        _default[kind] = kind()
    return _default[kind]


class _Call:
    """What a decorated function is begun with."""

    def __init__(
        self,
        function: Callable[..., Any],
        server: str,
        name: str,
        key: Callable[..., Any],
        args: Optional[Callable[..., Dict[str, Any]]],
        options: Dict[str, Any],
    ) -> None:
        self.function = function
        self.name = name
        self._server, self._key, self._args, self._options = server, key, args, options
        self._signature = inspect.signature(function)
        self._waiting: Dict[str, str] = {}  # begin ids of the calls that wait for people, by key

    def key(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> str:
        """The key of a call of the function with these arguments. Of anything could be made a string: of
        two orders without an id the same one, "None", and of an object one that no repeat has."""
        key = self._key(*given, **named)
        if key == "" or isinstance(key, bool) or not isinstance(key, (str, int, uuid.UUID)):
            raise TypeError(f"the key of {self.name} is {key!r}: return a string that names the call, an integer or a UUID")
        return str(key)

    def begin(self, client: Any, key: str, begin_id: Optional[str], given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        """Begins a call of the function with these arguments."""
        bound = self._signature.bind(*given, **named)
        bound.apply_defaults()
        recorded = self._args(*given, **named) if self._args else dict(bound.arguments)
        return client.begin(self._server, self.name, recorded, key=key, begin_id=begin_id, **self._options)

    def asked(self, key: str) -> Optional[str]:
        """Takes out the begin id of a call that waits for people. Otherwise two callers with one begin id would
        both get its permit."""
        return self._waiting.pop(key, None)

    def not_begun(self, key: str, begin_id: Optional[str], begun: Optional[Begun]) -> None:
        """Puts the begin id back if no answer to its begin came, so that people are not asked again."""
        if begun is None and begin_id is not None:
            self._waiting[key] = begin_id

    def served(self, key: str, begun: Begun) -> Any:
        """What a call that must not be sent is answered with. One that waits for people is found
        again by its begin id: it has no permit yet, so nothing of it was sent."""
        if begun.standing == "needs_approval":
            self._waiting[key] = begun.begin_id
        begun.check()
        return begun.call.check().value


class _Late(NotSent):
    """The time in which it could be sent is over."""


def _on_time(begun: Begun) -> None:
    if begun.late():
        raise _Late("the time in which it could be sent is over")


def _failed(error: Exception) -> Dict[str, Any]:
    """The record of an exception that says that the function failed."""
    return {"status": "FAILURE", "error_code": "TOOL_ERROR", "error_message": f"{type(error).__name__}: {error}"[:200]}


def _text(name: str, value: Any) -> Tuple[Dict[str, Any], Optional[Exception]]:
    """The record of what a function returned. A value that is not JSON is recorded too: the function has run.
    A coroutine or a generator is refused: the function has not run to its end, and possibly not at all."""
    if inspect.iscoroutine(value):
        value.close()
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise TypeError(f"{name} returned a {type(value).__name__} before it has run: decorate the async def itself, or return the answer")
    try:
        return {"raw": encode(value).encode("utf-8")}, None
    except (TypeError, ValueError, RecursionError) as error:
        return {"summary": "the function returned a value that is not JSON"}, error


def _answer(result: Result, value: Any) -> Any:
    """What the caller gets: the record, or where that has only a digest, what the function returned."""
    return result.value if result.raw is not None else value


def _run(client: Client, call: _Call, failures: Tuple[Type[Exception], ...], given: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
    begun: Optional[Beginning] = None
    key = call.key(given, named)
    begin_id = call.asked(key)
    try:
        with call.begin(client, key, begin_id, given, named) as begun:
            assert begun is not None
            if begun.standing != "send":
                return call.served(key, begun)
            _on_time(begun)
            try:
                value = call.function(*given, **named)
            except NotSent:
                raise  # also where `failures` has a class above it
            except failures as error:
                begun.finish(**_failed(error))
                raise
            reply, no_json = _text(call.name, value)
            result = begun.finish(**reply)
            if no_json is not None:
                raise no_json
            return _answer(result, value)
    finally:
        call.not_begun(key, begin_id, begun)


async def _run_async(
    client: AsyncClient, call: _Call, failures: Tuple[Type[Exception], ...], given: Tuple[Any, ...], named: Dict[str, Any]
) -> Any:
    begun: Optional[AsyncBeginning] = None
    key = call.key(given, named)
    begin_id = call.asked(key)
    try:
        async with call.begin(client, key, begin_id, given, named) as begun:
            assert begun is not None
            if begun.standing != "send":
                return call.served(key, begun)
            _on_time(begun)
            try:
                value = await cast(Awaitable[Any], call.function(*given, **named))
            except NotSent:
                raise  # also where `failures` has a class above it
            except failures as error:
                await begun.finish(**_failed(error))
                raise
            reply, no_json = _text(call.name, value)
            result = await begun.finish(**reply)
            if no_json is not None:
                raise no_json
            return _answer(result, value)
    finally:
        call.not_begun(key, begin_id, begun)
