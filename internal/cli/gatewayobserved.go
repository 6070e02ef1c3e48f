//go:build unix

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/mcpfront"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// observed makes the verb that says what a gateway saw in observe mode.
func (g *gatewayCommand) observed() *cobra.Command {
	return &cobra.Command{
		Use:   "observed --config FILE",
		Short: "Say what a gateway saw in observe mode, and what it would have done",
		Long: `observed reads the log of a gateway whose configuration says mode = "observe". Of each tool it
says how many calls passed, how many of them are open, how many ran although the same call had
run or may have run, and what the gateway would have done with them. A call is open if nobody
answered it, and also if the answer does not say what happened.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := g.load(); err != nil {
				return err
			}
			log, stop, err := g.look(cmd.Context())
			if err != nil {
				return err
			}
			defer stop()
			all, err := readObserved(cmd.Context(), log)
			if err != nil {
				return err
			}
			return g.tellObserved(all)
		},
	}
}

// look opens the gateway's own log: through a running gateway, or directly if no process has it.
func (g *gatewayCommand) look(ctx context.Context) (log *client.Client, stop func(), err error) {
	dir := g.data
	if dir == "" {
		if dir, err = stateDir("--data"); err != nil {
			return nil, nil, err
		}
		dir = filepath.Join(dir, "store")
	}
	if socket, ok := daemon.SocketOf(dir); ok {
		c := client.New(socket, client.Options{})
		return c, func() { endClient(c, g.logger()) }, nil
	}
	e, err := embed.Visit(ctx, dir, g.conf)
	if err != nil {
		return nil, nil, err
	}
	c := e.Client(client.Options{})
	return c, func() { endClient(c, g.logger()); e.Close() }, nil
}

// observation is what passed of one tool. Each call is counted once in Would and once in Rules.
type observation struct {
	Namespace  string                 `json:"namespace"`
	ToolServer string                 `json:"tool_server"`
	ToolName   string                 `json:"tool_name"`
	Calls      int                    `json:"calls"` // that may have reached the tool server
	Open       int                    `json:"open"`  // those of them that are in doubt or under way, answered or not
	Twice      int                    `json:"twice"` // those that ran although the same call had run, or may have
	Would      map[mcpfront.Would]int `json:"would"` // what the log would have led to
	Rules      map[string]int         `json:"rules"` // what the rules say: APPROVE, …
}

// isTwice are the outcomes by which a gateway that is not in observe mode keeps a call from running twice.
var isTwice = map[mcpfront.Would]bool{mcpfront.WouldServe: true, mcpfront.WouldJoin: true, mcpfront.WouldDoubt: true, mcpfront.WouldExplain: true}

// readObserved reads the traces of a log.
func readObserved(ctx context.Context, log *client.Client) (all []*observation, err error) {
	by := map[[3]string]*observation{}
	for t, err := range log.Traces(ctx, wire.TracesQuery{All: true}) {
		if err != nil {
			return nil, err
		}
		tr, err := log.Trace(ctx, t.TraceID)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", t.TraceID, err)
		}
		would, rules, err := seenIn(&tr)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", t.TraceID, err)
		}
		if would == "" || tr.Call.Sent == 0 {
			continue // it was not observed, or did not reach the tool server
		}
		key := [3]string{tr.Namespace, t.ToolServer, t.ToolName}
		o := by[key]
		if o == nil {
			o = &observation{Namespace: key[0], ToolServer: key[1], ToolName: key[2], Would: map[mcpfront.Would]int{}, Rules: map[string]int{}}
			by[key] = o
			all = append(all, o)
		}
		o.Calls++
		o.Would[would]++
		o.Rules[rules]++
		if isTwice[would] {
			o.Twice++
		}
		if state, err := tga.ParseState(tr.Call.State); err != nil {
			return nil, fmt.Errorf("trace %s: %w", t.TraceID, err)
		} else if !state.Terminal() {
			o.Open++
		}
	}
	slices.SortFunc(all, func(a, b *observation) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ToolServer, b.ToolServer), cmp.Compare(a.ToolName, b.ToolName))
	})
	return all, nil
}

// seenIn reads from a trace what the gateway would have done with the call, and what the rules say. would is ""
// if the call was not observed.
func seenIn(tr *wire.Timeline) (would mcpfront.Would, rules string, err error) {
	for _, e := range tr.Entries {
		if string(e.Artifact) == "null" {
			continue // erased
		}
		a, err := tga.DecodeStoredArtifact(e.Artifact)
		if err != nil {
			return "", "", err
		}
		switch a.Type {
		case tga.RequestType:
			said, _ := a.Meta[mcpfront.MetaObserved].(string)
			if would = mcpfront.Would(said); said == mcpfront.Observed {
				would = mcpfront.WouldSend
			}
		case tga.DecisionType:
			rules = config.RulesWouldSay(a.Decision.Rationale)
		}
	}
	return would, rules, nil
}

func (g *gatewayCommand) tellObserved(all []*observation) error {
	var rows [][]string
	var calls, open, two int
	for _, o := range all {
		if g.JSON {
			if err := g.Line(o); err != nil {
				return err
			}
			continue
		}
		calls, open, two = calls+o.Calls, open+o.Open, two+o.Twice
		rows = append(rows, []string{o.Namespace, o.ToolServer + "/" + o.ToolName, fmt.Sprint(o.Calls), fmt.Sprint(o.Open), fmt.Sprint(o.Twice), counted(o.Would), counted(o.Rules)})
	}
	if g.JSON {
		return nil
	}
	if len(all) == 0 {
		g.Printf("no call was observed: [gateway] mode = \"observe\" has calls recorded\n")
		return nil
	}
	g.Printf("%d calls passed and were recorded. %d are open: in doubt, or under way. %d ran although the same call had run, or may have run.\n\n", calls, open, two)
	if err := g.Table([]string{"NAMESPACE", "TOOL", "CALLS", "OPEN", "TWICE", "WOULD HAVE BEEN", "RULES"}, rows); err != nil {
		return err
	}
	g.Printf("\nCalls that would have been refused as invalid, and those that passed while the log was away, are not recorded: tgad_gateway_observed_total counts them.\n")
	return nil
}

// counted formats counts with their names, the largest first.
func counted[K ~string](counts map[K]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b K) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(all, ", ")
}

// mustOwnLog refuses a daemon's log for a gateway in observe mode: the daemon's rules would hold calls back.
func (g *gatewayCommand) mustOwnLog() error {
	if !g.conf.Gateway.Observes() || strings.HasPrefix(g.find, "--data ") {
		return nil
	}
	return tga.Errorf(tga.ValidationError, "[gateway] mode is observe, and the log is a daemon's, whose rules hold calls back: give --data, so that the gateway has a log of its own")
}
