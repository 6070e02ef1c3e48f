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

// probes asks tool servers about calls in doubt, under a probe licence.
type probes struct {
	store      Store
	licences   *licences
	prober     func(server, tool string) Prober // [Trust.Prober]; nil has none
	clock      times
	mint       *minter
	departures *departures
	executors  *executors
	answers    *answers
	ends       *ends
	doubts     *doubts
	timers     *timers
	counts     *counts
}

// probe asks the tool server about a call in doubt and does what its answer permits: record the
// effect, let the run send the same call again ([loop.cleared]), or leave it in doubt and ask
// later. In each case a note has the question, the answer and its evidence.
func (p *probes) probe(ctx context.Context, l *loop, record *ledger.Record) error {
	var prober Prober
	if f := p.prober; f != nil {
		prober = f(l.call.Call.Call.ToolServer, l.call.Call.Call.ToolName)
	}
	if prober == nil {
		return p.doubts.leave(ctx, l)
	}
	trace, err := p.store.Load(context.WithoutCancel(ctx), l.lease.TraceID)
	if err != nil {
		return err
	}
	gone := p.departures.goneFor(l, trace, record) // at least, when it is asked
	probed := p.ask(ctx, l, prober, record)
	ctx = context.WithoutCancel(ctx) // the answer is evidence, and is kept even if nobody waits

	attempt, newest := record.Attempts.Count, record.Attempts.Newest
	fenced := probed.Fenced && (!record.Attempts.External || l.remote != nil) ||
		p.licences.fenced(l, record, newest, newest+tga.Millis(gone.Milliseconds()))
	d := ledger.DecideProbe(record, probed.Answer, fenced)
	if d.Action == ledger.Resend && (l.resends >= l.policy.Resends || p.clock.restsFor(l.rests, l.restsSince) > l.policy.SendTimeout) {
		d = ledger.Decision{Action: ledger.Doubt}
	}
	body, detail := heard(&probed, attempt, fenced)
	if len(detail) > 0 {
		l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachBlob, Key: keyspace.EvidenceKey(tga.Sum(detail), l.lease.TraceID), Value: detail})
	}
	switch d.Action {
	case ledger.RecordEffect:
		return p.recordEffect(l, attempt, &probed, body, detail)
	case ledger.Resend:
		l.cleared = attempt
		l.resends++
		return p.note(l, body) // it commits with the mark
	}
	return p.askLater(ctx, l, trace, body)
}

// heard returns the body of the note about a question, and the part of the server's evidence that
// is kept. The note and the effect have the same part.
func heard(probed *Probed, attempt uint32, fenced bool) (body map[string]any, detail []byte) {
	body = map[string]any{"answer": probed.Answer.String(), "attempt": attempt, "fenced": fenced}
	if probed.Evidence.Source != "" {
		body["source"] = clip.Short(probed.Evidence.Source, 500)
	}
	detail = probed.Evidence.Detail[:min(len(probed.Evidence.Detail), maxEvidence)]
	if len(detail) > 0 {
		body["evidence_digest"] = tga.Sum(detail).String()
	}
	return body, detail
}

// recordEffect stages the effect that the call had, as the tool server says.
func (p *probes) recordEffect(l *loop, attempt uint32, probed *Probed, body map[string]any, detail []byte) error {
	w := p.answers.read(l, ByProbe, attempt, probed.Reply)
	if err := MayAppend(Claim{Subject: AnEffect, Writer: ByProbe, Origin: l.sender}); err != nil {
		return err
	}
	w.meta = mergeMeta(w.meta, tga.Meta{tga.MetaResolvedBy: resolvedByProbe})
	if len(detail) > 0 {
		w.documents = append(w.documents, chain.Document{Pointer: tga.PointerEvidence, Data: detail})
	}
	if err := p.note(l, body); err != nil {
		return err
	}
	p.counts.byProbe.Add(1)
	return p.ends.stageAnswer(l, w, w.storable(probed.Reply.Attachments))
}

// askLater leaves the call in doubt, and sets the timer of the next question unless the tool's
// policy allows no more of them.
func (p *probes) askLater(ctx context.Context, l *loop, trace *chain.Trace, body map[string]any) error {
	asks := uint32(1)
	for i := range trace.Notes {
		if trace.Notes[i].Kind == tga.NoteProbe {
			asks++
		}
	}
	if most := l.policy.Probe.Attempts; most == 0 || asks < uint32(most) {
		next, err := p.timers.after(l.policy.Probe, asks)
		if err != nil {
			return err
		}
		body["next"] = next.String()
		if err := l.setTimer(p.clock.now(), next, timer{Kind: timerProbe, Number: asks}); err != nil {
			return err
		}
	} else {
		l.stopTimer()
	}
	if err := p.note(l, body); err != nil {
		return err
	}
	if err := l.commit(ctx); err != nil {
		return err
	}
	return p.doubts.of(l)
}

