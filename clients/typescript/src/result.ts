import { PolicyViolation, StateError, StoreUnavailable, classes } from './codes.js';
import { TgadError } from './errors.js';
import { decodeUtf8, encode, members, parse } from './json.js';
import type { Call, Problem, Receipt } from './wire.js';

/**
 * No answer came. The daemon may have the request, and the call may go on. Make the same call again, with
 * the same key: it is not sent twice.
 */
export class Unreachable extends StoreUnavailable {
  override readonly name: string = 'Unreachable';
  override readonly retryable = true;

  /** `sent` says whether the daemon may have the request. */
  constructor(detail: string, readonly sent: boolean) {
    super({ detail });
  }
}

/** Where a call stands. `raw` is the tool's answer byte for byte, `value` is what it says. */
export class Result {
  /** The answer of the daemon, without the tool's own answer. */
  readonly call: Call;
  /** The tool's answer, byte for byte; undefined where it has none, or none is kept. */
  readonly raw: Uint8Array | undefined;

  constructor(text: string) {
    const own = members(text);
    const answer = own.get('result');
    const kept = own.get('result_base64');
    own.delete('result');
    own.delete('result_base64');
    this.call = valueOf(own) as Call;
    if (kept !== undefined) this.raw = Buffer.from(parse(kept) as string, 'base64');
    else if (answer !== undefined) this.raw = Buffer.from(answer, 'utf8');
  }

  /** The tool's answer, read as JSON; an error where it is none. No number changes. */
  get value(): unknown {
    return this.raw === undefined ? undefined : parse(decodeUtf8(this.raw));
  }

  /** The id of the call. */
  get traceId(): string | undefined {
    return this.call.trace_id;
  }

  /** PENDING, AUTHORIZED, EXECUTING, COMPLETED, FAILED or DENIED. */
  get state(): Call['state'] {
    return this.call.state;
  }

  /** What the tool said: SUCCESS, FAILURE, DENIED or ERROR. */
  get status(): Call['status'] {
    return this.call.status;
  }

  /** The idempotency key. */
  get key(): string | undefined {
    return this.call.idempotency_key;
  }

  /** Whether this is a recorded answer, for which nothing was sent now. */
  get replayed(): boolean {
    return this.call.replayed;
  }

  /** Where the call stands in the signed tree of the store, for a client with `receipts`; see Client.receipt. */
  get receipt(): Receipt | undefined {
    return this.call.receipt;
  }

  /** Whether the tool succeeded. */
  get ok(): boolean {
    return this.status === 'SUCCESS';
  }

  /** Returns this where the tool succeeded, else throws the error that is recorded. */
  check(): this {
    if (this.ok) return this;
    if (this.state === 'DENIED') {
      throw new PolicyViolation({ detail: this.call.rationale ?? 'a supervisor denied the call', call: this });
    }
    const code = this.call.error_code ?? 'TOOL_ERROR';
    const detail = this.call.error_message ?? this.call.summary ?? `the call is ${this.state}`;
    throw new (classes[code] ?? TgadError)({ detail, code, call: this });
  }
}

/** Reads members that were cut out. */
export function valueOf(own: Map<string, string>): unknown {
  return parse(`{${[...own].map(([name, text]) => `${encode(name)}:${text}`).join(',')}}`);
}

/** Makes the error of a problem document. */
export function errorOf(text: string): TgadError {
  const own = members(text);
  const call = own.get('call');
  own.delete('call');
  const problem = valueOf(own) as Problem;
  if (typeof problem.code !== 'string') return new StateError({ detail: `the daemon's answer is not a problem document: ${text.slice(0, 200)}` });
  return new (classes[problem.code] ?? TgadError)({
    detail: problem.detail ?? '',
    code: problem.code,
    problem,
    call: call === undefined ? undefined : new Result(call),
  });
}
