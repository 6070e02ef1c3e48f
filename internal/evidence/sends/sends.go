// Package sends judges from outside whether a store sent a call that it must not have sent: under a
// key that another trace has, after the effect, or a second time without a licence. It recomputes the
// ledger from the appends, in their order, with the rules of package ledger, which the store itself
// follows: it has none of its own.
//
// # What it cannot know
//
// What an operator attests of a tool is not in the log. Without it every repeat within a trace is
// taken to be licensed. Where the operator lets programs claim a licence, that which the log has of an
// attempt is the claim, and it is held to the operator's bounds. Of a call that was erased nothing is known, and of its key nothing any more:
// the key counts as never used. Whether bytes left the machine is not in the log either: an attempt
// is judged, which is written before each send.
//
// # Invariants
//
//	found   an attempt that no rule of the ledger allows is an error          [Book.Take]  TestForbiddenSendsAreFound
//	quiet   what a store did by the rules is none, wherever it crashed        [Book.Take]  property S11 of internal/crashtest
//	same    a book that is restored judges as the one that was kept           [Book.Restore] TestBookIsRestored
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

// Attested is what an operator says of the tools. The zero value says nothing.
type Attested struct {
	Profile ledger.Profile
	// Licence returns what is attested of a tool. nil: nothing is known, and every repeat within a
	// trace is taken to be licensed.
	Licence func(server, tool string) Tool
}

// Tool is what an operator says of one tool.
type Tool struct {
	Licence  ledger.Licence
	Explicit bool // the licence was named
	Reads    bool // the tool only reads
	Claims   bool // the program that sends a call says itself what a repetition does
}

// Book has the ledger of a store as its appends make it. One goroutine uses it.
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

// Take judges the append of a leaf, which follows the one before it. t is its trace, perhaps with
// later entries and notes. An error says which key was used against the rules, by its digest; it
// changes nothing.
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
		return nil // of a key that was forgotten there is nothing to say
	}
	// One after the other, as the ledger takes them, so that each attempt is judged by what was known before it.
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
				c.Epoch = m.Epoch // which lease was the store's to compare
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

// forget drops the key that a trace has reserved: what becomes of it cannot be seen.
func (b *Book) forget(trace tga.ID) {
	if hash, ok := b.has[trace]; ok {
		delete(b.has, trace)
		delete(b.records, hash)
		b.changed[hash] = true
	}
}

// licensed finds out whether an attempt may follow those before it.
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
	// The store decided a moment before the time in the note, and kept a margin for that.
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

// recorded are the licences that the log has of the attempt before a later one, and of that one; nil
// where it has none. What nobody can read attests nothing.
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

// wasNotSent says whether an attempt is known to have reached nobody: it licensed nothing then, and
// needed no licence.
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

// probed is what the newest question to the tool server before a note decides.
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

// changeOf is the append of a leaf as the ledger sees it. blind says that something of it was erased.
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
			break // what follows came with a later append
		}
	}
	if l.Notes > 0 && int(l.FirstNote)-1+int(l.Notes) <= len(t.Notes) {
		c.Notes = t.Notes[l.FirstNote-1:][:l.Notes]
	}
	return c, blind
}
