package engine_test

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// exampleID makes a UUIDv7; a program takes them from a library.
func exampleID(n byte) tga.ID {
	return tga.ID{0x01, 0x93, 0x6a, 0x8b, 0x4c, 0x2d, 0x70, 0, 0x80, 15: n}
}

// A store is used through leases: who holds the lease of a trace may append to it. Append
// returns when its artifacts, their entries and the ledger record are on disk, all of them.
func ExampleDB_Append() {
	ctx := context.Background()
	db, err := engine.Open("store", engine.Options{FS: vfs.NewMem()}) // a test's; without FS it is a directory
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { fmt.Println("closed:", db.Close()) }()

	trace := exampleID(1)
	lease, err := db.Acquire(ctx, trace)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { db.Release(lease) }()
	request := &tga.Artifact{
		Type: tga.RequestType, ID: exampleID(2), TraceID: trace,
		PlanID: exampleID(3), TS: 1700000000000,
		Request: &tga.ActionRequest{
			AgentID: exampleID(4), RiskLevel: tga.RiskWrite,
			Intent: "charge the customer once", Resources: []tga.Resource{{Kind: "service", ID: "payments"}},
			Proposal: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"amount":12}`)}, IdempotencyKey: "order-1",
		},
	}
	if err := request.Seal(); err != nil { // its canonical bytes and its digest
		fmt.Println(err)
		return
	}
	batch := chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: request}}}
	for range 2 { // who lost the answer asks again
		done, err := db.Append(ctx, lease, batch)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(done.Head.State, done.Head.Seq, done.Replayed)
	}
	for e, err := range db.Entries(ctx, trace, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.Seq, e.Type, e.ArtifactDigest == request.Digest)
	}
	// Output:
	// PENDING 1 false
	// PENDING 1 true
	// 1 action_request true
	// closed: <nil>
}
