package monitor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/sends"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Source is a store as seen from outside. An error with one of the codes of [accuses] means that the
// store itself reports a loss or a change. Any other error means that it did not answer.
type Source interface {
	// Checkpoint returns the newest signed checkpoint, and the hand-overs to the key that signed
	// it. NOT_FOUND: none was signed yet.
	Checkpoint(ctx context.Context) (raw []byte, handOvers [][]byte, err error)
	// Evidence writes an evidence file of at most most appends after an index. If old is not nil, the
	// file proves that the tree grew from that checkpoint. If Evidence returns nil, the file is whole.
	Evidence(ctx context.Context, w io.Writer, after, most int64, old []byte) error
	// Tile returns a tile of the tree by its path in C2SP tlog-tiles.
	Tile(ctx context.Context, path string) ([]byte, error)
}

// Options say what a monitor trusts, and where its state is.
type Options struct {
	Key       string // the store's public key, which you got from its operator, not from the store
	Origin    string // "" is the name of the key
	Witnesses []note.Verifier
	Cosigned  int    // how many of them must have signed; fewer are logged
	State     string // path of the file
	// Others are places that have checkpoints which the store showed to others: the store's own
	// places, or files of other monitors. If the store showed them another tree, a checkpoint there
	// proves it.
	Others []checkpoint.Target
	// Attested is what the operator attests of the tools, for the check of sends.
	Attested sends.Attested
	Page     int64 // appends that are checked at once, at most; 4096
	Logger   *slog.Logger
}

// Alarm is an error that a person must look at.
type Alarm struct {
	Kind string // rollback, fork, key, evidence or send
	Code tga.Code
	Text string
	// Had is the signed checkpoint that was remembered, and Shown the one that contradicts it; nil
	// if there is none.
	Had, Shown []byte
}

// The kinds of alarm.
const (
	Rollback = "rollback" // the store has fewer appends than it had
	Fork     = "fork"     // the store has other appends than it had
	Key      = "key"      // no trusted key signed what the store shows
	Send     = "send"     // a call was sent against the rules, for example again without a licence
	Evidence = "evidence" // an append breaks a rule, or its proof does not hold
)

func (a *Alarm) Error() string { return a.Unwrap().Error() }

// Unwrap returns the error that has the alarm's code.
func (a *Alarm) Unwrap() error { return tga.Errorf(a.Code, "%s: %s", a.Kind, a.Text) }

// accuses says whether the store reports with this code that it lost or changed something.
func accuses(code tga.Code) bool {
	return code == tga.StateChecksumMismatch || code == tga.StateSequenceGap
}

// Monitor follows one store. One goroutine uses it.
type Monitor struct {
	opts  Options
	from  Source
	log   *slog.Logger
	lock  io.Closer
	state state

	most    int64       // appends of the next page; it is halved after a page that failed
	book    *sends.Book // of the checked appends; nil if it must be read again
	keysEnd int64       // length of the file of keys
}

// Open reads the state of a monitor, and locks it: of two processes, the slower one could replace
// what the other had seen by something older. If there is an [Alarm] whose file nobody removed, Open
// returns it. STATE_LOCK_ACQUIRE_FAILED: another process has the state.
func Open(from Source, o Options) (*Monitor, error) {
	if o.Page <= 0 {
		o.Page = 4096
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	m := &Monitor{opts: o, from: from, log: o.Logger, most: o.Page}
	k, err := m.keys()
	if err != nil {
		return nil, err
	}
	at, err := access.Target(o.State) // by each of its names the state has one lock
	var lock io.Closer
	if err == nil {
		lock, err = filelock.Lock(at + ".lock")
	}
	if errors.Is(err, filelock.ErrHeld) {
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "monitor %s: %w", o.State, err)
	}
	if err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "monitor %s: %w", o.State, err)
	}
	m.lock = lock
	if m.state, err = readState(o.State, k.Origin()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return m, nil
}

// Close releases the lock of the state.
func (m *Monitor) Close() error { return m.lock.Close() }

// keys returns the trust in the key of the options, without hand-overs.
func (m *Monitor) keys() (*checkpoint.Keys, error) {
	return checkpoint.TrustKeys(m.opts.Origin, m.opts.Key, m.opts.Witnesses...)
}

// Seen returns how many appends the remembered checkpoint has, and how many of them were checked.
func (m *Monitor) Seen() (size, checked int64) { return m.state.size, m.state.Checked }

// stepTime limits a step, so that a store which takes a request and never answers is asked again, for a shorter page. Tests
// set another value.
var stepTime = 30 * time.Minute

// Step asks the store once and checks at most one page. more says that there is another page. Step
// writes an [Alarm] to its file before it returns it. Any other error means that the store or a
// place could not be asked.
func (m *Monitor) Step(ctx context.Context) (more bool, err error) {
	asking, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	more, err = m.step(asking)
	var a *Alarm
	if errors.As(err, &a) {
		return false, errors.Join(a, writeAlarm(m.opts.State, a))
	}
	return more, err
}

