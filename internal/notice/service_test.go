package notice

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/duty"
	"github.com/tgad/tgad/schemas/tga"
)

// TestReceiverThatHangsHoldsUpNobody: a receiver that hangs delays neither the other receivers nor the end
// of the service. It is shown as hanging.
func TestReceiverThatHangsHoldsUpNobody(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := newWorld(t)
	w.all = []Matter{doubt(1)}
	conf := func(id string) config.Notify {
		d := func(d time.Duration) config.Duration { return config.Duration{D: d} }
		return config.Notify{ID: id, Type: "command", On: []string{config.OnDoubt}, After: d(1), Pause: d(1), Timeout: d(time.Hour), Named: 1}
	}
	var hangs, gave atomic.Int32
	hanging := sinkFunc(func(ctx context.Context, _ *Notice) error {
		hangs.Add(1)
		<-ctx.Done()
		return ctx.Err()
	})
	given := make(chan struct{}, 16)
	giving := sinkFunc(func(context.Context, *Notice) error {
		gave.Add(1)
		given <- struct{}{}
		return nil
	})
	dir := t.TempDir()
	s := New(w, []Receiver{{conf("hangs"), hanging, duty.File(filepath.Join(dir, "hangs"))}, {conf("takes"), giving, duty.File(filepath.Join(dir, "takes"))}}, time.Now, slog.New(slog.DiscardHandler))
	s.every = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-given
	for end := time.Now().Add(time.Minute); hangs.Load() == 0 || s.Stats()[0].Late == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", s.Stats())
		}
	}
	// The sink of the test stands beside the one that hangs.
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if errs := s.Test(short, "uid:7"); errs[0] == nil || errs[1] != nil {
		t.Errorf("tests: %v", errs)
	}
	if got := s.Stats(); got[0].ID != "hangs" || got[0].Taken != 0 || got[1].Taken != 1 || got[1].Late != 0 {
		t.Errorf("%+v", got)
	}
	// Doubts that come while one receiver hangs are reported to the other.
	w.mu.Lock()
	w.all = append(w.all, doubt(2))
	w.mu.Unlock()
	for gave.Load() < 3 {
		select {
		case <-given:
		case <-time.After(time.Minute):
			t.Fatal("the other is told nothing more")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if gave.Load() != 3 {
		t.Errorf("the other was given %d notices, the test included", gave.Load())
	}
}

// TestTimeOfANoticeIsBounded: a receiver that hangs is given up after its time, and the error says so.
func TestTimeOfANoticeIsBounded(t *testing.T) {
	w := newWorld(t)
	w.r.conf.Timeout.D = time.Millisecond
	w.r.sink = sinkFunc(func(ctx context.Context, _ *Notice) error {
		<-ctx.Done()
		return errors.New("the connection was closed")
	})
	if err := w.r.put(t.Context(), &Notice{}); err == nil || err.Error() != "it was not taken within 1ms" {
		t.Error(err)
	}
}

// slow is a world in which a look takes long, as with thousands of calls in doubt.
type slow struct {
	*world
	takes time.Duration
	looks atomic.Int32
}

func (w *slow) Waiting(ctx context.Context) ([]Matter, error) {
	w.looks.Add(1)
	time.Sleep(w.takes)
	return w.world.Waiting(ctx)
}

// TestSlowLooksDelayNoNotice: the next look is minutes away. Still a matter is reported once it has lasted
// long enough, a refused notice is tried again after its pause, and thousands of ends are reported one
// notice after the other. If nothing is to be reported, the receiver rests.
func TestSlowLooksDelayNoNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slow{world: newWorld(t), takes: 4 * time.Second}
		const many = 3 * mostFates
		for i := range many {
			m := doubt(1)
			m.TraceID = tga.ID{3, byte(i >> 8), byte(i)}
			w.all, w.fates[m.TraceID] = append(w.all, m), Settled
		}
		d := func(d time.Duration) config.Duration { return config.Duration{D: d} }
		conf := config.Notify{ID: "x", Type: "command", On: []string{config.OnDoubt}, After: d(30 * time.Second), Pause: d(time.Second), Timeout: d(time.Minute), Named: 1, Resolved: true}
		given, refuse := make(chan *Notice), true
		sink := sinkFunc(func(_ context.Context, n *Notice) error {
			if refuse {
				refuse = false
				return errors.New("not now")
			}
			given <- n
			return nil
		})
		s := New(w, []Receiver{{conf, sink, duty.File(filepath.Join(t.TempDir(), "x"))}}, time.Now, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		const soon = (soonShare + 2) * 4 * time.Second // one rest, and one or two looks
		began := time.Now()
		if n := <-given; n.New[config.OnDoubt] != many || time.Since(began) > conf.After.D+2*soon {
			t.Errorf("%v are told after %v", n.New, time.Since(began))
		}
		w.mu.Lock()
		w.all = nil
		w.mu.Unlock()
		began = time.Now()
		for settled := 0; settled < many; {
			settled += (<-given).Resolved[config.OnDoubt]
		}
		if took := time.Since(began); took > lookShare*w.takes+4*soon {
			t.Errorf("the ends are told after %v", took)
		}
		looks := w.looks.Load()
		time.Sleep(10 * lookShare * w.takes)
		if more := w.looks.Load() - looks; more < 8 || more > 11 {
			t.Errorf("%d looks where nothing is to be told", more)
		}
		for looks := w.looks.Load(); w.looks.Load() == looks; { // then the next look is far away
			time.Sleep(time.Second)
		}
		time.Sleep(2 * w.takes)
		w.mu.Lock()
		w.all = []Matter{doubt(1)}
		w.mu.Unlock()
		s.Hear()
		began = time.Now()
		if n := <-given; n.New[config.OnDoubt] != 1 || time.Since(began) > conf.After.D+2*soon {
			t.Errorf("%v is told %v after it came", n.New, time.Since(began))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
