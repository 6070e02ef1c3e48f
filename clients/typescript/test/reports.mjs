// What is said of a call that has run, and of a request that may have arrived. No daemon is needed.
import assert from 'node:assert/strict';
import http from 'node:http';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Client, LimitExceeded, NotSent, Result, Unreachable, ValidationError, encode, parse, tool } from 'tgad';

const dir = mkdtempSync(path.join(os.tmpdir(), 'tgad-'));
const call = '{"trace_id":"t","sequence_number":4,"attempts":1,"sent":1,"replayed":false,"status":"SUCCESS","result":1}';
const busy = { code: 'LIMIT_EXCEEDED', detail: 'there are 64 connections already', retryable: true, status: 429 };
const short = { code: 'LIMIT_EXCEEDED', detail: 'the body is over 9 bytes', retryable: false, status: 413 };
const wrong = { code: 'VALIDATION_ERROR', detail: 'x', retryable: false, status: 400 };
const lost = 'lost';
const half = '\ud83d'; // of a pair

// A daemon that grants every begin, and answers the first reports as `answers` says.
let answers = [];
const asked = [];
const names = [];
const daemon = http.createServer(async (request, answer) => {
  let body = '';
  for await (const part of request) body += part;
  asked.push([request.url, JSON.parse(body)]);
  names.push(request.headers['tgad-client']);
  if (request.url === '/v1/begin') return void answer.end(`{"standing":"send","permit":"p","call":${call}}`);
  const said = answers.shift();
  if (said === lost) answer.destroy();
  else if (said === undefined) answer.end(call);
  else answer.writeHead(said.status).end(JSON.stringify(said));
});
await new Promise((resolve) => daemon.listen(path.join(dir, 'd'), resolve));
const socket = path.join(dir, 'd');
const client = new Client({ socket });
const run = async (block, said = []) => {
  asked.length = 0;
  answers = said;
  let error;
  await client.sending('s', 't', {}, { key: 'k' }, block).catch((e) => (error = e));
  return { error, reports: asked.slice(1) };
};

// A report without an answer is made again: giving the call up at the end of its block would lose what is known of it.
const finishes = (begun) => begun.finish({ value: { paid: 1 }, timeoutMs: 60 });
const wasNotSent = (begun) => begun.notSent('the pipe was closed', { timeoutMs: 60 });
const catches = (begun) => finishes(begun).catch(() => {});
for (const [block, first, verb, kind] of [
  [finishes, lost, 'finish', Unreachable],
  [finishes, busy, 'finish', LimitExceeded],
  [finishes, wrong, 'give-up', ValidationError],
  [wasNotSent, lost, 'not-sent', Unreachable],
  [catches, lost, 'finish', undefined],
  [catches, wrong, 'give-up', Error],
]) {
  const { error, reports } = await run(block, [first]);
  assert.equal(error?.constructor, kind, verb);
  assert.equal(reports.length, 2);
  assert.equal(reports[1][0], `/v1/traces/t/${verb}`);
  if (verb !== 'give-up') assert.deepEqual(reports[0], reports[1]);
}
// Also where its waiting was ended.
const { reports: aborted } = await run((begun) => begun.finish({ value: 1, signal: AbortSignal.abort(new Error('enough')) }));
assert.deepEqual(aborted.map(([at]) => at), ['/v1/traces/t/finish']);

// Only what is too long is recorded by its digest.
for (const [said, digests] of [[[short], [false, true]], [[busy, busy], [false, false, false]]]) {
  const { error, reports } = await run((begun) => begun.finish({ value: { paid: 1 } }), said);
  assert.equal(error, undefined);
  assert.deepEqual(reports.map(([, report]) => 'result_digest' in report), digests);
}

// That nothing was sent is no failure, also where `failures` has a class above it.
for (const failures of [[Error], [NotSent], [RangeError]]) {
  asked.length = 0;
  const fails = () => {
    throw new NotSent('the pipe was closed');
  };
  await assert.rejects(tool(fails, { server: 's', name: 't', key: () => 'k', failures, client })(), NotSent);
  assert.deepEqual(asked.map(([at]) => at), ['/v1/begin', '/v1/traces/t/not-sent']);
}

