package mcpcheck

import (
	"context"
	"strings"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Config describes a verifier; see the package's comment.
type Config struct {
	Server    string            `toml:"server"`
	Tool      string            `toml:"tool"`
	Answer    string            `toml:"answer"`
	Arguments map[string]string `toml:"arguments"`
	Ignore    []string          `toml:"ignore"`
	Checks    []verify.Check    `toml:"check"`
	Gone      []Rule            `toml:"gone"`
	verify.Patience
}

type look struct {
	Config
	question
	compared []string
}

// New makes a verifier that asks through caller, VALIDATION_ERROR where the
// configuration is wrong. It contacts nobody.
func New(c Config, caller runtime.Dispatcher) (runtime.Verifier, error) {
	l := &look{Config: c}
	if c.Tool == "" {
		return nil, verify.Invalid("tool", "want the name of a tool that only reads")
	}
	if len(c.Checks) == 0 {
		return nil, verify.Invalid("check", "without one any answer would be that it is there")
	}
	if err := verify.ValidateAll("check", c.Checks, verify.ChangeNames); err != nil {
		return nil, err
	}
	if err := validate("gone", c.Gone, verify.ChangeNames); err != nil {
		return nil, err
	}
	if err := verify.CheckIgnored(c.Ignore); err != nil {
		return nil, err
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	if l.question, err = newQuestion(caller, c.Server, c.Tool, c.Answer, c.Arguments, verify.ChangeNames); err != nil {
		return nil, err
	}
	l.compared = append(l.arguments.Names(), verify.Fields(c.Checks)...)
	return verify.NewVerifier(l.look, patience), nil
}

func (l *look) look(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	subject := verify.OfChange(change)
	a, source, err := l.ask(ctx, tga.ID{}, subject)
	if err != nil {
		return runtime.CannotTell, a.evidence(source, "no answer"), err
	}
	finding, why := l.judge(&a, change, subject)
	return finding, a.evidence(source, why), nil
}

// judge says what an answer means and why.
func (l *look) judge(a *answer, change tga.StateChange, s verify.Subject) (runtime.Finding, string) {
	if a.doc == nil {
		return runtime.CannotTell, a.why
	}
	gone, err := a.one(l.Gone, s)
	switch {
	case err != nil:
		return runtime.CannotTell, err.Error()
	case gone:
		return runtime.Gone, "a rule of gone holds"
	case a.failed:
		return runtime.CannotTell, "the tool reported an error"
	}
	switch truth, err := verify.All(l.Checks, a.doc, s); {
	case err != nil:
		return runtime.CannotTell, err.Error()
	case truth == verify.Fails:
		return runtime.Changed, "a check fails"
	case truth == verify.Unsaid:
		return runtime.CannotTell, "a check finds nothing in the answer"
	}
	if left := verify.Unlooked(change, l.compared, l.Ignore); left != nil {
		return runtime.CannotTell, "nothing compared the change's " + strings.Join(left, " and ")
	}
	return runtime.Exists, "every check holds"
}
