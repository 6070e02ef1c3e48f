package sends_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// life is a growing log with a book that judges each append.
type life struct {
	*testing.T
	book   *sends.Book
	traces map[tga.ID]*chaintest.Trace
	counts map[tga.ID][2]int // entries and notes that were appended
	index  uint64
}

func newLife(t *testing.T, a sends.Attested) *life {
	return &life{t, sends.New(a), map[tga.ID]*chaintest.Trace{}, map[tga.ID][2]int{}, 0}
}

func licence(l ledger.Licence) sends.Attested {
	return sends.Attested{Licence: func(string, string) sends.Tool {
		return sends.Tool{Licence: l, Explicit: true, Reads: l.Kind == ledger.ReadOnly}
	}}
}

// claimed is the same for calls whose sending program may claim a licence.
func claimed(l ledger.Licence) sends.Attested {
	return sends.Attested{Licence: func(string, string) sends.Tool { return sends.Tool{Licence: l, Explicit: true, Claims: true} }}
}

// take gives the book everything that was added to a trace since the last time, as one append.
func (l *life) take(tr *chaintest.Trace) error {
	l.Helper()
	was := l.counts[tr.ID]
	leaf := tree.Leaf{TraceID: tr.ID, HeadDigest: tr.State.Head.Digest, Entries: uint16(len(tr.Entries) - was[0]), Notes: uint16(len(tr.Notes) - was[1])}
	if leaf.Entries > 0 {
		leaf.FirstSeq = uint64(was[0]) + 1
		leaf.Committed = tr.State.Entries[len(tr.State.Entries)-1].TS
	}
	if leaf.Notes > 0 {
		leaf.FirstNote = uint32(was[1]) + 1
	}
	l.counts[tr.ID] = [2]int{len(tr.Entries), len(tr.Notes)}
	l.index++
	leaf.Index = l.index
	return l.book.Take(&leaf, tr.State)
}

// begin returns a trace whose call was just appended.
func (l *life) begin(o chaintest.Options) (*chaintest.Trace, error) {
	l.Helper()
	whole := chaintest.New(o)
	o.Entries = 3
	tr := chaintest.New(o)
	l.traces[tr.ID] = whole
	return tr, l.take(tr)
}

// end appends the effect.
func (l *life) end(tr *chaintest.Trace) error {
	e := l.traces[tr.ID].Entries[3]
	tr.Append(e.Artifact, nil)
	return l.take(tr)
}

func (l *life) note(tr *chaintest.Trace, kind tga.NoteKind, body []byte) error {
	tr.Note(chain.NewNote{Kind: kind, Who: "tgad", Body: body})
	return l.take(tr)
}

func (l *life) attempt(tr *chaintest.Trace, n uint32) error {
	return l.note(tr, tga.NoteAttempt, ledger.Mark{Attempt: n, Epoch: 9}.Body())
}

