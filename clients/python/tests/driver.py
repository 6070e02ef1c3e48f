"""Does what the scripts of test_vectors/client say, by a client of this package.

    driver.py blocks|async

Standard input has one operation a line, {"id": …, "op": …, "with": {…}}; standard output gets one
answer a line. Operations go on beside each other.
"""

import asyncio
import base64
import inspect
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Dict

import tgad

RESULT = ("trace_id", "state", "status", "key", "replayed")


def text_of(raw: Any) -> Any:
    try:
        return raw.decode("utf-8")
    except (AttributeError, UnicodeDecodeError):
        return None


def result(found: tgad.Result) -> Dict[str, Any]:
    told = {name: getattr(found, name) for name in RESULT}
    told["raw"] = text_of(found.raw)
    told["base64"] = base64.b64encode(found.raw).decode() if found.raw is not None else None
    told["receipt"] = found.receipt is not None and found.receipt["trace_id"] == found.trace_id and len(found.receipt["leaves"]) > 0
    try:
        told["value"] = found.value
    except ValueError:
        told["value"] = "no value"
    return told


def begun(found: Any) -> Dict[str, Any]:
    return {
        "standing": found.standing,
        "trace_id": found.trace_id,
        "attempt": found.attempt,
        "args_raw": text_of(found.args_raw),
        "permit": found.permit,
        "raw": text_of(found.call.raw),
        "cause": found.cause.code if found.cause else None,
    }


def refusal(error: BaseException) -> Dict[str, Any]:
    told: Dict[str, Any] = {"class": type(error).__name__, "text": str(error)}
    told["cancelled"] = isinstance(error, asyncio.CancelledError) or "the client was closed" in str(error)
    if isinstance(error, tgad.Error):
        told.update(code=error.code, retryable=error.retryable, trace_id=error.trace_id, base=True)
        told.update(pointer=(error.problem or {}).get("pointer"))
    return told


class Declined(Exception):
    """What the function of a script says where it failed."""


def body_of(given: Dict[str, Any]) -> Any:
    """What the function of a script does: it leaves a mark that it ran, and then as it is told."""
    with open(given["mark"], "a", encoding="utf-8") as mark:
        mark.write("ran\n")
    how = given.get("how")
    if how == "decline":
        raise Declined("the card was declined")
    if how == "raise":
        raise OSError("the connection broke")
    if how == "not_sent":
        raise tgad.NotSent("nobody was reached")
    if how == "die":
        os._exit(9)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "long":
        return {"fill": "x" * given["n"]}
    return {"ran": given["n"]}


def pause(given: Dict[str, Any]) -> float:
    return 0.2 if given.get("how") == "slow" else 0


def call_arguments(given: Dict[str, Any]) -> Dict[str, Any]:
    given = dict(given)
    if "args_raw" in given:
        given["args"] = given.pop("args_raw").encode("utf-8")
    if "fill" in given:
        fill = {"fill": "x" * given.pop("fill")}
        given["args" if "server" in given else "value"] = fill
    if "deadline_s" in given:
        given["deadline"] = timedelta(seconds=given.pop("deadline_s"))
    if "raw_base64" in given:
        given["raw"] = base64.b64decode(given.pop("raw_base64"))
    return given


