"""What needs no daemon. Run it with python3 -m unittest."""

import asyncio
import hashlib
import socket
import tempfile
import threading
import time
import unittest
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
            steps = _verbs.begin({}, "b", 0.2)
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
        self.assertFalse(Begun({**begun, "asked": time.monotonic() - 0.9}).late())
        self.assertTrue(Begun({**begun, "asked": time.monotonic() - 1.0}).late())
        del begun["send_within_ms"]
        self.assertFalse(Begun({**begun, "asked": 0}).late())


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


if __name__ == "__main__":
    unittest.main()
