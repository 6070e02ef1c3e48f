package gitcheck

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/verify"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var soon = verify.Patience{Timeout: 20 * time.Second, Tries: 2, Delay: time.Millisecond, MaxDelay: time.Millisecond, SettleEvery: time.Millisecond}

// repository is a real repository: main has two commits, the first has an annotated tag, and a
// third commit is on no branch.
type repository struct {
	t                    *testing.T
	dir                  string
	first, second, loose string
	tag, blob            string
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func initRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t: t, dir: t.TempDir()}
	r.git("init", "-q", "-b", "main")
	commit := func(message string) string {
		r.git("commit", "-q", "--allow-empty", "-m", message)
		return r.git("rev-parse", "HEAD")
	}
	r.first = commit("one")
	r.git("tag", "-a", "v1", "-m", "v1")
	r.tag = r.git("rev-parse", "v1")
	r.second = commit("two")
	r.git("checkout", "-q", "--detach")
	r.loose = commit("three")
	r.git("checkout", "-q", "main")
	if err := os.WriteFile(filepath.Join(r.dir, "f"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.blob = r.git("hash-object", "-w", "f")
	return r
}

func mustNew(t *testing.T, c Config) runtime.Verifier {
	t.Helper()
	if c.Tries == 0 {
		c.Patience = soon
	}
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const unknown = "0123456789012345678901234567890123456789"

func TestFindings(t *testing.T) {
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	r := initRepository(t)
	bare := filepath.Join(t.TempDir(), "bare.git")
	r.git("clone", "-q", "--bare", r.dir, bare)
	tree := filepath.Join(t.TempDir(), "tree")
	r.git("worktree", "add", "-q", tree, "v1")
	for _, test := range []struct {
		id, version, from string
		want              runtime.Finding
	}{
		{r.first, "", "", e},
		{r.first, r.first, "", e},
		{r.first, r.second, "", c},
		{r.loose, "", "", e},
		{unknown, "", "", g},
		{strings.Repeat("01", 32), "", "", g}, // of another object format
		{r.blob, "", "", c},
		{r.tag, "", "", c},
		{r.first, "", "refs/heads/main", e},
		{r.second, "", "refs/heads/main", e},
		{r.loose, "", "refs/heads/main", g},
		{r.second, "", "refs/tags/v1", g},
		{r.first, "", "refs/tags/v1", e},
		{r.first, "", "refs/heads/none", x},
		{"refs/heads/main", "", "", e},
		{"refs/heads/main", r.second, "", e},
		{"refs/heads/main", r.first, "", c},
		{"refs/heads/main", "v1", "", c},
		{"refs/heads/none", "", "", g},
		{"refs/heads", "", "", g}, // a path below it is another object
		{"refs/tags/v1", r.tag, "", e},
		{"refs/tags/v1", r.first, "", e},
		{"refs/tags/v1", r.second, "", c},
	} {
		for _, dir := range []string{r.dir, bare, tree} {
			if dir == bare && (test.id == r.loose || test.id == r.blob) {
				continue // clones lack these
			}
			v := mustNew(t, Config{Repository: dir, ReachableFrom: test.from})
			f, evidence, err := v.Verify(t.Context(), tga.StateChange{ResourceType: "git_ref", ResourceID: test.id, Version: test.version})
			if f != test.want || err != nil {
				t.Errorf("%s: %+v: got %v, %v: %s", filepath.Base(dir), test, f, err, evidence.Detail)
			}
		}
	}
	f, _, err := mustNew(t, Config{Repository: r.dir}).Verify(t.Context(), tga.StateChange{ResourceID: r.first, ETag: "e"})
	if f != x || err != nil {
		t.Errorf("an etag: got %v, %v", f, err)
	}
}

// TestNamesAreExact: a name that git would read as an option or an expression is not passed to git.
func TestNamesAreExact(t *testing.T) {
	r := initRepository(t)
	r.git("update-ref", "refs/heads/refs/heads/decoy", r.first)
	v := mustNew(t, Config{Repository: r.dir})
	for _, id := range []string{
		"", "HEAD", "main", "heads/main", r.first[:8], strings.ToUpper(r.first), r.first + "^", r.first + "\n", "--all",
		"refs", "refs/", "refs//heads/main", "refs/heads/main^", "refs/heads/main~1", "refs/heads/main:f", "refs/heads/*", "refs/heads/ma?n",
		"refs/heads/[m]ain", "refs/heads/main@{0}", "refs/heads/a..b", "refs/heads/.a", "refs/heads/a.lock", "refs/heads/a.", "refs/heads/a b",
		"refs/heads/main\n", "refs/heads/main\x00", "refs/heads/\\",
	} {
		f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: id})
		if f != runtime.CannotTell || !errors.Is(err, tga.ValidationError) {
			t.Errorf("%q: got %v, %v", id, f, err)
		}
	}
	if f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: "refs/heads/decoy"}); f != runtime.Gone || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestBrokenRepositoryCannotTell: an object that git leaves out with a warning does not count as gone.
func TestBrokenRepositoryCannotTell(t *testing.T) {
	for name, breaks := range map[string]func(r *repository) error{
		"reference": func(r *repository) error {
			return os.WriteFile(filepath.Join(r.dir, ".git/refs/heads/broken"), []byte("rubbish\n"), 0o644)
		},
		"object": func(r *repository) error {
			path := filepath.Join(r.dir, ".git/objects", r.first[:2], r.first[2:])
			return errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, []byte("rubbish"), 0o644))
		},
		"repository": func(r *repository) error { return os.Remove(filepath.Join(r.dir, ".git/HEAD")) },
	} {
		r := initRepository(t)
		v := mustNew(t, Config{Repository: r.dir})
		id := map[string]string{"reference": "refs/heads/broken"}[name]
		if id == "" {
			id = r.first
		}
		if err := breaks(r); err != nil {
			t.Fatal(err)
		}
		if f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: id}); f != runtime.CannotTell || err == nil {
			t.Errorf("%s: got %v, %v", name, f, err)
		}
	}
}

