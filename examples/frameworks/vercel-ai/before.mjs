import { generateText, stepCountIs, tool } from 'ai';
import { z } from 'zod';
import { charge } from '../charge.mjs';
import { model } from './model.mjs';

const tools = {
  charge: tool({
    description: 'Charges an order.',
    inputSchema: z.object({ order: z.string(), amount: z.number() }),
    execute: charge,
  }),
};

const { text } = await generateText({ model, tools, prompt: 'Charge order-1 with 42.', stopWhen: stepCountIs(3) });
console.log(text);
