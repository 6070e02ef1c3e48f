package killtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/internal/killtest/engines"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// TestBadEnginesAreFound: an engine with one fault is reported with that fault, and one without is not.
func TestBadEnginesAreFound(t *testing.T) {
	for _, c := range []struct {
		engine string
		want   Verdict
	}{{"doubles", Doubled}, {"loses", Lost}, {"lies", False}, {"invents", Lost}} {
		t.Run(c.engine, func(t *testing.T) {
			t.Parallel()
			res, err := runNamed(t, c.engine, 6, false)
			if err != nil {
				t.Fatal(err)
			}
			// The call in which nobody is killed shows each of these faults.
			if got := res.Points[None].Became[c.want.String()]; got != 1 {
				t.Errorf("of one call without a kill %d are %s: %v", got, c.want, res.All.Became)
			}
			if err := res.Err(); err == nil || !strings.Contains(err.Error(), title(c.want)) || !strings.Contains(err.Error(), c.engine) {
				t.Errorf("the run's error is %v", err)
			}
		})
	}
	// One call without a kill: only the kill after the last call shows that nothing was written.
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		res, err := runNamed(t, "memory", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		if res.All.Became[Lost.String()] != 1 || res.All.Kills != 1 {
			t.Errorf("%d kills, %v", res.All.Kills, res.All.Became)
		}
	})
	t.Run("careful", func(t *testing.T) {
		t.Parallel()
		res, err := runNamed(t, "careful", 12, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Err(); err != nil {
			t.Error(err)
		}
		if res.Points[Done].Became[InDoubt.String()] != 2 || res.Points[None].Became[Completed.String()] != 2 {
			t.Errorf("done: %v, none: %v", res.Points[Done].Became, res.Points[None].Became)
		}
		// Each point except none, and random kills, with certainty: Done, Arrived and Answered once, Restart
		// twice.
		for point, kills := range map[Point]int{None: 0, Arrived: 2, Done: 2, Restart: 4} {
			if res.Points[point].Kills != kills {
				t.Errorf("%d kills at %s, want %d", res.Points[point].Kills, point, kills)
			}
		}
		if n := res.Points[Arrived].Charges; n != 0 {
			t.Errorf("%d charges of requests whose sender was killed before the charge", n)
		}
	})
}

// TestJudge walks the whole grid: every number of charges, answer and last status.
func TestJudge(t *testing.T) {
	outcomes := []adapter.Outcome{adapter.Completed, adapter.Failed, adapter.InDoubt, adapter.Running, adapter.Unknown}
	// A row is what the client was told, a column is the last status, in the order of outcomes.
	grid := map[int]string{
		0: "LLLLL LN?OL LN?OL LN?OO",
		1: "CLLLL FFFFL CF?OL CF?OF",
		2: "DDDDD DDDDD DDDDD DDDDD",
		3: "DDDDD DDDDD DDDDD DDDDD",
	}
	letters := map[byte]Verdict{'D': Doubled, 'L': Lost, 'F': False, '?': InDoubt, 'O': NoAnswer, 'N': NotRun, 'C': Completed}
	for charges, rows := range grid {
		for i, row := range strings.Fields(rows) {
			for j := range row {
				if got, want := judge(charges, outcomes[i], outcomes[j]), letters[row[j]]; got != want {
					t.Errorf("%d charges, the client was told %s, the last status is %s: %s, want %s", charges, outcomes[i], outcomes[j], got, want)
				}
			}
		}
	}
}

// TestHostileAdapters: an adapter that does not speak the protocol ends the run, and the error says how.
func TestHostileAdapters(t *testing.T) {
	for _, c := range []struct {
		adapter string
		code    tga.Code
		says    string
	}{
		{"exits", tga.ToolError, `exit status 3; it last wrote: out of order\x1b[2J`},
		{"silent", tga.ToolTimeout, "has not answered start within 1s"},
		{"garbage", tga.ToolError, `answers start with "\x00\x1b[2J not json"`},
		{"half a line", tga.ToolError, "has ended, by itself"},
		{"another id", tga.ToolError, "the answer has id 2, the request 1"},
		{"nameless", tga.ToolError, "names no engine"},
		{"refuses", tga.ToolError, `could not handle start: no licence key\x1b[2J`},
		{"longer line", tga.ToolError, "more than 65536 bytes"},
		{"longest line", tga.ToolError, "the answer has id 1, the request 2"}, // start is answered
		{"no outcome", tga.ToolError, `outcome "" is none of`},
		{"strange outcome", tga.ToolError, `outcome "probably" is none of`},
		{"unknown call", tga.ToolError, "it has just been handed in"},
	} {
		t.Run(c.adapter, func(t *testing.T) {
			t.Parallel()
			_, err := Run(context.Background(), Options{Command: adapterNamed(t, c.adapter), Calls: 1, Dir: t.TempDir(), Patience: MinPatience})
			if !errors.Is(err, c.code) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the run ends with %v, want %s and %q", err, c.code, c.says)
			}
			if err != nil && strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("the error has a control character: %q", err)
			}
		})
	}
	_, err := Run(context.Background(), Options{Command: []string{"/nonexistent/adapter"}, Calls: 1, Dir: t.TempDir(), Patience: time.Second})
	if !errors.Is(err, tga.NotFound) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestOptionsHaveLimits: at a limit a run is accepted; one past it the run is refused before anything
