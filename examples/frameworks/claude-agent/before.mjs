import { createSdkMcpServer, query, tool } from '@anthropic-ai/claude-agent-sdk';
import { z } from 'zod';
import { charge } from '../charge.mjs';
import { env } from './model.mjs';

const run = charge;
const order = { order: z.string(), amount: z.number() };
const charging = tool('charge', 'Charges an order.', order, async (input) => {
  return { content: [{ type: 'text', text: JSON.stringify(await run(input)) }] };
});

const orders = createSdkMcpServer({ name: 'orders', tools: [charging], alwaysLoad: true });
const options = { env, mcpServers: { orders }, allowedTools: ['mcp__orders__charge'], settingSources: [], tools: [] };
for await (const message of query({ prompt: 'Charge order-1 with 42.', options })) {
  if (message.type === 'result') console.log(message.result);
}
