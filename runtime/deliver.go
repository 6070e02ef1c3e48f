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

// That an answer was delivered is noted in one of two ways: by [Runtime.Delivered], which costs
// an append and its sync, or by the begin of the caller's next call ([BeginRequest.Delivered]),
// which takes the note along in the append that it makes anyway. Until it is noted, an identical
// call is taken for a repeat: a note that a crash takes away makes a call be served, and sends
// nothing twice.

// MaxDelivered bounds the deliveries that one Begin notes.
const MaxDelivered = 64

// deliveries notes which answers have reached their callers.
type deliveries struct {
	store   Store
	names   *nameLocks // of identities: a note strikes a list that a Begin may be about to change
	traces  *traces
	keys    *derivedKeys
	repeats *repeats
}

// Delivered says that the answer of a trace without a key of its caller's reached that
// caller whole: an identical call is a new one from now on. Without it, as after a crash,
// it may be a repeat of this one. For any other trace it does nothing.
// STATE_INVALID_TRANSITION where the trace is not terminal.
func (rt *Runtime) Delivered(ctx context.Context, trace tga.ID) error {
	return rt.deliveries.note(ctx, trace)
}

func (d *deliveries) note(ctx context.Context, trace tga.ID) error {
	t, err := d.store.Load(ctx, trace)
	if err != nil {
		return err
	}
	if byModel(t) {
		return nil // only a person makes the same call a new one
	}
	if t.Request != nil && t.Request.Meta.String(tga.MetaIdentity) != "" {
		return d.strikeOut(ctx, trace, t.Request.Meta.String(tga.MetaIdentity))
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

// strikeOut strikes a call out of the list of its identity.
func (d *deliveries) strikeOut(ctx context.Context, trace tga.ID, name string) error {
	release, err := d.names.lock(ctx, name)
	if err != nil {
		return tga.Errorf(tga.StateLockAcquireFailed, "an identical call is being begun: %w", err).In(trace)
	}
	defer release()
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
	return l.append(ctx, chain.Batch{Attachments: row})
}

// without is a list less some traces, and whether one of them was in it.
func without(list []undelivered, traces []tga.ID) (rest []undelivered, found bool) {
	n := len(list)
	rest = slices.DeleteFunc(list, func(u undelivered) bool { return slices.Contains(traces, u.Trace) })
	return rest, len(rest) < n
}

// carried are the notes that a Begin takes along: rows that commit with the request of its
// call, and the locks of the identities that they are about.
type carried struct {
	rows    []chain.Attachment
	release func()
}

// carry prepares the notes of a Begin, and takes the locks of the identities that they are
// about and of mine, the Begin's own where the rule is asked. Everybody takes them in one
// order: two Begins that note each other's identity must not wait for each other.
func (d *deliveries) carry(ctx context.Context, req *BeginRequest, mine string) (c carried, err error) {
	struck := map[string][]tga.ID{}
	for _, id := range req.Delivered {
		t, err := d.store.Load(ctx, id)
		if err != nil {
			return c, err
		}
		if name := t.Request.Meta.String(tga.MetaIdentity); name != "" {
			struck[name] = append(struck[name], id)
		}
	}
	names := struck
	if mine != "" {
		names = maps.Clone(struck)
		names[mine] = nil
		delete(struck, mine) // its list is read and written by the rule
	}
	if c.release, err = d.names.lockAll(ctx, slices.Sorted(maps.Keys(names))); err != nil {
		return c, tga.Errorf(tga.IdempotencyKeyInFlight, "an identical call is being begun: %w", err)
	}
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

// check refuses what a Begin cannot say was delivered, and leaves in it what is to be noted. An answer
// of another namespace is NOT_FOUND, in the words of one that is not there.
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
		case err == nil && t.Request == nil:
			err = tga.Errorf(tga.StateRecoveryFailed, "the request of the trace is not at hand").In(id)
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

// noteAll notes each delivery by an append of its own, where that is still to be done.
func (d *deliveries) noteAll(ctx context.Context, traces []tga.ID) error {
	var errs []error
	for _, id := range traces {
		errs = append(errs, d.note(ctx, id))
	}
	return errors.Join(errs...)
}
