"""Runs verify.py, whose path is the argument, over the cases that stand on standard input."""

import base64
import importlib.util
import io
import json
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
verify = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verify)

bases = {}
for line in sys.stdin:
    c = json.loads(line)
    if "bundle" in c:
        bases[c["base"]] = base64.b64decode(c["bundle"])
        continue
    b = bytearray(bases[c["base"]])
    if c["at"] >= 0:
        b[c["at"]] = c["byte"]
    key = verify.Key(c["key"]) if c["key"] else None
    witnesses = [verify.Key(w, witness=True) for w in c["witnesses"] or []]
    try:
        r = verify.check_file(io.BytesIO(bytes(b)), key, witnesses, c["old"] or None)
    except Exception as e:  # a program that breaks down is no verdict
        r = {"verdict": "broken", "message": repr(e)}
    if c["want"] == "":
        print(json.dumps(r))
    elif c["want"] != r["verdict"]:
        print(json.dumps({"verdict": r["verdict"], "message": c["name"]}))
        break
