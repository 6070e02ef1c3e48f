package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilledDaemonAlarmsNoMonitor: a monitor asks a daemon that is killed again and again, in the middle
// of answers too. It raises no alarm, and in the end it has checked everything.
func TestKilledDaemonAlarmsNoMonitor(t *testing.T) {
	kills, seed := fromEnv(t, "TGAD_KILLS", 6), uint64(fromEnv(t, "TGAD_SEED", int(time.Now().UnixNano()%1e9)))
	t.Logf("TGAD_KILLS=%d TGAD_SEED=%d", kills, seed)
	p := newProcess(t)
	key, state := filepath.Join(p.dir, "key"), filepath.Join(p.dir, "state")
	public, code := p.run("evidence", "keygen", "shop.example/tgad", "-o", key)
	if code != 0 {
		t.Fatal(public)
	}
	public = strings.TrimSpace(public)
	text := testConfig(p.journal) + fmt.Sprintf("\n[evidence]\nkey_file = %s\nevery = \"5ms\"\n", strconv.Quote(key))
	if err := os.WriteFile(filepath.Join(p.dir, "tgad.toml"), []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	p.start()

	var said bytes.Buffer
	follower := exec.Command("tgad", "monitor", "--socket", p.socket, "--key", public, "--state", state, "--every", "5ms")
	follower.Stdout, follower.Stderr = &said, &said
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	killWhileCalled(t, p, kills, seed)
	if err := errors.Join(follower.Process.Signal(syscall.SIGINT), follower.Wait()); err != nil {
		t.Errorf("the monitor ended: %v\n%s", err, said.String())
	}
	var followed struct{ Checked int }
	if raw, err := os.ReadFile(state); err != nil || json.Unmarshal(raw, &followed) != nil {
		t.Errorf("%v: %s", err, raw)
	}
	p.end(syscall.SIGTERM) // which signs the rest
	p.start()
	out, code := p.run("monitor", "--key", public, "--state", state, "--once", "--json")
	var appends, checked int
	if n, err := fmt.Sscanf(out, `{"appends":%d,"checked":%d}`, &appends, &checked); n != 2 || code != 0 || checked != appends || checked < kills {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	// A daemon that is killed before it has answered completely must not stop the monitor's progress.
	if kills >= 50 && followed.Checked < appends/20 {
		t.Errorf("of %d appends the monitor had checked %d while the daemon was killed", appends, followed.Checked)
	}
	t.Logf("%d appends, %d of them checked meanwhile, %d times it could not ask", appends, followed.Checked, strings.Count(said.String(), "cannot be asked"))
}
