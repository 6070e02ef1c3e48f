package crashtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Import makes a store from an export of this one, in a separate world with the same journal. The new
// store's export must be the same file, it must have the same ledger, and with every key that was ever
// sent it must do what a restored store does.
func (s *Session) Import() []Violation {
	s.w.OnOp(nil) // an armed error is for another command
	var file bytes.Buffer
	if s.image != nil || exportTo(&file, s.p.DB) != nil {
		return nil // out of order: Check judges it
	}
	records, err := ledgerOf(s.p.DB)
	if err != nil {
		return nil // likewise
	}
	w := s.w.Crash(0).World()
	w.events, w.now = s.w.Journal(), tga.MillisOf(s.w.Clock())
	w.log(Event{Kind: Opened})
	o := w.Options(s.Scenario.Conf)
	failed := func(property, what string, err error) []Violation {
		return []Violation{{Property: property, Detail: fmt.Sprintf("%s: %v", what, err)}}
	}
	if err := importFrom(file.Bytes(), "imported", o); err != nil {
		return failed("L1", "import", err)
	}
	db, err := engine.Open("imported", o)
	if err != nil {
		return failed("L1", "open what was imported", err)
	}
	bad := sameExport(db, file.Bytes(), records)
	rt, err := w.runtime(db, s.Scenario.Conf, runtime.DispatcherFunc(w.Dispatch))
	if err != nil {
		bad = append(bad, failed("L1", "runtime", err)...)
	} else {
		bad = append(bad, s.inQuarantine(&Process{World: w, DB: db, RT: rt, Conf: s.Scenario.Conf}, len(w.events))...)
	}
	if err := db.Close(); err != nil {
		bad = append(bad, failed("L1", "close what was imported", err)...)
	}
	return bad
}

// sameExport compares an imported store with the export that it was made from, and with the ledger of
// the exported store.
func sameExport(db *engine.DB, want []byte, records map[[32]byte]string) (bad []Violation) {
	fail := func(format string, args ...any) {
		bad = append(bad, Violation{Property: "L3", Detail: fmt.Sprintf(format, args...)})
	}
	var got bytes.Buffer
	if err := exportTo(&got, db); err != nil {
		fail("export what was imported: %v", err)
	} else if !bytes.Equal(got.Bytes(), want) {
		fail("the export of what was imported is another file: %d bytes, %d", got.Len(), len(want))
	}
	if has, err := ledgerOf(db); err != nil {
		fail("ledger: %v", err)
	} else if !maps.Equal(has, records) {
		fail("the imported store has %d ledger records, the other %d, or others", len(has), len(records))
	}
	return bad
}

// exportTo writes all traces of a store in the order of their first entries, as a daemon does.
func exportTo(w *bytes.Buffer, db *engine.DB) error {
	newest, n := db.Cursor(), 0
	if newest > 0 {
		for l, err := range db.Follow(context.Background(), 0) {
			if err != nil {
				return err
			}
			if l.Entries > 0 && l.FirstSeq == 1 {
				n++
				if err := ndjson.Write(w, l.TraceID, db.Entries(context.Background(), l.TraceID, 0), db.Notes(context.Background(), l.TraceID, 0)); err != nil {
					return err
				}
			}
			if l.Index >= newest {
				break
			}
		}
	}
	return ndjson.End(w, n)
}

// importFrom makes a store of an export.
func importFrom(export []byte, dir string, o engine.Options) error {
	return engine.Import(context.Background(), dir, o, func(add func([]chain.Entry, []tga.Note) error) error {
		_, err := ndjson.Each(bytes.NewReader(export), add)
		return err
	})
}

func ledgerOf(db *engine.DB) (map[[32]byte]string, error) {
	all := map[[32]byte]string{}
	err := db.Records(context.Background(), func(hash [32]byte, record []byte) error {
		all[hash] = string(record)
		return nil
	})
	return all, err
}
