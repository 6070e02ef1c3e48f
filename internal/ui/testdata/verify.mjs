// Runs the page's own verify over the traces on stdin, one JSON value a line, and prints what it says of
// each: "" where it verifies, else why not.
import { readFileSync } from "node:fs";
globalThis.document = { addEventListener() {}, querySelectorAll: () => [] };
globalThis.setInterval = () => {};
let trace;
globalThis.fetch = async () => ({ ok: true, json: async () => JSON.parse(trace) });
const verify = new Function(readFileSync(process.argv[2], "utf8") + "\nreturn verify;")();
for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  trace = line;
  let said = "";
  try { await verify("x"); } catch (err) { said = err.message || "?"; }
  console.log(JSON.stringify(said));
}
