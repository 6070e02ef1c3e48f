// What a person does about the calls in doubt, once the bank has told: each was charged.
import { Client } from 'tgad';

const client = new Client();
for (const open of await client.inDoubt()) {
  await client.resolve(open.trace_id, { value: { charged: 42 }, evidence: { statement: 'of the bank' } });
  console.log('settled', open.idempotency_key);
}
