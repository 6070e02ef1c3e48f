import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';
import { charge } from '../charge.mjs';
import { model } from './model.mjs';

const tools = {
  charge: createTool({
    id: 'charge',
    description: 'Charges an order.',
    inputSchema: z.object({ order: z.string(), amount: z.number() }),
    execute: charge,
  }),
};

const agent = new Agent({ id: 'treasurer', name: 'Treasurer', instructions: 'You charge orders.', model, tools });
const { text } = await agent.generate('Charge order-1 with 42.');
console.log(text);
