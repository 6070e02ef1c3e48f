// A model that asks for one charge and then says what the tool told it: the examples need no network.
import { Usage } from '@openai/agents';

export const model = {
  async getResponse({ input }) {
    const last = typeof input === 'string' ? undefined : input.at(-1);
    if (last?.type !== 'function_call_result') {
      const call = { type: 'function_call', callId: crypto.randomUUID(), name: 'charge', arguments: '{"order":"order-1","amount":42}', status: 'completed' };
      return { usage: new Usage(), output: [call] };
    }
    const told = last.output.text;
    const text = `The tool said: ${told.startsWith('{') ? told : told.split(':')[0]}`;
    return { usage: new Usage(), output: [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text }] }] };
  },
  async *getStreamedResponse() {
    throw new Error('this model does not stream');
  },
};
