package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	moderncsqlite "modernc.org/sqlite"

	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/search/sqlite"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// crowded is SQLite on a disk that may be full. Then no position can be written.
type crowded struct{ moderncsqlite.Driver }

var crowdedFull atomic.Bool
var crowdedTries atomic.Int32

func init() { sql.Register("crowded", &crowded{}) }

func (d *crowded) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	return crowdedConn{c}, err
}

type crowdedConn struct{ driver.Conn }

type fullError struct{}

func (fullError) Error() string { return "database or disk is full (13)" }
func (fullError) Code() int     { return 13 }

func (c crowdedConn) Prepare(query string) (driver.Stmt, error) {
	if strings.HasPrefix(query, "UPDATE meta SET position") && crowdedFull.Load() {
		crowdedTries.Add(1)
		return nil, fullError{}
	}
	return c.Conn.Prepare(query)
}

// bare is a store with appends and no traces.
type bare struct{ at atomic.Uint64 }

func (b *bare) Cursor() uint64 { return b.at.Load() }
func (b *bare) Load(context.Context, tga.ID) (*chain.Trace, error) {
	return nil, tga.Errorf(tga.NotFound, "it has none")
}
func (b *bare) Traces(context.Context, tga.ID) iter.Seq2[chain.Listed, error] {
	return func(func(chain.Listed, error) bool) {}
}
func (b *bare) Follow(ctx context.Context, after uint64) iter.Seq2[chain.Leaf, error] {
	return func(yield func(chain.Leaf, error) bool) {
		for ; ; after++ {
			for ; after >= b.at.Load(); time.Sleep(time.Second) {
				if ctx.Err() != nil {
					yield(chain.Leaf{}, ctx.Err())
					return
				}
			}
			if !yield(chain.Leaf{Index: after + 1}, nil) {
				return
			}
		}
	}
}

// TestFullDiskIsTriedInPeace: an index for which there is no room is tried now and then, is not thrown away
// for it, and goes on where there is room again.
func TestFullDiskIsTriedInPeace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowdedFull.Store(true)
		crowdedTries.Store(0)
		var said bytes.Buffer
		store := &bare{}
		store.at.Store(5)
		x := search.New(t.Context(), search.Options{Table: sqlite.In(t.TempDir(), "crowded"), Store: store, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); x.Run(ctx) }()
		defer func() {
			cancel()
			<-over
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, when := range []string{"while it is made", "behind the log"} {
			crowdedTries.Store(0)
			time.Sleep(time.Hour)
			if n := crowdedTries.Load(); n < 40 || n > 80 {
				t.Errorf("%s: %d tries in an hour", when, n)
			}
			crowdedFull.Store(false)
			time.Sleep(2 * time.Minute)
			if n := x.Behind(); n != 0 {
				t.Errorf("%s: %d appends behind once there is room", when, n)
			}
			crowdedFull.Store(true)
			store.at.Add(1)
			time.Sleep(time.Minute)
			if _, err := x.Find(ctx, search.Query{Limit: 1}); err != nil {
				t.Errorf("%s: a list of what is there: %v", when, err)
			}
		}
		if s := said.String(); strings.Contains(s, "made anew") {
			t.Error(s)
		}
	})
}
