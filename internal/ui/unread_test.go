package ui_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// failing is a daemon whose answers about one trace fail.
type failing struct {
	*client.Client
	code tga.Code
	doc  bool // only those with a document
}

func (f *failing) Trace(ctx context.Context, id tga.ID) (wire.Timeline, error) {
	if f.code == "" || f.doc {
		return f.Client.Trace(ctx, id)
	}
	return wire.Timeline{}, wire.Problem{Code: f.code, Detail: "it failed"}.Err()
}

func (f *failing) Document(ctx context.Context, id tga.ID, pointer string) ([]byte, tga.Digest, error) {
	if f.code == "" || !f.doc {
		return f.Client.Document(ctx, id, pointer)
	}
	return nil, tga.Digest{}, wire.Problem{Code: f.code, Detail: "it failed"}.Err()
}

// TestTraceThatCannotBeReadIsNotSaidToBeForged: only what was read and does not agree is said not to verify. A code of a
// newer daemon is an error like any other.
func TestTraceThatCannotBeReadIsNotSaidToBeForged(t *testing.T) {
	s := newStage(t, ui.Options{})
	log := &failing{Client: s.client}
	s.serve(ui.New(log, ui.Options{}))
	s.login()
	s.answer = `{}`
	path := "/traces/" + s.call("pay", "k", `{}`).String()
	const forged = "does not verify"
	for _, row := range []struct {
		code   tga.Code
		doc    bool
		status int
		forged bool
	}{
		{"", false, http.StatusOK, false},
		{tga.StoreUnavailable, false, http.StatusServiceUnavailable, false},
		{tga.StoreUnavailable, true, http.StatusServiceUnavailable, false},
		{tga.StateChecksumMismatch, true, http.StatusOK, true},
		{"A_CODE_OF_NEXT_YEAR", false, http.StatusBadGateway, false},
	} {
		log.code, log.doc = row.code, row.doc
		if status, page := s.get(path); status != row.status || strings.Contains(page, forged) != row.forged {
			t.Errorf("%+v: status %d, %s", row, status, page)
		}
	}
}
