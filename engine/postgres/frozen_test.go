package postgres_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// halfWay is a proxy to a server that cuts the COMMIT off the first append, like a client that hangs in the
// middle of sending it, or whose machine is gone.
type halfWay struct {
	dir  string
	once sync.Once
	half chan struct{} // closed when the server has the half
}

func newHalfWay(t testing.TB, p *pgserver.Server) *halfWay {
	t.Helper()
	w := &halfWay{half: make(chan struct{})}
	w.dir = wayTo(t, p, w.carry)
	return w
}

func (w *halfWay) carry(client, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			to.Close()
			return
		}
		if n > 1000 {
			w.once.Do(func() {
				n = beforeCommit(buffer[:n])
				close(w.half)
			})
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// beforeCommit is where the last statement of some messages of the protocol begins.
func beforeCommit(b []byte) (at int) {
	for i := 0; i+5 <= len(b); i += 1 + int(binary.BigEndian.Uint32(b[i+1:])) {
		if b[i] == 'B' { // bind
			at = i
		}
	}
	return at
}

// TestStoppedClientKeepsNobodyWaiting: a replica is stopped while the database has half of its append, with the
// locks of its trace and its key. Another replica that gets a call with the key continues soon, and sends the call
// once. The stopped replica learns of that.
func TestStoppedClientKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	w := newHalfWay(t, p)
	const lease = time.Second
	tools := &outside{sends: map[string]int{}}
	c := start(t, task{DSN: fmt.Sprintf("host=%s user=owner dbname=postgres", w.dir), Tools: tools.serve(t), Key: "k", Lease: lease})
	select {
	case <-w.half:
	case <-time.After(time.Minute):
		t.Fatal("no append came")
	}
	c.signal(t, syscall.SIGSTOP)
	until(t, "the append has its locks", func() bool {
		return query(t, p, "SELECT count(*)::text FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND wait_event = 'ClientRead'") == "1"
	})
	rt := governed(t, open(t, pgserver.DSN(p), postgres.Options{Lease: lease, Patience: 20 * time.Second}), tools)
	ctx, cancel := context.WithTimeout(bg, 20*time.Second)
	defer cancel()
	began := time.Now()
	res, err := rt.Call(ctx, runtime.Request{Server: "payments", Tool: "charge", Key: "k"})
	if took := time.Since(began); err != nil || res.State != tga.Completed || took > 5*lease {
		t.Errorf("the other replica: %v, %v after %s", res.State, err, took)
	}
	c.signal(t, syscall.SIGCONT)
	if got := c.line(t); got != "ended COMPLETED" {
		t.Errorf("the replica that was stopped %q", got)
	}
	if n := tools.of("k"); n != 1 {
		t.Errorf("sent %d times", n)
	}
}
