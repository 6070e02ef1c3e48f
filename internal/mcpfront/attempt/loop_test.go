package attempt

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// machine is the table moves written a second time by hand: a row for each stage, a column for
// each result. A dash is a move that does not exist.
const machine = `
           ended again  isOut    mayAsk isServed isDenied isStale isConflict isInDoubt needsPeople mustWait maySend
starting   over  asking -        -      -        -        -       -          -         -           -        -
asking     over  -      resuming posing serving  serving  telling telling    telling   approving   queueing sending
resuming   over  -      -        posing serving  serving  telling telling    telling   approving   queueing sending
posing     over  asking -        -      serving  serving  telling telling    telling   approving   queueing sending
serving    over  asking -        -      -        -        -       -          -         -           -        -
telling    over  -      -        -      -        -        -       -          -         -           -        -
approving  over  asking -        -      -        -        -       -          -         -           -        -
queueing   over  asking -        -      -        -        -       -          -         -           -        -
sending    over  asking -        -      -        -        -       -          -         -           -        -
`

// TestEveryMoveOfAnAttempt goes to every stage, and from there follows every result.
func TestEveryMoveOfAnAttempt(t *testing.T) {
	ways := map[stage][]result{ // the shortest way to each stage
		starting: {}, asking: {again}, resuming: {again, isOut}, posing: {again, mayAsk}, serving: {again, isServed},
		telling: {again, isStale}, approving: {again, needsPeople}, queueing: {again, mustWait}, sending: {again, maySend},
	}
	named := map[string]stage{"-": 0, "over": over}
	rows := strings.Split(strings.TrimSpace(machine), "\n")
	for i, row := range rows[1:] {
		named[strings.Fields(row)[0]] = starting + stage(i)
	}
	if len(rows)-1 != int(over-starting) || len(ways) != len(rows)-1 {
		t.Fatalf("%d rows and %d ways for %d stages", len(rows)-1, len(ways), over-starting)
	}
	for i, row := range rows[1:] {
		cells := strings.Fields(row)[1:]
		if len(cells) != int(results) {
			t.Fatalf("%s has %d cells, want %d", strings.Fields(row)[0], len(cells), results)
		}
		for came, want := range cells {
			from, next := starting+stage(i), stage(0)
			script := append(append([]result{}, ways[from]...), result(came))
			func() {
				defer func() { _ = recover() }() // a move that does not exist
				n := 0
				walk(func(at stage) result {
					if n < len(script) {
						n++
						if n == len(script) && at != from {
							t.Fatalf("the way to stage %d ends at %d", from, at)
						}
						return script[n-1]
					}
					next = at
					panic("there")
				})
				next = over
			}()
			if next != named[want] {
				t.Errorf("from stage %d result %d leads to %d, want %s", from, came, next, want)
			}
		}
		if deeds[starting+stage(i)] == nil {
			t.Errorf("nothing is done in stage %d", starting+stage(i))
		}
	}
}

// script is a log that gives scripted answers in order, and then repeats the last one.
type script struct {
	says   []runtime.Standing
	begins int
	ids    map[string]int // how often each begin id was used
}

func (s *script) Begin(_ context.Context, r runtime.BeginRequest) (runtime.Begun, error) {
	say := s.says[min(s.begins, len(s.says)-1)]
	s.begins++
	s.ids[r.BeginID]++
	return runtime.Begun{
		Standing: say, Cause: errors.New("because"), Attempt: 1, Result: runtime.Result{TraceID: r.Request.TraceID, State: map[bool]tga.State{true: tga.Denied}[say == runtime.BeginDenied], Value: []byte(`{}`)},
	}, nil
}

func (*script) Finish(context.Context, tga.ID, runtime.Permit, runtime.Finished) (runtime.Result, error) {
	return runtime.Result{}, errors.New("nothing was answered")
}

func (*script) NotSent(context.Context, tga.ID, runtime.Permit, string, time.Duration) (runtime.Result, error) {
	return runtime.Result{}, nil
}
func (*script) GiveUp(context.Context, tga.ID, runtime.Permit, string, time.Duration) error {
	return nil
}
func (*script) Delivered(context.Context, tga.ID) error { return nil }
func (*script) Decide(context.Context, tga.ID, wire.DecideRequest) (runtime.Result, error) {
	return runtime.Result{}, nil
}
func (*script) Keep(_ context.Context, r runtime.KeepRequest) (runtime.Kept, bool, error) {
	return runtime.Kept{Name: r.Name, Value: r.Value}, true, nil
}
func (*script) Kept(context.Context, string, string) iter.Seq2[runtime.Kept, error] {
	return func(func(runtime.Kept, error) bool) {}
}

// mortal is a client whose tool server ends after each message, and is then restarted.
type mortal struct {
	Client
	writes int
}

func (m *mortal) Elicits() bool { return false }
func (m *mortal) Await(context.Context) (frames.Upstream, error) {
	return &mute{gone: make(chan struct{})}, nil
}
func (m *mortal) Write(up frames.Upstream, _ runtime.Begun, _ runtime.SpanContext, late func() error) error {
	m.writes++
	close(up.(*mute).gone)
	return nil
}

