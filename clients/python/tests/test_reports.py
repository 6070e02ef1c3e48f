"""What is said of a call that has run, and of a request that may have arrived. Run it with python3 -m unittest."""

import asyncio
import json
import os
import signal
import threading
import time
import unittest
from decimal import Decimal
from unittest import mock

import tgad
from tgad import _exchange
from tgad._result import error_of
from test_units import CALL, Answering, Asking, grants

BUSY = {"code": "LIMIT_EXCEEDED", "detail": "there are 64 connections already", "retryable": True, "status": 429}
SHORT = {"code": "LIMIT_EXCEEDED", "detail": "the body is over 9 bytes", "retryable": False, "status": 413}
WRONG = {"code": "VALIDATION_ERROR", "detail": "x", "retryable": False, "status": 400}
LOST = {"lost": True}
HALF = "\ud83d"  # of a pair


def sends(client, body):
    """Runs an async function on a begun call of a client of either kind. Returns its error."""

    async def run():
        if isinstance(client, tgad.AsyncClient):
            async with client, client.begin("s", "t", {}, key="k") as begun:
                await body(begun)
        else:
            with client, client.begin("s", "t", {}, key="k") as begun:
                await body(_Awaited(begun))

    try:
        asyncio.run(run())
    except BaseException as error:
        return error
    return None


class _Awaited:
    """A beginning whose methods block, and can be awaited all the same."""

    def __init__(self, begun):
        self._begun = begun

    def __getattr__(self, name):
        async def method(*args, **named):
            return getattr(self._begun, name)(*args, **named)

        return method


class Reports(Asking):
    def test_a_report_without_an_answer_is_made_again(self):
        """What became of the call is known to its caller: giving it up at the end of the block would lose that."""

        async def finishes(begun):
            await begun.finish({"paid": 1}, timeout=0.06)

        async def was_not_sent(begun):
            await begun.not_sent("the pipe was closed", timeout=0.06)

        async def catches(begun):
            try:
                await finishes(begun)
            except tgad.Error:
                pass

        for kind in (tgad.Client, tgad.AsyncClient):
            for body, first, verb, error in [
                (finishes, LOST, "finish", tgad.Unreachable),
                (finishes, BUSY, "finish", tgad.LimitExceeded),
                (finishes, WRONG, "give-up", tgad.ValidationError),
                (was_not_sent, LOST, "not-sent", tgad.Unreachable),
                (catches, LOST, "finish", type(None)),
                (catches, WRONG, "give-up", RuntimeError),
            ]:
                answers = [first]

                def says(path, body):
                    return answers.pop() if path != "/v1/begin" and answers else grants(path, body)

                daemon = self.daemon(says)
                found = sends(kind(daemon.server_address), body)
                reports = daemon.asked[1:]
                self.assertEqual((type(found), reports[-1][0], len(reports)), (error, "/v1/traces/t/" + verb, 2), (kind, body, first))
                if verb != "give-up":
                    self.assertEqual(reports[0], reports[1])

    def test_a_report_is_made_although_its_task_is_cancelled_twice(self):
        for raised, verb in [(tgad.NotSent("nobody"), "not-sent"), (asyncio.CancelledError(), "give-up")]:
            reporting = threading.Event()
            made = []

            def says(path, body):
                if path != "/v1/begin":
                    reporting.set()
                    time.sleep(0.2)
                return grants(path, body)

            daemon = self.daemon(says)

            async def block(client):
                async with client.begin("s", "t", {}, key="k"):
                    raise raised

            async def run():
                async with tgad.AsyncClient(daemon.server_address) as client:
                    heard = client._run

                    async def remembers(steps):
                        result = await heard(steps)
                        made.append(result)
                        return result

                    client._run = remembers
                    task = asyncio.ensure_future(block(client))
                    await asyncio.get_running_loop().run_in_executor(None, reporting.wait)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task

            asyncio.run(run())
            self.assertEqual(daemon.asked[-1][0], "/v1/traces/t/" + verb)
            self.assertEqual(len(made), 2, "the client ended before its report was answered")

    def test_only_what_is_too_long_is_recorded_by_its_digest(self):
        for kind in (tgad.Client, tgad.AsyncClient):
            for refusal, times in [(SHORT, 1), (BUSY, 2)]:
                answers = [refusal] * times

                def says(path, body):
                    return answers.pop() if path != "/v1/begin" and answers else grants(path, body)

                daemon = self.daemon(says)

                async def body(begun):
                    await begun.finish({"paid": 1}, timeout=5)

                self.assertIsNone(sends(kind(daemon.server_address), body))
                digests = ["result_digest" in report for path, report in daemon.asked if path.endswith("finish")]
                self.assertEqual(digests, [False, True] if refusal is SHORT else [False] * 3, kind)

    def test_not_sent_is_no_failure(self):
        for failures in [(Exception,), (tgad.NotSent,), (ValueError,)]:
            daemon = self.daemon(grants)

            def fails():
                raise tgad.NotSent("the pipe was closed")

            async def fails_later():
                fails()

            async def later():
                async with tgad.AsyncClient(daemon.server_address) as client:
                    await tgad.tool(server="s", name="t", key=lambda: "k", failures=failures, client=client)(fails_later)()

            with tgad.Client(daemon.server_address) as client, self.assertRaises(tgad.NotSent):
                tgad.tool(server="s", name="t", key=lambda: "k", failures=failures, client=client)(fails)()
            with self.assertRaises(tgad.NotSent):
                asyncio.run(later())
            reports = [path for path, _ in daemon.asked if path != "/v1/begin"]
            self.assertEqual(reports, ["/v1/traces/t/not-sent"] * 2, failures)

    def test_words_that_no_text_has_are_said_all_the_same(self):
        """An error that names a file has half a surrogate pair where the name is no UTF-8."""
        fails = ValueError("a" * 199 + HALF + "b")

        def raises():
            raise fails

        async def fall(begun):
            raises()

        async def not_sent(begun):
            raise tgad.NotSent(str(fails))

        async def failure(begun):
            await begun.finish(status="FAILURE", error_message=str(fails))

        for kind in (tgad.Client, tgad.AsyncClient):
            for body, verb, member in [(fall, "give-up", "cause"), (not_sent, "not-sent", "reason"), (failure, "finish", "error_message")]:
                daemon = self.daemon(grants)
                found = sends(kind(daemon.server_address), body)
                self.assertNotIsInstance(found, UnicodeError)
                path, report = daemon.asked[-1]
                self.assertEqual((path, report[member][-2:]), ("/v1/traces/t/" + verb, "\ufffdb"), kind)
        daemon = self.daemon(grants)
        with tgad.Client(daemon.server_address) as client, self.assertRaises(ValueError) as caught:
            tgad.tool(server="s", name="t", key=lambda: "k", failures=(ValueError,), client=client)(raises)()
        self.assertIs(caught.exception, fails)
        self.assertEqual(daemon.asked[-1][1]["status"], "FAILURE")


