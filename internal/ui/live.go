package ui

import (
	"fmt"
	"net/http"
	"time"

	g "maragu.dev/gomponents"
)

// liveEvery is the shortest time between two events for a page, and liveLeast the longest. Without liveLeast, a
// change from before the log was followed would be shown only with the next change.
const (
	liveEvery = 500 * time.Millisecond
	liveLeast = 20 * time.Second
)

// living is the part of a page that is replaced when the log has changed. The rest of the page stays: a form that
// somebody fills in, and the place that they scrolled to. ui.js delays it while somebody uses a field in it.
func (s *Server) living(r *http.Request, id string, body ...g.Node) g.Node {
	if s.opts.ReadOnly {
		return h.Div(h.ID(id), g.Group(body))
	}
	return h.Div(h.ID(id), g.Attr("hx-get", r.URL.RequestURI()), g.Attr("hx-trigger", "sse:change"), g.Attr("hx-select", "#"+id), g.Attr("hx-swap", "outerHTML"), g.Group(body))
}

// shown is the name of the living part of every page but the inbox.
const shown = "shown"

// live sends a page server-sent events when the log has changed. The page then fetches its living part again.
// When this ends, the browser connects again by itself, also after the daemon was away.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func() error {
		if _, err := fmt.Fprint(w, "event: change\ndata: .\n\n"); err != nil {
			return err
		}
		return out.Flush()
	}
	if _, err := fmt.Fprint(w, "retry: 1000\n\n"); err != nil || out.Flush() != nil {
		return
	}
	last := time.Now()
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // the log may have changed since the page was made
	ctx := r.Context()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range s.do.Changes(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					s.opts.Logger.Debug("the log is not followed any more", "error", err)
				}
				return // the browser connects again in a second
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	defer func() { <-done }()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(liveLeast):
		}
		if wait := liveEvery - time.Since(last); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
		last = time.Now()
		if send() != nil {
			return
		}
	}
}
