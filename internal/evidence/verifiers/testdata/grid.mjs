// Runs the first script of the page, whose path is the argument, over the cases that stand on
// standard input.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { webcrypto } from "node:crypto";
import vm from "node:vm";

const page = readFileSync(process.argv[2], "utf8");
const source = /<script id="verifier">([^]*?)<\/script>/.exec(page)[1];
const context = vm.createContext({ crypto: webcrypto, TextEncoder, TextDecoder, Uint8Array });
const { able, check } = vm.runInContext(source + "\nVerifier", context);
const text = (r) => JSON.stringify({ ...r, timeline: undefined }, (_, v) => typeof v === "bigint" ? Number(v) : v);

const unable = await able();
if (unable) { console.log(JSON.stringify({ verdict: "unable", message: unable })); process.exit(0); }
const bases = new Map(), cases = [];
for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  if (c.bundle !== undefined) bases.set(c.base, Uint8Array.from(Buffer.from(c.bundle, "base64")));
  else cases.push(c);
}
async function run(c) {
  const b = Uint8Array.from(bases.get(c.base));
  if (c.at >= 0) b[c.at] = c.byte;
  try { return await check(b, { key: c.key, witnesses: c.witnesses, old: c.old }); } catch (e) { return { verdict: "broken", message: String(e.stack) }; }
}
// Many at a time: each digest is a wait.
for (let i = 0; i < cases.length; i += 64) {
  const some = cases.slice(i, i + 64), said = await Promise.all(some.map(run));
  const other = some.findIndex((c, k) => c.want !== "" && c.want !== said[k].verdict);
  if (other >= 0) { console.log(JSON.stringify({ verdict: said[other].verdict, message: some[other].name })); break; }
  if (some[0].want === "") console.log(said.map(text).join("\n"));
}
