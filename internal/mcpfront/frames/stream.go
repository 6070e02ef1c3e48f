package frames

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// A tool server may give the events of a stream ids, and may then end the stream before it has said all, as a proxy may. Whoever names
// the newest id that it has in a GET gets the rest. Nothing of a request is sent again for that.

// listenPause is the pause between two GETs; it doubles up to listenMost while they fail.
const listenPause, listenMost = time.Second, 30 * time.Second

// Limits of asking for the rest of a stream.
const (
	resumeTries = 4                      // GETs that fail one after another
	leastRetry  = 100 * time.Millisecond // shortest pause that a tool server can ask for
	mostRetry   = time.Hour              // and longest
)

// place is how far a stream of events was read.
type place struct {
	id    string        // of the newest event that came whole, or of one before it; "" = no event has one
	next  string        // id for the event that is being read
	kind  string        // and its type
	retry time.Duration // the pause before a GET that the tool server asks for; 0 = none
}

// field takes a line of an event that has no data.
func (p *place) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		p.kind = string(value)
	case "id":
		if bytes.IndexFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) < 0 { // else no header can carry it
			p.next = string(value)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
			p.retry = min(max(time.Duration(ms)*time.Millisecond, leastRetry), mostRetry)
		}
	}
}

// pause is how long to wait with a GET after so many that failed one after another. The tool server's wish is kept, and is not doubled: it
// may be an hour.
func (p *place) pause(failed int) time.Duration {
	if failed == 0 {
		return cmp.Or(p.retry, listenPause)
	}
	return max(p.retry, listenPause<<failed)
}

// passed is called at the end of an event.
func (p *place) passed() { p.id, p.kind = p.next, "" }

// isAside reports whether an event is none of the protocol's: it has another type, and is no message. Some servers send such events
// so that a proxy does not end the stream.
func (p *place) isAside(f *Frame) bool { return f.Bad != "" && p.kind != "" && p.kind != "message" }

// follow delivers the messages of the stream that answers a request. If the stream ends before the answer, follow asks for the rest of
// it. A revision without a handshake has no such GET.
func (r *remote) follow(ctx context.Context, id []byte, method string, body io.Reader) error {
	var at place
	err := r.events(body, id, &at)
	for failed := 0; err != nil && at.id != "" && id != nil && method != "" && r.handshake() != "" && failed < resumeTries; failed++ {
		select {
		case <-time.After(at.pause(failed)):
		case <-ctx.Done():
			return err
		}
		resp, getErr := r.get(ctx, at.id)
		if getErr != nil {
			continue
		}
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		streams := resp.StatusCode == http.StatusOK && kind == "text/event-stream"
		if streams {
			failed, err = -1, r.events(resp.Body, id, &at)
		}
		if unclosed := resp.Body.Close(); unclosed != nil { // not err: events has said whether the answer came whole
			r.Log.Debug("the tool server's stream was not closed", "error", unclosed)
		}
		if !streams && offersNone(resp.StatusCode) {
			return err
		}
	}
	return err
}

// get asks for a stream; after is the id of the newest event of it that was read, "" for a new stream.
func (r *remote) get(ctx context.Context, after string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL, nil)
	if err != nil {
		return nil, err
	}
	r.head(req, r.handshake())
	req.Header.Set("Accept", "text/event-stream")
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	return r.rt.RoundTrip(req)
}

// offersNone reports whether a status says that the server offers no GET stream. Another status may come from a proxy,
// from a server that is restarting or busy, or from one that takes the stream before for open.
func offersNone(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return status/100 < 5 || status == http.StatusNotImplemented
}

// listen reads the tool server's messages that belong to no request. It ends if the server says
// with a status that it offers no such stream.
func (r *remote) listen() {
	var at place
	for pause := listenPause; r.life.Err() == nil; pause = min(2*pause, listenMost) {
		resp, err := r.get(r.life, at.id)
		if err == nil {
			if resp.StatusCode == http.StatusOK {
				pause, err = listenPause, r.events(resp.Body, nil, &at)
			} else {
				err = fmt.Errorf("HTTP status %s", resp.Status)
			}
			err = errors.Join(err, resp.Body.Close())
			if offersNone(resp.StatusCode) && resp.StatusCode != http.StatusOK {
				if at.id == "" {
					return
				}
				at = place{} // perhaps only the place is not known any more
			}
		}
		r.Log.Debug("the tool server's stream ended", "error", err)
		select {
		case <-time.After(max(pause, at.retry)):
		case <-r.life.Done():
		case <-r.gone:
			return
		}
	}
}
