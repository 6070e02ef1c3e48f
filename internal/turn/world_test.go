package turn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// outside is what a crash does not touch: the servers of a model and of a tool. They count the
// requests that reach them.
type outside struct {
	mu       sync.Mutex
	requests map[string]int // requests to the model, by key
	sends    map[string]int // of tools, by key
	effects  map[string]int // effects of tools, by key: a second send with the same key adds none
}

func newOutside() *outside {
	return &outside{requests: map[string]int{}, sends: map[string]int{}, effects: map[string]int{}}
}

func (o *outside) clone() *outside {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &outside{requests: maps.Clone(o.requests), sends: maps.Clone(o.sends), effects: maps.Clone(o.effects)}
}

// world is a runner on a real store, and the outside that it reaches.
type world struct {
	t          *testing.T
	disk       vfs.FS
	db         *engine.DB
	out        *outside
	hook       func(where string)                         // called at each point where a crash could happen
	wrap       func(runtime.Store) runtime.Store          // around the store
	say        func(q turn.Question) (turn.Answer, error) // the model
	tools      map[string]func(ctx context.Context, args string) (string, error)
	prepare    func(*world)                                  // runs before the message during which the test crashes
	slow       func(ctx context.Context) error               // replaces tools without a function
	fails      map[string]func(n int) (runtime.Reply, error) // replaces the tool; n counts its sends
	agents     []*turn.Agent
	ring       engine.Keyring // nil: the store seals nothing
	defs       []turn.Tool
	options    func(*turn.Options)
	elsewhere  runtime.Dispatcher // for tools without a function here
	licence    ledger.LicenceKind
	supervisor runtime.Supervisor
	told       []turn.Progress
	slept      []time.Duration
	ahead      time.Duration // how far the clock is ahead: the time that was slept
	r          *turn.Runner
	mu         sync.Mutex
}

// newWorld makes a world whose model follows the user's message: "call NAME ARGS", one or more
// such lines, or "done TEXT". When the model gets the results of tools, it repeats them.
func newWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	w := &world{
		t: t, disk: crashmem.New(), out: newOutside(), hook: func(string) {}, say: obedient, licence: ledger.DedupeArgs, supervisor: runtime.AllowAll,
		wrap: func(s runtime.Store) runtime.Store { return s }, options: func(*turn.Options) {},
		tools: map[string]func(context.Context, string) (string, error){}, fails: map[string]func(int) (runtime.Reply, error){},
		agents: []*turn.Agent{{Name: "helper", Role: "You help.", Model: turn.ModelSpec{Provider: "local", Model: "m1"}}},
	}
	w.tool("echo", func(_ context.Context, args string) (string, error) { return args, nil })
	w.tool("count", count)
	for _, f := range change {
		f(w)
	}
	w.start()
	t.Cleanup(w.stop)
	return w
}

func (w *world) tool(name string, f func(ctx context.Context, args string) (string, error)) {
	w.tools[name] = f
	w.defs = append(w.defs, turn.Tool{
		Name: name, Description: name, InputSchema: json.RawMessage(`{"type":"object"}`), Server: "local", Remote: name,
		Transport: turn.OverFunction, Source: turn.ToolSource{Type: turn.FromManifest},
	})
}

// count adds one to a number in the state and to a list.
func count(ctx context.Context, args string) (string, error) {
	v, ok := turn.StateFrom(ctx)
	if !ok {
		return "", errors.New("no state")
	}
	raw, err := v.Get("n")
	if err != nil {
		return "", err
	}
	n := 0
	if raw != nil {
		if err := json.Unmarshal(raw, &n); err != nil {
			return "", err
		}
	}
	n++
	if err := v.Set("n", json.RawMessage(fmt.Sprint(n)), 0); err != nil {
		return "", err
	}
	if err := v.Append("log", json.RawMessage(args)); err != nil {
		return "", err
	}
	return fmt.Sprintf(`{"n":%d}`, n), nil
}

func (w *world) start() {
	w.t.Helper()
	db, err := engine.Open("store", engine.Options{FS: w.disk, Keyring: w.ring, MemTableBytes: 1 << 20, CacheBytes: 1 << 20, FirstSegmentBytes: 64 << 10})
	if err != nil {
		w.t.Fatal(err)
	}
	w.db = db
	o := turn.Options{
		Agents: w.agents, Models: map[string]turn.Model{"local": w, "other": w}, Resolver: w,
		Runtime: runtime.Options{Policy: func(string, string) runtime.Policy {
			return runtime.Policy{Licence: ledger.Licence{Kind: w.licence}, LicenceSet: true, Resends: -1}
		}, Clock: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Now().Add(w.ahead)
		}},
		Observe: func(p turn.Progress) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, p)
		},
		Sleep: func(ctx context.Context, d time.Duration) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.slept, w.ahead = append(w.slept, d), w.ahead+d
			return ctx.Err()
		},
	}
	w.options(&o)
	w.r, err = turn.New(w.wrap(db), runtime.DispatcherFunc(w.dispatch), w.supervisor, o)
	if err != nil {
		w.t.Fatal(err)
	}
}

