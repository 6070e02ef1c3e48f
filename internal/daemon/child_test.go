package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/assemble"
)

// The test binary is also the program that some tests run: a peer under another uid, and
// a daemon in a process of its own.
const childEnv = "TGAD_TEST_CHILD"

func childMain() (int, bool) {
	switch os.Getenv(childEnv) {
	case "":
		return 0, false
	case "peer":
		return childPeer(), true
	case "crowd":
		return childCrowd(), true
	case "daemon":
		return childDaemon(), true
	case "panic":
		return childPanic(), true
	}
	return 2, true
}

// ask is one request that a peer makes, told what came of it.
type ask struct {
	Method, Path, Body string
	Status             int
	Code               string
	Answer             string
}

// childPeer makes the requests on its standard input and prints them with their answers.
func childPeer() int {
	var asks []ask
	if err := json.NewDecoder(os.Stdin).Decode(&asks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	hc := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", os.Getenv("SOCKET"))
	}}}
	lease := ""
	for i := range asks {
		// {lease} is the lease that this peer took last.
		asks[i].Body = strings.ReplaceAll(asks[i].Body, "{lease}", lease)
		if err := asks[i].make(hc); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if strings.HasSuffix(asks[i].Path, "/lease") {
			var l struct{ Lease string }
			if err := json.Unmarshal([]byte(asks[i].Answer), &l); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			lease = l.Lease
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(asks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (a *ask) make(hc *http.Client) error {
	req, err := http.NewRequest(a.Method, "http://tgad"+a.Path, strings.NewReader(a.Body))
	if err != nil {
		return err
	}
	req.Header.Set("Tgad-Client", "peer")
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	var p struct{ Code string }
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem") {
		err = json.Unmarshal(raw, &p)
	}
	a.Status, a.Code, a.Answer = resp.StatusCode, p.Code, string(raw)
	return err
}

// childDaemon serves until SIGTERM, as a command would.
func childDaemon() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if os.Getenv("LISTEN_PID") == "self" { // a parent does not know the pid before it starts the child
		if err := os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())); err != nil {
			return 1
		}
	}
	cfg, err := assemble.Load(os.Getenv("CONFIG"))
	if err == nil {
		err = Run(ctx, Options{
			Data: os.Getenv("DATA"), Socket: os.Getenv("SOCKET"), Config: cfg, Version: "child",
			Ready: func() { fmt.Println("ready") },
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// copyOfTest is the test binary where every user can run it: the go command keeps it in
// a directory that others cannot enter.
func copyOfTest(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "peer")
	if err := os.WriteFile(path, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// peerCommand is a child under another uid.
func (b *bench) peerCommand(program, kind string, uid, gid uint32) *exec.Cmd {
	cmd := exec.Command(program)
	cmd.Env = []string{childEnv + "=" + kind, "SOCKET=" + b.socket}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	return cmd
}

// as makes requests under another uid.
func (b *bench) as(program string, uid, gid uint32, asks []ask) []ask {
	b.t.Helper()
	in, err := json.Marshal(asks)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := b.peerCommand(program, "peer", uid, gid)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("peer %d: %v: %s", uid, err, stderr.Bytes())
	}
	var answered []ask
	if err := json.Unmarshal(out, &answered); err != nil {
		b.t.Fatal(err)
	}
	return answered
}
