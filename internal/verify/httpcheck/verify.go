package httpcheck

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/internal/verify/internal/web"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Config describes a verifier; see the package's comment.
type Config struct {
	URL         string         `toml:"url"`
	Method      string         `toml:"method"`
	HeadersFile string         `toml:"headers_file"`
	CAFile      string         `toml:"ca_file"`
	OK          []int          `toml:"ok"`
	Gone        []int          `toml:"gone"`
	Ignore      []string       `toml:"ignore"`
	Checks      []verify.Check `toml:"check"`
	verify.Patience
}

// look asks for one resource.
type look struct {
	Config
	url      *verify.URL
	client   *web.Client
	compared []string // fields of a change that the URL or a check holds against the server
}

// New makes a verifier of a URL, VALIDATION_ERROR where the configuration is wrong. It
// contacts nobody.
func New(c Config) (runtime.Verifier, error) {
	l, patience := &look{Config: c}, verify.Patience{}
	if l.Method == "" {
		l.Method = http.MethodGet
	}
	if l.Method != http.MethodGet && l.Method != http.MethodHead {
		return nil, verify.Invalid("method", "%.20q: want GET or HEAD", c.Method)
	}
	if l.Gone == nil {
		l.Gone = []int{http.StatusNotFound, http.StatusGone}
	}
	if err := statuses("ok", l.OK); err != nil {
		return nil, err
	}
	if err := statuses("gone", l.Gone); err != nil {
		return nil, err
	}
	for _, s := range l.Gone {
		if l.okStatus(s) {
			return nil, verify.Invalid("gone", "%d is ok too", s)
		}
	}
	if l.Method == http.MethodHead && len(c.Checks) > 0 {
		return nil, verify.Invalid("check", "an answer to HEAD has nothing to check")
	}
	if err := verify.CheckIgnored(c.Ignore); err != nil {
		return nil, err
	}
	if err := verify.ValidateAll("check", c.Checks, verify.ChangeNames); err != nil {
		return nil, err
	}
	var err error
	if patience, err = c.Complete(); err != nil {
		return nil, err
	}
	if l.url, err = verify.ParseURL("url", c.URL, verify.ChangeNames); err != nil {
		return nil, err
	}
	if l.client, err = client(c.HeadersFile, c.CAFile); err != nil {
		return nil, err
	}
	l.compared = append(l.url.Names(), verify.Fields(c.Checks)...)
	return verify.NewVerifier(l.ask, patience), nil
}

func client(headersFile, caFile string) (*web.Client, error) {
	header, hide, err := web.ReadHeaders("headers_file", headersFile)
	if err != nil {
		return nil, err
	}
	return web.New(header, hide, caFile)
}

func statuses(key string, list []int) error {
	for _, s := range list {
		if s < 200 || s > 599 {
			return verify.Invalid(key, "%d: want statuses of HTTP from 200 to 599", s)
		}
	}
	return nil
}

func (l *look) okStatus(s int) bool {
	if len(l.OK) == 0 {
		return s >= 200 && s <= 299
	}
	return slices.Contains(l.OK, s)
}

func (l *look) ask(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	url, err := l.url.Expand(verify.OfChange(change))
	if err != nil {
		return runtime.CannotTell, runtime.Evidence{}, err
	}
	a, err := l.client.Ask(ctx, l.Method, url, nil)
	if err != nil {
		return runtime.CannotTell, l.client.Evidence(l.Method, url, nil, "no answer"), err
	}
	finding, why := l.judge(a, change)
	evidence := l.client.Evidence(l.Method, url, a, why)
	if finding == runtime.CannotTell && a.Busy() {
		return finding, evidence, verify.Transient(fmt.Errorf("%s %s: %s", l.Method, url, a.Text()))
	}
	return finding, evidence, nil
}

// judge says what an answer means and why. The order is that of the package's comment.
func (l *look) judge(a *web.Answer, change tga.StateChange) (runtime.Finding, string) {
	if slices.Contains(l.Gone, a.Status) {
		return runtime.Gone, "status " + a.Text()
	}
	if !l.okStatus(a.Status) {
		return runtime.CannotTell, "status " + a.Text()
	}
	compared := l.compared
	if etag := a.Header.Get("ETag"); etag != "" && change.ETag != "" && !slices.Contains(l.Ignore, "etag") {
		if !web.SameETag(etag, change.ETag) {
			return runtime.Changed, "the ETag is another"
		}
		compared = append(slices.Clone(compared), "etag")
	}
	if len(l.Checks) > 0 {
		doc, err := a.Doc()
		if err != nil {
			return runtime.CannotTell, err.Error()
		}
		switch truth, err := verify.All(l.Checks, doc, verify.OfChange(change)); {
		case err != nil:
			return runtime.CannotTell, err.Error()
		case truth == verify.Fails:
			return runtime.Changed, "a check fails"
		case truth == verify.Unsaid:
			return runtime.CannotTell, "a check finds nothing in the answer"
		}
	}
	if left := verify.Unlooked(change, compared, l.Ignore); left != nil {
		return runtime.CannotTell, "nothing compared the change's " + strings.Join(left, " and ")
	}
	return runtime.Exists, "status " + a.Text()
}