class Sent(Asking):
    def test_what_was_sent_once_was_sent(self):
        """Whether the daemon may have a request is not said of its last repeat alone."""
        request = _exchange.Request("POST", "/x", b"{}")
        lost, away = _exchange.Broken("reset", True), _exchange.Broken("refused", False)
        busy = _exchange.Answer(503, b'{"code":"STORE_UNAVAILABLE","detail":"x","retryable":true}')
        stray = _exchange.Answer(503, b"<html>")
        for came, sent in [([away], False), ([lost], True), ([lost, away], True), ([away, lost, away], True), ([busy, away], False), ([stray], True), ([stray, away], True)]:
            steps = _exchange.exchange(request, 1000)
            next(steps)
            with self.assertRaises(tgad.Unreachable) as caught:
                for n, what in enumerate(came):
                    last = n == len(came) - 1
                    with mock.patch.object(_exchange, "is_time", lambda *_: not last):
                        step = steps.throw(what) if isinstance(what, Exception) else steps.send(what)
                        self.assertIsInstance(step, _exchange.Sleep)
                        next(steps)
            self.assertEqual(caught.exception.sent, sent, came)

    def test_a_refusal_says_whether_to_ask_again(self):
        for code in ("LIMIT_EXCEEDED", "STORE_UNAVAILABLE", "OF_TOMORROW"):
            for says in (True, False):
                self.assertIs(error_of(json.dumps({"code": code, "detail": "x", "retryable": says})).retryable, says)

    def test_a_forked_process_has_connections_of_its_own(self):
        """Two processes on one connection would read each other's answers."""
        daemon = self.daemon(lambda _, body: {**CALL, "result": body["idempotency_key"]})
        with tgad.Client(daemon.server_address, timeout=5) as client:
            client.call("s", "t", key="first")
            wires = client._wires
            inherited = {wire.sock.fileno() for wire in wires._idle}
            self.assertEqual(len(inherited), 1)
            wires._lock.acquire()  # as a thread that is not in the child
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                fine = False
                try:
                    fine = all(client.call("s", "t", key=f"child-{n}").value == f"child-{n}" for n in range(50))
                finally:
                    os._exit(0 if fine else 1)
            wires._lock.release()
            mine = [client.call("s", "t", key=f"parent-{n}").value for n in range(50)]
            self.assertEqual(mine, [f"parent-{n}" for n in range(50)])
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_any_name_of_a_client(self):
        names = {"агент": "агент", "a\r\nB: c": "a  B: c", "a\x00\x7f": "a  ", HALF: "\ufffd"}
        for name, said in names.items():
            heads = []

            class Reading(Answering):
                def do_POST(self):
                    heads.append(self.headers["Tgad-Client"])
                    super().do_POST()

            daemon = self.daemon(lambda path, body: CALL)
            daemon.RequestHandlerClass = Reading
            with tgad.Client(daemon.server_address, name=name) as client:
                client.call("s", "t", key="k")
            asyncio.run(tgad.AsyncClient(daemon.server_address, name=name).call("s", "t", key="k"))
            self.assertEqual([head.encode("latin-1").decode() for head in heads], [said] * 2)

    def test_an_exponent_that_nothing_holds(self):
        for text in ("1E+9999999999999999999", "1E-9999999999999999999", "0E+99999999999999999999"):
            try:
                value = tgad.parse(text)
            except ValueError:  # and nothing else
                continue
            self.assertEqual(Decimal(str(value)), Decimal(text))  # as PyPy does


if __name__ == "__main__":
    unittest.main()
