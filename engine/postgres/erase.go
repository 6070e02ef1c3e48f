package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Erase destroys the artifacts and documents of finished traces, and the evidence that their notes name. It destroys all values of
// streams and states. The proof of a trace stays, as in a store in a directory: see engine.DB.Erase, which has the same error codes.
// PERMISSION_DENIED: the login lacks the rights of tgad_eraser, which Erase needs in addition to those of tgad_writer.
//
// Erase first stores in the database what is to be erased. From then on the end of this process only delays the erasure: the next
// process that opens the store, or erases, continues it. Then it deletes the rows with the values, those of each trace in one
// transaction with the note about the erasure. Last it destroys the data keys, which erases in every copy of the database too.
func (f Fleet) Erase(ctx context.Context, what chain.Erasure) (done chain.Erased, err error) {
	return eraser{f.s}.erase(ctx, what)
}

// eraser erases from a store.
type eraser struct{ *Store }

func (s eraser) erase(ctx context.Context, what chain.Erasure) (done chain.Erased, err error) {
	if err := s.health.enterToWrite(); err != nil {
		return done, err
	}
	defer s.health.leave()
	if err := what.Check(); err != nil {
		return done, err
	}
	if err := s.mayErase(ctx); err != nil {
		return done, err
	}
	if err := s.erasure.take(ctx); err != nil {
		return done, err
	}
	defer s.erasure.give()
	for {
		if err := s.carryOut(ctx); err != nil { // finish an erasure that is under way
			return done, err
		}
		e := &planner{s: s, what: what}
		if err := e.plan(ctx); err != nil {
			return e.done, err
		}
		done = e.done
		if e.m.empty() {
			return done, nil
		}
		if err = s.beginErasing(ctx, &e.m); !raised(err, sqlErasingOn) {
			break
		}
	}
	if err == nil {
		err = s.carryOut(ctx)
	}
	if err != nil {
		s.erasure.look()
	}
	return done, err
}

// mayErase refuses a login without the right to erase, before anything is changed.
func (s eraser) mayErase(ctx context.Context) error {
	may := false
	err := s.ask(ctx, "ask who may erase", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT has_column_privilege('tgad.entries', 'parts', 'UPDATE') AND has_column_privilege('tgad.entries', 'spill', 'UPDATE')").Scan(&may)
	})
	if err == nil && !may {
		err = tga.Errorf(tga.PermissionDenied, "erase: the login of this process may not erase: GRANT tgad_eraser to it")
	}
	return err
}

// erasedState is a state that is to be erased: a scope of an agent's state, or a family of working states.
type erasedState struct {
	Stream tga.ID   `json:"stream"`
	Values []tga.ID `json:"values,omitempty"` // streams of the keys of a scope
}

// erasing is an erasure under way, as the table of that name has it.
type erasing struct {
	Traces  []tga.ID      `json:"traces,omitempty"`
	Streams []tga.ID      `json:"streams,omitempty"`
	States  []erasedState `json:"states,omitempty"`
	Keys    []chain.KeyID `json:"keys,omitempty"` // to be destroyed
	Who     string        `json:"who"`
	Reason  string        `json:"reason"`
}

func (m *erasing) empty() bool {
	return len(m.Traces)+len(m.Streams)+len(m.States)+len(m.Keys) == 0
}

// planner finds what is to be erased, and whether it can be erased now.
type planner struct {
	s     eraser
	what  chain.Erasure
	timed map[tga.ID]bool
	m     erasing
	done  chain.Erased
}

func (e *planner) plan(ctx context.Context) (err error) {
	e.m = erasing{Who: e.what.Who, Reason: e.what.Reason}
	if e.what.Namespace == "" {
		e.what.Namespace = tga.DefaultNamespace
	}
	if e.timed, err = e.s.timed(ctx); err != nil {
		return err
	}
	if e.what.Subject != "" {
		return e.subject(ctx)
	}
	for _, id := range once(e.what.Traces) {
		st, err := e.look(ctx, id)
		if err == nil {
			err = e.take(ctx, st)
		}
		if err != nil {
			return err
		}
	}
	if err := e.streams(ctx); err != nil {
		return err
	}
	if err := e.states(ctx); err != nil {
		return err
	}
	e.done.Keys = len(e.m.Keys)
	return nil
}

