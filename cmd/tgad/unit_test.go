//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unitCommand is a command of a unit as systemd runs it for a process: words and quotes, and ${MAINPID} in
// them.
func unitCommand(t *testing.T, key string, pid int) *exec.Cmd {
	t.Helper()
	unit, err := os.ReadFile("../../packaging/linux/tgad.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^`+key+`=(.*)$`).FindAllStringSubmatch(string(unit), -1)
	if len(lines) != 1 {
		t.Fatalf("the unit has %d commands %s", len(lines), key)
	}
	var words []string
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(lines[0][1], -1) {
		words = append(words, strings.ReplaceAll(m[1]+m[2], "${MAINPID}", fmt.Sprint(pid)))
	}
	// The programs that every machine with systemd has.
	if words[0] != "/bin/sh" && words[0] != "/usr/bin/tgad" {
		t.Errorf("%s starts %s, which is in no package that this one depends on", key, words[0])
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = []string{"PATH=/nowhere", fmt.Sprint("MAINPID=", pid)}
	return cmd
}

// scrapeAt returns the value of a metric at a socket, or "" if it is not there.
func scrapeAt(socket, metric string) string {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequest(http.MethodGet, "http://tgad/metrics", nil)
	if err != nil {
		return ""
	}
	req.Header.Set("Tgad-Client", "test")
	resp, err := c.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(b.String(), "\n"+metric+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// TestReloadOfTheUnit runs the command of the package's unit for systemctl reload, on a daemon and on a
// gateway. Each applies the new file without a restart. If the new file has a mistake, it keeps the old one
// and stays alive.
func TestReloadOfTheUnit(t *testing.T) {
	p := newProcess(t)
	p.start()
	dir := p.dir
	server := "[[server]]\nid = \"payments\"\ntype = \"mcp-command\"\ncommand = [\"tgad-lab\", \"payments\", \"--journal\", " + fmt.Sprintf("%q", filepath.Join(dir, "g.journal")) + "]\n"
	gateway := filepath.Join(dir, "gateway.toml")
	if err := os.WriteFile(gateway, []byte("allow_all = true\n"+server+"[gateway]\nmetrics = \"unix:m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := exec.Command("tgad", "gateway", "--config", gateway, "--listen", "unix:"+filepath.Join(dir, "gw"))
	g.Env, g.Stderr = append(os.Environ(), "TGAD_SOCKET=", "TGAD_DATA="+filepath.Join(dir, "glog")), os.Stderr
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- g.Wait() }()
	defer func() {
		_ = g.Process.Signal(syscall.SIGTERM)
		if err := <-over; err != nil {
			t.Error(err)
		}
	}()
	for _, of := range []struct {
		name, file, socket, metric string
		pid                        int
	}{
		{"daemon", filepath.Join(dir, "tgad.toml"), p.socket, "tgad_config_reload_success", p.cmd.Process.Pid},
		{"gateway", gateway, filepath.Join(dir, "m"), "tgad_gateway_config_reload_success", g.Process.Pid},
	} {
		is := func(metric, want string) {
			t.Helper()
			if err := waitFor(func() error {
				if got := scrapeAt(of.socket, metric); got != want {
					return fmt.Errorf("%s: %s is %q, want %q", of.name, metric, got, want)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		is(of.metric, "1")
		good, err := os.ReadFile(of.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ text, want string }{{string(good) + "\nmistake\n", "0"}, {string(good), "1"}} {
			if err := os.WriteFile(of.file, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			began := float64(time.Now().UnixMilli()) / 1000
			if out, err := unitCommand(t, "ExecReload", of.pid).CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%s: %v\n%s", of.name, err, out)
			}
			is(of.metric, step.want)
			var at float64
			_, _ = fmt.Sscan(scrapeAt(of.socket, of.metric+"_timestamp_seconds"), &at)
			if read := at >= began; read != (step.want == "1") {
				t.Errorf("%s: the configuration that holds is of %.3f, and the file of %.3f", of.name, at, began)
			}
		}
		if err := syscall.Kill(of.pid, 0); err != nil {
			t.Errorf("%s: %v", of.name, err)
		}
	}
}
