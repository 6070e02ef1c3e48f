//go:build unix

package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// claims is a program in Go that runs a tool itself: tgad-claims SOCKET KEY LICENCE MARK. It reports the
// result of its begin. If the file MARK.kill exists, it kills itself after the tool ran.
func claims() {
	word, err := claim(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	if err != nil {
		word = string(tga.CodeOf(err))
	}
	fmt.Println(word)
}

func claim(socket, key, licence, mark string) (string, error) {
	c := client.New(socket, client.Options{Name: "claims"})
	defer c.Close()
	req := runtime.BeginRequest{
		Request: runtime.Request{Server: "own", Tool: "claimed", Args: []byte(`{}`), Key: key}, BeginID: fmt.Sprint(os.Getpid(), " ", time.Now().UnixNano()),
	}
	if licence != "" {
		l, err := ledger.ParseAttested(licence)
		if err != nil {
			return "", err
		}
		req.Licence = &l
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		b, err := c.Begin(context.Background(), req)
		if err != nil || b.Standing == runtime.BeginWait && time.Now().Before(end) {
			if err != nil {
				return "", err
			}
			continue
		}
		if b.Standing != runtime.BeginSend {
			return string(b.Standing), nil
		}
		f, err := os.OpenFile(mark, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return "", err
		}
		if _, err := io.WriteString(f, "ran\n"); err != nil {
			return "", err
		}
		if _, err := os.Stat(mark + ".kill"); err == nil {
			return "", syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		_, err = c.Finish(context.Background(), b.Result.TraceID, b.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`1`)}})
		return "ran", err
	}
}

// TestGoProgramClaimsALicence: a program in Go whose claim counts is killed with its call, and the daemon
// too. The call keeps the licence that was claimed, and that licence decides.
func TestGoProgramClaimsALicence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ran := func(key, licence string, kill bool) string {
		t.Helper()
		mark := filepath.Join(w.dir, key)
		if kill {
			w.file(key+".kill", "")
			defer os.Remove(mark + ".kill")
		}
		out, err := exec.Command("tgad-claims", w.socket, key, licence, mark).Output()
		var exit *exec.ExitError
		if err != nil && !(kill && errors.As(err, &exit)) {
			t.Fatal(err)
		}
		text, err := os.ReadFile(mark)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %d", strings.TrimSpace(string(out)), bytes.Count(text, []byte("\n")))
	}
	is := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	is(ran("go-1", "dedupe_key 7200000 60000", false), "PERMISSION_DENIED 0")
	is(ran("go-1", "dedupe_key 3600000 60000", true), " 1")
	is(ran("go-2", "", true), " 1")
	w.kill()
	w.start()
	var open []wire.OpenTrace
	err := until(func() (err error) { // a call is in doubt once the time of its permit is over
		if open, err = w.client.InDoubt(t.Context()); err == nil && len(open) < 2 {
			err = fmt.Errorf("%d calls are in doubt", len(open))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, o := range open {
		said[o.IdempotencyKey] = o.Doubt.Licence + " " + strings.Join(o.Doubt.Settles, " ")
		if shown, err := w.client.Trace(t.Context(), o.TraceID); err != nil || o.IdempotencyKey == "go-1" && !bytes.Contains(shown.Entries[2].Artifact, []byte(`"licence":"dedupe_key 3600000 60000"`)) {
			t.Errorf("the call of %s does not name its licence: %s, %v", o.IdempotencyKey, shown.Entries[2].Artifact, err)
		}
	}
	if want := map[string]string{"go-1": "dedupe_key finish begin resolve abandon", "go-2": "park finish resolve abandon"}; fmt.Sprint(said) != fmt.Sprint(want) {
		t.Errorf("in doubt: %v, want %v", said, want)
	}
	is(ran("go-2", "dedupe_key 3600000 60000", false), "in_doubt 1")
	is(ran("go-1", "", false), "in_doubt 1")
	is(ran("go-1", "dedupe_key 3600000 60000", false), "ran 2")
	is(ran("go-1", "dedupe_key 3600000 60000", false), "serve 2")
}
