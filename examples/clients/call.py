#!/usr/bin/env python3
"""One governed tool call over tgad's socket, with nothing but the standard library.

    call.py SOCKET SERVER TOOL KEY ARGS

ARGS is a JSON object and travels as it is. The answer is one JSON object on stdout.
Exit codes: 0 the tool succeeded, 1 it did not or the call was refused, 2 usage,
4 in doubt: the tool may have run; never call again with another key.

KEY names the logical call. After any failure of this program, run it again with the
same key: tgad sends a call at most once and answers a repeat from its ledger.
"""
import http.client
import json
import socket
import sys


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("tgad", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def call(path, server, tool, key, args):
    """Returns the HTTP status and the answer's bytes."""
    head = json.dumps({"tool_server": server, "tool_name": tool, "idempotency_key": key})
    # args is spliced in, not decoded: a float of another language may hold fewer digits.
    body = (head[:-1] + ', "args": ' + args + "}").encode()
    conn = UnixConnection(path, timeout=35)
    try:
        conn.request("POST", "/v1/tool-calls", body, {
            "Content-Type": "application/json",
            "Tgad-Client": "call.py",
            "Tgad-Timeout": "30s",
        })
        response = conn.getresponse()
        return response.status, response.read()
    finally:
        conn.close()


def main(argv):
    if len(argv) != 6:
        print(f"usage: {argv[0]} SOCKET SERVER TOOL KEY ARGS", file=sys.stderr)
        return 2
    try:
        status, raw = call(*argv[1:])
        answer = json.loads(raw)
    except (OSError, http.client.HTTPException, ValueError) as err:
        print(f"{argv[0]}: {err}", file=sys.stderr)
        return 1
    print(raw.decode().strip())
    if answer.get("code") == "EFFECT_IN_DOUBT":
        return 4
    return 0 if status == 200 and answer.get("status") == "SUCCESS" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
