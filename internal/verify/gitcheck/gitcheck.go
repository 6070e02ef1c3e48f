// Package gitcheck looks at commits and references of a local git repository, with the
// git command.
//
//	[[verifier]]
//	resource_type  = "git_ref"
//	type           = "git"
//	repository     = "/srv/repos/site.git"  # the directory that git calls GIT_DIR, or one with a .git
//	git            = "git"                  # the program; looked up in PATH
//	reachable_from = ""                     # a reference: a commit counts only if reachable from it
//	timeout, tries, delay, max_delay, settle, settle_every as in package httpcheck
//
// A change's resource_id is a full commit id (40 or 64 hex digits) or a full reference
// name ("refs/heads/main"). The version of a reference is the object that it points at,
// or, of an annotated tag, the commit behind it. A commit's version, where it has one,
// is its id. Git has no etags: for a change with one, the verifier cannot tell.
//
// Git runs without the configuration of a user or of the machine, asks for no password
// and takes no lock.
//
// # Invariants
//
//	whole  what git complains about is no answer      [look.git]  TestBrokenRepositoryCannotTell
//	alone  no configuration but the repository's own  [look.git]  TestUserConfigurationIsNotRead
//	exact  a name is never an option or an expression [refForm]   TestNamesAreExact
package gitcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Config describes a verifier; see the package's comment.
type Config struct {
	Repository    string `toml:"repository"`
	Git           string `toml:"git"`
	ReachableFrom string `toml:"reachable_from"`
	verify.Patience
}

type look struct {
	Config
	path string // of the program
	dir  string // GIT_DIR
}

// New makes a verifier, VALIDATION_ERROR where the configuration is wrong: there must be
// a git, and a repository.
func New(c Config) (runtime.Verifier, error) {
	if c.Git == "" {
		c.Git = "git"
	}
	l := &look{Config: c}
	var err error
	if l.path, err = exec.LookPath(c.Git); err != nil {
		return nil, verify.Invalid("git", "%w", err)
	}
	if l.path, err = filepath.Abs(l.path); err != nil {
		return nil, verify.Invalid("git", "%w", err)
	}
	if l.dir, err = gitDir(c.Repository); err != nil {
		return nil, err
	}
	if c.ReachableFrom != "" && !refForm(c.ReachableFrom) {
		return nil, verify.Invalid("reachable_from", "%.200q is no full reference name", c.ReachableFrom)
	}
	patience, err := c.Complete()
	if err != nil {
		return nil, err
	}
	return verify.NewVerifier(l.ask, patience), nil
}

// gitDir finds the directory with the objects: dir or its .git. In a worktree .git is a
// file that names another directory; git follows it.
func gitDir(dir string) (string, error) {
	if dir == "" {
		return "", verify.Invalid("repository", "want a directory")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", verify.Invalid("repository", "%w", err)
	}
	inner := filepath.Join(dir, ".git")
	if _, err := os.Stat(inner); err == nil {
		return inner, nil
	}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		return "", verify.Invalid("repository", "%s is no git repository: %w", dir, err)
	}
	return dir, nil
}

var (
	commitForm = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
	refChars   = regexp.MustCompile(`^refs(?:/[^\x00-\x20\x7f~^:?*\[\\/]+)+$`)
)

