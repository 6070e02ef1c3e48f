// A model that asks for one charge and then says what the tool told it: the examples need no network.
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };

function turn(prompt) {
  const last = prompt.at(-1);
  if (last.role !== 'tool') {
    return [{ type: 'tool-call', toolCallId: crypto.randomUUID(), toolName: 'charge', input: '{"order":"order-1","amount":42}' }, 'tool-calls'];
  }
  const { value } = last.content[0].output;
  const told = typeof value === 'string' ? value : JSON.stringify(value);
  return [{ type: 'text', text: `The tool said: ${told.match(/[A-Z]+_[A-Z_]+/)?.[0] ?? told}` }, 'stop'];
}

export const model = {
  specificationVersion: 'v3',
  provider: 'scripted',
  modelId: 'scripted',
  supportedUrls: {},
  async doGenerate({ prompt }) {
    const [content, unified] = turn(prompt);
    return { content: [content], finishReason: { unified }, usage, warnings: [] };
  },
  async doStream({ prompt }) {
    const [content, unified] = turn(prompt);
    const text = [{ type: 'text-start', id: '1' }, { type: 'text-delta', id: '1', delta: content.text }, { type: 'text-end', id: '1' }];
    const parts = [{ type: 'stream-start', warnings: [] }, ...(content.type === 'text' ? text : [content]), { type: 'finish', finishReason: { unified }, usage }];
    return { stream: ReadableStream.from(parts) };
  },
};