// mute is the tool server of mortal.
type mute struct {
	frames.Upstream
	gone chan struct{}
}

func (m *mute) Done() <-chan struct{} { return m.gone }
func (m *mute) Why() error            { return errors.New("it died") }

// TestTheLogDecidesWhatAnAttemptDoes: only one of the log's answers leads to a send, whether or not
// the attempt has sent before. An attempt makes a bounded number of sends.
func TestTheLogDecidesWhatAnAttemptDoes(t *testing.T) {
	const served = runtime.BeginServe
	for _, c := range []struct {
		says          []runtime.Standing
		begins, sends int
		code          tga.Code // "" = it has an effect to serve
	}{
		{[]runtime.Standing{served}, 1, 0, ""},
		{[]runtime.Standing{runtime.BeginDenied}, 1, 0, tga.PolicyViolation},
		{[]runtime.Standing{runtime.BeginStale}, 1, 0, tga.IdempotencyKeyInFlight},
		{[]runtime.Standing{runtime.BeginConflict}, 1, 0, tga.IdempotencyKeyConflict},
		{[]runtime.Standing{runtime.BeginInDoubt}, 1, 0, tga.EffectInDoubt},
		{[]runtime.Standing{runtime.BeginNeedsApproval, served}, 2, 0, ""},
		{[]runtime.Standing{runtime.BeginWait, served}, 2, 0, ""},
		{[]runtime.Standing{runtime.BeginSend, served}, 2, 1, ""},
		{[]runtime.Standing{"of a newer version"}, 1, 0, tga.ValidationError},
		{[]runtime.Standing{runtime.BeginSend, runtime.BeginDenied}, 2, 1, tga.PolicyViolation},
		{[]runtime.Standing{runtime.BeginSend, runtime.BeginInDoubt}, 2, 1, tga.EffectInDoubt},
		{[]runtime.Standing{runtime.BeginSend, runtime.BeginWait, runtime.BeginSend, served}, 4, 2, ""},
		{[]runtime.Standing{runtime.BeginSend, "of a newer version"}, 2, 1, tga.EffectInDoubt}, // the send has no answer
		{[]runtime.Standing{runtime.BeginSend}, MaxSends, MaxSends, tga.EffectInDoubt},
	} {
		t.Run(fmt.Sprint(c.says), func(t *testing.T) {
			log := &script{says: c.says, ids: map[string]int{}}
			s, err := NewDesk(Options{Server: "fake", Log: log, Logger: slog.New(slog.DiscardHandler), State: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			p, err := toolcall.Parse([]byte(`{"name":"charge","arguments":{}}`))
			if err != nil {
				t.Fatal(err)
			}
			by := &mortal{}
			to := NewRecipient(t.Context())
			a, err := s.newAttempt(&Call{By: by, To: to, Params: p, Args: []byte("{}"), Permits: NewPermits(s, nil), Arrivals: make(chan *frames.Frame, 1), GaveUp: wait.NewLatch()}, "key")
			if err != nil {
				t.Fatal(err)
			}
			a.work(t.Context())
			if log.begins != c.begins || by.writes != c.sends || a.Out.Code != c.code {
				t.Errorf("%d begins, %d sends, code %q; want %d, %d, %q", log.begins, by.writes, a.Out.Code, c.begins, c.sends, c.code)
			}
			// A permit allows one send: the next begin must have another begin id.
			if len(log.ids) < c.sends {
				t.Errorf("%d sends under %d begin ids", c.sends, len(log.ids))
			}
		})
	}
}

// full is a client whose tool server takes no byte. Nobody waits for the call any more while it is written.
type full struct {
	mortal
	a    *Attempt
	late error
}

func (f *full) Write(_ frames.Upstream, _ runtime.Begun, _ runtime.SpanContext, late func() error) error {
	f.a.Exit()
	f.late = late()
	return errors.Join(runtime.ErrNotSent, f.late)
}

// TestCallThatNobodyWaitsForIsNotBegun: a call whose client leaves before its first byte is written is not sent.
func TestCallThatNobodyWaitsForIsNotBegun(t *testing.T) {
	s, err := NewDesk(Options{Server: "fake", Log: &script{says: []runtime.Standing{runtime.BeginSend}, ids: map[string]int{}}, Logger: slog.New(slog.DiscardHandler), State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := toolcall.Parse([]byte(`{"name":"charge","arguments":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	by := &full{}
	a, err := s.newAttempt(&Call{By: by, To: NewRecipient(t.Context()), Params: p, Args: []byte("{}"), Permits: NewPermits(s, nil), Arrivals: make(chan *frames.Frame, 1), GaveUp: wait.NewLatch()}, "key")
	if err != nil {
		t.Fatal(err)
	}
	by.a = a
	a.work(t.Context())
	if by.late == nil || a.Out.Code != tga.ToolError {
		t.Errorf("late: %v, outcome %+v", by.late, a.Out)
	}
}
