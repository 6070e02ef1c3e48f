// Bench measures what an append, a governed call, a lookup, an open and a check cost,
// beside the least that durability costs on the same disk.
//
//	go run ./bench            a table, and the plot bench.svg
//	go run ./bench -json      JSON lines, nothing else
//	go run ./bench -short     under 40 seconds
//	go run ./bench -html FILE       a report as one file as well; with -from RESULT of an earlier run
//	go run ./bench -cost      whether an append costs more than bench/cost.json says
//	go run ./bench -soak 10000000   that many appends, a line for each second
//	go run ./bench -steady 2h       a store in service for so long, a line for each minute
//
// docs/PERFORMANCE.md says what the cases are and how to read the figures.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	goruntime "runtime"
	"runtime/pprof"
	"time"

	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/internal/report"
)

type options struct {
	json, short bool
	dir, svg    string
	html, from  string
	rounds      int
	slice       time.Duration
	only        string
	history     int
	openTraces  int
	cpu, mem    string
	soak        int
	steady      time.Duration
	pause, keep time.Duration
	line        time.Duration
	cost, renew bool
}

func main() {
	var o options
	flag.BoolVar(&o.json, "json", false, "print JSON lines")
	flag.BoolVar(&o.short, "short", false, "fewer cases, shorter slices")
	flag.StringVar(&o.dir, "dir", "", "where to put the stores (default: a directory under the current one)")
	flag.StringVar(&o.svg, "svg", "", "where to write the plot (default bench.svg; with -json none)")
	flag.StringVar(&o.html, "html", "", "where to write a report of one file, with method, table and plots")
	flag.StringVar(&o.from, "from", "", "measure nothing: what an earlier run printed with -json, -soak or -steady, for -html and -svg")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; ratios are medians over them")
	flag.DurationVar(&o.slice, "slice", 0, "time of each case in each round (default 400ms; -short 120ms)")
	flag.StringVar(&o.only, "only", "", "regular expression over `case/writers/bytes`: run these and the limit")
	flag.IntVar(&o.history, "history", 0, "finished traces of the largest store that is opened and read (default 100000; -short 3000)")
	flag.IntVar(&o.openTraces, "open", 0, "open traces in each such store (default 10000; -short 300)")
	flag.IntVar(&o.soak, "soak", 0, "only append so many entries with 64 writers, and say what every second was like")
	flag.DurationVar(&o.steady, "steady", 0, "only serve 64 callers for so long, archive what they finished, and say what every -line was like")
	flag.DurationVar(&o.pause, "pause", time.Second, "with -steady: time between two calls of each caller, who all call at once")
	flag.DurationVar(&o.keep, "keep", time.Minute, "with -steady: finished traces older than this are archived, as often")
	flag.DurationVar(&o.line, "line", time.Minute, "with -steady: time of a line")
	flag.BoolVar(&o.cost, "cost", false, "fail where an append costs more than bench/cost.json says: allocations, bytes, syncs, CPU")
	flag.BoolVar(&o.renew, "renew-cost", false, "write bench/cost.json anew")
	flag.StringVar(&o.cpu, "cpuprofile", "", "write a CPU profile")
	flag.StringVar(&o.mem, "memprofile", "", "write a profile of allocations")
	flag.Parse()
	if err := run(o.withDefaults(), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o options) withDefaults() options {
	set := func(at *int, long, short int) {
		if *at == 0 {
			*at = long
			if o.short {
				*at = short
			}
		}
	}
	set(&o.history, 100_000, 3000)
	set(&o.openTraces, 10_000, 300)
	if o.slice == 0 {
		o.slice = 400 * time.Millisecond
		if o.short {
			o.slice = 120 * time.Millisecond
		}
	}
	if o.svg == "" && !o.json && o.from == "" {
		o.svg = "bench.svg"
	}
	return o
}

func run(o options, out, progress io.Writer) (err error) {
	if o.renew {
		return renewCost()
	}
	if o.cost {
		return checkCost(out)
	}
	var m measured
	if o.from != "" {
		if o.html == "" && o.svg == "" {
			return errors.New("-from: say -html FILE or -svg FILE")
		}
		m, err = read(o.from)
	} else {
		m, err = take(o, out, progress)
	}
	if err != nil {
		return err
	}
	if o.html != "" {
		page, err := m.page()
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.html, page, 0o644); err != nil {
			return err
		}
	}
	if o.svg == "" {
		return nil
	}
	image, err := report.SVG(m.plot())
	if err != nil {
		return err
	}
	return os.WriteFile(o.svg, image, 0o644)
}

// take measures, and prints.
func take(o options, out, progress io.Writer) (m measured, err error) {
	// A goroutine in fdatasync keeps its processor: with one more the others work.
	goruntime.GOMAXPROCS(goruntime.NumCPU() + 1)
	only, err := regexp.Compile(o.only)
	if err != nil {
		return m, err
	}
	parent := cmp.Or(o.dir, ".")
	dir, err := os.MkdirTemp(parent, "bench-data-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if m.about, err = machine(dir); err != nil {
		return m, err
	}
	fmt.Fprint(progress, m.about)

	stopProfile, err := startProfiles(o)
	if err != nil {
		return m, err
	}
	if o.soak > 0 || o.steady > 0 {
		var printed bytes.Buffer
		both := io.MultiWriter(out, &printed)
		if o.soak > 0 {
			err = soak(dir, o.soak, both)
		} else {
			err = runSteady(dir, o, both)
		}
		return m, errors.Join(err, m.readText(printed.String()), stopProfile())
	}
	m.Rounds, m.Slice = o.rounds, o.slice.String()
	for _, group := range []func(*suite) error{(*suite).writes, (*suite).reads} {
		s := &suite{options: o, dir: dir, only: only, progress: progress}
		err := group(s)
		if err == nil {
			var more []measure.Line
			more, err = s.run()
			m.lines, m.Facts = append(m.lines, more...), append(m.Facts, s.facts...)
		}
		if err = errors.Join(err, s.close()); err != nil {
			return m, err
		}
	}
	if err := stopProfile(); err != nil {
		return m, err
	}
	if !o.json {
		return m, printTable(out, m.String(), m.lines, m.Facts)
	}
	lines, err := m.json()
	if err == nil {
		_, err = out.Write(lines)
	}
	return m, err
}

// startProfiles begins the profiles that were asked for; the function returned writes
// them.
func startProfiles(o options) (func() error, error) {
	end := func() error { return nil }
	if o.cpu != "" {
		f, err := os.Create(o.cpu)
		if err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		end = func() error {
			pprof.StopCPUProfile()
			return f.Close()
		}
	}
	return func() error {
		if err := end(); err != nil || o.mem == "" {
			return err
		}
		f, err := os.Create(o.mem)
		if err != nil {
			return err
		}
		return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
	}, nil
}
