package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/runtime"
)

// shop is a world outside that can be asked: it books items, cancels them, shows them, and
// says whether a key was booked. It counts what it did.
type shop struct {
	*httptest.Server
	mu     sync.Mutex
	items  map[string]bool   // id of a booking, whether it stands
	byKey  map[string]string // key, id of its booking
	tried  map[string]int    // requests with a key
	undone int               // cancellations made
	asked  int               // questions about keys

	// booking answers the n-th request with a key, from 1, in place of the shop; true
	// means that it did. blind refuses the n-th question about keys.
	booking func(n int, w http.ResponseWriter, book func() string) bool
	blind   func(n int) bool
}

func newShop(t *testing.T) *shop {
	s := &shop{items: map[string]bool{}, byKey: map[string]string{}, tried: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tools/book", func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		s.mu.Lock()
		s.tried[key]++
		n, booking := s.tried[key], s.booking
		s.mu.Unlock()
		book := func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			id := fmt.Sprintf("item-%d", len(s.items)+1)
			s.items[id], s.byKey[key] = true, id
			return booked(id)
		}
		if booking == nil || !booking(n, w, book) {
			io.WriteString(w, book())
		}
	})
	mux.HandleFunc("POST /tools/cancel", func(w http.ResponseWriter, r *http.Request) {
		var args struct{ ID string }
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.items[args.ID] = false
		s.undone++
		io.WriteString(w, `{"cancelled":true}`)
	})
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.items[r.PathValue("id")] {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"id":"`+r.PathValue("id")+`"}`)
	})
	mux.HandleFunc("GET /keys/{key}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked++
		id := s.byKey[r.PathValue("key")]
		switch {
		case s.blind != nil && s.blind(s.asked):
			w.WriteHeader(http.StatusTeapot)
		case id == "":
			w.WriteHeader(http.StatusNotFound)
		default:
			io.WriteString(w, `{"key":"`+r.PathValue("key")+`","response":`+booked(id)+`}`)
		}
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func booked(id string) string { return `{"id":"` + id + `","state":"booked"}` }

// remove takes a booking away behind the daemon's back.
func (s *shop) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items[id] = false
}

func (s *shop) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// counts are requests with a key, bookings that stand, and cancellations.
func (s *shop) counts(key string) (tried, standing, undone int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, there := range s.items {
		if there {
			standing++
		}
	}
	return s.tried[key], standing, s.undone
}

// lose makes the shop book and lose the acknowledgement of the first request with a key.
func (s *shop) lose() {
	s.set(func() {
		s.booking = func(n int, w http.ResponseWriter, book func() string) bool {
			if n > 1 {
				return false
			}
			book()
			hangUp(w)
			return true
		}
	})
}

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		panic(err)
	}
}

// shopConfig is the shop as a tool server whose bookings can be looked at, asked about and
// undone. tool is added to the row of the tool.
func (s *shop) config(tool string) string {
	return strings.NewReplacer("URL", s.URL, "TOOL", tool).Replace(`
[[server]]
id = "shop"
type = "http"
url = "URL/tools"
statuses = { "429" = "not_executed" }

[[tool]]
server = "shop"
name = "book"
licence = "probe"
probe = { first = "100ms", max = "100ms" }
TOOL
change = [{ resource_type = "item", resource_id = "{/result/id}", operation = "create" }]
inverse = { name = "cancel", args = '{"id":"{/result/id}"}' }

[[prober]]
server = "shop"
tool = "book"
type = "http"
url = "URL/keys/{key}"
tries = 1
ran = [{ check = [{ pointer = "/key", field = "key" }] }]
not_ran = [{ status = [404] }]
reply = { result = "/response" }

[[verifier]]
resource_type = "item"
type = "http"
url = "URL/items/{resource_id}"
tries = 1
check = [{ pointer = "/id", field = "resource_id" }]
`)
}

func book(key string) runtime.Request {
	return runtime.Request{Server: "shop", Tool: "book", Key: key, Args: []byte(`{"room":7}`)}
}
