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

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/wire"
)

// The kill test. A client makes calls and, as real clients do, starts the server again and repeats
// a call whose answer it lost. Meanwhile the shim, the daemon, the tool server, or two of them are
// killed with SIGKILL. The tool server's own journal counts the effects.

// TestKillsAtEveryPoint kills each of the processes, and each pair, at every frame that a governed
// call reads or writes, and before and after every write to its log. It does so for a tool without a
// licence and for a tool that may be repeated.
func TestKillsAtEveryPoint(t *testing.T) {
	var total fronttest.Verdict
	for _, tool := range []string{"kill", "again"} {
		for i, point := range fronttest.KillPoints {
			if tool == "again" && point != "before send" && point != "answer read" {
				continue // at the other points the licence does not matter
			}
			for _, victims := range fronttest.VictimsFor(i) {
				r := fronttest.NewRig(t, true)
				r.Victim = point + ": " + victims
				r.Call("charge", `{"warm":1}`)
				args := `{"name":"killed"}`
				answer, tries := r.Call(tool, args)
				v := r.Judge(args, answer, tries)
				fronttest.Eventually(t, fmt.Sprintf("%s, %s killed: %s", tool, victims, point), func() bool {
					_, err := os.Stat(filepath.Join(r.Dir, "killed"))
					return err == nil
				})
				if v.Doubts != 0 && !strings.Contains(victims, "shim") {
					// The shim lives, so it knows whether it sent the call, and keeps the answer.
					t.Errorf("%s, %s killed %s: in doubt although the shim lived: %.300s", tool, victims, point, answer)
				}
				if v.Lost != 0 || v.Twice != 0 && tool == "kill" {
					t.Errorf("%s, %s killed %s: %+v, answer %.200s", tool, victims, point, v, answer)
				}
				if tool == "again" && v.Doubts != 0 {
					t.Errorf("%s, %s killed %s: in doubt although it may be repeated: %.200s", tool, victims, point, answer)
				}
				if tool == "again" {
					v.Twice = 0 // its operator says that this is harmless
				}
				// The same conversation goes on: the next intended call has an effect of its own.
				before := v.Effects
				if v.Doubts == 0 && point != "delivered" {
					answer, tries = r.Call(tool, args)
					if got := r.Judge(args, answer, tries).Effects; got != before+1 {
						t.Errorf("%s, %s killed %s: the next call made %d effects of %d", tool, victims, point, got, before)
					}
				}
				total.Add(v)
				r.Drop()
			}
		}
	}
	t.Logf("kills of each process and each pair at every point: %+v", total)
}

// TestKills kills each of the processes, and each pair, after a random delay of at most the length
// of a call, many times. There is at most one effect for each intended call, whichever process dies.
func TestKills(t *testing.T) {
	rounds := 3
	switch {
	case fronttest.EveryKill():
		rounds = 50
	case testing.Short():
		rounds = 2
	}
	var total fronttest.Verdict
	for _, name := range fronttest.Targets {
		t.Run(name, func(t *testing.T) {
			v := killRounds(t, true, strings.Split(name, "+"), rounds)
			t.Logf("with tgad: %+v", v)
			if v.Twice != 0 || v.Lost != 0 {
				t.Errorf("%s: %d calls ran twice, %d were answered and did not run", name, v.Twice, v.Lost)
			}
			total.Add(v)
		})
	}
	t.Logf("with tgad, in all: %+v", total)
}

// TestKillsWithoutTgad runs the same client and the same kills with the bare tool server. It shows the
// duplicates that the shim prevents.
func TestKillsWithoutTgad(t *testing.T) {
	v := killRounds(t, false, []string{"server"}, 12)
	t.Logf("without tgad: %+v", v)
	if v.Twice == 0 {
		t.Error("no call ran twice: the kills of this test hit nothing")
	}
}

