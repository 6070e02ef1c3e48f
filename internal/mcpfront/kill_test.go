package mcpfront

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

// The kill test. A client makes calls and, as real clients do, starts the server again
// and repeats a call whose answer it lost. Meanwhile the shim, the daemon, the tool
// server, or two of them are killed with SIGKILL. The tool server's own journal is the
// judge: it counts what had its effect.

// TestKillsAtEveryPoint kills each of the processes, and each pair, at every frame that
// a governed call reads or writes and before and after every write to its log, of a tool
// about which nothing is attested and of one that may be repeated.
func TestKillsAtEveryPoint(t *testing.T) {
	var total verdict
	for _, tool := range []string{"kill", "again"} {
		for i, point := range killPoints {
			if tool == "again" && point != "before send" && point != "answer read" {
				continue // the licence is asked for nothing at the others
			}
			for _, victims := range victimsFor(i) {
				r := newRig(t, true)
				r.victim = point + ": " + victims
				r.call("charge", `{"warm":1}`)
				args := `{"name":"killed"}`
				answer, tries := r.call(tool, args)
				v := r.judge(args, answer, tries)
				eventually(t, fmt.Sprintf("%s, %s killed: %s", tool, victims, point), func() bool {
					_, err := os.Stat(filepath.Join(r.dir, "killed"))
					return err == nil
				})
				if v.doubts != 0 && !strings.Contains(victims, "shim") {
					// The shim knows what it has sent and keeps what it was answered.
					t.Errorf("%s, %s killed %s: in doubt although the shim lived: %.300s", tool, victims, point, answer)
				}
				if v.lost != 0 || v.twice != 0 && tool == "kill" {
					t.Errorf("%s, %s killed %s: %+v, answer %.200s", tool, victims, point, v, answer)
				}
				if tool == "again" && v.doubts != 0 {
					t.Errorf("%s, %s killed %s: in doubt although it may be repeated: %.200s", tool, victims, point, answer)
				}
				if tool == "again" {
					v.twice = 0 // its operator says that this is harmless
				}
				// The same conversation goes on: another intended call is another effect.
				before := v.effects
				if v.doubts == 0 && point != "delivered" {
					answer, tries = r.call(tool, args)
					if got := r.judge(args, answer, tries).effects; got != before+1 {
						t.Errorf("%s, %s killed %s: the next call made %d effects of %d", tool, victims, point, got, before)
					}
				}
				total.add(v)
				r.drop()
			}
		}
	}
	t.Logf("kills of each process and each pair at every point: %+v", total)
}

// TestKills kills each of the processes, and each pair, at many points of a call: after
// a delay that is drawn anew each time from the length of a whole call. Effects per
// intended call are at most one, whoever dies.
func TestKills(t *testing.T) {
	rounds := 3
	switch {
	case everyKill():
		rounds = 50
	case testing.Short():
		rounds = 2
	}
	var total verdict
	for _, name := range targets {
		t.Run(name, func(t *testing.T) {
			v := killRounds(t, true, strings.Split(name, "+"), rounds)
			t.Logf("with tgad: %+v", v)
			if v.twice != 0 || v.lost != 0 {
				t.Errorf("%s: %d calls ran twice, %d were answered and did not run", name, v.twice, v.lost)
			}
			total.add(v)
		})
	}
	t.Logf("with tgad, in all: %+v", total)
}

// TestKillsWithoutTgad is the same client and the same kills with the bare tool server:
// the duplicates that the shim is there to end.
func TestKillsWithoutTgad(t *testing.T) {
	v := killRounds(t, false, []string{"server"}, 12)
	t.Logf("without tgad: %+v", v)
	if v.twice == 0 {
		t.Error("no call ran twice: the kills of this test hit nothing")
	}
}

