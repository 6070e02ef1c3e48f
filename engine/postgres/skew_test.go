package postgres_test

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestClockThatIsOffBeginsNothing: a process whose clock is further from the database server's than the limit gets no lease, and
// licenses no second send: it would count the window of a tool server from another time than the other processes do. What is
// under way is still recorded, and when the clock is right again, all is as before.
func TestClockThatIsOffBeginsNothing(t *testing.T) {
	dsn, shard := database(t)
	var off atomic.Int64
	s := open(t, dsn, postgres.Options{Shard: shard, Clock: func() time.Time { return time.Now().Add(time.Duration(off.Load())) }, Logger: slog.New(slog.DiscardHandler)})
	set := func(by time.Duration) { off.Store(int64(by)) }
	for _, c := range []struct {
		by   time.Duration
		says string // "" = it is as good as right
	}{
		{29 * time.Second, ""}, {31 * time.Second, "ahead of"}, {365 * 24 * time.Hour, "ahead of"},
		{-29 * time.Second, ""}, {-31 * time.Second, "behind"}, {-365 * 24 * time.Hour, "behind"},
	} {
		set(0)
		b, lease := begun(t, s)
		id := storetest.NewID()
		set(c.by)
		check := func(what string, err error) {
			t.Helper()
			if c.says == "" && err != nil || c.says != "" && (tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s with a clock that is %v off: %v", what, c.by, err)
			}
		}
		_, err := s.Acquire(bg, id)
		check("acquire", err)
		_, err = s.Overtake(bg, b.TraceID, false)
		check("overtake", err)
		check("ready", s.Fleet().Ready(bg))
		if none := s.NewestTS() == tga.LastMillis; none != (c.says != "") {
			t.Errorf("with a clock that is %v off every second send is refused: %v", c.by, none)
		}
		if c.says != "" {
			if _, err := s.Append(bg, lease, b.End(tga.StatusSuccess)); err != nil {
				t.Errorf("what is under way: %v", err)
			}
		}
		set(0)
		if _, err := s.Acquire(bg, storetest.NewID()); err != nil {
			t.Errorf("the clock is right again: %v", err)
		}
	}
	// A clock that was wrong from the start.
	wrong := open(t, dsn, postgres.Options{Shard: shard, Clock: func() time.Time { return time.Now().Add(-time.Minute) }, Logger: slog.New(slog.DiscardHandler)})
	if _, err := wrong.Acquire(bg, storetest.NewID()); tga.CodeOf(err) != tga.StoreUnavailable || wrong.NewestTS() != tga.LastMillis {
		t.Errorf("a process that opens with a clock that is wrong: %v, %v", err, wrong.NewestTS())
	}
	short := open(t, dsn, postgres.Options{Shard: shard, MaxSkew: time.Second, Clock: func() time.Time { return time.Now().Add(2 * time.Second) }, Logger: slog.New(slog.DiscardHandler)})
	if _, err := short.Acquire(bg, storetest.NewID()); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a limit of one second: %v", err)
	}
}
