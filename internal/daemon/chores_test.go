package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/aside"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// soon waits for something that the daemon does by itself.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// awayRing is a ring that cannot be asked to destroy a key for a while.
type awayRing struct {
	*chaintest.Ring
	away      atomic.Bool
	destroyed atomic.Int64
}

func (r *awayRing) Destroy(key chain.KeyID) error {
	if r.away.Load() {
		return tga.Errorf(tga.StoreUnavailable, "the ring is away")
	}
	r.destroyed.Add(1)
	return r.Ring.Destroy(key)
}

// writeState makes a store with a working state that has one value.
func (b *bench) writeState(state tga.ID, value []byte, o engine.Options) {
	b.t.Helper()
	db, err := engine.Open(b.data, o)
	if err != nil {
		b.t.Fatal(err)
	}
	lease, err := db.Acquire(b.t.Context(), state)
	if err == nil {
		_, err = db.Append(b.t.Context(), lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(state, 0), Value: value}}})
	}
	db.Release(lease)
	if err := errors.Join(err, db.Close()); err != nil {
		b.t.Fatal(err)
	}
}

// TestErasureIsFinishedByTheDaemon: an erasure whose keys could not be destroyed is finished once the ring works again, without another
// request, by the same daemon and by the next one. Afterwards the index of lists finds nothing by erased values, and the snapshots of an
// erased working state are gone.
func TestErasureIsFinishedByTheDaemon(t *testing.T) {
	for name, restart := range map[string]bool{"it goes on": false, "the next one": true} {
		t.Run(name, func(t *testing.T) {
			b, ring := setup(t, ""), &awayRing{Ring: new(chaintest.Ring)}
			b.tune = func(o *Options) {
				tune := o.Tune
				o.Tune = func(e *engine.Options) { tune(e); e.Keyring = ring }
				o.Config.Store.ListIndex = true
			}
			state := newID()
			b.writeState(state, []byte("what a working state has"), engine.Options{LowWaterBytes: 1, Keyring: ring})
			left := filepath.Join(aside.Dir(b.data, state), "1")
			if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, []byte("private"), 0o600)); err != nil {
				t.Fatal(err)
			}
			b.start()
			res, err := b.client.Call(t.Context(), charge("k"))
			if err != nil {
				t.Fatal(err)
			}
			ring.away.Store(true)
			_, err = b.client.Erase(t.Context(), wire.EraseRequest{Traces: []tga.ID{res.TraceID}, States: []tga.ID{state}, Reason: "test"})
			wantCode(t, err, tga.StoreUnavailable)
			if restart {
				b.stop()
				b.start()
			}
			ring.away.Store(false)
			soon(t, "the key is destroyed", func() bool { return ring.destroyed.Load() > 0 })
			soon(t, "the snapshots are removed", func() bool {
				_, err := os.Stat(left)
				return errors.Is(err, os.ErrNotExist)
			})
			soon(t, "no list finds it by what was erased", func() bool {
				for _, err := range b.client.Traces(t.Context(), wire.TracesQuery{All: true, Newest: true, Tool: "charge"}) {
					if err == nil {
						return false
					}
				}
				return true
			})
			b.stop()
			db, err := engine.Open(b.data, engine.Options{LowWaterBytes: 1, Keyring: ring})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { ends(t, db) }()
			if is, err := db.Erasing(); is || err != nil {
				t.Errorf("it is not finished: %v", err)
			}
		})
	}
}

// TestUnfrozenStoreIsTakenUp: if a store is frozen at the start, the open traces of an earlier process are recovered once it takes writes
// again, and once more at the end of its quarantine, without a request. A call that only reads is sent again at the first recovery. A
// call that writes is suspect until the end of the quarantine; only then the shop is asked about it.
func TestUnfrozenStoreIsTakenUp(t *testing.T) {
	shop := newShop(t)
	b := start(t, shop.config(""))
	copied := filepath.Join(b.dir, "copy")
	reads := make(chan struct{})
	shop.booking = func(int, http.ResponseWriter, func() string) bool {
		<-reads
		if err := b.client.Backup(context.Background(), copied); err != nil {
			t.Error(err)
		}
		return false
	}
	var sent atomic.Int64
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		if sent.Add(1) == 1 {
			close(reads)
			soon(t, "the copy is there", func() bool {
				_, err := os.Stat(copied)
				return err == nil
			})
		}
		_, _ = w.Write([]byte(`{"ok":true}`)) // the client is told what became of that
	})
	var calls sync.WaitGroup
	var wrote, read runtime.Result
	var errs [2]error
	calls.Go(func() { wrote, errs[0] = b.client.Call(t.Context(), book("k")) })
	calls.Go(func() {
		read, errs[1] = b.client.Call(t.Context(), runtime.Request{Server: "pay", Tool: "balance", Args: []byte(`{}`)})
	})
	calls.Wait()
	b.stop()
	b.data = filepath.Join(b.dir, "restored")
	if err := errors.Join(append(errs[:], engine.Restore(t.Context(), copied, b.data, engine.Options{}))...); err != nil {
		t.Fatal(err)
	}
	b.start()
	over := func(id tga.ID) func() bool {
		return func() bool {
			got, err := b.client.Trace(t.Context(), id)
			return err == nil && len(got.Entries) == 4
		}
	}
	if sent.Load() != 1 || over(read.TraceID)() || over(wrote.TraceID)() {
		t.Fatalf("%d sends, and calls have ended that were under way", sent.Load())
	}
	if err := b.client.Unfreeze(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	soon(t, "the call that reads is made", over(read.TraceID))
	if sent.Load() != 2 || over(wrote.TraceID)() {
		t.Errorf("%d sends of the call that reads; of the one that writes the end is known: %v", sent.Load(), over(wrote.TraceID)())
	}
	if err := b.client.EndQuarantine(t.Context()); err != nil {
		t.Fatal(err)
	}
	soon(t, "the shop is asked about the call that writes", over(wrote.TraceID))
	if tried, _, _ := shop.counts("k"); tried != 1 {
		t.Errorf("%d requests", tried)
	}
}

