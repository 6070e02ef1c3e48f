package runtime

import (
	"encoding/json"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A call in doubt is sent again only if two licences allow it: the licence when the attempt was
// made, and the current licence. So a changed licence, after a restart or while calls run, never
// sends a call that was parked, and a licence that is taken back permits no send any more. The log
// has the licence of each attempt: that of attempt 1 in the call's meta, and that of a later
// attempt in a note, if it differs from the one before.

// LicenceOf returns the licence that the newest attempt of a trace was made under. It is nil if the log has
// none: for a read call, and for a call that a peer, another implementation or an earlier version
// has written. Then the current licence decides alone.
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
				return &ledger.Licence{} // the note cannot be read: nothing is attested
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

// licences knows the current licences of tools.
type licences struct {
	policy  func(server, tool string) Policy
	profile ledger.Profile
	mint    *minter
}

// now returns the current licence of a loop's call. It may have changed since the run began.
func (ls *licences) now(l *loop) ledger.Licence {
	q := l.request.Request
	p := ls.policy(q.Proposal.ToolServer, q.Proposal.ToolName).withDefaults()
	return ls.held(p, classOf(p, q), l.claim())
}

// held returns the current licence under a policy, for a call whose program may claim a licence.
func (ls *licences) held(p Policy, class string, claim *ledger.Licence) ledger.Licence {
	return ledger.Claimed(ledger.Effective(p.Licence, p.LicenceSet, class, ls.profile), claim, p.ClientLicence, class)
}

// admit refuses a Begin whose program claims more than the operator allows. A program that relies
// on a licence must learn that it does not have it.
func (ls *licences) admit(req *BeginRequest) error {
	p := ls.policy(req.Server, req.Tool).withDefaults()
	risk := firstOf(req.Risk, tga.RiskRead) // without a risk level, the policy's class decides alone
	class := classOf(p, &tga.ActionRequest{RiskLevel: risk})
	return ledger.CheckClaim(ledger.Effective(p.Licence, p.LicenceSet, class, ls.profile), req.Licence, p.ClientLicence, class)
}

// claim returns the licence that a program claims for this call: the program that asks now, if one
// does, else the program that made the request.
func (l *loop) claim() *ledger.Licence {
	if l.remote != nil {
		return l.remote.claim
	}
	return claimOf(l.request)
}

// ClaimOf returns the licence that the program which sends a trace's call claimed with its request; nil
// if it claimed none. [ledger.Claimed] says which licence the call gets.
func ClaimOf(t *chain.Trace) *ledger.Licence { return claimOf(t.Request) }

// claimOf is ClaimOf. Only a program that sends the call itself can make a claim.
func claimOf(request *tga.Artifact) *ledger.Licence {
	if request == nil || request.Meta[tga.MetaClientLicence] == nil || request.Meta.String(tga.MetaExecutor) != tga.AttemptExternal {
		return nil
	}
	claim, err := ledger.ParseAttested(request.Meta.String(tga.MetaClientLicence))
	if err != nil {
		return &ledger.Licence{} // the claim cannot be read: it claims nothing
	}
	return &claim
}

// may reports whether both licences of a call may allow another send. If the log has no licence of
// the attempt, the current licence decides alone.
func (ls *licences) may(policy Policy, claim, attempted *ledger.Licence) bool {
	return ls.held(policy, tga.ClassWrite, claim).Kind != ledger.Park && (attempted == nil || attempted.Kind != ledger.Park)
}

// keep records in the meta of a call the licence of its attempt 1, unless that is read_only: a read call
// may always be sent again.
func (ls *licences) keep(l *loop, meta tga.Meta) {
	now := ls.now(l)
	if l.attempted = &now; now.Kind != ledger.ReadOnly {
		meta[tga.MetaLicence] = now.Attested()
	}
}

// note returns the licence note that goes with the mark of a later attempt: none, if the licence is
// the same as before. now is the current licence that permitted the attempt.
func (ls *licences) note(l *loop, attempt uint32, now ledger.Licence) ([]chain.NewNote, error) {
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

// fenced reports whether so much time has passed that the newest attempt of a call can no longer
// arrive, by each of its two licences that is a probe licence. An attempt that a peer made is never
// fenced by time, nor is a remote executor's: nobody here sees its sender end.
func (ls *licences) fenced(l *loop, record *ledger.Record, dead, asked tga.Millis) bool {
	if l.sender == OfAnother {
		return false
	}
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
