package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/internal/killtest"
	"github.com/tgad/tgad/internal/report"
)

// results are the results of runs of the crash tests, of the kill test and of the speed test.
type results struct {
	crash []*crashtest.Result
	kill  []*killtest.Result
	speed []*killtest.Speed
}

func reportVerb(s *cli.Streams) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "report RESULT...",
		Short: "Write a report of results of the crash tests and of the kill test",
		Long: `report reads files of results, of the crash tests, of the kill test or of speed, and writes
one HTML file: figures, tiers, faults by kind, planted bugs that were found, what became of
the calls of each engine and how fast they were, and how to repeat each run. The file loads
nothing from anywhere. Several files are added up.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var all results
			for _, arg := range args {
				if err := all.read(arg); err != nil {
					return err
				}
			}
			page, err := all.page()
			if err != nil {
				return err
			}
			if name == "" {
				_, err = s.Out.Write(page)
				return err
			}
			return os.WriteFile(name, page, 0o644)
		},
	}
	c.Flags().StringVarP(&name, "output", "o", "", "write to a `file` instead of stdout")
	return c
}

// htmlFlag adds the flag --html to a verb that runs a test.
func htmlFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "html", "", "write a report as well, one HTML `file`")
}

// htmlFits checks early that the report can be written at the end of a run.
func htmlFits(name string) error {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(filepath.Dir(name)); err != nil || !info.IsDir() {
		return cli.Usagef("--html %q: its directory is not there", name)
	}
	return nil
}

// write writes the report to a file; "" = none.
func (r *results) write(name string) error {
	if name == "" {
		return nil
	}
	page, err := r.page()
	if err != nil {
		return err
	}
	return os.WriteFile(name, page, 0o644)
}

// read adds the objects of a file. The members of an object tell which test it is from.
func (r *results) read(name string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	n := 0
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; n++ {
		var one json.RawMessage
		if err = dec.Decode(&one); err != nil {
			break
		}
		if err = r.add(one); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) && n > 0 {
		return nil
	}
	return fmt.Errorf("%s: object %d: %w", name, n+1, err)
}

func (r *results) add(raw json.RawMessage) error {
	var of struct {
		Counts *struct{}              `json:"counts"`
		All    *struct{}              `json:"all"`
		Points map[killtest.Point]any `json:"points"`
		Speed  *float64               `json:"per_second"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	switch {
	case of.Counts != nil:
		res := &crashtest.Result{}
		r.crash = append(r.crash, res)
		return json.Unmarshal(raw, res)
	case of.All != nil:
		for _, p := range killtest.Points() {
			if of.Points[p] == nil {
				return fmt.Errorf("it says nothing of the point %s", p)
			}
		}
		res := &killtest.Result{}
		r.kill = append(r.kill, res)
		return json.Unmarshal(raw, res)
	}
	if of.Speed != nil {
		res := &killtest.Speed{}
		r.speed = append(r.speed, res)
		return json.Unmarshal(raw, res)
	}
	return errors.New("it is no result: want what torture -result, or tgad torture compare or speed, has written")
}

// page returns the report as HTML.
func (r *results) page() ([]byte, error) {
	var all []report.Section
	if len(r.crash) > 0 {
		all = append(all, r.crashSections()...)
	}
	if len(r.kill) > 0 {
		all = append(all, r.killSections()...)
	}
	if len(r.speed) > 0 {
		all = append(all, r.speedSections()...)
	}
	var titles []string
	for _, of := range []struct {
		n    int
		name string
	}{{len(r.crash), "the crash proof"}, {len(r.kill), "the kill test"}, {len(r.speed), "the speed of engines"}} {
		if of.n > 0 {
			titles = append(titles, of.name)
		}
	}
	title := strings.Join(titles, ", ")
	return report.Of(strings.ToUpper(title[:1])+title[1:], "tgad "+cli.BuildVersion().Version, all)
}

