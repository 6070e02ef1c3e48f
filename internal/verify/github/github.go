package github

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/internal/web"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Resource types.
const (
	Issue  = "github_issue"
	Pull   = "github_pr"
	Commit = "commit_sha"
)

// DefaultBaseURL is where GitHub's own API is.
const DefaultBaseURL = "https://api.github.com"

// Config describes a verifier; see the package's comment.
type Config struct {
	BaseURL   string   `toml:"base_url"`
	TokenFile string   `toml:"token_file"`
	CAFile    string   `toml:"ca_file"`
	Ignore    []string `toml:"ignore"`
	verify.Patience
}

type look struct {
	base   string
	ignore []string
	client *web.Client
}

// New makes a verifier, VALIDATION_ERROR where the configuration is wrong. It contacts
// nobody.
func New(c Config) (runtime.Verifier, error) {
	l := &look{base: strings.TrimSuffix(c.BaseURL, "/"), ignore: c.Ignore}
	if c.BaseURL == "" {
		l.base = DefaultBaseURL
	}
	u, err := url.Parse(l.base)
	// Do not repeat the URL in the error: it may hold a password.
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Contains(l.base, "#") {
		return nil, verify.Invalid("base_url", "want http:// or https://, a host and perhaps a path")
	}
	if err := verify.CheckIgnored(c.Ignore); err != nil {
		return nil, err
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	header := http.Header{
		"Accept":               {"application/vnd.github+json"},
		"X-Github-Api-Version": {"2022-11-28"},
	}
	var hide verify.Secrets
	if c.TokenFile != "" {
		raw, err := verify.ReadSecret("token_file", c.TokenFile)
		if err != nil {
			return nil, err
		}
		token := strings.TrimSpace(string(raw))
		if !tokenForm.MatchString(token) {
			return nil, verify.Invalid("token_file", "%s holds no token: want one line of visible characters", c.TokenFile)
		}
		header.Set("Authorization", "Bearer "+token)
		hide = verify.NewSecrets(token)
	}
	if l.client, err = web.New(header, hide, c.CAFile); err != nil {
		return nil, err
	}
	return verify.NewVerifier(l.ask, patience), nil
}

var tokenForm = regexp.MustCompile(`^[!-~]+$`)

// kind says how a resource type is asked for and told.
type kind struct {
	path  string // after repos/owner/repo/
	id    func() *regexp.Regexp
	gone  []int    // statuses of a resource that is not there, in a repository that is
	same  string   // JSON Pointer to what tells this resource from another
	state []string // what a version may say of its state
	head  string   // JSON Pointer to its commit
}

// inRepo returns the form of an id that begins with owner/repo and ends with rest. It compiles the form
// on first use: that takes a quarter of a millisecond, and most programs never ask GitHub.
func inRepo(rest string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9-]{1,39}(?:_[A-Za-z0-9]+)?)/([A-Za-z0-9._-]{1,100})` + rest + `$`)
	})
}

var kinds = map[string]kind{
	Issue:  {"issues/", inRepo(`#([1-9][0-9]{0,17})`), []int{http.StatusGone}, "/number", []string{"open", "closed"}, ""},
	Pull:   {"pulls/", inRepo(`#([1-9][0-9]{0,17})`), []int{http.StatusGone}, "/number", []string{"open", "closed", "merged"}, "/head/sha"},
	Commit: {"commits/", inRepo(`@([0-9a-f]{40}|[0-9a-f]{64})`), []int{http.StatusUnprocessableEntity}, "/sha", nil, "/sha"},
}

func (l *look) ask(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	k, ok := kinds[change.ResourceType]
	if !ok {
		return runtime.CannotTell, runtime.Evidence{}, tga.Errorf(tga.ValidationError, "resource type %.80q: want %s, %s or %s", change.ResourceType, Issue, Pull, Commit)
	}
	id := k.id().FindStringSubmatch(change.ResourceID)
	if id == nil || id[2] == "." || id[2] == ".." {
		return runtime.CannotTell, runtime.Evidence{}, tga.Errorf(tga.ValidationError, "resource id %.200q of a %s: want owner/repo and #number, or @ and the full id of a commit", change.ResourceID, change.ResourceType)
	}
	where := l.base + "/repos/" + id[1] + "/" + id[2]
	what := where + "/" + k.path + id[3]
	a, evidence, err := l.get(ctx, what)
	if err != nil {
		return runtime.CannotTell, evidence, err
	}
	if a.Status == http.StatusNotFound {
		return l.gone(ctx, where, evidence)
	}
	finding, why := l.judge(k, id[3], a, change)
	evidence = l.client.Evidence(http.MethodGet, what, a, why)
	if finding == runtime.CannotTell && (a.Busy() || limited(a)) {
		return finding, evidence, verify.Transient(fmt.Errorf("GET %s: %s", what, a.Text()))
	}
	return finding, evidence, nil
}

