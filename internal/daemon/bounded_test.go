package daemon

import (
	"net/http"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// timedWriter is a writer that says which writes had no deadline of their own.
type timedWriter struct {
	header  http.Header
	bounds  int
	writes  int
	unbound int
}

func (w *timedWriter) Header() http.Header { return w.header }
func (w *timedWriter) WriteHeader(int)     { w.wrote() }
func (w *timedWriter) FlushError() error   { return nil }
func (w *timedWriter) SetWriteDeadline(time.Time) error {
	w.bounds++
	return nil
}

func (w *timedWriter) Write(p []byte) (int, error) {
	w.wrote()
	return min(len(p), 2*boundedPart), nil
}

func (w *timedWriter) wrote() {
	w.writes++
	if w.bounds == 0 {
		w.unbound++
	}
	w.bounds = min(w.bounds, 1) // the header and the first part of the body may share one
}

// TestEveryAnswerIsBounded: no write of any kind of answer waits for a client without a bound, and a long answer is
// written in parts.
func TestEveryAnswerIsBounded(t *testing.T) {
	b := start(t, "")
	d := b.near.d
	for name, handle := range map[string]func(*request) (any, error){
		"an answer":       func(*request) (any, error) { return exact{"x", make([]byte, 3*boundedPart+1)}, nil },
		"an empty answer": func(*request) (any, error) { return exact{"x", nil}, nil },
		"a problem":       func(*request) (any, error) { return nil, tga.Errorf(tga.NotFound, "nothing is here") },
		"an unchanged one": func(q *request) (any, error) {
			q.r.Header.Set("If-None-Match", `"`+tga.Sum(nil).String()+`"`)
			return q.exactBytes(nil, tga.Sum(nil)), nil
		},
		"a stream":            func(q *request) (any, error) { return nil, q.newStream().line("x") },
		"a broken stream":     func(q *request) (any, error) { q.newStream(); return nil, tga.Errorf(tga.NotFound, "nothing is here") },
		"an empty stream":     func(q *request) (any, error) { q.newStream(); return nil, nil },
		"metrics":             (*request).showMetrics,
		"a profile":           func(q *request) (any, error) { q.r.SetPathValue("name", "goroutine"); return operating{q}.profile() },
		"a profile of a time": func(q *request) (any, error) { q.r.SetPathValue("name", "trace"); return operating{q}.profile() },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://tgad/v1/x?seconds=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		ours := d.ownConnection()
		w := &timedWriter{header: http.Header{}}
		q := &request{d: d, w: w, r: r, peer: ours.peer}
		answer, err := handle(q)
		switch {
		case err != nil && q.status != 0:
			q.lastLine(err)
		case err != nil:
			q.refuse(err)
		case answer != nil:
			q.answer(answer)
		}
		if w.writes == 0 || w.unbound > 0 {
			t.Errorf("%s: %d writes, %d of them without a bound", name, w.writes, w.unbound)
		}
	}
}
