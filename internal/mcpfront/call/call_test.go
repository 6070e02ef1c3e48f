package call

import (
	"testing"
	"time"
)

// TestEveryCaseOfTheRule walks the whole grid and compares it with the table of docs/MCP.md, which is
// written here a second time as plain conditions.
func TestEveryCaseOfTheRule(t *testing.T) {
	n := 0
	for state := None; state <= Claimed; state++ {
		for conn := This; conn <= Unknown; conn++ {
			for _, age := range []time.Duration{0, time.Minute, time.Minute + 1} {
				for flags := range 4 {
					q := Query{State: state, Conn: conn, Age: age, Window: time.Minute, Licensed: flags&1 != 0, Asks: flags&2 != 0}
					got, why := Decide(q)
					if want := wanted(q); got != want || why == "" {
						t.Errorf("%+v: %v (%s), want %v", q, got, why, want)
					}
					n++
				}
			}
		}
	}
	if n != 7*4*3*4 {
		t.Errorf("%d cases", n)
	}
}

// wanted is the rule in the words of the documentation.
func wanted(q Query) Action {
	told := Explain
	if q.Asks {
		told = Ask
	}
	old := q.Age > q.Window
	switch q.State {
	case None, Unrun:
		return New
	}
	if q.Conn == Alive {
		return New
	}
	if q.Conn == Unknown {
		return Wait
	}
	switch {
	case q.State == Open:
		return Join
	case q.State == Doubt && q.Licensed:
		return License
	case q.State == Doubt:
		return told
	case q.State == Claimed && q.Asks:
		return Ask
	case q.State == Claimed: // for ever: a model cannot run the call again by waiting
		return Serve
	case q.State == Answered && (q.Conn == This || !old):
		return Serve
	case q.State == Answered:
		return told
	case old: // abandoned
		return New
	}
	return told
}

// TestWindowHasADefault: the default window is exactly one hour.
func TestWindowHasADefault(t *testing.T) {
	q := Query{State: Answered, Conn: Gone, Age: time.Hour}
	if got, _ := Decide(q); got != Serve {
		t.Errorf("at the window: %v", got)
	}
	q.Age++
	if got, _ := Decide(q); got != Explain {
		t.Errorf("past the window: %v", got)
	}
}

func TestOldestUndeliveredCallIsOneThatNoOtherClientWaitsFor(t *testing.T) {
	for _, c := range []struct {
		conns []Conn
		want  int
	}{
		{nil, -1},
		{[]Conn{Alive, Alive}, -1},
		{[]Conn{Alive, Gone, Gone}, 1},
		{[]Conn{Gone, This, This}, 1},
		{[]Conn{Unknown, Gone}, 1},
		{[]Conn{Alive, Unknown}, 1},
	} {
		if got := Oldest(c.conns); got != c.want {
			t.Errorf("%v: %d, want %d", c.conns, got, c.want)
		}
	}
}
