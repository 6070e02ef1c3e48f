package ui_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/ui"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestOnlyWhoHasTheLinkSeesAnything: nothing is shown before the login, the link works once, and the cookie
// of one session does not work in another.
func TestOnlyWhoHasTheLinkSeesAnything(t *testing.T) {
	s := newStage(t, ui.Options{})
	for _, path := range []string{"/", "/traces", "/traces/x", "/live", "/assets/ui.js", "/nowhere", "/login", "/login?token=", "/login?token=" + strings.Repeat("A", 26)} {
		if status, body := s.get(path); status != http.StatusUnauthorized || strings.Contains(body, "<") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	link := s.view.Login()
	s.login()
	if status, body := s.get("/"); status != http.StatusOK || !strings.Contains(body, "Nothing waits for you.") {
		t.Errorf("the inbox: %d %s", status, body)
	}
	stranger := &stage{T: t, at: s.at, view: s.view, browser: &http.Client{Timeout: 20 * time.Second}}
	for _, path := range []string{link, s.view.Login(), "/"} {
		if status, _ := stranger.get(path); status != http.StatusUnauthorized {
			t.Errorf("a stranger's %s: %d", path, status)
		}
	}
}

// TestForeignHostsAreRefused: a request by a foreign host name that leads to this machine is refused, also
// with a login.
func TestForeignHostsAreRefused(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	at, err := url.Parse(s.at)
	if err != nil {
		t.Fatal(err)
	}
	session := s.browser.Jar.Cookies(at)[0]
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:1": 200, "localhost:9": 200, "[::1]:9": 200, "[::1]": 200, "127.8.9.1:1": 200,
		"evil.example": 421, "evil.example:80": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:1": 421, "10.0.0.1:1": 421, "[]": 421, "[": 421, "localhost.": 421,
	} {
		r := httptest.NewRequest("GET", "/traces", nil)
		r.Host = host
		r.AddCookie(&http.Cookie{Name: session.Name, Value: session.Value})
		port, _ := strconv.Atoi(at.Port())
		r = r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: port}))
		w := httptest.NewRecorder()
		if s.view.ServeHTTP(w, r); w.Code != want {
			t.Errorf("Host %q: %d, want %d", host, w.Code, want)
		}
	}
}

// TestListensOnLoopbackAlone tries every kind of address that other machines could reach.
func TestListensOnLoopbackAlone(t *testing.T) {
	for _, at := range []string{"", ":0", "0.0.0.0:0", "[::]:0", "10.0.0.1:0", "localhost:0", "example.org:0", "127.0.0.1", "127.0.0.1:x"} {
		if l, err := ui.Listen(at); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%q: %v", at, err)
			if l != nil {
				l.Close()
			}
		}
	}
}

// TestPagesLoadFromHereAlone: every answer has the policy. No page names another host, and none has inline
// code or style.
func TestPagesLoadFromHereAlone(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	id := s.call("pay", "k", `{"n":1}`)
	for _, path := range []string{"/", "/traces?all=1", "/traces/" + id.String(), "/traces/" + id.String() + "/raw", "/nowhere", "/assets/ui.css", "/traces/x"} {
		_, body, header := s.do(s.request("GET", path, ""))
		if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "no-store" || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, header)
		}
		if !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
			continue
		}
		for _, bad := range []string{"http://", "https://", "style=", "onclick", "javascript:", "<style", "hx-on"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
}

// TestActionsNeedTheirToken: a form without the session's token, or from another site, does nothing.
func TestActionsNeedTheirToken(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	id := s.call("pay", "k", `{"n":1}`)
	path := "/traces/" + id.String() + "/ran"
	for name, form := range map[string]string{"none": "why=because+I+saw+it", "wrong": "token=" + strings.Repeat("A", 26) + "&why=because+I+saw+it", "empty": "token=&why=because+I+saw+it"} {
		if status, body, _ := s.do(s.request("POST", path, form)); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	_, page := s.get("/")
	form := "token=" + tokenOf.FindStringSubmatch(page)[1] + "&why=because+I+saw+it"
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := s.request("POST", path, form)
		r.Header.Set(header, value)
		if status, body, _ := s.do(r); status != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", header, value, status, body)
		}
	}
	// A GET does nothing, and a body has its limit.
	if status, _ := s.get(path); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", status)
	}
	if status, _, _ := s.do(s.request("POST", path, form+strings.Repeat("x", 64<<10))); status == http.StatusOK {
		t.Error("a body without bound is taken")
	}
	if got := s.state(id); got != tga.Executing {
		t.Errorf("the call is %s", got)
	}
	if status, body, _ := s.do(s.request("POST", path, form)); status != http.StatusOK {
		t.Errorf("with the token: %d %s", status, body)
	}
	if got := s.state(id); got != tga.Completed {
		t.Errorf("the call is %s", got)
	}
}

