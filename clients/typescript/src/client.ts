import { createHash, randomUUID } from 'node:crypto';
import path from 'node:path';
import { Begun, clocks, lastWord, unreported } from './begun.js';
import { StateChecksumMismatch } from './codes.js';
import { type Asked, type Unheard, type Waiting, Wires, firstPause, longestPause } from './exchange.js';
import { entries, follow, log } from './follow.js';
import { encode, parse } from './json.js';
import { type Args, type BeginOptions, type CallOptions, type Outcome, type Wait, get, newTraceId, outcomeOf, post, tracePath, wanted } from './requests.js';
import { Result } from './result.js';
import type { Approval, Approvals, Entry, ExecutionState, LogLine, OpenTrace, Receipt, Timeline, Traces } from './wire.js';

/** How a client is made. */
export interface ClientOptions {
  /** The daemon's socket; else the one that the command tgad takes: TGAD_SOCKET, or in XDG_RUNTIME_DIR or /run. */
  socket?: string;
  /** Who asks, in words. */
  name?: string;
  /** For how many milliseconds a method waits where it does not say: 30,000. */
  timeoutMs?: number;
  /** Ask for the receipt of each call with its answer. A checkpoint covers a call some seconds later: `receipt` has the proofs then. */
  receipts?: boolean;
}

/** What a person says about a call in doubt, and the evidence for it. */
export interface Resolution extends Outcome {
  /** A JSON value, or bytes. */
  evidence: unknown;
  /** The number of attempts that `inDoubt` showed you. If there are more by now, a word that frees the key is refused. */
  attempts?: number;
}

/**
 * A connection to a daemon. When the time of a method is over, or its signal is aborted, only the waiting ends:
 * the call goes on. To learn what became of it, make it again with the same key.
 */
export class Client {
  private readonly connect: () => Wires;
  private readonly wires: Wires;
  private readonly timeoutMs: number;

  constructor(options: ClientOptions = {}) {
    const { env } = process;
    const socket = options.socket ?? (env['TGAD_SOCKET'] || path.join(env['XDG_RUNTIME_DIR'] || '/run', 'tgad', 'tgad.sock'));
    this.connect = () => new Wires(socket, options.name ?? 'tgad-node', options.receipts ?? false);
    this.wires = this.connect();
    this.timeoutMs = options.timeoutMs ?? 30_000;
  }

  /** Ends all connections, and all waiting. */
  close(): void {
    this.wires.close();
  }

  /**
   * Makes one governed call and returns where it stands, whatever the tool said. While the daemon is away it
   * is asked again, with the same key.
   */
  async call(server: string, tool: string, args?: Args, options: CallOptions = {}): Promise<Result> {
    // A repeat names the trace of the first request, so it is the same call whatever the first one did.
    const texts = new Map([['trace_id', encode(newTraceId())], ...wanted(server, tool, args, options)]);
    return new Result(await this.wires.exchange(post('/v1/tool-calls', texts), this.within(options)));
  }

  /**
   * Asks to send a call yourself, and asks again while another program executes the call. With `await using`, a block
   * that ends without a report leaves the call in doubt.
   */
  async begin(server: string, tool: string, args?: Args, options: BeginOptions = {}): Promise<Begun> {
    const beginId = options.beginId ?? randomUUID();
    const asked = post('/v1/begin', wanted(server, tool, args, options).set('begin_id', encode(beginId)));
    const unheard = { may: false };
    try {
      return await this.begun(asked, beginId, this.within(options), unheard);
    } catch (error) {
      // If the caller chose the id, the caller may ask again.
      if (unheard.may && options.beginId === undefined) void this.takeBack(asked, beginId);
      throw error;
    }
  }

  private async begun(asked: Asked, beginId: string, waiting: Waiting, unheard: Unheard = { may: false }, wires = this.wires): Promise<Begun> {
    const end = performance.now() + waiting.timeoutMs;
    for (let pause = firstPause; ; pause = Math.min(2 * pause, longestPause)) {
      const at = clocks();
      const answer = await wires.exchange(asked, { ...waiting, timeoutMs: Math.max(end - performance.now(), 1) }, unheard);
      const begun = new Begun(wires, { timeoutMs: this.timeoutMs }, answer, beginId, at);
      if (begun.standing === 'wait') unheard.may = false;
      if (begun.standing !== 'wait' || !(await wires.again(pause, end, waiting))) return begun;
    }
  }

  /**
   * Returns the permit of a begin whose caller has stopped waiting: nothing was sent under it. Without this report
   * the call would be in doubt although it certainly did not run.
   */
  private async takeBack(asked: Asked, beginId: string): Promise<void> {
    const wires = this.connect(); // the client may be closed meanwhile
    try {
      const begun = await this.begun(asked, beginId, { timeoutMs: lastWord }, undefined, wires);
      if (begun.standing === 'send') await begun.notSent('the caller stopped waiting for the permit, and sent nothing', { timeoutMs: lastWord });
    } catch {
      // Without the report the call is in doubt, as it would be anyway.
    } finally {
      wires.close();
    }
  }

