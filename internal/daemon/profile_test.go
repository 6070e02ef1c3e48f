package daemon

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// TestProfilesOfTheProcess: each profile is one that the tools of Go read, one is taken at a time, and
// the daemon's end does not wait for it.
func TestProfilesOfTheProcess(t *testing.T) {
	b := start(t, "")
	for _, name := range []string{"allocs", "goroutine", "heap", "threadcreate", "profile?seconds=1"} {
		status, _, raw := b.raw("GET", "/debug/pprof/"+name, "")
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if status != http.StatusOK || err != nil {
			t.Errorf("%s: %d %.200s %v", name, status, raw, err)
			continue
		}
		profile, err := io.ReadAll(z)
		if err != nil || !bytes.Contains(profile, []byte("github.com/tgad/tgad/")) && name != "threadcreate" && name != "profile?seconds=1" {
			t.Errorf("%s names no function of tgad, %v", name, err)
		}
	}
	if status, _, raw := b.raw("GET", "/debug/pprof/trace?seconds=1", ""); status != http.StatusOK || !bytes.HasPrefix(raw, []byte("go 1.")) {
		t.Errorf("trace: %d %.20q", status, raw)
	}
	for path, want := range map[string]tga.Code{
		"cmdline": tga.NotFound, "profil": tga.NotFound, "block": tga.NotFound,
		"profile?seconds=0": tga.ValidationError, "profile?seconds=61": tga.ValidationError, "trace?seconds=0.5": tga.ValidationError,
	} {
		if _, _, raw := b.raw("GET", "/debug/pprof/"+path, ""); !strings.Contains(string(raw), string(want)) {
			t.Errorf("%s: %.200s lacks %s", path, raw, want)
		}
	}

	first := make(chan int, 1)
	go func() {
		status, _, _ := b.raw("GET", "/debug/pprof/profile?seconds=60", "")
		first <- status
	}()
	for profiling.TryLock() { // until it is taken
		profiling.Unlock()
		time.Sleep(time.Millisecond)
	}
	if _, _, raw := b.raw("GET", "/debug/pprof/heap", ""); !strings.Contains(string(raw), string(tga.StateConcurrentExecution)) {
		t.Errorf("a second one: %.200s", raw)
	}
	began := time.Now()
	b.stop()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the daemon's end waited %v for a profile", took)
	}
	if got := <-first; got != http.StatusOK {
		t.Errorf("the profile that was cut short: %d", got)
	}
}

// TestProfileIsForWhoSeesAll: a profile shows what the process does for everybody.
func TestProfileIsForWhoSeesAll(t *testing.T) {
	for name, role := range map[string]string{"reads": `verbs = ["read", "append", "decide"]`, "one namespace": "verbs = [\"admin\"]\nnamespace = \"shop\""} {
		b := start(t, fmt.Sprintf("[[role]]\nuid = [%d]\n%s\n", os.Geteuid(), role))
		if status, _, raw := b.raw("GET", "/debug/pprof/heap", ""); status != http.StatusForbidden {
			t.Errorf("%s: %d %.200s", name, status, raw)
		}
	}
}
