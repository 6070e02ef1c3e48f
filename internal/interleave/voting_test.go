package interleave

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// rule is what the operator's rules say of every call, from one start of the process to the next.
type rule struct {
	decision string
	required int
}

var (
	allows = rule{decision: tga.Approve}
	asks1  = rule{tga.NeedsApproval, 1}
	asks2  = rule{tga.NeedsApproval, 2}
	denies = rule{decision: tga.Deny}
)

func (r rule) String() string {
	if r.required > 0 {
		return fmt.Sprint(r.decision, " of ", r.required)
	}
	return r.decision
}

// ruled is the process's supervisor.
type ruled struct{ rule }

func (ruled) Pure() {}

func (r ruled) Decide(context.Context, *tga.Artifact) (runtime.Verdict, error) {
	return runtime.Verdict{Decision: r.decision, Required: r.required, Rationale: "the operator's rule of this start"}, nil
}

// rule is that of the process that runs, everything is allowed where the scenario has none.
func (w *world) rule() rule {
	if len(w.Rules) == 0 {
		return allows
	}
	return w.Rules[w.ruleAt]
}

// votes is what was asked about the calls and what people said: what the world saw of it, and not
// what the runtime made of it.
type votes struct {
	asked  map[tga.ID]int    // approvals that it took when people were asked
	cast   map[tga.ID][]cast // votes that are durable
	looked map[tga.ID]look   // the process's last look at the tool's definition
	// mismatch is what the question about a record names, by what its asker has found.
	mismatch map[int]string
}

func newVotes() votes {
	return votes{map[tga.ID]int{}, map[tga.ID][]cast{}, map[tga.ID]look{}, map[int]string{}}
}

// cast is a vote; shown is the definition of the tool that its voter was shown.
type cast struct {
	who     string
	approve bool
	shown   string
}

// look is a look at the tool's definition, after so many votes.
type look struct {
	definition string
	votes      int
}

func (v votes) hash(h *hasher) {
	var sum uint64
	for trace, n := range v.asked {
		sum += mix(maphash.Comparable(seed, trace), 1, uint64(n))
	}
	for trace, list := range v.cast {
		for _, c := range list {
			sum += mix(maphash.Comparable(seed, trace), 2, maphash.Comparable(seed, c))
		}
	}
	for trace, l := range v.looked {
		sum += mix(maphash.Comparable(seed, trace), 3, maphash.Comparable(seed, l))
	}
	h.num(sum)
	v.hashQuestions(h)
}

// defined is the digest of the tool's definition as its server has it now. It changes while the
// process runs, between any two things that somebody does.
func (w *world) defined(ctx context.Context, _, _ string) (tga.Digest, error) {
	l := lifeOf(ctx)
	l.do("asks for the tool's definition")
	d := tga.Sum(fmt.Append(nil, "definition ", w.definition))
	for trace := range l.leases {
		w.votes.looked[trace] = look{d.String(), len(w.votes.cast[trace])}
	}
	l.learn("definition", digest(d))
	return d, nil
}

// counts notes a question that an append asks, and the votes that it has. shown is what the
// actor was shown: the runtime's own word for it is not taken.
func (w *world) counts(l *life, trace tga.ID, b chain.Batch) {
	for _, a := range b.Attachments {
		if a.Kind != chain.AttachApproval || a.Value == nil {
			continue
		}
		var q runtime.Approval
		if err := json.Unmarshal(a.Value, &q); err != nil {
			w.broken("a question: %v", err)
		}
		if _, before := w.votes.asked[trace]; q.Kind == runtime.AskConfirmation {
			w.questions(l, &q)
		} else if !before {
			w.votes.asked[trace] = w.rule().required
		}
	}
	for _, n := range b.Notes {
		if n.Kind != tga.NoteVote {
			continue
		}
		var body struct {
			Approve bool `json:"approve"`
		}
		if err := json.Unmarshal(n.Body, &body); err != nil {
			w.broken("a vote's body: %v", err)
		}
		w.votes.cast[trace] = append(w.votes.cast[trace], cast{n.Who, body.Approve, l.memory["shown "+short(trace)]})
	}
}

