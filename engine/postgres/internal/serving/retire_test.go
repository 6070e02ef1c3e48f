package serving_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// retires retires a month long ago with the verb: the export has its call, and the store has its chain.
func retires(t *testing.T, tgad func(...string) *exec.Cmd, d *daemon, v *verbs) {
	server, err := common.Server()
	if err == nil {
		err = server.Exec("SELECT tgad.make_partition('2001-05-01')")
	}
	if err != nil {
		t.Fatal(err)
	}
	old, err := tga.ParseID("00e65ffb-9000-7000-8000-000000000001") // of May 2001
	if err != nil {
		t.Fatal(err)
	}
	req := call("opaque", "of long ago")
	req.TraceID = old
	if res, err := d.Call(t.Context(), req); err != nil || res.State != tga.Completed || res.TraceID != old {
		t.Fatalf("%+v, %v", res, err)
	}
	archive := filepath.Join(d.f.dir, "archive")
	for _, x := range []struct {
		code int
		says string
		args []string
	}{
		{2, "--archive", []string{"--month", "2001-05"}},
		{1, "NOT_FOUND", []string{"--month", "2001-06", "--archive", archive}},
		{0, "2001-05 is retired: 1 calls, of which 4 entries stay", []string{"--month", "2001-05", "--archive", archive}},
		{0, "2001-05 was retired already", []string{"--month", "2001-05", "--archive", archive}},
	} {
		cmd := tgad(append([]string{"pg", "retire", d.f.url}, x.args...)...)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != x.code || !bytes.Contains(out, []byte(x.says)) {
			t.Errorf("retire %q: exit code %d, %s", x.args, cmd.ProcessState.ExitCode(), out)
		}
	}
	files, err := filepath.Glob(filepath.Join(archive, "*.ndjson"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	v.says(0, "ok", "verify", files[0])
	v.says(0, "ok", "verify", old.String())
}
