package killtest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/schemas/tga"
)

func speedOf(t *testing.T, names ...string) ([]*Speed, error) {
	t.Helper()
	o := SpeedOptions{Callers: []int{1, 4}, Slice: 20 * time.Millisecond, Rounds: 2, Dir: t.TempDir(), Patience: time.Minute}
	for _, name := range names {
		o.Commands = append(o.Commands, adapterNamed(t, name))
	}
	return MeasureSpeed(t.Context(), o)
}

// TestSpeed: each engine has a row for each number of callers. The first engine is the one that the others
// are compared with.
func TestSpeed(t *testing.T) {
	t.Parallel()
	speeds, err := speedOf(t, "dir", "careful", "servers")
	if err != nil {
		t.Fatal(err)
	}
	if len(speeds) != 6 {
		t.Fatalf("%d rows", len(speeds))
	}
	for i, s := range speeds {
		if s.Callers != []int{1, 4}[i/3] || s.Rounds != 2 || s.Calls < 2*s.Callers || s.PerSecond <= 0 || s.P50 <= 0 || s.P50 > s.P99 || s.Ratio <= 0 || i%3 == 0 && s.Ratio != 1 {
			t.Errorf("row %d: %+v", i, s)
		}
	}
	if rows := SpeedRows(speeds); len(rows) != 7 || rows[1][0] != speeds[0].Engine || len(rows[1]) != len(rows[0]) {
		t.Errorf("the table is %v", rows)
	}
}

// TestSpeedOfWhatIsWrong: an engine that does not make each of its calls once gets no figures.
func TestSpeedOfWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"doubles":   "the payment service has",
		"invents":   "the payment service has",
		"lies":      "is failed",
		"idle":      "the answer to load says of no call",
		"of before": "op \"load\" is none of serve, start, call and status",
	} {
		if _, err := speedOf(t, name); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBoundsOfSpeed: each limit, and one past it.
func TestBoundsOfSpeed(t *testing.T) {
	good := SpeedOptions{Commands: [][]string{{"x"}}, Callers: []int{1, adapter.MaxCallers}, Slice: adapter.MaxMillis * time.Millisecond, Rounds: MaxRounds, Dir: t.TempDir(), Patience: MinPatience}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*SpeedOptions){
		"no engine": func(o *SpeedOptions) { o.Commands = nil }, "no callers": func(o *SpeedOptions) { o.Callers = nil },
		"0 callers": func(o *SpeedOptions) { o.Callers = []int{1, 0} }, "callers": func(o *SpeedOptions) { o.Callers = []int{adapter.MaxCallers + 1} },
		"short": func(o *SpeedOptions) { o.Slice = time.Millisecond - 1 }, "long": func(o *SpeedOptions) { o.Slice++ },
		"0 rounds": func(o *SpeedOptions) { o.Rounds = 0 }, "rounds": func(o *SpeedOptions) { o.Rounds++ },
		"patience": func(o *SpeedOptions) { o.Patience-- }, "directory": func(o *SpeedOptions) { o.Dir = "here" },
	} {
		bad := good
		spoil(&bad)
		if _, err := MeasureSpeed(context.Background(), bad); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSpentBySomebodyBelow: the processor time of a child counts while it lives, and after it was waited
// for.
func TestSpentBySomebodyBelow(t *testing.T) {
	if runtime.GOOS != "linux" {
		if got := spent(os.Getpid()); got != 0 {
			t.Errorf("%v", got)
		}
		return
	}
	before := spent(os.Getpid())
	child := exec.Command("sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo done; read -r end")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"lives", "has ended"} {
		if took := spent(os.Getpid()) - before; took < 20*time.Millisecond || took > time.Minute {
			t.Errorf("a child that %s took %v", when, took)
		}
		if when == "lives" {
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait() // read fails at the end of its input
		}
	}
	if none := spent(0); none != 0 {
		t.Errorf("no process took %v", none)
	}
}

// TestTableOfSpeeds: docs/COMPARE.md has the table of the committed run that it names.
func TestTableOfSpeeds(t *testing.T) {
	const name = "../../docs/COMPARE.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile(`(?s)(<!-- speeds of (bench/results/speed-\w+\.jsonl) -->\n).*?(<!-- end of speeds -->)`)
	speeds := linesOf[Speed](t, page, place, func(s *Speed) string { return s.Commit })
	pageHas(t, name, place, "${1}"+markdown(SpeedRows(speeds))+"\n${3}")
}