func (r *results) crashSections() []report.Section {
	total := &crashtest.Counts{}
	runs := report.Table{Name: "Runs", Rows: [][]string{{"began", "seed", "commit", "machine", "tiers", "seconds"}}}
	about := report.Section{Heading: "Crashes", Say: []string{"Stores are crashed before each of their operations, their disks fail, their files are damaged, and one checker holds what is left to the guarantee. " +
		"The tool servers and the callers are outside of what is tested: they write down each call and each answer, and neither reads the log. " +
		"Redispatches, double effects, acked losses and corruptions silent must be 0, and each planted bug must be found."}}
	var repeat, said []string
	for _, res := range r.crash {
		var names []string
		seconds := 0.0
		for _, t := range res.Tiers {
			names, seconds = append(names, t.Name), seconds+t.Seconds
			for _, line := range t.Said {
				said = append(said, t.Name+": "+line)
			}
		}
		runs.Rows = append(runs.Rows, []string{res.Began.UTC().Format(time.DateTime), fmt.Sprint(res.Seed), res.Commit, res.Machine, strings.Join(names, " "), fmt.Sprintf("%.0f", seconds)})
		repeat = append(repeat, fmt.Sprintf("git checkout %s && go run ./internal/crashtest/torture -tiers %s -seed %d -budget %.0fs -result FILE",
			shellWord(strings.TrimSuffix(res.Commit, "+")), shellWord(strings.Join(names, ",")), res.Seed, seconds))
		for _, v := range res.Found {
			about.Problems = append(about.Problems, v.String())
		}
		total.Add(res.Counts)
	}
	if err := total.Err(); err != nil {
		about.Problems = append([]string{err.Error()}, about.Problems...)
	}
	figures := report.Table{Name: "What the runs reached", Rows: [][]string{{"figure", "number"}}}
	reached := report.Rows{Title: "What the runs reached", X: report.Axis{Name: "number", Log: true}, Names: []string{"all runs"}}
	total.Each(func(name string, n int64) {
		figures.Rows = append(figures.Rows, []string{words(name), report.Grouped(n)})
		if n > 0 {
			reached.Rows = append(reached.Rows, report.Row{Name: words(name), Figures: []float64{float64(n)}})
		}
	})
	about.Tables = []report.Table{runs}
	return []report.Section{about,
		{Heading: "Figures", Plots: []report.Plot{reached}, Tables: []report.Table{figures}},
		r.tiers(), faults(total), planted(total, said),
		{Heading: "What the tiers said", Folded: fmt.Sprintf("%d lines", len(said)), Lines: said},
		{Heading: "How to repeat the crashes", Say: []string{"A seed fixes what is random within a tier. How many rounds a tier makes depends on the machine. The last command makes this page."},
			Commands: append(repeat, "tgad torture report FILE -o report.html")},
	}
}

// words returns the name of a figure with spaces.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// shellWord returns s if a shell takes it literally, or else an ellipsis: readers copy the commands of the
// report into a shell.
func shellWord(s string) string {
	if regexp.MustCompile(`^[\w.,-]+$`).MatchString(s) {
		return s
	}
	return "…"
}

// perTier are the figures of the table of tiers.
var perTier = []string{"crash_points", "recoveries", "double_crashes", "injections", "sigkills", "power_cuts", "block_log_images", "rapid_sequences", "corruptions", "bad_inputs",
	"planted_bugs_killed", "redispatches", "double_effects", "acked_losses", "corruptions_silent"}

