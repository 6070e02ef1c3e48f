//go:build unix

package doctor

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime/client"
)

// saying returns the client of a daemon whose metrics the test sets.
func saying(t *testing.T, metrics *string) *client.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad") // a short path, for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, *metrics) })}
	go s.Serve(l)
	t.Cleanup(func() { _ = s.Close() })
	c := client.New(filepath.Join(dir, "s"), client.Options{})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestDoctorSaysWhoIsNotTold: it names a receiver that has not accepted a notice for a minute, and no
// receiver that has.
func TestDoctorSaysWhoIsNotTold(t *testing.T) {
	metrics := ""
	c := saying(t, &metrics)
	for text, want := range map[string]struct {
		verdict Verdict
		says    string
	}{
		"tgad_other 1\n": {OK, "no [[notify]]"},
		"tgad_notify_late_seconds{notify=\"a\"} 59.9\n":                                         {OK, "1 receivers, none is late"},
		"tgad_notify_late_seconds{notify=\"b\"} 0\ntgad_notify_late_seconds{notify=\"a\"} 60\n": {Warn, "not told of what waits: a since 1m0s"},
		"tgad_notify_late_seconds{":                                                             {Warn, "cannot be read"},
	} {
		metrics = text
		if f := told(t.Context(), c); f.Verdict != want.verdict || !strings.Contains(f.Detail, want.says) {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// TestDoctorSaysHowOldTheBackupIs: it also says that the newest try failed.
func TestDoctorSaysHowOldTheBackupIs(t *testing.T) {
	metrics := ""
	c := saying(t, &metrics)
	for text, want := range map[string]struct {
		verdict Verdict
		says    string
	}{
		"tgad_backup_every_seconds 0\ntgad_backup_age_seconds 0\n":                                      {OK, "keeps none"},
		"tgad_backup_every_seconds 10\ntgad_backup_age_seconds 9.6\n":                                   {OK, "10s ago"},
		"tgad_backup_every_seconds 10\ntgad_backup_age_seconds 61\n":                                    {Warn, "is 1m1s old, and should be made every 10s"},
		"tgad_backup_every_seconds 60\ntgad_backup_age_seconds 170\n":                                   {OK, "2m50s ago"},
		"tgad_backup_every_seconds 10\ntgad_backup_age_seconds 5\ntgad_backup_failed{code=\"X_Y\"} 1\n": {Warn, "is 5s old, and the newest try failed: X_Y"},
		"tgad_backup_every_seconds{":                                                                    {Warn, "cannot be read"},
	} {
		metrics = text
		if f := backedUp(t.Context(), c); f.Verdict != want.verdict || !strings.Contains(f.Detail, want.says) {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// TestDoctorSaysThatTheClockJumped: it reports the jump that the daemon's metrics have.
func TestDoctorSaysThatTheClockJumped(t *testing.T) {
	metrics := ""
	c := saying(t, &metrics)
	for _, x := range []struct {
		jumps, by string
		verdict   Verdict
		says      string
	}{
		{"0", "0", OK, "has not jumped"}, {"2", "-7200", Warn, "jumped 2 times since the daemon began, the last time by -2h0m0s"}, {"x", "0", Warn, "cannot be read"},
	} {
		metrics = fmt.Sprintf("# TYPE tgad_clock_jumps_total counter\ntgad_clock_jumps_total %s\ntgad_clock_jump_seconds %s\n", x.jumps, x.by)
		if f := clock(t.Context(), c); f.Verdict != x.verdict || !strings.Contains(f.Detail, x.says) {
			t.Errorf("%s jumps: %+v", x.jumps, f)
		}
	}
	metrics = ""
	if f := clock(t.Context(), c); f.Verdict != Warn {
		t.Errorf("no metric: %+v", f)
	}
}