func (l *look) get(ctx context.Context, what string) (*web.Answer, runtime.Evidence, error) {
	a, err := l.client.Ask(ctx, http.MethodGet, what, nil)
	if err != nil {
		return nil, l.client.Evidence(http.MethodGet, what, nil, "no answer"), err
	}
	return a, l.client.Evidence(http.MethodGet, what, a, "status "+a.Text()), nil
}

// limited reports whether a 403 is GitHub's limit of requests, which passes.
func limited(a *web.Answer) bool {
	return a.Status == http.StatusForbidden && (a.Header.Get("Retry-After") != "" || a.Header.Get("X-RateLimit-Remaining") == "0")
}

// gone is called after a 404. It asks for the repository, to tell a missing resource from a
// repository that the token may not see.
func (l *look) gone(ctx context.Context, where string, first runtime.Evidence) (runtime.Finding, runtime.Evidence, error) {
	a, evidence, err := l.get(ctx, where)
	evidence.Source = first.Source + ": 404 Not Found; " + evidence.Source
	switch {
	case err != nil:
		return runtime.CannotTell, evidence, err
	case a.Status == http.StatusOK:
		return runtime.Gone, evidence, nil
	case a.Busy() || limited(a):
		return runtime.CannotTell, evidence, verify.Transient(fmt.Errorf("GET %s: %s", where, a.Text()))
	}
	return runtime.CannotTell, evidence, nil
}

// judge says what an answer means and why.
func (l *look) judge(k kind, id string, a *web.Answer, change tga.StateChange) (runtime.Finding, string) {
	if slices.Contains(k.gone, a.Status) {
		return runtime.Gone, "status " + a.Text()
	}
	if a.Status != http.StatusOK {
		return runtime.CannotTell, "status " + a.Text()
	}
	doc, err := a.Doc()
	if err != nil {
		return runtime.CannotTell, err.Error()
	}
	if v, ok, err := doc.Lookup(k.same); err != nil || !ok || !v.Is(id) {
		return runtime.CannotTell, "the answer is not about " + id
	}
	if change.ResourceType == Issue {
		if _, is, err := doc.Lookup("/pull_request"); is || err != nil {
			return runtime.Changed, "it is a pull request by now"
		}
	}
	compared := []string(nil)
	if change.Version != "" && !slices.Contains(l.ignore, "version") {
		compared = append(compared, "version")
		if f, why := k.version(doc, change.Version); f != runtime.Exists {
			return f, why
		}
	}
	if etag := a.Header.Get("ETag"); etag != "" && change.ETag != "" && !slices.Contains(l.ignore, "etag") {
		compared = append(compared, "etag")
		if !web.SameETag(etag, change.ETag) {
			return runtime.Changed, "the ETag is another"
		}
	}
	if left := verify.Unlooked(change, compared, l.ignore); left != nil {
		return runtime.CannotTell, "nothing compared the change's " + strings.Join(left, " and ")
	}
	return runtime.Exists, "status " + a.Text()
}

var (
	commitForm = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
	timeForm   = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$`)
)

// version compares a version by what its form says it is.
func (k kind) version(doc verify.Doc, version string) (runtime.Finding, string) {
	pointer := ""
	switch {
	case version == "merged" && slices.Contains(k.state, version):
		pointer, version = "/merged", "true"
	case slices.Contains(k.state, version):
		pointer = "/state"
	case k.head != "" && commitForm.MatchString(version):
		pointer = k.head
	case k.state != nil && timeForm.MatchString(version):
		pointer = "/updated_at"
	default:
		return runtime.CannotTell, fmt.Sprintf("the version %.80q is nothing that GitHub says of it", version)
	}
	v, ok, err := doc.Lookup(pointer)
	text, isText := v.Text()
	switch {
	case err != nil || !ok || !isText:
		return runtime.CannotTell, "nothing stands at " + pointer
	case v.Is(version) || pointer == "/updated_at" && sameTime(text, version):
		return runtime.Exists, ""
	}
	return runtime.Changed, fmt.Sprintf("%s is %.80q", pointer, text)
}

// sameTime reports whether two texts in RFC 3339 are one moment.
func sameTime(a, b string) bool {
	x, errA := time.Parse(time.RFC3339Nano, a)
	y, errB := time.Parse(time.RFC3339Nano, b)
	return errA == nil && errB == nil && x.Equal(y)
}