func killRounds(t *testing.T, shim bool, victims []string, rounds int) verdict {
	r := newRig(t, shim)
	rnd := rand.New(rand.NewPCG(7, uint64(len(victims))))
	// A call takes about this long; the kill falls somewhere in it.
	var took []time.Duration
	for i := range 5 {
		began := time.Now()
		if _, tries := r.call("charge", fmt.Sprintf(`{"warm":%d}`, i)); tries == 1 && i > 0 {
			took = append(took, time.Since(began))
		}
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	span := 20 * time.Millisecond
	if len(took) > 0 {
		span = took[len(took)/2]
	}
	var total verdict
	for i := range rounds {
		args := fmt.Sprintf(`{"n":%d}`, i)
		if !shim {
			// The bare server answers at once; without this the kill would mostly miss the
			// time between its effect and the answer.
			args = fmt.Sprintf(`{"n":%d,"wait":%q}`, i, r.dir+fmt.Sprintf("/gate%d", i))
		}
		if r.peer == nil {
			if err := r.dial(); err != nil {
				t.Fatal(err)
			}
		}
		server := r.toolServer()
		delay := time.Duration(rnd.Int64N(int64(span)*5/4 + 1))
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			if !shim && i%2 == 0 {
				// Some kills fall between the effect and the answer on every machine, however
				// long a call takes there to its effect.
				r.await(fmt.Sprintf(`/gate%d\"`, i))
			}
			time.Sleep(delay)
			for _, who := range victims {
				r.kill(who, server)
			}
			_ = os.WriteFile(r.dir+fmt.Sprintf("/gate%d", i), nil, 0o600)
		}()
		answer, tries := r.call("charge", args)
		<-killed
		total.add(r.judge(args, answer, tries))
	}
	return total
}

// TestToolServerDiesWithItsShim: a shim that is killed leaves no tool server behind that
// could still act.
func TestToolServerDiesWithItsShim(t *testing.T) {
	t.Setenv(envStubborn, "1")
	r := newRig(t, true)
	if err := r.dial(); err != nil {
		t.Fatal(err)
	}
	server := r.toolServer()
	if server == 0 {
		t.Fatal("no tool server")
	}
	r.drop()
	eventually(t, "the tool server's end", func() bool { return errors.Is(syscall.Kill(server, 0), syscall.ESRCH) })
}

// TestSuccessorGivesUpWhatItsPredecessorLeft: after a kill a repeat is told at once that
// the outcome is unknown; it does not wait for the permit, which is good for an hour.
func TestSuccessorGivesUpWhatItsPredecessorLeft(t *testing.T) {
	r := newRig(t, true)
	r.victim = "answer read: shim"
	r.call("charge", `{"warm":1}`)
	args := `{"name":"killed"}`
	answer, tries := r.call("held", args)
	if v := r.judge(args, answer, tries); v.doubts != 1 || v.effects != 1 || v.repeats != 1 {
		t.Errorf("%+v: %.300s", v, answer)
	}
}

// TestReadCallOfAKilledShim: a call that only reads is sent again for the client that
// repeats it, and the one that the killed shim has left is brought to its end.
func TestReadCallOfAKilledShim(t *testing.T) {
	for _, point := range []string{"before send", "answer read"} {
		r := newRig(t, true)
		r.victim = point + ": shim"
		args := `{"name":"killed"}`
		answer, tries := r.call("look", args)
		if v := r.judge(args, answer, tries); v.doubts != 0 || v.effects < 1 || !strings.Contains(answer, `"ok"`) || strings.Contains(answer, "replayed") || tries < 2 {
			t.Errorf("%s: %+v, %d tries: %.300s", point, v, tries, answer)
		}
		c := client.New(filepath.Join(r.dir, "run", "s"), client.Options{Name: "test"})
		defer c.Close()
		if point == "before send" {
			// The permit was out and not noted: nobody knows whether it was used. It is the
			// only one that is left.
			continue
		}
		eventually(t, "the end of every call", func() bool {
			open := 0
			for _, err := range c.Traces(t.Context(), wire.TracesQuery{}) {
				if err != nil {
					return false
				}
				open++
			}
			return open == 0
		})
	}
}
