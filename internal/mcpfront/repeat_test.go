package mcpfront

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/filelock"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/runtime"
)

// TestTwoShimsOfOneProcessLoseNothing: every call of two agents that want the same is made,
// one after the other or at the same time, and none is answered with another one's answer.
func TestTwoShimsOfOneProcessLoseNothing(t *testing.T) {
	const calls = 200 // of each way
	a := newRig(t, true)
	b := a.second()
	for _, r := range []*rig{a, b} {
		if err := r.dial(); err != nil {
			t.Fatal(err)
		}
	}
	bad := func(answer string, err error) bool {
		return err != nil || !strings.Contains(answer, `"ok"`) || strings.Contains(answer, "replayed")
	}
	lost := 0
	for i := range calls {
		r := []*rig{a, b}[i%2]
		answer, err := r.ask("tools/call", `{"name":"charge","arguments":{"way":"sequential"}}`)
		if bad(answer, err) {
			lost++
			t.Errorf("call %d: %.300s %v", i, answer, err)
		}
	}
	for i := range calls / 2 {
		var wg sync.WaitGroup
		for _, r := range []*rig{a, b} {
			wg.Go(func() {
				answer, err := r.ask("tools/call", `{"name":"charge","arguments":{"way":"overlapping"}}`)
				if bad(answer, err) {
					t.Errorf("pair %d: %.300s %v", i, answer, err)
				}
			})
		}
		wg.Wait()
	}
	for _, way := range []string{"sequential", "overlapping"} {
		if n := a.ran(`{"way":"` + way + `"}`); n != calls {
			t.Errorf("%s: %d of %d calls ran", way, n, calls)
		}
	}
	t.Logf("%d of %d calls lost", lost+2*calls-a.ran(`{"way":"sequential"}`)-a.ran(`{"way":"overlapping"}`), 2*calls)
}

// TestKilledBehindALauncher: a shell between client and shim, a client that is started anew,
// and a call id that is another one for each try, change nothing: no call runs twice.
func TestKilledBehindALauncher(t *testing.T) {
	var total verdict
	for _, point := range killPoints {
		r := newRig(t, true)
		r.launcher = []string{"/bin/sh", "-c", `"$0" "$@"; exit $?`}
		r.meta = func(try int) string { return fmt.Sprintf(`{"claudecode/toolUseId":"toolu_%d"}`, try) }
		r.victim = point + ": shim"
		r.call("charge", `{"warm":1}`)
		args := `{"name":"killed"}`
		answer, tries := r.call("held", args)
		eventually(t, "the kill", func() bool {
			_, err := os.Stat(filepath.Join(r.dir, "killed"))
			return err == nil
		})
		v := r.judge(args, answer, tries)
		if v.twice != 0 || v.lost != 0 {
			t.Errorf("killed %s: %+v, answer %.300s", point, v, answer)
		}
		// Doubt stays doubt, however often and under whatever call id it is asked.
		if v.doubts != 0 {
			for range 3 {
				again, _ := r.call("held", args)
				has(t, again, "OUTCOME UNKNOWN")
			}
			if n := r.ran(args); n > 1 {
				t.Errorf("killed %s: a repeat of a call in doubt made %d effects", point, n)
			}
		}
		total.add(v)
		r.drop()
	}
	t.Logf("kills behind a launcher: %+v", total)
}