// TestSnapshotsAreRemovedLater: snapshots of an erased working state that could not be removed at the start are removed as soon as that
// is possible.
func TestSnapshotsAreRemovedLater(t *testing.T) {
	b, state := setup(t, ""), newID()
	value, err := chain.StateErasure{At: 1, Who: "me", Reason: "test"}.Value()
	if err != nil {
		t.Fatal(err)
	}
	b.writeState(state, value, engine.Options{LowWaterBytes: 1})
	left := aside.Dir(b.data, state)
	away := filepath.Join(b.dir, "away")
	if err := errors.Join(os.MkdirAll(filepath.Join(away, state.String()), 0o700), os.WriteFile(filepath.Dir(left), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b.start()
	if err := errors.Join(os.Remove(filepath.Dir(left)), os.Rename(away, filepath.Dir(left))); err != nil {
		t.Fatal(err)
	}
	soon(t, "it is removed", func() bool {
		_, err := os.Stat(left)
		return errors.Is(err, os.ErrNotExist)
	})
}

// TestTrustedServerIsAskedLater: if a trusted server is down or hangs when the daemon starts, it is asked for its hints again, without a
// reload. The daemon is ready meanwhile. A server that has answered is not asked again.
func TestTrustedServerIsAskedLater(t *testing.T) {
	defer func(was time.Duration) { hintTime = was }(hintTime)
	hintTime = 300 * time.Millisecond
	for name, hangs := range map[string]bool{"away": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			server := mcp.NewServer(&mcp.Implementation{Name: "hints"}, nil)
			mcp.AddTool(server, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{}, nil, nil
			})
			serves := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if !hangs {
				ends(t, l)
			}
			b := setup(t, fmt.Sprintf("[[server]]\nid = \"s\"\ntype = \"mcp-url\"\nurl = \"http://%s\"\ntrusted = true\n", l.Addr()))
			b.start()
			look := runtime.Request{Server: "s", Tool: "look", Args: []byte(`{}`)} // without a key: only of a tool that reads
			if !hangs {
				if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
					t.Fatal(err)
				}
			}
			web := httptest.NewUnstartedServer(serves)
			ends(t, web.Listener)
			web.Listener = l
			web.Start()
			defer web.Close()
			soon(t, "its hint holds", func() bool {
				_, err := b.client.Call(t.Context(), look)
				return err == nil
			})
			b.stop()
		})
	}
}

// ends fails the test where something would not close.
func ends(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestEveryOpenTraceIsRecovered: a start recovers all calls that an earlier process left, also if they are more than the calls that may
// be under way at a time.
func TestEveryOpenTraceIsRecovered(t *testing.T) {
	b := start(t, "")
	var ids []tga.ID
	for i := range 4 {
		b.tool.respond(func(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) })
		res, err := b.client.Call(t.Context(), charge(fmt.Sprint("k", i)))
		wantCode(t, err, tga.EffectInDoubt)
		ids = append(ids, res.TraceID)
		b.tool.respond(nil)
		if _, err := b.client.Call(t.Context(), charge(fmt.Sprint("after ", i))); err != nil { // the breaker counts anew
			t.Fatal(err)
		}
	}
	b.stop()
	b.tool.respond(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		time.Sleep(50 * time.Millisecond) // so that several are under way
		_, _ = w.Write([]byte(`{}`))
	})
	b.config += "[limits]\nin_flight = 1\nrecover_width = 4\n"
	b.start()
	for _, id := range ids {
		soon(t, "it is recovered: "+id.String(), func() bool {
			s, err := b.client.State(t.Context(), id)
			return err == nil && s.Current == tga.Completed
		})
	}
}
