"""What needs no daemon. Run it with python3 -m unittest."""

import asyncio
import hashlib
import http.server
import inspect
import itertools
import json
import os
import signal
import socket
import socketserver
import tempfile
import threading
import time
import unittest
import uuid
from unittest import mock
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import tgad
from tgad import _exchange, _json, _verbs
from tgad._begun import Begun
from tgad._result import Result, error_of


class Texts(unittest.TestCase):
    def test_numbers_do_not_change(self):
        self.assertEqual(tgad.parse("[9007199254740993, 1e400, 0.1, 1.0]"), [9007199254740993, Decimal("1e400"), 0.1, 1.0])
        self.assertEqual(tgad.parse("0.1000000000000000055511151231257827"), Decimal("0.1000000000000000055511151231257827"))
        self.assertEqual(tgad.encode({"n": 2**64}), '{"n":18446744073709551616}')

    def test_nothing_is_dropped(self):
        for text in ['{"a":1,"a":2}', "NaN", "[Infinity]", '{"a":1} x']:
            with self.assertRaises(ValueError, msg=text):
                tgad.parse(text)

    def test_only_json_is_written(self):
        for value in [{1: 2}, {"a": {None: 1}}, {"a": object()}, {"a": {1, 2}}]:
            with self.assertRaises(TypeError, msg=repr(value)):
                tgad.encode(value)
        for value in [float("nan"), b'{"a":1},"b":2', b"\xff"]:
            with self.assertRaises(ValueError, msg=repr(value)):
                tgad.encode(value)
        self.assertEqual(tgad.encode(b' {"a" : 1.0}'), ' {"a" : 1.0}')

    def test_members_are_cut_out(self):
        text = ' { "a" : { "b" : 1.0 , "c":"}" } , "d\\u0041":[ 1e2 ]}'
        self.assertEqual(_json.members(text), {"a": '{ "b" : 1.0 , "c":"}" }', "dA": "[ 1e2 ]"})
        for broken in ["", "[]", "{", '{"a"', '{"a":1', '{"a":1 "b":2}', "{1:2}"]:
            with self.assertRaises(ValueError, msg=broken):
                _json.members(broken)


