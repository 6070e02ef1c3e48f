// What needs no daemon.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import http from 'node:http';
import net from 'node:net';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Begun, Client, JsonNumber, LimitExceeded, NotSent, Result, StateChecksumMismatch, TgadError, ToolError, Unreachable, encode, parse, tool } from 'tgad';

// Numbers do not change.
assert.deepEqual(parse('[9007199254740993,-9007199254740992,0.1,1.0,1e2]'), [9007199254740993n, -9007199254740992n, 0.1, 1, 100]);
assert.deepEqual(parse('1e400'), new JsonNumber('1e400'));
assert.deepEqual(parse('0.1000000000000000055511151231257827'), new JsonNumber('0.1000000000000000055511151231257827'));
assert.equal(encode({ a: 2n ** 64n, b: parse('1e400'), c: 9007199254740991 }), '{"a":18446744073709551616,"b":1e400,"c":9007199254740991}');
for (const lost of [2 ** 53, -(2 ** 53), 1e300, NaN, Infinity]) assert.throws(() => encode({ lost }), RangeError);

// Nothing is dropped, and only JSON is read.
for (const text of ['', '{', '{"a":1,"a":2}', 'NaN', '01', '1.', '[1,]', '{"a":1,}', '{"a":1} x', '"\u0001"', '"\\x"', "'a'", '[1 2]']) {
  assert.throws(() => parse(text), SyntaxError, text);
}
const odd = parse('{"__proto__":{"a":1},"constructor":2}');
assert.deepEqual(Object.keys(odd), ['__proto__', 'constructor']);
assert.equal(encode(odd), '{"__proto__":{"a":1},"constructor":2}');
for (const text of ['"\\u00e9\\n\\ud83d\\ude00"', ' [ true , false , null , {} , [] ] ', '-0.5e-7']) assert.deepEqual(parse(text), JSON.parse(text));

// Only JSON is written.
for (const value of [() => 1, Symbol('a'), [undefined], new Map(), new Set(), new Uint16Array(1)]) assert.throws(() => encode(value), TypeError);
assert.equal(encode({ a: undefined, b: new Date(0), c: [null, true, 'é"'] }), '{"b":"1970-01-01T00:00:00.000Z","c":[null,true,"é\\""]}');
assert.equal(encode(Buffer.from(' {"a" : 1.0}')), ' {"a" : 1.0}');
assert.throws(() => encode(Buffer.from('{"a":1},"b":2')), SyntaxError);
assert.throws(() => encode(new Uint8Array([0xff])), TypeError);

// An answer keeps its bytes.
const text = (result) => `{"sequence_number":4,"attempts":1,"sent":1,"replayed":false,"status":"SUCCESS","result":${result}}`;
assert.equal(Buffer.from(new Result(text('{ "a": 1.0 }')).raw).toString(), '{ "a": 1.0 }');
assert.deepEqual([...new Result(text('1,"result_base64":"/wA="')).raw], [255, 0]);
assert.equal(new Result(text('""')).check().value, '');
const failed = new Result('{"sequence_number":4,"attempts":1,"sent":1,"replayed":false,"status":"FAILURE","error_code":"TOOL_ERROR"}');
assert.throws(() => failed.check(), (error) => error instanceof ToolError && error instanceof TgadError && error.code === 'TOOL_ERROR' && error.call === failed);
assert.equal(new Unreachable('x', true).code, 'STORE_UNAVAILABLE');
assert.equal(new Unreachable('x', true).retryable, true);

// The time of a permit.
const begun = (asked, within) => new Begun(undefined, { timeoutMs: 1 }, `{"standing":"send","call":${text('1')}${within}}`, 'b', asked);
// A machine that slept has a monotonic clock that stood still; a wall clock may have been set back.
for (const [monotonic, wall, late] of [[900, 900, false], [1000, 1000, true], [0, 1000, true], [1000, -3600000, true]]) {
  assert.equal(begun([performance.now() - monotonic, Date.now() - wall], ',"send_within_ms":1000').late(), late, `${monotonic} ${wall}`);
}
assert.equal(begun([-1e12, -1e12], '').late(), false);