func (m *Monitor) step(ctx context.Context) (more bool, err error) {
	raw, over, err := m.from.Checkpoint(ctx)
	if tga.CodeOf(err) == tga.NotFound && m.state.size == 0 {
		return false, nil
	}
	if tga.CodeOf(err) == tga.NotFound {
		return false, m.contradicted(Rollback, nil, "the store has no checkpoint any more, it had one of %d appends", m.state.size)
	}
	if err != nil {
		return false, m.answer(err)
	}
	keys, now, err := m.open(raw, over)
	if err != nil {
		return false, err
	}
	switch {
	case now.Size < m.state.size:
		return false, m.contradicted(Rollback, raw, "the store has %d appends, it had %d", now.Size, m.state.size)
	case now.Size == m.state.size && m.state.size > 0 && now.Head != m.state.head:
		return false, m.contradicted(Fork, raw, "the tree of %d appends has head %v, it had %v", now.Size, now.Head, m.state.head)
	case m.state.Checked < now.Size:
		if err := m.page(ctx); err != nil {
			return false, err
		}
	}
	if more = m.state.Checked < m.state.size; more {
		return true, nil
	}
	return false, m.gossip(ctx, keys)
}

// open checks the signatures of a checkpoint.
func (m *Monitor) open(raw []byte, over [][]byte) (*checkpoint.Keys, checkpoint.Checkpoint, error) {
	keys, err := m.keys()
	if err != nil {
		return nil, checkpoint.Checkpoint{}, err
	}
	for _, o := range over {
		// Ignore a hand-over that an untrusted key signed: it may lead to the key of the options.
		if _, err := keys.Follow(o); err != nil && tga.CodeOf(err) != tga.PermissionDenied {
			return nil, checkpoint.Checkpoint{}, m.contradicted(Key, raw, "a hand-over of keys: %s", words(err))
		}
	}
	c, cosigned, err := keys.Open(raw)
	if err != nil {
		return nil, c, m.contradicted(Key, raw, "the checkpoint: %s", words(err))
	}
	if len(cosigned) < m.opts.Cosigned {
		m.log.Warn("a checkpoint lacks signatures of witnesses", "appends", c.Size, "has", len(cosigned), "wants", m.opts.Cosigned)
	}
	return keys, c, nil
}

// page checks the next appends, and remembers the checkpoint that covers them.
func (m *Monitor) page(ctx context.Context) error {
	if err := m.openBook(); err != nil {
		return err
	}
	r, appends, err := m.ask(ctx, m.state.Checked, m.most, m.state.raw())
	for errors.Is(err, errTooLong) && m.most > 1 {
		m.most /= 2
		r, appends, err = m.ask(ctx, m.state.Checked, m.most, m.state.raw())
	}
	if err != nil {
		// A store that is killed again and again never completes a long page. Ask for ever shorter
		// ones, until it completes one.
		m.most = max(m.most/2, 1)
		return err
	}
	m.most = min(2*m.most, m.opts.Page)
	// The book is ahead of the state until the state is written. After an error, read it again.
	book := m.book
	m.book = nil
	first, last := int64(r.From), int64(r.To)
	if first != m.state.Checked+1 || last < first || last > r.Checkpoint.Size {
		return m.contradicted(Evidence, nil, "the evidence has appends %d to %d, asked was for those behind %d", first, last, m.state.Checked)
	}
	next := state{Origin: m.state.Origin, Checkpoint: string(r.Note), Checked: last, size: r.Checkpoint.Size, head: r.Checkpoint.Head}
	for _, a := range appends {
		if err := book.Take(a.leaf, a.trace); err != nil {
			return &Alarm{Send, tga.CodeOf(err), words(err), m.state.raw(), r.Note}
		}
	}
	end, err := addKeys(m.opts.State, m.keysEnd, last, book)
	if err == nil {
		err = next.write(m.opts.State)
	}
	if err != nil {
		return err
	}
	m.state, m.book, m.keysEnd = next, book, end
	return nil
}

// openBook reads what is known of each key. Where that does not reach as far as the state, all is
// checked again, from the first append on: a key that is not known would be taken as unused.
func (m *Monitor) openBook() error {
	if m.book != nil {
		return nil
	}
	book, end, ok, err := readKeys(m.opts.State, m.opts.Attested, m.state.Checked)
	if err != nil {
		return err
	}
	if !ok {
		m.log.Info("every append is checked again: what is known of the idempotency keys is not there, or damaged", "file", keysName(m.opts.State))
		m.state.Checked = 0
	}
	m.book, m.keysEnd = book, end
	return nil
}

// appended is an append, and its trace as it is by now.
type appended struct {
	leaf  *tree.Leaf
	trace *chain.Trace
}

