package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// TestGoInstallFromAProxy: `go install github.com/tgad/tgad/cmd/tgad@latest` works with nothing in the module cache.
// A proxy in a directory has the module as a real one would make it from the commit; behind it stands the cache of
// this machine, which a proxy may be, with what others have.
func TestGoInstallFromAProxy(t *testing.T) {
	dir := t.TempDir()
	clone := filepath.Join(dir, "clone")
	run(t, "git", "clone", "-q", "--shared", strings.TrimSpace(run(t, "git", "rev-parse", "--show-toplevel")), clone)
	run(t, "git", "-C", clone, "checkout", "-q", made.r.commit)
	at := filepath.Join(dir, "proxy", "github.com/tgad/tgad/@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	const version = "v0.99.0"
	for name, text := range map[string]string{
		"list": version + "\n", version + ".info": `{"Version":"` + version + `","Time":"` + made.r.when.UTC().Format("2006-01-02T15:04:05Z") + `"}`,
		version + ".mod": read(t, filepath.Join(clone, "go.mod")),
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	// This refuses what a module may not have: too many bytes, names that a system cannot have.
	if err := zip.CreateFromVCS(f, module.Version{Path: "github.com/tgad/tgad", Version: version}, clone, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(dir, "modules")
	cmd := exec.Command("go", "install", "github.com/tgad/tgad/cmd/tgad@latest")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=file://"+filepath.Join(dir, "proxy")+",file://"+filepath.Join(strings.TrimSpace(run(t, "go", "env", "GOMODCACHE")), "cache/download")+","+strings.TrimSpace(run(t, "go", "env", "GOPROXY")),
		"GOMODCACHE="+cache, "GONOSUMDB=github.com/tgad/tgad", "GOBIN="+filepath.Join(dir, "bin"), "GOFLAGS=-modcacherw -trimpath -gcflags=all=-dwarf=false", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	if said := run(t, filepath.Join(dir, "bin", "tgad"), "version"); !strings.HasPrefix(said, "tgad "+version+" ") {
		t.Errorf("what was installed says %s", said)
	}
	if files, err := os.ReadDir(filepath.Join(cache, "github.com/tgad")); err != nil || len(files) != 1 {
		t.Errorf("the module came from elsewhere: %v, %v", files, err)
	}
}
