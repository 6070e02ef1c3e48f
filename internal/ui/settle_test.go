package ui_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/schemas/tga"
)

// outage is a stage with calls in doubt: three of one tool and one of another.
func outage(t *testing.T) (s *stage, pays []tga.ID, other tga.ID) {
	t.Helper()
	s = newStage(t, ui.Options{}).login()
	for i := range 3 {
		pays = append(pays, s.call("pay", fmt.Sprintf("order-%d", i), `{}`))
	}
	return s, pays, s.call("refund", `r<script>`, `{}`)
}

// chosen is the form of a page as a browser sends it, except for the fields in without.
func (s *stage) chosen(page string, without map[tga.ID]bool, all ...tga.ID) url.Values {
	s.Helper()
	_, body := s.get(page)
	token := tokenOf.FindStringSubmatch(body)
	if token == nil {
		s.Fatalf("%s has no form:\n%s", page, body)
	}
	v := url.Values{"token": {token[1]}}
	for _, id := range all {
		name := id.String()
		for _, field := range []string{"shown-", "why-"} {
			_, rest, ok := strings.Cut(body, `name="`+field+name+`" value="`)
			if !ok {
				s.Fatalf("the form has no %s%s:\n%s", field, name, body)
			}
			value, _, _ := strings.Cut(rest, `"`)
			v.Set(field+name, value)
		}
		if !without[id] {
			v.Add("chosen", name)
		}
	}
	return v
}

func (s *stage) settle(verb string, form url.Values) (int, string) {
	s.Helper()
	status, body, _ := s.do(s.request("POST", "/doubts/"+verb, form.Encode()))
	return status, body
}

// TestManyAreChosenAndSettled: a person selects calls in doubt by their properties and sees them before
// anything is done. Each of them is settled with evidence of its own. A call that was removed from the
// selection stays as it is.
func TestManyAreChosenAndSettled(t *testing.T) {
	s, pays, other := outage(t)
	_, inbox := s.get("/")
	s.has(inbox, `href="/doubts"`)
	for query, want := range map[string]int{
		"": 4, "tool=shop": 4, "tool=shop/pay": 3, "tool=shop/refund": 1, "tool=none": 0, "cause=nothing+of+the+kind": 0, "since=1h": 4, "before=1h": 0,
		"namespace=default": 4, "namespace=x": 0, "tool=shop/pay&before=" + url.QueryEscape(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)): 3,
	} {
		_, page := s.get("/doubts?" + query)
		if got := strings.Count(page, `name="chosen"`); got != want || !strings.Contains(page, fmt.Sprintf("%d of 4 calls in doubt are chosen", want)) {
			t.Errorf("%s: %d are chosen, want %d", query, got, want)
		}
		s.harmless("/doubts", page)
	}
	if status, _ := s.get("/doubts?since=yesterday"); status != http.StatusUnprocessableEntity {
		t.Errorf("a time that is none: %d", status)
	}
	form := s.chosen("/doubts?tool=shop/pay&why="+url.QueryEscape("the statement has {key}, for {trace}"), map[tga.ID]bool{pays[2]: true}, pays...)
	status, page := s.settle("ran", form)
	if status != http.StatusOK || !strings.Contains(page, "2 of 2 calls are settled.") {
		t.Fatalf("%d %s", status, page)
	}
	for id, want := range map[tga.ID]tga.State{pays[0]: tga.Completed, pays[1]: tga.Completed, pays[2]: tga.Executing, other: tga.Executing} {
		if got := s.state(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	_, call := s.get("/traces/" + pays[1].String())
	s.has(call, "the statement has order-1, for "+pays[1].String())
	if status, page := s.settle("abandon", s.chosen("/doubts?why=nobody+knows+of+it", nil, pays[2], other)); status != http.StatusOK || s.state(other) != tga.Failed || s.state(pays[2]) != tga.Failed {
		t.Errorf("abandon: %d %s", status, page)
	}
}

// TestTheSecondIsTold: a person who settles calls that somebody else has settled meanwhile is told so for
// each of them. The rest of the selection is settled.
func TestTheSecondIsTold(t *testing.T) {
	s, pays, _ := outage(t)
	at := "/doubts?tool=shop/pay&why=" + url.QueryEscape("the statement has {key}")
	first, second := s.chosen(at, map[tga.ID]bool{pays[2]: true}, pays...), s.chosen(at, nil, pays...)
	if status, page := s.settle("failed", first); status != http.StatusOK {
		t.Fatalf("%d %s", status, page)
	}
	status, page := s.settle("ran", second)
	if status != http.StatusOK || !strings.Contains(page, "1 of 3 calls are settled.") || strings.Count(page, "STATE_INVALID_TRANSITION") != 2 || !strings.Contains(page, "somebody else was first") {
		t.Errorf("the second: %d %s", status, page)
	}
	for i, want := range []tga.State{tga.Failed, tga.Failed, tga.Completed} {
		if got := s.state(pays[i]); got != want {
			t.Errorf("call %d is %s, want %s", i, got, want)
		}
	}
}

// TestNothingIsSettledByHalves: if the form cannot apply to one of the calls, none of them is settled.
func TestNothingIsSettledByHalves(t *testing.T) {
	s, pays, _ := outage(t)
	good := func() url.Values { return s.chosen("/doubts?tool=shop/pay&why=it+is+on+the+statement", nil, pays...) }
	for name, c := range map[string]struct {
		verb   string
		spoil  func(v url.Values)
		status int
	}{
		"no reason":      {"ran", func(v url.Values) { v.Set("why-"+pays[1].String(), " ") }, http.StatusUnprocessableEntity},
		"no call":        {"ran", func(v url.Values) { v.Del("chosen") }, http.StatusUnprocessableEntity},
		"no id":          {"ran", func(v url.Values) { v.Add("chosen", "x") }, http.StatusUnprocessableEntity},
		"no number":      {"ran", func(v url.Values) { v.Set("shown-"+pays[2].String(), "x") }, http.StatusUnprocessableEntity},
		"no verb":        {"delete", func(url.Values) {}, http.StatusNotFound},
		"no vote":        {"approve", func(url.Values) {}, http.StatusNotFound},
		"no token":       {"ran", func(v url.Values) { v.Del("token") }, http.StatusForbidden},
		"too many calls": {"ran", func(v url.Values) { v["chosen"] = make([]string, 101) }, http.StatusUnprocessableEntity},
	} {
		form := good()
		c.spoil(form)
		if status, page := s.settle(c.verb, form); status != c.status {
			t.Errorf("%s: %d, want %d: %s", name, status, c.status, page)
		}
	}
	for _, id := range pays {
		if got := s.state(id); got != tga.Executing {
			t.Errorf("%s is %s", id, got)
		}
	}
}

// TestWhatWasSentAgainIsNotSaidNotToHaveRun: the form for many calls states for each call how many attempts
// it showed.
func TestWhatWasSentAgainIsNotSaidNotToHaveRun(t *testing.T) {
	s, pays, _ := outage(t)
	form := s.chosen("/doubts?tool=shop/pay&why=the+journal+has+none", nil, pays...)
	if got := form.Get("shown-" + pays[0].String()); got != "1" {
		t.Fatalf("the form says that it showed %q attempts", got)
	}
	form.Set("shown-"+pays[0].String(), "7")
	status, page := s.settle("not-run", form)
	if status != http.StatusOK || !strings.Contains(page, "2 of 3 calls are settled.") || s.state(pays[0]) != tga.Executing {
		t.Errorf("%d %s", status, page)
	}
}
