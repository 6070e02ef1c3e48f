package postgres_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// migrated is a server of its own with the tables of a store.
func migrated(t testing.TB, set ...string) *pgserver.Server {
	t.Helper()
	s := server(t, set...)
	if err := postgres.Migrate(bg, pgserver.DSN(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// until waits for something that comes, and fails where it does not.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// query is a query of which the answer must come.
func query(t testing.TB, s *pgserver.Server, statement string, args ...any) string {
	t.Helper()
	text, err := s.Query(statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const inSync = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ILIKE 'commit%'"

// TestUnknownCommitIsLookedAt: what the database says of a commit is not enough, or is lost. The
// append is reported once it is certain, and is in the log once.
func TestUnknownCommitIsLookedAt(t *testing.T) {
	for name, disturb := range map[string]string{
		"the wait for the standby is cancelled": "SELECT count(pg_cancel_backend(pid))::text " + inSync,
		"the connection ends in the commit":     "SELECT count(pg_terminate_backend(pid))::text " + inSync,
	} {
		t.Run(name, func(t *testing.T) {
			p := migrated(t)
			s := open(t, pgserver.DSN(p), postgres.Options{})
			b, lease := begun(t, s)
			// The standby is a ghost: a commit waits for it.
			if err := p.SyncStandbys("ghost"); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := s.Append(bg, lease, b.End(tga.StatusSuccess))
				ended <- err
			}()
			until(t, "the wait", func() bool { return query(t, p, disturb) != "0" })
			// Again and again: what waited first may have been a lease, or the order.
			for enough := time.Now().Add(300 * time.Millisecond); time.Now().Before(enough); query(t, p, disturb) {
				select {
				case err := <-ended:
					t.Fatalf("answered %v before a standby has it", err)
				case <-time.After(5 * time.Millisecond):
				}
			}
			if err := p.SyncStandbys(""); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("append: %v", err)
			}
			onceThere(t, s, b, 4)
		})
	}
}

// onceThere checks that a trace has its entries, and each append one leaf.
func onceThere(t testing.TB, s *postgres.Store, b *storetest.Builder, entries int) {
	t.Helper()
	tr, err := s.Load(bg, b.TraceID)
	if err != nil || len(tr.Entries) != entries {
		t.Errorf("load: %+v, %v", tr, err)
	}
	leaves := 0
	for l, err := range s.Follow(bg, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if l.TraceID == b.TraceID {
			leaves += int(l.Entries)
		}
		if l.HeadDigest == tr.Head.Digest {
			break
		}
	}
	if leaves != entries {
		t.Errorf("the order has %d entries of the trace, want %d", leaves, entries)
	}
}

// TestAppendThatNeverCameIsMadeAgain: the connection ends while the append waits for a lock.
func TestAppendThatNeverCameIsMadeAgain(t *testing.T) {
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{})
	b, lease := begun(t, s)
	c := connect(t, pgserver.DSN(p))
	tx, err := c.Begin(bg)
	if err == nil {
		_, err = tx.Exec(bg, "SELECT 1 FROM tgad.heads WHERE trace = $1 FOR UPDATE", [16]byte(b.TraceID))
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Append(bg, lease, b.End(tga.StatusSuccess))
		ended <- err
	}()
	until(t, "the wait", func() bool {
		return query(t, p, "SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%tgad.append%'") != "0"
	})
	if err := tx.Rollback(bg); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("append: %v", err)
	}
	onceThere(t, s, b, 4)
}

// slow is a way to a server on which what a client sends can be kept back.
type slow struct {
	dir  string
	mu   sync.Mutex
	keep bool
	what []byte // of what is kept; nil is a batch
	kept []keptBytes
	ends []io.Closer
}

type keptBytes struct {
	to   net.Conn
	data []byte
}

func slowWay(t testing.TB, p *pgserver.Server) *slow {
	t.Helper()
	w := &slow{}
	w.dir = wayTo(t, p, w.carry)
	return w
}

// wayTo is the directory of a socket that leads to a server: answers come over it as they are, and carry passes on what
// each client sends.
func wayTo(t testing.TB, p *pgserver.Server, carry func(client, to net.Conn)) (dir string) {
	t.Helper()
	const name = ".s.PGSQL.5432"
	dir = t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", filepath.Join(p.Dir, name))
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(client, to)
				client.Close()
			}()
			go carry(client, to)
		}
	}()
	return dir
}

