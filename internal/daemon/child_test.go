package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/assemble"
)

// The test binary is also the program that some tests run: a crowd of peers under another uid,
// and a daemon in a process of its own.
const childEnv = "TGAD_TEST_CHILD"

func childMain() (int, bool) {
	switch os.Getenv(childEnv) {
	case "":
		return 0, false
	case "crowd":
		return childCrowd(), true
	case "daemon":
		return childDaemon(), true
	case "panic":
		return childPanic(), true
	}
	return 2, true
}

// ask is one request that testdata/peer makes, told what came of it.
type ask struct {
	Method, Path, Body string
	Status             int
	Code               string
	Answer             string
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

// peerProgram builds the program that makes the requests of [bench.as], once, where every user can
// run it. It starts in a tenth of the time that the test binary takes, and tests start it 250 times.
var peerProgram = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "tgad-peer-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		panic(err)
	}
	peerDir = dir
	program := filepath.Join(dir, "peer")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "./testdata/peer").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("peer: %v: %s", err, out))
	}
	return program
})

var peerDir string // removed at the end

// peerCommand is a child under another uid.
func (b *bench) peerCommand(program, kind string, uid, gid uint32) *exec.Cmd {
	cmd := exec.Command(program)
	cmd.Env = []string{childEnv + "=" + kind, "SOCKET=" + b.socket}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	return cmd
}

// as makes requests under another uid.
func (b *bench) as(uid, gid uint32, asks []ask) []ask {
	b.t.Helper()
	in, err := json.Marshal(asks)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := b.peerCommand(peerProgram(), "peer", uid, gid)
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
