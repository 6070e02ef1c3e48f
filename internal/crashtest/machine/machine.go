// Package machine runs random sequences of commands on a store and its runtime, and checks
// every property after every command. A sequence that fails is shrunk to a smaller one.
package machine

import (
	"flag"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/internal/crashtest"
	"github.com/tgad/tgad/ledger"
)

var (
	licences   = rapid.SampledFrom([]string{"park", "probe", "dedupe_key", "dedupe_args", "read_only", "none"})
	behaviours = rapid.SampledFrom([]string{
		crashtest.Answers, crashtest.Answers, crashtest.LosesCall, crashtest.LosesReply,
		crashtest.Unreached, crashtest.Refuses, crashtest.Fails, crashtest.Long,
	})
	servers = rapid.SampledFrom([]string{crashtest.Allowed, crashtest.Allowed, crashtest.Allowed, crashtest.People, crashtest.Denied})
	losses  = rapid.SampledFrom(crashtest.Losses)
	keys    = rapid.IntRange(0, 2)
	amounts = rapid.SampledFrom([]int{5, 5, 5, 6})
)

// Sequence is one random sequence of commands.
func Sequence(r *crashtest.Run) func(*rapid.T) {
	return func(t *rapid.T) {
		conf := crashtest.Config{
			Impure:  rapid.Bool().Draw(t, "impure"),
			Segment: rapid.SampledFrom([]uint32{0, 0, 256 << 10}).Draw(t, "segment"),
		}
		if rapid.IntRange(0, 3).Draw(t, "profile") == 0 {
			conf.Profile = ledger.Spec93
		}
		s, err := r.NewSession(rapid.Uint64().Draw(t, "seed"), conf)
		if err != nil {
			t.Fatalf("a new store does not open: %v", err)
		}
		defer func() { _ = s.Close() }() // an armed error may be its error
		judge := func(bad []crashtest.Violation) {
			if len(bad) > 0 {
				s.Failed(bad)
				t.Fatalf("%v", bad[0])
			}
		}
		t.Repeat(commands(s, judge, func() { judge(s.Check()) }))
	}
}

func commands(s *crashtest.Session, judge func([]crashtest.Violation), check func()) map[string]func(*rapid.T) {
	create := func(t *rapid.T) {
		s.Create(servers.Draw(t, "server"), licences.Draw(t, "licence"), behaviours.Draw(t, "behaviour"), keys.Draw(t, "key"), amounts.Draw(t, "amount"), rapid.Bool().Draw(t, "retry"))
	}
	return map[string]func(*rapid.T){
		"create": create,
		"submit": create,
		"begin": func(t *rapid.T) {
			s.Begin(licences.Draw(t, "licence"), keys.Draw(t, "key"), rapid.IntRange(0, 1).Draw(t, "executor"), rapid.Bool().Draw(t, "now"))
		},
		"pipeline": func(t *rapid.T) {
			// Keep it rare: tearing its large groups takes more time than the rest of a sequence.
			if rapid.IntRange(0, 4).Draw(t, "rare") > 0 {
				create(t)
				return
			}
			s.Pipeline(licences.Draw(t, "licence"), keys.Draw(t, "key"), rapid.Bool().Draw(t, "held"))
		},
		"late reply": func(*rapid.T) { s.LateReply() },
		"decide":     func(*rapid.T) { s.Vote() },
		"resolve":    func(*rapid.T) { s.Resolve() },
		"abandon":    func(*rapid.T) { s.Abandon() },
		"wait":       func(*rapid.T) { s.Recover() },
		"checkpoint": func(*rapid.T) { s.Checkpoint() },
		"archive":    func(*rapid.T) { s.Archive() },
		"rewrite":    func(*rapid.T) { s.Rewrite() },
		"clock":      func(t *rapid.T) { s.ClockJump(rapid.SampledFrom([]int{1, 60, 7200, -30}).Draw(t, "seconds")) },
		"reopen":     func(*rapid.T) { judge(s.Reopen()) },
		"arm crash":  func(t *rapid.T) { s.ArmCrash(rapid.IntRange(1, 40).Draw(t, "k"), losses.Draw(t, "loss")) },
		"arm error": func(t *rapid.T) {
			s.ArmError(rapid.IntRange(1, 30).Draw(t, "k"), rapid.Bool().Draw(t, "space"), rapid.Bool().Draw(t, "sticky"), rapid.Bool().Draw(t, "done"))
		},
		"tear": func(t *rapid.T) { s.Tear(rapid.IntRange(1, 500).Draw(t, "step")) },
		"crash in recovery": func(t *rapid.T) {
			judge(s.CrashInRecovery(losses.Draw(t, "loss"), rapid.IntRange(0, 2).Draw(t, "depth")))
		},
		"corrupt": func(*rapid.T) { judge(s.Corrupt()) },
		"backup":  func(*rapid.T) { s.Backup() },
		"restore": func(*rapid.T) { judge(s.Restore()) },
		"import":  func(*rapid.T) { judge(s.Import()) },
		"":        func(*rapid.T) { check() },
	}
}

// batch is how many sequences run between two checks of the deadline.
const batch = 50

// Tier makes sequences until the run is over. Without a deadline it makes one batch.
func Tier(r *crashtest.Run) {
	testing.Init() // rapid asks for its flags, and whether they were read
	if !flag.Parsed() {
		if err := flag.CommandLine.Parse(nil); err != nil {
			panic(err) // of no arguments
		}
	}
	for round := uint64(0); ; round++ {
		seed := r.Seed + round*batch
		tb := &outside{name: fmt.Sprintf("rapid, seed %d", seed)}
		for name, value := range map[string]string{
			"rapid.seed": strconv.FormatUint(seed|1, 10), "rapid.checks": strconv.Itoa(batch),
			"rapid.steps": "25", "rapid.nofailfile": "true", "rapid.shrinktime": "10s",
		} {
			if err := flag.Set(name, value); err != nil {
				panic(err) // rapid no longer has the flag
			}
		}
		rapid.Check(tb, Sequence(r))
		r.Sequences(batch)
		if r.Deadline.IsZero() || r.Over() || tb.failed {
			return
		}
	}
}

// outside implements rapid's interface to a test in a program that is no test.
type outside struct {
	name   string
	failed bool
}

func (o *outside) Helper()                        {}
func (o *outside) Name() string                   { return o.name }
func (o *outside) Logf(format string, a ...any)   { o.print(format, a...) }
func (o *outside) Log(a ...any)                   { o.print("%s", fmt.Sprint(a...)) }
func (o *outside) Skipf(string, ...any)           {}
func (o *outside) Skip(...any)                    {}
func (o *outside) SkipNow()                       {}
func (o *outside) Errorf(format string, a ...any) { o.fail(format, a...) }
func (o *outside) Error(a ...any)                 { o.fail("%s", fmt.Sprint(a...)) }
func (o *outside) Fatalf(format string, a ...any) { o.fail(format, a...) }
func (o *outside) Fatal(a ...any)                 { o.fail("%s", fmt.Sprint(a...)) }
func (o *outside) FailNow()                       { o.failed = true }
func (o *outside) Fail()                          { o.failed = true }
func (o *outside) Failed() bool                   { return o.failed }

func (o *outside) print(format string, a ...any) {
	if o.failed {
		fmt.Printf(o.name+": "+format+"\n", a...)
	}
}

func (o *outside) fail(format string, a ...any) {
	o.failed = true
	o.print(format, a...)
}
