//go:build linux

package proc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/crashtest"
)

// request is one line from a victim. World names the journal, because one oracle serves many
// stores, in sequence or at once.
type request struct {
	World string `json:"world"`
	Sync  bool   `json:"sync,omitempty"`  // answer when all that came before is done
	Asked bool   `json:"asked,omitempty"` // likewise, and say whether the trace's attempt came
	event
}

// reply answers a request.
type reply struct {
	Result string `json:"result"`
	Came   bool   `json:"came,omitempty"`  // asked: the attempt was received
	Acted  bool   `json:"acted,omitempty"` // asked: something was done for the trace
}

// oracleTask tells an oracle process what to do.
type oracleTask struct {
	Socket string
	Dir    string // of the journals
	DieAt  int    // the step to die before, counted over all requests; 0 = live
}

// oracle is the tool server of the kill tests. It writes each call durably to its journal
// before it acts on it, so that a kill of the oracle cannot hide a send or an effect.
type oracle struct {
	task  oracleTask
	steps atomic.Int64

	mu     sync.Mutex
	worlds map[string]*ledgerOfOracle
}

// ledgerOfOracle is one journal, with its lines in memory.
type ledgerOfOracle struct {
	mu    sync.Mutex
	f     *os.File
	lines []event
}

// has reports whether a line of the journal is as wanted.
func (w *ledgerOfOracle) has(want func(event) bool) bool { return slices.ContainsFunc(w.lines, want) }

func runOracle(task oracleTask) error {
	o := &oracle{task: task, worlds: map[string]*ledgerOfOracle{}}
	if err := os.Remove(task.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", task.Socket)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		// The parent holds the other end: an oracle does not outlive it.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	earlier := closedChannel()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		// Each connection knows when all connections accepted before it are done. A sync
		// waits for that.
		before, done := earlier, make(chan struct{})
		earlier = done
		go func() {
			o.serve(c, before)
			<-before
			close(done)
		}()
	}
}

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// step is a place where an oracle can die.
func (o *oracle) step() {
	if n := o.steps.Add(1); o.task.DieAt != 0 && n == int64(o.task.DieAt) {
		die()
	}
}

// die ends this process as SIGKILL from outside would.
func die() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// requestTime is how long a request may take to arrive after its connection.
const requestTime = 3 * time.Second

// serve answers one connection, which carries one request. An error here ends the
// connection. The caller then does not know what happened, as with any tool server.
func (o *oracle) serve(c net.Conn, earlier <-chan struct{}) {
	defer c.Close()
	// A victim that was stopped between connecting and its request sends nothing, and a sync would
	// wait for it. With the deadline, a request that it sends later is not read.
	if err := c.SetReadDeadline(time.Now().Add(requestTime)); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		return
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return
	}
	var q request
	if json.Unmarshal(line, &q) != nil {
		return
	}
	if q.Sync {
		<-earlier
		_, _ = c.Write([]byte("{}\n"))
		return
	}
	w, err := o.world(q.World)
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		return
	}
	if q.Asked {
		<-earlier
		w.mu.Lock()
		defer w.mu.Unlock()
		answerTo(c, reply{
			Came:  w.has(func(e event) bool { return e.Kind == received && e.Trace == q.Trace && e.Attempt == q.Attempt }),
			Acted: w.has(func(e event) bool { return e.Kind == effect && e.Trace == q.Trace }),
		})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o.step()
	first := !w.has(func(e event) bool { return e.Kind == received && e.Tool == q.Tool && e.Key == q.Key })
	q.Kind = received
	if w.record(q.event) != nil {
		return
	}
	o.step()
	lost := first && behaviourOf(q.Tool) == crashtest.LosesCall
	did := q.once() != "" && w.has(func(e event) bool { return e.Kind == effect && e.once() == q.once() })
	if !effectless(q.Tool) && !did && !lost {
		q.Kind = effect
		if w.record(q.event) != nil {
			return
		}
		o.step()
	}
	if lost || first && behaviourOf(q.Tool) == crashtest.LosesReply {
		return
	}
	answerTo(c, reply{Result: resultOf(q.Tool, q.Key)})
	o.step()
}

// answerTo writes a reply with one write. Whether it arrives is the caller's concern.
func answerTo(c net.Conn, r reply) {
	if b, err := json.Marshal(r); err == nil {
		_, _ = c.Write(append(b, '\n'))
	}
}

// resultOf is the answer to a call: the same for the same key. A long
// one does not fit a log entry.
func resultOf(tool, key string) string {
	size := 16
	if behaviourOf(tool) == crashtest.Long {
		size = 40 << 10
	}
	return fmt.Sprintf(`{"did":%q,"pad":%q}`, tool+" "+key, strings.Repeat("x", size))
}

func (o *oracle) world(name string) (*ledgerOfOracle, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.worlds[name]; w != nil {
		return w, nil
	}
	past, err := readJournal(o.task.Dir, name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(o.task.Dir, name+".journal"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	w := &ledgerOfOracle{f: f, lines: past}
	o.worlds[name] = w
	return w, nil
}

func (w *ledgerOfOracle) record(e event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := w.f.Write(append(b, '\n')); err != nil {
		return err
	}
	w.lines = append(w.lines, e)
	return w.f.Sync()
}
