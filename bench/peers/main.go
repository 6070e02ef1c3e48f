// Peers measures the same durable append in other stores, interleaved in one run with tgad's
// own and with the least that durability costs on the disk.
//
//	cd bench/peers && go run .            a table
//	cd bench/peers && go run . -json      JSON lines
//	cd bench/peers && go run . -kill 50   the kill test, see kill.go
//
// A record is a key (16 bytes of trace, 8 of sequence) and a value of -bytes. A peer
// acknowledges it once it is on disk; the setting for that is printed beside its name. Peers
// do nothing else. tgad's rows also make canonical form, digests, chain, ledger and global
// order, on artifacts of -bytes each.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
)

// peer is one store, open.
type peer struct {
	setting string
	// put makes a record durable, as writer w.
	put   func(w int, key, value []byte) error
	syncs func() uint64 // of its log; nil = not counted
	close func() error
}

// peers are the stores that are compared. open opens a store in a new directory, for a number
// of writers.
var peers = []struct {
	name string
	open func(dir string, writers int) (*peer, error)
}{
	{"pebble", openPebble},
	{"pebble_tuned", openTunedPebble},
	{"raft_wal", openRaftWAL},
	{"bbolt", openBbolt},
	{"badger", openBadger},
	{"sqlite", openSQLite},
	{"sqlite_grouped", openGroupedSQLite},
	{"postgresql", openPostgres},
	{"nats_jetstream", openNATS},
	{"json_lines", openJSONLines},
}

func main() {
	var (
		asJSON  = flag.Bool("json", false, "print JSON lines")
		dir     = flag.String("dir", "", "where to put the stores (default: a directory under the current one)")
		only    = flag.String("only", "", "names of peers, separated by commas; empty is all")
		rounds  = flag.Int("rounds", 5, "rounds; ratios are medians over them")
		slice   = flag.Duration("slice", 400*time.Millisecond, "time of each peer in each round")
		size    = flag.Int("bytes", 1<<10, "bytes of a value")
		writers = flag.String("writers", "1,16,64,256", "numbers of writers")
		kill    = flag.Int("kill", 0, "only make so many calls with each store that runs steps, each killed after its effect")
	)
	if is, err := victim(); is {
		exit(err)
	}
	flag.Parse()
	if *kill > 0 {
		exit(inTemp(*dir, func(dir string) error { return killTest(dir, *kill, os.Stdout) }))
	}
	exit(inTemp(*dir, func(dir string) error {
		return run(*asJSON, dir, *only, *writers, *rounds, *slice, *size, os.Stdout)
	}))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inTemp runs f with a directory under parent that is removed afterwards.
func inTemp(parent string, f func(dir string) error) (err error) {
	if parent == "" {
		parent = "."
	}
	dir, err := os.MkdirTemp(parent, "peers-data-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// PostgreSQL runs as another user, who must reach its directory.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return f(dir)
}

func run(asJSON bool, dir, only, writers string, rounds int, slice time.Duration, size int, out io.Writer) (err error) {
	goruntime.GOMAXPROCS(goruntime.NumCPU() + 1)
	b := &bench{dir: dir, size: size, only: only}
	defer func() { err = errors.Join(err, b.close()) }()
	for n := range strings.SplitSeq(writers, ",") {
		var w int
		if _, err := fmt.Sscan(n, &w); err != nil || w < 1 {
			return fmt.Errorf("-writers %q: want numbers", writers)
		}
		if err := b.add(w); err != nil {
			return err
		}
	}
	lines, err := measure.Run(b.subjects, rounds, slice, os.Stderr)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(out)
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	return table(out, lines)
}

// bench is what is open during a run.
type bench struct {
	dir, only string
	size      int
	subjects  []*measure.Subject
	closers   []func() error
}

func (b *bench) close() error {
	var err error
	for i := len(b.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, b.closers[i]())
	}
	return err
}

// add opens every store once for a number of writers.
func (b *bench) add(writers int) error {
	dir := filepath.Join(b.dir, fmt.Sprint(writers))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	limit, err := measure.NewLimit(dir, 64<<20)
	if err != nil {
		return err
	}
	b.closers = append(b.closers, limit.Close)
	ours, err := load.OpenStore(filepath.Join(dir, "tgad"), b.size)
	if err != nil {
		return err
	}
	b.closers = append(b.closers, ours.DB.Close)
	fused, effect := ours.Fused(writers)
	b.subjects = append(b.subjects, limit.Subject(writers, b.size), ours.Append(writers), fused, effect)
	for _, kind := range peers {
		if b.only != "" && !strings.Contains(","+b.only+",", ","+kind.name+",") {
			continue
		}
		at := filepath.Join(dir, kind.name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		p, err := kind.open(at, writers)
		if err != nil {
			return fmt.Errorf("open %s: %w", kind.name, err)
		}
		b.closers = append(b.closers, p.close)
		b.subjects = append(b.subjects, b.subject(kind.name, p, writers))
	}
	return nil
}

// subject appends records of traces of four, as tgad's own rows do.
func (b *bench) subject(name string, p *peer, writers int) *measure.Subject {
	makers := make([]*load.Maker, writers)
	type at struct {
		key [24]byte
		n   int
	}
	states := make([]at, writers)
	for w := range makers {
		makers[w] = load.New(b.size)
	}
	return &measure.Subject{Case: name, Writers: writers, Bytes: b.size, Syncs: p.syncs, Note: p.setting, Op: func(w int) (time.Duration, error) {
		s := &states[w]
		if s.n%4 == 0 {
			id := makers[w].Next().ID
			copy(s.key[:], id[:])
		}
		s.n++
		s.key[23] = byte(s.n % 4)
		value := []byte(makers[w].Text(b.size))
		start := time.Now()
		err := p.put(w, s.key[:], value)
		return time.Since(start), err
	}}
}

func table(out io.Writer, lines []measure.Line) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "store\twriters\tp50 µs\tp99 µs\tper second\tfsyncs per append\tbytes written\tallocs\tCPU µs\tp50 ratio\trate ratio\t  setting\t")
	for _, l := range lines {
		syncs := fmt.Sprintf("%.3f", l.Syncs)
		if l.Syncs == 0 {
			syncs = "not counted"
		}
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.0f\t%s\t%.0f\t%.0f\t%.1f\t%.2f\t%.3f\t  %s\t\n", l.Case, l.Writers, l.P50, l.P99, l.PerSec, syncs, l.BytesWritten, l.Allocs, l.CPU, l.P50Ratio, l.ThroughputRatio, l.Note)
	}
	return w.Flush()
}
