package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// target is a system as Go names it: linux/amd64.
type target string

func (t target) os() string   { s, _, _ := strings.Cut(string(t), "/"); return s }
func (t target) arch() string { _, s, _ := strings.Cut(string(t), "/"); return s }
func (t target) String() string {
	return t.os() + "-" + t.arch()
}

const allTargets = "linux/amd64,linux/arm64,darwin/arm64,darwin/amd64,windows/amd64"

// program is one that was built.
type program struct {
	name string
	path string
	info *buildinfo.BuildInfo
}

// programsOf says what is built for a system, each with the directory that it is built in. The daemon serves on
// Linux alone, and so does what needs it.
func programsOf(t target) map[string][]string {
	switch t.os() {
	case "linux":
		return map[string][]string{".": {"./cmd/tgad", "./cmd/tgad-lab"}, "engine/postgres": {"./cmd/tgad-postgres"}}
	default:
		return map[string][]string{".": {"./cmd/tgad"}}
	}
}

func parseTargets(list string) (all []target, err error) {
	host := target("linux/" + runtime.GOARCH)
	for _, s := range strings.Split(list, ",") {
		if !slices.Contains(strings.Split(allTargets, ","), s) {
			return nil, fmt.Errorf("target %q: want some of %s", s, allTargets)
		}
		all = append(all, target(s))
	}
	if runtime.GOOS != "linux" || !slices.Contains(all, host) {
		return nil, fmt.Errorf("%s has to be among the targets, and this to be Linux: manual pages are made by the tgad that was built", host)
	}
	return all, nil
}

// checkout clones the newest commit with its tags: nothing else goes into a release.
func checkout(ctx context.Context, from, to string) error {
	root, err := output(ctx, from, nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	changed, err := output(ctx, root, nil, "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
	}
	if changed != "" {
		fmt.Fprintln(os.Stderr, "release: what is not committed is left out:\n"+changed)
	}
	commit, err := output(ctx, root, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := output(ctx, root, nil, "git", "clone", "--quiet", "--no-checkout", "--shared", root, to); err != nil {
		return err
	}
	_, err = output(ctx, to, nil, "git", "-c", "advice.detachedHead=false", "checkout", "--quiet", commit)
	return err
}

// build builds every program and learns from tgad itself which version it is.
func (r *release) build(ctx context.Context) (err error) {
	if r.built, err = buildAll(ctx, r.source, r.stage, r.targets, nil); err != nil {
		return err
	}
	for _, p := range r.built[target("linux/"+runtime.GOARCH)] {
		if p.name != "tgad" {
			continue
		}
		r.version = p.info.Main.Version
		for _, s := range p.info.Settings {
			switch s.Key {
			case "vcs.revision":
				r.commit = s.Value
			case "vcs.time":
				if r.when, err = time.Parse(time.RFC3339, s.Value); err != nil {
					return err
				}
			}
		}
	}
	if r.commit == "" || r.when.IsZero() || !strings.HasPrefix(r.version, "v") {
		return fmt.Errorf("the build does not say its version (%q), commit (%q) and time", r.version, r.commit)
	}
	return nil
}

// compare builds once more, in another directory and without what was compiled before, and compares every byte.
func (r *release) compare(ctx context.Context, scratch string) error {
	if r.once {
		return nil
	}
	source, stage := filepath.Join(scratch, "a-directory-of-another-name"), filepath.Join(scratch, "second")
	if err := checkout(ctx, r.from, source); err != nil {
		return err
	}
	again, err := buildAll(ctx, source, stage, r.targets, []string{"GOCACHE=" + filepath.Join(scratch, "cache")})
	if err != nil {
		return err
	}
	for _, t := range r.targets {
		for i, p := range r.built[t] {
			if err := sameBytes(p.path, again[t][i].path); err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{source, stage, filepath.Join(scratch, "cache")} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func sameBytes(a, b string) error {
	first, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(first, second) {
		return fmt.Errorf("%s and %s are not the same: the build is not reproducible", a, b)
	}
	return nil
}

// buildAll builds the programs of all targets from source into stage/TARGET/bin.
func buildAll(ctx context.Context, source, stage string, targets []target, env []string) (map[target][]program, error) {
	built := map[target][]program{}
	for _, t := range targets {
		bin := filepath.Join(stage, t.String(), "bin") + string(filepath.Separator)
		if err := os.MkdirAll(bin, 0o755); err != nil {
			return nil, err
		}
		for dir, packages := range programsOf(t) {
			// GOFLAGS and GOWORK of whoever runs this are not those of a release.
			in := append([]string{"CGO_ENABLED=0", "GOOS=" + t.os(), "GOARCH=" + t.arch(), "GOFLAGS=", "GOWORK=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT="}, env...)
			args := append([]string{"build", "-trimpath", "-buildvcs=true", "-tags", "grpcnotrace", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w -buildid=", "-o", bin}, packages...)
			if _, err := output(ctx, filepath.Join(source, dir), in, "go", args...); err != nil {
				return nil, fmt.Errorf("%s: %w", t, err)
			}
		}
		files, err := os.ReadDir(bin)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			path := filepath.Join(bin, f.Name())
			info, err := buildinfo.ReadFile(path)
			if err != nil {
				return nil, err
			}
			built[t] = append(built[t], program{f.Name(), path, info})
		}
	}
	return built, nil
}

// output runs a program and returns what it prints, without the last line's end.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
