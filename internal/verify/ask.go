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

// Look looks once whether a resource is there as the change says, whatever the
// operation was. Its evidence is kept with an error too.
type Look func(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error)

// NewVerifier makes a [runtime.Verifier] of a look. p is complete.
//
// It asks again within the settling time while the finding is a mismatch that a lagging
// world would show too. An error is TOOL_TIMEOUT, TOOL_ERROR or VALIDATION_ERROR, with
// [runtime.CannotTell].
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

// stands turns what is seen of a resource into what that says of a change to it.
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

// NewProber makes a [runtime.Prober] of an inquiry. p is complete. "Did not run" is
// asked again within the settling time; any other answer is final.
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

// times says in the evidence how often the question was put.
func times(e runtime.Evidence, asked int, p Patience) runtime.Evidence {
	if asked > 1 {
		e.Source += fmt.Sprintf(" (%d times, %v apart)", asked, p.SettleEvery)
	}
	return e
}
