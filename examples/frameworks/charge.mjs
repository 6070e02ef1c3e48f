// The function that both examples give to their agent. It writes each charge into a file, and dies right
// after that where KILL is set: the answer never gets back.
import { appendFileSync } from 'node:fs';

export async function charge({ order, amount }) {
  appendFileSync('charges.txt', `${order} ${amount}\n`);
  if (process.env.KILL) process.exit(9);
  return { charged: amount };
}
