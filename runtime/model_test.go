package runtime_test

import (
	"errors"
	"testing"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAModelLicensesNoSend walks what a resolution can say: from a model only that the call ran.
func TestAModelLicensesNoSend(t *testing.T) {
	c := withClients(t, licence(ledger.Park))
	c.come("A")
	first := c.beginAs("A")
	giveUp(c, first)
	classes := []ledger.Class{
		ledger.ClassNone, ledger.ClassSuccess, ledger.ClassCommitted, ledger.ClassRetryable, ledger.ClassPermanent,
		ledger.ClassCompensatable, ledger.ClassNotSent,
	}
	for _, status := range []string{tga.StatusFailure, tga.StatusDenied, tga.StatusError, tga.StatusSuccess} {
		for _, class := range classes {
			if status == tga.StatusSuccess && (class == ledger.ClassNone || class == ledger.ClassSuccess) {
				continue // it ran: below
			}
			_, err := c.rt.Resolve(t.Context(), first.Result.TraceID, runtime.Resolution{
				Who: "ann", Via: runtime.ViaModel, Evidence: []byte(`"e"`), Reply: runtime.Reply{Status: status, Class: class},
			})
			if !errors.Is(err, tga.PermissionDenied) && !errors.Is(err, tga.ValidationError) {
				t.Errorf("%s %v: %v", status, class, err)
			}
		}
	}
	if _, err := c.rt.AbandonVia(t.Context(), first.Result.TraceID, "ann", "dream", "why"); !errors.Is(err, tga.ValidationError) {
		t.Errorf("another way: %v", err)
	}
	c.wantStanding(c.beginAs("A"), runtime.BeginInDoubt)
	res, err := c.rt.Resolve(t.Context(), first.Result.TraceID, runtime.Resolution{
		Who: "ann", Via: runtime.ViaModel, Evidence: []byte(`"e"`), Reply: runtime.Reply{Status: tga.StatusSuccess},
	})
	if err != nil || res.State != tga.Completed || res.ResolvedVia != runtime.ViaModel {
		t.Fatalf("%+v %v", res, err)
	}
	c.deliver(first)
	c.beginAs("A", other(1), noting(first)) // and once more, on the way
	c.reopen()
	again := c.beginAs("A")
	c.wantStanding(again, runtime.BeginServe)
	if again.Result.TraceID != first.Result.TraceID {
		t.Error("the same call is a new one after a model has settled it and its answer was delivered")
	}
	c.wantSends(0)
}