// TestUserConfigurationIsNotRead: neither a user's file nor a variable changes an answer.
// The control shows that git on its own takes them.
func TestUserConfigurationIsNotRead(t *testing.T) {
	r := initRepository(t)
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[broken\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_OBJECT_DIRECTORY", home)
	if out, err := exec.Command("git", "-C", r.dir, "cat-file", "-t", r.first).CombinedOutput(); err == nil {
		t.Fatalf("git does not mind: %s", out)
	}
	for _, id := range []string{r.first, "refs/heads/main"} {
		if f, _, err := mustNew(t, Config{Repository: r.dir}).Verify(t.Context(), tga.StateChange{ResourceID: id}); f != runtime.Exists || err != nil {
			t.Errorf("got %v, %v", f, err)
		}
	}
}

// TestReplacementIsNotTheCommit: refs/replace lets another object answer for one that is
// not there. The control shows that it does.
func TestReplacementIsNotTheCommit(t *testing.T) {
	r := initRepository(t)
	gone := strings.Repeat("ab", 20)
	r.git("update-ref", "refs/replace/"+gone, r.first)
	if kind := r.git("cat-file", "-t", gone); kind != "commit" {
		t.Fatalf("git says it is a %s", kind)
	}
	if f, _, err := mustNew(t, Config{Repository: r.dir}).Verify(t.Context(), tga.StateChange{ResourceID: gone}); f != runtime.Gone || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
}

// script stands in for git.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTroubleWithGit(t *testing.T) {
	r := initRepository(t)
	mark := filepath.Join(t.TempDir(), "asked")
	for name, test := range map[string]struct {
		script string
		want   runtime.Finding
		code   tga.Code
	}{
		"dies":           {"kill -9 $$", runtime.CannotTell, tga.ToolError},
		"complains":      {"echo warning >&2; echo " + r.first + " missing", runtime.CannotTell, tga.ToolError},
		"writes on":      {"yes", runtime.CannotTell, ""},
		"says too much":  {"head -c 2000000 /dev/zero", runtime.CannotTell, tga.ToolError},
		"hangs":          {"exec sleep 600", runtime.CannotTell, tga.ToolTimeout},
		"dies once":      {"test -e " + mark + " || { touch " + mark + "; exit 1; }; echo " + r.first + " commit", runtime.Exists, ""},
		"another answer": {"echo " + r.second + " commit", runtime.Changed, ""},
	} {
		p := soon
		if name == "hangs" || name == "writes on" {
			p.Timeout, p.Tries = 100*time.Millisecond, 1
		}
		v := mustNew(t, Config{Repository: r.dir, Git: script(t, test.script), Patience: p})
		f, _, err := v.Verify(t.Context(), tga.StateChange{ResourceID: r.first})
		if f != test.want || name != "writes on" && tga.CodeOf(err) != test.code || (test.want == runtime.CannotTell) != (err != nil) {
			t.Errorf("%s: got %v, %v", name, f, err)
		}
	}
}

func TestCancelEndsGit(t *testing.T) {
	r := initRepository(t)
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	go func() {
		for {
			if _, err := os.Stat(started); err == nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	v := mustNew(t, Config{Repository: r.dir, Git: script(t, "touch "+started+"; exec sleep 600")})
	f, _, err := v.Verify(ctx, tga.StateChange{ResourceID: r.first})
	if f != runtime.CannotTell || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", f, err)
	}
}

// TestPushThatShowsLate: the reference appears between two questions.
func TestPushThatShowsLate(t *testing.T) {
	r := initRepository(t)
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	asked := filepath.Join(t.TempDir(), "asked")
	// The third question makes the branch first.
	late := script(t, "echo x >> "+asked+"; test $(wc -l < "+asked+") -lt 3 || "+path+" --git-dir="+filepath.Join(r.dir, ".git")+" update-ref refs/heads/late "+r.second+"; exec "+path+` "$@"`)
	p := soon
	p.Settle = p.SettleEvery // two questions
	change := tga.StateChange{ResourceID: "refs/heads/late", Version: r.second}
	if f, _, err := mustNew(t, Config{Repository: r.dir, Git: late, Patience: p}).Verify(t.Context(), change); f != runtime.Gone || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
	if f, _, err := mustNew(t, Config{Repository: r.dir, Git: late, Patience: p}).Verify(t.Context(), change); f != runtime.Exists || err != nil {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	r := initRepository(t)
	for _, test := range []struct {
		c   Config
		key string
	}{
		{Config{Repository: r.dir}, ""},
		{Config{Repository: filepath.Join(r.dir, ".git")}, ""},
		{Config{}, "repository"},
		{Config{Repository: t.TempDir()}, "repository"},
		{Config{Repository: r.dir, Git: "no-such-program"}, "git"},
		{Config{Repository: r.dir, ReachableFrom: "main"}, "reachable_from"},
		{Config{Repository: r.dir, Patience: verify.Patience{Tries: 21}}, "tries"},
	} {
		v, err := New(test.c)
		if (err == nil) != (test.key == "") || (v != nil) != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+test.key+": ")) {
			t.Errorf("%+v: got %v, want an error about %q", test.c, err, test.key)
		}
	}
}
