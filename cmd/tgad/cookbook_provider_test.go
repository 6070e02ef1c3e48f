package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"
)

// provider stands for the services of docs/COOKBOOK.md that somebody else runs: one takes payments, two send
// mail, one keeps tickets. It outlives the daemon, and counts what it did.
type provider struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	waiting string        // the point at which calls wait
	open    chan struct{} // closed when calls need not wait any more
	points  map[[3]string]int
	did     map[[2]string]int
	charges map[string]string // answers by key
	kept    map[string]bool   // Message-IDs in the sent folder, references of tickets
}

func newProvider(t *testing.T) *provider {
	v := &provider{t: t, open: make(chan struct{}), points: map[[3]string]int{}, did: map[[2]string]int{}, charges: map[string]string{}, kept: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/charges", v.tool("pay", func(key string, _ map[string]any) (string, bool) {
		if first, ok := v.charges[key]; ok {
			return first, false
		}
		v.charges[key] = `{"id":"ch_` + key + `","paid":true}`
		return v.charges[key], true
	}))
	mux.HandleFunc("POST /api/send", v.tool("mail", func(string, map[string]any) (string, bool) { return `{"accepted":true}`, true }))
	mux.HandleFunc("POST /api/messages", v.tool("letters", func(_ string, args map[string]any) (string, bool) {
		return v.keep(args["message_id"], `{"message_id":`)
	}))
	mux.HandleFunc("POST /api/tickets", v.tool("tickets", func(_ string, args map[string]any) (string, bool) {
		return v.keep(args["reference"], `{"reference":`)
	}))
	mux.HandleFunc("GET /api/sent", func(w http.ResponseWriter, r *http.Request) {
		list := `[]`
		if id := r.FormValue("message_id"); v.has(id) {
			list = `[{"message_id":"` + id + `"}]`
		}
		v.say(w, `{"messages":`+list+`}`)
	})
	mux.HandleFunc("GET /api/by-reference/{id}", func(w http.ResponseWriter, r *http.Request) {
		id := path.Base(r.URL.Path)
		if !v.has(id) {
			http.NotFound(w, r)
			return
		}
		v.say(w, `{"reference":"`+id+`"}`)
	})
	v.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		v.CloseClientConnections()
		v.Close()
	})
	return v
}

// keep remembers an id that the caller chose.
func (v *provider) keep(id any, head string) (string, bool) {
	text, _ := id.(string)
	v.kept[text] = true
	return head + `"` + text + `"}`, text != ""
}

func (v *provider) has(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.kept[id]
}

func (v *provider) say(w io.Writer, text string) {
	if _, err := io.WriteString(w, text); err != nil {
		v.t.Logf("an answer reached nobody: %v", err) // the caller was killed
	}
}

// tool answers the calls of one tool. act returns the answer, and whether anything was done.
func (v *provider) tool(server string, act func(key string, args map[string]any) (string, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		var args map[string]any
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			v.t.Errorf("%s: %v", server, err)
			return
		}
		if !v.at(r, before, server, key) {
			return
		}
		v.mu.Lock()
		answer, acted := act(key, args)
		if acted {
			v.did[[2]string{server, key}]++
		}
		v.mu.Unlock()
		if v.at(r, after, server, key) {
			v.say(w, answer)
		}
	}
}

// at counts a call at a point, and lets it wait there if the test says so. Then its caller is killed, and
// the call goes no further.
func (v *provider) at(r *http.Request, point, server, key string) bool {
	v.mu.Lock()
	v.points[[3]string{server, point, key}]++
	waits, open := v.waiting == point, v.open
	v.mu.Unlock()
	if !waits {
		return true
	}
	select {
	case <-r.Context().Done():
	case <-open:
	}
	return false
}

func (v *provider) hold(point string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting, v.open = point, make(chan struct{})
}

func (v *provider) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waiting != "" {
		close(v.open)
	}
	v.waiting = ""
}

// came counts the calls that reached a point; false if the server is none of these.
func (v *provider) came(server, point, key string) (int, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch server {
	case "pay", "mail", "letters", "tickets":
		return v.points[[3]string{server, point, key}], true
	}
	return 0, false
}

func (v *provider) acts(server, key string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.did[[2]string{server, key}]
}
