// JSON whose numbers and bytes do not change. Text that a tool wrote is kept unchanged: it is cut
// out of a message, not parsed and written again.

/** A number that neither a double nor a bigint holds, as it is written. */
export class JsonNumber {
  constructor(readonly text: string) {
    if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text)) throw new SyntaxError(`${text} is not a JSON number`);
  }

  toString(): string {
    return this.text;
  }
}

/**
 * Returns the JSON text of a value, as JSON.stringify would, but nothing is changed on the way. A bigint
 * keeps all its digits. A number that may have lost digits is a RangeError: write it as a bigint. A
 * Uint8Array is JSON text already and is taken as it is. What JSON does not have is a TypeError.
 */
export function encode(value: unknown): string {
  if (value instanceof Uint8Array) {
    const text = decodeUtf8(value);
    parse(text);
    return text;
  }
  if (value instanceof JsonNumber) return value.text;
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return JSON.stringify(value);
    case 'bigint':
      return value.toString();
    case 'number':
      if (!Number.isFinite(value)) throw new RangeError(`JSON has no ${value}`);
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
        throw new RangeError(`${value} may have lost digits: write it as a bigint, or as a JsonNumber if it is meant as it stands`);
      }
      return JSON.stringify(value);
    case 'object':
      break;
    default:
      throw new TypeError(`JSON has no ${typeof value}`);
  }
  if (value === null) return 'null';
  if (Array.isArray(value)) return `[${Array.from(value, (of) => encode(of)).join(',')}]`;
  return encodeObject(value);
}

/** Objects whose content is not in their members, so that they would be written as {}. */
const unseen = [Map, Set, WeakMap, WeakSet, Promise, RegExp, Error, ArrayBuffer];

function encodeObject(value: object): string {
  const own = value as Record<string, unknown> & { toJSON?: () => unknown };
  if (typeof own.toJSON === 'function') return encode(own.toJSON());
  if (value instanceof Number || value instanceof String || value instanceof Boolean) return encode(value.valueOf());
  if (unseen.some((kind) => value instanceof kind) || ArrayBuffer.isView(value)) throw new TypeError(`JSON has no ${value.constructor.name}`);
  const members = Object.entries(own).filter(([, of]) => of !== undefined);
  return `{${members.map(([name, of]) => `${JSON.stringify(name)}:${encode(of)}`).join(',')}}`;
}

/**
 * Reads JSON text. No number changes and no member is dropped: an integer that a double does not hold is
 * a bigint, another such number is a JsonNumber, and a member that stands twice is a SyntaxError.
 */
export function parse(text: string): unknown {
  const reader = new Reader(text);
  const value = reader.value();
  reader.end();
  return value;
}

/** The members of a JSON object, each as the text that it is written as. */
export function members(text: string): Map<string, string> {
  const reader = new Reader(text);
  const found = new Map<string, string>();
  reader.members((name, begin, end) => void found.set(name, text.slice(begin, end)));
  reader.end();
  return found;
}

/**
 * The same words, in what UTF-8 has: half of a surrogate pair, as where a text was cut, becomes U+FFFD. For what
 * people read, where losing a letter is better than losing the message.
 */
export function plain(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}

/** Reads UTF-8; bytes that are none are a TypeError. */
export function decodeUtf8(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
}

const literals: ReadonlyArray<readonly [string, unknown]> = [['true', true], ['false', false], ['null', null]];
const number = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const space = /[ \t\n\r]*/y;

class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  end(): void {
    this.skip();
    if (this.at < this.text.length) this.fail();
  }

  value(): unknown {
    this.skip();
    const first = this.text[this.at];
    if (first === '{') {
      const object = {};
      this.members((name, _begin, _end, value) => {
        // Not an assignment: the name may be __proto__.
        Object.defineProperty(object, name, { value, writable: true, enumerable: true, configurable: true });
      });
      return object;
    }
    if (first === '[') return this.elements();
    if (first === '"') return this.string();
    for (const [word, value] of literals) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return exact(this.take(number));
  }

  members(each: (name: string, begin: number, end: number, value: unknown) => void): void {
    const names = new Set<string>();
    this.list('{', '}', () => {
      const name = this.string();
      this.skip();
      this.expect(':');
      this.skip();
      const begin = this.at;
      const value = this.value();
      if (names.has(name)) throw new SyntaxError(`the member ${JSON.stringify(name)} stands twice`);
      names.add(name);
      each(name, begin, this.at, value);
    });
  }

  private elements(): unknown[] {
    const all: unknown[] = [];
    this.list('[', ']', () => void all.push(this.value()));
    return all;
  }

  private list(open: string, close: string, item: () => void): void {
    this.skip();
    this.expect(open);
    this.skip();
    if (this.text[this.at] === close) {
      this.at++;
      return;
    }
    for (;;) {
      this.skip();
      item();
      this.skip();
      if (this.text[this.at] === close) {
        this.at++;
        return;
      }
      this.expect(',');
    }
  }

  private string(): string {
    if (this.text[this.at] !== '"') this.fail();
    // Only the end of the string is searched, and JSON.parse reads the rest. One regular expression for the whole string overflows the stack at some million characters.
    let end = this.at;
    do {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) this.fail();
    } while (this.escaped(end));
    const found = JSON.parse(this.text.slice(this.at, end + 1)) as string;
    this.at = end + 1;
    return found;
  }

  /** Whether an odd number of backslashes is before a character of a string. */
  private escaped(at: number): boolean {
    let first = at;
    while (this.text[first - 1] === '\\') first--;
    return (at - first) % 2 === 1;
  }

  private take(what: RegExp): string {
    what.lastIndex = this.at;
    const found = what.exec(this.text)?.[0];
    if (found === undefined) this.fail();
    this.at += found.length;
    return found;
  }

  private skip(): void {
    space.lastIndex = this.at;
    this.at += space.exec(this.text)?.[0].length ?? 0;
  }

  private expect(what: string): void {
    if (this.text[this.at] !== what) this.fail();
    this.at++;
  }

  private fail(): never {
    throw new SyntaxError(`the text is not JSON at position ${this.at}`);
  }
}

/** A number as a value that has all of it. */
function exact(text: string): number | bigint | JsonNumber {
  const near = Number(text);
  if (/^-?\d+$/.test(text)) return Number.isSafeInteger(near) ? near : BigInt(text);
  return Number.isFinite(near) && decimal(String(near)) === decimal(text) ? near : new JsonNumber(text);
}

/** The digits and the exponent of a number, the same for all its spellings. */
function decimal(text: string): string {
  const [, sign = '', whole = '', part = '', power = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const digits = (whole + part).replace(/^0+/, '');
  let last = digits.length;
  while (digits[last - 1] === '0') last--; // /0+$/ would try again at each zero, in quadratic time
  const short = digits.slice(0, last);
  return short === '' ? '0' : `${sign}${short}e${BigInt(power) - BigInt(part.length) + BigInt(digits.length - short.length)}`;
}
