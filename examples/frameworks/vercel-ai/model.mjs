// A model that asks for one charge and then says what the tool told it: the examples need no network.
import { MockLanguageModelV3 } from 'ai/test';

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };

export const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    const last = prompt.at(-1);
    if (last.role !== 'tool') {
      const call = { type: 'tool-call', toolCallId: crypto.randomUUID(), toolName: 'charge', input: '{"order":"order-1","amount":42}' };
      return { content: [call], finishReason: { unified: 'tool-calls' }, usage, warnings: [] };
    }
    const { type, value } = last.content[0].output;
    const text = `The tool said: ${type === 'json' ? JSON.stringify(value) : value.split(':')[0]}`;
    return { content: [{ type: 'text', text }], finishReason: { unified: 'stop' }, usage, warnings: [] };
  },
});
