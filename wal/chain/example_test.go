package chain_test

import (
	"fmt"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The log of a trace is replayed link by link. What somebody has changed in it is found, and where.
func ExampleReplay() {
	id := func(n byte) tga.ID { return tga.ID{0x01, 0x93, 0x6a, 0x8b, 0x4c, 0x2d, 0x70, 0, 0x80, 15: n} }
	trace := chain.NewTrace(id(1))
	request := &tga.Artifact{
		Type: tga.RequestType, ID: id(2), TraceID: id(1), PlanID: id(3), TS: 1700000000000,
		Request: &tga.ActionRequest{
			AgentID: id(4), RiskLevel: tga.RiskWrite, Intent: "charge the customer once", Resources: []tga.Resource{{Kind: "service", ID: "payments"}},
			Proposal: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"amount":12}`)}, IdempotencyKey: "order-1",
		},
	}
	if err := request.Seal(); err != nil { // its canonical bytes and its digest
		fmt.Println(err)
		return
	}
	decision := &tga.Artifact{
		Type: tga.DecisionType, ID: id(5), TraceID: id(1), PlanID: id(3), TS: 1700000000001,
		Decision: &tga.SupervisorDecision{RequestID: id(2), RequestDigest: request.Digest, Decision: tga.Approve, Rationale: "within the limit"},
	}
	var log []chain.Entry
	for _, a := range []*tga.Artifact{request, decision} {
		if err := a.Seal(); err != nil {
			fmt.Println(err)
			return
		}
		entry, err := trace.Link(a, a.TS)
		if err != nil {
			fmt.Println(err)
			return
		}
		e := chain.Entry{LogEntry: entry, Artifact: a}
		e.Seal()
		if err := trace.Apply(&e); err != nil {
			fmt.Println(err)
			return
		}
		log = append(log, e)
	}
	replay := func(log []chain.Entry) (*chain.Trace, error) {
		return chain.Replay(id(1), func(yield func(chain.Entry, error) bool) {
			for _, e := range log {
				if !yield(e, nil) {
					return
				}
			}
		}, nil)
	}
	whole, err := replay(log)
	fmt.Println(whole.Head.State, whole.Head.Seq, err)

	changed := slices.Clone(log)
	changed[0].TS++
	_, err = replay(changed)
	fmt.Println(tga.CodeOf(err))
	// Output:
	// AUTHORIZED 2 <nil>
	// STATE_CHECKSUM_MISMATCH
}
