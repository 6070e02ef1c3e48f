package ui

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"net"
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/listen"
)

// Proxy is a reverse proxy that knows its visitors. To the view all of them come from one process, so who one of them is
// only a token says that somebody else has signed. Whoever has none sees what there is, and can do nothing.
type Proxy struct {
	Host string // that the visitors' browsers ask for
	// Who is the name that a request's token says; "" where it has none that is good. It stands in the log, before the
	// reason of what its owner does.
	Who func(r *http.Request) string
}

// ListenBehind listens at a socket file that the proxy's group may use.
func ListenBehind(path string) (net.Listener, error) {
	return listen.Unix(path, 0o660)
}

// visitor is whose a request is.
type visitor struct {
	name string // as a token said; "" of the one person whom the view serves
	form string // the token that an action brings; "" of who may do nothing
}

type visitorKey struct{}

// visitor finds out whose a request is; false where it is nobody's.
func (s *Server) visitor(r *http.Request) (visitor, bool) {
	if p := s.opts.Proxy; p != nil {
		name := p.Who(r)
		if name == "" || s.opts.ReadOnly || len(name) > maxName || clip.Clean(name) != name {
			return visitor{}, true
		}
		mac := hmac.New(sha256.New, []byte(s.key))
		mac.Write([]byte(name))
		return visitor{name, base32.StdEncoding.EncodeToString(mac.Sum(nil))[:26]}, true
	}
	c, err := r.Cookie(cookie(r))
	s.mu.Lock()
	defer s.mu.Unlock()
	v := visitor{form: s.key}
	if s.opts.ReadOnly {
		v.form = ""
	}
	return v, err == nil && same(s.session, c.Value)
}

// maxName bounds a visitor's name, in bytes.
const maxName = 255

// of is whose a request is that was let in.
func of(ctx context.Context) visitor {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v
}

// acts says whether whose a request is may do anything.
func acts(r *http.Request) bool { return of(r.Context()).form != "" }

// reason is why somebody does something, with the name of who it is where only a token knows that: to the daemon all are
// one peer.
func (v visitor) reason(why string) string {
	if v.name == "" {
		return why
	}
	return v.name + ": " + why
}

// here says whether a Host is this view's.
func (s *Server) here(host string) bool {
	if s.opts.Proxy == nil {
		return listen.Loopback(host)
	}
	return strings.EqualFold(host, s.opts.Proxy.Host)
}
