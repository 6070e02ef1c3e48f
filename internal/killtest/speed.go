package killtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/schemas/tga"
)

// SpeedOptions say what a measurement of speed does.
type SpeedOptions struct {
	Commands [][]string // of the adapters; the others are compared with the first
	Callers  []int      // at once, for each a row
	Slice    time.Duration
	Rounds   int
	Dir      string // an empty directory, absolute
	Patience time.Duration
}

// Speed is how fast an engine makes calls without kills. Each figure is the median over the rounds.
type Speed struct {
	Engine    string  `json:"engine"`
	Callers   int     `json:"callers"`
	Rounds    int     `json:"rounds"`
	Calls     int     `json:"calls"` // of all rounds
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	// Ratio is the rate divided by that of the first engine in the same round.
	Ratio float64 `json:"rate_ratio"`
	// CPU is the processor time of one call, in microseconds, of all processes of the engine and its servers.
	// 0 means not measured: only Linux gives it. Bytes written are not given, because the kernel counts a whole
	// folio, up to 1 MiB, for a small write into it.
	CPU     float64 `json:"cpu_us_per_call"`
	Commit  string  `json:"commit,omitempty"`
	Machine string  `json:"machine,omitempty"`
}

// slice is one measurement of one engine.
type slice struct {
	adapter.Loaded
	spent time.Duration
}

func (s *slice) rate() float64 { return float64(s.Calls) / s.Millis * 1e3 }

// MeasureSpeed starts all engines. In each round, and for each number of callers, one engine after the other makes
// calls for a slice of time. So if the machine is slow for a minute, it is slow for all engines. At the end
// it compares the charges of the payment service with the completed calls: an engine that does not charge each call
// once is an error, however fast it is.
func MeasureSpeed(ctx context.Context, o SpeedOptions) (speeds []*Speed, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var engines []*measured
	defer func() {
		whole := err == nil // after a failed load the number of calls is not known
		for _, m := range engines {
			err = errors.Join(err, m.end(whole))
		}
	}()
	for i, command := range o.Commands {
		m, err := startMeasured(ctx, command, filepath.Join(o.Dir, fmt.Sprint(i)), o.Patience)
		if m != nil {
			engines = append(engines, m)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", command[0], err)
		}
	}
	for _, callers := range o.Callers {
		rounds := make([][]*slice, len(engines))
		for range o.Rounds {
			for i, m := range engines {
				s, err := m.load(ctx, callers, o)
				if err != nil {
					return nil, fmt.Errorf("%s, %d callers: %w", m.run.engine, callers, err)
				}
				rounds[i] = append(rounds[i], s)
			}
		}
		for i, m := range engines {
			speeds = append(speeds, m.speed(callers, rounds[i], rounds[0]))
		}
	}
	return speeds, nil
}

func (o SpeedOptions) check() error {
	switch {
	case len(o.Commands) == 0 || len(o.Callers) == 0:
		return tga.Errorf(tga.ValidationError, "no adapter, or no number of callers")
	case slices.Min(o.Callers) < 1 || slices.Max(o.Callers) > adapter.MaxCallers:
		return tga.Errorf(tga.ValidationError, "callers %v: want 1 to %d", o.Callers, adapter.MaxCallers)
	case o.Slice < time.Millisecond || o.Slice > adapter.MaxMillis*time.Millisecond:
		return tga.Errorf(tga.ValidationError, "slice of %v: want 1ms to %v", o.Slice, adapter.MaxMillis*time.Millisecond)
	case o.Rounds < 1 || o.Rounds > MaxRounds:
		return tga.Errorf(tga.ValidationError, "%d rounds: want 1 to %d", o.Rounds, MaxRounds)
	}
	return Options{Command: o.Commands[0], Calls: 1, Dir: o.Dir, Patience: o.Patience}.check()
}

// MaxRounds bounds the rounds of a measurement.
const MaxRounds = 100

// measured is an engine under measurement.
type measured struct {
	run     *run
	servers int // process, 0 where it keeps none
	stop    func() error
	loads   int
	calls   int
}

func startMeasured(ctx context.Context, command []string, dir string, patience time.Duration) (m *measured, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	m = &measured{run: &run{o: Options{Command: command, Dir: dir, Patience: patience}}}
	if m.run.world, err = newWorld(false); err != nil {
		return nil, err
	}
	if m.servers, m.stop, err = m.run.serve(ctx); err != nil {
		return m, err
	}
	return m, m.run.start(ctx)
}

// end stops the engine. After a complete measurement it compares the charges with the completed calls.
func (m *measured) end(whole bool) (err error) {
	if m.run.process != nil {
		err = m.run.process.bury()
	}
	if m.stop != nil {
		err = errors.Join(err, m.stop())
	}
	err = errors.Join(err, m.run.world.close())
	keys, charges := m.run.world.total()
	if err == nil && whole && (keys != m.calls || charges != m.calls) {
		err = fmt.Errorf("%s completed %d calls, and the payment service has %d charges of %d keys", m.run.engine, m.calls, charges, keys)
	}
	return err
}

// load has an engine make calls for a slice of time.
func (m *measured) load(ctx context.Context, callers int, o SpeedOptions) (*slice, error) {
	m.loads++
	before := spent(m.run.process.cmd.Process.Pid, m.servers)
	a, err := m.run.process.ask(ctx, adapter.Request{Op: adapter.OpLoad, Load: &adapter.Load{
		Callers: callers, Millis: o.Slice.Milliseconds(), Prefix: fmt.Sprint("load-", m.loads),
	}}, o.Slice+o.Patience)
	if err != nil {
		return nil, m.run.process.explain(err)
	}
	m.calls += a.Loaded.Calls
	return &slice{*a.Loaded, spent(m.run.process.cmd.Process.Pid, m.servers) - before}, nil
}

// speed sums up the rounds of an engine and compares them with those of the first engine.
func (m *measured) speed(callers int, rounds, first []*slice) *Speed {
	s := &Speed{Engine: m.run.engine, Callers: callers, Rounds: len(rounds)}
	var rates, ratios, p50, p99, cpu []float64
	for i, r := range rounds {
		s.Calls += r.Calls
		rates = append(rates, r.rate())
		ratios = append(ratios, r.rate()/first[i].rate())
		p50, p99 = append(p50, r.P50), append(p99, r.P99)
		cpu = append(cpu, r.spent.Seconds()*1e6/float64(r.Calls))
	}
	s.PerSecond, s.Ratio, s.P50, s.P99, s.CPU = median(rates), median(ratios), median(p50), median(p99), median(cpu)
	return s
}

func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// SpeedRows are the cells of the table of speeds, its header first.
func SpeedRows(speeds []*Speed) [][]string {
	rows := [][]string{{"engine", "callers", "calls/s", "of the first", "p50 ms", "p99 ms", "CPU µs a call"}}
	for _, s := range speeds {
		rows = append(rows, []string{
			s.Engine, fmt.Sprint(s.Callers), fmt.Sprintf("%.0f", s.PerSecond), fmt.Sprintf("%.2f", s.Ratio),
			fmt.Sprintf("%.1f", s.P50/1e3), fmt.Sprintf("%.0f", s.P99/1e3), fmt.Sprintf("%.0f", s.CPU),
		})
	}
	return rows
}

// SpeedTable prints a row for each engine and number of callers.
func SpeedTable(out io.Writer, speeds []*Speed) error { return table(out, SpeedRows(speeds)) }

// table prints rows in columns, and an empty line.
func table(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return w.Flush()
}