// mandated holds the first send of a call, or the permission for it, to the rules of this start
// and of the one at which people were asked, and to what people said.
func (w *world) mandated(mark string, trace tga.ID) {
	if len(w.Rules) == 0 {
		return
	}
	t, err := w.store.Load(context.Background(), trace)
	if err != nil {
		w.broken("%s cannot be read: %v", mark, err)
		return
	}
	r, err := w.store.Record(context.Background(), ledger.KeyOf(t.Namespace, t.Call))
	if err != nil || r == nil || r.Attempts.Count-r.Attempts.Unsent > 1 {
		return // an earlier send may have arrived: whether there is another is the licence's to say
	}
	need := w.votes.asked[trace]
	switch now := w.rule(); now.decision {
	case tga.Deny:
		w.broken("%s is sent first, and the rules of now deny it", mark)
	case tga.NeedsApproval:
		need = max(need, now.required)
	}
	yes := map[string]bool{}
	for _, c := range w.votes.cast[trace] {
		look, looked := w.votes.looked[trace]
		switch {
		case !c.approve:
			w.broken("%s is sent, and %s said no", mark, c.who)
		case c.who == w.from(trace):
			w.broken("%s is sent, and %s approved its own", mark, c.who)
		case looked && look.definition != c.shown:
			continue // it was about another definition, and is void
		case looked && look.votes < len(w.votes.cast[trace]):
			w.broken("%s is sent, and nobody looked at the definition after the last vote", mark)
		}
		yes[c.who] = true
	}
	if len(yes) < need {
		w.broken("%s is sent with %d approvals, and needs %d: %v", mark, len(yes), need, w.votes.cast[trace])
	}
}

// from is who made a trace.
func (w *world) from(trace tga.ID) string {
	for _, a := range w.actors {
		if a.id == int(trace[14]) {
			return a.script.name
		}
	}
	return ""
}

// waiting checks a trace that is PENDING when nobody can move any more: people were asked, and have
// not said enough.
func (w *world) waiting(trace tga.ID) {
	raw, err := w.store.Attachment(context.Background(), chain.AttachApproval, trace[:])
	var question runtime.Approval
	if err != nil || json.Unmarshal(raw, &question) != nil {
		w.broken("%s is left PENDING, and nobody is asked (%v)", short(trace), err)
		return
	}
	yes := 0
	for _, v := range question.Votes {
		if v.Approve {
			yes++
		}
	}
	if yes >= question.Required || yes < len(question.Votes) {
		w.broken("%s is left PENDING, and has %+v of %d", short(trace), question.Votes, question.Required)
	}
}

// askedOnce checks that a begin that is repeated under one name asks people once.
func (w *world) askedOnce() {
	for _, a := range w.actors {
		if !a.script.begins {
			continue
		}
		var of []string
		for trace := range w.votes.asked {
			if int(trace[14]) == a.id {
				of = append(of, short(trace))
			}
		}
		if slices.Sort(of); len(of) > 1 {
			w.broken("people were asked about one begin of %s in %v", a.script.name, of)
		}
	}
}

// voter is a person who looks at what waits, and votes on what it was shown.
func voter(name string, approve bool, tries int) script {
	return script{name: name + ", who votes", run: func(l *life) {
		for l.again(tries) {
			l.forget()
			list, err := l.rt().Approvals(l.ctx)
			if err != nil {
				return
			}
			for _, a := range list {
				if l.memory["voted "+short(a.TraceID)] != "" {
					continue
				}
				l.memory["shown "+short(a.TraceID)] = a.About().String()
				l.do("votes on " + short(a.TraceID))
				_, err := l.rt().Decide(l.ctx, a.TraceID, runtime.Vote{Who: name, Approve: approve, Rationale: "looked at what was shown", About: a.About()})
				l.learn("voted", code(err))
				if code := tga.CodeOf(err); code == "" || code == tga.EscalationRequired {
					l.memory["voted "+short(a.TraceID)] = "yes"
				}
			}
		}
	}}
}

// forger is a peer that may append and decide, and signs nothing. It writes a decision into the log of
// whatever waits, as if people had made it.
func forger(name string, tries int) script {
	return script{name: name, run: func(l *life) {
		for l.again(tries) {
			l.forget()
			l.each(tga.Pending, func(lease chain.Lease, t *chain.Trace) {
				l.learn("forged", code(l.appendRaw(lease, runtime.RightAppend|runtime.RightDecide, l.seal(t.ID, t.Request.PlanID, &tga.Artifact{
					Type: tga.DecisionType, Meta: tga.Meta{runtime.MetaApprovers: "V, W"}, Decision: &tga.SupervisorDecision{
						RequestID: t.Request.ID, RequestDigest: t.Request.Digest, Decision: tga.Approve, Rationale: "as if people had said so",
					},
				}))))
			})
		}
	}}
}

// Attachments has a gate before each look at what waits for people.
func (g *gated) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	l, asked := ctx.Value(lifeKey{}).(*life)
	if !asked || kind != chain.AttachApproval {
		return g.Store.Attachments(ctx, kind, prefix)
	}
	l.do("lists what waits for people")
	list := map[string]chain.Attachment{}
	var failed error
	for a, err := range g.Store.Attachments(ctx, kind, prefix) {
		if err != nil {
			failed = err
			break
		}
		list[string(a.Key)] = a
		l.learn("waits", maphash.Bytes(seed, a.Key), maphash.Bytes(seed, a.Value))
	}
	return func(yield func(chain.Attachment, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(list)) {
			if !yield(list[key], nil) {
				return
			}
		}
		if failed != nil {
			yield(chain.Attachment{}, failed)
		}
	}
}
