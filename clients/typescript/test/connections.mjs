// What a client does with its connections and with odd answers. No daemon is needed.
import assert from 'node:assert/strict';
import http from 'node:http';
import net from 'node:net';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { CircuitOpen, Client, Unreachable, encode, tool } from 'tgad';

const dir = mkdtempSync(path.join(os.tmpdir(), 'tgad-'));
const call = '{"trace_id":"t","sequence_number":4,"attempts":1,"sent":1,"replayed":false,"status":"SUCCESS","result":1}';
const busy = '{"code":"CIRCUIT_OPEN","detail":"x","retryable":true}';
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let sockets = 0;
const listen = async (server) => {
  const socket = path.join(dir, String(sockets++));
  await new Promise((resolve) => server.listen(socket, resolve));
  return socket;
};

// What the end of a client cuts off was sent, and a begin is taken back all the same.
const asked = [];
let goOn;
const slow = http.createServer(async (request, answer) => {
  for await (const _ of request);
  asked.push(request.url);
  if (goOn === undefined) await new Promise((resolve) => (goOn = resolve));
  answer.end(request.url === '/v1/begin' ? `{"standing":"send","permit":"p","call":${call}}` : call);
});
const slowly = await listen(slow);
for (const ask of [(client) => client.call('s', 't', {}, { key: 'k' }), (client) => client.begin('s', 't', {}, { key: 'k' })]) {
  asked.length = 0;
  goOn = undefined;
  const client = new Client({ socket: slowly });
  const waits = ask(client);
  while (goOn === undefined) await sleep(1);
  client.close();
  await assert.rejects(waits, (error) => error instanceof Unreachable && error.sent);
  goOn();
}
for (let left = 500; left > 0 && !asked.includes('/v1/traces/t/not-sent'); left--) await sleep(10);
assert.deepEqual(asked, ['/v1/begin', '/v1/begin', '/v1/traces/t/not-sent']);
const closed = new Client({ socket: slowly });
closed.close();
await assert.rejects(closed.call('s', 't', {}, { key: 'k' }), (error) => error instanceof Unreachable && !error.sent);
slow.close();

// Retry-After may be a date, or anything: it does not end the pauses.
let came = 0;
let retryAfter;
const refusing = http.createServer(async (request, answer) => {
  for await (const _ of request);
  came++;
  answer.writeHead(503, { 'Retry-After': retryAfter }).end(busy);
});
const refuses = new Client({ socket: await listen(refusing), timeoutMs: 700 });
for (retryAfter of ['Wed, 21 Oct 2026 07:28:00 GMT', 'NaN', '-5', '']) {
  came = 0;
  await assert.rejects(refuses.call('s', 't', {}, { key: 'k' }), CircuitOpen);
  assert.ok(came > 1 && came < 8, `${retryAfter}: ${came} requests`);
}

// The answer to a vote counts: a refusal may be about what the call did after the vote.
came = 0;
await assert.rejects(refuses.decide('t', true, 'x'), CircuitOpen);
assert.equal(came, 1);
refuses.close();
refusing.close();

// Nothing comes after the last entry of a call, also where the follower has that one already.
const chunk = (text) => `${text.length.toString(16)}\r\n${text}\r\n`;
const end = '0\r\n\r\n';
const entry = '{"entry":{"sequence_number":5,"to_state":"COMPLETED"}}\n';
const stops = '{"problem":{"code":"STORE_UNAVAILABLE","detail":"x","retryable":true}}\n';
for (const [answers, numbers] of [
  [[end], []],
  [['', '5\r\n{"ent', chunk('\n'), chunk(stops) + end, chunk(entry) + end], [5]],
]) {
  const streams = net.createServer((connection) => {
    connection.on('error', () => {});
    connection.once('data', () => connection.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${answers.shift() ?? chunk('\n') + end}`));
  });
  const follows = new Client({ socket: await listen(streams) });
  const found = [];
  for await (const item of follows.followTrace('t', { after: 4, signal: AbortSignal.timeout(5000) })) found.push(item.entry.sequence_number);
  assert.deepEqual(found, numbers);
  assert.deepEqual(answers, []);
  follows.close();
  streams.close();
}

// A follower from the end of the log misses nothing that is appended before its first line, while it has no connection.
const paths = [];
const ends = ['', chunk('# HELP x\ntgad_log_cursor 1.5e+06\n') + end, '', chunk('\n'), chunk('{"cursor":"1500001"}\n') + end];
const breaks = net.createServer((connection) => {
  connection.on('error', () => {});
  connection.once('data', (text) => {
    paths.push(String(text).split(' ')[1]);
    connection.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${ends.shift() ?? end}`);
  });
});
const ended = new Client({ socket: await listen(breaks) });
for await (const item of ended.follow({ after: 'newest', signal: AbortSignal.timeout(5000) })) {
  assert.equal(item.cursor, '1500001');
  break;
}
assert.deepEqual(paths, [...Array(2).fill('/metrics'), ...Array(3).fill('/v1/log?after=1500000&follow=1')]);
ended.close();
breaks.close();

// A line of a stream that comes in many parts is copied once, not once for each part.
const part = 'x'.repeat(1024);
const parts = 500;
const tells = net.createServer((connection) => {
  connection.on('error', () => {});
  connection.once('data', async () => {
    connection.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${chunk('\n{"entry":{"sequence_number":5,"to_state":"COMPLETED","x":"')}`);
    for (let i = 0; i < parts; i++) {
      await new Promise((resolve) => connection.write(chunk(part), resolve));
      await sleep(0);
    }
    connection.end(chunk('"}}\n{"entry":') + chunk('{}}\n') + end);
  });
});
const listens = new Client({ socket: await listen(tells) });
const concat = Buffer.concat;
let copied = 0;
Buffer.concat = (...of) => {
  const all = concat(...of);
  copied += all.length;
  return all;
};
const told = [];
for await (const item of listens.followTrace('t', { signal: AbortSignal.timeout(20000) })) told.push(item.entry.x);
Buffer.concat = concat;
assert.deepEqual(told, [part.repeat(parts)]);
assert.ok(copied < 4 * part.length * parts, `${copied} bytes were copied`);
listens.close();
tells.close();

// What names no call is no key: without a key each call would be another one, and the function would run again.
const begins = [];
const grants = http.createServer(async (request, answer) => {
  let body = '';
  for await (const part of request) body += part;
  begins.push(JSON.parse(body));
  answer.end(request.url === '/v1/begin' ? `{"standing":"send","permit":"p","call":${call}}` : call);
});
const client = new Client({ socket: await listen(grants) });
for (const key of [undefined, null, '', 7, {}]) {
  const charge = tool(() => assert.fail('it ran'), { server: 's', name: 'charge', key: () => key, client });
  await assert.rejects(charge(), (error) => error instanceof TypeError && error.message.includes('the key of charge'));
}
assert.deepEqual(begins, []);
client.close();
grants.close();

// A hole in an array is not JSON.
for (const value of [[1, , 2], [,], { a: [, 1] }]) assert.throws(() => encode(value), TypeError);
rmSync(dir, { recursive: true });
