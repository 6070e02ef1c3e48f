#!/usr/bin/env node
// One governed tool call over tgad's socket, with nothing but Node itself.
//
//   call.mjs SOCKET SERVER TOOL KEY ARGS
//
// ARGS is a JSON object and travels as it is. The answer is one JSON object on stdout.
// Exit codes: 0 the tool succeeded, 1 it did not or the call was refused, 2 usage,
// 4 in doubt: the tool may have run; never call again with another key.
//
// KEY names the logical call. After any failure of this program, run it again with the
// same key: tgad sends a call at most once and answers a repeat from its ledger.
import http from 'node:http';

const [socketPath, server, tool, key, args, ...rest] = process.argv.slice(2);
if (args === undefined || rest.length > 0) {
  console.error('usage: call.mjs SOCKET SERVER TOOL KEY ARGS');
  process.exit(2);
}

// args is spliced in, not decoded: JSON.parse turns 9007199254740993 into …992.
const head = JSON.stringify({ tool_server: server, tool_name: tool, idempotency_key: key });
const body = Buffer.from(`${head.slice(0, -1)},"args":${args}}`);

function post() {
  return new Promise((resolve, reject) => {
    const request = http.request({
      socketPath,
      method: 'POST',
      path: '/v1/tool-calls',
      headers: {
        Host: 'tgad',
        'Content-Type': 'application/json',
        'Content-Length': body.length,
        'Tgad-Client': 'call.mjs',
        'Tgad-Timeout': '30s',
      },
    }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => resolve([response.statusCode, Buffer.concat(parts).toString()]));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

try {
  const [status, raw] = await post();
  const answer = JSON.parse(raw); // for status and code only
  console.log(raw.trim());
  if (answer.code === 'EFFECT_IN_DOUBT') process.exitCode = 4;
  else process.exitCode = status === 200 && answer.status === 'SUCCESS' ? 0 : 1;
} catch (err) {
  console.error(`call.mjs: ${err.message}`);
  process.exitCode = 1;
}
