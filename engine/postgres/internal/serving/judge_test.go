package serving_test

import (
	"strings"
	"testing"
	"time"
)

// TestWrongSendsAreSeen: of each rule about sends a journal that breaks it, and one that breaks none.
func TestWrongSendsAreSeen(t *testing.T) {
	at := func(ms int, replica int, tool, trace, attempt string) arrival {
		return arrival{at: time.Duration(ms) * time.Millisecond, replica: replica, tool: tool, key: "k", trace: trace, attempt: attempt}
	}
	for name, c := range map[string]struct {
		list []arrival
		says string // "" where nothing is wrong
		late int
	}{
		"one send":                         {list: []arrival{at(10, 0, "opaque", "t", "1")}},
		"two, under a licence":             {list: []arrival{at(10, 0, "charge", "t", "1"), at(20, 1, "charge", "t", "2")}},
		"two, without a licence":           {list: []arrival{at(10, 0, "opaque", "t", "1"), at(20, 1, "opaque", "u", "1")}, says: "without a licence"},
		"an attempt twice":                 {list: []arrival{at(10, 0, "charge", "t", "1"), at(20, 1, "charge", "t", "1")}, says: "attempt was sent twice"},
		"a send after the answer":          {list: []arrival{at(10, 0, "charge", "t", "1"), at(40, 1, "charge", "t", "2")}, says: "was answered"},
		"an answer without a send":         {says: "knows nothing"},
		"a send that a person did not see": {list: []arrival{at(10, 0, "opaque", "denied", "1")}, says: "a person looked"},
		"a send of who has just woken":     {list: []arrival{at(10, 0, "charge", "t", "1"), at(5010, 1, "charge", "t", "2")}, late: 1},
		"a send of who woke some time ago": {list: []arrival{at(10, 0, "charge", "t", "1"), at(5510, 1, "charge", "t", "2")}, says: "was answered"},
		"a send of an executor, twice":     {list: []arrival{at(10, executor, "pay", "t", "1"), at(20, executor, "pay", "u", "1")}, says: "without a licence"},
	} {
		j := &journal{began: time.Now(), byKey: map[string][]arrival{}, byTrace: map[string][]arrival{}, denied: map[string]time.Duration{"denied": 0}}
		for i, a := range c.list {
			a.number = i + 1
			j.byKey[a.key] = append(j.byKey[a.key], a)
		}
		first := arrival{tool: "opaque", key: "k", number: 1}
		x := &trial{t: t, tools: j, servers: &servers{replicas: []*struck{{}, {stops: []span{{0, 5 * time.Second}}}}}}
		late, bad := x.judgeSends(map[string]answer{"k": {first.value(), 30 * time.Millisecond}})
		if all := strings.Join(bad, "\n"); late != c.late || (c.says == "") != (all == "") || !strings.Contains(all, c.says) {
			t.Errorf("%s: %d late, %q", name, late, all)
		}
	}
}
