package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// Prove returns the proof that the tree of size leaves grew from that of old leaves.
type Prove func(old, size int64) (tlog.TreeProof, error)

// Target is a place outside the store that is given checkpoints. Its methods are called by one
// goroutine at a time.
type Target interface {
	// Name says in words which place it is.
	Name() string
	// Put hands over the newest checkpoint. What it returns are signatures of witnesses, each
	// a line of a signed note.
	Put(ctx context.Context, raw []byte, prove Prove) (cosigned []byte, err error)
	// Newest returns the newest checkpoint that the place has, nil where it has none. own is one
	// of the store, for places that cannot tell what they have, and only judge what they are
	// shown.
	Newest(ctx context.Context, own []byte, prove Prove) ([]byte, error)
}

// Judge is a Target that cannot tell what it has. Newest shows it a checkpoint, and it remembers
// that as one of the store. So the other places are asked first, and a store that is doubted proves
// nothing to it.
type Judge interface {
	Target
	// Signed says whether a checkpoint has the signature of the judge.
	Signed(raw []byte) bool
}

// NewerError is the answer of a place that has seen more leaves of the origin than the store has.
type NewerError struct{ Size int64 }

func (e *NewerError) Error() string { return fmt.Sprintf("it has seen %d leaves", e.Size) }

// OtherError is the answer of a place that has seen other leaves of the origin than the store has,
// among the first Size.
type OtherError struct{ Size int64 }

func (e *OtherError) Error() string {
	return fmt.Sprintf("it has seen other leaves among the first %d", e.Size)
}

// Directory is a file on a disk that is not the store's.
type Directory struct{ Path string }

// Name implements [Target].
func (d Directory) Name() string { return "file " + d.Path }

// Put implements [Target]. The file is replaced as a whole.
func (d Directory) Put(_ context.Context, raw []byte, _ Prove) ([]byte, error) {
	return nil, Replace(Disk, d.Path, raw)
}

// Newest implements [Target].
func (d Directory) Newest(context.Context, []byte, Prove) ([]byte, error) {
	f, err := os.Open(d.Path)
	if errors.Is(err, os.ErrNotExist) {
		// An absent directory is a disk that is not mounted, and no place without checkpoints.
		if _, derr := os.Stat(filepath.Dir(d.Path)); derr != nil {
			return nil, derr
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return atMost(f)
}

func atMost(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err == nil && len(raw) > MaxBytes {
		err = fmt.Errorf("more than %d bytes", MaxBytes)
	}
	return raw, err
}

// Web is an address that keeps what is put there: PUT replaces, GET returns.
type Web struct {
	URL    string
	Header http.Header
	Client *http.Client // nil is one of its own, which follows no redirect
}

// noRedirects would send headers with secrets elsewhere, or take another's answer for this one's.
var noRedirects = &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func (w Web) client() *http.Client {
	return cmp.Or(w.Client, noRedirects)
}

// Name implements [Target].
func (w Web) Name() string { return w.URL }

func (w Web) do(ctx context.Context, method string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.URL, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	for name, values := range w.Header {
		req.Header[name] = values
	}
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	resp, err := w.client().Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := atMost(resp.Body)
	return resp.StatusCode, raw, err
}

// Put implements [Target].
func (w Web) Put(ctx context.Context, raw []byte, _ Prove) ([]byte, error) {
	status, _, err := w.do(ctx, http.MethodPut, raw)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("HTTP %d", status)
	}
	return nil, err
}

// Newest implements [Target].
func (w Web) Newest(ctx context.Context, _ []byte, _ Prove) ([]byte, error) {
	status, raw, err := w.do(ctx, http.MethodGet, nil)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound:
		return nil, nil
	case status != http.StatusOK:
		return nil, fmt.Errorf("HTTP %d", status)
	}
	return raw, nil
}

// Git is a file in a git working tree. Each checkpoint is a commit, so the history of the
// repository has them all; Remote, where it is named, gets them at once.
type Git struct{ Dir, File, Remote string }

// Name implements [Target].
func (g Git) Name() string { return "git " + g.Dir }

// Put implements [Target]. It commits the one file and nothing else that lies in the tree.
func (g Git) Put(ctx context.Context, raw []byte, _ Prove) ([]byte, error) {
	if err := Replace(Disk, filepath.Join(g.Dir, g.File), raw); err != nil {
		return nil, err
	}
	c, err := Unverified(raw)
	if err != nil {
		return nil, err
	}
	if _, err := g.git(ctx, "add", "--", g.File); err != nil {
		return nil, err
	}
	_, err = g.git(ctx, "diff", "--cached", "--quiet", "--", g.File)
	if err == nil {
		return nil, g.push(ctx) // it is there already; it may not be at the remote
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return nil, err
	}
	if _, err := g.git(ctx, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", fmt.Sprintf("%s: %d leaves", c.Origin, c.Size), "--", g.File); err != nil {
		return nil, err
	}
	return nil, g.push(ctx)
}