// TestRepeatOverHTTP: a stream that its client has closed is that client's end, at once; one
// that is open belongs to another who may want the same.
func TestRepeatOverHTTP(t *testing.T) {
	w := newWorld(t)
	_, url := w.fronted()
	gate := filepath.Join(w.dir, "gate")
	args := fmt.Sprintf(`{"wait":%q}`, gate)
	body, header := modern("1", "tools/call", `"name":"charge","arguments":`+args, "Mcp-Name", "charge")

	// Given up and made again at once, ten times.
	for i := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k := 0; k < len(header); k += 2 {
			req.Header.Set(header[k], header[k+1])
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := (&http.Client{Transport: &http.Transport{}}).Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		if i == 0 {
			eventually(t, "the effect", func() bool { return len(w.effects()) == 1 })
		} else {
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		<-done
	}
	if n := len(w.effects()); n != 1 {
		t.Fatalf("%d effects of one call that was made ten times", n)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, got := post(t, url, body, header...)
	if n := len(w.effects()); n != 1 || !strings.Contains(got, "replayed") && !strings.Contains(got, "OUTCOME UNKNOWN") {
		t.Fatalf("%d effects, answer %s", n, got)
	}

	// Two clients at once are two.
	gate = filepath.Join(w.dir, "gate2")
	args = fmt.Sprintf(`{"wait":%q}`, gate)
	body, header = modern("1", "tools/call", `"name":"charge","arguments":`+args, "Mcp-Name", "charge")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, got, err := tryPost(url, body, header...)
			if err != nil || !strings.Contains(got, `"ok"`) || strings.Contains(got, "replayed") {
				t.Errorf("%v %s", err, got)
			}
		})
	}
	eventually(t, "the first effect", func() bool { return len(w.effects()) >= 2 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := len(w.effects()); n != 3 {
		t.Errorf("%d effects, want 3", n)
	}
}

// TestClosedStreamIsSeenBeforeTheServerIsTold: whoever calls next has looked at the streams
// itself; the goroutine that serves the closed one may not have run yet.
func TestClosedStreamIsSeenBeforeTheServerIsTold(t *testing.T) {
	w := newWorld(t)
	f, url := w.fronted()
	body, header := modern("1", "echo", "")
	post(t, url, body, header...) // opens the shared session
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "ours")
	defer ours.Close()
	raw, _ := modern("2", "tools/call", fmt.Sprintf(`"name":"charge","arguments":{"wait":%q}`, filepath.Join(w.dir, "gate")))
	e := &exchange{events: make(chan event, 1), socket: ours, gone: t.Context().Done(), modern: true}
	s := f.shared[""]
	m, key, err := s.enter(frames.NewFrame([]byte(raw)), e)
	if err != nil {
		t.Fatal(err)
	}
	defer s.leave(key, e)
	s.c.fromClient(m)
	eventually(t, "the effect", func() bool { return len(w.effects()) == 1 })
	locks, err := filepath.Glob(filepath.Join(w.dir, "state", "live", "*.lock"))
	if err != nil || len(locks) != 2 { // the shim's and the stream's
		t.Fatalf("%v %v", locks, err)
	}
	held := func() (n int) {
		for _, path := range locks {
			if is, _ := filelock.Held(path); is {
				n++
			}
		}
		return n
	}
	f.reap()
	if n := held(); n != 2 {
		t.Fatalf("%d locks are held while the client is there", n)
	}
	if err := syscall.Close(pair[1]); err != nil {
		t.Fatal(err)
	}
	f.reap()
	if n := held(); n != 1 {
		t.Errorf("%d locks are held after the client has closed its stream, want the shim's alone", n)
	}
}

// watched is a log that sees at each Begin whether its client is there.
type watched struct {
	Log
	held chan bool
}

func (l *watched) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	is, _ := filelock.Held(req.Connection.Lock)
	l.held <- is
	return l.Log.Begin(ctx, req)
}

// TestGoneClientIsNotThereForTheLog: a request that its client has left by the time that it
// reaches the log, alone or in an array, shows nobody there, whoever looked before.
func TestGoneClientIsNotThereForTheLog(t *testing.T) {
	for _, array := range []bool{false, true} {
		for _, left := range []bool{false, true} {
			t.Run(fmt.Sprintf("array=%v/left=%v", array, left), func(t *testing.T) {
				w := newWorld(t)
				log := &watched{Log: local{w.rt}, held: make(chan bool, 8)}
				w.log = log
				f, url := w.fronted()
				body, header := modern("1", "echo", "")
				post(t, url, body, header...) // opens the shared session
				pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
				if err != nil {
					t.Fatal(err)
				}
				ours := os.NewFile(uintptr(pair[0]), "ours")
				defer ours.Close()
				raw, _ := modern("2", "tools/call", `"name":"charge","arguments":{}`)
				if array {
					raw = "[" + raw + "]"
				}
				gone := make(chan struct{})
				e := &exchange{events: make(chan event, 8), socket: ours, gone: gone, modern: !array}
				s := f.shared[""]
				f.reap() // too early to see it
				m, key, err := s.enter(frames.NewFrame([]byte(raw)), e)
				if err != nil {
					t.Fatal(err)
				}
				defer s.leave(key, e)
				if left {
					err = syscall.Close(pair[1])
				} else {
					defer syscall.Close(pair[1])
				}
				if err != nil {
					t.Fatal(err)
				}
				s.c.fromClient(m)
				if held := <-log.held; held == left {
					t.Errorf("the log saw held = %v of a client that left = %v", held, left)
				}
				close(gone) // nobody takes what it is answered
				s.c.(*alone).work.Wait()
				if left {
					if n := len(w.effects()); n != 0 {
						t.Errorf("%d effects of a call whose client was gone before it was sent", n)
					}
				}
			})
		}
	}
}

// TestAnswerThatNobodyReadsIsNotDelivered: bytes in a pipe whose reader is gone reached
// nobody, and the repeat is served.
func TestAnswerThatNobodyReadsIsNotDelivered(t *testing.T) {
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := stdout{frames.NewSink(wr)}
	f := frames.NewFrame([]byte(`{}`))
	if err := s.send(&f.Envelope, f); err != nil {
		t.Errorf("with a reader: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if !paper.NoReader(wr) {
		t.Error("a pipe without a reader has one")
	}
	if err := s.send(&f.Envelope, f); err == nil {
		t.Error("it was delivered to nobody")
	}
}
