package ui_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/schemas/tga"
)

// TestVisitorsOfAProxy: a visitor without a good token sees everything and can do nothing. A visitor with a
// good token acts under the name in the token.
func TestVisitorsOfAProxy(t *testing.T) {
	long := strings.Repeat("n", 255)
	names := map[string]string{"a": "ann@shop.example", "b": "bob@shop.example", "long": long, "longer": long + "n", "forged": "ann\u202egnp"}
	s := newStage(t, ui.Options{Proxy: &ui.Proxy{Host: "tgad.shop.example", Who: func(r *http.Request) string { return names[r.Header.Get("X-Token")] }}})
	as := func(token, method, path, body string) (int, string) {
		r := s.request(method, path, body)
		r.Host = "TGAD.shop.example"
		if token != "" {
			r.Header.Set("X-Token", token)
		}
		status, got, _ := s.do(r)
		return status, got
	}
	id := s.call("pay", "k1", `{"amount":1}`)
	for token, acts := range map[string]bool{"": false, "nonsense": false, "longer": false, "forged": false, "a": true, "b": true, "long": true} {
		status, page := as(token, "GET", "/", "")
		if status != http.StatusOK || !strings.Contains(page, id.String()) {
			t.Errorf("%q does not see the call: %d %s", token, status, page)
		}
		if got := strings.Contains(page, "formaction"); got != acts {
			t.Errorf("%q has buttons: %v", token, got)
		}
		if !acts {
			s.has(page, "you can look at everything")
		} else {
			s.has(page, "You are "+names[token])
		}
		_, whole := as(token, "GET", "/store", "")
		if got := strings.Contains(whole, "/store/verify"); got != acts {
			t.Errorf("%q may verify the store: %v", token, got)
		}
	}
	// The form of one visitor works for no other, and for nobody without a token.
	_, page := as("a", "GET", "/", "")
	form := tokenOf.FindStringSubmatch(page)
	if form == nil {
		t.Fatalf("no form:\n%s", page)
	}
	path := "/traces/" + id.String() + "/ran"
	body := url.Values{"token": {form[1]}, "shown": {shownBeside(page, path)}, "why": {"the statement has it on page 1"}}.Encode()
	for _, token := range []string{"", "nonsense", "b", "longer"} {
		if status, got := as(token, "POST", path, body); status != http.StatusForbidden {
			t.Errorf("%q acts by the form of another: %d %s", token, status, got)
		}
	}
	empty := url.Values{"token": {""}, "why": {"the statement has it on page 1"}}.Encode()
	if status, got := as("", "POST", path, empty); status != http.StatusForbidden {
		t.Errorf("nobody acts: %d %s", status, got)
	}
	if status, got := as("", "GET", s.view.Login(), ""); status != http.StatusUnauthorized {
		t.Errorf("there is a login: %d %s", status, got)
	}
	// The page of another site, and another name of this site.
	r := s.request("POST", path, body)
	r.Host = "tgad.shop.example"
	r.Header.Set("X-Token", "a")
	r.Header.Set("Origin", "https://evil.example")
	if status, got, _ := s.do(r); status != http.StatusForbidden {
		t.Errorf("another site: %d %s", status, got)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "evil.example", "tgad.shop.example.evil.example"} {
		r := s.request("GET", "/", "")
		r.Host = host
		if status, got, _ := s.do(r); status != http.StatusMisdirectedRequest {
			t.Errorf("%s: %d %s", host, status, got)
		}
	}
	// The name before a reason takes part of the reason's room, but does not belong to the reason.
	for why, want := range map[string]string{"too short": "want 10 to 982", strings.Repeat("w", 983): "want 10 to 982"} {
		body := url.Values{"token": {form[1]}, "shown": {shownBeside(page, path)}, "why": {why}}.Encode()
		if status, got := as("a", "POST", path, body); status != http.StatusUnprocessableEntity || !strings.Contains(got, want) {
			t.Errorf("a reason of %d characters: %d %s", len(why), status, got)
		}
	}
	s.has(page, `maxlength="982"`)
	if got := s.state(id); got != tga.Executing {
		t.Fatalf("the call is %s", got)
	}
	if status, got := as("a", "POST", path, body); status != http.StatusOK {
		t.Fatalf("%d %s", status, got)
	}
	if got := s.state(id); got != tga.Completed {
		t.Errorf("the call is %s", got)
	}
	const why = "ann@shop.example: the statement has it on page 1"
	if raw, _, err := s.client.Document(t.Context(), id, "/evidence"); err != nil || string(raw) != why {
		t.Errorf("what ann said is not in the log: %q %v", raw, err)
	}
}
