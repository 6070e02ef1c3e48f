package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func complete(t *testing.T, p Patience) Patience {
	t.Helper()
	p, err := p.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// script is a world that gives one finding or error after the other, and then repeats the last.
type script struct {
	says  []any
	asked int
}

func (s *script) look(context.Context, tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
	s.asked++
	say := s.says[min(s.asked, len(s.says))-1]
	if err, ok := say.(error); ok {
		return runtime.Exists, runtime.Evidence{Source: "s"}, err // a finding together with an error does not count
	}
	return say.(runtime.Finding), runtime.Evidence{Source: "s"}, nil
}

var errBusy = Transient(errors.New("busy"))

func TestSettle(t *testing.T) {
	lasting := errors.New("no such column")
	const e, g, c, x = runtime.Exists, runtime.Gone, runtime.Changed, runtime.CannotTell
	settle := Patience{Settle: time.Second, SettleEvery: 300 * time.Millisecond} // 1 + 4 questions
	for _, test := range []struct {
		name  string
		p     Patience
		says  []any
		want  runtime.Finding
		code  tga.Code
		asked int
		took  time.Duration
	}{
		{"exists is believed at once", settle, []any{e}, e, "", 1, 0},
		{"cannot tell is not asked again", settle, []any{x, e}, x, "", 1, 0},
		{"without settling gone is believed at once", Patience{}, []any{g, e}, g, "", 1, 0},
		{"gone is believed at the end", settle, []any{g}, g, "", 5, 1200 * time.Millisecond},
		{"changed is believed at the end", settle, []any{c}, c, "", 5, 1200 * time.Millisecond},
		{"visible with the last question", settle, []any{g, g, c, g, e}, e, "", 5, 1200 * time.Millisecond},
		{"visible one question too late", settle, []any{g, g, g, g, g, e}, g, "", 5, 1200 * time.Millisecond},
		{"an error ends it", settle, []any{g, lasting}, x, tga.ToolError, 2, 300 * time.Millisecond},
		{"a busy world is asked again", Patience{Tries: 3}, []any{errBusy, errBusy, e}, e, "", 3, -1},
		{"but not for ever", Patience{Tries: 3}, []any{errBusy, errBusy, errBusy, e}, x, tga.ToolError, 3, -1},
		{"each question has its tries", Patience{Tries: 2, Settle: 1, SettleEvery: 1}, []any{errBusy, g, errBusy, e}, e, "", 4, -1},
		{"a lasting error is not asked again", Patience{}, []any{lasting, e}, x, tga.ToolError, 1, 0},
		{"an error of ours keeps its code", Patience{}, []any{tga.Errorf(tga.ValidationError, "bad id").At("/x")}, x, tga.ValidationError, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world, start := &script{says: test.says}, time.Now()
				v := NewVerifier(world.look, complete(t, test.p))
				f, evidence, err := v.Verify(t.Context(), tga.StateChange{ResourceType: "r", ResourceID: "1", Operation: "create"})
				if f != test.want || tga.CodeOf(err) != test.code || world.asked != test.asked {
					t.Errorf("got %v, %v after %d, want %v, %s after %d", f, err, world.asked, test.want, test.code, test.asked)
				}
				if took := time.Since(start); test.took >= 0 && took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if !strings.HasPrefix(evidence.Source, "s") || test.asked == 5 && !strings.Contains(evidence.Source, "5 times, 300ms apart") {
					t.Errorf("evidence %q", evidence.Source)
				}
			})
		})
	}
}

func TestSettleOfAProbe(t *testing.T) {
	const ran, not, unknown = ledger.ProbeRan, ledger.ProbeNotRan, ledger.ProbeUnknown
	p := Patience{Settle: time.Second, SettleEvery: 500 * time.Millisecond} // 1 + 2 questions
	for _, test := range []struct {
		says   []any
		want   ledger.ProbeAnswer
		fenced bool
		code   tga.Code
		asked  int
	}{
		{[]any{ran}, ran, false, "", 1},
		{[]any{not, ran}, ran, false, "", 2},
		{[]any{not, not, ran}, ran, false, "", 3},
		{[]any{not, not, not, ran}, not, true, "", 3},
		{[]any{not, unknown}, unknown, false, "", 2},
		{[]any{not, errors.New("down")}, unknown, false, tga.ToolError, 2},
		{[]any{errBusy, not}, not, true, "", 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			b := NewProber(func(context.Context, runtime.Call) (runtime.Probed, error) {
				asked++
				switch say := test.says[min(asked, len(test.says))-1].(type) {
				case error:
					return runtime.Probed{Answer: not, Fenced: true}, say // an answer together with an error does not count
				case ledger.ProbeAnswer:
					return runtime.Probed{Answer: say, Fenced: say == not}, nil
				}
				panic("script")
			}, complete(t, p))
			got, err := b.Probe(t.Context(), runtime.Call{})
			if got.Answer != test.want || got.Fenced != test.fenced || tga.CodeOf(err) != test.code || asked != test.asked {
				t.Errorf("%v: got %v, fenced %v, %v after %d", test.says, got.Answer, got.Fenced, err, asked)
			}
		})
	}
}