// once returns ids in order, each once.
func once(ids []tga.ID) []tga.ID {
	return slices.Compact(slices.SortedFunc(slices.Values(ids), func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) }))
}

// timed returns the traces that have a timer: a new attempt of them is due.
func (s eraser) timed(ctx context.Context) (timed map[tga.ID]bool, err error) {
	err = s.ask(ctx, "timers", func(ctx context.Context, c *pgxpool.Conn) error {
		timed = map[tga.ID]bool{}
		rows, err := c.Query(ctx, "SELECT key FROM tgad.attachments WHERE shard = $1 AND kind = $2", s.o.Shard, int16(chain.AttachTimer))
		if err != nil {
			return err
		}
		var key []byte
		_, err = pgx.ForEachRow(rows, []any{&key}, func() error {
			_, id, err := keyspace.ParseTimer(key)
			timed[id] = true
			return err
		})
		return err
	})
	return timed, err
}

// look reads a trace.
func (e *planner) look(ctx context.Context, id tga.ID) (standing, error) {
	st, err := view{trace: chain.NewTrace(id)}.goOn(ctx, e.s.Store, e.s.ringed.keys())
	if err == nil && len(st.entries) == 0 {
		err = tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
	}
	return st, err
}

// take adds a trace to the erasure, or leaves it out.
func (e *planner) take(ctx context.Context, st standing) error {
	id := st.trace.ID
	holder := e.s.Holder(id)
	if holder == ledger.HolderUnknown {
		return tga.Errorf(tga.StoreUnavailable, "erase trace %s: whether another process holds its lease is not known", id).In(id)
	}
	if err := sealrules.Erasable(id, st.trace.Head.State, e.timed[id], holder == ledger.HolderAlive); err != nil {
		if e.what.Leave {
			return nil
		}
		return err
	}
	keys, err := e.keysOf(ctx, st)
	if err == nil && sealrules.Gone(st.entries) && len(keys) == len(st.entries) { // nothing lies beside it
		e.done.Already++
		return nil
	}
	if len(e.m.Traces) == chain.MaxErased || len(e.m.Keys) >= chain.MaxErased {
		return tga.Errorf(tga.LimitExceeded, "erase: over %d traces or keys at once", chain.MaxErased)
	}
	if err == nil {
		err = sealrules.Own(e.s.ringed.ring, keys, &e.m.Keys, &e.done)
	}
	if err != nil {
		return e.leave(ctx, id, err)
	}
	e.done.Traces++
	e.m.Traces = append(e.m.Traces, id)
	return nil
}

// keysOf returns the keys of a trace, and of the values beside it; 0 stands for a value without a key.
func (e *planner) keysOf(ctx context.Context, st standing) (keys []chain.KeyID, err error) {
	for i := range st.entries {
		keys = append(keys, st.entries[i].Key)
	}
	for _, a := range sealrules.Beside(st.trace.ID, st.trace.Notes) {
		stored, err := e.s.stored(ctx, a.Kind, a.Key)
		if err != nil {
			return nil, err
		}
		if stored != nil {
			keys = append(keys, sealrules.KeyOf(stored))
		}
	}
	return keys, nil
}

// leave leaves a trace that cannot be read out of the erasure of a subject. It returns err, which refuses the whole erasure, if the
// trace was named explicitly, or if the database does not answer at all.
func (e *planner) leave(ctx context.Context, id tga.ID, err error) error {
	if e.what.Subject == "" || ctx.Err() != nil {
		return err
	}
	if sick := e.s.ask(ctx, "look whether the database answers", func(ctx context.Context, c *pgxpool.Conn) error { return c.Ping(ctx) }); sick != nil {
		return err
	}
	e.done.Leave(id, err)
	return nil
}