  /**
   * Begins a call and runs a block that sends it and reports. A block that throws leaves the call in doubt,
   * unless it throws NotSent; a block that ends without a report is an error.
   */
  async sending<T>(server: string, tool: string, args: Args, options: BeginOptions, block: (begun: Begun) => Promise<T>): Promise<T> {
    const begun = await this.begin(server, tool, args, options);
    let value: T;
    try {
      value = await block(begun);
    } catch (error) {
      await begun.leave(error);
      throw error;
    }
    if (await begun.leave(undefined)) throw new Error(unreported);
    return value;
  }

  /**
   * Votes on the question that a call asks people; after the last vote that is needed the call goes on. `about`
   * names the question that you were shown: `approvals` lists it with each question. If the call asks another
   * question by now, an approval is refused.
   */
  async decide(traceId: string, approve: boolean, rationale: string, { about, ...wait }: Wait & { about?: string } = {}): Promise<Result> {
    const texts = new Map([['approve', encode(approve)], ['rationale', encode(rationale)]]);
    if (about !== undefined) texts.set('about', encode(about));
    return this.once(traceId, 'decide', texts, wait);
  }

  /** Ends a call in doubt: you say what its effect was, and give the evidence. You vouch for both. */
  async resolve(traceId: string, { evidence, attempts, ...outcome }: Resolution): Promise<Result> {
    const texts = outcomeOf(outcome);
    if (attempts !== undefined) texts.set('attempts', encode(attempts));
    if (evidence instanceof Uint8Array) texts.set('evidence_base64', encode(Buffer.from(evidence).toString('base64')));
    else texts.set('evidence', encode(evidence));
    return this.once(traceId, 'resolve', texts, outcome);
  }

  /** Gives up a call in doubt: it ends FAILED, and its key is never sent again. */
  async abandon(traceId: string, reason: string, wait: Wait = {}): Promise<Result> {
    return this.once(traceId, 'abandon', new Map([['reason', encode(reason)]]), wait);
  }

  /** Continues a call from where a crash, a cancellation or an approval left it. */
  async recover(traceId: string, wait: Wait = {}): Promise<Result> {
    return new Result(await this.wires.exchange(post(tracePath(traceId, '/recover'), new Map()), this.within(wait)));
  }

  /**
   * Reports that you have the whole answer of a call that `scope` and `step` name: the same call in that step
   * is a new one from then on.
   */
  async delivered(traceId: string, wait: Wait = {}): Promise<void> {
    await this.wires.exchange(post(tracePath(traceId, '/delivered'), new Map()), this.within(wait));
  }

  /** The execution state of a call, its digest checked. */
  async state(traceId: string, wait: Wait = {}): Promise<ExecutionState> {
    const found = await this.read<ExecutionState>(tracePath(traceId, '/state'), wait);
    // Its names are ASCII and its numbers are small: this is the canonical form.
    const sealed = Object.entries(found).filter(([name]) => name !== 'state_digest').sort(([a], [b]) => (a < b ? -1 : 1));
    const digest = createHash('sha256').update(encode(Object.fromEntries(sealed))).digest('hex');
    if (digest !== found.state_digest) {
      throw new StateChecksumMismatch({ detail: `the state has the digest ${digest}, and says ${found.state_digest}`, traceId });
    }
    return found;
  }

  /** Everything about one call: entries, artifacts, notes. */
  async show(traceId: string, wait: Wait = {}): Promise<Timeline> {
    return this.read(tracePath(traceId), wait);
  }

  /** Proofs of where a call stands in the store's tree. */
  async receipt(traceId: string, wait: Wait = {}): Promise<Receipt> {
    return this.read(tracePath(traceId, '/receipt'), wait);
  }

  /** The calls that may have run and have no recorded effect. */
  async inDoubt(wait: Wait = {}): Promise<OpenTrace[]> {
    return (await this.read<Traces>('/v1/in-doubt', wait)).traces;
  }

  /** What waits for people. */
  async approvals(wait: Wait = {}): Promise<Approval[]> {
    return (await this.read<Approvals>('/v1/approvals', wait)).approvals;
  }

  /** Waits until the daemon takes calls. */
  async ready(wait: Wait = {}): Promise<void> {
    await this.wires.exchange(get('/readyz'), this.within(wait));
  }

  /**
   * The appends of the store after a cursor, as they come, for ever. Without one it begins at the beginning,
   * with 'newest' at the end. It outlives restarts of the daemon.
   */
  follow(options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<LogLine, void, undefined> {
    return follow(this.wires, log, options.after, options.signal);
  }

  /** The entries of a call after a number, as they come, until the call has ended. */
  followTrace(traceId: string, options: { after?: number; signal?: AbortSignal } = {}): AsyncGenerator<Entry, void, undefined> {
    return follow(this.wires, entries(traceId), options.after === undefined ? undefined : String(options.after), options.signal);
  }

  private within(wait: Wait): Waiting {
    return { timeoutMs: wait.timeoutMs ?? this.timeoutMs, signal: wait.signal };
  }

  private async read<T>(at: string, wait: Wait): Promise<T> {
    return parse(await this.wires.exchange(get(at), this.within(wait))) as T;
  }

  /** A person's decision is not repeated automatically: a repeated vote would be another vote. */
  private async once(traceId: string, verb: string, texts: Map<string, string>, wait: Wait): Promise<Result> {
    return new Result(await this.wires.exchange(post(tracePath(traceId, `/${verb}`), texts, false), this.within(wait)));
  }
}
