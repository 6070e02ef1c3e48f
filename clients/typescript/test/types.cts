// The same types by require.
import tgad = require('tgad');

export const client: tgad.Client = new tgad.Client();
export const code: string = new tgad.IdempotencyKeyConflict({ detail: 'x' }).code;