class Messages(unittest.TestCase):
    def test_result_keeps_bytes(self):
        text = '{"sequence_number":4,"attempts":1,"sent":1,"replayed":false,"status":"SUCCESS","result":%s}'
        self.assertEqual(Result(text % '{ "a": 1.0 }').raw, b'{ "a": 1.0 }')
        self.assertEqual(Result(text % '1,"result_base64":"/wA="').raw, b"\xff\x00")
        self.assertEqual(Result(text % '""').check().value, "")

    def test_unknown_code_is_the_base_class(self):
        error = error_of('{"code":"OF_LATER","detail":"what","retryable":true,"trace_id":"t"}')
        self.assertIs(type(error), tgad.Error)
        self.assertEqual((str(error), error.trace_id), ("OF_LATER: what", "t"))

    def test_ids_and_times(self):
        ids = [_verbs.new_trace_id() for _ in range(1000)]
        self.assertEqual(len(set(ids)), 1000)
        for id in ids:
            self.assertRegex(id, "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        at = datetime(2026, 1, 2, 3, 4, 5, 6999, timezone(timedelta(hours=1)))
        self.assertEqual(_verbs.timestamp(at), "2026-01-02T02:04:05.006Z")
        with self.assertRaises(ValueError):
            _verbs.timestamp(datetime(2026, 1, 2))
        for deadline in [time.time(), 0, "2026-01-02T02:04:05Z", at.date()]:
            with self.assertRaisesRegex(TypeError, "a deadline is a datetime"):
                _verbs.wanted("s", "t", None, None, deadline, {})

    def test_a_call_without_a_key_repeats_one_trace(self):
        bodies = []
        steps = _verbs.call(_verbs.wanted("s", "t", None, None, None, {}), 30)
        step = next(steps)
        for _ in range(3):
            bodies.append(step.request.body)
            self.assertIsInstance(steps.throw(_exchange.Broken("reset", True)), _exchange.Sleep)
            step = next(steps)
        self.assertEqual(len(set(bodies)), 1)
        self.assertIn(b'"trace_id":"', bodies[0])

    def test_a_vote_is_not_repeated(self):
        for sent in (False, True):
            steps = _verbs.once("t", "decide", {}, 30)
            next(steps)
            if sent:
                with self.assertRaises(tgad.Unreachable) as caught:
                    steps.throw(_exchange.Broken("reset", True))
                self.assertTrue(caught.exception.sent)
            else:
                self.assertIsInstance(steps.throw(_exchange.Broken("refused", False)), _exchange.Sleep)

    def test_a_repeat_without_time_is_not_made(self):
        clock = [0.0]
        waits = _exchange.Answer(200, b'{"standing":"wait","call":{"trace_id":"t","replayed":false}}')
        refused = _exchange.Answer(503, b'{"code":"CIRCUIT_OPEN","detail":"x","retryable":true}')
        with mock.patch("time.monotonic", lambda: clock[0]):
            steps = _verbs.begin({}, "b", 0.2, _exchange.Unheard())
            next(steps)
            self.assertIsInstance(steps.send(waits), _exchange.Sleep)
            clock[0] = 0.199  # it slept for longer
            with self.assertRaises(StopIteration) as ended:
                next(steps)
            self.assertEqual(ended.exception.value["standing"], "wait")
            for late in (0.0, 0.199):
                clock[0] = 0.0
                asked = _exchange.exchange(_verbs.post("/v1/begin", {}), 0.2)
                next(asked)
                clock[0] = late
                with self.assertRaises(tgad.CircuitOpen):
                    self.assertIsInstance(asked.send(refused), _exchange.Sleep)
                    clock[0] = 0.199
                    next(asked)

    def test_a_state_with_another_digest_is_refused(self):
        state = {"trace_id": "t", "current_state": "COMPLETED", "last_sequence_number": 4}
        digest = "05ad41d1b4a8ef4dd70ae6f7d4c0b1a51eb2dbb90e4d7f7ac0c5a0ff83f8b4b1"
        right = hashlib.sha256(b'{"current_state":"COMPLETED","last_sequence_number":4,"trace_id":"t"}').hexdigest()
        for given, good in ((right, True), (digest, False)):
            steps = _verbs.state("t", 30)
            next(steps)
            expected = StopIteration if good else tgad.StateChecksumMismatch
            with self.assertRaises(expected):
                steps.send(_exchange.Answer(200, tgad.encode({**state, "state_digest": given}).encode()))

    def test_the_time_of_a_permit(self):
        begun = {"standing": "send", "call": None, "cause": None, "args": None, "begin_id": "b", "send_within_ms": 1000}
        # A machine that slept has a monotonic clock that stood still; a wall clock may have been set back.
        for monotonic, wall, late in ((0.9, 0.9, False), (1.0, 1.0, True), (0.0, 1.0, True), (1.0, -3600.0, True)):
            asked = tuple(now - ago for now, ago in zip(_verbs.clocks(), (monotonic, wall)))
            self.assertEqual(late, Begun({**begun, "asked": asked}).late(), (monotonic, wall))
        del begun["send_within_ms"]
        self.assertFalse(Begun({**begun, "asked": (0.0, 0.0)}).late())


PROBLEM = b'{"code":"LIMIT_EXCEEDED","detail":"too long"}'


class Refusing(threading.Thread):
    """A server that answers before it has read a body, and closes: the rest of the body breaks."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            connection.recv(64)
            head = b"HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(PROBLEM)
            connection.sendall(head + PROBLEM)
            time.sleep(0.05)
            connection.close()


class Refusals(unittest.TestCase):
    def test_a_refusal_before_the_body_is_read(self):
        long = {"fill": "x" * 4_000_000}
        with tempfile.TemporaryDirectory() as directory:
            path = directory + "/s"
            Refusing(path).start()
            with tgad.Client(path, timeout=3) as client, self.assertRaises(tgad.LimitExceeded):
                client.call("s", "t", long, key="k")

            async def asks():
                async with tgad.AsyncClient(path, timeout=3) as client:
                    await client.call("s", "t", long, key="k")

            with self.assertRaises(tgad.LimitExceeded):
                asyncio.run(asks())


class Daemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server that answers as `says` does, and remembers what it was asked."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path, says):
        self.says, self.asked, self.connections = says, [], []
        super().__init__(path, Answering)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections.append(self.connection)

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        says = self.server.says(self.path, body)
        text = json.dumps(says).encode()
        try:
            if says.get("lost"):
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            pause = f"Retry-After: {says['retry_after']}\r\n".encode() if "retry_after" in says else b""
            self.wfile.write(b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n" % (says.get("status") if "code" in says else 200, pause, len(text)) + text)
        except OSError:
            pass  # nobody waits any more


CALL = {"trace_id": "t", "sequence_number": 4, "attempts": 1, "sent": 1, "replayed": False, "status": "SUCCESS", "result": 1}


def grants(path, _):
    """A daemon that grants every begin."""
    return {"standing": "send", "permit": "p", "call": CALL} if path == "/v1/begin" else CALL


class Asking(unittest.TestCase):
    def daemon(self, says):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        daemon = Daemon(directory.name + "/s", says)
        self.addCleanup(daemon.server_close)
        self.addCleanup(daemon.shutdown)
        return daemon


class Tools(Asking):
    def test_what_names_no_call_is_no_key(self):
        daemon = self.daemon(grants)
        with tgad.Client(daemon.server_address) as client:
            for key in [None, "", True, 1.5, object(), ["a"], b"a"]:
                with self.assertRaises(TypeError, msg=repr(key)):
                    tgad.tool(server="s", key=lambda: key, client=client)(lambda: self.fail("it ran"))()
            self.assertEqual(daemon.asked, [])
            for key in ["a", 7, uuid.UUID(int=7)]:
                tgad.tool(server="s", name="t", key=lambda: key, client=client)(lambda: 1)()
                self.assertEqual(daemon.asked[-2][1]["idempotency_key"], str(key))

    def test_what_is_no_json_was_done_all_the_same(self):
        daemon = self.daemon(grants)
        itself = {}
        itself["a"] = itself
        with tgad.Client(daemon.server_address) as client:
            for answer in [itself, object(), float("nan"), "\ud800", {1: 2}]:
                with self.assertRaises((TypeError, ValueError, RecursionError)):
                    tgad.tool(server="s", name="t", key=lambda: "k", client=client)(lambda: answer)()
                path, body = daemon.asked[-1]
                self.assertEqual((path, body["status"]), ("/v1/traces/t/finish", "SUCCESS"), repr(answer)[:40])

    def test_what_still_has_to_run_was_not_done(self):
        """A wrapped function may return what runs only later. Nobody knows how far it comes, so the call is in doubt."""

        async def waits():
            self.fail("it ran")

        def yields():
            yield self.fail("it ran")

        async def yields_later():
            yield self.fail("it ran")

        daemon = self.daemon(grants)
        with tgad.Client(daemon.server_address) as client:
            for later in (waits, yields, yields_later):
                with self.assertRaisesRegex(TypeError, "before it has run"):
                    tgad.tool(server="s", name="t", key=lambda: "k", client=client)(lambda: later())()
                self.assertEqual(daemon.asked[-1][0], "/v1/traces/t/give-up", later)

    def test_a_function_that_cannot_be_a_tool(self):
        def yields():
            yield 1

        async def yields_later():
            yield 1

        async def waits():
            return 1

        def blocks():
            return 1

        wrong = [(yields, None), (yields_later, None), (waits, tgad.Client("s")), (blocks, tgad.AsyncClient("s"))]
        for function, client in wrong:
            with self.assertRaises(TypeError, msg=function.__name__):
                tgad.tool(server="s", key=lambda: "k", client=client)(function)

    def test_a_begin_that_is_left_is_taken_back(self):
        """However the waiting for a begin ends without its answer, its permit is returned, unless its id is the caller's own."""

        def interrupted(client, given):
            client.begin("s", "t", {}, key="k", **given)

        def late(client, given):
            client.begin("s", "t", {}, key="k", timeout=0.05, **given)

        async def cancelled(client, given):
            task = asyncio.ensure_future(client.begin("s", "t", {}, key="k", **given)._ask())
            await asyncio.get_running_loop().run_in_executor(None, asked.wait)
            task.cancel()
            await task

        async def late_too(client, given):
            await client.begin("s", "t", {}, key="k", timeout=0.05, **given)

        ways = [
            (interrupted, lambda _: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt),
            (interrupted, lambda client: client.close(), tgad.Unreachable),
            (late, None, tgad.Unreachable),
            (cancelled, None, asyncio.CancelledError),
            (late_too, None, tgad.Unreachable),
        ]
        for (way, meanwhile, error), begin_id in itertools.product(ways, (None, "mine")):
            asked, go_on = threading.Event(), threading.Event()

            def slow(path, body):
                if path == "/v1/begin" and not asked.is_set():
                    asked.set()
                    if meanwhile is not None:
                        meanwhile(client)
                    go_on.wait(5)
                return grants(path, body)

            daemon = self.daemon(slow)
            given = {} if begin_id is None else {"begin_id": begin_id}
            if inspect.iscoroutinefunction(way):

                async def run():
                    async with tgad.AsyncClient(daemon.server_address) as client:
                        with self.assertRaises(error):
                            await way(client, given)
                        go_on.set()

                asyncio.run(run())
            else:
                with tgad.Client(daemon.server_address) as client, self.assertRaises(error):
                    way(client, given)
                go_on.set()
                for thread in threading.enumerate():  # as the end of a program does
                    if not thread.daemon and thread is not threading.current_thread():
                        thread.join(5)
            begins = [body for path, body in daemon.asked if path == "/v1/begin"]
            reports = [(path, body["permit"]) for path, body in daemon.asked if path != "/v1/begin"]
            self.assertEqual(reports, [("/v1/traces/t/not-sent", "p")] if begin_id is None else [], (way, meanwhile))
            self.assertEqual(len({body["begin_id"] for body in begins}), 1)

    def test_what_is_not_heard_of_a_begin(self):
        """A begin is taken back where the daemon may have permitted it, and nowhere else: people would be asked, who is away would be waited for."""
        refused = _exchange.Answer(503, b'{"code":"CIRCUIT_OPEN","detail":"x","retryable":true}')
        waits = _exchange.Answer(200, b'{"standing":"wait","call":{"trace_id":"t","replayed":false}}')
        granted = _exchange.Answer(200, b'{"standing":"send","call":{"trace_id":"t","replayed":false}}')
        lost, away = _exchange.Broken("reset", True), _exchange.Broken("refused", False)
        for came, may in [
            ([], True), ([away], False), ([lost], True), ([refused], False), ([waits], False), ([granted], True),
            ([away, "slept"], True), ([lost, "slept", refused], True), ([lost, "slept", away], True), ([lost, "slept", waits], False),
            ([waits, "slept", lost], True), ([refused, "slept", away], False),
        ]:
            unheard = _exchange.Unheard()
            steps = _verbs.begin({}, "b", 30, unheard)
            next(steps)
            for what in came:
                try:
                    if isinstance(what, Exception):
                        steps.throw(what)
                    else:
                        steps.send(None if what == "slept" else what)
                except StopIteration:
                    pass
            self.assertEqual(unheard.may, may, came)

    def test_people_are_not_asked_again_after_a_begin_without_an_answer(self):
        """A call waits for people; its next begin gets no answer; the one after it is the same begin."""
        waits = {"standing": "needs_approval", "call": CALL, "cause": {"code": "ESCALATION_REQUIRED", "detail": "x"}}
        refused = {"standing": "denied", "call": CALL}
        for kind in (tgad.Client, tgad.AsyncClient):
            answers = [waits, None, refused]

            def says(path, body):
                answer = answers.pop(0)
                if answer is None:
                    time.sleep(0.2)  # longer than it is waited for
                return answer or refused

            daemon = self.daemon(says)
            client = kind(daemon.server_address, timeout=0.1)
            options = {"server": "s", "name": "t", "key": lambda: "k", "client": client}
            if kind is tgad.Client:
                call = tgad.tool(**options)(lambda: self.fail("it ran"))
            else:

                async def function():
                    self.fail("it ran")

                def call(function=tgad.tool(**options)(function)):
                    return asyncio.run(function())

            for error in (tgad.EscalationRequired, tgad.Unreachable, tgad.PolicyViolation):
                with self.assertRaises(error):
                    call()
            self.assertEqual(len({body["begin_id"] for _, body in daemon.asked}), 1, kind)

    def test_an_async_client_in_many_loops(self):
        daemon = self.daemon(lambda path, body: CALL)
        client = tgad.AsyncClient(daemon.server_address, timeout=5)
        errors = []

        def loops():
            async def calls():
                for _ in range(4):
                    await asyncio.gather(*[client.call("s", "t", key="k") for _ in range(4)])

            try:
                for _ in range(3):
                    asyncio.run(calls())
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=loops) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        client.close()
        self.assertEqual((errors, len(daemon.asked)), ([], 4 * 3 * 16))

    def test_any_time_to_wait(self):
        daemon = self.daemon(lambda path, body: CALL)
        for timeout in (2**31 / 1000, 1e12, float("inf")):
            with tgad.Client(daemon.server_address, timeout=timeout) as client:
                self.assertEqual(client.call("s", "t", key="k").value, 1)
            self.assertEqual(asyncio.run(tgad.AsyncClient(daemon.server_address).call("s", "t", key="k", timeout=timeout)).value, 1)
        with self.assertRaises(ValueError):
            tgad.Client(daemon.server_address, timeout=float("nan")).call("s", "t", key="k")


if __name__ == "__main__":
    unittest.main()
