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

// TestDoctorSaysThatTheClockJumped: as the daemon's metrics say it.
func TestDoctorSaysThatTheClockJumped(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad") // a short path, for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	metrics := ""
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, metrics) })}
	go s.Serve(l)
	defer s.Close()
	c := client.New(filepath.Join(dir, "s"), client.Options{})
	defer c.Close()
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
