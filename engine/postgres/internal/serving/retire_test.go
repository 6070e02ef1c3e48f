package serving_test

import (
	"bytes"
	"fmt"
	"os"
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

// TestSealedMonthIsRetired: a month of a sealed store is exported in the clear with its ring, beside the daemon that serves it. Without
// the ring, or with another one, nothing is dropped. A store of the same database that is not sealed does not become so.
func TestSealedMonthIsRetired(t *testing.T) {
	_, _, ring := newRing(t)
	_, _, other := newRing(t)
	server, err := common.Server()
	if err == nil {
		err = server.Exec("SELECT tgad.make_partition('2002-06-01')")
	}
	if err != nil {
		t.Fatal(err)
	}
	f, plain := newFleet(t, "", ring), newFleet(t, "", "")
	d := f.start("a")
	ids := map[*fleet]tga.ID{}
	for i, of := range []*fleet{f, plain} {
		served := d
		if of == plain {
			served = of.start("a")
		}
		old, err := tga.ParseID(fmt.Sprintf("00ee47de-cc00-7000-8000-%012d", i+1)) // of June 2002
		if err != nil {
			t.Fatal(err)
		}
		req := secretCall("of long ago")
		req.TraceID, ids[of] = old, old
		if res, err := served.Call(t.Context(), req); err != nil || res.State != tga.Completed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	archive := filepath.Join(f.dir, "archive")
	retires := func(code int, says string, args ...string) {
		t.Helper()
		cmd := program(append([]string{"pg", "retire", f.url, "--month", "2002-06", "--archive", archive}, args...)...)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code || !bytes.Contains(out, []byte(says)) {
			t.Errorf("retire %q: exit code %d, %s", args, cmd.ProcessState.ExitCode(), out)
		}
	}
	carried := func() string {
		n, err := server.Query(fmt.Sprintf("SELECT count(*)::text FROM tgad.entries WHERE trace IN ('%s', '%s') AND parts IS NOT NULL", ids[f], ids[plain]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	retires(1, "the store is open without its key ring")
	f.reconfigured(ring, other)
	retires(1, "STORE_UNAVAILABLE", "--config", f.config)
	if n := carried(); n != "8" {
		t.Fatalf("%s of 8 entries have what they carried", n)
	}
	f.reconfigured(other, ring)
	retires(0, "2002-06 is retired: 2 calls, of which 8 entries stay", "--config", f.config)
	if n := carried(); n != "0" {
		t.Errorf("%s entries have what they carried", n)
	}
	files, err := filepath.Glob(filepath.Join(archive, "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	clear := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(ids[f].String())) && bytes.Contains(raw, []byte(secret)) {
			clear++
		}
	}
	if clear == 0 {
		t.Errorf("none of %v has what was sealed", files)
	}
	if n, err := server.Query(fmt.Sprintf("SELECT count(*)::text FROM tgad.meta WHERE shard = %d AND name = 'keyring'", plain.shard)); err != nil || n != "0" {
		t.Errorf("a store that is not sealed has a ring: %s, %v", n, err)
	}
	if v, err := d.Verify(t.Context(), tga.ID{}); err != nil || !v.OK {
		t.Errorf("verify: %+v, %v", v, err)
	}
	// Its key is as used as before.
	if _, err := d.Call(t.Context(), secretCall("of long ago")); err == nil || f.tool.sends("of long ago") != 1 {
		t.Errorf("the key of a retired call: %v, sent %d times", err, f.tool.sends("of long ago"))
	}
}
