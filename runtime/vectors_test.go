package runtime_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/golden"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// recoveryVector is a log after a crash, and what recovery must do with it.
type recoveryVector struct {
	Name      string            `json:"name"`
	Artifacts []json.RawMessage `json:"artifacts"`
	Entries   []json.RawMessage `json:"entries"`
	Notes     []struct {
		Kind tga.NoteKind
	} `json:"notes"`
	Profile  string  `json:"profile"`
	Licence  *string `json:"licence"`
	Attempts int     `json:"attempts"`
	Expect   struct {
		Action         string
		Sends          int
		ToolCallID     string `json:"tool_call_id"`
		IdempotencyKey string `json:"idempotency_key"`
	} `json:"expect"`
}

// TestRecoveryVectors gives the vectors' own artifacts and entries to a store, as
// another implementation would have written them, and recovers.
func TestRecoveryVectors(t *testing.T) {
	raw, err := golden.Vectors.ReadFile("tga/state_transition_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Recovery []recoveryVector `json:"recovery"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Recovery) < 10 {
		t.Fatalf("%d vectors", len(file.Recovery))
	}
	for _, v := range file.Recovery {
		t.Run(v.Name, func(t *testing.T) {
			var policy runtime.Policy
			if v.Licence != nil {
				kind, err := ledger.ParseLicence(*v.Licence)
				if err != nil {
					t.Fatal(err)
				}
				policy = licence(kind)
			}
			profile, err := ledger.ParseProfile(v.Profile)
			if err != nil {
				t.Fatal(err)
			}
			b := setup(t, policy, func(b *bench) {
				b.opts.Profile = profile
				b.now = epoch.Add(21 * time.Minute) // after the vectors' times
			})
			trace := b.load(v)
			res, err := b.rt.Recover(context.Background(), trace)
			if v.Expect.Action == "IN_DOUBT" {
				wantCode(t, err, tga.EffectInDoubt)
			} else if err != nil || !res.State.Terminal() {
				t.Errorf("recovered %+v, %v", res, err)
			}
			if res.ToolCallID.String() != v.Expect.ToolCallID || res.Key != v.Expect.IdempotencyKey {
				t.Errorf("call %s with key %q", res.ToolCallID, res.Key)
			}
			b.wantSends(v.Expect.Sends)
			for _, c := range b.tool.calls {
				if c.ToolCallID.String() != v.Expect.ToolCallID || c.Key != v.Expect.IdempotencyKey {
					t.Errorf("sent %+v", c)
				}
			}
		})
	}
}

// load appends a vector's log, batch by batch as a runtime commits it.
func (b *bench) load(v recoveryVector) tga.ID {
	b.t.Helper()
	ctx := context.Background()
	var lease chain.Lease
	for i := range v.Artifacts {
		a, err := tga.DecodeArtifact(v.Artifacts[i], tga.Limits{})
		if err != nil {
			b.t.Fatal(err)
		}
		e, err := tga.DecodeLogEntry(v.Entries[i])
		if err != nil {
			b.t.Fatal(err)
		}
		if i == 0 {
			if lease, err = b.db.Acquire(ctx, a.TraceID); err != nil {
				b.t.Fatal(err)
			}
			defer b.db.Release(lease)
		}
		item := chain.NewArtifact{Artifact: a, Entry: e}
		if a.Type == tga.EffectType {
			for _, h := range a.Effect.DocumentHashes { // the vectors carry no documents
				item.Documents = append(item.Documents, chain.Document{Pointer: h.Pointer, Erased: true})
			}
		}
		if _, err := b.db.Append(ctx, lease, chain.Batch{Artifacts: []chain.NewArtifact{item}}); err != nil {
			b.t.Fatal(err)
		}
		if a.Type == tga.CallType {
			for n := range v.Notes { // the epoch of a mark is the store's
				mark := ledger.Mark{Attempt: uint32(n + 1), Epoch: uint64(lease.Epoch)}
				note := chain.NewNote{Kind: v.Notes[n].Kind, Who: "runtime", Body: mark.Body()}
				if _, err := b.db.Append(ctx, lease, chain.Batch{Notes: []chain.NewNote{note}}); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
	return lease.TraceID
}