func (g Git) push(ctx context.Context) error {
	if g.Remote == "" {
		return nil
	}
	_, err := g.git(ctx, "push", "--quiet", g.Remote, "HEAD")
	return err
}

// Newest implements [Target].
func (g Git) Newest(ctx context.Context, _ []byte, _ Prove) ([]byte, error) {
	if _, err := os.Stat(g.Dir); err != nil {
		return nil, err
	}
	_, err := g.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD:"+filepath.ToSlash(g.File))
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil, nil // that it has none; whatever else is wrong has another code
	}
	if err != nil {
		return nil, err
	}
	return g.git(ctx, "show", "HEAD:"+filepath.ToSlash(g.File))
}

// git runs with the user's own configuration, which says how the remote is reached. It never asks
// anything, commits under a name of tgad's own, and takes no other repository from the
// environment: git sets these variables for the hooks that it runs.
func (g Git) git(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", g.Dir}, args...)...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ofRepository, name)
	})
	cmd.Env = append(env, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=tgad", "GIT_AUTHOR_EMAIL=tgad@localhost", "GIT_COMMITTER_NAME=tgad", "GIT_COMMITTER_EMAIL=tgad@localhost")
	cmd.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("git %s: %w: %.300s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return out.Bytes(), nil
}

// ofRepository are the variables that name a repository or a part of one.
var ofRepository = []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX"}

// Witness is a witness of C2SP tlog-witness. It is given a checkpoint together with the proof
// that the tree grew from the one that it saw before.
type Witness struct {
	URL string // its prefix; the request goes to URL/add-checkpoint
	Key note.Verifier

	seen int64 // the size that it has, as far as is known
}

// Name implements [Target].
func (w *Witness) Name() string { return "witness " + w.Key.Name() }

// Put implements [Target].
func (w *Witness) Put(ctx context.Context, raw []byte, prove Prove) ([]byte, error) {
	c, err := Unverified(raw)
	if err != nil {
		return nil, err
	}
	for range 2 {
		if w.seen > c.Size {
			return nil, &NewerError{w.seen}
		}
		status, answer, err := w.add(ctx, raw, c.Size, prove)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusOK:
			if err := w.check(raw, answer); err != nil {
				return nil, err
			}
			w.seen = c.Size
			return answer, nil
		case status == http.StatusUnprocessableEntity && w.seen > 0, status == http.StatusConflict && w.seen == c.Size && sizeIn(answer) == c.Size:
			return nil, &OtherError{w.seen}
		case status != http.StatusConflict:
			return nil, fmt.Errorf("HTTP %d: %.200q", status, answer)
		}
		// It has seen another size than this process thinks, and says which.
		size := sizeIn(answer)
		if size < 0 || size == w.seen {
			return nil, fmt.Errorf("HTTP 409 with %.40q: want the size that it has seen", answer)
		}
		w.seen = size
	}
	return nil, errors.New("it changes its mind about the size that it has seen: does another store use this origin?")
}

// sizeIn is the size that an answer with status 409 names, -1 where it names none.
func sizeIn(answer []byte) int64 {
	size, err := strconv.ParseInt(strings.TrimSuffix(string(answer), "\n"), 10, 64)
	if err != nil {
		return -1
	}
	return size
}

func (w *Witness) add(ctx context.Context, raw []byte, size int64, prove Prove) (int, []byte, error) {
	body := fmt.Appendf(nil, "old %d\n", w.seen)
	if w.seen > 0 && w.seen < size {
		proof, err := prove(w.seen, size)
		if err != nil {
			return 0, nil, err
		}
		for _, h := range proof {
			body = append(append(body, h.String()...), '\n')
		}
	}
	body = append(append(body, '\n'), raw...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(w.URL, "/")+"/add-checkpoint", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := noRedirects.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := atMost(resp.Body)
	return resp.StatusCode, answer, err
}

// check finds out whether an answer has the witness's signature of the checkpoint.
func (w *Witness) check(raw, cosigned []byte) error {
	n, err := note.Open(append(bytes.Clone(raw), cosigned...), note.VerifierList(w.Key))
	if err != nil || len(n.Sigs) == 0 {
		return tga.Errorf(tga.PermissionDenied, "witness %s: its answer has no signature of its key", w.Key.Name())
	}
	return nil
}

// Signed implements [Judge].
func (w *Witness) Signed(raw []byte) bool { return w.check(raw, nil) == nil }

// Newest implements [Target]: a witness has no question for what it has seen, but refuses a
// checkpoint that did not grow from that. Shown one of the store, it says so.
func (w *Witness) Newest(ctx context.Context, own []byte, prove Prove) ([]byte, error) {
	_, err := w.Put(ctx, own, prove)
	return nil, err
}
