package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
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
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/schemas/tga"
)

// Prove returns the proof that the tree of size leaves grew from that of old leaves.
type Prove func(old, size int64) (tlog.TreeProof, error)

// Target is a place outside the store that gets checkpoints. One goroutine at a time calls its
// methods.
type Target interface {
	// Name describes the place, for people.
	Name() string
	// Put gives the place the newest checkpoint. It returns signatures of witnesses, each a line
	// of a signed note.
	Put(ctx context.Context, raw []byte, prove Prove) (cosigned []byte, err error)
	// Newest returns the newest checkpoint that the place has, nil if it has none. own is a
	// checkpoint of the store. It is for a [Judge], which cannot return what it has.
	Newest(ctx context.Context, own []byte, prove Prove) ([]byte, error)
}

// Judge is a Target that cannot return its newest checkpoint. It can only accept or refuse one that
// it is shown. Newest shows it the store's own, which it then remembers. So the keeper asks the
// other places first, and gives a judge no proofs while the store is frozen.
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
	f, _, err := access.Open(d.Path)
	if errors.Is(err, os.ErrNotExist) {
		// A missing directory may be a disk that is not mounted: do not report "no checkpoints".
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

// noRedirects follows no redirect. A redirect could send headers with secrets elsewhere, or make the
// answer of another server count as this one's.
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
// repository has all of them. If Remote is named, each commit is pushed to it at once.
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
		return nil, g.push(ctx) // it is committed already, but the remote may lack it
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
		return nil, nil // code 1 means that there is no such file; other errors have other codes
	}
	if err != nil {
		return nil, err
	}
	return g.git(ctx, "show", "HEAD:"+filepath.ToSlash(g.File))
}

// git runs a git command with the user's own configuration, which says how to reach the remote. The
// command never prompts, and commits under tgad's name. Variables that name another repository are
// removed from its environment: git sets them for the hooks that it runs.
func (g Git) git(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", g.Dir}, args...)...)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ofRepository, name)
	})
	cmd.Env = append(env, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=tgad", "GIT_AUTHOR_EMAIL=tgad@localhost", "GIT_COMMITTER_NAME=tgad", "GIT_COMMITTER_EMAIL=tgad@localhost")
	// Killed at once, git would leave its lock of the repository, and no later command could write to it.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
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

// Witness is a witness of C2SP tlog-witness. It gets each checkpoint together with the proof that
// the tree grew from the one that it saw before.
type Witness struct {
	URL string // its prefix; the request goes to URL/add-checkpoint
	Key note.Verifier

	seen int64 // size of the newest checkpoint that it has, as far as this process knows
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
			line, err := w.cosignature(raw, answer)
			if err == nil {
				w.seen = c.Size
			}
			return line, err
		case status == http.StatusUnprocessableEntity && w.seen > 0, status == http.StatusConflict && w.seen == c.Size && sizeIn(answer) == c.Size:
			return nil, &OtherError{w.seen}
		case status != http.StatusConflict:
			return nil, fmt.Errorf("HTTP %d: %.200q", status, answer)
		}
		// The witness has seen another size than this process assumed. Its answer names that size.
		size := sizeIn(answer)
		if size < 0 || size == w.seen {
			return nil, fmt.Errorf("HTTP 409 with %.40q: want the size that it has seen", answer)
		}
		w.seen = size
	}
	return nil, errors.New("it changes its mind about the size that it has seen: does another store use this origin?")
}

// sizeIn is the size that an answer with status 409 names, -1 if it names none.
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

// cosignature returns the line with the witness's signature on a checkpoint from its answer. It leaves out whatever else is
// in the answer: with that, nobody could open the checkpoint, the store itself included.
func (w *Witness) cosignature(raw, answer []byte) ([]byte, error) {
	text := raw[:bytes.LastIndex(raw, []byte("\n\n"))+1]
	for line := range bytes.Lines(answer) {
		n, err := note.Open(slices.Concat(text, []byte("\n"), line), note.VerifierList(w.Key))
		if err != nil || n.Text != string(text) {
			continue
		}
		// Encode it again: [Keys.Open] takes the canonical base64 alone.
		if sig, err := base64.StdEncoding.DecodeString(n.Sigs[0].Base64); err == nil {
			return fmt.Appendf(nil, "\u2014 %s %s\n", n.Sigs[0].Name, base64.StdEncoding.EncodeToString(sig)), nil
		}
	}
	return nil, tga.Errorf(tga.PermissionDenied, "witness %s: its answer has no signature of its key", w.Key.Name())
}

// Signed implements [Judge].
func (w *Witness) Signed(raw []byte) bool {
	_, err := note.Open(raw, note.VerifierList(w.Key))
	return err == nil
}

// Newest implements [Target]. A witness cannot be asked for what it has seen, but it refuses a
// checkpoint that did not grow from that. So Newest shows it the store's own checkpoint.
func (w *Witness) Newest(ctx context.Context, own []byte, prove Prove) ([]byte, error) {
	_, err := w.Put(ctx, own, prove)
	return nil, err
}