// stop checks the whole store: it must be consistent after each test.
func (w *world) stop() {
	w.t.Helper()
	if w.db == nil {
		return
	}
	report, err := w.db.Check(context.Background())
	if err != nil {
		w.t.Errorf("check: %v", err)
	}
	for _, p := range report.Problems {
		w.t.Errorf("check: %v", p)
	}
	if err := w.db.Close(); err != nil {
		w.t.Errorf("close: %v", err)
	}
	w.db = nil
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

func (w *world) run(text string) turn.Result {
	w.t.Helper()
	res, err := w.r.Run(context.Background(), turn.Request{Agent: "helper", SessionID: "s", Message: []byte(text)})
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// Generate is the model's server.
func (w *world) Generate(_ context.Context, q turn.Question) (turn.Answer, error) {
	w.hook("model asked")
	w.out.mu.Lock()
	w.out.requests[q.Key]++
	w.out.mu.Unlock()
	a, err := w.say(q)
	w.hook("model answered")
	return a, err
}

func (w *world) dispatch(ctx context.Context, c runtime.Call) (runtime.Reply, error) {
	w.hook("tool called")
	w.out.mu.Lock()
	w.out.sends[c.Key]++
	w.out.effects[c.Key] = 1
	n := w.out.sends[c.Key]
	w.out.mu.Unlock()
	if f := w.fails[c.Tool]; f != nil {
		if reply, err := f(n); err != nil || reply.Status != "" {
			return reply, err
		}
	}
	if w.tools[c.Tool] == nil && w.elsewhere != nil {
		return w.elsewhere.Dispatch(ctx, c)
	}
	if w.tools[c.Tool] == nil {
		return runtime.Reply{}, w.slow(ctx)
	}
	result, err := w.tools[c.Tool](ctx, string(c.Args))
	w.hook("tool done")
	if err != nil {
		return runtime.Reply{Status: tga.StatusFailure, ErrorCode: "TOOL_ERROR", ErrorMessage: err.Error()}, nil
	}
	return runtime.Reply{Status: tga.StatusSuccess, Result: []byte(result)}, nil
}

// Resolve finds the world's tools.
func (w *world) Resolve(context.Context, *turn.Agent) ([]turn.Tool, []turn.Warning, error) {
	return w.defs, nil, nil
}

// Validate requires an object without the member "bad".
func (w *world) Validate(tool *turn.Tool, args []byte) error {
	if strings.Contains(string(args), `"bad"`) {
		return tga.Errorf(tga.SchemaViolation, "bad is not allowed").At("/bad")
	}
	return nil
}

// obedient does what the last user message says.
func obedient(q turn.Question) (turn.Answer, error) {
	a := turn.Answer{ID: "r1", Model: q.Model, Finish: turn.FinishStop, Usage: turn.Usage{Input: 10, Output: 5, Total: 15}}
	last := q.Messages[len(q.Messages)-1]
	if last.Role == message.Tool {
		var said []string
		for _, m := range q.Messages {
			if m.Role == message.Tool {
				said = append(said, m.Plain())
			}
		}
		a.Said = message.TextMessage(message.Assistant, "tools said "+strings.Join(said, ", "), message.FromModel, 0)
		return a, nil
	}
	text := last.Plain()
	a.Said = message.TextMessage(message.Assistant, "", message.FromModel, 0)
	for n, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "call "); ok {
			name, args, _ := strings.Cut(rest, " ")
			a.Said.ToolCalls = append(a.Said.ToolCalls, message.ToolCall{ID: fmt.Sprint("c", n), Name: name, Arguments: args})
			a.Finish = turn.FinishToolUse
		} else {
			a.Said.Content[0].Text += strings.TrimPrefix(line, "done ")
		}
	}
	return a, nil
}

// damaged is a store in which one record of a turn was changed or is missing.
type damaged struct {
	runtime.Store
	id     tga.ID // zero = of every turn
	number uint64
	damage func([]byte) []byte
}

func (s *damaged) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return func(yield func(chain.Attachment, error) bool) {
		for a, err := range s.Store.Attachments(ctx, kind, prefix) {
			if err == nil && binary.BigEndian.Uint64(a.Key[16:]) == s.number && (s.id.IsZero() || bytes.HasPrefix(a.Key, s.id[:])) {
				if s.damage == nil {
					continue
				}
				a.Value = s.damage(bytes.Clone(a.Value))
			}
			if !yield(a, err) {
				return
			}
		}
	}
}

// read returns committed values of the session's state.
func (w *world) read(keys ...string) map[string]json.RawMessage {
	w.t.Helper()
	space := state.Open(w.db, state.Options{})
	tx, err := space.Begin(context.Background(), state.Scope{Mode: state.Session, ID: "helper\x00s"}, state.ReadCommitted)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tx.Discard()
	got, err := tx.GetMany(keys)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}
