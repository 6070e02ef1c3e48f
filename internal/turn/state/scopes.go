package state

import (
	"context"
	"encoding/json"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/wal/chain"
)

// Stored returns the scopes of a store to which something was committed, except for those that
// were erased. It reads every stream.
func Stored(ctx context.Context, store runtime.AttachmentReader) (all []Scope, err error) {
	for a, err := range store.Attachments(ctx, chain.AttachStream, nil) {
		if err != nil {
			return nil, err
		}
		stream, n, err := keyspace.ParseStream(a.Key)
		if err != nil {
			return nil, err
		}
		var h head // item 0 of another owner has another form and another stream id
		if n != 0 || json.Unmarshal(a.Value, &h) != nil || keyspace.ScopeStream(string(h.Mode), h.ID) != stream {
			continue
		}
		all = append(all, Scope{h.Mode, h.ID})
	}
	return all, nil
}
