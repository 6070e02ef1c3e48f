package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// world is a store, and what the test has put into it.
type world struct {
	*testing.T
	h      Harness
	s      runtime.Store
	traces map[tga.ID]bool
	keys   map[ledger.Key]bool
	leases map[tga.ID]chain.Lease
}

func newWorld(t *testing.T, h Harness) *world {
	return &world{t, h, h.Store, map[tga.ID]bool{}, map[ledger.Key]bool{}, map[tga.ID]chain.Lease{}}
}

// know makes a trace and its key part of what [world.dump] shows.
func (w *world) know(b *Builder) ledger.Key {
	w.traces[b.TraceID] = true
	namespace := b.Namespace
	if namespace == "" {
		namespace = tga.DefaultNamespace
	}
	key := ledger.Key{Namespace: namespace, Server: b.Proposal.ToolServer, Tool: b.Proposal.ToolName, Key: b.Key}
	w.keys[key] = true
	return key
}

// lease returns the trace's lease, acquired once.
func (w *world) lease(b *Builder) chain.Lease {
	w.Helper()
	w.know(b)
	if l, ok := w.leases[b.TraceID]; ok {
		return l
	}
	l, err := w.s.Acquire(bg, b.TraceID)
	if err != nil {
		w.Fatalf("acquire %v: %v", b.TraceID, err)
	}
	w.leases[b.TraceID] = l
	return l
}

// release releases the trace's lease.
func (w *world) release(b *Builder) {
	w.s.Release(w.leases[b.TraceID])
	delete(w.leases, b.TraceID)
}

// append appends, and fails the test if the store refuses.
func (w *world) append(b *Builder, batch chain.Batch) chain.Appended {
	w.Helper()
	done, err := w.s.Append(bg, w.lease(b), batch)
	if err != nil {
		w.Fatalf("append to %v: %v", b.TraceID, err)
	}
	w.saysWhatItLeft(b, done)
	return done
}

// saysWhatItLeft compares the trace that an append returns with the trace in the store.
func (w *world) saysWhatItLeft(b *Builder, done chain.Appended) {
	w.Helper()
	if len(done.Entries) == 0 && len(done.Notes) == 0 && done.Head.Seq == 0 {
		return // values alone make no trace
	}
	t, err := w.s.Load(bg, b.TraceID)
	if err != nil {
		w.Fatalf("load %v: %v", b.TraceID, err)
	}
	if done.Trace == nil {
		w.Fatalf("append to %v does not say what it left", b.TraceID)
	}
	if diff := cmp.Diff(whatIsSaid(t), whatIsSaid(done.Trace)); diff != "" {
		w.Errorf("append to %v says that it left another trace than is there (-there +said):\n%s", b.TraceID, diff)
	}
}

// whatIsSaid returns a trace as values that can be compared.
func whatIsSaid(t *chain.Trace) map[string]any {
	said := map[string]any{
		"ids": []tga.ID{t.ID, t.PlanID}, "namespace": t.Namespace, "deadline": t.Deadline, "head": t.Head,
		"note head": t.NoteHead, "entries": fmt.Sprint(t.Entries), "notes": fmt.Sprint(t.Notes), "documents": fmt.Sprint(t.Documents),
	}
	for name, a := range map[string]*tga.Artifact{"request": t.Request, "decision": t.Decision, "call": t.Call, "effect": t.Effect} {
		if a != nil {
			said[name] = string(a.Canonical)
		}
	}
	return said
}

// begun returns a trace whose call is reserved, sent as attempt says.
func (w *world) begun(attempt string) *Builder {
	w.Helper()
	b := New(w)
	w.append(b, b.Begin(attempt))
	return b
}

// ended returns a trace whose call is settled with an effect of the given status and
// meta.outcome_class, "" for none.
func (w *world) ended(status, class string) *Builder {
	w.Helper()
	b := w.begun("")
	w.append(b, chain.Batch{Artifacts: []chain.NewArtifact{b.settling(status, class)}})
	w.release(b)
	return b
}

func (b *Builder) settling(status, class string) chain.NewArtifact {
	meta := tga.Meta{}
	if class != "" {
		meta[tga.MetaOutcomeClass] = class
	}
	code := ""
	if status != tga.StatusSuccess {
		code = string(tga.ToolError)
	}
	return b.MintEffect(status, code, []byte(`{"ok":1}`), meta)
}

// refused fails the test unless an append is refused with code and changes nothing.
func (w *world) refused(what string, code tga.Code, lease chain.Lease, batch chain.Batch) {
	w.Helper()
	w.unchanged(what, code, func() error {
		_, err := w.s.Append(bg, lease, batch)
		return err
	})
}

