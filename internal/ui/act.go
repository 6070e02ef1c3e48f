package ui

import (
	"net/http"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"

	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// act does what a person has decided about a trace: the request that the command line would make. Where
// somebody else was first, the daemon says so, and the page shows what is recorded. Of a store at rest no
// page has a form, so nobody has the token.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	id, err := tga.ParseID(r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if err := r.ParseForm(); err != nil {
		s.fail(w, r, tga.Errorf(tga.ValidationError, "the form: %w", err).In(id))
		return
	}
	s.mu.Lock()
	ok := same(s.token, r.PostForm.Get("token"))
	s.mu.Unlock()
	if !ok {
		s.fail(w, r, tga.Errorf(tga.PermissionDenied, "%s", words.oldToken).In(id))
		return
	}
	why, shown, verb := strings.TrimSpace(r.PostForm.Get("why")), r.PostForm.Get("shown"), r.PathValue("verb")
	if why == "" {
		s.fail(w, r, tga.Errorf(tga.ValidationError, "%s", words.noReason).In(id).At("/why"))
		return
	}
	var res runtime.Result
	switch verb {
	case "approve", "deny":
		vote := client.DecideRequest{Approve: verb == "approve", Rationale: why}
		if shown != "" {
			vote.About, err = tga.ParseDigest(shown)
		}
		if err == nil {
			res, err = s.do.Decide(r.Context(), id, vote)
		}
	case "abandon":
		res, err = s.do.Abandon(r.Context(), id, why)
	case "ran", "failed", "not-run":
		// Who settled it is the peer, which the daemon knows.
		known := story.Known[verb]
		word := runtime.Resolution{Reply: runtime.Reply{Status: known.Status, Class: known.Class}, Evidence: []byte(why)}
		if word.Attempts, err = attempts(shown); err == nil {
			res, err = s.do.Resolve(r.Context(), id, word)
		}
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.page(w, r, http.StatusOK, words.inbox, h.Div(h.Class("done"), h.Role("status"),
		h.P(g.Text(settled(verb, res.State))), h.P(link(id)), h.P(h.A(h.Href("/"), g.Text(words.goOn))),
	))
}

// attempts reads how many a form showed, 0 where it does not say.
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
