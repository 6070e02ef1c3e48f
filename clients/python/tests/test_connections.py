"""What a client does with its connections. Run it with python3 -m unittest."""

import asyncio
import itertools
import os
import signal
import socket
import tempfile
import threading
import time
import unittest

import tgad
from test_units import CALL, Asking, Daemon

BUSY = {"code": "LIMIT_EXCEEDED", "detail": "x", "retryable": True, "status": 503}


def entry(number, state):
    """A line of the entries of a trace."""
    return b'{"entry":{"sequence_number":%d,"to_state":"%s"}}\n' % (number, state.encode())


class Replaced(Asking):
    def test_a_new_daemon_is_asked_at_once(self):
        """Connections to a daemon that is gone are not tried one after the other, with a pause after each."""
        together = threading.Barrier(12)

        def says(path, body):
            if body["idempotency_key"] == "many":
                together.wait(10)
            return CALL

        async def calls(client, daemon, replace):
            await asyncio.gather(*[client.call("s", "t", key="many") for _ in range(12)])
            replace()
            await asyncio.sleep(0)
            return await client.call("s", "t", key="one", timeout=1)

        for kind in (tgad.Client, tgad.AsyncClient):
            daemon = self.daemon(says)

            def replace():
                daemon.shutdown()
                daemon.server_close()
                for connection in daemon.connections:
                    connection.shutdown(socket.SHUT_RDWR)
                os.unlink(daemon.server_address)
                self.addCleanup(Daemon(daemon.server_address, says).server_close)

            client = kind(daemon.server_address, timeout=10)
            if kind is tgad.AsyncClient:
                asyncio.run(calls(client, daemon, replace))
                continue
            threads = [threading.Thread(target=client.call, args=("s", "t"), kwargs={"key": "many"}) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            replace()
            client.call("s", "t", key="one", timeout=1)
            client.close()

    def test_a_full_queue_of_the_daemon_got_nothing(self):
        with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(directory + "/s")
            listener.listen(0)
            waiting = []
            try:
                while True:
                    waiting.append(socket.socket(socket.AF_UNIX))
                    waiting[-1].setblocking(False)
                    waiting[-1].connect(directory + "/s")
            except BlockingIOError:
                pass
            with self.assertRaises(tgad.Unreachable) as caught:
                asyncio.run(tgad.AsyncClient(directory + "/s").decide("t", True, "x", timeout=0.2))
            self.assertFalse(caught.exception.sent)
            for connection in waiting:
                connection.close()

    def test_a_forked_process_closes_no_connection_of_its_parent(self):
        daemon = self.daemon(lambda path, body: CALL)

        async def calls():
            client = tgad.AsyncClient(daemon.server_address, timeout=2)
            await client.call("s", "t", key="k")
            child = os.fork()
            if child == 0:
                client.close()
                os._exit(0)
            os.waitpid(child, 0)
            await client.call("s", "t", key="k")

        asyncio.run(calls())


class Closing(Asking):
    """The end of a client ends all waiting."""

    def closes(self, path, asked, **given):
        """Closes clients of both kinds while they wait, from another thread, once asked() has returned. Returns the errors."""
        errors = []

        def later(client):
            asked()
            time.sleep(0.1)
            client.close()

        for client in (tgad.Client(path), tgad.AsyncClient(path)):
            closing = threading.Thread(target=later, args=(client,))
            closing.start()
            begun = time.monotonic()
            with self.assertRaises(tgad.Unreachable) as caught:
                answer = client.call("s", "t", key="k", timeout=10, **given)
                if isinstance(client, tgad.AsyncClient):
                    asyncio.run(answer)
            self.assertLess(time.monotonic() - begun, 3, type(client))
            closing.join()
            errors.append(caught.exception)
        return errors

    def test_of_a_pause(self):
        asked = threading.Semaphore(0)
        daemon = self.daemon(lambda path, body: asked.release() or {**BUSY, "retry_after": "5"})
        self.closes(daemon.server_address, asked.acquire)

    def test_of_a_request_that_nobody_answers(self):
        asked, go_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(go_on.set)
        daemon = self.daemon(lambda path, body: asked.release() or go_on.wait(5) and CALL)
        for error in self.closes(daemon.server_address, asked.acquire):
            self.assertTrue(error.sent)

    def test_of_a_request_that_nobody_reads(self):
        with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(directory + "/s")
            listener.listen()
            accepted = []
            for error in self.closes(directory + "/s", lambda: accepted.append(listener.accept()[0]), args={"fill": "x" * 4_000_000}):
                self.assertTrue(error.sent)
            for connection in accepted:
                connection.close()

    def test_a_begin_of_a_closed_client_is_taken_back(self):
        asked = threading.Event()

        def slow(path, body):
            if path == "/v1/begin" and not asked.is_set():
                asked.set()
                time.sleep(0.2)
            return {"standing": "send", "permit": "p", "call": CALL} if path == "/v1/begin" else CALL

        daemon = self.daemon(slow)

        async def run():
            async with tgad.AsyncClient(daemon.server_address) as client:
                task = asyncio.ensure_future(client.begin("s", "t", {}, key="k")._ask())
                await asyncio.get_running_loop().run_in_executor(None, asked.wait)
                client.close()
                with self.assertRaises(tgad.Unreachable):
                    await task

        asyncio.run(run())
        self.assertEqual([path for path, _ in daemon.asked if path != "/v1/begin"], ["/v1/traces/t/not-sent"])


class Answers(Asking):
    def test_a_pause_that_is_no_number(self):
        """Retry-After may be a date, and a proxy may write anything there."""
        for text in ("Wed, 21 Oct 2026 07:28:00 GMT", "nan", "inf", "-5", "²"):
            answers = [{**BUSY, "retry_after": text}, CALL] * 2
            daemon = self.daemon(lambda path, body: answers.pop(0))
            with tgad.Client(daemon.server_address) as client:
                self.assertEqual(client.call("s", "t", key="k", timeout=5).value, 1)
            self.assertEqual(asyncio.run(tgad.AsyncClient(daemon.server_address).call("s", "t", key="k", timeout=5)).value, 1)
            self.assertEqual(len(daemon.asked), 4)

    def test_the_answer_to_a_vote_counts(self):
        """A refusal may be about what the call did after the vote. A second vote is refused, which says nothing of the first."""
        daemon = self.daemon(lambda path, body: {**BUSY, "code": "CIRCUIT_OPEN"} if len(daemon.asked) == 1 else {"code": "STATE_INVALID_TRANSITION", "detail": "x", "status": 409})
        with tgad.Client(daemon.server_address) as client, self.assertRaises(tgad.CircuitOpen):
            client.decide("t", True, "x", timeout=5)
        self.assertEqual(len(daemon.asked), 1)


class Follows(unittest.TestCase):
    def follows(self, answers, begin=lambda client: client.follow_trace("t", 4), most=None):
        """Follows a trace after its entry 4 with both clients, at a daemon that answers each connection with the next text."""
        for blocking in (True, False):
            begun, self.asked = time.monotonic(), []
            with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
                listener.bind(directory + "/s")
                listener.listen()

                def serve(left=tuple(answers)):
                    for text in left:
                        connection, _ = listener.accept()
                        with connection:
                            self.asked.append(connection.recv(9999).split()[1].decode())
                            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + text)

                threading.Thread(target=serve, daemon=True).start()

                async def run():
                    items = []
                    async for item in begin(tgad.AsyncClient(directory + "/s")):
                        items.append(item)
                        if len(items) == most:
                            break
                    return items

                if blocking:
                    signal.setitimer(signal.ITIMER_REAL, 5)
                    try:
                        yield list(itertools.islice(begin(tgad.Client(directory + "/s")), most))
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                else:
                    yield asyncio.run(asyncio.wait_for(run(), 5))
            self.assertLess(time.monotonic() - begun, 10)

    def setUp(self):
        def late(*_):
            raise AssertionError("the follower waits for ever")

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, late))

    def test_a_call_that_has_ended(self):
        """Nothing comes after the last entry, also where the follower has that one already."""
        for items in self.follows([b"0\r\n\r\n"]):
            self.assertEqual(items, [])

    def test_a_long_line_in_many_parts(self):
        line = entry(5, "COMPLETED")[:-2] + b',"fill":"%s"}\n' % (b"x" * 12_000_000)
        parts = [line[at : at + 2000] for at in range(0, len(line), 2000)]
        for items in self.follows([b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"]):
            self.assertEqual(len(items[0]["fill"]), 12_000_000)

    def test_an_answer_that_breaks_off(self):
        line = entry(5, "COMPLETED")
        cut = [b"", b"5\r\n{\"ent", b"1\r\n\n\r\n"]
        stops = b'{"problem":{"code":"STORE_UNAVAILABLE","detail":"x","retryable":true}}\n'
        whole = [b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text) for text in (stops, line)]
        for items in self.follows(cut + whole):
            self.assertEqual([item["entry"]["sequence_number"] for item in items], [5])

    def test_the_end_of_the_log_is_found_once(self):
        """A follower from the end of the log misses nothing that is appended before its first line, while it has no connection."""
        texts = [b"# HELP x\ntgad_log_cursor 1.5e+06\n", b'{"cursor":"1500001"}\n']
        metrics, line = [b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text) for text in texts]
        for items in self.follows([b"", metrics, b"", b"1\r\n\n\r\n", line], lambda client: client.follow("newest"), 1):
            self.assertEqual([item["cursor"] for item in items], ["1500001"])
            self.assertEqual(self.asked, ["/metrics"] * 2 + ["/v1/log?after=1500000&follow=1"] * 3)


if __name__ == "__main__":
    unittest.main()
