import { setMaxListeners } from 'node:events';
import http from 'node:http';
import { IdempotencyKeyInFlight, StateConflict } from './codes.js';
import type { TgadError } from './errors.js';
import { decodeUtf8 } from './json.js';
import { Unreachable, errorOf } from './result.js';

/**
 * A request. `again` says that it may be repeated although the first one may have arrived: the daemon
 * answers the repeat like the first. Without `again`, the first answer of the daemon counts.
 */
export interface Asked {
  method: 'GET' | 'POST';
  path: string;
  body?: Buffer;
  again: boolean;
}

/** How long to wait, and what ends the waiting early. */
export interface Waiting {
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

interface Answer {
  status: number;
  body: Buffer;
  retryAfterMs: number;
}

/** A connection gave no answer. `sent` says whether the daemon may have the request. */
export class Broken extends Error {
  constructor(cause: unknown, readonly sent: boolean) {
    super(cause instanceof Error ? cause.message || (cause as NodeJS.ErrnoException).code || cause.name : String(cause));
  }
}

/** Whether the daemon may have acted on a request although the caller has no answer. */
export interface Unheard {
  may: boolean;
}

/** The pauses between two sends, in milliseconds: the first, and the longest. */
export const firstPause = 50;
export const longestPause = 1000;

/** The longest wait of a Node timer, 24 days. Node would turn a longer one into 1 ms. */
const longestWait = 2 ** 31 - 1;

/** Limits a wait to what a timer can hold. */
function within(timeoutMs: number): number {
  if (Number.isNaN(timeoutMs)) throw new RangeError('timeoutMs is a number of milliseconds, not NaN');
  return Math.min(timeoutMs, longestWait);
}

/** A stream shows a sign of life every 15 s. */
const streamSilence = 60_000;
/** How long a connection without a request is kept: less than the daemon keeps it. */
const mostIdle = 30_000;

/**
 * Deno repeats a request on a new connection if the request is aborted on a reused connection: it takes the
 * abort for a close by the server. So no connection is reused in Deno.
 */
const keepsConnections = !('Deno' in globalThis);

/** Connections to one socket. */
export class Wires {
  private readonly agent = new http.Agent({ keepAlive: true, timeout: mostIdle });
  private readonly ending = new AbortController();

  private readonly name: string;

  constructor(private readonly socketPath: string, name: string, private readonly receipts: boolean) {
    // A name may be any text, so characters that would end the header line become spaces. Node treats a
    // header as Latin-1.
    this.name = Buffer.from(name.replace(/[\u0000-\u001f\u007f]/g, ' '), 'utf8').toString('latin1');
    setMaxListeners(0, this.ending.signal); // one for each request under way
  }

  /** Closes all connections. Requests that wait on one fail. */
  close(): void {
    this.ending.abort();
    this.agent.destroy();
  }

  /**
   * Sends a request until it has an answer that counts, for at most so many milliseconds. The text of the
   * answer is returned; a refusal is thrown. A request is sent again, byte for byte, where nothing of it
   * was sent, or where its repeat is answered as the first one; and where the daemon says that it may
   * succeed later. Wherever it ends, `unheard` is right.
   */
  async exchange(asked: Asked, waiting: Waiting, unheard: Unheard = { may: false }): Promise<string> {
    const end = performance.now() + within(waiting.timeoutMs);
    let pause = firstPause;
    let sent = false; // whether the daemon may have the request; a repeat that was not sent does not reset it
    for (;;) {
      this.goOn(waiting, sent);
      const left = Math.max(end - performance.now(), 1);
      const wait = left - Math.min(left / 4, 1000); // so that the daemon's last word arrives in time
      const begun = performance.now();
      let failure: TgadError;
      let final: boolean;
      try {
        const answer = await this.send(asked, left, wait, waiting.signal);
        if (answer.status < 300) {
          unheard.may = true; // until the caller has the answer
          return decodeUtf8(answer.body);
        }
        failure = refusal(asked, answer); // a refusal of this send does not say what an earlier send did
        sent ||= failure instanceof Unreachable;
        // A refusal may be about what followed a vote. The answer to a second vote would hide that the first one counts.
        final = !asked.again || !mayRepeat(failure, answer, performance.now() - begun >= wait * 0.9);
        pause = Math.max(pause, answer.retryAfterMs);
      } catch (error) {
        if (!(error instanceof Broken)) throw error;
        if (error.sent) unheard.may = true;
        sent ||= error.sent;
        this.goOn(waiting, sent);
        failure = new Unreachable(`${asked.method} ${asked.path}: ${error.message}`, sent);
        final = error.sent && !asked.again;
      }
      if (final || !(await this.again(pause, end, waiting, sent))) throw failure;
      pause = Math.min(2 * pause, longestPause);
    }
  }

  /**
   * Waits before a repeat, and says whether there is time left for the repeat's answer. If not, the last
   * answer counts: a repeat would only turn it into a time-out.
   */
  async again(pause: number, end: number, waiting: Waiting, sent = false): Promise<boolean> {
    if (performance.now() + pause + firstPause > end) return false;
    await this.rest(pause, waiting, sent);
    return performance.now() + firstPause <= end; // the pause may have taken longer than planned
  }

