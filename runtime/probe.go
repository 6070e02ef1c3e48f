package runtime

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// probe asks the tool server about a call in doubt and does what its answer permits:
// record the effect, send the same call again, or leave it in doubt and ask later. The
// question, the answer and its evidence are a note, whatever comes of it.
func (rt *Runtime) probe(ctx context.Context, l *loop, record *ledger.Record) error {
	var prober Prober
	if f := rt.opts.Trust.Prober; f != nil {
		prober = f(l.call.Call.Call.ToolServer, l.call.Call.Call.ToolName)
	}
	if prober == nil {
		return rt.doubts.leave(ctx, l)
	}
	trace, err := rt.store.Load(context.WithoutCancel(ctx), l.lease.TraceID)
	if err != nil {
		return err
	}
	gone := rt.departures.goneFor(l, trace, record) // at least, when it is asked
	probed := rt.ask(ctx, l, prober, record)
	ctx = context.WithoutCancel(ctx) // what was learnt is evidence

	attempt, newest := record.Attempts.Count, record.Attempts.Newest
	fenced := probed.Fenced && (!record.Attempts.External || l.remote != nil) ||
		l.policy.Licence.FencedByTime(record, newest, newest+tga.Millis(gone.Milliseconds()))
	d := ledger.DecideProbe(record, probed.Answer, fenced)
	if d.Action == ledger.Resend && l.resends >= l.policy.Resends {
		d = ledger.Decision{Action: ledger.Doubt}
	}
	body := map[string]any{"answer": probed.Answer.String(), "attempt": attempt, "fenced": fenced}
	if probed.Evidence.Source != "" {
		body["source"] = clip.Short(probed.Evidence.Source, 500)
	}
	// Of what the server said this much is kept, in the note and with the effect alike.
	detail := probed.Evidence.Detail[:min(len(probed.Evidence.Detail), maxEvidence)]
	if len(detail) > 0 {
		digest := tga.Sum(detail)
		body["evidence_digest"] = digest.String()
		l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachBlob, Key: keyspace.DigestKey(digest), Value: detail})
	}

	switch d.Action {
	case ledger.RecordEffect:
		w := rt.answers.read(l, attempt, probed.Reply)
		if err := MayAppend(Claim{Subject: AnEffect, Writer: ByProbe, Origin: l.sender}); err != nil {
			return err
		}
		w.meta = mergeMeta(w.meta, tga.Meta{tga.MetaResolvedBy: resolvedByProbe})
		if len(detail) > 0 {
			w.documents = append(w.documents, chain.Document{Pointer: tga.PointerEvidence, Data: detail})
		}
		if err := rt.noteProbe(l, body); err != nil {
			return err
		}
		rt.counts.byProbe.Add(1)
		return rt.ends.stageAnswer(l, w, probed.Reply.Attachments)

	case ledger.Resend:
		if err := rt.noteProbe(l, body); err != nil {
			return err
		}
		l.resends++
		l.notes = append(l.notes, rt.executors.mark(l, d.Attempt))
		// As in license: the mark is synced before the send.
		if err := l.commit(ctx); err != nil {
			return err
		}
		rt.counts.resent.Add(1)
		l.attempt = d.Attempt
		return nil
	}
	asks := uint32(1)
	for i := range trace.Notes {
		if trace.Notes[i].Kind == tga.NoteProbe {
			asks++
		}
	}
	if most := l.policy.Probe.Attempts; most == 0 || asks < uint32(most) {
		next, err := rt.timers.after(l.policy.Probe, asks)
		if err != nil {
			return err
		}
		body["next"] = next.String()
		if err := l.setTimer(rt.clock.now(), next, timer{Kind: timerProbe, Number: asks}); err != nil {
			return err
		}
	} else {
		l.stopTimer()
	}
	if err := rt.noteProbe(l, body); err != nil {
		return err
	}
	if err := l.commit(ctx); err != nil {
		return err
	}
	return rt.doubts.of(l)
}

// ask puts the question, unless the caller has given up: then a timer asks later.
func (rt *Runtime) ask(ctx context.Context, l *loop, prober Prober, record *ledger.Record) Probed {
	if ctx.Err() != nil {
		return Probed{}
	}
	rt.counts.probes.Add(1)
	ctx, cancel := context.WithTimeout(ctx, l.policy.SendTimeout)
	defer cancel()
	p, err := prober.Probe(ctx, l.dispatchCall(record.Attempts.Count))
	if err == nil {
		return p
	}
	detail, merr := json.Marshal(map[string]string{"error": clip.Short(err.Error(), 1000)})
	if merr != nil {
		detail = nil
	}
	return Probed{Evidence: Evidence{Source: p.Evidence.Source, Detail: detail}}
}

func (rt *Runtime) noteProbe(l *loop, body map[string]any) error {
	n, err := rt.mint.note(tga.NoteProbe, whoRuntime, body)
	if err == nil {
		l.notes = append(l.notes, n)
	}
	return err
}

// goneMark is the moment of this process from which the sender of an attempt is known to be
// at it no more.
type goneMark struct {
	attempt uint32
	since   clock.Reading
}

// departures is what this process remembers of senders that are gone.
type departures struct {
	clock times
	born  clock.Reading // when the process began

	// marks is trace id → goneMark. It is a sync.Map because only who has the lease of a trace
	// reads and writes its key: two runs never race for one, and none waits for another's.
	marks sync.Map
}

// forget drops what is known of a trace that has its effect.
func (d *departures) forget(trace tga.ID) { d.marks.Delete(trace) }

// goneFor is for how long, at least, the newest attempt's sender is known to be at it no more:
// since this process began, for an attempt of one before it; otherwise since the call was
// first asked about, for then it had been given up. It is counted by the slower of the wall
// and the monotonic clock. A wall clock that was set in between says nothing: then it counts
// anew from now, which is later than it may, and so is safe.
func (d *departures) goneFor(l *loop, t *chain.Trace, record *ledger.Record) time.Duration {
	now, attempt := d.clock.Read(), record.Attempts.Count
	mark, ok := d.marks.Load(l.lease.TraceID)
	m, _ := mark.(goneMark)
	if !ok || m.attempt != attempt {
		m = goneMark{attempt, now}
		if chain.Epoch(record.Attempts.Epoch).Incarnation() < l.lease.Epoch.Incarnation() || questioned(t, attempt) {
			m.since = d.born
		}
	}
	gone := clock.Shortest(m.since, now)
	if gone < d.clock.Since(m.since)-clock.Step {
		m.since, gone = now, 0
	}
	d.marks.Store(l.lease.TraceID, m)
	return gone
}

// questioned says that a question about an attempt is in the log, asked before this process
// remembers.
func questioned(t *chain.Trace, attempt uint32) bool {
	for i := range t.Notes {
		var b struct {
			Attempt uint32 `json:"attempt"`
		}
		if n := &t.Notes[i]; n.Kind == tga.NoteProbe && json.Unmarshal(n.Body, &b) == nil && b.Attempt == attempt {
			return true
		}
	}
	return false
}
