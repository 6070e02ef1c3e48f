package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Pipelined returns a life cycle in which one goroutine keeps appends of several traces
// under way without waiting for each, so that group commit has work. In the first step
// syncs of logs are held, so that the seed decides which appends form a group. In the
// second step they are free.
func Pipelined(licence string) []Step {
	return []Step{
		{"held", func(p *Process, key string) { p.pipeline(licence, key, true) }},
		{"free", func(p *Process, key string) { p.pipeline(licence, key, false) }},
	}
}

// lane is one trace of a pipeline: its batches in the order in which they are submitted.
type lane struct {
	lease   chain.Lease
	trace   tga.ID
	key     string
	batches []chain.Batch
}

// pipeline submits the lanes of a key, one batch of one lane at a time, while a second
// goroutine waits for their tickets. It sends nothing: recovery deals with calls that are
// left without an effect.
func (p *Process) pipeline(licence, key string, held bool) {
	lanes, err := lanesOf(licence, key)
	if err != nil {
		panic(err) // an artifact of this package does not seal
	}
	fresh := true
	for i := range lanes {
		if lanes[i].lease, err = (recorder{p.DB, p.World}).Acquire(context.Background(), lanes[i].trace); err != nil {
			return
		}
		defer p.DB.Release(lanes[i].lease)
		if _, err := p.DB.Load(context.Background(), lanes[i].trace); tga.CodeOf(err) != tga.NotFound {
			fresh = false
		}
	}
	// A batch that was submitted before, or is refused, waits for the sync of the batch
	// before it. If that sync were held, it would be held for ever.
	held = held && fresh
	tickets := make(chan func(), len(lanes)*4)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := range tickets {
			wait()
		}
	}()
	rng := rand.New(rand.NewPCG(p.World.Seed, 11))
	rival := len(lanes) - 1
	p.submitAll(lanes[:rival], rng, held, tickets)
	p.submitAll(lanes[rival:], rng, false, tickets)
	close(tickets)
	<-ended
	for i := range lanes {
		p.DB.Release(lanes[i].lease)
	}
	// The next caller must see what the tickets acknowledged.
	ignore(p.Call(0, Request(Allowed, licence+"."+Answers, key, 5)))
}

// submitAll submits the batches of the lanes in a random order that keeps the order within
// each lane. A lane ends when one of its batches is refused, because the later ones need it.
func (p *Process) submitAll(lanes []lane, rng *rand.Rand, held bool, tickets chan<- func()) {
	release := func() {}
	defer func() { release() }()
	left := append([]lane(nil), lanes...)
	for n := 0; len(left) > 0; n-- {
		i := rng.IntN(len(left))
		l := &left[i]
		b := l.batches[0]
		if a := b.Artifacts; len(a) > 0 && a[0].Artifact.Effect != nil {
			release() // the effect waits for the key, which is locked until its call is on disk
		} else if held && n <= 0 {
			release()
			release, n = p.World.hold(), 1+rng.IntN(9)
		}
		wait, ok := p.submit(l.lease, b)
		if ok {
			tickets <- wait
		}
		if l.batches = l.batches[1:]; !ok || len(l.batches) == 0 {
			left = append(left[:i], left[i+1:]...)
		}
	}
}

// submit is [recorder.Append] without its wait, which it returns as a function.
func (p *Process) submit(l chain.Lease, b chain.Batch) (wait func(), ok bool) {
	at := p.World.log(Event{Kind: Submitted, Trace: l.TraceID, Batch: b, Queued: true})
	t, err := p.DB.Submit(context.Background(), l, b)
	if err != nil {
		if tga.CodeOf(err) != tga.StoreUnavailable {
			p.World.log(Event{Kind: Refused, Trace: l.TraceID, Batched: at})
		}
		return nil, false
	}
	return func() {
		if done, err := t.Wait(); err == nil {
			p.World.log(Event{Kind: Acknowledged, Trace: l.TraceID, Epoch: l.Epoch, Entries: done.Entries, Notes: done.Notes})
		}
	}, true
}

