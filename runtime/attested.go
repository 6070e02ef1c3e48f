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
	return ledger.Effective(p.Licence, p.LicenceSet, classOf(p, q), ls.profile)
}

// may reports whether both licences of a call may allow it to be sent again. One of which the log
// does not say under what it was attempted has the one of now alone.
func (ls *licences) may(policy Policy, attempted *ledger.Licence) bool {
	now := ledger.Effective(policy.Licence, policy.LicenceSet, tga.ClassWrite, ls.profile)
	return now.Kind != ledger.Park && (attempted == nil || attempted.Kind != ledger.Park)
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
