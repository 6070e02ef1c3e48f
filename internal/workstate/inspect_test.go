package workstate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestStateThatCannotBeReadIsNamed: a list of states has those that can be read, and names the
// others. Streams of other owners are neither.
func TestStateThatCannotBeReadIsNamed(t *testing.T) {
	w := inStore(t, workstate.Options{})
	w.do("good", `{"text":"a"}`, tga.StatusSuccess)
	newer, damaged := newID(), newID()
	lease, err := w.db.Acquire(bg, newID())
	must(t, err)
	put := func(id tga.ID, n uint64, value string) {
		t.Helper()
		_, err := w.db.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{
			{Kind: chain.AttachStream, Key: keyspace.StateKey(id, 0, n), Value: []byte(value), Owner: id},
		}})
		must(t, err)
	}
	put(newID(), 0, `{"version":1,"interaction_id":"a turn"}`)
	put(newID(), 0, "no JSON")
	list, err := workstate.States(bg, w.db)
	if err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	put(newer, 0, `{"version":99,"root":"of another form"}`)
	put(newer, 1, `{"version":99}`)
	put(damaged, 0, `{"version":1,"root":"no digest"}`)
	list, err = workstate.States(bg, w.db)
	if len(list) != 1 || list[0].ID != w.id || list[0].Boundaries != 1 {
		t.Errorf("%+v", list)
	}
	for id, code := range map[tga.ID]tga.Code{newer: tga.FormatTooNew, damaged: tga.StateChecksumMismatch} {
		if !errors.Is(err, code) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("%v, want %s of %s", err, code, id)
		}
	}
	must(t, w.db.Close())
	w.db = nil
}