// lanesOf returns the traces of a pipeline: the artifacts of a call in separate batches and
// together, with notes between them, left open in different states, and with a document that
// is stored outside its entry. The last lane asks for a key that another lane has.
func lanesOf(licence, key string) ([]lane, error) {
	var lanes []lane
	for i, parts := range []string{"r d c e", "rdc n e", "r n d n c", "r d", "rdc l", "rd c"} {
		name := key
		if i > 0 {
			name = fmt.Sprintf("%s/%d", key, i)
		}
		m := maker{trace: idOf("lane " + name), licence: licence, key: name}
		if i == 5 {
			m.key = lanes[2].key // which is not settled
		}
		l := lane{trace: m.trace, key: m.key}
		for group := range strings.FieldsSeq(parts) {
			var b chain.Batch
			for _, part := range group {
				if err := m.add(&b, part); err != nil {
					return nil, err
				}
			}
			l.batches = append(l.batches, b)
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// maker makes the artifacts of a trace. They depend only on its fields, so after a crash it
// makes the same ones again.
type maker struct {
	trace                   tga.ID
	licence, key            string
	request, decision, call *tga.Artifact
	notes                   int
}

// add adds a part to a batch: request, decision, call, effect, effect with a long answer, note.
func (m *maker) add(b *chain.Batch, part rune) (err error) {
	var a *tga.Artifact
	var documents []chain.Document
	proposal := tga.Proposal{ToolServer: Allowed, ToolName: m.licence + "." + Answers, Args: amountArgs(5)}
	class, risk := tga.ClassWrite, tga.RiskWrite
	if m.licence == "read_only" {
		class, risk = tga.ClassRead, tga.RiskRead
	}
	switch part {
	case 'n':
		m.notes++
		b.Notes = append(b.Notes, chain.NewNote{Kind: tga.NoteLateReply, Who: "a pipeline", Body: fmt.Appendf(nil, `{"n":%d}`, m.notes)})
		return nil
	case 'r':
		a = &tga.Artifact{Type: tga.RequestType, Request: &tga.ActionRequest{
			AgentID: idOf("agent"), RiskLevel: risk, Intent: "one of several under way",
			Resources: []tga.Resource{{Kind: "service", ID: Allowed}}, Proposal: proposal, IdempotencyKey: m.key,
		}}
		m.request = a
	case 'd':
		a = &tga.Artifact{Type: tga.DecisionType, Decision: &tga.SupervisorDecision{
			RequestID: m.request.ID, RequestDigest: m.request.Digest, Decision: tga.Approve, Rationale: "allowed by the rules",
		}}
		m.decision = a
	case 'c':
		a = &tga.Artifact{Type: tga.CallType, Call: &tga.ToolCall{
			DecisionID: m.decision.ID, DecisionDigest: m.decision.Digest, Call: proposal,
			IdempotencyKey: m.key, ToolClass: class, BatchTotalBytes: -1,
		}}
		m.call = a
	default:
		result := []byte(`{"done":true}`)
		if part == 'l' {
			result = fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat("0123456789abcdef", 2500))
		}
		documents = []chain.Document{{Pointer: tga.PointerResult, Data: result}}
		a = &tga.Artifact{Type: tga.EffectType, Meta: tga.Meta{tga.MetaOutcomeClass: ledger.ClassSuccess.String()}, Effect: &tga.ToolEffect{
			CallID: m.call.ID, CallDigest: m.call.Digest, BatchTotalBytes: -1, ContentHashAlg: "sha256",
			DocumentHashes: []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: tga.Sum(result), SizeBytes: int64(len(result))}},
			Outcome:        tga.Outcome{Status: tga.StatusSuccess, Summary: "done"},
		}}
	}
	a.ID, a.TraceID, a.PlanID, a.TS = idOf(fmt.Sprintf("%s %c", m.trace, part)), m.trace, idOf("plan"), start
	if a.Meta == nil {
		a.Meta = tga.Meta{}
	}
	a.Meta[tga.MetaNonce] = fmt.Sprintf("%x", m.trace[:])
	b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a, Documents: documents})
	return a.Seal()
}

// pipelined crashes pipelines before each operation, tears the syncs of their groups, and
// lets each of their operations fail.
func (r *Run) pipelined(seed uint64) {
	list := shuffled(seed, []string{"park", "dedupe_key", "read_only", none})
	scenario := func(licence string) Scenario {
		return Scenario{Name: "pipelined", Licences: []string{licence}, Steps: Pipelined}
	}
	r.part(3, 5, func() {
		for i, licence := range list {
			if !r.Over() {
				r.Explore(scenario(licence), seed<<4+uint64(i), Losses, 1, Thoroughness{Depth: 2, Nested: 101, Again: 16, Retry: 8})
			}
		}
	})
	r.part(1, 2, func() { r.Torn(scenario(list[0]), seed, 251, Thoroughness{Depth: 1, Retry: 16}) })
	r.Faults(scenario(list[0]), seed, whileRun, 1, Thoroughness{Depth: 1, Retry: 8})
}
