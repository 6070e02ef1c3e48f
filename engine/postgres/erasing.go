package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// erasure coordinates the erasures of this process.
type erasure struct {
	turn  chan struct{}           // full while this process erases
	begun chan struct{}           // signals that an erasure may be under way
	step  func(what string) error // for tests: called before each step; its error ends the erasure there
}

// take waits until no other goroutine of this process erases.
func (x *erasure) take(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *erasure) give() { <-x.turn }

// look makes keepErasing continue an erasure soon.
func (x *erasure) look() {
	select {
	case x.begun <- struct{}{}:
	default: // a signal is pending already
	}
}

func (x *erasure) before(what string) error {
	if x.step == nil {
		return nil
	}
	return x.step(what)
}

// erasingPause is the time between two looks for an erasure that another process has not finished.
const erasingPause = time.Minute

// keepErasing continues erasures that another process has begun and not finished.
func (s eraser) keepErasing() {
	ctx, cancel := context.WithCancel(s.health.life)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-s.health.stop:
		case <-over:
		}
		cancel()
	}()
	tick := time.NewTicker(erasingPause)
	defer tick.Stop()
	for {
		if err := s.finishErasing(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("an erasure that was begun is not finished, and is tried again", "error", err)
		}
		select {
		case <-tick.C:
		case <-s.erasure.begun:
			select {
			case <-time.After(time.Second): // wait before retrying what has just failed
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (s eraser) finishErasing(ctx context.Context) error {
	if err := s.health.enterToWrite(); err != nil {
		return nil // it is frozen, or closes
	}
	defer s.health.leave()
	if err := s.erasure.take(ctx); err != nil {
		return err
	}
	defer s.erasure.give()
	_, raw, err := s.underWay(ctx)
	if err == nil && raw != nil {
		err = s.mayErase(ctx)
	}
	if err == nil && raw != nil {
		err = s.carryOut(ctx)
	}
	return err
}

// beginErasing stores what is to be erased. From then on nothing new is sealed under the keys.
func (s eraser) beginErasing(ctx context.Context, m *erasing) error {
	if err := s.erasure.before("begin"); err != nil {
		return err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return tga.Errorf(tga.GenericStateError, "erase: %w", err)
	}
	return s.once(ctx, "begin to erase", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT tgad.begin_erasing($1, $2, $3)", s.o.Shard, raw, numbersOf(m.Keys))
		return err
	})
}

// underWay reads the erasure that is under way; raw is nil if there is none.
func (s eraser) underWay(ctx context.Context) (m erasing, raw []byte, err error) {
	err = s.ask(ctx, "look what is to be erased", func(ctx context.Context, c *pgxpool.Conn) error {
		raw = nil
		err := c.QueryRow(ctx, "SELECT plan FROM tgad.erasing WHERE shard = $1", s.o.Shard).Scan(&raw)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err == nil && raw != nil {
		if jerr := json.Unmarshal(raw, &m); jerr != nil {
			err = damaged("what is to be erased cannot be read: %v", jerr)
		}
	}
	return m, raw, err
}

// carryOut does the stored erasure. Each step may have been done before, or another process may do it meanwhile. So the rest is
// read again after each step.
func (s eraser) carryOut(ctx context.Context) error {
	for {
		m, raw, err := s.underWay(ctx)
		if err != nil || raw == nil {
			return err
		}
		switch {
		case len(m.Traces) > 0:
			err = s.eraseTraces(ctx, m, raw)
		case len(m.Streams) > 0:
			err = s.eraseStream(ctx, m, raw)
		case len(m.States) > 0:
			err = s.eraseState(ctx, m, raw)
		default:
			err = s.destroy(ctx, m, raw)
		}
		if err != nil && !raised(err, sqlErasingOn) {
			return err
		}
	}
}

// goOn replaces the stored erasure raw by its rest next; a nil next ends the erasure.
func (s eraser) goOn(ctx context.Context, raw, next []byte) error {
	if err := s.erasure.before("go on"); err != nil {
		return err
	}
	return s.once(ctx, "go on erasing", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT tgad.go_on_erasing($1, $2, $3)", s.o.Shard, raw, next)
		return err
	})
}

// destroy destroys the keys. This is the last step, so that a reader finds each trace whole, or erased with the note that says why.
func (s eraser) destroy(ctx context.Context, m erasing, raw []byte) error {
	for _, key := range m.Keys {
		if err := s.erasure.before("destroy"); err != nil {
			return err
		}
		if s.ringed.ring == nil {
			return tga.Errorf(tga.StoreUnavailable, "erase: key %d cannot be destroyed without its ring", key)
		}
		if err := s.ringed.ring.Destroy(key); err != nil {
			return err
		}
	}
	s.ringed.owners.clear()
	if err := s.goOn(ctx, raw, nil); err != nil {
		return err
	}
	s.log.Info("what was to be erased is erased", "keys", len(m.Keys), "by", m.Who, "reason", m.Reason)
	return nil
}

// eraseTraces erases all traces, one after the other.
func (s eraser) eraseTraces(ctx context.Context, m erasing, raw []byte) error {
	for _, id := range m.Traces {
		if err := s.eraseTrace(ctx, &m, id); err != nil {
			return err
		}
	}
	next := m
	next.Traces = nil
	left, err := json.Marshal(next)
	if err != nil {
		return tga.Errorf(tga.GenericStateError, "erase: %w", err)
	}
	return s.goOn(ctx, raw, left)
}

const (
	eraseEntries     = "UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2 AND parts IS NOT NULL"
	eraseCheckpoints = "DELETE FROM tgad.checkpoints WHERE shard = $1 AND trace = $2"
	eraseSpan        = "DELETE FROM tgad.attachments WHERE shard = $1 AND kind = $2 AND key >= $3 AND (length($4::bytea) = 0 OR key < $4) AND key <> $5"
	eraseOwners      = "DELETE FROM tgad.owner_keys WHERE shard = $1 AND owner = ANY ($2)"
)

// eraseTrace deletes everything of a trace but its proof. The same transaction appends the note about the erasure, which is a leaf
// of the order.
func (s eraser) eraseTrace(ctx context.Context, m *erasing, id tga.ID) error {
	return s.underLease(ctx, id, func(st *standing, p *part) (*job, error) {
		// The entries alone do not say it: those of a retired month are bare, and what lies beside the trace is still there.
		if sealrules.Gone(st.entries) && slices.ContainsFunc(st.trace.Notes, func(n tga.Note) bool { return n.Kind == tga.NoteErased }) {
			return nil, nil
		}
		bare := sealrules.Bare(st.entries)
		after, err := replayed(id, bare, st.trace.Notes)
		if err != nil {
			return nil, recoveryFailed(id, err)
		}
		text, err := sealrules.ErasedNote(m.Who, m.Reason, len(bare))
		if err != nil {
			return nil, err
		}
		note, err := after.AppendNote(text, max(p.committed, bare[len(bare)-1].TS))
		if err != nil {
			return nil, err
		}
		p.after, p.notes, p.newest = after, []tga.Note{note}, note.TS
		p.attachments = sealrules.Beside(id, st.trace.Notes)
		return &job{parts: parts{p}, then: func(b *pgx.Batch) {
			b.Queue(eraseEntries, s.o.Shard, [16]byte(id))
			b.Queue(eraseCheckpoints, s.o.Shard, [16]byte(id))
		}}, nil
	})
}

// replayed returns the trace of entries and notes.
func replayed(id tga.ID, entries []chain.Entry, notes []tga.Note) (*chain.Trace, error) {
	return chain.Replay(id, func(yield func(chain.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}, func(yield func(tga.Note, error) bool) {
		for _, n := range notes {
			if !yield(n, nil) {
				return
			}
		}
	})
}

// underLease makes an append of an erasure, alone in its transaction. It waits for the holder of the trace. make gets the current
// trace, read without keys: the erased contents are not needed, and a key may be destroyed already. make returns nil if nothing is
// left to do.
func (s eraser) underLease(ctx context.Context, id tga.ID, make func(*standing, *part) (*job, error)) error {
	waits, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	lease, err := s.Acquire(waits, id)
	if err != nil {
		return err
	}
	defer s.Release(lease)
	why := ""
	for range mostTries {
		st, err := view{trace: chain.NewTrace(id), born: time.Now()}.goOn(ctx, s.Store, chain.NoKeys{})
		if err != nil {
			return err
		}
		p := &part{lease: lease, before: st.view, after: st.trace.Clone(), committed: s.times.now()}
		if err := s.mayAppend(p, &st, true); err != nil {
			return err
		}
		j, err := make(&st, p)
		if j == nil || err != nil {
			return err
		}
		if err := s.erasure.before("append"); err != nil {
			return err
		}
		j.alone = true
		if why, err = s.commits.commit(j); err != nil {
			return err
		}
		s.views.remove(id)
		switch why {
		case sqlDone:
			s.erased(p)
			return nil
		case sqlErasingOn:
			return tga.Errorf(tga.StateConflict, "%w", errGoneOn)
		case sqlNotDurable:
			return unfit("its settings have changed: an erasure would not be as durable as it must be")
		case sqlSessionLate:
			if err := s.renew(ctx); err != nil {
				return err
			}
		}
	}
	return tga.Errorf(tga.StoreUnavailable, "erase: gave up after %d conflicts with other processes, last code %s", mostTries, why).In(id)
}

// errGoneOn says that another process has done the step already.
var errGoneOn = errors.New("another process has gone on with the erasure")

// erased is publish for an append of an erasure. It does not cache the trace.
func (s eraser) erased(p *part) {
	s.acked.put(p.after.ID, chain.Trace{ID: p.after.ID, Head: p.after.Head, NoteHead: p.after.NoteHead}, nil)
	s.times.raise(p.newest)
	s.counts.notes.Add(uint64(len(p.notes)))
	s.counts.appends.Add(1)
	s.changed.notify(p.after.ID)
	s.order.kick()
}

// eraseSpan queues the deletion of the attachments of a span, except the key but.
func (s eraser) eraseSpan(b *pgx.Batch, x span, but []byte) error {
	from, upper, err := attachmentSpan(x.kind, x.prefix)
	if err != nil {
		return err
	}
	b.Queue(eraseSpan, s.o.Shard, int16(x.kind), append([]byte{}, from...), append([]byte{}, upper...), but)
	return nil
}

// eraseStream erases the first stream of an erasure. The first item stays, as an empty value: a caller that looks for the stream
// finds that it existed, and does not begin it again. The transaction also removes the stream from the stored erasure, so later
// writes to it are not part of the erasure.
func (s eraser) eraseStream(ctx context.Context, m erasing, raw []byte) error {
	id := m.Streams[0]
	next := m
	next.Streams = m.Streams[1:]
	return s.leaves(ctx, id, raw, &next, sealrules.OwnersOf(id), func(p *part) ([]span, []byte, error) {
		var first []byte
		if _, err := s.eachStored(ctx, chain.AttachStream, keyspace.StreamPrefix(id), func(key, _ []byte) error {
			if first == nil {
				first = key
			}
			return nil
		}); err != nil {
			return nil, nil, err
		}
		if first != nil {
			p.attachments = []chain.Attachment{{Kind: chain.AttachStream, Key: first, Value: []byte{}}}
		}
		return []span{{chain.AttachStream, keyspace.StreamPrefix(id)}}, first, nil
	})
}

// eraseState erases the first state of an erasure. Its head becomes a description of the erasure, with a leaf in the order. A later
// write begins the state anew, under another key.
func (s eraser) eraseState(ctx context.Context, m erasing, raw []byte) error {
	x := m.States[0]
	next := m
	next.States = m.States[1:]
	return s.leaves(ctx, x.Stream, raw, &next, x.owners(), func(p *part) ([]span, []byte, error) {
		head, err := chain.StateErasure{At: p.committed, Who: m.Who, Reason: m.Reason}.Value()
		if err != nil {
			return nil, nil, tga.Errorf(tga.GenericStateError, "erase: %w", err)
		}
		p.attachments = []chain.Attachment{{Kind: chain.AttachStream, Key: x.head(), Value: head}}
		return x.parts(), x.head(), nil
	})
}

// leaves empties a stream or a state in one transaction. It appends the attachments that make puts into the part, deletes the spans
// that make returns, except one key, deletes the keys of the owners, and stores the rest of the erasure.
func (s eraser) leaves(ctx context.Context, id tga.ID, raw []byte, next *erasing, owners []sealrules.Owner, make func(*part) ([]span, []byte, error)) error {
	left, err := json.Marshal(next)
	if err != nil {
		return tga.Errorf(tga.GenericStateError, "erase: %w", err)
	}
	err = s.underLease(ctx, id, func(st *standing, p *part) (*job, error) {
		spans, but, err := make(p)
		if err != nil {
			return nil, err
		}
		b := &pgx.Batch{}
		for _, x := range spans {
			if err := s.eraseSpan(b, x, slices.Concat(but)); err != nil {
				return nil, err
			}
		}
		return &job{parts: parts{p}, then: func(into *pgx.Batch) {
			for _, q := range b.QueuedQueries {
				into.Queue(q.SQL, q.Arguments...)
			}
			into.Queue(eraseOwners, s.o.Shard, namesOf(owners))
			into.Queue("SELECT tgad.go_on_erasing($1, $2, $3)", s.o.Shard, raw, left)
		}}, nil
	})
	s.ringed.owners.clear()
	if errors.Is(err, errGoneOn) {
		return nil
	}
	return err
}