  /** Waits, unless the waiting ends. */
  async rest(ms: number, waiting: { signal?: AbortSignal | undefined }, sent = false): Promise<void> {
    await new Promise<void>((resolve) => {
      const signals = [this.ending.signal, ...(waiting.signal ? [waiting.signal] : [])];
      const over = (): void => {
        clearTimeout(timer);
        for (const s of signals) s.removeEventListener('abort', over);
        resolve();
      };
      const timer = setTimeout(over, ms);
      for (const s of signals) s.addEventListener('abort', over);
    });
    this.goOn(waiting, sent);
  }

  /** Throws if the caller, or closing the client, ended the waiting. `sent` says whether the daemon may have the request. */
  private goOn(waiting: { signal?: AbortSignal | undefined }, sent: boolean): void {
    waiting.signal?.throwIfAborted();
    if (this.ending.signal.aborted) throw new Unreachable('the client was closed', sent);
  }

  /** The lines of an answer as they come. An answer that breaks off is Broken. */
  async *stream(asked: Asked, signal: AbortSignal | undefined): AsyncGenerator<string, void, undefined> {
    this.goOn({ signal }, false);
    const { request, response } = this.open(asked, {}, streamSilence, signal, false);
    try {
      const answer = await response;
      if ((answer.statusCode ?? 0) >= 300) throw refusal(asked, { status: answer.statusCode ?? 0, body: await whole(answer), retryAfterMs: 0 });
      let parts: Buffer[] = []; // of a line; joined once, when it is whole
      for await (const chunk of answer) {
        let rest = chunk as Buffer;
        for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
          const line = decodeUtf8(Buffer.concat([...parts, rest.subarray(0, at)]));
          parts = [];
          rest = rest.subarray(at + 1);
          yield line;
        }
        parts.push(rest);
      }
    } catch (error) {
      this.goOn({ signal }, true);
      throw isBreak(error) ? new Broken(error, true) : error;
    } finally {
      request.destroy();
    }
  }

  private async send(asked: Asked, timeoutMs: number, waitMs: number, signal: AbortSignal | undefined): Promise<Answer> {
    const headers = { 'Tgad-Timeout': `${Math.max(1, Math.floor(waitMs))}ms` };
    const { request, response, reached } = this.open(asked, headers, timeoutMs, signal, asked.again);
    const timer = setTimeout(() => request.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    try {
      const answer = await response;
      return { status: answer.statusCode ?? 0, body: await whole(answer), retryAfterMs: pauseOf(answer.headers['retry-after']) };
    } catch (error) {
      throw new Broken(error, reached());
    } finally {
      clearTimeout(timer);
    }
  }

  private open(asked: Asked, headers: Record<string, string>, timeout: number, signal: AbortSignal | undefined, pooled: boolean) {
    const request = http.request({
      socketPath: this.socketPath,
      agent: pooled && keepsConnections ? this.agent : false,
      method: asked.method,
      path: asked.path,
      timeout,
      headers: {
        Host: 'tgad',
        'Tgad-Client': this.name,
        ...(this.receipts ? { 'Tgad-Receipt': 'wanted' } : {}),
        ...(asked.body ? { 'Content-Type': 'application/json', 'Content-Length': asked.body.length } : {}),
        ...headers,
      },
    });
    let sent = false;
    request.on('socket', (socket) => {
      if (socket.connecting) socket.once('connect', () => (sent = true));
      else sent = true;
    });
    request.on('timeout', () => request.destroy(new Error('the daemon is silent')));
    const stop = (): void => void request.destroy(new Error('the waiting was ended'));
    const signals = [this.ending.signal, ...(signal ? [signal] : [])];
    for (const s of signals) s.addEventListener('abort', stop);
    request.on('close', () => {
      for (const s of signals) s.removeEventListener('abort', stop);
    });
    const response = new Promise<http.IncomingMessage>((resolve, reject) => {
      request.on('response', resolve);
      request.on('error', reject);
      request.on('close', () => reject(new Error('the connection was closed')));
    });
    request.end(asked.body);
    return { request, response, reached: () => sent };
  }
}

/** The milliseconds that the header Retry-After asks for. What is not a whole number, for example a date, counts as 0. */
function pauseOf(header: string | undefined): number {
  return /^\d+$/.test(header ?? '') ? 1000 * Number(header) : 0;
}

async function whole(answer: http.IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of answer) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

/** Whether an error is a failure of the connection. */
function isBreak(error: unknown): boolean {
  return error instanceof Error && !('detail' in error);
}

/** The error for an answer that is not valid. */
function refusal(asked: Asked, answer: Answer): TgadError {
  try {
    return errorOf(decodeUtf8(answer.body));
  } catch {
    return new Unreachable(`${asked.method} ${asked.path}: status ${answer.status}: ${answer.body.toString('latin1', 0, 200)}`, true);
  }
}

/** Whether the same request may succeed within the time that is left. */
function mayRepeat(failure: TgadError, answer: Answer, waited: boolean): boolean {
  if (failure instanceof IdempotencyKeyInFlight && waited) return false; // the daemon has waited as long as the caller wanted
  if (failure instanceof StateConflict) return false; // the caller must first read again what it changes
  return failure.retryable || answer.status === 503;
}
