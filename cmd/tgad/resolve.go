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
)

func (a *app) resolve() *cobra.Command {
	var r runtime.Resolution
	var outcome, effect, class, result, evidence string
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
same key is served this outcome.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := cli.ParseID(args[0])
			if err != nil {
				return err
			}
			switch o, ok := story.Known[outcome]; {
			case effect != "" && (outcome != "" || result != "" || class != "" || r.Summary != "" || r.ErrorMessage != ""):
				return cli.Usagef("--effect says all of the effect: give it or the other flags, not both")
			case effect != "":
				if r.Reply, err = effectIn(effect); err != nil {
					return err
				}
			case !ok:
				return cli.Usagef("--outcome is ran, failed or not-run, not %q", outcome)
			default:
				r.Status, r.Class = o.Status, o.Class
			}
			if class != "" {
				if r.Class, err = ledger.ParseClass(class); err != nil {
					return cli.Usage(err)
				}
			}
			if r.Evidence, err = textOrFile(evidence); err != nil {
				return err
			}
			if len(r.Evidence) == 0 {
				return cli.Usagef("--evidence is required: a resolution without it is a guess")
			}
			if result != "" {
				if r.Result, err = textOrFile(result); err != nil {
					return err
				}
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return a.settled(c.Resolve(ctx, id, r))
			})
		},
	}
	f := c.Flags()
	f.StringVar(&outcome, "outcome", "", "ran, failed or not-run")
	f.StringVar(&effect, "effect", "", "the effect, from a JSON `file`")
	f.StringVar(&evidence, "evidence", "", "why it is known; @`file` reads it from a file")
	f.StringVar(&result, "result", "", "the tool's answer, where it is known; @`file` reads it from a file")
	f.StringVar(&r.Summary, "summary", "", "one sentence, at most 500 characters")
	f.StringVar(&class, "class", "", "outcome class, where it is not what the outcome implies")
	f.StringVar(&r.ErrorMessage, "error", "", "what went wrong, at most 200 characters")
	return c
}

// settled prints where a trace stands that somebody ended. Whatever they ended it
// with is what they asked for, so a FAILED trace is no error here.
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

// effectIn reads an effect from a file. What the daemon would refuse is refused by it.
func effectIn(name string) (runtime.Reply, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return runtime.Reply{}, err
	}
	var o client.Outcome
	if err := tga.Gate(raw, tga.Limits{MaxBytes: tga.MostBytes}); err != nil {
		return runtime.Reply{}, cli.Usagef("%s: %w", name, err)
	}
	if err := client.Decode(raw, &o); err != nil {
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