// A block that ends without a report gives up, and one with a report says nothing more.
const said = [];
const wires = { exchange: async (asked) => (said.push([asked.path, JSON.parse(asked.body)]), text('1')) };
const held = () => new Begun(wires, { timeoutMs: 1 }, '{"standing":"send","permit":"p","call":{"trace_id":"t","replayed":false}}', 'b', [0, 0]);
await held()[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]();
const done = held();
await done.finish({ value: 1 });
await done[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]();
await held().leave(new NotSent('nobody'));
assert.deepEqual(said, [
  ['/v1/traces/t/give-up', { permit: 'p', cause: 'its block ended without a report' }],
  ['/v1/traces/t/finish', { permit: 'p', status: 'SUCCESS', result_base64: 'MQ==' }],
  ['/v1/traces/t/not-sent', { permit: 'p', reason: 'nobody' }],
]);

// A state with another digest is refused.
const right = createHash('sha256').update('{"current_state":"COMPLETED","last_sequence_number":4,"trace_id":"t"}').digest('hex');
let digest = right;
const dir = mkdtempSync(path.join(os.tmpdir(), 'tgad-'));
const server = http.createServer((_, answer) => {
  answer.end(`{"trace_id":"t","state_digest":"${digest}","last_sequence_number":4,"current_state":"COMPLETED"}`);
});
await new Promise((resolve) => server.listen(path.join(dir, 's'), resolve));
const client = new Client({ socket: path.join(dir, 's') });
assert.equal((await client.state('t')).current_state, 'COMPLETED');
digest = right.replace(/^./, (c) => (c === '0' ? '1' : '0'));
await assert.rejects(client.state('t'), StateChecksumMismatch);

// Many requests under way are no leak.
const warnings = [];
process.on('warning', (warning) => warnings.push(String(warning)));
digest = right;
await Promise.all(Array.from({ length: 40 }, () => client.state('t')));
await new Promise((resolve) => setImmediate(resolve));
assert.deepEqual(warnings, []);

// A repeat without time for its answer is not made: the last answer is the one that counts.
const clock = performance.now;
let slept = 0;
const now = (value) => Object.defineProperty(performance, 'now', { value, configurable: true, writable: true });
now(() => clock.call(performance) + slept);
const slow = new Client({ socket: path.join(dir, 'nobody') });
let asked = 0;
slow.wires.rest = async () => void (slept += 199); // it rests for longer
for (const [status, body, check] of [
  [200, '{"standing":"wait","call":{"trace_id":"t","replayed":false}}', async (it) => assert.equal((await it).standing, 'wait')],
  [503, '{"code":"CIRCUIT_OPEN","detail":"x","retryable":true}', async (it) => assert.rejects(it, (error) => error.code === 'CIRCUIT_OPEN')],
]) {
  asked = 0;
  slow.wires.send = async () => (asked++, { status, body: Buffer.from(body), retryAfterMs: 0 });
  await check(slow.begin('s', 't', {}, { timeoutMs: 200 }));
  assert.equal(asked, 1);
}
now(clock);
slow.close();

// The end of a client ends its waiting.
const away = new Client({ socket: path.join(dir, 'nobody') });
const waiting = away.state('t');
setTimeout(() => away.close(), 20);
await assert.rejects(waiting, Unreachable);
await assert.rejects(away.state('t'), Unreachable);
client.close();
server.close();

// Any time to wait is one: a timer that cannot hold it would be over at once.
const said2 = [];
let held2; // what the daemon waits for before it answers
const daemon = http.createServer(async (request, answer) => {
  let body = '';
  for await (const part of request) body += part;
  said2.push([request.url, JSON.parse(body)]);
  await held2;
  answer.end(request.url === '/v1/begin' ? `{"standing":"send","permit":"p","call":${text('1').replace('{', '{"trace_id":"t",')}}` : text('1'));
});
await new Promise((resolve) => daemon.listen(path.join(dir, 'd'), resolve));
for (const timeoutMs of [2 ** 31 - 1, 2 ** 31, 1e15, Infinity]) {
  const patient = new Client({ socket: path.join(dir, 'd'), timeoutMs });
  held2 = new Promise((resolve) => setTimeout(resolve, 20));
  said2.length = 0;
  assert.equal((await patient.call('s', 't', {}, { key: 'k' })).value, 1);
  assert.equal(said2.length, 1, `${timeoutMs}: it was asked again`);
  patient.close();
}
assert.deepEqual(warnings, []);
const taker = new Client({ socket: path.join(dir, 'd') });
await assert.rejects(taker.call('s', 't', {}, { key: 'k', timeoutMs: NaN }), RangeError);