func TestDeletionStandsWhenGone(t *testing.T) {
	for f, want := range map[runtime.Finding]runtime.Finding{
		runtime.Exists: runtime.Changed, runtime.Changed: runtime.Changed,
		runtime.Gone: runtime.Exists, runtime.CannotTell: runtime.CannotTell,
	} {
		world := &script{says: []any{f}}
		got, _, err := NewVerifier(world.look, complete(t, Patience{})).Verify(t.Context(), tga.StateChange{Operation: OperationDelete})
		if got != want || err != nil {
			t.Errorf("%v: got %v, %v, want %v", f, got, err, want)
		}
	}
	// An effect that shows now may disappear.
	synctest.Test(t, func(t *testing.T) {
		world := &script{says: []any{runtime.Exists, runtime.Gone}}
		got, _, err := NewVerifier(world.look, complete(t, Patience{Settle: time.Second})).Verify(t.Context(), tga.StateChange{Operation: OperationDelete})
		if got != runtime.Exists || err != nil || world.asked != 2 {
			t.Errorf("got %v, %v after %d", got, err, world.asked)
		}
	})
}

func TestContextEndsTheAsking(t *testing.T) {
	change := tga.StateChange{ResourceType: "r", ResourceID: "1"}
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		world := &script{says: []any{runtime.Exists}}
		f, _, err := NewVerifier(world.look, complete(t, Patience{})).Verify(ctx, change)
		if f != runtime.CannotTell || !errors.Is(err, context.Canceled) || world.asked != 0 {
			t.Errorf("got %v, %v after %d", f, err, world.asked)
		}
	})
	for name, says := range map[string][]any{"while settling": {runtime.Gone}, "between tries": {errBusy}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
				defer cancel()
				world := &script{says: says}
				v := NewVerifier(world.look, complete(t, Patience{
					Tries: 20, Delay: 10 * time.Minute, MaxDelay: 10 * time.Minute, Settle: MaxSettle, SettleEvery: time.Hour}))
				f, _, err := v.Verify(ctx, change)
				if f != runtime.CannotTell || err == nil || world.asked < 2 {
					t.Errorf("got %v, %v after %d", f, err, world.asked)
				}
			})
		})
	}
	t.Run("one try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := NewVerifier(func(ctx context.Context, _ tga.StateChange) (runtime.Finding, runtime.Evidence, error) {
				<-ctx.Done()
				return runtime.CannotTell, runtime.Evidence{}, Transient(context.Cause(ctx))
			}, complete(t, Patience{Timeout: time.Minute, Tries: 2, Delay: time.Second, MaxDelay: time.Second}))
			start := time.Now()
			f, _, err := v.Verify(t.Context(), change)
			if took := time.Since(start); f != runtime.CannotTell || !errors.Is(err, tga.ToolTimeout) || took < 2*time.Minute || took > 2*time.Minute+2*time.Second {
				t.Errorf("got %v, %v in %v", f, err, took)
			}
		})
	})
}

func TestPatienceIsChecked(t *testing.T) {
	for _, test := range []struct {
		p   Patience
		key string
	}{
		{Patience{}, ""},
		{Patience{Timeout: -1}, "timeout"},
		{Patience{Timeout: MaxTimeout}, ""},
		{Patience{Timeout: MaxTimeout + 1}, "timeout"},
		{Patience{Tries: MaxTries}, ""},
		{Patience{Tries: MaxTries + 1}, "tries"},
		{Patience{Tries: -1}, "tries"},
		{Patience{Delay: -1}, "delay"},
		{Patience{Delay: time.Minute}, ""},
		{Patience{Delay: time.Minute, MaxDelay: time.Second}, "max_delay"},
		{Patience{Settle: -1}, "settle"},
		{Patience{Settle: MaxSettle}, ""},
		{Patience{Settle: MaxSettle + 1}, "settle"},
		{Patience{Settle: MaxAsks * time.Second, SettleEvery: time.Second}, ""},
		{Patience{Settle: MaxAsks*time.Second + 1, SettleEvery: time.Second}, "settle_every"},
		{Patience{SettleEvery: -1}, "settle_every"},
		{Patience{Settle: 1}, ""},
	} {
		_, err := test.p.Complete()
		if (test.key == "") != (err == nil) || err != nil && (!errors.Is(err, tga.ValidationError) || !strings.Contains(err.Error(), " "+test.key+": ")) {
			t.Errorf("%+v: got %v, want %q", test.p, err, test.key)
		}
	}
	p := complete(t, Patience{})
	if got := fmt.Sprint(p); got != "{10s 3 200ms 5s 0s 1ns}" {
		t.Errorf("defaults %s", got)
	}
}
