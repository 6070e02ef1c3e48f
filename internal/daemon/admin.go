package daemon

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/aside"
	"github.com/tgad/tgad/internal/backup/bucket"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// operating is a request of an operator. Most concern the store as a whole, and need a peer that
// sees every namespace.
type operating struct{ *request }

// recoverAll recovers every open trace of the store that no live process is executing.
func (q operating) recoverAll() (any, error) {
	if err := q.decode(&struct{}{}); err != nil {
		return nil, err
	}
	if err := q.everything("recover all"); err != nil {
		return nil, err
	}
	all, err := run(q.request, "", func(ctx context.Context) ([]runtime.Recovered, error) {
		return q.d.rt.RecoverAll(ctx, q.d.conf().Limits.RecoverWidth)
	})
	if err != nil {
		return nil, err
	}
	m := wire.Recovered{Traces: []wire.RecoveredTrace{}}
	for _, r := range all {
		t := wire.RecoveredTrace{OpenTrace: classified(r.Classified), Call: q.callOf(r.Result)}
		if r.Err != nil {
			p := problemOf(r.Err)
			t.Problem = &p
		}
		m.Traces = append(m.Traces, t)
	}
	return m, nil
}

// everything refuses a request about the whole store unless the peer has the verb admin in every
// namespace.
func (q operating) everything(what string) error {
	if !q.peer.role.Has(config.Admin) || !q.peer.all() {
		return tga.Errorf(tga.PermissionDenied, "%s may not %s: it takes the verb %s in every namespace", q.peer.name(), what, config.Admin)
	}
	return nil
}

// verify checks one trace by replaying its log from disk, or the whole store.
func (q operating) verify() (any, error) {
	var m wire.VerifyRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if m.TraceID.IsZero() {
		if err := q.everything("verify the store"); err != nil {
			return nil, err
		}
		return q.verifyStore()
	}
	// The namespace of a damaged trace cannot be trusted. A peer that sees every namespace is
	// told its faults, and another peer only that it is damaged.
	if _, err := q.trace(m.TraceID); err != nil && !(q.peer.all() && tga.CodeOf(err) == tga.StateRecoveryFailed) {
		return nil, err
	}
	ctx := q.r.Context()
	v := wire.Verified{Traces: 1, Faults: []wire.Problem{}}
	// Read the notes before the entries: an append between the two reads could otherwise add a note
	// that names an entry which was not read.
	var notes []note
	for n, err := range q.d.db.Notes(ctx, m.TraceID, 0) {
		notes = append(notes, note{n, err})
	}
	t, err := chain.Replay(m.TraceID, q.d.db.Entries(ctx, m.TraceID, 0), func(yield func(tga.Note, error) bool) {
		for _, n := range notes {
			if !yield(n.Note, n.err) {
				return
			}
		}
	})
	switch {
	case tga.CodeOf(err) == tga.StoreUnavailable || ctx.Err() != nil:
		return nil, err
	case err != nil:
		v.Faults = append(v.Faults, problemOf(err))
	default:
		v.OK, v.Entries, v.Notes = true, len(t.Entries), len(t.Notes)
	}
	return v, nil
}

// note is a note as a store yields it.
type note struct {
	tga.Note
	err error
}

func (q operating) verifyStore() (any, error) {
	rep, err := q.d.db.Check(q.r.Context())
	if err != nil {
		return nil, err
	}
	v := wire.Verified{OK: len(rep.Problems) == 0, Traces: rep.Traces, Entries: rep.Entries, Notes: rep.Notes, Unread: rep.Unread, Faults: []wire.Problem{}}
	for _, found := range rep.Problems {
		p := problemOf(found.Err)
		if p.TraceID.IsZero() {
			p.TraceID = found.TraceID
		}
		v.Faults = append(v.Faults, p)
	}
	// Offline verification reports the same about the same store.
	if s := q.d.db.Stats(); s.Restored {
		v.Frozen = s.Frozen
	} else if s.Frozen != "" {
		v.OK = false
		v.Faults = append(v.Faults, problemOf(lost(s)))
	}
	return v, nil
}

// lost is the error of a store that lacks appends which were acknowledged.
func lost(s engine.Stats) error {
	return tga.Errorf(tga.StateChecksumMismatch, "the store is frozen: %s", s.Frozen)
}

// working lists the long operations that are under way, with their progress.
func (q operating) working() (any, error) {
	if err := q.everything("see how far work on the store is"); err != nil {
		return nil, err
	}
	m := wire.Working{Work: []wire.Work{}}
	if q.d.can.archive == nil {
		return m, nil
	}
	for _, w := range q.d.can.archive.Working() {
		m.Work = append(m.Work, wire.Work{What: w.What, Since: tga.MillisOf(w.Since), Traces: w.Traces, Entries: w.Entries})
	}
	return m, nil
}

// backup copies the store into a directory of the daemon's file system, or into a bucket. If the
// client disconnects, the backup is stopped: a client that interrupts a backup wants none.
func (q operating) backup() (any, error) {
	var m wire.BackupRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if err := q.everything("back the store up"); err != nil {
		return nil, err
	}
	backUp := q.d.can.archive.Backup
	if bucket.Is(m.Dir) && q.d.backups != nil {
		if _, _, err := bucket.Parse(m.Dir); err != nil {
			return nil, err
		}
		backUp = q.d.backups.Once
	} else if !filepath.IsAbs(m.Dir) || filepath.Clean(m.Dir) != m.Dir {
		return nil, tga.Errorf(tga.ValidationError, "dir %.200q: want a clean absolute path, or s3://BUCKET/PREFIX", m.Dir).At("/dir")
	}
	_, err := run(q.request, "", func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(q.r.Context(), cancel)()
		defer cancel()
		return struct{}{}, backUp(ctx, m.Dir)
	})
	return wire.Done{OK: true}, err
}

// seal moves finished traces into segments.
func (q operating) seal() (any, error) {
	var m wire.SealRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if err := q.everything("seal"); err != nil {
		return nil, err
	}
	before := m.Before
	if before == 0 {
		before = tga.MillisOf(q.d.clock()) + 1
	}
	done, err := run(q.request, "", func(ctx context.Context) (wire.Sealed, error) {
		s, err := q.d.can.archive.SealTraces(ctx, before)
		return wire.Sealed{Segments: s.Segments, Traces: s.Traces, Bytes: s.Bytes}, err
	})
	return done, err
}

// erase destroys what finished traces carry. The log names the peer as the one who asked for it.
func (q operating) erase() (any, error) {
	var m wire.EraseRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if err := q.everything("erase"); err != nil {
		return nil, err
	}
	what := engine.Erasure{
		Traces: m.Traces, Turns: m.Turns, Kept: m.Kept, States: m.States, Namespace: m.Namespace, Subject: m.Subject, Who: q.peer.name(), Reason: m.Reason,
	}
	for _, s := range m.Agents {
		what.Agents = append(what.Agents, engine.AgentState(s))
	}
	return run(q.request, "", func(ctx context.Context) (wire.Erased, error) {
		e, err := q.d.can.erases.Erase(ctx, what)
		if err == nil {
			err = aside.Forget(q.d.retaining.data, what.States)
		}
		if err != nil {
			q.d.chores.erasure.owe() // finish the erasure if it was begun
		}
		done := wire.Erased{Traces: e.Traces, Already: e.Already, Keys: e.Keys, Shared: e.Shared, Unsealed: e.Unsealed, Turns: e.Turns, Kept: e.Kept, States: e.States, Left: e.Left}
		for _, u := range e.Unread {
			done.Unread = append(done.Unread, wire.Unread{TraceID: u.TraceID, Code: tga.CodeOf(u.Err), Detail: u.Err.Error()})
		}
		return done, err
	})
}

