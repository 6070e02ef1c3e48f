package postgres

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// view is a trace at one version of its head. It may still have contents that were erased after born.
type view struct {
	trace   *chain.Trace
	version int64
	born    time.Time // a time before the trace was first read, or before it began
}

// viewsBytes bounds the memory of the cached views, and mostOfView that of one of them: a larger one would evict many others.
const viewsBytes, mostOfView = 64 << 20, 1 << 20

func newViews() *lru[tga.ID, view] {
	l := newLRU[tga.ID, view](4096)
	l.size, l.mostBytes = view.size, viewsBytes
	return l
}

// size is about how much memory a view takes.
func (v view) size() int {
	size := 2048
	for _, a := range []*tga.Artifact{v.trace.Request, v.trace.Decision, v.trace.Call, v.trace.Effect} {
		if a != nil {
			size += len(a.Canonical)
		}
	}
	for _, d := range v.trace.Documents {
		size += len(d.Data)
	}
	for i := range v.trace.Notes {
		size += 256 + len(v.trace.Notes[i].Body)
	}
	return size
}

// keepView caches a view, unless a newer one is cached.
func (s *Store) keepView(v view) {
	if v.size() > mostOfView {
		s.views.remove(v.trace.ID)
		return
	}
	s.views.put(v.trace.ID, v, func(old view) bool { return old.version > v.version })
}

// standing is a trace as it is in the database, with the epoch and the session of its lease.
type standing struct {
	view
	epoch   chain.Epoch
	session int64
	entries []chain.Entry // the entries that were read
}

const readTrace = `SELECT h.version, h.seq, h.digest, h.note, h.note_digest, h.epoch, h.session,
	ARRAY(SELECT e.header FROM tgad.entries e WHERE e.shard = h.shard AND e.trace = h.trace AND e.seq > $3 ORDER BY e.seq),
	ARRAY(SELECT e.parts FROM tgad.entries e WHERE e.shard = h.shard AND e.trace = h.trace AND e.seq > $3 ORDER BY e.seq),
	ARRAY(SELECT e.spill FROM tgad.entries e WHERE e.shard = h.shard AND e.trace = h.trace AND e.seq > $3 ORDER BY e.seq),
	ARRAY(SELECT n.frame FROM tgad.notes n WHERE n.shard = h.shard AND n.trace = h.trace AND n.number > $4 ORDER BY n.number)
	FROM tgad.heads h WHERE h.shard = $1 AND h.trace = $2`

// row is what readTrace returns.
type row struct {
	version, seq, note, epoch, session int64
	digest, noteDigest                 []byte
	headers, parts, spills, notes      [][]byte
}

// stand reads a trace. It reads only what was added since the cached view, unless whole asks for all
// stored entries.
func (s *Store) stand(ctx context.Context, id tga.ID, whole bool) (standing, error) {
	known, ok := s.views.get(id)
	if !ok || whole {
		known = view{trace: chain.NewTrace(id), born: time.Now()}
	}
	st, err := known.goOn(ctx, s, s.ringed.keys())
	switch {
	case err == nil && known.trace.Head.Seq > 0 && st.erasedSince(known.trace):
		s.views.remove(id)
		return s.stand(ctx, id, true) // the cached view still has the erased contents
	case err == nil && st.epoch > 0: // the trace exists
		s.keepView(st.view)
	case err != nil:
		s.views.remove(id)
	}
	return st, err
}

// erasedSince reports whether the contents of a trace were erased after known was read.
func (st *standing) erasedSince(known *chain.Trace) bool {
	for _, n := range st.trace.Notes[min(len(known.Notes), len(st.trace.Notes)):] {
		if n.Kind == tga.NoteErased {
			return true
		}
	}
	return false
}

// goOn reads what was added to a trace since the view known.
func (known view) goOn(ctx context.Context, s *Store, keys chain.Keys) (standing, error) {
	id := known.trace.ID
	var r row
	found := true
	err := s.ask(ctx, "read trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
		r = row{}
		err := c.QueryRow(ctx, readTrace, s.o.Shard, [16]byte(id), int64(known.trace.Head.Seq), int64(known.trace.NoteHead.Number)).
			Scan(&r.version, &r.seq, &r.digest, &r.note, &r.noteDigest, &r.epoch, &r.session, &r.headers, &r.parts, &r.spills, &r.notes)
		if found = !errors.Is(err, pgx.ErrNoRows); !found {
			err = nil
		}
		return err
	})
	if err != nil {
		return standing{}, err
	}
	if !found {
		return standing{view: view{trace: chain.NewTrace(id), born: known.born}}, nil
	}
	st, err := s.fold(known.trace, &r, keys)
	if err != nil {
		return st, recoveryFailed(id, err)
	}
	st.born = known.born
	return st, nil
}

