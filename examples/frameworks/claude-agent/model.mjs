// A model that asks for one charge and then says what the tool told it: the examples need no network. It answers
// on the loopback interface, in the form of the Messages API.
import { mkdtempSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const charge = 'mcp__orders__charge';

function turn({ messages, tools = [] }) {
  if (!tools.some((tool) => tool.name === charge)) return [{ type: 'text', text: 'nothing to do' }, 'end_turn'];
  const blocks = messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
  const result = blocks.find((block) => block.type === 'tool_result');
  if (result === undefined) return [{ type: 'tool_use', id: `toolu_${Date.now()}`, name: charge, input: { order: 'order-1', amount: 42 } }, 'tool_use'];
  const told = typeof result.content === 'string' ? result.content : result.content[0].text;
  return [{ type: 'text', text: `The tool said: ${told.match(/[A-Z]+_[A-Z_]+/)?.[0] ?? told}` }, 'end_turn'];
}

function events(block, stop_reason, message) {
  const text = block.type === 'text';
  const start = text ? { type: 'text', text: '' } : { ...block, input: {} };
  const delta = text ? { type: 'text_delta', text: block.text } : { type: 'input_json_delta', partial_json: JSON.stringify(block.input) };
  return [
    { type: 'message_start', message: { ...message, content: [], stop_reason: null } },
    { type: 'content_block_start', index: 0, content_block: start },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: message.usage },
    { type: 'message_stop' },
  ];
}

const server = createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  const asked = body === '' ? {} : JSON.parse(body);
  if (!asked.messages) return response.writeHead(404).end();
  const [block, stop_reason] = turn(asked);
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: asked.model, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } };
  if (!asked.stream) return response.setHeader('Content-Type', 'application/json').end(JSON.stringify({ ...message, content: [block], stop_reason }));
  response.setHeader('Content-Type', 'text/event-stream');
  response.end(events(block, stop_reason, message).map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''));
});

await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
server.unref();

// All that the agent's own process knows: nothing of this machine's user, and no other model.
const home = mkdtempSync(join(tmpdir(), 'agent-'));
export const env = {
  PATH: process.env.PATH, HOME: home, CLAUDE_CONFIG_DIR: home, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  ANTHROPIC_BASE_URL: `http://127.0.0.1:${server.address().port}`, ANTHROPIC_API_KEY: 'none',
};