// mostEvidence limits an evidence file in bytes, because the store is not trusted and the file is in memory. The file of
// one append has one trace, of which an export has at most 256 MiB, and lines about the tree. Tests set another value.
var mostEvidence = 384 << 20

// errTooLong says that an evidence file is over mostEvidence.
var errTooLong = tga.Errorf(tga.LimitExceeded, "the evidence of a page is too long")

// evidence is an evidence file in memory.
type evidence struct{ file bytes.Buffer }

// Write takes what fits.
func (e *evidence) Write(b []byte) (int, error) {
	if e.file.Len()+len(b) > mostEvidence {
		return 0, errTooLong
	}
	return e.file.Write(b)
}

// ask gets an evidence file and verifies it.
func (m *Monitor) ask(ctx context.Context, after, most int64, old []byte) (r *bundle.Report, appends []appended, err error) {
	var got evidence
	if err := m.from.Evidence(ctx, &got, after, most, old); err != nil {
		return nil, nil, m.answer(err)
	}
	r, err = bundle.Verify(&got.file, bundle.Trust{Key: m.opts.Key, Witnesses: m.opts.Witnesses, Old: old, Append: func(l *tree.Leaf, t *chain.Trace) {
		appends = append(appends, appended{l, t})
	}})
	if err == nil {
		return r, appends, nil
	}
	return nil, nil, &Alarm{m.kind(err, r), tga.CodeOf(err), words(err), m.state.raw(), r.Note}
}

// kind is the kind of an alarm about evidence: Fork if it did not grow from the remembered checkpoint,
// Key if no trusted key signed it, and Evidence if it is wrong in itself.
func (m *Monitor) kind(err error, r *bundle.Report) string {
	switch {
	case tga.CodeOf(err) == tga.PermissionDenied:
		return Key
	case m.state.size > 0 && r.GrewFrom == 0 && accuses(tga.CodeOf(err)) && r.Checkpoint.Size > 0:
		return Fork
	}
	return Evidence
}

// answer makes an alarm of an error with which the store itself reports a loss. It returns any
// other error as it is.
func (m *Monitor) answer(err error) error {
	if accuses(tga.CodeOf(err)) {
		return &Alarm{Fork, tga.CodeOf(err), "the store says so itself: " + words(err), m.state.raw(), nil}
	}
	return err
}

// gossip compares the remembered checkpoint with those that the store showed to others.
func (m *Monitor) gossip(ctx context.Context, keys *checkpoint.Keys) error {
	var errs []error
	for _, place := range m.opts.Others {
		raw, err := place.Newest(ctx, nil, nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", place.Name(), err))
			continue
		}
		if raw == nil {
			continue
		}
		if err := m.agrees(ctx, keys, place.Name(), raw); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// agrees checks that a checkpoint which the store showed to somebody else is of the remembered tree.
func (m *Monitor) agrees(ctx context.Context, keys *checkpoint.Keys, from string, raw []byte) error {
	other, _, err := keys.Open(raw)
	if err != nil {
		// Anybody may write to such a place, so only what the store signed can be an alarm.
		return fmt.Errorf("%s: %w", from, err)
	}
	switch {
	case other.Size == 0:
		return nil
	case other.Size > m.state.size:
		return m.has(ctx, from, other.Size, raw)
	case other.Size == m.state.size && other.Head == m.state.head:
		return nil
	case other.Size == m.state.size:
		return m.contradicted(Fork, raw, "%s was shown another tree of %d appends, with head %v", from, other.Size, other.Head)
	}
	head, err := m.headOf(ctx, other.Size)
	if err == nil && head != other.Head {
		return m.contradicted(Fork, raw, "%s was shown another tree of %d appends, with head %v: in the tree that was remembered it has head %v", from, other.Size, other.Head, head)
	}
	return err
}

// has checks that the store still has as many appends as it showed to somebody else. It keeps a
// checkpoint before it shows it to anybody, so now it has that one or a newer one. The next step checks
// what those appends are.
func (m *Monitor) has(ctx context.Context, from string, size int64, raw []byte) error {
	now, over, err := m.from.Checkpoint(ctx)
	if err != nil {
		return m.answer(err)
	}
	_, c, err := m.open(now, over)
	if err == nil && c.Size < size {
		return m.contradicted(Rollback, raw, "the store has %d appends, and %s was shown %d", c.Size, from, size)
	}
	return err
}

// words is the message of an error without its code, which the alarm has already.
func words(err error) string {
	var e *tga.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

func (m *Monitor) contradicted(kind string, shown []byte, format string, args ...any) error {
	code := tga.StateChecksumMismatch
	switch kind {
	case Rollback:
		code = tga.StateSequenceGap
	case Key:
		code = tga.PermissionDenied
	}
	return &Alarm{kind, code, fmt.Sprintf(format, args...), m.state.raw(), shown}
}
