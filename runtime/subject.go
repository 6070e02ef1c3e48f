package runtime

import (
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// sameSubject refuses a key that a call of another subject has used. An executor that serves
// several users names the subject of each ([Connection.Subject]). One user must not be served
// what the tool server answered to another, and the same key must not run twice either. So a
// call with such a key is neither served nor sent: IDEMPOTENCY_KEY_CONFLICT. The refusal names
// no trace, because the trace belongs to the other user.
//
// A key under which nothing was sent is free. For example, a client whose token had expired makes
// its call again with a new token, and a new token is another subject.
func sameSubject(ctx context.Context, store Store, key, subject string, record *ledger.Record) error {
	if record == nil || record.Status == ledger.Expired || record.Status == ledger.Settled && record.Class == ledger.ClassNotSent {
		return nil
	}
	t, err := store.Load(ctx, record.TraceID)
	if err != nil {
		return err
	}
	if t.Request == nil || t.Request.Meta.String(tga.MetaSubject) == subject {
		return nil
	}
	return tga.Errorf(tga.IdempotencyKeyConflict, "the key %q stands for a call of another user of this tool server", key)
}