// TestEveryAction presses each button, and presses it again after somebody else was faster: then the person
// is told so.
func TestEveryAction(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	for _, c := range []struct {
		tool, verb string
		want       tga.State
	}{
		{"pay", "ran", tga.Completed},
		{"pay", "failed", tga.Failed},
		{"pay", "not-run", tga.Failed},
		{"pay", "abandon", tga.Failed},
		{"ask", "deny", tga.Denied},
		{"ask", "approve", tga.Completed},
	} {
		t.Run(c.verb, func(t *testing.T) {
			s.T = t
			s.answer = ""
			id := s.call(c.tool, c.verb, `{"amount":5}`)
			path := "/traces/" + id.String() + "/" + c.verb
			_, inbox := s.get("/")
			s.has(inbox, id.String(), "shop "+c.tool, "&#34;amount&#34;: 5", path)
			before := s.state(id)
			if status, body := s.post("/", path, ""); status == http.StatusOK || s.state(id) != before {
				t.Errorf("without a reason: %d %s", status, body)
			}
			s.answer = `{"paid":5}`
			if status, body := s.post("/traces/"+id.String(), path, "I have looked at the account"); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			if got := s.state(id); got != c.want {
				t.Errorf("the call is %s, want %s", got, c.want)
			}
			s.answer = ""
			s.call("pay", "another "+c.verb, `{}`) // so that the inbox has a form
			if status, body := s.post("/", path, "I have looked at the account"); status != http.StatusConflict || !strings.Contains(body, "STATE_INVALID_TRANSITION") {
				t.Errorf("the second person: %d %s", status, body)
			}
		})
	}
	s.answer = ""
	s.T = t
	if status, _ := s.post("/", "/traces/"+s.call("pay", "odd", `{}`).String()+"/delete", "I have looked at the account"); status != http.StatusNotFound {
		t.Errorf("a verb that there is not: %d", status)
	}
}

// TestNewLicenceIsOffered: if the licence of a call in doubt was changed, its page offers to apply the new
// licence, says what follows, and does it. If the licence was not changed, the page does not offer it.
func TestNewLicenceIsOffered(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	id := s.call("pay", "k", `{}`)
	page := "/traces/" + id.String()
	if _, body := s.get(page); strings.Contains(body, page+"/relicense") {
		t.Error("it is offered where the licence is the same")
	}
	if status, body := s.post(page, page+"/relicense", "I have read their documentation"); status == http.StatusOK || s.state(id) != tga.Executing {
		t.Errorf("where the licence is the same: %d %s", status, body)
	}
	s.licence = "dedupe_args"
	if _, err := client.Reload(t.Context(), s.client); err != nil {
		t.Fatal(err)
	}
	_, body := s.get(page)
	s.has(body, page+"/relicense", "was park when the call was attempted, and is dedupe_args now. By that one alone, it is sent again.")
	if status, body := s.post(page, page+"/relicense", ""); status == http.StatusOK || s.state(id) != tga.Executing {
		t.Errorf("without a reason: %d %s", status, body)
	}
	s.answer = `{"paid":5}`
	if status, body := s.post(page, page+"/relicense", "I have read their documentation"); status != http.StatusOK || !strings.Contains(body, "The call is COMPLETED") {
		t.Errorf("%d %s", status, body)
	}
	if _, body := s.get(page); !strings.Contains(body, "I have read their documentation") || s.state(id) != tga.Completed {
		t.Errorf("the call is %s: %s", s.state(id), body)
	}
}

