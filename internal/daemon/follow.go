package daemon

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// signOfLife is after how long without a line a stream sends a sign of life.
const signOfLife = 15 * time.Second

// lineTime is how long a client may take to read one line of a stream, or one part of another answer. Tests set
// another value.
var lineTime = 30 * time.Second

// errNothingComes refuses to follow a store that no daemon has open, to which nothing is added.
// Waiting would also prevent a daemon from opening the store.
var errNothingComes = tga.Errorf(tga.StoreUnavailable, "no process has the store, so nothing is added to it: start tgad serve to follow it")

// stream is an NDJSON answer that may go on.
type stream struct {
	q       *request
	control *http.ResponseController
}

// newStream sends the header of the answer. After that an error is sent as the last line.
func (q *request) newStream() *stream {
	q.w.Header().Set("Content-Type", wire.NDJSONType)
	q.status = http.StatusOK
	_ = bound(q.w) // if the connection fails, so does the write
	q.w.WriteHeader(http.StatusOK)
	return &stream{q, http.NewResponseController(q.w)}
}

// endWithDrain ends a blocked write to a reader that takes nothing, soon after the daemon drains, until stop is called.
func endWithDrain(q *request) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	control := http.NewResponseController(q.w)
	go func() {
		defer close(gone)
		select {
		case <-q.d.drain:
			if err := control.SetWriteDeadline(time.Now().Add(mostWrite)); err != nil {
				q.d.log.Debug("a stream is not cut short", "error", err)
			}
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

// line writes one message, nil for an empty line.
func (s *stream) line(m any) error {
	var b []byte
	if m != nil {
		b = wire.Append(nil, m)
	}
	return s.send(append(b, '\n'), lineTime)
}

// send writes lines. If the client does not read them in time, the stream ends: the daemon
// buffers nothing for it.
func (s *stream) send(b []byte, wait time.Duration) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(wait)); err != nil {
		return errors.Join(errNobodyWaits, err)
	}
	// Check this after setting the deadline, which could have replaced the earlier one that endWithDrain sets.
	if s.q.d.stopping() {
		if wait > lineTime {
			return errStreamStops
		}
		if err := s.control.SetWriteDeadline(time.Now().Add(mostWrite)); err != nil {
			return errors.Join(errNobodyWaits, err)
		}
	}
	if _, err := s.q.w.Write(b); err != nil {
		return errors.Join(errNobodyWaits, err)
	}
	if err := s.control.Flush(); err != nil {
		return errors.Join(errNobodyWaits, err)
	}
	return nil
}

// problemLine is the last line of a stream that cannot go on.
type problemLine struct {
	Problem wire.Problem `json:"problem"`
}

// lastLine says why a stream ends.
func (q *request) lastLine(err error) {
	if errors.Is(err, tga.StoreUnavailable) {
		q.d.suspect()
	}
	s := &stream{q, http.NewResponseController(q.w)}
	if err := s.line(problemLine{problemOf(err)}); err != nil {
		q.d.log.Debug("end of stream not delivered", "path", q.r.URL.Path, "error", err)
	}
}

