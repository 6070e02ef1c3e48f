// Package sends checks from outside whether a store sent a call that it must not have sent: under a
// key that another trace has, after the effect, or a second time without a licence. It recomputes the
// ledger from the appends, in their order. It uses the rules of package ledger, which the store
// follows too, and has no rules of its own.
//
// # What it cannot know
//
// What an operator attests of a tool is not in the log. If it is not given, every repeat within a trace
// counts as licensed. If the operator lets programs claim a licence, the licence in the log of an
// attempt is the claim, and it is limited by the operator's bounds. Nothing is known of an erased call,
// so its key counts as never used. The log does not say whether bytes left the machine either. So
// package sends checks attempts, which are written before each send.
//
// # Invariants
//
//	found   an attempt that no rule of the ledger allows is an error          [Book.Take]  TestForbiddenSendsAreFound
//	quiet   an attempt by the rules is no error, wherever the store crashed   [Book.Take]  property S11 of internal/crashtest
//	same    a restored book decides as the one that was kept                  [Book.Restore] TestBookIsRestored
package sends

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Attested is what an operator attests of the tools. The zero value attests nothing.
type Attested struct {
	Profile ledger.Profile
	// Licence returns what is attested of a tool. nil: nothing is known, and every repeat within a
	// trace counts as licensed.
	Licence func(server, tool string) Tool
}

// Tool is what an operator attests of one tool.
type Tool struct {
	Licence  ledger.Licence
	Explicit bool // the configuration names the licence
	Reads    bool // the tool only reads
	Claims   bool // the program that sends a call may claim the licence (client_licence)
}

// Book is the ledger of a store, computed from its appends. Only one goroutine uses it.
type Book struct {
	attested Attested
	records  map[[32]byte]*ledger.Record
	changed  map[[32]byte]bool   // since the last Changed
	has      map[tga.ID][32]byte // which key a trace has reserved
}

// New returns the book of a store without appends.
func New(a Attested) *Book {
	return &Book{a, map[[32]byte]*ledger.Record{}, map[[32]byte]bool{}, map[tga.ID][32]byte{}}
}

// Take checks the append of the next leaf. t is the trace of the leaf; it may have later entries and
// notes. An error names the key that was used against the rules, by its digest. The book is then
// unchanged.
func (b *Book) Take(l *tree.Leaf, t *chain.Trace) error {
	c, blind := changeOf(l, t)
	switch {
	case blind:
		b.forget(t.ID)
		return nil
	case c.Call == nil || ledger.NeverSent(c.Call):
		return nil
	}
	hash := ledger.KeyOf(t.Namespace, c.Call).Hash()
	fault := func(err error) error {
		e := &tga.Error{Code: tga.StateInvalidTransition}
		errors.As(err, &e)
		return tga.Errorf(e.Code, "append %d: trace %s, key %x: %s", l.Index, t.ID, hash, e.Message).In(t.ID)
	}
	touches, err := c.Touches()
	if err != nil {
		return fault(err)
	}
	record := b.records[hash]
	if !touches || record == nil && c.Began == 0 {
		return nil // the key was forgotten, so nothing can be checked
	}
	// Apply the notes one by one, so that each attempt is checked against the record before it.
	notes := c.Notes
	c.Notes = nil
	if c.Began != 0 || c.Ended != 0 {
		if record, err = c.Apply(record, nil); err != nil {
			return fault(err)
		}
		c.Began, c.Ended = 0, 0
	}
	for i := range notes {
		n := &notes[i]
		if changes, _ := ledger.ChangesRecord(n.Kind); !changes {
			continue
		}
		if n.Kind == tga.NoteAttempt {
			m, err := ledger.ParseMark(n.Body)
			if err == nil {
				c.Epoch = m.Epoch // the store has compared the lease; here there is none
				err = b.licensed(record, t, n, m)
			}
			if err != nil {
				return fault(err)
			}
		}
		c.Notes = notes[i : i+1]
		if record, err = c.Apply(record, nil); err != nil {
			return fault(err)
		}
	}
	b.put(hash, record)
	return nil
}

// put replaces a record.
func (b *Book) put(hash [32]byte, r *ledger.Record) {
	if old := b.records[hash]; old != nil {
		delete(b.has, old.TraceID)
	}
	b.records[hash], b.changed[hash] = r, true
	if r.Status == ledger.Reserved {
		b.has[r.TraceID] = hash
	}
}

// forget drops the key that a trace has reserved: after an erasure its state is not known.
func (b *Book) forget(trace tga.ID) {
	if hash, ok := b.has[trace]; ok {
		delete(b.has, trace)
		delete(b.records, hash)
		b.changed[hash] = true
	}
}

