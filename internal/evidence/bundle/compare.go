package bundle

import (
	"fmt"
	"slices"

	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func (v *verifier) entry(e *chain.Entry) {
	t := v.of(e.TraceID)
	t.entries = append(t.entries, e.Digest)
}

func (v *verifier) note(n tga.Note) {
	t := v.of(n.TraceID)
	t.notes = append(t.notes, n.Digest)
	if v.trust.Append != nil {
		t.said = append(t.said, n)
	}
}

func (v *verifier) trace(c *chain.Trace, _ ndjson.Place) {
	t := v.of(c.ID)
	t.State = c.Head.State
	if v.trust.Append != nil {
		t.whole = c.Clone()
		t.whole.Documents, t.whole.Notes = nil, t.said
	}
	t.Entries, t.Notes = uint64(len(t.entries)), uint64(len(t.notes))
}

// compare checks that the leaves are those of the traces. The chains of the traces are verified
// before. A leaf names the digests of the last entry and the last note after its append, and so
// fixes every entry and note before them.
func (v *verifier) compare() error {
	if v.report.Export.Traces != len(v.order) {
		return tga.Errorf(tga.SchemaViolation, "a trace stands in the file twice")
	}
	if len(v.order) != v.head.Traces {
		return v.missing("%d traces, the first line says %d", len(v.order), v.head.Traces)
	}
	for i := range v.leaves {
		if err := v.take(&v.leaves[i]); err != nil {
			return err
		}
	}
	if err := v.whole(); err != nil {
		return err
	}
	v.report.Leaves = len(v.leaves)
	for _, id := range v.order {
		t := v.traces[id]
		if t.CoveredEntries == 0 {
			return v.missing("trace %s has no leaf", id)
		}
		v.report.Traces = append(v.report.Traces, t.Trace)
	}
	return nil
}

// take compares a leaf with its trace, and with the earlier leaves of that trace.
func (v *verifier) take(l *tree.Leaf) error {
	t := v.traces[l.TraceID]
	if t == nil && !l.OfTrace() {
		v.report.Others++
		return nil
	}
	if t == nil {
		return v.missing("leaf %d is of trace %s, which is not in the file", l.Index, l.TraceID)
	}
	if l.Entries > 0 && l.FirstSeq != t.CoveredEntries+1 || l.Notes > 0 && uint64(l.FirstNote) != t.CoveredNotes+1 {
		return v.missing("leaf %d begins with entry %d and note %d of trace %s, the leaves before it end with %d and %d: one is missing",
			l.Index, l.FirstSeq, l.FirstNote, l.TraceID, t.CoveredEntries, t.CoveredNotes)
	}
	t.CoveredEntries += uint64(l.Entries)
	t.CoveredNotes += uint64(l.Notes)
	if t.CoveredEntries > t.Entries || t.CoveredNotes > t.Notes {
		return v.missing("leaf %d has %d entries and %d notes of trace %s, the file has %d and %d: its end was cut off",
			l.Index, t.CoveredEntries, t.CoveredNotes, l.TraceID, t.Entries, t.Notes)
	}
	for _, d := range []struct {
		what    string
		has     tga.Digest
		digests []tga.Digest
		number  uint64
	}{{"entry", l.HeadDigest, t.entries, t.CoveredEntries}, {"note", l.NoteDigest, t.notes, t.CoveredNotes}} {
		var want tga.Digest
		if d.number > 0 {
			want = d.digests[d.number-1]
		}
		if want != d.has && slices.Contains(d.digests[d.number:], d.has) {
			return v.missing("leaf %d follows a later %s of trace %s than %d, with which the leaves before it end: one is missing", l.Index, d.what, l.TraceID, d.number)
		}
		if want != d.has {
			err := tga.Errorf(tga.StateChecksumMismatch, "%s %d of trace %s has digest %s, leaf %d says %s", d.what, d.number, l.TraceID, want, l.Index, d.has)
			err.WantDigest, err.GotDigest, err.TraceID = d.has, want, l.TraceID
			return err
		}
	}
	return nil
}

// whole checks that the file has every leaf of the range.
func (v *verifier) whole() error {
	if v.head.From == 0 {
		return nil
	}
	next := v.head.From
	for i := range v.leaves {
		if index := v.leaves[i].Index; index == next && next <= v.head.To {
			next++
		}
	}
	if next != v.head.To+1 {
		return v.missing("leaf %d is missing in the range from %d to %d", next, v.head.From, v.head.To)
	}
	return nil
}

// say appends a sentence.
func say(to *[]string, format string, args ...any) { *to = append(*to, fmt.Sprintf(format, args...)) }

// words returns sentences that say what about the checkpoint was proved and what was not.
func (s *Signed) words() (proved, open []string) {
	c := s.Checkpoint
	if s.KeyGiven {
		say(&proved, "The key you gave signed the checkpoint of %s with %d appends.", s.Origin, c.Size)
	} else {
		say(&proved, "The key that the file itself names signed the checkpoint of %s with %d appends.", s.Origin, c.Size)
		say(&open, "Whose key that is. Whoever made the file could have made the key too. Get the key from the operator, and check again with it.")
	}
	if s.HandOvers > 0 {
		say(&proved, "That key came from the first one through %d hand-overs, which both keys signed.", s.HandOvers)
	}
	for _, by := range s.Cosigned {
		say(&proved, "Witness %s signed the checkpoint.", by.Name)
	}
	if len(s.Cosigned) == 0 {
		say(&open, "Whether the store showed others another history: no witness that you trust signed the checkpoint.")
	}
	return proved, open
}

// Words returns sentences that say what was proved and what was not.
func (r *Report) Words() (proved, open []string) {
	proved, open = r.words()
	c := r.Checkpoint
	if r.GrewFrom > 0 {
		say(&proved, "The tree grew from your old checkpoint of %d appends without a change.", r.GrewFrom)
	} else {
		say(&open, "Whether the history before this checkpoint was rewritten: you gave no older checkpoint.")
	}
	say(&proved, "%d appends of %d traces are in the checkpoint, and %d entries, %d documents and %d notes are those that they had.",
		r.Leaves, len(r.Traces), r.Export.Entries, r.Export.Documents, r.Export.Notes)
	if r.Others > 0 {
		say(&open, "What %d appends did that are of no trace in the file: they changed a working state, the journal of a turn or a timer.", r.Others)
	}
	switch {
	case r.From == 0:
		say(&open, "Whether these traces have later appends, and what other traces there are: the file holds chosen traces.")
	case r.To == uint64(c.Size):
		say(&proved, "From append %d to the last one of the checkpoint, %d, none is missing.", r.From, r.To)
	default:
		say(&proved, "From append %d to %d none is missing.", r.From, r.To)
		say(&open, "What happened after append %d: the checkpoint has %d.", r.To, c.Size)
	}
	for i := range r.Traces {
		if t := &r.Traces[i]; !t.Covered() {
			say(&open, "Trace %s: %d of %d entries and %d of %d notes are not covered. They came after the checkpoint.",
				t.ID, t.Entries-t.CoveredEntries, t.Entries, t.Notes-t.CoveredNotes, t.Notes)
		}
	}
	if r.Export.Erased > 0 {
		say(&open, "What %d erased artifacts and documents said. Their digests are proved.", r.Export.Erased)
	}
	say(&open, "Whether the tools told the truth, whether the store's clock was right, and the members committed and epoch of the export, which stand under no digest.")
	return proved, open
}
