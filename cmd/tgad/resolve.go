package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// resolving is what a person says about one call in doubt, or about many.
type resolving struct {
	runtime.Resolution
	many                                     doubts
	outcome, effect, class, result, evidence string
}

func (a *app) resolve() *cobra.Command {
	var r resolving
	c := &cobra.Command{
		Use:   "resolve TRACE --outcome ran|failed|not-run|--effect FILE --evidence TEXT",
		Short: "Settle a call in doubt with evidence of what happened",
		Long: `resolve ends a call in doubt with an effect that you vouch for:

  ran      the call was executed and succeeded
  failed   the call was executed, or refused, and failed for good
  not-run  the call was certainly not executed, and never will be: its key is free for
           an explicit new attempt (call --retry)

--effect takes the whole of it from a file, as the protocol has it for resolve:
{"status":"SUCCESS","result":{…},"changes":[…]}.

The evidence is stored with the effect, and your name beside it. Whoever asks with the
same key is served this outcome.

` + r.many.help() + `
In --evidence, {key} and {trace} stand for those of each call: --evidence
@statements/{key}.txt.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.read(); err != nil {
				return err
			}
			return r.many.each(cmd.Context(), a, args, func(ctx context.Context, c *client.Client, t wire.OpenTrace) (func() (runtime.Result, error), error) {
				this, err := r.Resolution, error(nil)
				if len(args) > 0 {
					this.Evidence, err = textOrFile(r.evidence)
				} else {
					this.Evidence, err = r.many.evidence(r.evidence, t)
				}
				if len(args) == 0 {
					this.Attempts = t.Attempts // as they were chosen: one may be sent again meanwhile
				}
				return func() (runtime.Result, error) { return c.Resolve(ctx, t.TraceID, this) }, err
			})
		},
	}
	f := c.Flags()
	r.many.flags(f)
	f.StringVar(&r.outcome, "outcome", "", "ran, failed or not-run")
	f.StringVar(&r.effect, "effect", "", "the effect, from a JSON `file`")
	f.StringVar(&r.evidence, "evidence", "", "why it is known; @`file` reads it from a file")
	f.StringVar(&r.result, "result", "", "the tool's answer, where it is known; @`file` reads it from a file")
	f.StringVar(&r.Summary, "summary", "", "one sentence, at most 500 characters")
	f.Uint32Var(&r.Attempts, "attempts", 0, "how many attempts in-doubt said when you looked; not-run is refused where there are more by now")
	f.StringVar(&r.class, "class", "", "outcome class, where it is not what the outcome implies")
	f.StringVar(&r.ErrorMessage, "error", "", "what went wrong, at most 200 characters")
	return c
}

// read fills the resolution from the flags, as far as it is the same for every call.
func (r *resolving) read() (err error) {
	switch o, ok := story.Known[r.outcome]; {
	case r.effect != "" && (r.outcome != "" || r.result != "" || r.class != "" || r.Summary != "" || r.ErrorMessage != ""):
		return cli.Usagef("--effect says all of the effect: give it or the other flags, not both")
	case r.effect != "":
		if r.Reply, err = effectIn(r.effect); err != nil {
			return err
		}
	case !ok:
		return cli.Usagef("--outcome is ran, failed or not-run, not %q", r.outcome)
	default:
		r.Status, r.Class = o.Status, o.Class
	}
	if r.class != "" {
		if r.Class, err = ledger.ParseClass(r.class); err != nil {
			return cli.Usage(err)
		}
	}
	if r.evidence == "" {
		return cli.Usagef("--evidence is required: a resolution without it is a guess")
	}
	if r.result != "" {
		r.Result, err = textOrFile(r.result)
	}
	return err
}

// settled prints the state of a trace that a person has ended. A FAILED trace is no error
// here: the person asked for that outcome.
func (a *app) settled(res runtime.Result, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		return a.message(callMessage(res))
	}
	a.Printf("trace %s %s seq %d\n", res.TraceID, res.State, res.Seq)
	return nil
}

// textOrFile returns text, or what is in the file that "@file" names.
func textOrFile(s string) ([]byte, error) {
	if name, ok := strings.CutPrefix(s, "@"); ok {
		return os.ReadFile(name)
	}
	return []byte(s), nil
}

// effectIn reads an effect from a file. It checks only the form: the daemon checks the rest.
func effectIn(name string) (runtime.Reply, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return runtime.Reply{}, err
	}
	var o wire.Outcome
	if err := tga.Gate(raw, tga.Limits{MaxBytes: tga.MostBytes}); err != nil {
		return runtime.Reply{}, cli.Usagef("%s: %w", name, err)
	}
	if err := wire.Decode(raw, &o); err != nil {
		return runtime.Reply{}, cli.Usagef("%s: %w", name, err)
	}
	r := runtime.Reply{
		Status: o.Status, Summary: o.Summary, ErrorCode: o.ErrorCode, ErrorMessage: o.ErrorMessage,
		Result: o.ResultBase64, ResultBytes: o.ResultBytes, ResultDigest: o.ResultDigest, Changes: o.Changes,
	}
	if o.Result != nil {
		r.Result = o.Result
	}
	if o.OutcomeClass != "" {
		r.Class, err = ledger.ParseClass(o.OutcomeClass)
	}
	return r, err
}