// fold continues a trace with the rows that were read, and checks that it ends at the head.
func (s *Store) fold(known *chain.Trace, r *row, keys chain.Keys) (st standing, err error) {
	id := known.ID
	st = standing{epoch: chain.Epoch(r.epoch), session: r.session}
	entries := func(yield func(chain.Entry, error) bool) {
		for i := range r.headers {
			e, err := joinFrame(r.headers[i], r.parts[i], r.spills[i], keys)
			if err == nil {
				st.entries = append(st.entries, e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
	notes := func(yield func(tga.Note, error) bool) {
		for _, frame := range r.notes {
			n, _, _, err := chain.DecodeNoteFrame(frame)
			if !yield(n, err) {
				return
			}
		}
	}
	if known.Head.Seq == 0 {
		st.trace, err = chain.Replay(id, entries, notes)
	} else {
		st.trace, err = proceed(known.Clone(), entries, notes)
	}
	if err != nil {
		return st, err
	}
	t := st.trace
	if int64(t.Head.Seq) != r.seq || !bytes.Equal(t.Head.Digest[:], r.digest) || int64(t.NoteHead.Number) != r.note || !bytes.Equal(t.NoteHead.Digest[:], r.noteDigest) {
		return st, damaged("its head is entry %d %x, note %d %x; its log ends with entry %d %s, note %d %s", r.seq, r.digest, r.note, r.noteDigest,
			t.Head.Seq, t.Head.Digest, t.NoteHead.Number, t.NoteHead.Digest).In(id)
	}
	st.version = r.version
	for i := range t.Entries {
		s.times.raise(t.Entries[i].TS)
	}
	return st, nil
}

// proceed is [chain.Replay] that starts at a known trace.
func proceed(t *chain.Trace, entries iter.Seq2[chain.Entry, error], notes iter.Seq2[tga.Note, error]) (*chain.Trace, error) {
	for e, err := range entries {
		if err == nil {
			err = t.Apply(&e)
		}
		if err != nil {
			return t, err
		}
	}
	for n, err := range notes {
		if err == nil {
			err = t.ApplyNote(&n)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

func damaged(format string, args ...any) *tga.Error {
	err := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	err.Where = "stored"
	return err
}

func recoveryFailed(id tga.ID, err error) error {
	switch tga.CodeOf(err) {
	case tga.StoreUnavailable, tga.FormatTooNew, tga.StateRecoveryFailed:
		return err // the trace may be intact but unreadable for this process, or the code is set already
	}
	out := tga.Errorf(tga.StateRecoveryFailed, "trace %s: %w", id, err).In(id)
	out.Where = "stored"
	var cause *tga.Error
	if errors.As(err, &cause) {
		out.Seq, out.Note, out.WantDigest, out.GotDigest = cause.Seq, cause.Note, cause.WantDigest, cause.GotDigest
	}
	return out
}

// Load implements [runtime.Store].
func (s *Store) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	if err := s.health.enter(); err != nil {
		return nil, err
	}
	defer s.health.leave()
	st, err := s.stand(ctx, id, false)
	if err != nil {
		return nil, err
	}
	if st.trace.Head.Seq == 0 {
		return nil, tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
	}
	return st.trace.Clone(), nil
}

// State returns the execution state of a trace. If the trace has no entry, the last sequence number is 0.
func (s *Store) State(ctx context.Context, id tga.ID) (tga.ExecutionState, error) {
	t, err := s.Load(ctx, id)
	if tga.CodeOf(err) == tga.NotFound {
		return chain.NewTrace(id).State(), nil
	}
	if err != nil {
		return tga.ExecutionState{}, err
	}
	return t.State(), nil
}

// Entries implements [runtime.Store]. If an entry is damaged, it yields the entries before that one and
// then the error.
func (s *Store) Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[chain.Entry, error] {
	return func(yield func(chain.Entry, error) bool) {
		if err := s.health.enter(); err != nil {
			yield(chain.Entry{}, err)
			return
		}
		st, err := s.stand(ctx, id, true)
		s.health.leave()
		for _, e := range st.entries {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(chain.Entry{}, err)
		}
	}
}

// Notes implements [runtime.Store].
func (s *Store) Notes(ctx context.Context, id tga.ID, after uint32) iter.Seq2[tga.Note, error] {
	return func(yield func(tga.Note, error) bool) {
		t, err := s.Load(ctx, id)
		if err != nil {
			if tga.CodeOf(err) != tga.NotFound {
				yield(tga.Note{}, err)
			}
			return
		}
		for _, n := range t.Notes {
			if n.Number > after && !yield(n, nil) {
				return
			}
		}
	}
}

// OpenTraces implements [runtime.Store].
func (s *Store) OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error] {
	return func(yield func(chain.OpenTrace, error) bool) {
		if err := s.health.enter(); err != nil {
			yield(chain.OpenTrace{}, err)
			return
		}
		var list []chain.OpenTrace
		err := s.ask(ctx, "open traces", func(ctx context.Context, c *pgxpool.Conn) error {
			rows, err := c.Query(ctx, "SELECT trace, namespace, state, since, deadline FROM tgad.heads WHERE shard = $1 AND state BETWEEN 1 AND 3 ORDER BY trace", s.o.Shard)
			if err != nil {
				return err
			}
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o chain.OpenTrace, err error) {
				var id [16]byte
				var state, since, deadline int64
				err = row.Scan(&id, &o.Namespace, &state, &since, &deadline)
				o.TraceID, o.State, o.Since, o.Deadline = tga.ID(id), tga.State(state), tga.Millis(since), tga.Millis(deadline)
				return o, err
			})
			return err
		})
		s.health.leave()
		if err != nil {
			yield(chain.OpenTrace{}, err)
			return
		}
		for _, o := range list {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// Attachment implements [runtime.Store].
func (s *Store) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) (value []byte, err error) {
	if _, err := keyspace.AppendAttachment(nil, keyspace.Kind(kind), key); err != nil {
		return nil, err
	}
	if err := s.health.enter(); err != nil {
		return nil, err
	}
	defer s.health.leave()
	err = s.ask(ctx, "attachment", func(ctx context.Context, c *pgxpool.Conn) error {
		value = nil
		err := c.QueryRow(ctx, "SELECT value FROM tgad.attachments WHERE shard = $1 AND kind = $2 AND key = $3", s.o.Shard, int16(kind), key).Scan(&value)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	a := chain.Attachment{Kind: kind, Key: key, Value: value}
	_, err = s.ringed.opened(&a)
	return a.Value, err
}

// attachmentPage is how many attachments are read at once.
const attachmentPage = 256

// Attachments implements [runtime.Store]. It reads one page at a time; changes between two reads are seen.
func (s *Store) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return func(yield func(chain.Attachment, error) bool) {
		from, upper, err := attachmentSpan(kind, prefix)
		if err != nil {
			yield(chain.Attachment{}, err)
			return
		}
		first := true
		for {
			if err := s.health.enter(); err != nil {
				yield(chain.Attachment{}, err)
				return
			}
			page, err := s.attachments(ctx, kind, from, upper, first)
			s.health.leave()
			if err != nil {
				yield(chain.Attachment{}, err)
				return
			}
			for i := range page {
				there, err := s.ringed.opened(&page[i])
				if (there || err != nil) && !yield(page[i], err) {
					return
				}
			}
			if len(page) < attachmentPage {
				return
			}
			from, first = page[len(page)-1].Key, false
		}
	}
}

// attachmentSpan returns the bounds of the keys with a prefix. upper is empty if there is no upper bound.
func attachmentSpan(kind chain.AttachmentKind, prefix []byte) (from, upper []byte, err error) {
	from, upper, err = keyspace.AttachmentBounds(keyspace.Kind(kind), prefix)
	if err != nil {
		return nil, nil, err
	}
	if upper[0] != byte(kind) {
		upper = upper[:1] // the next kind
	}
	return from[1:], upper[1:], nil
}

// attachments reads a page of keys from the key from up to but not including upper; an empty upper is
// no bound. with includes the key from itself.
func (s *Store) attachments(ctx context.Context, kind chain.AttachmentKind, from, upper []byte, with bool) (page []chain.Attachment, err error) {
	err = s.ask(ctx, "attachments", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT key, value FROM tgad.attachments WHERE shard = $1 AND kind = $2 AND key >= $3 AND ($4 OR key > $3) AND (length($5::bytea) = 0 OR key < $5) ORDER BY key LIMIT $6",
			s.o.Shard, int16(kind), append([]byte{}, from...), with, append([]byte{}, upper...), attachmentPage)
		if err != nil {
			return err
		}
		page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (chain.Attachment, error) {
			a := chain.Attachment{Kind: kind}
			err := row.Scan(&a.Key, &a.Value)
			return a, err
		})
		return err
	})
	return page, err
}
