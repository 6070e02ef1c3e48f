import { EffectInDoubt, LimitExceeded, PolicyViolation } from './codes.js';
import { TgadError } from './errors.js';
import type { Asked, Waiting, Wires } from './exchange.js';
import { decodeUtf8, encode, members, parse, plain } from './json.js';
import { type Outcome, type Wait, byDigest, outcomeOf, post, tracePath } from './requests.js';
import { Result, errorOf, valueOf } from './result.js';
import type { Begun as Answer } from './wire.js';

/** The longest time of a report that is made while another error is on its way. */
export const lastWord = 5000;

/** What ends a block without a report. */
export const unreported = 'the block ended without finish(), notSent() or giveUp(): the call is in doubt';

/**
 * Throw it if certainly nothing reached the tool. The call then ends as not sent, and its key can be used
 * again.
 */
export class NotSent extends Error {
  override readonly name: string = 'NotSent';
}

/** Symbol.asyncDispose, for a Node that does not have it. */
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? (Symbol.for('Symbol.asyncDispose') as typeof Symbol.asyncDispose);

/** A reading of the monotonic and of the wall clock, in milliseconds. */
export type Clocks = readonly [monotonic: number, wall: number];

/**
 * The clocks now. The monotonic one stands still on many systems while the machine sleeps, and the wall clock can
 * be set back: of two readings the larger difference counts.
 */
export const clocks = (): Clocks => [performance.now(), Date.now()];

/**
 * What the daemon answered to a begin. Send only if the standing is 'send', and send only once. With 'serve'
 * `call` has the recorded answer. The others are wait, needs_approval, denied, conflict and in_doubt.
 */
export class Begun implements AsyncDisposable {
  /** What you are to do. */
  readonly standing: Answer['standing'];
  /** Why it may not be sent. */
  readonly cause: TgadError | undefined;
  /** The number of this attempt. */
  readonly attempt: number | undefined;
  /** The key to send with the call. */
  readonly key: string | undefined;
  /** The arguments to send, byte for byte. */
  readonly argsRaw: Uint8Array | undefined;
  readonly permit: string | undefined;
  /** Whether a report was made. */
  reported = false;
  /** The report that was made last, where it may be made again: no answer came, or one that is not final. */
  private unheard: Asked | undefined;
  private result: Result;
  private readonly within: number | undefined;

  /** `beginId` is your name of this begin; `asked` is when it was asked. */
  constructor(
    private readonly wires: Wires,
    private readonly waiting: Waiting,
    answer: string,
    readonly beginId: string,
    private readonly asked: Clocks,
  ) {
    const own = members(answer);
    const [call, cause, args] = [own.get('call') ?? '{}', own.get('cause'), own.get('args')];
    for (const name of ['call', 'cause', 'args']) own.delete(name);
    const begun = valueOf(own) as Answer;
    this.standing = begun.standing;
    this.attempt = begun.attempt;
    this.key = begun.idempotency_key;
    this.permit = begun.permit;
    this.within = begun.send_within_ms;
    this.result = new Result(call);
    this.cause = cause === undefined ? undefined : errorOf(cause);
    this.argsRaw = args === undefined ? undefined : Buffer.from(args, 'utf8');
  }

  /** Where the call stands; with 'serve' it has the recorded answer. */
  get call(): Result {
    return this.result;
  }

  /** The id of the call. */
  get traceId(): string | undefined {
    return this.result.traceId;
  }

  /** The arguments to send, as values. */
  get args(): unknown {
    return this.argsRaw === undefined ? undefined : parse(decodeUtf8(this.argsRaw));
  }

  /** Whether it is too late to send. Ask this last, directly before you send. If it is too late, report `notSent`. */
  late(): boolean {
    const now = clocks();
    return this.within !== undefined && Math.max(now[0] - this.asked[0], now[1] - this.asked[1]) >= this.within;
  }

  /** Throws why the call may not be sent and has no record; returns where the standing is send or serve. */
  check(): void {
    if (this.standing === 'send' || this.standing === 'serve') return;
    if (this.cause !== undefined) throw this.cause;
    if (this.standing === 'denied') {
      throw new PolicyViolation({ detail: this.call.call.rationale ?? 'a supervisor denied the call', call: this.call });
    }
    throw new EffectInDoubt({ detail: `the standing of the call is ${this.standing}`, call: this.call });
  }

  /**
   * Records what the tool said: a JSON value, or its bytes as `raw`. An answer that is too long for the daemon
   * is recorded by its digest: the call has run, and that must not get lost. A daemon that is only too busy
   * gets it whole, later.
   */
  async finish(outcome: Outcome = {}): Promise<Result> {
    const texts = outcomeOf(outcome);
    let answer: string;
    try {
      answer = await this.report('finish', texts, outcome);
    } catch (error) {
      if (!(error instanceof LimitExceeded) || error.retryable || !texts.has('result_base64')) throw error;
      answer = await this.report('finish', byDigest(texts), outcome);
    }
    this.result = new Result(answer);
    return this.result;
  }

  /** Reports that certainly nothing reached the tool. The key can be used again. */
  async notSent(reason: string, wait: Wait = {}): Promise<Result> {
    this.result = new Result(await this.report('not-sent', new Map([['reason', encode(plain(reason))]]), wait));
    return this.result;
  }

  /** Reports that you do not know whether the call ran. */
  async giveUp(cause: string, wait: Wait = {}): Promise<void> {
    await this.report('give-up', new Map([['cause', encode(plain(cause))]]), wait);
  }

  /** Gives up where nothing was reported: the end of a block with `await using`. */
  async [asyncDispose](): Promise<void> {
    await this.leave(undefined);
  }

  /**
   * Makes the report of a block that ends without one. A failure of this report hides no other error: without the
   * report the call is in doubt too, only later. Returns whether the outcome of the call is still not reported.
   */
  async leave(error: unknown): Promise<boolean> {
    if (this.standing !== 'send' || this.reported) return false;
    const wait = { timeoutMs: lastWord };
    try {
      if (this.unheard !== undefined) {
        // The outcome of the call is known. Giving up would lose it.
        this.result = new Result(await this.make(this.unheard, wait));
        return false;
      }
      if (error instanceof NotSent) await this.notSent(error.message, wait);
      else await this.giveUp(error === undefined ? 'its block ended without a report' : String(error), wait);
    } catch {
      // The daemon finds out when the permit's time is over.
    }
    return true;
  }

  private async report(verb: string, texts: Map<string, string>, wait: Wait): Promise<string> {
    if (this.permit === undefined || this.traceId === undefined) {
      throw new Error(`there is nothing to report: the standing of the call is ${this.standing}, and only send permits a send`);
    }
    const asked = post(tracePath(this.traceId, `/${verb}`), new Map([['permit', encode(this.permit)], ...texts]));
    if (verb !== 'give-up') this.unheard = asked;
    return this.make(asked, wait);
  }

  private async make(asked: Asked, wait: Wait): Promise<string> {
    try {
      const answer = await this.wires.exchange(asked, { timeoutMs: wait.timeoutMs ?? this.waiting.timeoutMs, signal: wait.signal });
      this.reported = true;
      return answer;
    } catch (error) {
      if (error instanceof TgadError && !error.retryable) this.unheard = undefined;
      throw error;
    }
  }
}