// unchanged fails the test unless do fails with code and changes nothing.
func (w *world) unchanged(what string, code tga.Code, do func() error) {
	w.Helper()
	before := w.dump()
	if err := do(); !errors.Is(err, code) || tga.CodeOf(err) != code {
		w.Errorf("%s: got %v, want %s", what, err, code)
	}
	if diff := cmp.Diff(before, w.dump()); diff != "" {
		w.Errorf("%s: the store has changed:\n%s", what, diff)
	}
}

// dump returns everything that the store has about the traces and keys that the test knows.
func (w *world) dump() string {
	w.Helper()
	var s strings.Builder
	for _, id := range slices.SortedFunc(maps.Keys(w.traces), compareIDs) {
		fmt.Fprintf(&s, "trace %v\n", id)
		for _, e := range w.entries(id) {
			fmt.Fprintf(&s, "entry %+v\n preimage %s\n committed %d epoch %x\n artifact %s\n", e.LogEntry, e.Preimage, e.Committed, e.Epoch, canonical(e.Artifact))
			for _, d := range e.Documents {
				fmt.Fprintf(&s, " document %s %d bytes %v erased %v\n", d.Pointer, len(d.Data), tga.Sum(d.Data), d.Erased)
			}
		}
		for _, n := range w.notes(id) {
			fmt.Fprintf(&s, "note %s\n", n.AppendCanonical(nil))
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(w.keys), func(a, b ledger.Key) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		if r := w.record(k); r != nil {
			fmt.Fprintf(&s, "record %+v\n %+v\n", k, *r)
		}
	}
	for _, o := range collect(w, w.s.OpenTraces(bg)) {
		fmt.Fprintf(&s, "open %+v\n", o)
	}
	for _, kind := range chain.AttachmentKinds {
		for _, a := range collect(w, w.s.Attachments(bg, kind, nil)) {
			fmt.Fprintf(&s, "attachment %c %x %x\n", a.Kind, a.Key, a.Value)
		}
	}
	return s.String()
}

func canonical(a *tga.Artifact) []byte {
	if a == nil {
		return nil
	}
	return a.Canonical
}

func compareIDs(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) }

func collect[T any](w *world, seq iter.Seq2[T, error]) (all []T) {
	w.Helper()
	for v, err := range seq {
		if err != nil {
			w.Fatalf("scan: %v", err)
		}
		all = append(all, v)
	}
	return all
}

func (w *world) entries(id tga.ID) []chain.Entry { return collect(w, w.s.Entries(bg, id, 0)) }
func (w *world) notes(id tga.ID) []tga.Note      { return collect(w, w.s.Notes(bg, id, 0)) }

func (w *world) record(k ledger.Key) *ledger.Record {
	w.Helper()
	r, err := w.s.Record(bg, k)
	if err != nil {
		w.Fatalf("record of %+v: %v", k, err)
	}
	return r
}

// recordsAreFolds checks, at the end of each subtest, the invariant that connects ledger
// and log: the record of a key is what the log of the trace says that reserved the key last.
// It also checks that each trace replays.
func (w *world) recordsAreFolds() {
	w.Helper()
	folds := map[ledger.Key][]ledger.Record{}
	for id := range w.traces {
		entries, notes := w.entries(id), w.notes(id)
		if len(entries) == 0 {
			continue
		}
		t, err := chain.Replay(id, seqOf(entries), seqOf(notes))
		if err != nil {
			w.Errorf("replay %v: %v", id, err)
			continue
		}
		if t.Call == nil {
			continue
		}
		call := entries[2]
		var effectSeq uint64
		if t.Effect != nil {
			effectSeq = entries[3].Seq
		}
		rec, touches, err := ledger.FromTrace(t.Call, call.Seq, uint64(call.Epoch), min(call.TS, call.Committed), t.Effect, effectSeq, notes)
		if err != nil {
			w.Errorf("fold %v: %v", id, err)
		}
		if touches {
			rec.RequestDigest = w.s.RequestDigest(t.Call.Call.Call)
			key := ledger.KeyOf(t.Namespace, t.Call)
			folds[key] = append(folds[key], rec)
		}
	}
	for key := range w.keys {
		stored := w.record(key)
		want := folds[key]
		if (stored == nil) != (len(want) == 0) {
			w.Errorf("record of %+v is %+v, the logs say %+v", key, stored, want)
			continue
		}
		if stored != nil && !slices.Contains(want, *stored) {
			w.Errorf("record of %+v is\n%+v, the logs say\n%+v", key, *stored, want)
		}
		for _, r := range want {
			// Of several reservations of a key only the newest may be open or final.
			if stored != nil && r.TraceID != stored.TraceID && (r.Status != ledger.Settled || !r.Class.Releases()) {
				w.Errorf("key %+v: trace %v reserved it after trace %v, which is %v, %v", key, stored.TraceID, r.TraceID, r.Status, r.Class)
			}
		}
	}
}

func seqOf[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// soon bounds waits that must not last for ever. For a store that keeps its contract it
// does not change any result.
const soon = 10 * time.Second