// Words that UTF-8 does not have are said all the same. JSON.stringify would write \ud83d, which the daemon refuses.
const fails = () => {
  throw new Error('a'.repeat(199 - 'Error: '.length) + '\u{1f600}b'); // which is cut in the middle of a pair
};
for (const [block, verb, member, end] of [
  [() => Promise.reject(`a${half}`), 'give-up', 'cause', 'a\ufffd'],
  [() => Promise.reject(new NotSent(`a${half}`)), 'not-sent', 'reason', 'a\ufffd'],
  [(begun) => begun.finish({ status: 'FAILURE', error_message: `a${half}` }), 'finish', 'error_message', 'a\ufffd'],
]) {
  const { reports } = await run(block);
  assert.equal(reports[0][0], `/v1/traces/t/${verb}`);
  assert.equal(reports[0][1][member], end);
}
asked.length = 0;
await assert.rejects(tool(fails, { server: 's', name: 't', key: () => 'k', failures: [Error], client })());
assert.equal(asked[1][1].error_message.slice(-2), 'a\ufffd');

// Any name of a client.
for (const [name, said] of [['агент', 'агент'], ['a\r\nB: c', 'a  B: c'], ['a\0\x7f', 'a  '], [half, '\ufffd']]) {
  names.length = 0;
  const named = new Client({ socket, name });
  await named.call('s', 't', {}, { key: 'k' });
  named.close();
  assert.equal(Buffer.from(names[0], 'latin1').toString().trimEnd(), said.trimEnd());
}
client.close();
daemon.close();
rmSync(dir, { recursive: true });

// What was sent once was sent, although a repeat of it could not leave.
const { Broken } = await import(new URL('./node_modules/tgad/dist/esm/exchange.js', import.meta.url).href);
const [reset, away] = [new Broken('reset', true), new Broken('refused', false)];
const later = { status: 503, body: Buffer.from('{"code":"STORE_UNAVAILABLE","detail":"x","retryable":true}'), retryAfterMs: 0 };
const stray = { status: 503, body: Buffer.from('<html>'), retryAfterMs: 0 };
for (const [came, sent] of [[[away], false], [[reset], true], [[reset, away], true], [[away, reset, away], true], [[later, away], false], [[stray], true], [[stray, away], true]]) {
  const asking = new Client({ socket: 'nobody' });
  asking.wires.send = async () => {
    const what = came.shift();
    if (what instanceof Error) throw what;
    return what;
  };
  asking.wires.again = async () => came.length > 0;
  await assert.rejects(asking.call('s', 't', {}, { key: 'k' }), (error) => error instanceof Unreachable && error.sent === sent);
}

// A long answer is read: an expression for a whole string runs out of stack, one for zeros begins at each anew.
const long = 'x'.repeat(20_000_000);
assert.equal(new Result(call.replace('"result":1', `"result":"${long}"`)).value.length, long.length);
const begun = performance.now();
parse(`0.1${'0'.repeat(1_000_000)}1`);
assert.ok(performance.now() - begun < 5000);
for (const text of ['"\\\\"', '"a\\"b"', '"\\\\\\""', '["\\\\","\\""]', '{"\\"":1}', `"${'\\\\'.repeat(1000)}"`]) assert.deepEqual(parse(text), JSON.parse(text));
for (const text of ['"\\"', '"\\\\\\"', '"a', '"a\n"', '"\\u12"', '{"a:1}']) assert.throws(() => parse(text), SyntaxError, text);

// What keeps its content where its members do not show it is no {}.
for (const value of [new Map(), new WeakMap(), Promise.resolve(1), /a/, new Error('a'), new ArrayBuffer(1)]) assert.throws(() => encode({ value }), TypeError);
assert.equal(encode([Object(1), Object('a'), Object(true)]), '[1,"a",true]');
