//go:build linux

package proc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The bugs that a victim can have. They imitate bugs of the store and of the runtime, but
// are in wrappers around them. Each tier must find the bugs that its kills can reveal.
const (
	bugEarlyAck    = "early ack"    // the caller is answered before the effect is appended
	bugEarlySend   = "early send"   // the call is sent before its attempt is appended
	bugNoLogSync   = "no log sync"  // syncs of the log do nothing, once there is a store
	bugNoDirSync   = "no dir sync"  // syncs of directories do nothing
	bugNoLock      = "no lock"      // a second process is let in
	bugBlindResend = "blind resend" // doubt is always answered by another send
)

// forgets returns which syncs a bug leaves out.
func forgets(bug string) func(path string, dir bool) bool {
	switch bug {
	case bugNoLogSync:
		// The first syncs make the store. Without them there is no store that could lose data.
		var syncs atomic.Int64
		return func(path string, dir bool) bool { return !dir && isLog(path) && syncs.Add(1) > 4 }
	case bugNoDirSync:
		return func(_ string, dir bool) bool { return dir }
	}
	return nil
}

// unlock releases every lock of a store that this process has open.
func unlock(bug, dir string) error {
	if bug != bugNoLock {
		return nil
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue // the one that the list was read by
		}
		if to == dir || to == filepath.Join(dir, "tgad.lock") || to == filepath.Join(dir, "index", "LOCK") {
			if err := syscall.Flock(fd, syscall.LOCK_UN); err != nil {
				return err
			}
		}
	}
	// Pebble's belongs to the process, and ends when any file of that name is closed.
	f, err := os.Open(filepath.Join(dir, "index", "LOCK"))
	if err != nil {
		return err
	}
	return f.Close()
}

// policyOf returns the operator's configuration or, for a bug, a wrong one.
func policyOf(bug string) func(server, tool string) runtime.Policy {
	if bug != bugBlindResend {
		return policy
	}
	return func(server, tool string) runtime.Policy {
		p := policy(server, tool)
		p.Licence, p.LicenceSet = ledger.Licence{Kind: ledger.DedupeArgs}, true
		return p
	}
}

// plant puts a bug around a store or the way to the tools.
func plant(bug string, db *engine.DB, tools runtime.Dispatcher) (runtime.Store, runtime.Dispatcher) {
	switch bug {
	case bugEarlyAck:
		return earlyAck{db}, tools
	case bugEarlySend:
		s := &earlySend{DB: db, tools: tools, sent: map[tga.ID]sentEarly{}}
		return s, s
	}
	return db, tools
}

// earlyAck acknowledges, and only then appends.
type earlyAck struct{ *engine.DB }

func (s earlyAck) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	t, err := s.Load(ctx, lease.TraceID)
	if errors.Is(err, tga.NotFound) {
		t, err = chain.NewTrace(lease.TraceID), nil
	}
	var early chain.Appended
	for i := range b.Artifacts {
		if err != nil {
			break
		}
		a := &b.Artifacts[i]
		var e tga.LogEntry
		if e, err = t.Link(a.Artifact, a.Artifact.TS); err == nil {
			a.Entry = &e // the store takes it as it is given
			early.Entries = append(early.Entries, e)
			err = t.Apply(&chain.Entry{LogEntry: e, Preimage: e.AppendPreimage(nil), Artifact: a.Artifact, Documents: a.Documents})
		}
	}
	if err != nil {
		return chain.Appended{}, err
	}
	sayAppended(lease.TraceID, early)
	return s.DB.Append(ctx, lease, b)
}

// earlySend sends a call before it is appended.
type earlySend struct {
	*engine.DB
	tools runtime.Dispatcher

	mu   sync.Mutex
	sent map[tga.ID]sentEarly // by tool_call_id
}

type sentEarly struct {
	reply runtime.Reply
	err   error
}

func (s *earlySend) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	if n := len(b.Artifacts); n > 0 {
		if a := b.Artifacts[n-1].Artifact; a.Call != nil {
			var r sentEarly
			r.reply, r.err = s.tools.Dispatch(ctx, runtime.Call{
				TraceID: lease.TraceID, ToolCallID: a.ID, Attempt: 1, Server: a.Call.Call.ToolServer,
				Tool: a.Call.Call.ToolName, Args: a.Call.Call.Args, Key: a.Call.IdempotencyKey,
			})
			s.mu.Lock()
			s.sent[a.ID] = r
			s.mu.Unlock()
		}
	}
	return s.DB.Append(ctx, lease, b)
}

func (s *earlySend) Dispatch(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
	s.mu.Lock()
	r, was := s.sent[c.ToolCallID]
	delete(s.sent, c.ToolCallID)
	s.mu.Unlock()
	if was {
		return r.reply, r.err
	}
	return s.tools.Dispatch(ctx, c)
}
