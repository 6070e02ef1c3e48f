package mcpfront

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/redact"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRedactedCallThroughTheShim: the tool server and the client have everything, the log and the shim's
// own files nothing; a repeat says that something is missing.
func TestRedactedCallThroughTheShim(t *testing.T) {
	const card = "4111-2222-3333-4444"
	w := newWorld(t)
	w.policy = func(string, string) runtime.Policy {
		return runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}, LicenceSet: true}
	}
	r, err := redact.New(bytes.Repeat([]byte("k"), redact.MinKey), func(string, string) *redact.Rule { return &redact.Rule{Args: []string{"/card"}} })
	if err != nil {
		t.Fatal(err)
	}
	w.redact = r
	if err := w.db.Close(); err != nil {
		t.Fatal(err)
	}
	w.openLog()
	h := w.start()
	h.handshake()
	args := `{"card":"` + card + `"}`
	first := h.call("1", "charge", args, `{"dev.tgad/idempotencyKey":"order-1"}`)
	has(t, first, card)
	lacks(t, first, "redacted")
	if e := w.effects(); len(e) != 1 || !strings.Contains(e[0].Args, card) {
		t.Fatalf("effects %+v", e)
	}
	again := h.call("2", "charge", args, `{"dev.tgad/idempotencyKey":"order-1"}`)
	has(t, again, `"dev.tgad/redacted":true`, redact.Mark)
	lacks(t, again, card)
	has(t, h.call("3", "charge", `{"card":"5555-2222-3333-4444"}`, `{"dev.tgad/idempotencyKey":"order-1"}`), string(tga.IdempotencyKeyConflict))
	if e := w.effects(); len(e) != 1 {
		t.Errorf("effects %+v", e)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"data", "state"} {
		err := filepath.WalkDir(filepath.Join(w.dir, dir), func(path string, d fs.DirEntry, err error) error {
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
