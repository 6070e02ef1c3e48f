// Package commit names the code that a run measured or tried.
package commit

import (
	"os/exec"
	"strings"
)

// Name is the commit of the code under test. Where the tree differs from it outside of what measures and tries, it
// is another code, and the name ends in "+".
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
