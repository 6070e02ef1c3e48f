package main

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/runtime"
)

// configure adds a part to the daemon's configuration.
func (p *process) configure(text string) {
	p.t.Helper()
	f, err := os.OpenFile(filepath.Join(p.dir, "tgad.toml"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// traces returns the number of traces in a store, which must verify.
func (p *process) traces(dir string) int {
	p.t.Helper()
	db, err := engine.OpenReadOnly(dir, engine.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rep, err := db.Check(context.Background())
	if err != nil || len(rep.Problems) > 0 {
		p.t.Fatalf("%s: %v %v", dir, rep.Problems, err)
	}
	return rep.Traces
}

// TestKilledDaemonLeavesABackup kills the daemon at random moments while it keeps a backup under concurrent
// callers. Each time there is no backup yet, or one that can be restored and has at least what the one
// before had. After a stop the backup has everything. SEED as in TestKilledDaemonNeverChargesTwice.
func TestKilledDaemonLeavesABackup(t *testing.T) {
	few := 3
	if serial.Whole() {
		few = 20
	}
	kills, seed := fromEnv(t, "TGAD_KILLS", few), uint64(fromEnv(t, "TGAD_SEED", int(time.Now().UnixNano()%1e9)))
	t.Logf("TGAD_KILLS=%d TGAD_SEED=%d", kills, seed)
	p := newProcess(t)
	copied, restored := filepath.Join(p.dir, "copy"), filepath.Join(p.dir, "restored")
	p.configure("[backup]\nto = \"copy\"\nevery = \"100ms\"\nshare = 100\n")
	p.start()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	all := &told{acknowledged: map[journal.Call][]byte{}, asked: map[journal.Call]runtime.Request{}}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() { all.keepCalling(ctx, t, p, rand.New(rand.NewPCG(seed, uint64(n+1)))) })
	}
	moments := rand.New(rand.NewPCG(seed, 0))
	has, backups := 0, 0
	look := func() {
		t.Helper()
		if _, err := os.Stat(copied); errors.Is(err, fs.ErrNotExist) {
			if has > 0 {
				t.Fatal("the backup is gone")
			}
			return
		}
		if err := errors.Join(os.RemoveAll(restored), engine.Restore(t.Context(), copied, restored, engine.Options{})); err != nil {
			t.Fatal(err)
		}
		n := p.traces(restored)
		if n < has {
			t.Errorf("the backup has %d traces, it had %d", n, has)
		}
		has, backups = n, backups+1
	}
	for range kills {
		p.awaitCall()
		time.Sleep(time.Duration(moments.Int64N(int64(250 * time.Millisecond))))
		p.end(syscall.SIGKILL)
		look()
		p.start()
	}
	stop()
	wg.Wait()
	p.end(syscall.SIGTERM)
	look()
	if want := p.traces(p.data); has != want || backups == 0 {
		t.Errorf("after a stop the backup has %d traces, the store %d; %d backups were restored", has, want, backups)
	}
	if raw, err := os.ReadFile(filepath.Join(p.dir, "daemon.log")); err != nil || strings.Contains(string(raw), "the backup") {
		t.Errorf("%v, the log says: %s", err, raw)
	}
}