func (w *slow) carry(client, to net.Conn) {
	buffer := make([]byte, 64<<10)
	held := false
	for {
		n, err := client.Read(buffer)
		if err != nil {
			if !held {
				to.Close()
			}
			return
		}
		w.mu.Lock()
		// BEGIN, the append, COMMIT and the end come as one.
		if held || w.keep && (w.what == nil && n > 1000 || w.what != nil && bytes.Contains(buffer[:n], w.what)) {
			held, w.keep = true, false
			w.kept = append(w.kept, keptBytes{to, append([]byte{}, buffer[:n]...)})
			w.ends = append(w.ends, client)
			w.mu.Unlock()
			continue
		}
		w.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// TestAppendThatComesLateIsRefused: the connection ends, and what was sent over it reaches the
// database after the store has looked. The store has made the append again; that it is there
// once is for the database to see.
func TestAppendThatComesLateIsRefused(t *testing.T) {
	p := migrated(t)
	w := slowWay(t, p)
	s := open(t, fmt.Sprintf("host=%s user=owner dbname=postgres", w.dir), postgres.Options{Committers: 1})
	b, lease := begun(t, s)
	w.mu.Lock()
	w.keep = true
	w.mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		_, err := s.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: b.TraceID[:], Value: make([]byte, 2000)}}})
		ended <- err
	}()
	until(t, "the bytes", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.kept) > 0
	})
	w.mu.Lock()
	for _, c := range w.ends {
		c.Close()
	}
	w.mu.Unlock()
	if err := <-ended; err != nil {
		t.Errorf("append: %v", err)
	}
	w.mu.Lock()
	for _, k := range w.kept {
		if _, err := k.to.Write(k.data); err != nil {
			t.Error(err)
		}
	}
	w.mu.Unlock()
	time.Sleep(200 * time.Millisecond) // for the server to do what it is told
	if n := query(t, p, "SELECT (version - 3)::text FROM tgad.heads WHERE trace = $1", [16]byte(b.TraceID)); n != "0" {
		t.Errorf("the head was raised %s times more than by two appends and a look", n)
	}
	for _, k := range w.kept {
		k.to.Close()
	}
}

// TestTwoLooksDoNotShowAnAppend: the append never reaches the database, and the answer of the first look is lost.
// That look has raised the version, as the append would have. The append has only attachments, so the trace does
// not show it either. The store must not report it as done.
func TestTwoLooksDoNotShowAnAppend(t *testing.T) {
	p := migrated(t)
	var (
		mu          sync.Mutex
		armed, lost bool
	)
	head := func(b *storetest.Builder) string {
		n, err := p.Query("SELECT version::text FROM tgad.heads WHERE trace = $1", [16]byte(b.TraceID))
		if err != nil {
			return err.Error()
		}
		return n
	}
	var b *storetest.Builder
	dir := wayTo(t, p, func(client, to net.Conn) {
		defer to.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock() // the second look must not be faster than the first
			switch {
			case armed && n > 1000: // the append
				armed, lost = false, true
				client.Close()
			case lost && bytes.Contains(buffer[:n], b.TraceID[:]): // the look
				lost = false
				client.Close() // so the answer is lost
				before := head(b)
				_, err = to.Write(buffer[:n])
				for deadline := time.Now().Add(10 * time.Second); head(b) == before && time.Now().Before(deadline); {
					time.Sleep(5 * time.Millisecond)
				}
			default:
				_, err = to.Write(buffer[:n])
			}
			mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	s := open(t, fmt.Sprintf("host=%s user=owner dbname=postgres", dir), postgres.Options{Committers: 1})
	b, lease := begun(t, s)
	mu.Lock()
	armed = true
	mu.Unlock()
	_, err := s.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachApproval, Key: b.TraceID[:], Value: make([]byte, 2000)}}})
	there := query(t, p, "SELECT count(*)::text FROM tgad.attachments WHERE key = $1", b.TraceID[:])
	if (err == nil) != (there == "1") {
		t.Errorf("append: %v, and the database has %s attachments", err, there)
	}
	if armed || lost {
		t.Errorf("the append or the look was not disturbed")
	}
}
