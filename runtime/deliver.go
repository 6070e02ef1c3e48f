package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// There are two ways to note that an answer was delivered. [Runtime.Delivered] costs an append
// and its sync. The begin of the caller's next call ([BeginRequest.Delivered]) writes the note in
// the append that it makes anyway. Until the note is durable, an identical call counts as a
// repeat. So if a crash takes the note away, a call is served that should run, but nothing is
// sent twice.

// MaxDelivered bounds the deliveries that one Begin notes.
const MaxDelivered = 64

// deliveries notes which answers have reached their callers.
type deliveries struct {
	store   Store
	lists   *listLocks // a note changes a list that a Begin may be changing too
	traces  *traces
	keys    *derivedKeys
	repeats *repeats
}

// Delivered says that the whole answer of a trace reached its caller, for a trace whose caller
// gave no key. From now on an identical call is a new call; without Delivered, as after a
// crash, it may count as a repeat of this one. For any other trace Delivered does nothing.
// STATE_INVALID_TRANSITION if the trace is not terminal.
func (rt *Runtime) Delivered(ctx context.Context, trace tga.ID) error {
	return rt.deliveries.note(ctx, trace)
}

func (d *deliveries) note(ctx context.Context, trace tga.ID) error {
	t, err := d.store.Load(ctx, trace)
	if err != nil {
		return err
	}
	if byModel(t) {
		return nil // a model settled it: only a person can let the same call run again
	}
	if t.Request != nil && t.Request.Meta.String(tga.MetaIdentity) != "" {
		return d.strikeOut(InNamespace(ctx, t.Namespace), trace, t.Request.Meta.String(tga.MetaIdentity))
	}
	l, err := d.traces.resume(ctx, trace)
	if err != nil {
		return err
	}
	defer d.store.Release(l.lease)
	base := l.request.Meta.String(tga.MetaDerivedKey)
	number, ok := l.request.Meta[tga.MetaOccurrence].(tga.Number)
	if base == "" || !ok {
		return nil
	}
	if !l.state.Terminal() {
		return tga.Errorf(tga.StateInvalidTransition, "trace is %s: there is no answer to deliver", l.state).In(trace)
	}
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return tga.Errorf(tga.StateRecoveryFailed, "meta.occurrence %q: %w", number, err).In(trace)
	}
	server := l.request.Request.Proposal.ToolServer
	now, err := d.keys.occurrence(ctx, l.namespace, server, base)
	if err != nil || now > n {
		return err
	}
	value := binary.BigEndian.AppendUint64(nil, n+1)
	return l.append(ctx, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.OccurrenceKey(l.namespace, server, base), Value: value}}})
}

// strikeOut removes a call from the list of its identity.
func (d *deliveries) strikeOut(ctx context.Context, trace tga.ID, name string) error {
	lock, err := d.lists.lock(ctx, name)
	if err != nil {
		return tga.Errorf(tga.StateLockAcquireFailed, "an identical call is being begun: %w", err).In(trace)
	}
	defer lock.release()
	l, err := d.traces.resume(ctx, trace)
	if err != nil {
		return err
	}
	defer d.store.Release(l.lease)
	if !l.state.Terminal() {
		return tga.Errorf(tga.StateInvalidTransition, "trace is %s: there is no answer to deliver", l.state).In(trace)
	}
	row, err := d.repeats.strike(ctx, name, []tga.ID{trace})
	if err != nil || row == nil {
		return err
	}
	return d.repeats.write(ctx, l, row[0].Key, row, lock.lease)
}

// without removes some traces from a list, and reports whether one of them was in it.
func without(list []undelivered, traces []tga.ID) (rest []undelivered, found bool) {
	n := len(list)
	rest = slices.DeleteFunc(list, func(u undelivered) bool { return slices.Contains(traces, u.Trace) })
	return rest, len(rest) < n
}

// carried are the delivery notes of a Begin: rows that commit with the request of its
// call, and the locks of the identities that they are about.
type carried struct {
	rows    []chain.Attachment
	mine    chain.Lease // of the list of the Begin's own call, see [listLock]
	release func()
}

// carry prepares the delivery notes of a Begin. It takes the locks of the identities that they
// are about, and of mine, the identity of the Begin's own call, if it has one. All Begins take
// the locks in the same order, so two Begins that note each other's identity cannot deadlock.
func (d *deliveries) carry(ctx context.Context, req *BeginRequest, mine string) (c carried, err error) {
	if len(req.Delivered) == 0 && mine == "" {
		return carried{release: func() {}}, nil
	}
	struck := map[string][]tga.ID{}
	for _, id := range req.Delivered {
		t, err := d.store.Load(ctx, id)
		if err != nil {
			return c, err
		}
		if t.Request == nil {
			continue // it was erased since check looked: which list it is in is not known any more
		}
		if name := t.Request.Meta.String(tga.MetaIdentity); name != "" {
			struck[name] = append(struck[name], id)
		}
	}
	names := struck
	if mine != "" {
		names = maps.Clone(struck)
		names[mine] = nil
		delete(struck, mine) // [repeats.identify] reads and writes this list
	}
	locks, release, err := d.lists.lockAll(ctx, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return c, tga.Errorf(tga.IdempotencyKeyInFlight, "an identical call is being begun: %w", err)
	}
	c.release, c.mine = release, locks[mine].lease
	for name, traces := range struck {
		row, err := d.repeats.strike(ctx, name, traces)
		if err != nil {
			c.release()
			return c, err
		}
		c.rows = append(c.rows, row...)
	}
	return c, nil
}

// check refuses traces whose answers cannot have been delivered, and leaves in req those that must be
// noted. A trace of another namespace is NOT_FOUND, with the message for a trace that does not exist.
// So is an erased trace, because it has no namespace.
func (d *deliveries) check(ctx context.Context, req *BeginRequest) error {
	if n := len(req.Delivered); n > MaxDelivered {
		return tga.Errorf(tga.ValidationError, "it has %d traces, over %d", n, MaxDelivered).At("/delivered")
	}
	var noted []tga.ID
	for _, id := range req.Delivered {
		t, err := d.store.Load(ctx, id)
		switch {
		case err == nil && t.Namespace != firstOf(req.Namespace, tga.DefaultNamespace):
			err = tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
		case err == nil && !t.Head.State.Terminal():
			err = tga.Errorf(tga.StateInvalidTransition, "trace is %s: there is no answer to deliver", t.Head.State).In(id)
		}
		if err != nil {
			return err
		}
		if !byModel(t) { // see Delivered
			noted = append(noted, id)
		}
	}
	req.Delivered = noted
	return nil
}

// noteAll notes each delivery that is not noted yet, in an append of its own.
func (d *deliveries) noteAll(ctx context.Context, traces []tga.ID) error {
	var errs []error
	for _, id := range traces {
		errs = append(errs, d.note(ctx, id))
	}
	return errors.Join(errs...)
}
