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

// TestLongAnswerIsNotBoundByItsPlainDigest: of an answer over the limit, only its length and a digest are kept. If
// something would have been taken out of it, that is not the digest of the whole answer: whoever knows the rest of it
// could find the secret by trying.
func TestLongAnswerIsNotBoundByItsPlainDigest(t *testing.T) {
	whole := []byte(`{"token":"` + authToken + `","charged":100}`)
	for name, reply := range map[string]runtime.Reply{
		"cut here":                 ok(string(whole)),
		"cut by its transport":     {Status: tga.StatusSuccess, Truncated: true, ResultBytes: int64(len(whole)), ResultDigest: tga.Sum(whole)},
		"cut here, not JSON":       ok(authToken + string(whole)),
		"cut here, no JSON at all": ok("the token is " + authToken),
	} {
		b := setup(t, park, redacting, func(b *bench) { b.opts.MaxAnswer = 10 })
		b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) { return reply, nil }
		res := b.mustCall(secretCharge("order-1"))
		if res = b.wantState(res.TraceID, tga.Completed); !res.Redacted || res.Value != nil || res.ResultBytes == 0 {
			t.Errorf("%s: %+v", name, res)
		}
		trace, err := b.db.Load(t.Context(), res.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range trace.Effect.Effect.DocumentHashes {
			if h.Hash == tga.Sum(whole) || h.Hash == tga.Sum(reply.Result) {
				t.Errorf("%s: %s binds the whole answer", name, h.Pointer)
			}
		}
	}
}