// relicense lets the current licence alone decide about a call in doubt.
func (q operating) relicense() (any, error) {
	var m wire.RelicenseRequest
	id, namespace, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	done, err := run(q.request, namespace, patient(leaseWait, func(ctx context.Context) (runtime.Relicensed, error) {
		return q.d.rt.Relicense(ctx, id, runtime.Relicensing{Who: q.peer.name(), Reason: m.Reason, DryRun: m.DryRun})
	}))
	c := q.callOf(done.Result)
	if err != nil {
		return nil, callError{err, c}
	}
	return wire.Relicensed{Was: done.Was, Now: done.Now, Next: done.Next, Call: c}, nil
}

// unfreeze lets a frozen store take writes again. The log names the peer as the one who accepted the loss.
func (q operating) unfreeze() (any, error) {
	var m wire.UnfreezeRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	if err := q.everything("unfreeze the store"); err != nil {
		return nil, err
	}
	unfreeze := func() error {
		return q.d.can.frozen.Unfreeze(context.WithoutCancel(q.r.Context()), m.AcceptLoss, q.peer.name())
	}
	accept := func() error {
		if q.d.keeper == nil {
			return nil
		}
		return q.d.keeper.Accept(q.peer.name())
	}
	steps := []func() error{unfreeze, accept} // if the process dies between the two, the next open freezes the store again
	if q.d.can.proving != nil && m.AcceptLoss && q.d.db.Stats().Frozen != "" {
		steps = []func() error{accept, unfreeze} // in the other order, another process could freeze the store again before accept
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return wire.Done{OK: true}, nil
}

func (q operating) endQuarantine() (any, error) {
	if err := q.decode(&struct{}{}); err != nil {
		return nil, err
	}
	if err := q.everything("end the quarantine"); err != nil {
		return nil, err
	}
	if err := q.d.can.frozen.EndQuarantine(context.WithoutCancel(q.r.Context()), q.peer.name()); err != nil {
		return nil, err
	}
	if q.d.can.shared == nil {
		q.d.chores.takeUp.owe() // calls that were suspect until now are recovered, as at a start
	}
	return wire.Done{OK: true}, nil
}

// isLive fails only if a restart could help. A frozen store is live: a restart does not bring back
// what it lost.
func (q *request) isLive() (any, error) {
	if why := q.d.db.Stats().Poisoned; why != "" {
		return nil, tga.Errorf(tga.StoreUnavailable, "the store stopped: %s", why)
	}
	return wire.Health{OK: true}, nil
}

// healthy fails if the store is known to lack acknowledged appends. It does not read the store.
func (q *request) healthy() (any, error) {
	if s := q.d.db.Stats(); s.Frozen != "" && !s.Restored {
		return nil, tga.Errorf(tga.StoreUnavailable, "%w", lost(s))
	}
	return q.isLive()
}

// isReady fails until every open trace is classified, and while the daemon takes no calls.
func (q *request) isReady() (any, error) {
	if q.d.can.shared != nil {
		ctx, cancel := context.WithTimeout(q.r.Context(), readyPatience)
		defer cancel()
		if err := q.d.can.shared.Ready(ctx); err != nil {
			return nil, err
		}
	}
	s := q.d.db.Stats()
	switch {
	case s.Poisoned != "":
		return nil, tga.Errorf(tga.StoreUnavailable, "the store stopped: %s", s.Poisoned)
	case !q.d.ready.Load():
		return nil, tga.Errorf(tga.StoreUnavailable, "the daemon is still looking at the open traces")
	case s.Frozen != "":
		return nil, tga.Errorf(tga.StoreUnavailable, "the store is frozen: %s", s.Frozen)
	}
	if s.FreeKnown && s.FreeBytes < s.LowWater {
		return nil, tga.Errorf(tga.StoreUnavailable, "new calls are refused: %d bytes of the disk are free, the low-water mark is %d", s.FreeBytes, s.LowWater)
	}
	m := wire.Health{OK: true}
	if s.Quarantine != nil {
		m.Detail = "in quarantine since " + s.Quarantine.Since.String()
	} else if s.MissingKeys > 0 {
		m.Detail = "the key ring is an older copy: keys that the store has used are missing: " + strconv.Itoa(s.MissingKeys)
	}
	return m, nil
}

func (q *request) openapi() (any, error) { return exact{"application/yaml", wire.OpenAPI}, nil }
