import type { Problem } from './wire.js';
import type { Result } from './result.js';

/** What is known where an error is made. */
export interface ErrorFacts {
  /** What was attempted, with which values. */
  detail: string;
  /** The code, where its class does not say it. */
  code?: string | undefined;
  /** The whole refusal as it travelled. */
  problem?: Problem | undefined;
  /** What is known of the call that the request was about. */
  call?: Result | undefined;
  /** The trace that it is about. */
  traceId?: string | undefined;
}

/** A refusal, with the code that says why. There is a class for each code; all extend this one. */
export class TgadError extends Error {
  /** The code of the class. */
  static readonly code: string = '';
  override readonly name: string = 'TgadError';
  /** The stable code, as in 'EFFECT_IN_DOUBT'. */
  readonly code: string;
  /** What was attempted, with which values. */
  readonly detail: string;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** The whole refusal as it travelled; undefined where the error was made here. */
  readonly problem: Problem | undefined;
  /** What is known of the call that the request was about. */
  readonly call: Result | undefined;
  /** The trace that it is about. */
  readonly traceId: string | undefined;

  constructor(facts: ErrorFacts) {
    const code = facts.code ?? (new.target as typeof TgadError).code;
    const pointer = facts.problem?.pointer;
    super(`${code}: ${facts.detail}${pointer ? ` (at ${pointer})` : ''}`);
    this.code = code;
    this.detail = facts.detail;
    this.problem = facts.problem;
    this.retryable = facts.problem?.retryable ?? false;
    this.call = facts.call;
    this.traceId = facts.traceId ?? facts.problem?.trace_id ?? facts.call?.traceId;
  }

  /** For how many milliseconds the tool server asked to be left alone; 0 if it did not ask. */
  get retryAfterMs(): number {
    return this.problem?.retry_after_ms ?? 0;
  }
}
