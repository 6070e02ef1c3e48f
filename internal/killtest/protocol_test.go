package killtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tgad/tgad/internal/killtest/adapter"
)

func protocolSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("../../schemas/torture.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func holds(t *testing.T, s *jsonschema.Schema, line string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s.Validate(v)
}

// TestEveryMessageIsOfTheSchema: the messages between the harness and an adapter in a run, as a program
// between the two sees them.
func TestEveryMessageIsOfTheSchema(t *testing.T) {
	s, dir, seen := protocolSchema(t), t.TempDir(), filepath.Join(t.TempDir(), "seen")
	tee, err := exec.LookPath("tee")
	if err != nil {
		t.Fatal(err)
	}
	between := strings.Join([]string{tee, "-a", seen, "|", strings.Join(adapterNamed(t, "careful"), " "), "|", tee, "-a", seen}, " ")
	if _, err := Run(context.Background(), Options{Command: []string{"/bin/sh", "-c", between}, Calls: 6, Dir: dir, Patience: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := MeasureSpeed(t.Context(), SpeedOptions{Commands: [][]string{{"/bin/sh", "-c", between}}, Callers: []int{2}, Slice: 10 * time.Millisecond, Rounds: 1, Dir: t.TempDir(), Patience: time.Minute}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	ops := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		if err := holds(t, s, lines.Text()); err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
		}
		var m struct{ Op, Engine, Outcome string }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		ops[m.Op]++
	}
	if ops["serve"] != 2 || ops["load"] != 1 || ops["start"] < 6 || ops["call"] < 6 || ops["status"] != 6 || ops[""] < 14 {
		t.Errorf("not every kind of message was seen: %v", ops)
	}
	for _, bad := range []string{
		`{"op":"dance","id":1}`, `{"op":"serve","id":1,"version":2,"dir":"/x"}`, `{"op":"call","id":1,"key":"k"}`, `{"op":"call","id":1,"key":"k","amount":0}`,
		`{"op":"status","id":1,"key":""}`, `{"id":1}`, `{"id":0,"engine":"e"}`, `{"id":1,"outcome":"probably"}`, `{"id":1,"engine":""}`,
		`{"op":"load","id":1}`, `{"op":"load","id":1,"load":{"callers":0,"ms":1,"prefix":"p"}}`, `{"op":"load","id":1,"load":{"callers":1025,"ms":1,"prefix":"p"}}`,
		`{"op":"load","id":1,"load":{"callers":1,"ms":1,"prefix":""}}`, `{"id":1,"loaded":{"calls":0,"ms":1,"p50_us":1,"p99_us":1}}`,
	} {
		if holds(t, s, bad) == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
}

// TestMessagesOfThePage: an adapter answers the requests that docs/TORTURE.md shows with the answers that it
// shows.
func TestMessagesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/TORTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	s := protocolSchema(t)
	shown := regexp.MustCompile("(?ms)^```jsonl\n(.*?)^```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page does not show a load")
	}
	for line := range strings.Lines(string(shown[1])) {
		if err := holds(t, s, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	answered := 0
	var worker, server []string // the page's requests of both processes, with the answers
	for _, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		lines := strings.Split(strings.TrimSuffix(block[1], "\n"), "\n")
		for _, line := range lines {
			if err := holds(t, s, line); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		if strings.Contains(lines[0], `"serve"`) {
			server = append(server, lines...)
		} else {
			worker = append(worker, lines...)
		}
	}
	for _, dialogue := range [][]string{server, worker} {
		var in, want strings.Builder
		for i, line := range dialogue {
			if i%2 == 0 {
				in.WriteString(line + "\n")
			} else {
				want.WriteString(line + "\n")
				answered++
			}
		}
		var out bytes.Buffer
		e := adapter.Engine{Name: "my engine 1.0", Start: func(context.Context, string, adapter.World) (adapter.Worker, error) { return paid{}, nil }}
		if err := adapter.Serve(context.Background(), e, strings.NewReader(in.String()), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want.String() {
			t.Errorf("the adapter answers\n%sand the page says\n%s", out.String(), want.String())
		}
	}
	if answered != 4 {
		t.Errorf("the page has %d answers", answered)
	}
	for _, v := range Verdicts() {
		if !strings.Contains(string(page), "\n| "+title(v)+" |") {
			t.Errorf("the page does not say what %s means", v)
		}
	}
	for _, p := range Points() {
		if !strings.Contains(string(page), "\n| `"+string(p)+"` |") {
			t.Errorf("the page does not say what happens at %s", p)
		}
	}
}

// paid is an engine that always gives the same answer.
type paid struct{}

func (paid) Call(context.Context, string, int) (adapter.Answer, error) {
	return adapter.Answer{Outcome: adapter.Completed, Receipt: 17}, nil
}

func (p paid) Status(ctx context.Context, key string) (adapter.Answer, error) {
	return p.Call(ctx, key, 0)
}
