import { createHash, randomBytes } from 'node:crypto';
import type { Asked } from './exchange.js';
import { encode, plain } from './json.js';
import type { BeginRequest, CallRequest } from './wire.js';

/** The arguments of a call: an object, or the JSON text of one, which travels as it is. */
export type Args = object | Uint8Array | undefined;

/** How a method waits. */
export interface Wait {
  /** For how many milliseconds it waits for its answer; the client's own time where it is absent. */
  timeoutMs?: number;
  /** Ends the waiting. The call goes on: to learn what became of it, make it again with the same key. */
  signal?: AbortSignal;
}

/** Members of a request that a method takes in another way. */
type Spelled = 'tool_server' | 'tool_name' | 'args' | 'idempotency_key' | 'deadline';

/** How a call is made. What is not said here is as in the protocol, by the protocol's names. */
export interface CallOptions extends Wait, Omit<CallRequest, Spelled> {
  /** Names the call: the same for every repeat of it, and for no other call. */
  key?: string;
  /** Until when the call may be sent at all. */
  deadline?: Date;
}

/** The licence of a program that runs the tool itself: it says what running the tool again would do. */
export type Claim = Pick<BeginRequest, 'licence' | 'licence_window_ms' | 'licence_max_in_flight_ms'>;

/** How a call is made that the caller sends. */
export interface BeginOptions extends CallOptions, Claim {
  /** Your own name of this begin: the same again finds the same call. */
  beginId?: string;
}

/** What is known of what became of a call, by the names of the protocol. */
export interface Facts {
  outcome_class?: string;
  summary?: string;
  error_code?: string;
  error_message?: string;
  retry_after_ms?: number;
  changes?: unknown[];
}

/** What a tool said: a JSON value, or its bytes as `raw`. */
export interface Outcome extends Wait, Facts {
  /** SUCCESS where it is absent; FAILURE, DENIED or ERROR. */
  status?: string;
  value?: unknown;
  raw?: Uint8Array;
}

/** The members of a request for a call, each as JSON text. */
export function wanted(server: string, tool: string, args: Args, options: BeginOptions): Map<string, string> {
  const { key, deadline, beginId: _id, timeoutMs: _ms, signal: _signal, ...more } = options;
  const texts = new Map([
    ['tool_server', encode(server)],
    ['tool_name', encode(tool)],
  ]);
  const members = { idempotency_key: key, deadline: deadline === undefined || deadline === null ? undefined : timestamp(deadline), ...more };
  for (const [name, value] of Object.entries(members)) {
    if (value !== undefined) texts.set(name, encode(value));
  }
  if (args !== undefined) texts.set('args', encode(args));
  return texts;
}

/** The members that say what became of a call. The answer always travels as bytes: they are all kept. */
export function outcomeOf(outcome: Outcome): Map<string, string> {
  const { status, value, raw, timeoutMs: _ms, signal: _signal, ...facts } = outcome;
  const texts = new Map([['status', encode(status ?? 'SUCCESS')]]);
  const bytes = raw ?? (value === undefined ? undefined : Buffer.from(encode(value), 'utf8'));
  if (bytes !== undefined) texts.set('result_base64', encode(Buffer.from(bytes).toString('base64')));
  for (const [name, fact] of Object.entries(facts)) {
    if (fact !== undefined) texts.set(name, encode(typeof fact === 'string' ? plain(fact) : fact));
  }
  return texts;
}

/** A time as the protocol writes it. */
function timestamp(deadline: Date): string {
  if (typeof deadline.toISOString !== 'function') throw new TypeError(`a deadline is a Date, not ${JSON.stringify(deadline)}`);
  return deadline.toISOString();
}

/** The same members with the length and the digest of an answer in its place. */
export function byDigest(texts: Map<string, string>): Map<string, string> {
  const raw = Buffer.from(JSON.parse(texts.get('result_base64') ?? '""') as string, 'base64');
  const short = new Map(texts);
  short.delete('result_base64');
  return short.set('result_bytes', encode(raw.length)).set('result_digest', encode(createHash('sha256').update(raw).digest('hex')));
}

/** A request whose members are JSON texts. */
export function post(path: string, texts: Map<string, string>, again = true): Asked {
  const body = [...texts].map(([name, text]) => `${encode(name)}:${text}`).join(',');
  return { method: 'POST', path, body: Buffer.from(`{${body}}`, 'utf8'), again };
}

/** A request that reads. */
export function get(path: string, query: Record<string, string | undefined> = {}): Asked {
  const given = Object.entries(query).filter((e): e is [string, string] => e[1] !== undefined);
  return { method: 'GET', path: given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`, again: true };
}

/** The path of something of a trace. */
export function tracePath(trace: string, rest = ''): string {
  return `/v1/traces/${encodeURIComponent(trace)}${rest}`;
}

/** A UUIDv7. */
export function newTraceId(): string {
  const b = randomBytes(16);
  b.writeUIntBE(Date.now(), 0, 6);
  b.writeUInt8(0x70 | (b.readUInt8(6) & 0x0f), 6);
  b.writeUInt8(0x80 | (b.readUInt8(8) & 0x3f), 8);
  return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
