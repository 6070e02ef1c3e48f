package daemon

import (
	"bytes"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// exportTime is how long an export waits for its reader to read on. It is long because readers
// pause, as a pager does, and an export that was ended cannot be continued from its last line.
const exportTime = 10 * time.Minute

// export answers with traces as [ndjson] lines: the named ones in the order of the request, or
// all that the peer sees in the order of their first entries. It reads the log once and has one
// trace in memory at a time. Traces that begin after the request are not in the answer.
func (q *request) export() (any, error) {
	var m wire.ExportRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if m.Dialect != "" && m.Dialect != wire.DialectTgad && m.Dialect != wire.DialectTalos {
		return nil, tga.Errorf(tga.ValidationError, "dialect %.40q: want %s or %s", m.Dialect, wire.DialectTgad, wire.DialectTalos).At("/dialect")
	}
	leave, err := q.takeFollower()
	if err != nil {
		return nil, err
	}
	defer leave()
	x := &exporting{q: q, talos: m.Dialect == wire.DialectTalos}
	if len(m.TraceIDs) > 0 {
		err = x.named(m.TraceIDs)
	} else {
		err = x.all()
	}
	if err == nil {
		err = ndjson.End(x, x.traces)
	}
	return nil, err
}

// exporting is an export under way. It sends whole lines only, so that a problem line never
// comes in the middle of another line.
type exporting struct {
	q      *request
	talos  bool
	s      *stream // nil before the first line: until then an error has an HTTP status of its own
	begun  []byte  // the beginning of a line that is not complete
	traces int
}

func (x *exporting) named(ids []tga.ID) error {
	for _, id := range ids {
		if x.q.d.stopping() {
			return errStreamStops
		}
		t, err := x.q.trace(id)
		if err == nil {
			err = x.trace(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *exporting) all() error {
	newest := x.q.d.db.Cursor()
	if newest == 0 {
		return nil
	}
	return x.q.follow(nil, 0, func(l chain.Leaf) (bool, error) {
		more := l.Index < newest
		// A trace is exported at its first entry. Any other append is of a trace that was exported
		// before, or of a working state or a turn, which is no trace.
		if l.Entries == 0 || l.FirstSeq != 1 {
			return more, nil
		}
		if own, err := mine(x.q, l.TraceID); err != nil || !own {
			return more, err
		}
		t, err := x.q.trace(l.TraceID)
		if err == nil {
			err = x.trace(t)
		}
		return more, err
	})
}

// trace writes one trace. Its notes were read before its entries. So a note that is appended between
// the two reads is missing, but no note is there without the entry that it names.
func (x *exporting) trace(t *chain.Trace) error {
	var entries []chain.Entry
	for e, err := range x.q.d.db.Entries(x.q.r.Context(), t.ID, 0) {
		if err != nil {
			return err
		}
		if x.talos {
			if err := checkTalos(&e); err != nil {
				return err
			}
		}
		entries = append(entries, e)
	}
	if err := ndjson.WriteLists(x, t.ID, entries, t.Notes); err != nil {
		return err
	}
	x.traces++
	return nil
}

// checkTalos checks the artifact of an entry against the public Talos schemas. SCHEMA_VIOLATION
// names the first member that they do not accept.
func checkTalos(e *chain.Entry) error {
	if e.Artifact == nil {
		return tga.Errorf(tga.SchemaViolation, "entry %d of trace %s: its %s is erased, and Talos has no erased artifacts", e.Seq, e.TraceID, e.Type).In(e.TraceID)
	}
	return e.Artifact.CheckTalos()
}

// Write sends the complete lines and keeps the rest.
func (x *exporting) Write(b []byte) (int, error) {
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == 0 {
		x.begun = append(x.begun, b...)
		return len(b), nil
	}
	if x.s == nil {
		x.s = x.q.newStream()
	}
	if err := x.s.send(slices.Concat(x.begun, b[:end]), exportTime); err != nil {
		return 0, err
	}
	x.begun = append(x.begun[:0], b[end:]...)
	return len(b), nil
}
