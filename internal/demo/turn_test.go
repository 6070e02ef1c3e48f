//go:build unix

package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestEveryClaimOfTheTurnScenarioIsSo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	o := build()
	failed, err := RunTurn(ctx, Options{Exe: o.Exe, Lab: o.Lab, Out: &out, Seed: 1})
	if err != nil || failed != 0 {
		t.Fatalf("%d claims failed, %v\n%s", failed, err, out.String())
	}
	if n := strings.Count(out.String(), "kill -9"); n != 4 { // the title, and three kills
		t.Errorf("%d kills in\n%s", n-1, out.String())
	}
	for _, l := range strings.Split(out.String(), "\n") {
		if n := utf8.RuneCountInString(l); n > 82 {
			t.Errorf("a line of %d characters: %q", n, l)
		}
	}
}
