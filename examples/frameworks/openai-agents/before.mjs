import { Agent, run, setTracingDisabled, tool } from '@openai/agents';
import { z } from 'zod';
import { charge } from '../charge.mjs';
import { model } from './model.mjs';

setTracingDisabled(true);
const tools = [
  tool({
    name: 'charge',
    description: 'Charges an order.',
    parameters: z.object({ order: z.string(), amount: z.number() }),
    execute: charge,
  }),
];

const agent = new Agent({ name: 'Treasurer', instructions: 'You charge orders.', model, tools });
const result = await run(agent, 'Charge order-1 with 42.');
console.log(result.finalOutput);
