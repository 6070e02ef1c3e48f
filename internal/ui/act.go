package ui

import (
	"context"
	"net/http"
	"strconv"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// permitted says whether a form has the token of the session. If not, it writes the answer. For a store at
// rest no page has a form, so nobody has the token.
func (s *Server) permitted(w http.ResponseWriter, r *http.Request) bool {
	if err := r.ParseForm(); err != nil {
		s.fail(w, r, tga.Errorf(tga.ValidationError, "the form: %w", err))
		return false
	}
	ok := same(of(r.Context()).form, r.PostForm.Get("token"))
	if !ok {
		s.fail(w, r, tga.Errorf(tga.PermissionDenied, "%s", words.oldToken))
	}
	return ok
}

// token is the hidden field with the session's token.
func token(r *http.Request) g.Node {
	return h.Input(h.Type("hidden"), h.Name("token"), h.Value(of(r.Context()).form))
}

// act makes the request for an action about a trace, as the command line would. If somebody else was first,
// the daemon says so, and the page shows what is recorded.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	if !s.permitted(w, r) {
		return
	}
	verb, shown := r.PathValue("verb"), r.PostForm.Get("shown")
	vote := verb == "approve" || verb == "deny"
	kind := verb
	if vote || verb == relicensing {
		kind, shown = "abandon", "" // for a vote, decide reads shown as the digest of the question
	}
	x, err := read(r, kind, r.PathValue("id"), shown, r.PostForm.Get("why"))
	var res runtime.Result
	switch {
	case err != nil:
	case vote:
		res, err = s.decide(r, x, verb == "approve")
	case verb == relicensing:
		res, err = s.relicense(r.Context(), x)
	default:
		res, err = s.settleOne(r.Context(), x)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.page(w, r, http.StatusOK, words.inbox, h.Div(h.Class("done"), h.Role("status"),
		h.P(h.Text(settled(verb, res.State))), h.P(link(x.trace)), h.P(h.A(h.Href("/"), h.Text(words.goOn))),
	))
}

// decide votes on the question that the form showed.
func (s *Server) decide(r *http.Request, x settlement, approve bool) (res runtime.Result, err error) {
	vote := wire.DecideRequest{Approve: approve, Rationale: x.why}
	if about := r.PostForm.Get("shown"); about != "" {
		if vote.About, err = tga.ParseDigest(about); err != nil {
			return res, err
		}
	}
	return s.do.Decide(r.Context(), x.trace, vote)
}

// relicense lets the current licence decide about a call in doubt.
func (s *Server) relicense(ctx context.Context, x settlement) (res runtime.Result, err error) {
	done, err := s.do.Relicense(ctx, x.trace, wire.RelicenseRequest{Reason: x.why})
	if err != nil {
		return res, err
	}
	res.State, err = tga.ParseState(done.Call.State)
	return res, err
}

// settleOne ends one call in doubt. The daemon records its peer as the one who settled it.
func (s *Server) settleOne(ctx context.Context, x settlement) (runtime.Result, error) {
	known, ok := story.Known[x.verb]
	if !ok {
		return s.do.Abandon(ctx, x.trace, x.why)
	}
	return s.do.Resolve(ctx, x.trace, runtime.Resolution{Reply: runtime.Reply{Status: known.Status, Class: known.Class}, Evidence: []byte(x.why), Attempts: x.attempts})
}

// attempts parses the number of attempts that a form showed; 0 if the form has none.
func attempts(shown string) (uint32, error) {
	if shown == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(shown, 10, 32)
	if err != nil {
		return 0, tga.Errorf(tga.ValidationError, "the form's number of attempts: %w", err).At("/shown")
	}
	return uint32(n), nil
}
