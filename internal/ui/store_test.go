package ui_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/ui"
)

// TestStorePageSaysWhatTheDaemonCounts: the figures are those of the daemon's metrics. The rate is that
// since the last look. A verification runs when somebody asks for it.
func TestStorePageSaysWhatTheDaemonCounts(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	s.answer = `{}`
	s.call("pay", "k1", `{}`)
	_, page := s.get("/store")
	s.has(page, "look again for how many a second", "a sync takes", "half at most", "99 of 100 at most", "appends so far", "log on disk", "free", "leases held",
		"The store signs no checkpoints.", "Nobody has asked for it here.")
	if _, n := s.figure(page, "calls kept"); n == "0" {
		t.Error("no call is kept in memory")
	}
	s.has(page, "of the index", "blocks of the index read from memory", "recoveries after a crash")
	_, before := s.figure(page, "appends so far")
	s.call("pay", "k2", `{}`)
	_, page = s.get("/store")
	if _, now := s.figure(page, "appends so far"); now <= before {
		t.Errorf("appends were %s and are %s", before, now)
	}
	s.has(page, " a second, over the last ")
	if _, n := s.figure(page, "ready"); n != "yes" {
		t.Errorf("ready: %q", n)
	}
	if _, n := s.figure(page, "shop"); n != "breakers that are open or on trial: 0" {
		t.Errorf("the breakers of shop: %q", n)
	}
	if strings.Contains(page, "Receivers of") {
		t.Error("it names receivers, and there are none")
	}
	if _, n := s.figure(page, "in doubt"); n != "0" {
		t.Errorf("in doubt: %q", n)
	}
	status, page := s.post("/store", "/store/verify", "")
	if status != http.StatusOK || !strings.Contains(page, "every digest and link agrees, of 2 calls") || strings.Contains(page, "Nobody has asked") {
		t.Errorf("verify: %d %s", status, page)
	}
	if status, _, _ := s.do(s.request("POST", "/store/verify", "token=x")); status != http.StatusForbidden {
		t.Errorf("with another token: %d", status)
	}
}

// figure returns a fact of the page.
func (s *stage) figure(page, name string) (found bool, value string) {
	s.Helper()
	m := regexp.MustCompile(`<dt>` + regexp.QuoteMeta(name) + `</dt><dd>([^<]*)</dd>`).FindStringSubmatch(page)
	if m == nil {
		s.Errorf("the page has no %q:\n%s", name, page)
		return false, ""
	}
	return true, m[1]
}