// tiers returns a table with a row for each tier. The figures are sums over the runs that have figures of
// that tier alone.
func (r *results) tiers() report.Section {
	type sum struct {
		runs, told int
		seconds    float64
		counts     *crashtest.Counts
	}
	sums := map[string]*sum{}
	var names []string
	for _, res := range r.crash {
		for _, t := range res.Tiers {
			if sums[t.Name] == nil {
				sums[t.Name] = &sum{counts: &crashtest.Counts{}}
				names = append(names, t.Name)
			}
			s, own := sums[t.Name], t.Counts
			if own == nil && len(res.Tiers) == 1 {
				own = res.Counts
			}
			s.runs, s.seconds = s.runs+1, s.seconds+t.Seconds
			if own != nil {
				s.told++
				s.counts.Add(own)
			}
		}
	}
	header := []string{"tier", "runs", "seconds", "runs with figures"}
	for _, name := range perTier {
		header = append(header, words(name))
	}
	table := report.Table{Name: "Figures per tier", Rows: [][]string{header}}
	plot := report.Rows{Title: "Time and recoveries of each tier", X: report.Axis{Name: "seconds, recoveries", Log: true}, Names: []string{"seconds", "recoveries"}}
	for _, name := range names {
		s := sums[name]
		of := map[string]int64{}
		s.counts.Each(func(name string, n int64) { of[name] = n })
		row := []string{name, fmt.Sprint(s.runs), fmt.Sprintf("%.0f", s.seconds), fmt.Sprint(s.told)}
		for _, figure := range perTier {
			if s.told == 0 {
				row = append(row, "")
			} else {
				row = append(row, report.Grouped(of[figure]))
			}
		}
		table.Rows = append(table.Rows, row)
		plot.Rows = append(plot.Rows, report.Row{Name: name, Figures: []float64{s.seconds, float64(of["recoveries"])}})
	}
	return report.Section{Heading: "Tiers", Plots: []report.Plot{plot}, Tables: []report.Table{table},
		Say: []string{"A run that has several tiers and that does not say what each reached counts among the runs, and not among the runs with figures."}}
}

// faults returns a table of the faults of disks and files that were made, by kind.
func faults(total *crashtest.Counts) report.Section {
	kinds := []struct {
		name string
		n    int64
	}{
		{"operation of the disk failed: input/output error", total.InjectedIO}, {"operation of the disk failed: no space left", total.InjectedSpace},
		{"of these, all later operations failed too", total.InjectedSticky}, {"of these, the operation took place and was said to fail", total.InjectedDone},
		{"file damaged or cut", total.Corruptions}, {"of these, accepted unnoticed", total.CorruptionsSilent},
		{"index thrown away before a recovery", total.IndexesLost}, {"process killed", total.Sigkills}, {"power cut of a file system", total.PowerCuts},
		{"subset of unflushed block writes", total.BlockLogImages}, {"bad input given to a decoder or parser", total.BadInputs},
	}
	table := report.Table{Name: "Faults by kind", Rows: [][]string{{"fault", "number"}}}
	plot := report.Rows{Title: "Faults by kind", X: report.Axis{Name: "number", Log: true}, Names: []string{"number"}}
	for _, k := range kinds {
		table.Rows = append(table.Rows, []string{k.name, report.Grouped(k.n)})
		plot.Rows = append(plot.Rows, report.Row{Name: k.name, Figures: []float64{float64(k.n)}})
	}
	return report.Section{Heading: "Faults by kind", Plots: []report.Plot{plot}, Tables: []report.Table{table}}
}

var plantedLine = regexp.MustCompile(`^planted: planted (\S+) +(killed after|SURVIVED) +([\d.]+) s (.*)`)