class Driver:
    """The operations, for both clients: each returns a value, or something to await."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.client = kind(receipts=True)
        self.open: Dict[str, Any] = {}  # clients of operations that may be cancelled
        self.handles: Dict[str, Any] = {}
        self.functions: Dict[Any, Any] = {}

    def own(self, id: str) -> Any:
        """A client of an operation's own: closing it cancels the operation."""
        client = self.open[id] = self.kind(receipts=True)
        return client

    async def do(self, id: str, op: str, given: Dict[str, Any]) -> Any:
        client = self.own(id)
        if op == "cancel":
            self.open[given["id"]].close()
            return {}
        if op == "call":
            return result(await settled(client.call(**call_arguments(given))))
        if op == "begin":
            handle = given.pop("handle", "h")
            self.handles[handle] = found = await settled(client.begin(**call_arguments(given)))
            return begun(found)
        if op in ("finish", "not_sent", "give_up"):
            found = await settled(getattr(self.handles[given.pop("handle", "h")], op)(**call_arguments(given)))
            return result(found) if found is not None else {}
        if op == "block":
            return await self.block(client, given)
        if op == "tool":
            return await self.tool(given)
        if op == "follow":
            return await self.follow(client, given)
        if op == "delivered":
            await settled(client.delivered(**given))
            return {}
        if op in ("decide", "resolve", "abandon", "recover"):
            return result(await settled(getattr(client, op)(**call_arguments(given))))
        if op == "in_doubt":
            return {"listed": given["key"] in [x.get("idempotency_key") for x in await settled(client.in_doubt())]}
        found = await settled(getattr(client, op)(**given))
        if op == "approvals":
            return {"traces": [x["trace_id"] for x in found]}
        if op == "receipt":
            return {"trace_id": found["trace_id"], "leaves": len(found["leaves"]) > 0}
        if op == "show":
            return {"entries": len(found["entries"]), "state": found["call"]["state"]}
        return found

    async def block(self, client: Any, given: Dict[str, Any]) -> Any:
        how = given.pop("how")

        async def inside(found: Any) -> None:
            if how == "raise":
                raise OSError("the connection broke")
            if how == "not_sent":
                raise tgad.NotSent("nobody was reached")
            if how == "finish":
                await settled(found.finish({"done": True}))

        if self.kind is tgad.AsyncClient:
            async with client.begin(**given) as found:
                await inside(found)
        else:
            with client.begin(**given) as found:
                await inside(found)
        return result(found.call)

    async def tool(self, given: Dict[str, Any]) -> Any:
        options = {name: given[name] for name in ("risk_level", "licence", "licence_window_ms") if name in given}
        id = (given["name"], *options.items())
        if id not in self.functions:
            self.functions[id] = self.function(given["name"], options)
        value = await settled(self.functions[id](given))
        return {"length": len(value["fill"])} if "fill" in value else {"value": value}

    def function(self, name: str, options: Dict[str, Any]) -> Any:
        decorate = tgad.tool(
            server="own",
            name=name,
            key=lambda order: order["key"],
            args=lambda order: {"n": order["n"]},
            failures=(Declined,),
            client=self.client,
            **options,
        )
        if self.kind is tgad.AsyncClient:

            @decorate
            async def waits(order: Dict[str, Any]) -> Any:
                done = body_of(order)
                await asyncio.sleep(pause(order))
                return done

            return waits

        @decorate
        def blocks(order: Dict[str, Any]) -> Any:
            done = body_of(order)
            time.sleep(pause(order))
            return done

        return blocks

    async def follow(self, client: Any, given: Dict[str, Any]) -> Any:
        until = given.pop("until", None)
        lines = client.follow_trace(**given) if "trace_id" in given else client.follow(**given)
        seen = []

        def take(line: Any) -> bool:
            seen.append(line)
            return line.get("trace_id") == until and until and line["entries"][-1]["entry"]["to_state"] == "COMPLETED"

        if hasattr(lines, "__aiter__"):
            async for line in lines:
                if take(line):
                    break
        else:
            for line in lines:
                if take(line):
                    break
        if until is None:
            return {"seqs": [line["entry"]["sequence_number"] for line in seen]}
        cursors = [int(line["cursor"]) for line in seen]
        return {
            "traces": list(dict.fromkeys(line["trace_id"] for line in seen if line.get("entries"))),
            "entries": sum(len(line.get("entries", [])) for line in seen),
            "rising": all(a < b for a, b in zip(cursors, cursors[1:])),
        }

    async def answer(self, id: str, op: str, given: Dict[str, Any]) -> None:
        try:
            told = {"id": id, "ok": await self.do(id, op, given)}
        except (Exception, asyncio.CancelledError) as error:
            told = {"id": id, "error": refusal(error)}
        sys.stdout.write(tgad.encode(told) + "\n")
        sys.stdout.flush()


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def main_blocks() -> None:
    driver = Driver(tgad.Client)
    for line in sys.stdin:
        message = tgad.parse(line)
        threading.Thread(target=asyncio.run, args=[driver.answer(message["id"], message["op"], message["with"])], daemon=True).start()


async def main_async() -> None:
    driver = Driver(tgad.AsyncClient)
    tasks: Dict[str, "asyncio.Task[None]"] = {}
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            return
        message = tgad.parse(line)
        if message["op"] == "cancel":
            tasks[message["with"]["id"]].cancel()
            continue
        tasks[message["id"]] = asyncio.ensure_future(driver.answer(message["id"], message["op"], message["with"]))


if __name__ == "__main__":
    if sys.argv[1] == "async":
        asyncio.run(main_async())
    else:
        main_blocks()
