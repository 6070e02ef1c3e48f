package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// doubts chooses calls in doubt by their properties: after an outage there may be many.
type doubts struct {
	tool, namespace, cause, since, before string

	dry   bool
	count int // of the calls that the person saw
}

func (d *doubts) flags(f *pflag.FlagSet) {
	f.StringVar(&d.tool, "tool", "", "instead of TRACE: the calls in doubt of a `SERVER` or SERVER/TOOL")
	f.StringVar(&d.namespace, "namespace", "", "likewise of a namespace")
	f.StringVar(&d.cause, "cause", "", "likewise with this `text` in their cause")
	f.StringVar(&d.since, "since", "", "likewise those that came into doubt at this `time` or later; 2h means two hours ago")
	f.StringVar(&d.before, "before", "", "likewise in doubt since before this `time`")
	f.BoolVar(&d.dry, "dry-run", false, "list the chosen calls, and settle none")
	f.IntVar(&d.count, "count", 0, "how many calls are chosen, as --dry-run said; with another number none is settled")
}

// help returns the help text about settling many calls at once.
func (d *doubts) help() string {
	return `After an outage many calls may be in doubt. --tool, --namespace, --cause, --since and
--before choose among them. --dry-run lists those; then --count with their number
settles them, each by itself. A call that somebody else settled first is told.`
}

// each settles the named trace or, if none is named, all chosen ones.
func (d *doubts) each(ctx context.Context, a *app, named []string, prepare func(context.Context, *client.Client, wire.OpenTrace) (func() (runtime.Result, error), error)) error {
	many, err := d.chosen(named)
	if err != nil {
		return err
	}
	var t wire.OpenTrace
	if !many {
		if t.TraceID, err = cli.ParseID(named[0]); err != nil {
			return err
		}
	}
	return a.ask(ctx, func(ctx context.Context, c *client.Client) error {
		if many {
			return d.settle(ctx, a, c, func(t wire.OpenTrace) (func() (runtime.Result, error), error) { return prepare(ctx, c, t) })
		}
		do, err := prepare(ctx, c, t)
		if err != nil {
			return err
		}
		return a.settled(do())
	})
}

// chosen reports whether calls are chosen by their properties instead of by a trace id.
func (d *doubts) chosen(one []string) (bool, error) {
	many := d.tool+d.namespace+d.cause+d.since+d.before != ""
	switch {
	case many && len(one) > 0:
		return false, cli.Usagef("name a TRACE, or choose calls by --tool and the like, not both")
	case !many && len(one) == 0:
		return false, cli.Usagef("name a TRACE, or choose calls by --tool, --namespace, --cause, --since or --before")
	case !many && (d.dry || d.count != 0):
		return false, cli.Usagef("--dry-run and --count go with --tool and the like")
	}
	return many, nil
}

// list returns the chosen calls, the oldest first.
func (d *doubts) list(all []wire.OpenTrace, now time.Time) ([]wire.OpenTrace, error) {
	since, err := cli.ParseTime("--since", d.since, now)
	if err != nil {
		return nil, err
	}
	before, err := cli.ParseTime("--before", d.before, now)
	if err != nil {
		return nil, err
	}
	return story.Choice{Tool: d.tool, Namespace: d.namespace, Cause: d.cause, Since: since, Before: before}.Of(all), nil
}

// settle lists the chosen calls (--dry-run), or settles each. It calls prepare for all of them before it
// settles the first: if prepare fails for one, no call is settled.
func (d *doubts) settle(ctx context.Context, a *app, c *client.Client, prepare func(wire.OpenTrace) (func() (runtime.Result, error), error)) error {
	all, err := c.InDoubt(ctx)
	if err != nil {
		return err
	}
	list, err := d.list(all, time.Now())
	if err != nil {
		return err
	}
	todo := make([]func() (runtime.Result, error), len(list))
	for i, t := range list {
		if todo[i], err = prepare(t); err != nil {
			return err
		}
	}
	switch {
	case d.dry:
		if err := doubtTable(a, list); err != nil || a.JSON {
			return err
		}
		a.Printf("%d calls. To settle them: the same with --count %d in place of --dry-run\n", len(list), len(list))
		return nil
	case d.count != len(list):
		return cli.Usagef("--count is %d, and %d calls are chosen now: none was settled; look at them with --dry-run", d.count, len(list))
	}
	failed := 0
	for i, t := range list {
		res, err := todo[i]()
		if err == nil {
			err = a.settled(res, nil)
		} else if ctx.Err() == nil { // somebody else may have been first
			failed++
			err = a.Aside(fmt.Sprintf("trace %s: ", t.TraceID), err)
		}
		if err != nil {
			return err
		}
	}
	if failed > 0 {
		return tga.Errorf(tga.StateInvalidTransition, "%d of %d calls were not settled: see above", failed, len(list))
	}
	return nil
}

// evidence returns the evidence for one call: text, or the content of the file that "@file" names. In
// text and in the file's name, {key} and {trace} are replaced by those of the call.
func (d *doubts) evidence(text string, t wire.OpenTrace) ([]byte, error) {
	name, file := strings.CutPrefix(text, "@")
	if !file {
		return []byte(story.Fill(text, t)), nil
	}
	if strings.Contains(name, "{key}") && (t.IdempotencyKey == "" || filepath.Base(t.IdempotencyKey) != t.IdempotencyKey || strings.HasPrefix(t.IdempotencyKey, ".")) {
		return nil, cli.Usagef("--evidence: key %q of trace %s is no name of a file; use {trace}", t.IdempotencyKey, t.TraceID)
	}
	name = story.Fill(name, t)
	said, err := os.ReadFile(name)
	if err == nil && len(said) == 0 {
		err = cli.Usagef("--evidence: %s is empty", name)
	}
	return said, err
}