// licensed returns an error if an attempt must not follow the earlier ones.
func (b *Book) licensed(r *ledger.Record, t *chain.Trace, n *tga.Note, m ledger.Mark) error {
	if b.attested.Licence == nil || r == nil || !r.InDoubt() || wasNotSent(t, m.Attempt) {
		return nil
	}
	call := t.Call.Call.Call
	tool := b.attested.Licence(call.ToolServer, call.ToolName)
	class := tga.ClassWrite
	if tool.Reads && t.Request.Request.RiskLevel == tga.RiskRead {
		class = tga.ClassRead
	}
	l := ledger.Effective(tool.Licence, tool.Explicit, class, b.attested.Profile)
	before, at := recorded(t, m.Attempt)
	if tool.Claims {
		l = ledger.Claimed(l, at, true, class)
	}
	// The store decided shortly before the time in the note. So replace its margin by the smallest one.
	l.Margin = time.Nanosecond
	if before != nil {
		before.Margin = time.Nanosecond
	}
	d := ledger.Decide(ledger.Query{
		Record: r, Trace: t.ID, Request: r.RequestDigest, Profile: b.attested.Profile, Licence: l, Attempted: before,
		Holder: ledger.HolderGone, Remote: !m.Permit.IsZero(), Now: n.TS, SendTimeout: time.Millisecond,
	})
	if d.Action == ledger.ProbeFirst {
		d = probed(r, t, n)
	}
	if d.Action == ledger.Send || d.Action == ledger.Resend {
		return nil
	}
	return tga.Errorf(tga.EffectInDoubt, "attempt %d is a second send without a licence: attempt %d may have run, and %s", m.Attempt, r.Attempts.Count, d.Reason)
}

// recorded returns the licences that the log has for an attempt (at) and for the one before it
// (before); nil if it has none. A licence that cannot be parsed counts as one that attests nothing.
func recorded(t *chain.Trace, attempt uint32) (before, at *ledger.Licence) {
	read := func(text string) *ledger.Licence {
		l, err := ledger.ParseAttested(text)
		if err != nil {
			return &ledger.Licence{}
		}
		return &l
	}
	if text := t.Call.Meta.String(tga.MetaLicence); text != "" {
		before = read(text)
	}
	at = before
	for i := range t.Notes {
		n := &t.Notes[i]
		if n.Kind != tga.NoteLicence {
			continue
		}
		var said struct {
			Attempt uint32 `json:"attempt"`
			Licence string `json:"licence"`
		}
		if err := json.Unmarshal(n.Body, &said); err != nil {
			said.Attempt = 1
		}
		if said.Attempt < attempt {
			before = read(said.Licence)
		}
		if said.Attempt <= attempt {
			at = read(said.Licence)
		}
	}
	return before, at
}

// wasNotSent says whether a note says that an attempt was not sent. Such an attempt needs no licence.
func wasNotSent(t *chain.Trace, attempt uint32) bool {
	for i := range t.Notes {
		if t.Notes[i].Kind == tga.NoteNotSent {
			if s, err := ledger.ParseNotSent(t.Notes[i].Body); err == nil && s.Attempt == attempt {
				return true
			}
		}
	}
	return false
}

// probed is the decision by the newest probe of the tool server before a note.
func probed(r *ledger.Record, t *chain.Trace, before *tga.Note) ledger.Decision {
	d := ledger.Decision{Action: ledger.Doubt, Reason: "licence probe: the server was not asked"}
	for i := range t.Notes {
		n := &t.Notes[i]
		if n.Number >= before.Number {
			break
		}
		var heard struct {
			Answer  string `json:"answer"`
			Attempt uint32 `json:"attempt"`
			Fenced  bool   `json:"fenced"`
		}
		if n.Kind != tga.NoteProbe || json.Unmarshal(n.Body, &heard) != nil || heard.Attempt != r.Attempts.Count {
			continue
		}
		answer, err := ledger.ParseProbeAnswer(heard.Answer)
		if err != nil {
			return ledger.Decision{Action: ledger.Doubt, Reason: fmt.Sprint("licence probe: ", err)}
		}
		d = ledger.DecideProbe(r, answer, heard.Fenced)
	}
	return d
}

// changeOf is the change of the ledger that the append of a leaf makes. blind says that a part of the
// trace was erased, so the change is not known.
func changeOf(l *tree.Leaf, t *chain.Trace) (c ledger.Change, blind bool) {
	c = ledger.Change{Trace: t.ID}
	for i := range t.Entries {
		e := &t.Entries[i]
		appended := e.Seq >= l.FirstSeq && e.Seq < l.FirstSeq+uint64(l.Entries)
		c.State = e.To
		switch e.Type {
		case tga.RequestType:
			c.Request, blind = t.Request, blind || t.Request == nil
		case tga.CallType:
			c.Call, blind = t.Call, blind || t.Call == nil
		case tga.EffectType:
			c.Effect, blind = t.Effect, blind || t.Effect == nil
		}
		if appended {
			c.Appends(e.Type, e.Seq, e.TS, l.Committed)
		}
		if e.Digest == l.HeadDigest {
			break // the next entries came with a later append
		}
	}
	if l.Notes > 0 && int(l.FirstNote)-1+int(l.Notes) <= len(t.Notes) {
		c.Notes = t.Notes[l.FirstNote-1:][:l.Notes]
	}
	return c, blind
}