func killRounds(t *testing.T, shim bool, victims []string, rounds int) fronttest.Verdict {
	r := fronttest.NewRig(t, shim)
	rnd := rand.New(rand.NewPCG(7, uint64(len(victims))))
	// A call takes about this long; the kill comes at some time in it.
	var took []time.Duration
	for i := range 5 {
		began := time.Now()
		if _, tries := r.Call("charge", fmt.Sprintf(`{"warm":%d}`, i)); tries == 1 && i > 0 {
			took = append(took, time.Since(began))
		}
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	span := 20 * time.Millisecond
	if len(took) > 0 {
		span = took[len(took)/2]
	}
	var total fronttest.Verdict
	for i := range rounds {
		args := fmt.Sprintf(`{"n":%d}`, i)
		if !shim {
			// The bare server answers at once. Without this delay most kills would miss the time
			// between effect and answer.
			args = fmt.Sprintf(`{"n":%d,"wait":%q}`, i, r.Dir+fmt.Sprintf("/gate%d", i))
		}
		if r.Peer == nil {
			if err := r.Dial(); err != nil {
				t.Fatal(err)
			}
		}
		server := r.ToolServer()
		delay := time.Duration(rnd.Int64N(int64(span)*5/4 + 1))
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			if !shim && i%2 == 0 {
				// Some kills fall between the effect and the answer on every machine, however
				// long a call takes there to its effect.
				r.Await(fmt.Sprintf(`/gate%d\"`, i))
			}
			time.Sleep(delay)
			for _, who := range victims {
				r.Kill(who, server)
			}
			_ = os.WriteFile(r.Dir+fmt.Sprintf("/gate%d", i), nil, 0o600)
		}()
		answer, tries := r.Call("charge", args)
		<-killed
		total.Add(r.Judge(args, answer, tries))
	}
	return total
}

// TestToolServerDiesWithItsShim: a killed shim leaves no tool server behind that could still act.
func TestToolServerDiesWithItsShim(t *testing.T) {
	t.Setenv(fronttest.EnvStubborn, "1")
	r := fronttest.NewRig(t, true)
	if err := r.Dial(); err != nil {
		t.Fatal(err)
	}
	server := r.ToolServer()
	if server == 0 {
		t.Fatal("no tool server")
	}
	r.Drop()
	fronttest.Eventually(t, "the tool server's end", func() bool { return errors.Is(syscall.Kill(server, 0), syscall.ESRCH) })
}

// TestSuccessorGivesUpWhatItsPredecessorLeft: after a kill the client's repeat is answered at once that
// the outcome is unknown. It does not wait until the permit is stale, which takes an hour here.
func TestSuccessorGivesUpWhatItsPredecessorLeft(t *testing.T) {
	r := fronttest.NewRig(t, true)
	r.Victim = "answer read: shim"
	r.Call("charge", `{"warm":1}`)
	args := `{"name":"killed"}`
	answer, tries := r.Call("held", args)
	if v := r.Judge(args, answer, tries); v.Doubts != 1 || v.Effects != 1 || v.Repeats != 1 {
		t.Errorf("%+v: %.300s", v, answer)
	}
}

// TestReadCallOfAKilledShim: a read call is sent again for a client that repeats it, and the next shim
// ends the read call that the killed shim left open.
func TestReadCallOfAKilledShim(t *testing.T) {
	for _, point := range []string{"before send", "answer read"} {
		r := fronttest.NewRig(t, true)
		r.Victim = point + ": shim"
		args := `{"name":"killed"}`
		answer, tries := r.Call("look", args)
		if v := r.Judge(args, answer, tries); v.Doubts != 0 || v.Effects < 1 || !strings.Contains(answer, `"ok"`) || strings.Contains(answer, "replayed") || tries < 2 {
			t.Errorf("%s: %+v, %d tries: %.300s", point, v, tries, answer)
		}
		c := client.New(filepath.Join(r.Dir, "run", "s"), client.Options{Name: "test"})
		defer c.Close()
		if point == "before send" {
			// The shim was killed before it noted the permit, so nobody knows whether the permit was
			// used. This trace is the only one that stays open.
			continue
		}
		fronttest.Eventually(t, "the end of every call", func() bool {
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
