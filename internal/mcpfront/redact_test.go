package mcpfront

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/redact"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRedactedCallThroughTheShim: the tool server and the client get the whole call and answer. The log
// and the shim's files do not have the redacted parts. The answer to a repeat says that parts are missing.
func TestRedactedCallThroughTheShim(t *testing.T) {
	const card = "4111-2222-3333-4444"
	w := newWorld(t)
	w.Policy = func(string, string) runtime.Policy {
		return runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true}
	}
	r, err := redact.New(bytes.Repeat([]byte("k"), redact.MinKey), func(string, string) *redact.Rule { return &redact.Rule{Args: []string{"/card"}} })
	if err != nil {
		t.Fatal(err)
	}
	w.Redact = r
	if err := w.DB.Close(); err != nil {
		t.Fatal(err)
	}
	w.OpenLog()
	h := w.start()
	h.Handshake()
	args := `{"card":"` + card + `"}`
	first := h.Call("1", "charge", args, `{"dev.tgad/idempotencyKey":"order-1"}`)
	fronttest.Has(t, first, card)
	fronttest.Lacks(t, first, "redacted")
	if e := w.Effects(); len(e) != 1 || !strings.Contains(e[0].Args, card) {
		t.Fatalf("effects %+v", e)
	}
	again := h.Call("2", "charge", args, `{"dev.tgad/idempotencyKey":"order-1"}`)
	fronttest.Has(t, again, `"dev.tgad/redacted":true`, redact.Mark)
	fronttest.Lacks(t, again, card)
	fronttest.Has(t, h.Call("3", "charge", `{"card":"5555-2222-3333-4444"}`, `{"dev.tgad/idempotencyKey":"order-1"}`), string(tga.IdempotencyKeyConflict))
	if e := w.Effects(); len(e) != 1 {
		t.Errorf("effects %+v", e)
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"data", "state"} {
		err := filepath.WalkDir(filepath.Join(w.Dir, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			raw, err := os.ReadFile(path)
			if bytes.Contains(raw, []byte(card)) {
				t.Errorf("%s holds the card", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
