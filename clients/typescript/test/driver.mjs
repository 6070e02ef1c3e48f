// Does what the scripts of test_vectors/client say, by this package.
//
// Standard input has one operation a line, {"id": …, "op": …, "with": {…}}; standard output gets one
// answer a line. Operations go on beside each other.
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Client, NotSent, TgadError, encode, parse, tool } from 'tgad';

class Declined extends Error {
  name = 'Declined';
}

const client = new Client({ receipts: true });
const handles = new Map();
const functions = new Map();
const running = new Map();

function textOf(raw) {
  if (raw === undefined) return null;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(raw);
  } catch {
    return null;
  }
}

function result(found) {
  let value = null;
  try {
    if (found.raw !== undefined) value = found.value;
  } catch {
    value = 'no value';
  }
  return {
    trace_id: found.traceId ?? null,
    state: found.state ?? null,
    status: found.status ?? null,
    key: found.key ?? null,
    replayed: found.replayed,
    receipt: found.receipt !== undefined && found.receipt.trace_id === found.traceId && found.receipt.leaves.length > 0,
    raw: textOf(found.raw),
    base64: found.raw === undefined ? null : Buffer.from(found.raw).toString('base64'),
    value,
  };
}

function begun(found) {
  return {
    standing: found.standing,
    trace_id: found.traceId ?? null,
    attempt: found.attempt ?? null,
    args_raw: textOf(found.argsRaw),
    permit: found.permit ?? null,
    raw: textOf(found.call.raw),
    cause: found.cause?.code ?? null,
  };
}

function refusal(error) {
  const told = { class: error.name, text: error.message, cancelled: error.name === 'AbortError' };
  if (!(error instanceof TgadError)) return told;
  return {
    ...told,
    code: error.code,
    retryable: error.retryable,
    trace_id: error.traceId ?? null,
    pointer: error.problem?.pointer ?? null,
    base: true,
  };
}

// What the function of a script does: it leaves a mark that it ran, and then as it is told.
async function body(given) {
  appendFileSync(given.mark, 'ran\n');
  switch (given.how) {
    case 'decline':
      throw new Declined('the card was declined');
    case 'raise':
      throw new Error('the connection broke');
    case 'not_sent':
      throw new NotSent('nobody was reached');
    case 'die':
      process.exit(9);
      break;
    case 'killed':
      process.kill(process.pid, 'SIGKILL');
      break;
    case 'long':
      return { fill: 'x'.repeat(given.n) };
    case 'slow':
      await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return { ran: given.n };
}

// The parameters of a call as the client takes them.
function asked(given, signal) {
  const { server, tool: name, args, args_raw, key, begin_id, deadline_s, timeout, handle, how, fill, ...more } = given;
  const options = { ...more, signal };
  if (key !== undefined) options.key = key;
  if (begin_id !== undefined) options.beginId = begin_id;
  if (timeout !== undefined) options.timeoutMs = timeout * 1000;
  if (deadline_s !== undefined) options.deadline = new Date(Date.now() + deadline_s * 1000);
  const own = args_raw === undefined ? args : Buffer.from(args_raw);
  return [server, name, fill === undefined ? own : { fill: 'x'.repeat(fill) }, options];
}

function outcome({ value, raw_base64, fill }) {
  if (fill !== undefined) return { value: { fill: 'x'.repeat(fill) } };
  return raw_base64 === undefined ? { value } : { raw: Buffer.from(raw_base64, 'base64') };
}

function governed({ name, risk_level, licence, licence_window_ms }) {
  const given = { risk_level, licence, licence_window_ms };
  const id = JSON.stringify([name, given]);
  if (!functions.has(id)) {
    functions.set(id, tool(body, {
      server: 'own',
      name,
      key: (order) => order.key,
      args: (order) => ({ n: order.n }),
      failures: [Declined],
      client,
      ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    }));
  }
  return functions.get(id);
}

async function follow(given, signal) {
  const seen = [];
  const lines = given.trace_id === undefined ? client.follow({ ...given, signal }) : client.followTrace(given.trace_id, { signal });
  for await (const line of lines) {
    seen.push(line);
    if (given.until !== undefined && line.trace_id === given.until && line.entries.at(-1).entry.to_state === 'COMPLETED') break;
  }
  if (given.until === undefined) return { seqs: seen.map((line) => line.entry.sequence_number) };
  return {
    traces: [...new Set(seen.filter((line) => line.entries?.length).map((line) => line.trace_id))],
    entries: seen.reduce((n, line) => n + (line.entries?.length ?? 0), 0),
    rising: seen.every((line, i) => i === 0 || BigInt(seen[i - 1].cursor) < BigInt(line.cursor)),
  };
}

const operations = {
  call: async (given, signal) => result(await client.call(...asked(given, signal))),
  begin: async (given, signal) => {
    const found = await client.begin(...asked(given, signal));
    handles.set(given.handle ?? 'h', found);
    return begun(found);
  },
  finish: async (given) => result(await handles.get(given.handle ?? 'h').finish(outcome(given))),
  not_sent: async (given) => result(await handles.get(given.handle ?? 'h').notSent(given.reason)),
  give_up: async (given) => {
    await handles.get(given.handle ?? 'h').giveUp(given.cause);
    return {};
  },
  block: async (given, signal) => {
    const found = await client.sending(...asked(given, signal), async (it) => {
      if (given.how === 'raise') throw new Error('the connection broke');
      if (given.how === 'not_sent') throw new NotSent('nobody was reached');
      if (given.how === 'finish') await it.finish({ value: { done: true } });
      return it;
    });
    return result(found.call);
  },
  tool: async (given) => {
    const value = await governed(given)(given);
    return value?.fill === undefined ? { value } : { length: value.fill.length };
  },
  follow,
  decide: async (given) => result(await client.decide(given.trace_id, given.approve, given.rationale, { ...wait(given), ...(given.about === undefined ? {} : { about: given.about }) })),
  resolve: async (given) => result(await client.resolve(given.trace_id, {
    ...outcome(given), evidence: given.evidence,
    ...(given.attempts === undefined ? {} : { attempts: given.attempts, status: given.status, outcome_class: given.outcome_class }),
  })),
  abandon: async (given) => result(await client.abandon(given.trace_id, given.reason)),
  recover: async (given) => result(await client.recover(given.trace_id)),
  delivered: async (given) => {
    await client.delivered(given.trace_id);
    return {};
  },
  state: async (given) => client.state(given.trace_id),
  receipt: async (given) => {
    const found = await client.receipt(given.trace_id);
    return { trace_id: found.trace_id, leaves: found.leaves.length > 0 };
  },
  show: async (given) => {
    const found = await client.show(given.trace_id);
    return { entries: found.entries.length, state: found.call.state };
  },
  in_doubt: async (given) => ({ listed: (await client.inDoubt()).some((open) => open.idempotency_key === given.key) }),
  approvals: async () => ({ traces: (await client.approvals()).map((waiting) => waiting.trace_id) }),
};

function wait({ timeout }) {
  return timeout === undefined ? {} : { timeoutMs: timeout * 1000 };
}

async function answer({ id, op, with: given }) {
  const abort = new AbortController();
  running.set(id, abort);
  let told;
  try {
    told = { id, ok: await operations[op](given, abort.signal) };
  } catch (error) {
    told = { id, error: refusal(error) };
  }
  process.stdout.write(`${encode(told)}\n`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = parse(line);
  if (message.op === 'cancel') running.get(message.with.id).abort();
  else void answer(message);
}
