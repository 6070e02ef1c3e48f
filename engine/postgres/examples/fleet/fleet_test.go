package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/serial"
)

// TestFleetKeepsItsWord runs the example as its documentation has it.
func TestFleetKeepsItsWord(t *testing.T) {
	serial.Test(t)
	cmd := exec.Command("sh", "-c", "cd engine/postgres && go run ./examples/fleet")
	cmd.Dir = "../../../.."
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	for _, want := range []string{`(?m)^ +[1-9]\d* calls, [1-9]\d* of them answered$`, `(?m)^ +0 charged twice$`, `(?m)^ +0 answers lost or changed$`, `(?m)^ +0 answers without a charge$`} {
		if !regexp.MustCompile(want).MatchString(said.String()) {
			t.Errorf("no %s in\n%s", want, said.String())
		}
	}
	t.Log(said.String())
}

// TestWhatGoesWrongIsCounted: each way in which a fleet could break its word is told, with the call.
func TestWhatGoesWrongIsCounted(t *testing.T) {
	answered := map[string]string{"a": "1", "b": "2", "c": "3"}
	charges := map[string]int{"a": 1, "b": 1, "c": 1, "of one in doubt": 1}
	if got := compare(answered, answered, charges); got.bad() != 0 || got.charges != 4 || got.answered != 3 {
		t.Errorf("nothing is wrong, and it is counted %+v", got)
	}
	for name, c := range map[string]struct {
		again   map[string]string
		charges map[string]int
	}{
		"c: was 3, is ":     {map[string]string{"a": "1", "b": "2"}, charges},
		"c: was 3, is 4":    {map[string]string{"a": "1", "b": "2", "c": "4"}, charges},
		"b: 2 times":        {answered, map[string]int{"a": 1, "b": 2, "c": 1}},
		"in doubt: 2 times": {answered, map[string]int{"a": 1, "b": 1, "c": 1, "in doubt": 2}},
		"a\n":               {answered, map[string]int{"b": 1, "c": 1}},
	} {
		if got := compare(answered, c.again, c.charges); got.bad() != 1 || !strings.Contains(got.String(), "       "+name) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
