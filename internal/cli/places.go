package cli

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
)

// DefaultSocket is $TGAD_SOCKET, else tgad/tgad.sock in $XDG_RUNTIME_DIR, else in /run.
func DefaultSocket() string {
	if s := os.Getenv("TGAD_SOCKET"); s != "" {
		return s
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) { // as in stateDir
		dir = "/run"
	}
	return filepath.Join(dir, "tgad", "tgad.sock")
}

// stateDir returns where the logs of shims are kept by default: tgad in $XDG_STATE_HOME, or else in the
// user's home. Two processes of one user must find the same directory, wherever they were started and
// whatever temporary directory they have: with two logs the same key would be sent twice. So a relative
// path counts as not set, as the XDG specification says. If no home is known, the user must give the flag.
func stateDir(flag string) (string, error) {
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tgad"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		home = ""
		if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
			home = u.HomeDir
		}
	}
	if !filepath.IsAbs(home) {
		return "", tga.Errorf(tga.ValidationError, "no home is known to keep the log in: $HOME is not set. Name a directory with %s", flag)
	}
	return filepath.Join(home, ".local", "state", "tgad"), nil
}
