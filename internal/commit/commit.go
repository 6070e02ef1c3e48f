// Package commit names the commit that a benchmark or a test campaign ran on.
package commit

import (
	"os/exec"
	"strings"
)

// Name returns the short hash of the commit under test. The name ends in "+" if the work tree differs from the
// commit outside of docs and of the directories that only measure or test, and "unknown" stands for no git.
func Name() string {
	git := func(args ...string) (string, error) {
		b, err := exec.Command("git", args...).Output()
		return strings.TrimSpace(string(b)), err
	}
	head, err := git("rev-parse", "--short", "HEAD")
	if err != nil {
		return "unknown"
	}
	changed, err := git("status", "--porcelain", "--", ":/", ":(top,exclude)internal/crashtest", ":(top,exclude)fuzz", ":(top,exclude)bench", ":(top,exclude)docs")
	if err != nil || changed != "" {
		head += "+"
	}
	return head
}