// starts.
func TestOptionsHaveLimits(t *testing.T) {
	good := Options{Command: []string{"true"}, Calls: 1, Dir: t.TempDir(), Patience: MinPatience}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		edit func(*Options)
		ok   bool
	}{
		{"one call", func(*Options) {}, true},
		{"no call", func(o *Options) { o.Calls = 0 }, false},
		{"most calls", func(o *Options) { o.Calls = MaxCalls }, true},
		{"one more", func(o *Options) { o.Calls = MaxCalls + 1 }, false},
		{"too little patience", func(o *Options) { o.Patience = MinPatience - 1 }, false},
		{"no command", func(o *Options) { o.Command = nil }, false},
		{"a relative directory", func(o *Options) { o.Dir = "." }, false},
		{"a directory that is used", func(o *Options) { o.Dir = full }, false},
	} {
		o := good
		c.edit(&o)
		if err := o.check(); (err == nil) != c.ok || err != nil && !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestKilledTgadChargesNothingTwice: tgad has no fault at any point. In the plain world the calls whose
// result it cannot know are in doubt. If the service knows its keys, every call completes.
func TestKilledTgadChargesNothingTwice(t *testing.T) {
	serial.Test(t)
	for _, dedupes := range []bool{false, true} {
		res, err := runNamed(t, "dir", 12, dedupes)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Err(); err != nil {
			t.Error(err)
		}
		if res.All.Kills < 9 {
			t.Errorf("%d kills: fewer than the points that kill for certain", res.All.Kills)
		}
		doubt := res.All.Became[InDoubt.String()]
		if dedupes != (doubt == 0) || doubt+res.All.Became[Completed.String()] != 12 {
			t.Errorf("dedupes %v: %v", dedupes, res.All.Became)
		}
	}
}

// TestKilledOutboxAndLoopCharge: an engine that sends again charges twice in the plain world, but not if the
// service knows its keys.
func TestKilledOutboxAndLoopCharge(t *testing.T) {
	serial.Test(t)
	for _, name := range []string{"outbox", "file"} {
		for _, dedupes := range []bool{false, true} {
			res, err := runNamed(t, name, 6, dedupes)
			if err != nil {
				t.Fatal(err)
			}
			if doubled := res.Points[Done].Became[Doubled.String()]; (doubled == 1) == dedupes {
				t.Errorf("%s, dedupes %v: %d of 1 doubled at %s", name, dedupes, doubled, Done)
			}
		}
	}
}

// TestKillReachesTheGroup: a child of the adapter is killed with it. A child that has left the group is not,
// and that ends the run: it could still send calls.
func TestKillReachesTheGroup(t *testing.T) {
	for name, leaves := range map[string]bool{"children": false, "leaves": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			patience := time.Minute
			if leaves { // the run waits for an answer while the output is held open
				patience = MinPatience
			}
			_, err := Run(context.Background(), Options{Command: adapterNamed(t, name), Calls: 2, Dir: dir, Patience: patience})
			if outside := err != nil && strings.Contains(err.Error(), "left the adapter's process group"); outside != leaves || !leaves && err != nil {
				t.Errorf("the run ends with %v", err)
			}
			raw, err := os.ReadFile(filepath.Join(dir, "child"))
			if err != nil {
				t.Fatal(err)
			}
			// A killed process that nobody has waited for yet is a zombie.
			stat, err := os.ReadFile(filepath.Join("/proc", string(raw), "stat"))
			if lives := err == nil && !strings.Contains(string(stat), ") Z "); lives != leaves {
				t.Errorf("the child of a killed adapter: %s, %v", stat, err)
			}
			if leaves {
				pid, err := strconv.Atoi(string(raw))
				if err == nil {
					err = syscall.Kill(pid, syscall.SIGKILL)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestServersOutliveTheKills: a program that serve starts runs until the end of the run, and is then
// stopped.
func TestServersOutliveTheKills(t *testing.T) {
	dir := t.TempDir()
	res, err := Run(context.Background(), Options{Command: adapterNamed(t, "servers"), Calls: 3, Dir: dir, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if res.All.Kills < 3 {
		t.Errorf("%d kills", res.All.Kills)
	}
	if _, err := os.Stat(filepath.Join(dir, "server.stopped")); err != nil {
		t.Errorf("the servers were not stopped in order: %v", err)
	}
}

// TestWorldCounts: the plain world charges for each request, the other one once for each key. An invalid
// request is refused and not counted.
func TestWorldCounts(t *testing.T) {
	for _, dedupes := range []bool{false, true} {
		w, err := newWorld(dedupes)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		receipts := map[int64]bool{}
		for range 3 {
			n, err := adapter.Charge(context.Background(), adapter.World{URL: w.url}, "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			receipts[n] = true
		}
		want := 3
		if dedupes {
			want = 1
		}
		if w.made("k") != want || len(receipts) != want {
			t.Errorf("dedupes %v: %d charges, receipts %v", dedupes, w.made("k"), receipts)
		}
		for _, body := range []string{"", "{}", `{"key":"k"}`, `{"key":"k","amount":0}`, `{"amount":1}`, "x"} {
			reply, err := http.Post(w.url, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			reply.Body.Close()
			if reply.StatusCode != http.StatusBadRequest {
				t.Errorf("%q is answered %s", body, reply.Status)
			}
		}
		if w.made("k") != want || w.made("") != 0 {
			t.Errorf("requests without sense were counted")
		}
	}
}

// TestTableHasEveryVerdict: the table and the object say the same.
func TestTableHasEveryVerdict(t *testing.T) {
	res := &Result{Engine: "e", World: Plain, All: newCounts(), Points: map[Point]*Counts{}}
	for _, p := range Points() {
		res.Points[p] = newCounts()
	}
	for i, v := range Verdicts() {
		for range i + 1 {
			res.All.add(1, 2, v)
			res.Points[Done].add(1, 2, v)
		}
	}
	var out bytes.Buffer
	if err := Table(&out, []*Result{res}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"e plain 28 28 56 1 2 3 4 5 6 7\n", "e plain 0 of 0 0 of 0 6 of 28 0 of 0 0 of 0 0 of 0\n"} {
		if table := regexp.MustCompile(" +").ReplaceAllString(out.String(), " "); !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
	line, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(line, []byte(`"became":{"completed":7,"doubled":1,"false_word":3,"in_doubt":4,"lost":2,"no_answer":5,"not_run":6}`)) {
		t.Errorf("the object is %s", line)
	}
	if err := res.Err(); err == nil || !strings.Contains(err.Error(), "of 28 calls 1 doubled, 2 lost, 3 false word") {
		t.Errorf("the error is %v", err)
	}
}

// TestAdapterRefusesAnotherProtocol: the loop of an adapter answers a request that it does not understand
// with an error, and continues.
func TestAdapterRefusesAnotherProtocol(t *testing.T) {
	in := strings.Join([]string{
		`{"op":"call","id":1,"key":"k","amount":1}`,
		`{"op":"start","id":2,"version":2,"dir":"x"}`,
		`{"op":"start","id":3,"version":1,"dir":"x"}`,
		`{"op":"serve","id":4,"version":1,"dir":"x"}`,
		`{"op":"dance","id":5}`,
	}, "\n") + "\n" + `{"op":"status"`
	var out bytes.Buffer
	if err := adapter.Serve(context.Background(), engines.File, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	want := []string{"call before start", "version 2 of the protocol: this adapter has 1", "start without a world", "serve in a process that has begun", `op "dance" is none of`}
	for i, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		var a adapter.Answer
		if err := json.Unmarshal([]byte(line), &a); err != nil || i >= len(want) || a.ID != uint64(i+1) || !strings.Contains(a.Error, want[i]) {
			t.Errorf("line %d is %s, %v", i+1, line, err)
		}
	}
	if err := adapter.Serve(context.Background(), engines.File, strings.NewReader("not json\n"), &out); err == nil {
		t.Error("a line that is no request is taken")
	}
}
