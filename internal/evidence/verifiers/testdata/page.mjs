// Runs both scripts of the page, whose path is the argument, on a document that has the few things
// they use. Standard input is JSON: the bundle in base64, the fields, and whether there is WebCrypto.
// What the page then shows is written as a list of [element, id, class, text].
import { readFileSync } from "node:fs";
import { webcrypto } from "node:crypto";
import vm from "node:vm";

class Element {
  constructor(name) { this.name = name; this.id = ""; this.className = ""; this.children = []; this.text = ""; this.value = ""; this.listeners = {}; }
  set textContent(s) { if (typeof s !== "string") throw new Error("no text"); this.text = s; this.children = []; }
  set innerHTML(_) { throw new Error("innerHTML"); }
  append(e) { this.children.push(e); }
  replaceChildren() { this.children = []; }
  addEventListener(name, f) { this.listeners[name] = f; }
  flat(out = []) {
    for (const e of this.children) { out.push([e.name, e.id, e.className, e.text]); e.flat(out); }
    return out;
  }
}

const asked = JSON.parse(readFileSync(0, "utf8"));
asked.bundle ??= ""; // nil bytes of Go
const bytes = Uint8Array.from(Buffer.from(asked.bundle, "base64"));
const elements = {};
for (const id of ["file", "key", "witnesses", "old", "check", "result"]) elements[id] = new Element(id);
elements.file.files = asked.bundle === "" ? [] : [{ arrayBuffer: async () => bytes.buffer }];
for (const id of ["key", "witnesses", "old"]) elements[id].value = asked[id];
const document = { getElementById: (id) => elements[id], createElement: (name) => new Element(name) };
const context = vm.createContext({ crypto: asked.crypto ? webcrypto : undefined, TextEncoder, TextDecoder, Uint8Array, document });
for (const [, script] of readFileSync(process.argv[2], "utf8").matchAll(/<script[^>]*>([^]*?)<\/script>/g)) vm.runInContext(script, context);
await elements.check.listeners.click();
console.log(JSON.stringify(elements.result.flat()));
process.exit(0);
