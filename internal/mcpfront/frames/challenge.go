package frames

import (
	"fmt"
	"net/http"

	"github.com/tgad/tgad/internal/mcpraw"
)

// Challenge is a tool server's refusal for want of authorization: 401, or 403 with what is
// missing. Its client gets the status and the WWW-Authenticate as they came, so that it can
// ask its user and come back. The request certainly did not run.
type Challenge struct {
	status int
	wants  []string // the values of WWW-Authenticate
	header string   // in which the client's credentials come
}

func (c *Challenge) Error() string {
	words := fmt.Sprintf("the tool server answered %d %s", c.status, http.StatusText(c.status))
	if !c.ComesBack() {
		words += "; a client sends its credentials for it in the header " + c.header
	}
	return words
}

// ComesBack reports whether the client is answered with the challenge. Where its credentials come in a header of the
// tool server's own, the client's Authorization is not what was refused.
func (c *Challenge) ComesBack() bool { return c != nil && c.header == authorization }

// Head begins a client's answer.
func (c *Challenge) Head(w http.ResponseWriter) {
	w.Header()[wwwAuthenticate] = c.wants
	w.WriteHeader(c.status)
}

// challengeOf returns the challenge of an answer, nil where it is none or nothing is forwarded.
func (r *remote) challengeOf(resp *http.Response) *Challenge {
	wants := resp.Header.Values(wwwAuthenticate)
	if r.Forwards == "" || resp.StatusCode != http.StatusUnauthorized && (resp.StatusCode != http.StatusForbidden || len(wants) == 0) {
		return nil
	}
	return &Challenge{resp.StatusCode, wants, r.Forwards}
}

const (
	authorization   = "Authorization"
	wwwAuthenticate = "Www-Authenticate" // as net/http spells it
)

// challenged hands on that a request was refused with a challenge. What the body says is left
// out: it goes into the log with the call, and may repeat the token.
func (r *remote) challenged(id []byte, method string, ch *Challenge) {
	if id != nil && method != "" {
		r.hand(&Frame{Envelope: mcpraw.Envelope{Bad: ch.Error(), RawID: id}, Unsent: ch.Error(), Challenge: ch})
	}
}