func (l *life) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func TestForbiddenSendsAreFound(t *testing.T) {
	one, two := chaintest.Options{Seed: 1, Key: "order-1"}, chaintest.Options{Seed: 2, Key: "order-1"}
	other := chaintest.Options{Seed: 2, Key: "order-1", Args: `{"amount":13}`}
	park := licence(ledger.Licence{Kind: ledger.Park})
	probe := licence(ledger.Licence{Kind: ledger.Probe})
	asked := func(l *life, tr *chaintest.Trace, attempt int, answer string, fenced bool) {
		l.must(l.note(tr, tga.NoteProbe, fmt.Appendf(nil, `{"answer":%q,"attempt":%d,"fenced":%v}`, answer, attempt, fenced)))
	}
	under := func(l *life, licence string) *chaintest.Trace {
		tr, err := l.begin(chaintest.Options{Seed: 1, Key: "order-1", Licence: licence})
		l.must(err)
		return tr
	}
	relicensed := func(l *life, tr *chaintest.Trace, attempt int, licence string) *chaintest.Trace {
		l.must(l.note(tr, tga.NoteLicence, fmt.Appendf(nil, `{"attempt":%d,"licence":%q}`, attempt, licence)))
		return tr
	}
	args := ledger.Licence{Kind: ledger.DedupeArgs}
	begun := func(l *life) *chaintest.Trace {
		tr, err := l.begin(one)
		l.must(err)
		return tr
	}
	second := func(l *life, o chaintest.Options) error { _, err := l.begin(o); return err }
	for name, c := range map[string]struct {
		attested sends.Attested
		do       func(l *life) error
		says     string // "" = allowed
	}{
		"once":                                     {park, func(l *life) error { return l.end(begun(l)) }, ""},
		"another trace, in flight":                 {park, func(l *life) error { begun(l); return second(l, two) }, "reserved by trace"},
		"another trace, settled":                   {park, func(l *life) error { l.must(l.end(begun(l))); return second(l, two) }, "settled by trace"},
		"the same, nothing attested":               {sends.Attested{}, func(l *life) error { l.must(l.end(begun(l))); return second(l, two) }, "settled by trace"},
		"another request":                          {park, func(l *life) error { l.must(l.end(begun(l))); return second(l, other) }, "another request"},
		"another key":                              {park, func(l *life) error { begun(l); return second(l, chaintest.Options{Seed: 2, Key: "order-2"}) }, ""},
		"again, parked":                            {park, func(l *life) error { return l.attempt(begun(l), 2) }, "second send without a licence"},
		"again, nothing attested":                  {sends.Attested{}, func(l *life) error { return l.attempt(begun(l), 2) }, ""},
		"again, by its arguments":                  {licence(ledger.Licence{Kind: ledger.DedupeArgs}), func(l *life) error { return l.attempt(begun(l), 2) }, ""},
		"again, read only, and the request writes": {licence(ledger.Licence{Kind: ledger.ReadOnly}), func(l *life) error { return l.attempt(begun(l), 2) }, "without a licence"},
		"again, in the window":                     {licence(ledger.Licence{Kind: ledger.DedupeKey, Window: time.Hour}), func(l *life) error { return l.attempt(begun(l), 2) }, ""},
		"again, after the window":                  {licence(ledger.Licence{Kind: ledger.DedupeKey, Window: time.Millisecond}), func(l *life) error { return l.attempt(begun(l), 2) }, "forgotten the key"},
		"again, not asked":                         {probe, func(l *life) error { return l.attempt(begun(l), 2) }, "was not asked"},
		"again, asked":                             {probe, func(l *life) error { tr := begun(l); asked(l, tr, 1, "not_ran", true); return l.attempt(tr, 2) }, ""},
		"again, asked of another":                  {probe, func(l *life) error { tr := begun(l); asked(l, tr, 2, "not_ran", true); return l.attempt(tr, 2) }, "was not asked"},
		"again, not fenced":                        {probe, func(l *life) error { tr := begun(l); asked(l, tr, 1, "not_ran", false); return l.attempt(tr, 2) }, "may still arrive"},
		"again, it ran":                            {probe, func(l *life) error { tr := begun(l); asked(l, tr, 1, "ran", true); return l.attempt(tr, 2) }, "without a licence"},
		"again, the first was not sent": {park, func(l *life) error {
			tr := begun(l)
			l.must(l.note(tr, tga.NoteNotSent, ledger.NotSent{Attempt: 1, Reason: "refused"}.Body()))
			return l.attempt(tr, 2)
		}, ""},
		"again, the first was made under park":  {licence(args), func(l *life) error { return l.attempt(under(l, "park"), 2) }, "without a licence"},
		"again, the first may be relicensed":    {licence(args), func(l *life) error { return l.attempt(relicensed(l, under(l, "park"), 1, "dedupe_args"), 2) }, ""},
		"again, under a licence of its own":     {licence(args), func(l *life) error { return l.attempt(relicensed(l, under(l, "park"), 2, "dedupe_args"), 2) }, "without a licence"},
		"again, the first under what is none":   {licence(args), func(l *life) error { return l.attempt(under(l, "all"), 2) }, "without a licence"},
		"again, a claim that does not count":    {park, func(l *life) error { return l.attempt(under(l, "dedupe_args"), 2) }, "without a licence"},
		"again, a claim that counts":            {claimed(ledger.Licence{}), func(l *life) error { return l.attempt(under(l, "dedupe_args"), 2) }, ""},
		"again, a claim that is over its bound": {claimed(ledger.Licence{Window: time.Millisecond}), func(l *life) error { return l.attempt(under(l, "dedupe_key 3600000 1"), 2) }, "forgotten the key"},
		"again, no claim is in the log":         {claimed(ledger.Licence{}), func(l *life) error { return l.attempt(begun(l), 2) }, "without a licence"},
		"an attempt too far":                    {sends.Attested{}, func(l *life) error { return l.attempt(begun(l), 3) }, "the newest is 1"},
		"after the effect":                      {sends.Attested{}, func(l *life) error { tr := begun(l); l.must(l.end(tr)); return l.attempt(tr, 2) }, "COMPLETED"},
		"of an erased request":                  {park, func(l *life) error { tr := begun(l); tr.State.Request = nil; return l.attempt(tr, 2) }, ""},
		"under an erased key": {park, func(l *life) error {
			tr := begun(l)
			tr.State.Call = nil
			l.must(l.end(tr))
			return second(l, two)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, c.attested)
			err := c.do(l)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("%v, want %q", err, c.says)
			}
			if err != nil && (!strings.Contains(err.Error(), "key ") || !strings.Contains(err.Error(), "trace ")) {
				t.Errorf("%v names no key and no trace", err)
			}
		})
	}
}

// TestBookIsRestored: a process that takes over what another process wrote down has the same knowledge.
func TestBookIsRestored(t *testing.T) {
	l := newLife(t, licence(ledger.Licence{Kind: ledger.Park}))
	var pieces [][]byte
	keep := func() {
		t.Helper()
		b, err := l.book.Changed(nil)
		if err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, b)
		again := sends.New(licence(ledger.Licence{Kind: ledger.Park}))
		for _, b := range pieces {
			if err := again.Restore(b); err != nil {
				t.Fatal(err)
			}
		}
		l.book = again
	}
	tr, err := l.begin(chaintest.Options{Seed: 1, Key: "order-1"})
	l.must(err)
	keep()
	if _, err := l.begin(chaintest.Options{Seed: 2, Key: "order-1"}); err == nil {
		t.Error("a key that another trace has reserved is taken")
	}
	l.must(l.end(tr))
	keep()
	if _, err := l.begin(chaintest.Options{Seed: 3, Key: "order-1"}); err == nil {
		t.Error("a settled key is taken")
	}
	tr, err = l.begin(chaintest.Options{Seed: 4, Key: "order-2"})
	l.must(err)
	keep()
	tr.State.Call = nil
	l.must(l.end(tr))
	keep()
	_, err = l.begin(chaintest.Options{Seed: 5, Key: "order-2"})
	l.must(err) // nothing is known about erased parts
	for _, b := range pieces {
		for cut := range len(b) {
			if err := sends.New(sends.Attested{}).Restore(b[:cut]); err == nil && cut != 0 && cut < 34 {
				t.Errorf("%d bytes of %d are read", cut, len(b))
			}
		}
	}
}
