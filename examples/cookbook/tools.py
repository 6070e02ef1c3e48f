"""The tool server of docs/COOKBOOK.md: MCP on stdin and stdout, with nothing but Python.

Each tool does one thing to the directory that it runs in. Take the one that you need, or see
how your own server has to be: a call does its work whole or not at all where it can, the row or the
job carries the key, and a second tool only reads.

    python3 tools.py
"""

import contextlib
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import threading

TEXT = {"type": "string"}
WRITING = threading.Lock()


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or "git failed")
    return done.stdout


def remote_head(branch):
    found = git("ls-remote", "origin", "refs/heads/" + branch).split()
    return {"head": found[0] if found else "none"}


def push(branch, onto, commit):
    # The lease is what makes an old push harmless: the branch moves from `onto` and from nowhere else.
    git("push", "--force-with-lease=refs/heads/" + branch + ":" + onto, "origin", commit + ":refs/heads/" + branch)
    return remote_head(branch)


def database():
    db = sqlite3.connect("shop.db", isolation_level=None, timeout=5)
    db.executescript(
        "CREATE TABLE IF NOT EXISTS orders (request TEXT PRIMARY KEY, item TEXT, quantity INTEGER);"
        "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, quantity INTEGER);"
    )
    return db


def find_order(request):
    with contextlib.closing(database()) as db:
        row = db.execute("SELECT item, quantity FROM orders WHERE request = ?", [request]).fetchone()
    return {"found": False} if row is None else {"found": True, "order": {"item": row[0], "quantity": row[1]}}


def add_order(request, item, quantity):
    # One transaction has the row with the key and what goes with it: both are there, or neither is. The
    # primary key refuses whoever comes a second time.
    with contextlib.closing(database()) as db, db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO orders VALUES (?, ?, ?)", [request, item, quantity])
        db.execute("UPDATE stock SET quantity = quantity - ? WHERE item = ?", [quantity, item])
    return {"item": item, "quantity": quantity}


def run(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    return {"exit": done.returncode, "output": done.stdout + done.stderr}


def publish():
    return run("mkdir -p public && cp -R site/. public/")


def put(name, content):
    data = content.encode()
    path = os.path.join("store", os.path.basename(name))
    with open(path + ".new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)  # a reader sees the old content or the new one
    return {"name": os.path.basename(name), "sha256": hashlib.sha256(data).hexdigest()}


TOOLS = {
    "push": (push, {"branch": TEXT, "onto": TEXT, "commit": TEXT}),
    "remote_head": (remote_head, {"branch": TEXT}),
    "add_order": (add_order, {"request": TEXT, "item": TEXT, "quantity": {"type": "integer"}}),
    "find_order": (find_order, {"request": TEXT}),
    "run": (run, {"command": TEXT}),
    "publish": (publish, {}),
    "put": (put, {"name": TEXT, "content": TEXT}),
}


def call(name, arguments):
    try:
        result = TOOLS[name][0](**arguments)
    except (KeyError, TypeError, ValueError, OSError, sqlite3.Error) as error:
        return {"isError": True, "content": [{"type": "text", "text": str(error)}]}
    return {"structuredContent": result, "content": [{"type": "text", "text": json.dumps(result)}]}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "cookbook", "version": "1"},
        }
    if method == "tools/list":
        return {
            "tools": [
                {"name": name, "inputSchema": {"type": "object", "properties": fields, "required": list(fields)}}
                for name, (_, fields) in TOOLS.items()
            ]
        }
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return {} if method == "ping" else None


def reply(message):
    if "id" not in message:
        return  # a notification
    whole = {"jsonrpc": "2.0", "id": message["id"]}
    result = answer(message["method"], message.get("params", {}))
    if result is None:
        whole["error"] = {"code": -32601, "message": "no method " + message["method"]}
    else:
        whole["result"] = result
    with WRITING:
        print(json.dumps(whole), flush=True)


def serve():
    for line in sys.stdin:
        threading.Thread(target=reply, args=[json.loads(line)]).start()  # a slow call holds up no other


if __name__ == "__main__":
    serve()
