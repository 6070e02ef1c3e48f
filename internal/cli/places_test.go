package cli

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestStateHasOnePlace: the place of the log does not depend on anything that may differ between two processes of a user. If no
// absolute path is set and the system does not know the user's home, there is no default place.
func TestStateHasOnePlace(t *testing.T) {
	own := ""
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && filepath.IsAbs(u.HomeDir) {
		own = filepath.Join(u.HomeDir, ".local", "state", "tgad")
	}
	for _, row := range []struct{ state, home, want string }{
		{"/s", "/h", "/s/tgad"},
		{"", "/h", "/h/.local/state/tgad"},
		{"s", "/h", "/h/.local/state/tgad"},
		{"./s", "/h", "/h/.local/state/tgad"},
		{"", "h", own},
		{"", "", own},
		{"s", "", own},
	} {
		t.Setenv("XDG_STATE_HOME", row.state)
		t.Setenv("HOME", row.home)
		for range 2 {
			t.Setenv("TMPDIR", t.TempDir())
			t.Chdir(t.TempDir())
			dir, err := stateDir("--data")
			if dir != row.want || (tga.CodeOf(err) == tga.ValidationError) != (row.want == "") {
				t.Errorf("XDG_STATE_HOME=%q HOME=%q: %q, %v; want %q", row.state, row.home, dir, err, row.want)
			}
		}
	}
	t.Setenv("TGAD_SOCKET", "")
	for _, runtime := range []string{"", "run", "/r"} {
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		want := "/run/tgad/tgad.sock"
		if strings.HasPrefix(runtime, "/") {
			want = runtime + "/tgad/tgad.sock"
		}
		if got := DefaultSocket(); got != want {
			t.Errorf("XDG_RUNTIME_DIR=%q: %q, want %q", runtime, got, want)
		}
	}
}
