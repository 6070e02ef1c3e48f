package runtime_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestContractsWordsAreNotRedacted: a caller chooses the arguments, so a secret may be a part of a
// status or of a code. The answer is recorded with its status and code all the same.
func TestContractsWordsAreNotRedacted(t *testing.T) {
	for _, secret := range []string{"SUCCESS", "SUCC", "ERROR", "FAIL", "TOOL", "RATE_LIMITED", "DENIED"} {
		for _, reply := range []runtime.Reply{
			ok(`{"paid":true}`),
			{Status: tga.StatusFailure, ErrorCode: string(tga.RateLimited), ErrorMessage: "slow down"},
			{Status: tga.StatusDenied},
			{Status: tga.StatusError, ErrorCode: "card_declined"},
		} {
			b := setup(t, park, redacting)
			b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return reply, nil }
			req := charge("order-1")
			req.Args = []byte(`{"amount":100,"card":"` + secret + `"}`)
			res, err := b.call(req)
			if err != nil {
				t.Errorf("%s as a secret, answer %s %s: %v", secret, reply.Status, reply.ErrorCode, err)
				continue
			}
			code := reply.ErrorCode
			if code == "" && reply.Status != tga.StatusSuccess || code == "card_declined" {
				code = string(tga.ToolError)
			}
			if res.Status != reply.Status || string(res.ErrorCode) != code {
				t.Errorf("%s as a secret: recorded %s %s, want %s %s", secret, res.Status, res.ErrorCode, reply.Status, code)
			}
			b.wantSends(1)
			b.close()
		}
	}
}

// TestToolsOwnWordsAreRedacted: what a tool says as its status or its code goes into the effect's meta, and
// so does the error of a rule that reads the answer. A secret in one of them is taken out, also one that
// crosses the length at which the text is cut.
func TestToolsOwnWordsAreRedacted(t *testing.T) {
	long := strings.Repeat("x", 190) + cardNumber
	for _, reply := range []runtime.Reply{
		{Status: "paid by " + cardNumber},
		{Status: authToken},
		{Status: long},
		{Status: tga.StatusFailure, ErrorCode: "declined_" + cardNumber},
		{Status: tga.StatusFailure, ErrorCode: long},
	} {
		b := setup(t, park, redacting)
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return reply, nil }
		res := b.mustCall(secretCharge("order-1"))
		if kept := b.wantState(res.TraceID, tga.Failed); !kept.Redacted {
			t.Errorf("%s %s: the record does not say that it was redacted", reply.Status, reply.ErrorCode)
		}
		b.wantNoSecret(cardNumber[:8])
	}
	b := setup(t, park, redacting, func(b *bench) {
		b.opts.Trust.Outcome = func(runtime.Call, *runtime.Reply) error {
			return errors.New(strings.Repeat("x", 190) + cardNumber + " is no sum")
		}
	})
	res := b.mustCall(secretCharge("order-1"))
	b.wantState(res.TraceID, tga.Completed)
	b.wantNoSecret(cardNumber[:8])
}
