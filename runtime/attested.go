package runtime

import (
	"encoding/json"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A call in doubt is sent again only where two licences allow it: that which the operator gave when
// the attempt was made, and that of now. So a licence that is changed, by a restart or while calls
// run, never sends what was parked, and one that is taken back sends nothing any more. The licence
// of an attempt stands in the log beside it: of attempt 1 in the call's meta, of a later one in a
// note, where it is another than before.

// LicenceOf returns the licence that the newest attempt of a trace was made under; nil where the log does
// not say it: of a read call, and of a call that a peer, another implementation or an earlier version
// has written. For these the licence of now decides alone.
func LicenceOf(t *chain.Trace) *ledger.Licence {
	if t.Call == nil {
		return nil
	}
	text := t.Call.Meta.String(tga.MetaLicence)
	for i := len(t.Notes) - 1; i >= 0; i-- {
		var b struct {
			Licence string `json:"licence"`
		}
		if n := &t.Notes[i]; n.Kind == tga.NoteLicence {
			if json.Unmarshal(n.Body, &b) != nil || b.Licence == "" {
				return &ledger.Licence{} // it says something that nobody can read: nothing is attested
			}
			text = b.Licence
			break
		}
	}
	if text == "" {
		return nil
	}
	l, err := ledger.ParseAttested(text)
	if err != nil {
		return &ledger.Licence{}
	}
	return &l
}

// licences knows what the operator says now of the calls in doubt of a tool.
type licences struct {
	policy  func(server, tool string) Policy
	profile ledger.Profile
	mint    *minter
}

// now is the licence of a loop's call at this moment, which may be another than when the run began.
func (ls *licences) now(l *loop) ledger.Licence {
	q := l.request.Request
	p := ls.policy(q.Proposal.ToolServer, q.Proposal.ToolName).withDefaults()
	return ls.held(p, classOf(p, q), l.claim())
}

// held is the licence of now under a policy, of a call whose program claims one or none.
func (ls *licences) held(p Policy, class string, claim *ledger.Licence) ledger.Licence {
	return ledger.Claimed(ledger.Effective(p.Licence, p.LicenceSet, class, ls.profile), claim, p.ClientLicence, class)
}

// admit refuses a Begin whose program claims more than the operator lets it. A licence that a
// program counts on and does not get must not be passed over in silence.
func (ls *licences) admit(req *BeginRequest) error {
	p := ls.policy(req.Server, req.Tool).withDefaults()
	risk := firstOf(req.Risk, tga.RiskRead) // of a request that names none it follows the class
	class := classOf(p, &tga.ActionRequest{RiskLevel: risk})
	return ledger.CheckClaim(ledger.Effective(p.Licence, p.LicenceSet, class, ls.profile), req.Licence, p.ClientLicence, class)
}

// claim is what the program says a repetition of this call would do: the one that asks now, else
// the one that asked first.
func (l *loop) claim() *ledger.Licence {
	if l.remote != nil {
		return l.remote.claim
	}
	return claimOf(l.request)
}

// ClaimOf returns the licence that the program which sends a trace's call claimed with its request; nil
// where it claimed none. What it gets is [ledger.Claimed].
func ClaimOf(t *chain.Trace) *ledger.Licence { return claimOf(t.Request) }

// claimOf is ClaimOf. Only a program that sends the call itself can make a claim.
func claimOf(request *tga.Artifact) *ledger.Licence {
	if request == nil || request.Meta[tga.MetaClientLicence] == nil || request.Meta.String(tga.MetaExecutor) != tga.AttemptExternal {
		return nil
	}
	claim, err := ledger.ParseAttested(request.Meta.String(tga.MetaClientLicence))
	if err != nil {
		return &ledger.Licence{} // nobody can read it: nothing is claimed to be harmless
	}
	return &claim
}

// may reports whether both licences of a call may allow it to be sent again. One of which the log
// does not say under what it was attempted has the one of now alone.
func (ls *licences) may(policy Policy, claim, attempted *ledger.Licence) bool {
	return ls.held(policy, tga.ClassWrite, claim).Kind != ledger.Park && (attempted == nil || attempted.Kind != ledger.Park)
}

// keep says in the meta of a call under which licence its attempt 1 is made. A read call is read again
// under whatever licence.
func (ls *licences) keep(l *loop, meta tga.Meta) {
	now := ls.now(l)
	if l.attempted = &now; now.Kind != ledger.ReadOnly {
		meta[tga.MetaLicence] = now.Attested()
	}
}

// note is what stands beside the mark of a later attempt: nothing, where its licence is that of
// the one before.
func (ls *licences) note(l *loop, attempt uint32) ([]chain.NewNote, error) {
	now := ls.now(l)
	if l.attempted != nil && now.Attested() == l.attempted.Attested() {
		return nil, nil
	}
	n, err := ls.mint.note(tga.NoteLicence, whoRuntime, map[string]any{"attempt": attempt, "licence": now.Attested()})
	if err != nil {
		return nil, err
	}
	l.attempted = &now
	return []chain.NewNote{n}, nil
}

// fenced reports whether time alone keeps the newest attempt of a call from arriving, by each of
// its licences that says so of probes.
func (ls *licences) fenced(l *loop, record *ledger.Record, dead, asked tga.Millis) bool {
	fenced, all := false, []ledger.Licence{ls.now(l)}
	if l.attempted != nil {
		all = append(all, *l.attempted)
	}
	for _, licence := range all {
		if licence.Kind != ledger.Probe {
			continue
		}
		if fenced = licence.FencedByTime(record, dead, asked); !fenced {
			return false
		}
	}
	return fenced
}