// entries answers with the entries of a trace after a sequence number. With follow it also answers
// with later ones, until the trace is terminal.
func (q *request) entries() (any, error) {
	after, err := q.number("after")
	if err != nil {
		return nil, err
	}
	follow, err := q.flag("follow")
	if err != nil {
		return nil, err
	}
	// Read the cursor before the entries. An entry that is appended in between is then read twice
	// and sent once; in the other order it would be missed.
	cursor := q.d.db.Cursor()
	if follow && q.d.atRest {
		return nil, errNothingComes
	}
	t, err := q.traceInPath()
	if err != nil {
		return nil, err
	}
	if follow {
		leave, err := q.takeFollower()
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	if !follow {
		defer endWithDrain(q)()
	}
	s := q.newStream()
	over := false
	show := func() error {
		for e, err := range q.d.db.Entries(q.r.Context(), t.ID, after) {
			if err != nil {
				return err
			}
			if err := s.line(story.Said(&e)); err != nil {
				return err
			}
			after = e.Seq
		}
		now, err := q.d.db.Load(q.r.Context(), t.ID)
		over = err == nil && now.Head.State.Terminal() && after >= now.Head.Seq
		return err
	}
	if err := show(); err != nil || !follow || over {
		return nil, err
	}
	err = q.follow(s, cursor, func(l chain.Leaf) (bool, error) {
		if l.TraceID != t.ID || l.Entries == 0 {
			return true, nil
		}
		err := show()
		return !over, err
	})
	return nil, err
}

// logLines answers with those appends of the store after a cursor that the peer may see, in
// the order of the log.
func (q *request) logLines() (any, error) {
	newest := q.d.db.Cursor()
	after, err := newest, error(nil)
	if q.r.URL.Query().Get("after") != wire.Newest {
		after, err = q.number("after")
	}
	if err != nil {
		return nil, err
	}
	follow, err := q.flag("follow")
	if err != nil {
		return nil, err
	}
	if follow && q.d.atRest {
		return nil, errNothingComes
	}
	changes, err := q.flag("changes")
	if err != nil {
		return nil, err
	}
	if changes && !follow {
		return nil, tga.Errorf(tga.ValidationError, "changes are told to who follows: add follow=1").At("/changes")
	}
	if after > newest {
		// The cursor is of another store, or of this one before it lost appends.
		return nil, tga.Errorf(tga.ValidationError, "the cursor %d is past the newest append, %d", after, newest).At("/after")
	}
	leave, err := q.takeFollower()
	if err != nil {
		return nil, err
	}
	defer leave()
	s := q.newStream()
	if after == newest && !follow {
		return nil, nil
	}
	if changes {
		return nil, s.changes(after)
	}
	return nil, q.follow(s, after, func(l chain.Leaf) (bool, error) {
		m, err := s.logLine(l)
		if err == nil && m != nil {
			err = s.line(*m)
		}
		return follow || l.Index < newest, err
	})
}

// changesEvery is the shortest time between two lines that say that the log has changed.
const changesEvery = 250 * time.Millisecond

// changes sends the cursors of appends that the peer may see, one line for many appends and without
// their content. To read and send the entries of a busy log costs more than to log all of its calls.
func (s *stream) changes(after uint64) error {
	q := s.q
	return q.follow(s, after, func(l chain.Leaf) (bool, error) {
		if l.Index <= after {
			return true, nil // an earlier line covers this append
		}
		if mine, err := s.sees(l); err != nil || !mine {
			return true, err
		}
		after = max(l.Index, q.d.db.Cursor()) // in a database: the newest that this process knows of
		if err := s.line(wire.LogLine{Cursor: strconv.FormatUint(after, 10)}); err != nil {
			return false, err
		}
		select { // one line covers all appends that are made during this pause
		case <-time.After(changesEvery):
		case <-q.d.drain:
		case <-q.r.Context().Done():
		}
		return true, nil
	})
}

// sees says whether an append is the peer's to see.
func (s *stream) sees(l chain.Leaf) (bool, error) {
	if l.Entries == 0 && l.Notes == 0 && !s.q.peer.all() {
		return false, nil // the append is no trace's, but a working state's or a turn's, for example
	}
	return mine(s.q, l.TraceID)
}

// logLine is the line of one append, nil if the peer may not see it.
func (s *stream) logLine(l chain.Leaf) (*wire.LogLine, error) {
	if mine, err := s.sees(l); err != nil || !mine {
		return nil, err
	}
	m, err := logLine(s.q.r.Context(), s.q.d.db, l)
	return &m, err
}

// logLine reads one append and makes its line.
func logLine(ctx context.Context, db Store, l chain.Leaf) (wire.LogLine, error) {
	a := Added{Leaf: l}
	if l.Entries > 0 {
		for e, err := range db.Entries(ctx, l.TraceID, l.FirstSeq-1) {
			if err != nil {
				return wire.LogLine{}, err
			}
			if e.Seq >= l.FirstSeq+uint64(l.Entries) {
				break
			}
			a.Entries = append(a.Entries, e)
		}
	}
	if l.Notes > 0 {
		for n, err := range db.Notes(ctx, l.TraceID, l.FirstNote-1) {
			if err != nil {
				return wire.LogLine{}, err
			}
			if n.Number >= l.FirstNote+uint32(l.Notes) {
				break
			}
			a.Notes = append(a.Notes, n)
		}
	}
	return a.line(), nil
}

// line is the line of /v1/log for an append.
func (a *Added) line() wire.LogLine {
	m := wire.LogLine{Cursor: strconv.FormatUint(a.Leaf.Index, 10), TraceID: a.Leaf.TraceID}
	for i := range a.Entries {
		m.Entries = append(m.Entries, story.Said(&a.Entries[i]))
	}
	for i := range a.Notes {
		m.Notes = append(m.Notes, a.Notes[i].AppendCanonical(nil))
	}
	return m
}

// takeFollower takes a place of a stream, until leave is called.
func (q *request) takeFollower() (leave func(), err error) {
	if err := q.d.followers.take("", "streams"); err != nil {
		return nil, err
	}
	stop := endWithDrain(q)
	return func() { stop(); q.d.followers.leave("") }, nil
}

// errStreamStops ends a stream that is not complete, because the daemon drains.
var errStreamStops = tga.Errorf(tga.StoreUnavailable, "the daemon stops before the end of the answer")

// follow calls each with the leaves after a cursor until each returns false, the client is gone
// or the daemon drains. If s is not nil, it sends signs of life on it.
func (q *request) follow(s *stream, after uint64, each func(chain.Leaf) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(q.r.Context())
	type step struct {
		leaf chain.Leaf
		err  error
	}
	steps, gone := make(chan step), make(chan struct{})
	// The store blocks between appends, and the stream needs signs of life meanwhile.
	go func() {
		defer close(gone)
		for leaf, err := range q.d.db.Follow(ctx, after) {
			select {
			case steps <- step{leaf, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-gone
	}()
	if s != nil {
		// The header goes out now: from when it has it, the client knows that it will see what is appended.
		if err := s.control.Flush(); err != nil {
			return errors.Join(errNobodyWaits, err)
		}
	}
	life := time.NewTicker(signOfLife)
	defer life.Stop()
	changed := q.d.reloads.rolesChange()
	if err := q.stillSees(); err != nil {
		return err
	}
	for {
		select {
		case <-changed:
			changed = q.d.reloads.rolesChange()
			if err := q.stillSees(); err != nil {
				return err
			}
		case st := <-steps:
			if st.err != nil {
				return st.err
			}
			if more, err := each(st.leaf); err != nil || !more {
				return err
			}
		case <-life.C:
			if s == nil {
				continue
			}
			if err := s.line(nil); err != nil {
				return err
			}
		case <-q.d.drain:
			return errStreamStops
		case <-q.r.Context().Done():
			return errNobodyWaits
		}
	}
}
