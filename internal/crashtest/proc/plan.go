//go:build linux

package proc

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// call is one governed call of a plan. A victim that starts again makes the call again with
// the same trace id, as a caller does who got no answer.
type call struct {
	Trace  tga.ID
	Server string
	Tool   string // licence.behaviour, as in package crashtest
	Key    string
	Args   string
	How    how
	// Seal writes a checkpoint of the trace afterwards.
	Seal bool
}

// how says who sends a call, and who settles it if it is in doubt.
type how string

const (
	governed how = ""        // the victim sends it; doubt stays
	executor how = "execute" // a remote executor begins, sends and finishes it
	operator how = "operate" // as governed; an operator ends doubt, by what the server says
)

// plan returns the calls of a life: each licence, a repeat, a conflict, a denial, an
// approval, a read without a key, an answer that does not fit an entry, calls whose answer
// or effect is lost, and a call by a remote executor.
func plan(seed uint64) []call {
	calls := []call{
		{Tool: "park.answers", Key: "pay-1"},
		{Tool: "dedupe_key.answers", Key: "ship-1", Seal: true},
		{Tool: "park.answers", Key: "pay-1"},                       // another trace: served
		{Tool: "park.answers", Key: "pay-1", Args: `{"amount":2}`}, // another call: refused
		{Tool: "none.long", Key: "big-1"},
		{Server: crashtest.Denied, Tool: "park.answers", Key: "no-1"},
		{Server: crashtest.People, Tool: "park.answers", Key: "ask-1", Seal: true},
		{Tool: "read_only.answers"},
		{Tool: "dedupe_key.answers", Key: "ship-2"},
		{Tool: "dedupe_args.loses_reply", Key: "tag-1", Args: `{"amount":3}`},
		{Tool: "park.answers", Key: "away-1", How: executor, Seal: true},
		{Tool: "park.loses_reply", Key: "lost-1", How: operator},
		{Tool: "park.loses_call", Key: "lost-2", How: operator},
	}
	for i := range calls {
		calls[i].Trace = traceID(seed, i)
		if calls[i].Args == "" {
			calls[i].Args = `{"amount":1}`
		}
		if calls[i].Server == "" {
			calls[i].Server = crashtest.Allowed
		}
	}
	return calls
}

// traceID is a UUIDv7 that depends on its arguments alone.
func traceID(seed uint64, i int) (id tga.ID) {
	d := tga.Sum(fmt.Appendf(nil, "%d.%d", seed, i))
	copy(id[:], d[:])
	binary.BigEndian.PutUint64(id[:], uint64(1768503600000+i)<<16)
	id[6], id[7] = 0x70, d[7]
	id[8] = d[8]&0x3f | 0x80
	return id
}

// licenceOf returns the licence in the name of a tool.
func licenceOf(tool string) string {
	name, _, _ := strings.Cut(tool, ".")
	return name
}

func behaviourOf(tool string) string {
	_, behaviour, _ := strings.Cut(tool, ".")
	return behaviour
}

// policy is the operator's configuration of the victim's tools.
func policy(_, tool string) runtime.Policy {
	p := runtime.Policy{SendTimeout: 20 * time.Second}
	switch licenceOf(tool) {
	case "park":
		p.LicenceSet = true
	case "dedupe_key":
		p.Licence, p.LicenceSet = ledger.Licence{Kind: ledger.DedupeKey, Window: time.Hour}, true
	case "dedupe_args":
		p.Licence, p.LicenceSet = ledger.Licence{Kind: ledger.DedupeArgs}, true
	case "read_only":
		p.Class = tga.ClassRead
	}
	return p
}

var rules = runtime.Rules{Rules: []runtime.Rule{
	{Server: crashtest.Denied, Decision: tga.Deny},
	{Server: crashtest.People, Decision: tga.NeedsApproval},
	{Server: crashtest.Allowed, Decision: tga.Approve},
}}

// impure is a supervisor that is asked only about requests that are on disk.
type impure struct{ rules runtime.Rules }

func (s impure) Decide(ctx context.Context, a *tga.Artifact) (runtime.Verdict, error) {
	return s.rules.Decide(ctx, a)
}

// options returns the supervisor and the options for a profile. Under strict the supervisor
// is pure, so its verdict needs no sync of its own. Under spec-9.3 it is not, so that the
// crash windows between request, decision and call exist.
func options(p ledger.Profile) (runtime.Supervisor, runtime.Options) {
	o := runtime.Options{Policy: policy, Profile: p}
	if p == ledger.Spec93 {
		return impure{rules}, o
	}
	return rules, o
}

var profiles = []ledger.Profile{ledger.Strict, ledger.Spec93}
