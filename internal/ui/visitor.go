package ui

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"net"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/listen"
)

// Proxy is a reverse proxy that authenticates its visitors. For the view all requests come from one process, so only
// a signed token in a request identifies its visitor. A visitor without a token can look, and can do nothing.
type Proxy struct {
	Host string // the Host in the requests of visitors' browsers
	// Who returns the name in a request's token; "" if it has no valid token. The log has the name before the reason of
	// each action.
	Who func(r *http.Request) string
}

// ListenBehind listens at a socket file that the proxy's group may use.
func ListenBehind(path string) (net.Listener, error) {
	return listen.Unix(path, 0o660)
}

// visitor is the person who makes a request.
type visitor struct {
	name string // from a token of the proxy; "" for the one person whom the view serves
	form string // the token that an action must have; "" if the visitor may do nothing
}

type visitorKey struct{}

// visitor returns the visitor of a request; false if it has no session.
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

// of is the visitor of a request, from its context.
func of(ctx context.Context) visitor {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v
}

// acts says whether the visitor of a request may make actions.
func acts(r *http.Request) bool { return of(r.Context()).form != "" }

// reason is the reason of an action. Behind a proxy it begins with the visitor's name, because all visitors are the same
// peer for the daemon.
func (v visitor) reason(why string) string {
	if v.name == "" {
		return why
	}
	return v.name + ": " + why
}

// Limits of a reason, in characters, as the daemon has them for a vote.
const leastReason, mostReason = 10, 1000

// bounds are the limits of the reason that a visitor writes. With the visitor's name it has at most mostReason.
func (v visitor) bounds() (least, most int) {
	return leastReason, mostReason - utf8.RuneCountInString(v.reason(""))
}

// reasonInput is a field for a reason, with the limits of the visitor.
func reasonInput(r *http.Request, name string, more ...g.Node) g.Node {
	least, most := of(r.Context()).bounds()
	return h.Input(h.Name(name), g.Group(more), h.MinLength(strconv.Itoa(least)), h.MaxLength(strconv.Itoa(most)), h.AutoComplete("off"))
}

// here says whether a Host is one of this view.
func (s *Server) here(host string) bool {
	if s.opts.Proxy == nil {
		return listen.Loopback(host)
	}
	return strings.EqualFold(host, s.opts.Proxy.Host)
}
