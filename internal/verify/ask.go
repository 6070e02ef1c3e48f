package verify

import (
	"context"
	"fmt"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// OperationDelete is the operation whose change stands when the resource is gone.
const OperationDelete = "delete"

// Look checks once whether a resource exists as the change says, whatever the operation
// was. Its evidence is kept even if it returns an error.
type Look func(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error)

// NewVerifier makes a [runtime.Verifier] of a look. p is complete.
//
// While the finding is a mismatch that could come from a lagging system, it asks again
// until the settling time is over. An error is TOOL_TIMEOUT, TOOL_ERROR or
// VALIDATION_ERROR, with [runtime.CannotTell].
func NewVerifier(look Look, p Patience) runtime.Verifier {
	return &verifier{look, newAsker(p)}
}

type verifier struct {
	look Look
	*asker
}

type seen struct {
	finding  runtime.Finding
	evidence runtime.Evidence
}

func (v *verifier) Verify(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	for asked := 1; ; asked++ {
		s, err := ask(ctx, v.asker, func(ctx context.Context) (s seen, err error) {
			s.finding, s.evidence, err = v.look(ctx, change)
			return s, err
		})
		evidence := times(s.evidence, asked, v.Patience)
		finding := stands(change.Operation, s.finding)
		settled := finding == runtime.Exists || finding == runtime.CannotTell || asked > v.again()
		if err == nil && settled {
			return finding, evidence, nil
		}
		if err == nil {
			err = v.pause(ctx)
		}
		if err != nil {
			return runtime.CannotTell, evidence, coded(err, "verify %s %q", change.ResourceType, change.ResourceID)
		}
	}
}

// stands turns the finding about a resource into the finding about a change to it: after
// a deletion, a resource that is gone means that the change stands.
func stands(operation string, f runtime.Finding) runtime.Finding {
	if operation != OperationDelete {
		return f
	}
	return [...]runtime.Finding{
		runtime.CannotTell: runtime.CannotTell,
		runtime.Exists:     runtime.Changed,
		runtime.Gone:       runtime.Exists,
		runtime.Changed:    runtime.Changed,
	}[f]
}

// Inquire asks once whether a call ran.
type Inquire func(ctx context.Context, call runtime.Call) (runtime.Probed, error)

// NewProber makes a [runtime.Prober] of an inquiry. p is complete. After the answer "did
// not run" it asks again until the settling time is over; any other answer is final.
func NewProber(inquire Inquire, p Patience) runtime.Prober {
	return &prober{inquire, newAsker(p)}
}

type prober struct {
	inquire Inquire
	*asker
}

func (b *prober) Probe(ctx context.Context, call runtime.Call) (runtime.Probed, error) {
	for asked := 1; ; asked++ {
		p, err := ask(ctx, b.asker, func(ctx context.Context) (runtime.Probed, error) { return b.inquire(ctx, call) })
		p.Evidence = times(p.Evidence, asked, b.Patience)
		if err == nil && (p.Answer != ledger.ProbeNotRan || asked > b.again()) {
			return p, nil
		}
		if err == nil {
			err = b.pause(ctx)
		}
		if err != nil {
			return runtime.Probed{Evidence: p.Evidence}, coded(err, "probe %s on %s", call.Tool, call.Server).In(call.TraceID)
		}
	}
}

// times adds to the evidence how often the question was asked.
func times(e runtime.Evidence, asked int, p Patience) runtime.Evidence {
	if asked > 1 {
		e.Source += fmt.Sprintf(" (%d times, %v apart)", asked, p.SettleEvery)
	}
	return e
}