// subject is plan for the traces of a subject. Once the subject's keys are retired, no new trace of any process gets one of them,
// and every earlier append under them is visible. So subject finds every trace that has such a key. A request that was appended
// without a key is found by its content. A trace that cannot be read is left out and reported.
func (e *planner) subject(ctx context.Context) error {
	if ring := e.s.ringed.ring; ring != nil {
		keys, err := ring.Retire(e.what.Namespace, e.what.Subject)
		if err == nil {
			err = e.s.ringed.rememberAll(ctx, keys) // a process that has just got one of the keys may not have stored it yet
		}
		if err == nil {
			err = e.s.ringed.retire(ctx, keys)
		}
		if err != nil {
			return err
		}
		e.m.Keys = keys
	}
	own, pending := map[chain.KeyID]bool{}, false
	for _, k := range e.m.Keys {
		own[k] = true
	}
	var after tga.ID
	for more := true; more; {
		ids, err := e.s.Fleet().traceIDs(ctx, after)
		if err != nil {
			return err
		}
		for _, id := range ids {
			left := e.done.Left
			st, err := e.look(ctx, id)
			switch {
			case tga.CodeOf(err) == tga.NotFound:
				continue // it has only notes
			case err != nil:
				open, oerr := e.s.isOpen(ctx, id)
				pending = pending || open || oerr != nil
				err = e.leave(ctx, id, err)
			case sealrules.IsOf(st.entries, own, e.what.Namespace, e.what.Subject):
				err = e.take(ctx, st)
				pending = pending || e.done.Left > left
			}
			if err != nil {
				return err
			}
		}
		if more = len(ids) == listPage; more {
			after = ids[len(ids)-1]
		}
	}
	if pending && len(own) > 0 {
		// An unreadable trace that is open may be the subject's, and it needs its key once it is repaired. Also, a trace of the subject
		// was left out because a value beside it has a key that is not available; only that key shows whose the value is. So the
		// subject's keys are not destroyed.
		e.m.Keys = e.m.Keys[len(own):]
	} else {
		e.done.Shared = 0 // the subject's keys are destroyed, with all its traces
	}
	e.done.Keys = len(e.m.Keys)
	return nil
}

func numbersOf(keys []chain.KeyID) []int64 {
	numbers := make([]int64, len(keys))
	for i, n := range keys {
		numbers[i] = int64(n)
	}
	return numbers
}

func (s eraser) isOpen(ctx context.Context, id tga.ID) (open bool, err error) {
	err = s.ask(ctx, "state of trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tgad.heads WHERE shard = $1 AND trace = $2 AND state BETWEEN 1 AND 3)", s.o.Shard, [16]byte(id)).Scan(&open)
	})
	return open, err
}

// stored returns the stored value of an attachment, nil if it does not exist.
func (s eraser) stored(ctx context.Context, kind chain.AttachmentKind, key []byte) (value []byte, err error) {
	err = s.ask(ctx, "attachment", func(ctx context.Context, c *pgxpool.Conn) error {
		value = nil
		err := c.QueryRow(ctx, "SELECT value FROM tgad.attachments WHERE shard = $1 AND kind = $2 AND key = $3", s.o.Shard, int16(kind), key).Scan(&value)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, err
}

// ownersKeys returns all keys that the owners have ever had.
func (s eraser) ownersKeys(ctx context.Context, owners []sealrules.Owner) (keys []chain.KeyID, err error) {
	err = s.ask(ctx, "keys of owners", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT key FROM tgad.owner_keys WHERE shard = $1 AND owner = ANY ($2) ORDER BY key", s.o.Shard, namesOf(owners))
		if err != nil {
			return err
		}
		keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (chain.KeyID, error) {
			var n int64
			err := row.Scan(&n)
			return chain.KeyID(n), err
		})
		return err
	})
	return keys, err
}

func namesOf(owners []sealrules.Owner) [][]byte {
	names := make([][]byte, len(owners))
	for i, o := range owners {
		names[i] = []byte(o.Name())
	}
	return names
}

// eachStored calls f with the key and the stored value of each attachment under a prefix, and returns their number.
func (s eraser) eachStored(ctx context.Context, kind chain.AttachmentKind, prefix []byte, f func(key, stored []byte) error) (n int, err error) {
	from, upper, err := attachmentSpan(kind, prefix)
	for first := true; err == nil; first = false {
		var page []chain.Attachment
		if page, err = s.attachments(ctx, kind, from, upper, first); err != nil {
			break
		}
		for i := range page {
			if err := f(page[i].Key, page[i].Value); err != nil {
				return n, err
			}
			n++
		}
		if len(page) < attachmentPage {
			break
		}
		from = page[len(page)-1].Key
	}
	return n, err
}
