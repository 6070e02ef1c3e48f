package config

import (
	"fmt"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Retention is the part about how long the content of finished calls is kept. Without rules and
// without SealAfter nothing is erased or sealed.
type Retention struct {
	Every     Duration        `toml:"every"`      // between two looks at the store; 24h
	SealAfter Duration        `toml:"seal_after"` // finished traces move into sealed segments; absent = only by tgad seal
	Archive   string          `toml:"archive"`    // directory for an export of each call before it is erased
	Rules     []RetentionRule `toml:"rule"`       // the first that matches a trace decides
}

// RetentionRule says for how long some calls are kept. What it leaves out matches everything.
type RetentionRule struct {
	Namespace string   `toml:"namespace"`
	Server    string   `toml:"server"`
	Tool      string   `toml:"tool"`
	States    []string `toml:"states"`  // in which they ended
	Classes   []string `toml:"classes"` // of their outcomes, as the ledger has them

	EraseAfter Duration `toml:"erase_after"` // their end; absent = they are kept
	Drop       bool     `toml:"drop"`        // erase them without an export

	states  []tga.State
	classes []ledger.Class
}

// Ends returns the states and the outcome classes that the rule names; nil is all.
func (t *RetentionRule) Ends() ([]tga.State, []ledger.Class) { return t.states, t.classes }

// On says whether the configuration asks for retention.
func (r *Retention) On() bool { return r.SealAfter.D > 0 || len(r.Rules) > 0 }

// shortRetention is the shortest time to keep a call without a warning. If its caller repeats the call after
// the erasure, the answer is only that the effect is gone.
const shortRetention = 24 * time.Hour

func (t *Retention) check(r *report, store *Store) {
	r.duration("retention.every", t.Every)
	if t.Every.D != 0 && t.Every.D < time.Second {
		r.add("retention.every", "%s: want a second or more", t.Every.D)
	}
	r.duration("retention.seal_after", t.SealAfter)
	archives, erases := false, false
	for i := range t.Rules {
		rule, at := &t.Rules[i], fmt.Sprintf("retention.rule.%d", i)
		rule.check(r, at)
		switch erase := rule.EraseAfter.D > 0; {
		case !erase && rule.Drop:
			r.add(at+".drop", "it is of a rule with erase_after: without one nothing is erased")
		case erase && !rule.Drop && t.Archive == "":
			r.add(at+".erase_after", "say where an export goes before anything is erased, with [retention] archive, or drop = true")
		default:
			erases, archives = erases || erase, archives || erase && !rule.Drop
		}
	}
	if t.Archive != "" && !archives {
		r.add("retention.archive", "no rule erases anything that would be exported to it")
	}
	if t.On() && store.URL != "" {
		r.add("retention", "it is of a store in a directory, and [store] url names a database")
	}
}

func (t *RetentionRule) check(r *report, at string) {
	r.duration(at+".erase_after", t.EraseAfter)
	for i, text := range t.States {
		s, err := tga.ParseState(text)
		if err != nil || !s.Terminal() {
			r.add(fmt.Sprintf("%s.states.%d", at, i), "%.40q: want a state in which a call ends, COMPLETED, FAILED or DENIED", text)
		}
		t.states = append(t.states, s)
	}
	for i, text := range t.Classes {
		class, err := ledger.ParseClass(text)
		if err != nil {
			r.add(fmt.Sprintf("%s.classes.%d", at, i), "%v", err)
		}
		t.classes = append(t.classes, class)
	}
}
