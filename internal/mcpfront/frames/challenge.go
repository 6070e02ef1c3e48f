package frames

import (
	"fmt"
	"net/http"

	"github.com/tgad/tgad/internal/mcpraw"
)

// Challenge is a tool server's refusal because authorization is missing: status 401, or 403 with
// WWW-Authenticate. The client gets the status and the WWW-Authenticate unchanged, so that it can
// ask its user and repeat the request. The refused request certainly did not run.
type Challenge struct {
	status int
	wants  []string // the values of WWW-Authenticate
	header string   // the header in which the client sends its credentials
}

func (c *Challenge) Error() string {
	words := fmt.Sprintf("the tool server answered %d %s", c.status, http.StatusText(c.status))
	if !c.ComesBack() {
		words += "; a client sends its credentials for it in the header " + c.header
	}
	return words
}

// ComesBack reports whether the client is answered with the challenge. It is not if its credentials come in a header
// for this tool server alone: then the client's Authorization was not what the tool server refused.
func (c *Challenge) ComesBack() bool { return c != nil && c.header == authorization }

// Head writes the status and the headers of the client's answer.
func (c *Challenge) Head(w http.ResponseWriter) {
	w.Header()[wwwAuthenticate] = c.wants
	w.WriteHeader(c.status)
}

// challengeOf returns the challenge of a response. It is nil if there is none, or no credentials are forwarded.
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

// challenged delivers a frame which says that a request was refused with a challenge. It leaves
// out the body, which may repeat the token: the frame's words are logged with the call.
func (r *remote) challenged(id []byte, method string, ch *Challenge) {
	if id != nil && method != "" {
		r.hand(&Frame{Envelope: mcpraw.Envelope{Bad: ch.Error(), RawID: id}, Unsent: ch.Error(), Challenge: ch})
	}
}