// A deadline is a Date, and nothing is asked with another.
said2.length = 0;
for (const deadline of [Date.now(), 0, '2026-01-02T02:04:05Z']) await assert.rejects(taker.call('s', 't', {}, { key: 'k', deadline }), TypeError);
await assert.rejects(taker.call('s', 't', {}, { key: 'k', deadline: new Date(NaN) }), RangeError);
assert.equal(said2.length, 0);

// A begin that is left without its answer is taken back, unless its id is the caller's own.
for (const options of [{}, { beginId: 'mine' }, { timeoutMs: 50 }, { timeoutMs: 50, beginId: 'mine' }]) {
  said2.length = 0;
  let goOn;
  held2 = new Promise((resolve) => (goOn = resolve));
  const giveUp = new AbortController();
  const given = taker.begin('s', 't', {}, { key: 'k', signal: giveUp.signal, ...options });
  while (said2.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  if (options.timeoutMs === undefined) giveUp.abort();
  await assert.rejects(given, options.timeoutMs === undefined ? { name: 'AbortError' } : Unreachable);
  goOn();
  const end = Date.now() + 5000;
  const back = () => said2.some(([at]) => at === '/v1/traces/t/not-sent');
  while (options.beginId === undefined ? !back() && Date.now() < end : Date.now() < end - 4950) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal(back(), options.beginId === undefined);
  assert.equal(new Set(said2.filter(([at]) => at === '/v1/begin').map(([, body]) => body.begin_id)).size, 1);
}
taker.close();
daemon.close();

// A call that waits for people is found again, also after a begin without an answer.
const begins = [];
const answers = ['"standing":"needs_approval","cause":{"code":"ESCALATION_REQUIRED","detail":"x"}', undefined, '"standing":"denied"'];
const asks = http.createServer(async (request, answer) => {
  let body = '';
  for await (const part of request) body += part;
  begins.push(JSON.parse(body).begin_id);
  const said = answers.shift();
  if (said === undefined) answer.destroy();
  else answer.end(`{${said},"call":${text('1')}}`);
});
await new Promise((resolve) => asks.listen(path.join(dir, 'a'), resolve));
const asking = new Client({ socket: path.join(dir, 'a'), timeoutMs: 60 }); // no time for a repeat
const ship = tool(() => assert.fail('it ran'), { server: 's', name: 't', key: () => 'k', client: asking });
for (const code of ['ESCALATION_REQUIRED', 'STORE_UNAVAILABLE', 'POLICY_VIOLATION']) await assert.rejects(ship(), (error) => error.code === code);
assert.equal(begins.length, 3);
assert.equal(new Set(begins).size, 1);
asking.close();
asks.close();

// A refusal that comes before the body is read, and breaks it, is heard.
const problem = '{"code":"LIMIT_EXCEEDED","detail":"too long"}';
const refusing = net.createServer((connection) => {
  connection.on('error', () => {});
  connection.once('data', () => {
    connection.pause();
    connection.write(`HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: ${problem.length}\r\n\r\n${problem}`);
    setTimeout(() => connection.destroy(), 50);
  });
});
await new Promise((resolve) => refusing.listen(path.join(dir, 'r'), resolve));
const long = new Client({ socket: path.join(dir, 'r'), timeoutMs: 3000 });
await assert.rejects(long.call('s', 't', { fill: 'x'.repeat(4_000_000) }, { key: 'k' }), LimitExceeded);
long.close();
refusing.close();
rmSync(dir, { recursive: true });
