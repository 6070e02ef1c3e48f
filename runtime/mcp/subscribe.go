package mcp

import (
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpraw"
)

// From revision 2026-07-28 on a server announces changes only on a stream that the client has
// requested. The stream lasts until either side ends it.

// acknowledged is the first message on such a stream. From then on no change is missed.
const acknowledged = "notifications/subscriptions/acknowledged"

// Pauses before a stream that broke is requested again.
const (
	firstSubscribePause = 100 * time.Millisecond
	lastSubscribePause  = 30 * time.Second
)

// heard handles a notification of the server.
func (s *Server) heard(method string) {
	switch method {
	case toolsChanged:
		s.toolsChanged()
	case acknowledged:
		s.mu.Lock()
		s.acks++
		missed := s.acks > 1
		s.mu.Unlock()
		if missed {
			s.toolsChanged() // the tools may have changed while there was no stream
		}
	}
}

// subscribe keeps a subscription to changes of a session's tools until the session ends. It
// gives up if the server refuses a request before it acknowledges it, other than for being busy.
func (s *Server) subscribe(sess *session) {
	pause := firstSubscribePause
	for sess.link.alive() && s.life.Err() == nil {
		before, began := s.acknowledgements(), time.Now()
		params := append([]byte(`{"_meta":{`), sess.meta[1:]...)
		a, err := sess.link.exchange(s.life, &jsonrpc.Request{
			Method: "subscriptions/listen", Params: append(params, `},"notifications":{"toolsListChanged":true}}`...),
		})
		acked := s.acknowledgements() != before
		refused := false
		switch {
		case err != nil:
		case a.fault.present:
			said := mcpanswer.ReadFault(a.fault.data, 1)
			err, refused = errors.New(said.Why), said.Meaning == mcpraw.IsRefusal
		case a.refused != "":
			err, refused = errors.New(a.refused), !a.busy
		}
		if refused && !acked {
			s.log.Warn("the tool server refuses to tell of changes of its tools", "error", err)
			return
		}
		if acked && time.Since(began) > pause { // else the server ends each stream at once
			pause = firstSubscribePause
		}
		s.log.Debug("a subscription has ended and is made again", "error", err)
		select {
		case <-time.After(pause):
		case <-s.life.Done():
		}
		pause = min(2*pause, lastSubscribePause)
	}
}

func (s *Server) acknowledgements() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acks
}
