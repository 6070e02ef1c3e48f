import { inspect } from 'node:util';
import { type Begun, NotSent } from './begun.js';
import { Client } from './client.js';
import { encode } from './json.js';
import type { Args, CallOptions, Claim, Outcome } from './requests.js';

/** How a function is governed. */
export interface ToolOptions<A extends unknown[]> extends Omit<CallOptions, 'key' | 'signal'>, Claim {
  /** The tool server that the configuration of the daemon names. */
  server: string;
  /** The name of the tool; else that of the function. */
  name?: string;
  /** Returns the key: a string that names this call and no other. */
  key: (...args: A) => string;
  /** What is recorded as the arguments; else the only argument where it is an object, else all in a list. */
  args?: (...args: A) => object;
  /** An error of one of these classes means that the function did not do what it is for. */
  failures?: ReadonlyArray<abstract new (...args: never[]) => Error>;
  /** The client; without it, a client of the daemon that TGAD_SOCKET names. */
  client?: Client;
}

let shared: Client | undefined;

/**
 * Makes a function a governed call: it is begun, run here, and finished. If the key has a record, the function
 * does not run: the recorded answer is returned. The function returns a JSON value; the caller gets the recorded
 * value, the first time too.
 *
 * An error of a class in `failures` is recorded, and a repeat gets it again. NotSent means that the function
 * certainly did nothing: the key can be used again. After any other error it is not known what the function did:
 * the call is in doubt, as after a crash.
 *
 * `licence` says what running the function again would do. It can make a call in doubt stricter than the operator's
 * licence; one that allows more is refused, unless the tool's row says `client_licence = true`.
 */
export function tool<A extends unknown[], R>(run: (...args: A) => R | Promise<R>, options: ToolOptions<A>): (...args: A) => Promise<R> {
  const { server, name = run.name, key, args: recorded, failures = [], client, ...more } = options;
  const waiting = new Map<string, string>(); // begin ids of calls that wait for people, by key
  return async (...args: A): Promise<R> => {
    const callKey = key(...args) as unknown;
    if (typeof callKey !== 'string' || callKey === '') throw new TypeError(`the key of ${name} is ${inspect(callKey)}: return a string that names the call`);
    const beginId = waiting.get(callKey);
    waiting.delete(callKey); // otherwise two callers with one begin id would both get its permit
    const by = client ?? (shared ??= new Client());
    const named = { ...more, key: callKey, ...(beginId === undefined ? {} : { beginId }) };
    let answered = false;
    const sent = by.sending(server, name, recorded ? recorded(...args) : argumentsOf(args), named, async (begun) => {
      answered = true;
      if (begun.standing === 'needs_approval') waiting.set(callKey, begun.beginId);
      if (begun.standing !== 'send') return served(begun) as R;
      if (begun.late()) throw new NotSent('the time in which it could be sent is over');
      let value: R;
      try {
        value = await run(...args);
      } catch (error) {
        if (error instanceof Error && !(error instanceof NotSent) && failures.some((of) => error instanceof of)) await begun.finish(failed(error));
        throw error;
      }
      return (await record(begun, value)) as R;
    });
    try {
      return await sent;
    } finally {
      if (!answered && beginId !== undefined) waiting.set(callKey, beginId); // so that people are not asked again
    }
  };
}

function argumentsOf(args: unknown[]): Args {
  const only = args[0];
  const object = args.length === 1 && typeof only === 'object' && only !== null && !Array.isArray(only);
  return object ? only : { arguments: args };
}

/** The answer to a call that must not be sent. */
function served(begun: Begun): unknown {
  begun.check();
  return begun.call.check().value;
}

/** The record of an error that says that the function failed. */
function failed(error: Error): Outcome {
  return { status: 'FAILURE', error_code: 'TOOL_ERROR', error_message: `${error.name}: ${error.message}`.slice(0, 200) };
}

/** Records what a function returned. A value that is not JSON is recorded too: the function has run. */
async function record(begun: Begun, value: unknown): Promise<unknown> {
  let raw: Buffer | undefined;
  try {
    if (value !== undefined) raw = Buffer.from(encode(value), 'utf8');
  } catch (error) {
    await begun.finish({ summary: 'the function returned a value that is not JSON' });
    throw error;
  }
  const result = await begun.finish(raw === undefined ? {} : { raw });
  return result.raw === undefined ? value : result.value; // a long answer is recorded by its digest
}