// TestNobodyHasSeenWhatMayStillBeSent: while the executor of a call may still send it, the page of the call
// does not offer to state that it did not run. A form from that time states it later.
func TestNobodyHasSeenWhatMayStillBeSent(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	begun, err := s.client.Begin(t.Context(), runtime.BeginRequest{Request: runtime.Request{Server: "own", Tool: "pay", Key: "k", Args: []byte(`{}`)}, BeginID: "one"})
	if err != nil || begun.Standing != runtime.BeginSend {
		t.Fatalf("%+v %v", begun, err)
	}
	path := "/traces/" + begun.Result.TraceID.String()
	_, page := s.get(path)
	s.has(page, path+"/ran", path+"/abandon", "may still be about to send")
	if strings.Contains(page, path+"/not-run") {
		t.Error("it offers to say that the call did not run")
	}
	if err := s.client.GiveUp(t.Context(), begun.Result.TraceID, begun.Permit, "", 0); err != nil {
		t.Fatal(err)
	}
	_, page = s.get(path)
	s.has(page, path+"/not-run", `name="shown" value="1"`)
}

// TestTracePage: the page of a call says what tgad show says, and has the data that the browser verifies.
func TestTracePage(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	s.answer = `{"paid":5}`
	id := s.call("pay", "order-17", `{"amount":5}`)
	_, page := s.get("/traces/" + id.String())
	s.has(page, "order-17", "PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "write call, ", "SUCCESS", "&#34;paid&#34;: 5", "Verify in this browser", `data-raw="/traces/`+id.String()+`/raw"`)
	if strings.Contains(page, `class="actions"`) {
		t.Error("a finished call has buttons")
	}
	_, raw := s.get("/traces/" + id.String() + "/raw")
	s.has(raw, `"trace_id":"`+id.String(), `\"entry_digest\"`, `\"_digest\"`)
	status, body, header := s.do(s.request("GET", "/traces/"+id.String()+"/document?pointer=/result", ""))
	if status != 200 || body != s.answer || !strings.HasPrefix(header.Get("Content-Disposition"), "attachment") || header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("the document: %d %q %v", status, body, header)
	}
	for path, want := range map[string]int{"/traces/x": 422, "/traces/" + tga.ID{1}.String(): 422, "/traces/0190b0f0-0000-7000-8000-000000000000": 404, "/traces?state=NONE": 422, "/traces?after=x": 422} {
		if status, body := s.get(path); status != want || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// TestHostileAnswersAreText: markup, control characters and right-to-left text are shown as such, and a long
// answer is cut.
func TestHostileAnswersAreText(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	s.answer = `{"x":"<script>alert(1)</script><img src=x onerror=alert(1)>` + "\u202etxt.exe" + `\u001b[2J"}`
	s.intent = "a charge \u202e of \u2066 nobody \u200b knows \x1b[2J what"
	id := s.call("pay", `"><script>alert(2)</script>`, `{"<b>":"</pre><script>alert(3)</script>"}`)
	for _, path := range []string{"/traces/" + id.String(), "/traces?all=1", "/traces?find=%22%3E%3Cscript%3E&all=1"} {
		_, page := s.get(path)
		for _, bad := range []string{"<script>", "<img", "<b>", "\u202e", "\u2066", "\u200b", "\x1b"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
	s.answer = `{"x":"` + strings.Repeat("y", 9<<20) + `"}`
	long := s.call("pay", "long", `{}`)
	if status, page := s.get("/traces/" + long.String()); status != 200 || len(page) > 256<<10 {
		t.Errorf("a long answer makes a page of %d bytes, status %d", len(page), status)
	}
}

// TestListIsPagedAndFiltered: every call is on one page, newest first if the store has an index of lists,
// and each field of the form filters.
func TestListIsPagedAndFiltered(t *testing.T) {
	for name, text := range map[string]string{"by id": shopConfig, "the newest first": strings.Replace(shopConfig, "[store]", "[store]\nlist_index = true", 1)} {
		t.Run(name, func(t *testing.T) {
			s := newStageWith(t, ui.Options{}, text).login()
			s.answer = `{}`
			const calls = 205
			var all []string
			for i := range calls {
				all = append(all, s.call("pay", fmt.Sprintf("key-%03d", i), fmt.Sprintf(`{"to":"person-%d"}`, i%50)).String())
			}
			path, pages := "/traces?all=1&find=key-", 0
			var shown []string
			for path != "" && pages < 9 {
				_, page := s.get(path)
				s.has(page, map[string]string{"by id": "With list_index", "the newest first": "The newest first"}[name])
				for _, m := range regexp.MustCompile(`href="/traces/([0-9a-f-]{36})"`).FindAllStringSubmatch(page, -1) {
					shown = append(shown, m[1])
				}
				pages, path = pages+1, ""
				if i := strings.Index(page, `href="/traces?`); i >= 0 {
					path = strings.ReplaceAll(page[i+6:i+6+strings.IndexByte(page[i+6:], '"')], "&amp;", "&")
				}
			}
			if name == "by id" {
				slices.Sort(all)
			} else {
				slices.Reverse(all)
			}
			if pages != 3 || !slices.Equal(slices.Sorted(slices.Values(shown)), slices.Sorted(slices.Values(all))) {
				t.Errorf("%d pages of %d calls", pages, len(shown))
			}
			if first := append(shown, ""); !slices.ContainsFunc(all[:20], func(id string) bool { return id == first[0] }) { // some are of one millisecond
				t.Errorf("the first are %v", first)
			}
			for query, n := range map[string]int{
				"all=1&find=key-007": 1, "find=key-": 0, "all=1&state=FAILED": 0, "all=1&state=COMPLETED&find=key-00": 10, "all=1&namespace=none": 0,
				"all=1&key=key-011": 1, "all=1&server=shop&key=key-011": 1, "all=1&server=own": 0, "all=1&tool=ask": 0, "all=1&tool=pay&find=key-19": 10,
				"all=1&text=person-3%22": 5, "all=1&since=2001-01-01T00:00&key=key-001": 1, "all=1&until=2001-01-01T00:00": 0,
			} {
				if _, page := s.get("/traces?" + query); strings.Count(page, "<tr>") != max(0, n+min(n, 1)) {
					t.Errorf("%s: %d rows, want %d", query, strings.Count(page, "<tr>")-1, n)
				}
			}
			if status, _ := s.get("/traces?since=yesterday"); status != http.StatusUnprocessableEntity {
				t.Errorf("since=yesterday: status %d", status)
			}
		})
	}
}

// TestPagesAreTold: a page is told once that it may be older than the log. Then it is told that the log has
// changed, well before its regular reload.
func TestPagesAreTold(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	resp, err := s.browser.Do(s.request("GET", "/live", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("content type %q", got)
	}
	told := make(chan error, 512)
	go func() {
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if lines.Text() == "event: change" {
				told <- nil
			}
		}
		told <- fmt.Errorf("the stream ended: %w", cmp.Or(lines.Err(), io.EOF))
	}()
	first := func(wait time.Duration) bool {
		select {
		case err := <-told:
			if err != nil {
				t.Fatal(err)
			}
			return true
		case <-time.After(wait):
			return false
		}
	}
	if !first(10 * time.Second) {
		t.Fatal("a page is not told that it may be old")
	}
	for i := 0; ; i++ { // the first change may come before the follower is ready
		s.call("pay", fmt.Sprint("k", i), `{}`)
		if first(100 * time.Millisecond) {
			return
		}
		if i == 100 {
			t.Fatal("nobody is told")
		}
	}
}

// TestAtRestNothingIsDone: the pages of a store at rest have no buttons.
func TestAtRestNothingIsDone(t *testing.T) {
	s := newStage(t, ui.Options{}).login()
	id := s.call("pay", "k", `{}`)
	_, page := s.get("/")
	token := tokenOf.FindStringSubmatch(page)[1]
	s.serve(ui.New(s.client, ui.Options{ReadOnly: true}))
	s.login()
	_, page = s.get("/")
	s.has(page, id.String(), "The store is at rest")
	if strings.Contains(page, "<form") || strings.Contains(page, "sse-connect") {
		t.Errorf("it has buttons:\n%s", page)
	}
	if status, _, _ := s.do(s.request("POST", "/traces/"+id.String()+"/ran", "token="+token+"&why=I+have+looked+at+it")); status != http.StatusForbidden {
		t.Errorf("an action: %d", status)
	}
	if got := s.state(id); got != tga.Executing {
		t.Errorf("the call is %s", got)
	}
}