// ask asks the tool server, unless the caller has given up: then a timer asks later.
func (p *probes) ask(ctx context.Context, l *loop, prober Prober, record *ledger.Record) Probed {
	if ctx.Err() != nil {
		return Probed{}
	}
	p.counts.probes.Add(1)
	ctx, cancel := context.WithTimeout(ctx, l.policy.SendTimeout)
	defer cancel()
	said, err := prober.Probe(ctx, l.dispatchCall(record.Attempts.Count))
	redact, call := p.answers.redact, l.sentCall(record.Attempts.Count)
	if err != nil {
		detail, merr := json.Marshal(map[string]string{"error": clip.Short(redact.words(call, err.Error()), 1000)})
		if merr != nil {
			detail = nil
		}
		said = Probed{Evidence: Evidence{Source: said.Evidence.Source, Detail: detail}}
	}
	said.Evidence = redact.evidence(call, said.Evidence)
	return said
}

func (p *probes) note(l *loop, body map[string]any) error {
	n, err := p.mint.note(tga.NoteProbe, whoRuntime, body)
	if err == nil {
		l.notes = append(l.notes, n)
	}
	return err
}

// goneMark is the time, on the clock of this process, from which the sender of an attempt is
// known to be gone.
type goneMark struct {
	attempt uint32
	since   clock.Reading
}

// departures is what this process remembers about senders that are gone.
type departures struct {
	store Store
	clock times
	born  clock.Reading // when the process began

	// marks is trace id → goneMark. It is a sync.Map because only the holder of a trace's lease
	// writes its key: two runs never race for a key, and no run waits for the key of another.
	marks sync.Map
}

// has reports whether the sender of the newest attempt is known to be gone: its lease is over, or the tool
// was asked about the call since, which happens only after the sender is gone.
func (d *departures) has(trace tga.ID, record *ledger.Record) bool {
	if !d.store.Held(chain.Lease{TraceID: trace, Epoch: chain.Epoch(record.Attempts.Epoch)}) {
		return true
	}
	mark, ok := d.marks.Load(trace)
	return ok && mark.(goneMark).attempt == record.Attempts.Count
}

// forget drops the mark of a trace that has its effect.
func (d *departures) forget(trace tga.ID) { d.marks.Delete(trace) }

// goneFor returns for how long, at least, the newest attempt's sender is known to be gone. For an
// attempt of an earlier process that is since this process began. Otherwise it is since the
// tool was first asked about the call, because it is asked only after the sender is gone. The
// time is the smaller of the wall's and the monotonic clock's. If the wall clock was set in
// between, the count starts again from now: that is later than necessary, and so it is safe.
func (d *departures) goneFor(l *loop, t *chain.Trace, record *ledger.Record) time.Duration {
	now, attempt := d.clock.Read(), record.Attempts.Count
	mark, ok := d.marks.Load(l.lease.TraceID)
	m, _ := mark.(goneMark)
	if !ok || m.attempt != attempt {
		m = goneMark{attempt, now}
		if d.store.Departed(chain.Epoch(record.Attempts.Epoch)) || d.questioned(t, attempt, now) {
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

// questioned reports whether the log has a question about an attempt that is older than this
// process. Another process of the same store may have asked later, and its question says nothing
// about the time before it.
func (d *departures) questioned(t *chain.Trace, attempt uint32, now clock.Reading) bool {
	for i := range t.Notes {
		var b struct {
			Attempt uint32 `json:"attempt"`
		}
		if n := &t.Notes[i]; n.Kind == tga.NoteProbe && json.Unmarshal(n.Body, &b) == nil && b.Attempt == attempt {
			return d.clock.Certain(n.TS.Time()) >= clock.Shortest(d.born, now)
		}
	}
	return false
}

// Evidence returns the evidence of a trace that has a digest; for the zero id, that of any trace.
// It returns nil if there is none. A store of format 2 keeps evidence under its digest alone.
func (rt *Runtime) Evidence(ctx context.Context, digest tga.Digest, trace tga.ID) ([]byte, error) {
	if !trace.IsZero() {
		raw, err := rt.store.Attachment(ctx, chain.AttachBlob, keyspace.EvidenceKey(digest, trace))
		if raw == nil && err == nil {
			raw, err = rt.store.Attachment(ctx, chain.AttachBlob, keyspace.DigestKey(digest))
		}
		return raw, err
	}
	for a, err := range rt.store.Attachments(ctx, chain.AttachBlob, keyspace.EvidencePrefix(digest)) {
		if err != nil || tga.Sum(a.Value) == digest { // a value with another digest is not this evidence
			return a.Value, err
		}
	}
	return nil, nil
}
