//go:build unix

package assemble

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestFileThatOthersCanWriteIsRefused: a configuration that others can write is refused, since it names
// programs that the daemon runs. If others can read it, the log says so.
func TestFileThatOthersCanWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tgad.toml")
	if err := os.WriteFile(path, []byte("allow_all = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode   fs.FileMode
		gid    int // -1 = the user and group of this process
		refuse bool
		warn   string
	}{
		{0o600, -1, false, ""},
		{0o400, -1, false, ""},
		{0o640, -1, false, "can read it"},
		{0o644, -1, false, "everybody can read it"},
		{0o660, -1, false, "can write it"},
		{0o602, -1, true, ""},
		{0o666, -1, true, ""},
		{0o620, 54321, true, ""},
		{0o640, 54321, false, "group 54321 can read it"},
	} {
		gid := c.gid
		if gid < 0 {
			gid = os.Getegid()
		}
		if err := os.Chown(path, -1, gid); err != nil {
			if c.gid >= 0 {
				continue // only root can change the owner of a file
			}
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := Load(path)
		if c.refuse {
			if tga.CodeOf(err) != tga.PermissionDenied || !strings.Contains(err.Error(), path) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		var log bytes.Buffer
		tools, err := Build(got, Options{Store: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
		if (c.warn == "") != (log.Len() == 0) || !strings.Contains(log.String(), c.warn) {
			t.Errorf("%+v: the log says %q", c, log.String())
		}
	}
}
