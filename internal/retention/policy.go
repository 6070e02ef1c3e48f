package retention

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Policy says how long the content of finished calls is kept.
type Policy struct {
	Archive   string        // directory of the exports
	SealAfter time.Duration // 0 = traces are not sealed
	Rules     []Rule
}

// Rule applies to the traces that match all of its conditions.
type Rule struct {
	Namespace, Server, Tool string // "" = any
	States                  []tga.State
	Classes                 []ledger.Class
	EraseAfter              time.Duration // 0 = the traces are kept
	Drop                    bool          // erase without an export
}

// Of returns the policy of a configuration. Its paths are absolute.
func Of(c *config.Config) (*Policy, error) {
	p := &Policy{SealAfter: c.Retention.SealAfter.D}
	if dir := c.Path(c.Retention.Archive); dir != "" {
		var err error
		if p.Archive, err = filepath.Abs(dir); err != nil {
			return nil, archiveFailed(err)
		}
	}
	for i := range c.Retention.Rules {
		r := &c.Retention.Rules[i]
		states, classes := r.Ends()
		p.Rules = append(p.Rules, Rule{
			Namespace: r.Namespace, Server: r.Server, Tool: r.Tool, States: states, Classes: classes,
			EraseAfter: r.EraseAfter.D, Drop: r.Drop,
		})
	}
	return p, nil
}

// erases reports whether any rule erases.
func (p *Policy) erases() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.EraseAfter > 0 })
}

// rule returns the index of the first rule that matches a trace, -1 if none does. It calls class
// only for rules that name classes.
func (p *Policy) rule(l *chain.Listing, class func() (ledger.Class, error)) (int, error) {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Namespace != "" && r.Namespace != l.Namespace || r.Server != "" && r.Server != l.Server || r.Tool != "" && r.Tool != l.Tool ||
			len(r.States) > 0 && !slices.Contains(r.States, l.State) {
			continue
		}
		if len(r.Classes) > 0 {
			c, err := class()
			if err != nil {
				return -1, err
			}
			if !slices.Contains(r.Classes, c) {
				continue
			}
		}
		return i, nil
	}
	return -1, nil
}

// due reports whether a trace that ended at a time is to be erased.
func (r *Rule) due(ended, now tga.Millis) bool {
	return r.EraseAfter > 0 && ended+tga.Millis(r.EraseAfter.Milliseconds()) <= now
}
