import { TgadError } from './errors.js';
import { Broken, type Wires, firstPause, longestPause } from './exchange.js';
import { members, parse } from './json.js';
import { get, tracePath } from './requests.js';
import { errorOf } from './result.js';
import type { Entry, LogLine } from './wire.js';

const terminal = ['COMPLETED', 'FAILED', 'DENIED'];

/** What a stream gives. */
interface Source<T> {
  path: string;
  /** The cursor after an item. */
  cursor(item: T): string;
  /** Whether nothing comes after an item. */
  last(item: T): boolean;
  /** Whether the daemon ends the answer only once nothing more comes. */
  ends: boolean;
}

/** The appends of the store. */
export const log: Source<LogLine> = { path: '/v1/log', cursor: (line) => line.cursor, last: () => false, ends: false };

/** The entries of a trace. */
export function entries(trace: string): Source<Entry> {
  return {
    path: tracePath(trace, '/entries'),
    cursor: ({ entry }) => String(entry.sequence_number),
    last: ({ entry }) => terminal.includes(entry.to_state),
    ends: true,
  };
}

/**
 * Continues after the last item that it yielded, over any number of connections. So it misses no item and
 * yields none twice.
 */
export async function* follow<T>(wires: Wires, of: Source<T>, after: string | undefined, signal: AbortSignal | undefined): AsyncGenerator<T, void, undefined> {
  let pause = firstPause;
  for (;;) {
    try {
      if (!of.ends && after === 'newest') {
        // Where the log ends now. Without that number a break before the first item would move the beginning to the end of then.
        for await (const line of wires.stream(get('/metrics'), signal)) {
          if (line.startsWith('tgad_log_cursor ')) after = String(Number(line.split(' ')[1]));
        }
      }
      for await (const line of wires.stream(get(of.path, { after, follow: '1' }), signal)) {
        if (line.trim() === '') continue; // only a keep-alive
        if (line.startsWith('{"problem":')) throw errorOf(members(line).get('problem') ?? '{}');
        const item = parse(line) as T;
        after = of.cursor(item);
        pause = firstPause;
        yield item;
        if (of.last(item)) return;
      }
      if (of.ends) return;
    } catch (error) {
      if (!(error instanceof Broken) && !(error instanceof TgadError && error.retryable)) throw error;
    }
    await wires.rest(pause, { signal });
    pause = Math.min(2 * pause, longestPause);
  }
}