// refForm reports whether name is a full reference name (git-check-ref-format): nothing
// in it that git would read as an expression.
func refForm(name string) bool {
	if !refChars.MatchString(name) || strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

func (l *look) ask(ctx context.Context, change tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	source := "git: " + change.ResourceID + " in " + l.Repository
	seen := map[string]any{}
	judge := l.ref
	if commitForm.MatchString(change.ResourceID) {
		judge = l.commit
	} else if !refForm(change.ResourceID) {
		return runtime.CannotTell, verify.Evidence(source, seen, nil, nil), tga.Errorf(tga.ValidationError, "resource id %.200q: want a full commit id or a full reference name", change.ResourceID)
	}
	finding, why, err := judge(ctx, change, seen)
	if err == nil && finding == runtime.Exists && change.ETag != "" {
		finding, why = runtime.CannotTell, "nothing compared the change's etag"
	}
	seen["why"] = why
	return finding, verify.Evidence(source, seen, nil, nil), err
}

// commit looks for an object of that id that is a commit.
func (l *look) commit(ctx context.Context, change tga.StateChange, seen map[string]any) (runtime.Finding, string, error) {
	id := change.ResourceID
	out, err := l.git(ctx, id+"\n", "cat-file", "--batch-check=%(objectname) %(objecttype)")
	if err != nil {
		return runtime.CannotTell, "no answer", err
	}
	seen["object"] = out
	switch {
	case out == id+" missing":
		return runtime.Gone, "there is no such object", nil
	case out != id+" commit":
		return runtime.Changed, "it is no commit", nil
	case change.Version != "" && change.Version != id:
		return runtime.Changed, "the version is another", nil
	case l.ReachableFrom == "":
		return runtime.Exists, "the commit is there", nil
	}
	// Read the reference first: if it is missing, that says nothing about the commit.
	refs, err := l.read(ctx, l.ReachableFrom)
	if err != nil {
		return runtime.CannotTell, "no answer", err
	}
	if refs == nil {
		return runtime.CannotTell, "there is no " + l.ReachableFrom, nil
	}
	seen["tip"] = refs[0]
	base, err := l.git(ctx, "", "rev-list", "--max-count=1", "--end-of-options", id, "^"+refs[0], "--")
	if err != nil {
		return runtime.CannotTell, "no answer", err
	}
	if base != "" {
		return runtime.Gone, l.ReachableFrom + " does not hold it", nil
	}
	return runtime.Exists, l.ReachableFrom + " holds it", nil
}

// ref looks where a reference points.
func (l *look) ref(ctx context.Context, change tga.StateChange, seen map[string]any) (runtime.Finding, string, error) {
	at, err := l.read(ctx, change.ResourceID)
	switch {
	case err != nil:
		return runtime.CannotTell, "no answer", err
	case at == nil:
		return runtime.Gone, "there is no such reference", nil
	}
	seen["object"], seen["behind"] = at[0], at[1]
	if change.Version != "" && change.Version != at[0] && change.Version != at[1] {
		return runtime.Changed, "it points elsewhere", nil
	}
	return runtime.Exists, "the reference is there", nil
}

// read returns the object of a reference and the one behind an annotated tag, nil where
// there is no such reference.
func (l *look) read(ctx context.Context, name string) ([]string, error) {
	out, err := l.git(ctx, "", "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)", name)
	if err != nil {
		return nil, err
	}
	// The pattern also matches references below the name.
	for line := range strings.Lines(out) {
		if f := strings.SplitN(strings.TrimRight(line, "\n"), " ", 3); len(f) == 3 && f[0] == name {
			return f[1:], nil
		}
	}
	return nil, nil
}

// git runs a command and returns its output without the last newline. Any output on stderr
// is an error: git only warns about an object or reference that it cannot read and leaves
// it out, and that must not count as missing.
func (l *look) git(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.path, append([]string{"--git-dir=" + l.dir, "--no-pager", "--no-replace-objects", "--no-optional-locks"}, args...)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C",
		"HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none",
	}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(stdin)
	out, complaint := clip.Head{Most: verify.MaxBody}, clip.Head{Most: verify.MaxBody}
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second // for a descendant that keeps a pipe open
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", verify.Transient(fmt.Errorf("git %s: %w", args[0], context.Cause(ctx)))
	case err != nil || len(complaint.Bytes()) > 0:
		return "", verify.Transient(fmt.Errorf("git %s: %w", args[0], errors.Join(err, fmt.Errorf("%.300s", complaint.String()))))
	case out.Over:
		return "", fmt.Errorf("git %s: more than %d bytes", args[0], verify.MaxBody)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
