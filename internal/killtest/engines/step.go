package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/killtest/adapter"
)

// Variants that the first argument of an adapter can choose. Without an argument the engine is set up as its
// documentation recommends.
const (
	Once    = "once" // the fewest attempts that can be set
	Through = "tgad" // the step makes its charge through a tgad in the same process
)

// Variant returns the variant that the arguments of the process name, and the engine's name with that variant.
// once is the engine's own term for the fewest attempts.
func Variant(engine, once string) (name, variant string) {
	if len(os.Args) < 2 {
		return engine, ""
	}
	suffix, known := map[string]string{Once: once, Through: "the step through tgad"}[os.Args[1]]
	if !known {
		return fmt.Sprintf("%s, unknown argument %s", engine, os.Args[1]), ""
	}
	return engine + ", " + suffix, os.Args[1]
}

// Step is the body of a step of a durable engine: it makes a charge, and returns its answer. If tgad does not know
// whether the charge was made, that is an answer too and ends the step. An error would make the engine try again.
type Step func(ctx context.Context, key string, amount int) (adapter.Answer, error)

// NewStep returns the step of a variant. The store of its tgad is in the run's directory, and dies with the process.
func NewStep(ctx context.Context, dir string, world adapter.World, variant string) (Step, error) {
	if variant != Through {
		return func(ctx context.Context, key string, amount int) (a adapter.Answer, err error) {
			a.Outcome = adapter.Completed
			a.Receipt, err = adapter.Charge(ctx, world, key, amount)
			return a, err
		}, nil
	}
	w, err := Tgad.Start(ctx, filepath.Join(dir, "tgad"), world)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string, amount int) (adapter.Answer, error) {
		a, err := w.Call(ctx, key, amount)
		if err == nil && !a.Outcome.Final() {
			err = fmt.Errorf("the call is %s: %s", a.Outcome, a.Detail)
		}
		return a, err
	}, nil
}
