package runtime

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Permit is the secret that lets a remote executor finish the attempt it was given.
// It is derived from the store's secret, so a repeated Begin returns the same permit,
// also after a restart. The log holds only its digest.
type Permit [16]byte

// String returns 32 lowercase hex digits.
func (p Permit) String() string { return hex.EncodeToString(p[:]) }

// ParsePermit reads 32 lowercase hex digits.
func ParsePermit(s string) (Permit, error) {
	var p Permit
	if b, err := hex.DecodeString(s); err != nil || len(b) != len(p) || hex.EncodeToString(b) != s {
		return Permit{}, tga.Errorf(tga.ValidationError, "a permit is 32 lowercase hex digits")
	} else {
		copy(p[:], b)
	}
	return p, nil
}

func (p Permit) digest() tga.Digest { return tga.Sum(p[:]) }

// permit derives the permit of an attempt. The submitter goes into it, because the begin id alone
// is no secret: it is in the log, where everybody in the namespace can read it.
func (e *executors) permit(trace tga.ID, attempt uint32, r *remote) Permit {
	secret := e.store.Secret()
	mac := hmac.New(sha256.New, secret[:])
	// Members of fixed width and a length come before the free text, so that no two different
	// inputs give the same bytes.
	in := make([]byte, 0, 128)
	in = append(append(in, "tgad permit v2\x00"...), trace[:]...)
	in = binary.BigEndian.AppendUint32(in, attempt)
	in = binary.BigEndian.AppendUint32(in, uint32(len(r.submitter)))
	in = append(append(in, r.submitter...), r.beginID...)
	mac.Write(in)
	return Permit(mac.Sum(in[:0])[:len(Permit{})])
}

// issued is one attempt that was given to a remote executor.
type issued struct {
	attempt uint32
	beginID string
	digest  tga.Digest
	notSent bool
	last    bool // no later attempt was marked
}

// permitsOf lists the permits that a trace's log names, oldest first.
func permitsOf(t *chain.Trace) []issued {
	var all []issued
	if t.Call.Meta.String(tga.MetaAttempt) == tga.AttemptExternal {
		if d, err := tga.ParseDigest(t.Call.Meta.String(tga.MetaPermitDigest)); err == nil {
			all = append(all, issued{attempt: 1, beginID: t.Call.Meta.String(tga.MetaBeginID), digest: d})
		}
	}
	var newest uint32 = 1
	for i := range t.Notes {
		// The store parsed the bodies of these two kinds of notes before it accepted them, so
		// a body that does not parse names no permit.
		switch n := &t.Notes[i]; n.Kind {
		case tga.NoteAttempt:
			if m, err := ledger.ParseMark(n.Body); err == nil {
				newest = max(newest, m.Attempt)
				if !m.Permit.IsZero() {
					all = append(all, issued{attempt: m.Attempt, beginID: m.BeginID, digest: m.Permit})
				}
			}
		case tga.NoteNotSent:
			if s, err := ledger.ParseNotSent(n.Body); err == nil {
				for j := range all {
					all[j].notSent = all[j].notSent || all[j].attempt == s.Attempt
				}
			}
		}
	}
	if e := t.Effect; e != nil && ledger.ClassOf(e) == ledger.ClassNotSent {
		for j := range all {
			all[j].notSent = all[j].notSent || e.Meta[tga.MetaAttempt] == attemptNumber(all[j].attempt)
		}
	}
	for j := range all {
		all[j].last = all[j].attempt == newest
	}
	return all
}

// awaitsExecutor reports whether a remote executor is to send the call, and this run is not
// that executor's.
func (l *loop) awaitsExecutor() bool {
	return l.remote == nil && l.request.Meta.String(tga.MetaExecutor) == tga.AttemptExternal
}

// leaveToExecutor leaves an approved call until its executor asks for it, or ends it
// if the deadline has passed.
func (rt *Runtime) leaveToExecutor(ctx context.Context, l *loop) error {
	if rt.clock.pastDeadline(l) {
		return rt.ends.refuse(ctx, l, tga.ToolTimeout, "the deadline passed before the call was sent")
	}
	if err := l.commit(ctx); err != nil {
		return err
	}
	return tga.Errorf(tga.IdempotencyKeyInFlight, "the call waits for the remote executor that began it").In(l.lease.TraceID)
}

// GiveUp says that a remote executor has stopped executing its attempt and does not know the
// outcome, and why, for example because its tool server died. From then on the licence decides
// the answer of the next Begin, although the permit's time is not over. GiveUp permits no send.
// That the attempt was given up is durable when GiveUp returns, so that no restart makes its permit
// fresh again. The cause, if there is one, is kept once, in a note about the newest attempt,
// together with wait: the Retry-After of the tool server, 0 = none.
func (rt *Runtime) GiveUp(ctx context.Context, trace tga.ID, permit Permit, cause string, wait time.Duration) error {
	return rt.finishes.giveUp(ctx, trace, permit, cause, wait)
}

func (fs *finishes) giveUp(ctx context.Context, trace tga.ID, permit Permit, cause string, wait time.Duration) error {
	l, p, err := fs.withPermit(ctx, trace, permit)
	if err != nil {
		return err
	}
	defer fs.store.Release(l.lease)
	if !p.last || l.state.Terminal() {
		return nil
	}
	l.attachments = append(l.attachments, l.executorRow(p.attempt, ""))
	if (cause != "" || wait > 0) && l.doubtBefore == "" {
		cause = fs.redact.words(l.sentCall(p.attempt), cause)
		fs.doubts.add(l, p.attempt, errors.New("its executor says: "+firstOf(cause, "ask later")), tga.BoundRetryAfter(wait))
	}
	return l.commit(context.WithoutCancel(ctx))
}
