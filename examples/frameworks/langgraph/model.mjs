// A model that asks for one charge and then says what the tool told it: the examples need no network.
import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage } from '@langchain/core/messages';

class Scripted extends BaseChatModel {
  _llmType() {
    return 'scripted';
  }

  bindTools() {
    return this;
  }

  async _generate(messages) {
    const last = messages.at(-1);
    const asks = last.getType() !== 'tool';
    const message = asks
      ? new AIMessage({ content: '', tool_calls: [{ id: crypto.randomUUID(), name: 'charge', args: { order: 'order-1', amount: 42 }, type: 'tool_call' }] })
      : new AIMessage(`The tool said: ${last.status === 'error' ? last.content.match(/[A-Z]+_[A-Z_]+/)[0] : last.content}`);
    return { generations: [{ text: message.text, message }] };
  }
}

export const model = new Scripted({});
