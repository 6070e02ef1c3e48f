package monitor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/monitor"
	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Tile implements [monitor.Source].
func (s *stand) Tile(ctx context.Context, path string) ([]byte, error) {
	if s.breaks != nil {
		return nil, s.breaks()
	}
	tile, err := evidence.ParseTile(strings.TrimPrefix(path, "tile/"))
	if err != nil {
		return nil, err
	}
	raw, err := s.k.Tile(ctx, tile)
	if s.spoil && err == nil {
		raw[0]++
	}
	return raw, err
}

// spoilTiles has tiles with a wrong byte, and a client that was shown an older checkpoint.
func spoilTiles(elsewhere string) func(s *stand) {
	return func(s *stand) {
		raw, err := checkpoint.Checkpoint{Origin: "payments.example/tgad", Size: 2}.Sign(s.signer)
		if err == nil {
			err = os.WriteFile(elsewhere, raw, 0o600)
		}
		if err != nil {
			s.Fatal(err)
		}
		s.spoil = true
	}
}

// sendAgain appends an attempt to the call of a seed, which may have been sent before. The store accepts it:
// only a runtime knows what the licence of a tool allows.
func (s *stand) sendAgain(seed uint64, attempt uint32) {
	s.Helper()
	lease, err := s.db.Acquire(s.Context(), chaintest.ID(seed, 0))
	if err != nil {
		s.Fatal(err)
	}
	defer s.db.Release(lease)
	mark := ledger.Mark{Attempt: attempt, Epoch: uint64(lease.Epoch)}
	if _, err := s.db.Append(s.Context(), lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteAttempt, Who: "tgad", Body: mark.Body()}}}); err != nil {
		s.Fatal(err)
	}
	s.covered()
}

// TestMonitorSeesASecondSend: a log has a call that was sent again although its tool's licence does not
// allow that. The monitor finds it, whatever it remembers and however the log is divided into pages.
func TestMonitorSeesASecondSend(t *testing.T) {
	for name, c := range map[string]struct {
		kind    ledger.LicenceKind
		unknown bool               // the monitor knows no licences
		before  func(state string) // the second send
		found   bool
	}{
		"parked":                           {kind: ledger.Park, found: true},
		"licensed":                         {kind: ledger.DedupeArgs},
		"of no known tool":                 {unknown: true},
		"the monitor was started again":    {kind: ledger.Park, before: func(string) {}, found: true},
		"it forgot the keys":               {kind: ledger.Park, before: func(state string) { _ = os.Remove(state + ".keys") }, found: true},
		"its file of keys is damaged":      {kind: ledger.Park, before: func(state string) { _ = os.Truncate(state+".keys", 30) }, found: true},
		"its file of keys is another's":    {kind: ledger.Park, before: func(state string) { _ = os.WriteFile(state+".keys", []byte("else, and more"), 0o600) }, found: true},
		"it forgot the keys, and licensed": {kind: ledger.ReadOnly, before: func(state string) { _ = os.Remove(state + ".keys") }, found: true}, // the request is a write
	} {
		t.Run(name, func(t *testing.T) {
			s := signing(t)
			o := monitor.Options{State: filepath.Join(t.TempDir(), "state"), Page: 2}
			if !c.unknown {
				o.Attested = sends.Attested{Licence: func(string, string) sends.Tool {
					return sends.Tool{Licence: ledger.Licence{Kind: c.kind}, Explicit: true, Reads: c.kind == ledger.ReadOnly}
				}}
			}
			m := s.monitor(o)
			s.append(2, "")
			s.append(3, "")
			s.covered()
			follow(t, m)
			if c.before != nil {
				c.before(o.State)
				m = s.monitor(o)
			}
			s.sendAgain(2, 2)
			var err error
			for more := true; more && err == nil; {
				more, err = m.Step(t.Context())
			}
			var a *monitor.Alarm
			errors.As(err, &a)
			switch {
			case !c.found && err != nil, c.found && a == nil:
				t.Fatal(err)
			case !c.found:
				return
			}
			id := chaintest.ID(2, 0)
			if a.Kind != monitor.Send || !strings.Contains(a.Text, id.String()) || !strings.Contains(a.Text, "attempt 2 is a second send without a licence") {
				t.Errorf("%+v", a)
			}
		})
	}
}
