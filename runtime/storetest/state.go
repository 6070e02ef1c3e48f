package storetest

import (
	"bytes"
	"errors"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var stateClaims = []claim{
	{"OpenTracesAreThoseNotTerminal", func(w *world) {
		want := map[tga.ID]tga.State{}
		open := func(b *Builder, state tga.State) { want[b.TraceID] = state }
		pending := New(w)
		pending.Namespace, pending.Deadline = "tenant", pending.TS+5
		w.append(pending, Batch(pending.MintRequest()))
		open(pending, tga.Pending)
		authorized := New(w)
		w.append(authorized, authorized.Approved())
		open(authorized, tga.Authorized)
		open(w.begun(""), tga.Executing)
		w.ended(tga.StatusSuccess, "")
		w.ended(tga.StatusFailure, "")
		denied := New(w)
		w.append(denied, Batch(denied.MintRequest(), denied.MintDecision(tga.Deny)))

		check := func() {
			w.Helper()
			got := collect(w, w.s.OpenTraces(bg))
			if len(got) != len(want) || !slices.IsSortedFunc(got, func(a, b chain.OpenTrace) int { return compareIDs(a.TraceID, b.TraceID) }) {
				w.Errorf("open are %+v, want %v", got, want)
			}
			for _, o := range got {
				namespace, deadline := tga.DefaultNamespace, tga.Millis(0)
				if o.TraceID == pending.TraceID {
					namespace, deadline = pending.Namespace, pending.Deadline
				}
				entries := w.entries(o.TraceID)
				first, last := entries[0], entries[len(entries)-1]
				if o.State != want[o.TraceID] || o.Namespace != namespace || o.Deadline != deadline || o.Since < min(first.TS, first.Committed) || o.Since > max(last.TS, last.Committed) {
					w.Errorf("open trace %+v, want %v", o, want[o.TraceID])
				}
			}
		}
		check()
		w.append(pending, Batch(pending.MintDecision(tga.Deny)))
		delete(want, pending.TraceID)
		w.append(authorized, Batch(authorized.MintCall("")))
		open(authorized, tga.Executing)
		check()
		w.append(authorized, authorized.End(tga.StatusSuccess))
		delete(want, authorized.TraceID)
		check()
	}},
	{"CheckpointSealsTheHead", func(w *world) {
		b := New(w)
		for i, batch := range []chain.Batch{Batch(b.MintRequest()), Batch(b.MintDecision(tga.Approve)), Batch(b.MintCall("")), b.End(tga.StatusSuccess)} {
			head := w.append(b, batch).Head
			cp, err := w.s.WriteCheckpoint(bg, w.lease(b))
			if err != nil {
				w.Fatal(err)
			}
			want := tga.CheckpointState{TraceID: b.TraceID, PlanID: b.PlanID, Current: head.State, LastSeq: head.Seq, LastDigest: head.Digest}
			if cp.State != want || cp.Seq != uint64(i+1) || cp.TraceID != b.TraceID {
				w.Errorf("checkpoint %+v, want %+v", cp, want)
			}
			sealed := cp
			sealed.Seal()
			if sealed.Digest != cp.Digest {
				w.Errorf("checkpoint digest %v, computed %v", cp.Digest, sealed.Digest)
			}
			if t, err := w.s.Load(bg, b.TraceID); err != nil || t.Head != head || len(t.Entries) != i+1 {
				w.Errorf("load with a checkpoint: %+v, %v", t, err)
			}
		}
		// A checkpoint of an older head changes nothing of what is loaded.
		c := w.begun("")
		if _, err := w.s.WriteCheckpoint(bg, w.lease(c)); err != nil {
			w.Fatal(err)
		}
		w.append(c, c.End(tga.StatusFailure))
		if t, err := w.s.Load(bg, c.TraceID); err != nil || t.Head.State != tga.Failed || len(t.Entries) != 4 || t.Request == nil {
			w.Errorf("load past a checkpoint: %+v, %v", t, err)
		}
	}},
	{"KeyThatIsNoAttachmentsIsRefused", func(w *world) {
		for _, a := range []chain.Attachment{
			{Kind: chain.AttachTimer, Key: []byte("short"), Value: []byte("x")}, {Kind: chain.AttachBlob, Value: []byte("x")},
			{Kind: chain.AttachStream, Key: bytes.Repeat([]byte{1}, 25)}, {Kind: 'e', Key: bytes.Repeat([]byte{1}, 32), Value: []byte("x")},
		} {
			if v, err := w.s.Attachment(bg, a.Kind, a.Key); tga.CodeOf(err) != tga.ValidationError || v != nil {
				w.Errorf("attachment of kind %q with a key of %d bytes: got %q, %v", byte(a.Kind), len(a.Key), v, err)
			}
			b, taken := New(w), w.begun("")
			again, late := taken.Again(), b.Begin("")
			late.Attachments = []chain.Attachment{a}
			w.refused("the key alone is wrong", tga.ValidationError, w.lease(b), late)
			// What the log, the lease and the ledger refuse comes first: a caller that repeats an append learns that it has happened.
			w.refused("no lease", tga.StateLockAcquireFailed, chain.Lease{TraceID: b.TraceID}, late)
			other := again.Begin("")
			other.Attachments = late.Attachments
			w.refused("the ledger's key is taken", tga.IdempotencyKeyInFlight, w.lease(again), other)
		}
	}},
	{"AttachmentsCommitWithTheirBatch", func(w *world) {
		b := New(w)
		blob := func(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }
		batch := b.Begin("")
		batch.Attachments = []chain.Attachment{
			{Kind: chain.AttachBlob, Key: blob(2), Value: []byte("two")},
			{Kind: chain.AttachBlob, Key: blob(1), Value: []byte("one")},
			{Kind: chain.AttachApproval, Key: b.TraceID[:], Value: []byte{}},
		}
		bad := batch
		bad.Artifacts = batch.Artifacts[1:]
		w.refused("with a batch that is refused", tga.StateInvalidTransition, w.lease(b), bad)
		w.append(b, batch)
		get := func(kind chain.AttachmentKind, key []byte, want []byte) {
			w.Helper()
			got, err := w.s.Attachment(bg, kind, key)
			if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
				w.Errorf("attachment %c %x: %q, %v, want %q", kind, key, got, err, want)
			}
		}
		get(chain.AttachBlob, blob(1), []byte("one"))
		get(chain.AttachBlob, blob(3), nil)
		get(chain.AttachApproval, b.TraceID[:], []byte{})
		scan := func(prefix []byte, want ...string) {
			w.Helper()
			var got []string
			for _, a := range collect(w, w.s.Attachments(bg, chain.AttachBlob, prefix)) {
				if a.Kind != chain.AttachBlob || len(a.Key) != 32 {
					w.Errorf("attachment %+v", a)
				}
				got = append(got, string(a.Value))
			}
			if !slices.Equal(got, want) {
				w.Errorf("attachments under %x: %q, want %q", prefix, got, want)
			}
		}
		scan(nil, "one", "two")
		scan([]byte{2}, "two")
		scan([]byte{3})
		w.append(b, chain.Batch{Attachments: []chain.Attachment{
			{Kind: chain.AttachBlob, Key: blob(1)},
			{Kind: chain.AttachBlob, Key: blob(2), Value: []byte("again")},
		}})
		get(chain.AttachBlob, blob(1), nil)
		scan(nil, "again")
	}},
	{"NewestTimeIsNeverBehindWhatIsStored", func(w *world) {
		check := func(b *Builder) {
			w.Helper()
			newest := w.s.NewestTS()
			for _, e := range w.entries(b.TraceID) {
				if e.TS > newest || e.Committed > newest {
					w.Errorf("newest is %v, entry %d has %v, committed %v", newest, e.Seq, e.TS, e.Committed)
				}
			}
			for _, n := range w.notes(b.TraceID) {
				if n.TS > newest {
					w.Errorf("newest is %v, note %d has %v", newest, n.Number, n.TS)
				}
			}
		}
		b := New(w)
		head := w.append(b, b.Approved())
		check(b)
		// A store may refuse a caller's entry with a time in the future. If it accepts the entry,
		// the time that permits a send must not be before the entry's.
		future := spoilt(b, head, head.Entries[1].TS+3_600_000, nil)
		if _, err := w.s.Append(bg, w.lease(b), future); err != nil && !errors.Is(err, tga.ValidationError) {
			w.Errorf("entry of the future: %v", err)
		}
		check(b)
		w.append(b, chain.Batch{Notes: []chain.NewNote{note(tga.NoteLateReply, []byte(`{}`))}})
		check(b)
	}},
	{"TimesOfATraceNeverGoBack", func(w *world) {
		b := New(w)
		head := w.append(b, b.Approved())
		if _, err := w.s.Append(bg, w.lease(b), spoilt(b, head, head.Entries[1].TS+3_600_000, nil)); err != nil {
			w.append(b, Batch(b.MintCall("")))
		}
		w.append(b, b.End(tga.StatusSuccess))
		entries := w.entries(b.TraceID)
		for i := 1; i < len(entries); i++ {
			if entries[i].TS < entries[i-1].TS {
				w.Errorf("entry %d at %v, after %v", i+1, entries[i].TS, entries[i-1].TS)
			}
		}
	}},
	{"EmptyAppendIsRefused", func(w *world) {
		b := w.begun("")
		w.refused("nothing", tga.ValidationError, w.lease(b), chain.Batch{})
		w.refused("no artifact", tga.ValidationError, w.lease(b), chain.Batch{Artifacts: []chain.NewArtifact{{}}})
	}},
}
