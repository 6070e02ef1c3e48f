package killtest

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/killtest/adapter"
)

// Counts are calls by what became of them.
type Counts struct {
	Calls   int            `json:"calls"`
	Kills   int            `json:"kills"`
	Charges int            `json:"charges"`
	Became  map[string]int `json:"became"` // by the name of the verdict, every one of them
}

func newCounts() *Counts {
	c := &Counts{Became: map[string]int{}}
	for _, v := range Verdicts() {
		c.Became[v.String()] = 0
	}
	return c
}

func (c *Counts) add(kills, charges int, v Verdict) {
	c.Calls++
	c.Kills += kills
	c.Charges += charges
	c.Became[v.String()]++
}

// Faults is how many calls were doubled, lost, or spoken of falsely.
func (c *Counts) Faults() int {
	return c.Became[Doubled.String()] + c.Became[Lost.String()] + c.Became[False.String()]
}

// Result is the result of a run.
type Result struct {
	Engine   string            `json:"engine"` // as the adapter names it
	World    string            `json:"world"`  // plain or keyed
	Protocol int               `json:"protocol"`
	Seed     uint64            `json:"seed"`
	Commit   string            `json:"commit,omitempty"`
	Machine  string            `json:"machine,omitempty"`
	Seconds  float64           `json:"seconds"`
	All      *Counts           `json:"all"`
	Points   map[Point]*Counts `json:"points"` // by where the kill was meant to be
}

// The two worlds, as flags and results name them.
const (
	Plain = "plain" // each request is a charge
	Keyed = "keyed" // all requests with one Idempotency-Key are one charge
)

func (r *run) result(took time.Duration) *Result {
	res := &Result{Engine: r.engine, World: Plain, Protocol: adapter.Protocol, Seed: r.o.Seed, Seconds: took.Round(100 * time.Millisecond).Seconds(), All: newCounts(), Points: map[Point]*Counts{}}
	if r.o.Dedupes {
		res.World = Keyed
	}
	res.All.Kills = r.kills
	for _, p := range Points() {
		res.Points[p] = newCounts()
	}
	for _, c := range r.calls {
		charges := r.world.made(c.key)
		v := judge(charges, c.got, c.last)
		res.All.add(c.kills, charges, v)
		res.Points[c.point].add(c.kills, charges, v)
	}
	return res
}

// Err says which faults the engine has.
func (res *Result) Err() error {
	if res.All.Faults() == 0 {
		return nil
	}
	var faults []string
	for _, v := range []Verdict{Doubled, Lost, False} {
		if n := res.All.Became[v.String()]; n > 0 {
			faults = append(faults, fmt.Sprintf("%d %s", n, title(v)))
		}
	}
	return fmt.Errorf("%s, world %s: of %d calls %s", res.Engine, res.World, res.All.Calls, strings.Join(faults, ", "))
}

func title(v Verdict) string { return strings.ReplaceAll(v.String(), "_", " ") }

// Table prints a row for each result, and then the faults of each by the point of the kill.
func Table(out io.Writer, results []*Result) error {
	return errors.Join(table(out, Rows(results)), table(out, PointRows(results)))
}

// Rows are the cells of the table of verdicts, its header first.
func Rows(results []*Result) [][]string {
	header := []string{"engine", "world", "calls", "kills", "charges"}
	for _, v := range Verdicts() {
		header = append(header, title(v))
	}
	rows := [][]string{header}
	for _, res := range results {
		row := []string{res.Engine, res.World, fmt.Sprint(res.All.Calls), fmt.Sprint(res.All.Kills), fmt.Sprint(res.All.Charges)}
		for _, v := range Verdicts() {
			row = append(row, fmt.Sprint(res.All.Became[v.String()]))
		}
		rows = append(rows, row)
	}
	return rows
}

// PointRows are the cells of the table of faults by point: calls that were doubled, lost or spoken of
// falsely, of the calls with a kill at that point.
func PointRows(results []*Result) [][]string {
	header := []string{"faults by point of kill", "world"}
	for _, p := range Points() {
		header = append(header, string(p))
	}
	rows := [][]string{header}
	for _, res := range results {
		row := []string{res.Engine, res.World}
		for _, p := range Points() {
			c := res.Points[p]
			row = append(row, fmt.Sprintf("%d of %d", c.Faults(), c.Calls))
		}
		rows = append(rows, row)
	}
	return rows
}
