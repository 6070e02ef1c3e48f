package ledger_test

import (
	"fmt"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Decide says what becomes of a call: from the record of its key, from who holds the trace
// that reserved the key, and from the licence of the tool. It sends nothing itself.
func ExampleDecide() {
	trace := tga.ID{0x01, 0x93, 0x6a, 0x8b, 0x4c, 0x2d, 0x70, 0, 0x80, 15: 1}
	request := tga.RequestDigest(tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"amount":100}`)})
	sent := &ledger.Record{ // the call was sent, and its process ended before the answer
		Status: ledger.Reserved, RequestDigest: request, TraceID: trace, Seq: 3,
		Attempts: ledger.Attempts{Count: 1, First: 1_700_000_000_000, Newest: 1_700_000_000_000, Epoch: 1},
	}
	q := ledger.Query{
		Trace: trace, Request: request, Holder: ledger.HolderGone,
		Now: 1_700_000_060_000, NewestTS: 1_700_000_000_000, SendTimeout: 10 * time.Second,
	}
	say := func(what string, q ledger.Query) {
		d := ledger.Decide(q)
		fmt.Printf("%s: %s, attempt %d; %q\n", what, d.Action, d.Attempt, d.Code)
	}

	say("never used", q)
	q.Record = sent
	say("in doubt, park", q)
	q.Licence = ledger.Licence{Kind: ledger.DedupeKey, Window: 24 * time.Hour}
	say("in doubt, dedupe_key", q)
	q.Request = tga.RequestDigest(tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"amount":999}`)})
	say("another request", q)
	// Output:
	// never used: send, attempt 1; ""
	// in doubt, park: doubt, attempt 0; "EFFECT_IN_DOUBT"
	// in doubt, dedupe_key: resend, attempt 2; ""
	// another request: conflict, attempt 0; "IDEMPOTENCY_KEY_CONFLICT"
}

// DeriveKey gives a call a key whose caller has none. The same step of the same scope gets
// the same key again, so a repeat of the step is found.
func ExampleDeriveKey() {
	first, err := ledger.DeriveKey("order-1", "charge", "charge", []byte(`{"amount":100}`), 0)
	again, _ := ledger.DeriveKey("order-1", "charge", "charge", []byte(`{"amount":100}`), 0)
	second, _ := ledger.DeriveKey("order-1", "charge", "charge", []byte(`{"amount":100}`), 1) // meant to happen twice
	fmt.Println(len(first), first == again, first == second, err)
	// Output:
	// 64 true false <nil>
}
