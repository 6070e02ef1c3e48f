// A program that uses the package: it is compiled and not run.
import { Client, EffectInDoubt, tool, type Result, type wire } from 'tgad';

interface Order {
  id: string;
  amount: number;
}

export const reserve: (order: Order) => Promise<{ reserved: number }> = tool(
  async (order: Order) => ({ reserved: order.amount }),
  { server: 'shop', name: 'reserve', key: (order) => order.id },
);

export async function main(): Promise<wire.State | undefined> {
  const client = new Client({ socket: '/run/tgad/tgad.sock' });
  const result: Result = await client.call('payments', 'charge', { amount: 1n }, { key: 'order-1', risk_level: 'HIGH_RISK' });
  // @ts-expect-error: there is no such level
  void client.call('payments', 'charge', {}, { risk_level: 'LOW' });
  // @ts-expect-error: there is no such option
  void client.call('payments', 'charge', {}, { kei: 'order-1' });
  for await (const line of client.follow({ after: 'newest' })) {
    const cursor: string = line.cursor;
    if (cursor === '1') break;
  }
  await using begun = await client.begin('shop', 'reserve', {}, { key: 'order-1' });
  if (begun.standing === 'send') await begun.finish({ value: 1 });
  try {
    await reserve({ id: 'order-1', amount: 1 });
  } catch (error) {
    if (error instanceof EffectInDoubt) console.log(error.traceId);
  }
  return result.state;
}
