package runtime_test

import (
	"context"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestReceiptIsOfWhoSigns: the runtime returns the receipts of Options.Receipt, and an error without it.
func TestReceiptIsOfWhoSigns(t *testing.T) {
	b := setup(t, park)
	id := b.mustCall(charge("k")).TraceID
	_, err := b.rt.Receipt(t.Context(), id)
	wantCode(t, err, tga.NotFound)
	b = setup(t, park, func(b *bench) {
		b.opts.Receipt = func(_ context.Context, trace tga.ID) (runtime.Receipt, error) {
			return runtime.Receipt{TraceID: trace, Key: "key"}, nil
		}
	})
	if r, err := b.rt.Receipt(t.Context(), id); err != nil || r.TraceID != id || r.Key != "key" {
		t.Errorf("%+v, %v", r, err)
	}
}