// planted returns a table of the planted bugs, and what found each.
func planted(total *crashtest.Counts, said []string) report.Section {
	s := report.Section{Heading: "Planted bugs", Say: []string{fmt.Sprintf("Bugs are written into a build of its own, one at a time, and a tier must find each: %s of %s were found.",
		report.Grouped(total.PlantedBugsKilled), report.Grouped(total.PlantedBugs))}}
	table := report.Table{Name: "Planted bugs", Rows: [][]string{{"bug", "found", "after, seconds", "by"}}}
	for _, line := range said {
		if m := plantedLine.FindStringSubmatch(line); m != nil {
			found := "yes"
			if m[2] == "SURVIVED" {
				found = "NO"
				s.Problems = append(s.Problems, m[1]+" was not found")
			}
			table.Rows = append(table.Rows, []string{m[1], found, m[3], strings.TrimPrefix(m[4], "by ")})
		}
	}
	if len(table.Rows) > 1 {
		slices.SortStableFunc(table.Rows[1:], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
		s.Tables = []report.Table{table}
	}
	return s
}

func (r *results) killSections() []report.Section {
	about := report.Section{Heading: "Kills", Say: []string{"Each engine is killed with SIGKILL at the points of a call, started again, and asked for the call by its key, as a client does that got no answer. " +
		"A payment service outside, which is never killed, counts the charges before any byte of its answer leaves. " +
		"In the world plain each request is a charge; in the world keyed all requests with one Idempotency-Key are one."}}
	plot := report.Rows{Title: "What became of the calls of each engine", X: report.Axis{Name: "calls"}, Names: []string{"doubled", "lost or spoken of falsely", "in doubt"}}
	runs := report.Table{Name: "Runs", Rows: [][]string{{"engine", "world", "seed", "commit", "machine", "protocol", "seconds"}}}
	for _, res := range r.kill {
		of := func(all ...killtest.Verdict) (n float64) {
			for _, v := range all {
				n += float64(res.All.Became[v.String()])
			}
			return n
		}
		plot.Rows = append(plot.Rows, report.Row{Name: res.Engine + ", " + res.World, Figures: []float64{of(killtest.Doubled), of(killtest.Lost, killtest.False), of(killtest.InDoubt)}})
		runs.Rows = append(runs.Rows, []string{res.Engine, res.World, fmt.Sprint(res.Seed), res.Commit, res.Machine, fmt.Sprint(res.Protocol), fmt.Sprintf("%.1f", res.Seconds)})
		if err := res.Err(); err != nil && strings.HasPrefix(res.Engine, "tgad") {
			about.Problems = append(about.Problems, err.Error())
		}
	}
	about.Plots = []report.Plot{plot}
	about.Tables = []report.Table{{Name: "What became of the calls", Rows: killtest.Rows(r.kill)}, {Name: "Faults by the point of the kill", Rows: killtest.PointRows(r.kill)}, runs}
	first := r.kill[0]
	return []report.Section{about, {Heading: "How to repeat the kills", Say: []string{"The first command takes what needs no server. The second installs the servers of the other engines, and takes half an hour. The last makes this page."},
		Commands: []string{
			fmt.Sprintf("tgad torture compare --calls %d --seed %d --result FILE", first.All.Calls, first.Seed),
			fmt.Sprintf("make torture-compare CALLS=%d RESULT=FILE", first.All.Calls),
			"tgad torture report FILE -o report.html",
		}}}
}

func (r *results) speedSections() []report.Section {
	about := report.Section{Heading: "Speed", Say: []string{"All engines run at once, nothing is killed, and one after the other makes calls for a slice of time, in several rounds; each figure is the median over the rounds. " +
		"The payment service answers at once, so what is measured is what the engine takes to make a call durable. " +
		"A rate is compared with that of the first engine in the same round: compare these and not the times of two runs."}}
	rate := report.Lines{Title: "Calls of each engine", X: report.Axis{Name: "callers at once", Log: true}, Y: report.Axis{Name: "calls per second", Log: true}, Dots: true}
	took := report.Rows{Title: "How long a call takes", X: report.Axis{Name: "µs", Log: true}, Names: []string{"p50", "p99"}}
	seen := map[int]bool{}
	for _, s := range r.speed {
		i := slices.IndexFunc(rate.Lines, func(l report.Line) bool { return l.Name == s.Engine })
		if i < 0 {
			i = len(rate.Lines)
			rate.Lines = append(rate.Lines, report.Line{Name: s.Engine})
		}
		rate.Lines[i].Points = append(rate.Lines[i].Points, [2]float64{float64(s.Callers), s.PerSecond})
		if !seen[s.Callers] {
			seen[s.Callers] = true
			rate.X.Ticks = append(rate.X.Ticks, float64(s.Callers))
		}
		took.Rows = append(took.Rows, report.Row{Name: fmt.Sprintf("%s, %d callers", s.Engine, s.Callers), Figures: []float64{s.P50, s.P99}})
	}
	about.Facts = [][2]string{{"commit", r.speed[0].Commit}, {"machine", r.speed[0].Machine}}
	about.Plots = []report.Plot{rate, took}
	about.Tables = []report.Table{{Name: "Speed of each engine", Rows: killtest.SpeedRows(r.speed)}}
	return []report.Section{about, {Heading: "How to repeat the speed", Say: []string{"The first command takes what needs no server. The second installs the servers of the other engines. The last makes this page."},
		Commands: []string{"tgad torture speed --result FILE", "make torture-speed RESULT=FILE", "tgad torture report FILE -o report.html"}}}
}
