package mcpshim

import (
	"fmt"
	"net/http"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
)

// challenge is a tool server's refusal for want of authorization: 401, or 403 with what is
// missing. Its client gets the status and the WWW-Authenticate as they came, so that it can
// ask its user and come back. The request certainly did not run.
type challenge struct {
	status int
	wants  []string // the values of WWW-Authenticate
}

func (c *challenge) Error() string {
	return fmt.Sprintf("the tool server answered %d %s", c.status, http.StatusText(c.status))
}

// head begins a client's answer.
func (c *challenge) head(w http.ResponseWriter) {
	w.Header()[wwwAuthenticate] = c.wants
	w.WriteHeader(c.status)
}

// challengeOf returns the challenge of an answer, nil where it is none or nothing is forwarded.
func (r *remote) challengeOf(resp *http.Response) *challenge {
	wants := resp.Header.Values(wwwAuthenticate)
	if !r.forwards || resp.StatusCode != http.StatusUnauthorized && (resp.StatusCode != http.StatusForbidden || len(wants) == 0) {
		return nil
	}
	return &challenge{resp.StatusCode, wants}
}

const wwwAuthenticate = "Www-Authenticate" // as net/http spells it

// challenged hands on that a request was refused with a challenge. What the body says is left
// out: it goes into the log with the call, and may repeat the token.
func (r *remote) challenged(id []byte, method string, ch *challenge) {
	if id != nil && method != "" {
		r.hand(&frame{Envelope: mcpraw.Envelope{Bad: ch.Error(), RawID: id}, unsent: ch.Error(), challenge: ch})
	}
}

// challengeable is an outlet whose answers have a status.
type challengeable interface {
	// challenge sets the status of the answer to a request, before that is given.
	challenge(id []byte, ch *challenge)
}

// challenged tells the way to the client that a request's answer is a challenge.
func (c *conv) challenged(id []byte, b *batchReply, ch *challenge) {
	if b != nil {
		id = b.name
	}
	if out, ok := c.out.(challengeable); ok && ch != nil {
		out.challenge(id, ch)
	}
}
