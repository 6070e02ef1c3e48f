//go:build unix

package entry

import (
	"net/http"
	"slices"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/paper"
)

// poster writes the response of one POST.
type poster struct {
	e         *exchange
	f         *Front
	w         http.ResponseWriter
	socket    any
	modern    bool
	streaming bool
}

// write writes one message and reports whether it was the last. An empty last message ends the stream without an answer.
func (p *poster) write(ev event) (last bool) {
	if ev.last && len(ev.raw) == 0 {
		p.stream()
		ev.done <- nil
		return true
	}
	if ev.last && !p.streaming {
		p.w.Header().Set("Content-Type", "application/json")
		if ch := p.e.challenge.Load(); ch != nil {
			if p.e.opens {
				p.w.Header().Del(sessionHeader)
			}
			ch.Head(p.w)
		} else if p.modern {
			p.w.WriteHeader(statusOf(ev.raw))
		}
		ev.done <- p.f.write(p.w, p.socket, ev.raw)
		return true
	}
	p.stream()
	ev.done <- p.f.writeEvent(p.w, p.socket, ev.raw)
	return ev.last
}

// stream begins a stream of messages as the response, unless it has begun.
func (p *poster) stream() {
	if !p.streaming {
		p.streaming = true
		p.w.Header().Set("Content-Type", "text/event-stream")
		p.w.Header().Set("Cache-Control", "no-store")
	}
}

// rest writes the queued messages and reports whether the answer was among them. Only the goroutine
// of the POST takes messages from the queue.
func (p *poster) rest() (last bool) {
	for len(p.e.events) > 0 && !last {
		last = p.write(<-p.e.events)
	}
	return last
}

func (f *Front) writeEvent(w http.ResponseWriter, socket any, raw []byte) error {
	return f.write(w, socket, []byte("event: message\ndata: "), raw, []byte("\n\n"))
}

// write writes bytes to a client. If the client takes none of them for FrontOptions.Stall, it is cut
// off, and its request is given up.
//
// If the client has closed its side by then, write fails although the system took the bytes: they
// reached nobody.
func (f *Front) write(w http.ResponseWriter, socket any, parts ...[]byte) error {
	to := http.NewResponseController(w)
	for _, part := range parts {
		for chunk := range slices.Chunk(part, 64<<10) {
			_ = to.SetWriteDeadline(time.Now().Add(f.o.Stall)) // fails only for a writer that is no connection
			if _, err := w.Write(chunk); err != nil {
				return err
			}
		}
	}
	if err := to.Flush(); err != nil || !paper.ClosedByPeer(socket) {
		return err
	}
	return errNotThere
}

func flush(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }
