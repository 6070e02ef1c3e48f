import { tool } from '@langchain/core/tools';
import { createReactAgent } from '@langchain/langgraph/prebuilt';
import { z } from 'zod';
import { charge } from '../charge.mjs';
import { model } from './model.mjs';

const tools = [
  tool(charge, {
    name: 'charge',
    description: 'Charges an order.',
    schema: z.object({ order: z.string(), amount: z.number() }),
  }),
];

const agent = createReactAgent({ llm: model, tools });
const { messages } = await agent.invoke({ messages: [{ role: 'user', content: 'Charge order-1 with 42.' }] });
console.log(messages.at(-1).content);
