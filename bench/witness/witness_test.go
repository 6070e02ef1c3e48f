package witness

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/mod/sumdb/note"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// keys serves an ssh-agent with one key, and returns its socket and the key's fingerprint.
func (w *world) keys() (socket, fingerprint string) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		w.Fatal(err)
	}
	socket = filepath.Join(w.dir, "agent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := l.Close(); err != nil {
			w.Error(err)
		}
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // at the end of the test
			}
			go func() { _ = agent.ServeAgent(ring, conn) }() // when the witness is gone
		}
	}()
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		w.Fatal(err)
	}
	return socket, ssh.FingerprintSHA256(key)
}

// trust tells litewitness about a log and its key, as its program witnessctl does. That program needs
// modules that are not available everywhere.
func (w *world) trust(db, origin, key string) {
	conn, err := sqlite.OpenConn(filepath.Join(w.dir, db), sqlite.OpenReadWrite)
	if err != nil {
		w.Fatal(err)
	}
	err = errors.Join(
		sqlitex.Execute(conn, "INSERT INTO log (origin, tree_size, tree_hash) VALUES (?, 0, ?)", &sqlitex.ExecOptions{Args: []any{origin, emptyTree}}),
		sqlitex.Execute(conn, "INSERT INTO key (origin, key) VALUES (?, ?)", &sqlitex.ExecOptions{Args: []any{origin, key}}),
		conn.Close())
	if err != nil {
		w.Fatal(err)
	}
}

// emptyTree is the hash of a tree without leaves, SHA-256 of nothing.
const emptyTree = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="

// TestLitewitnessSignsAStore: the checkpoints of a store get the signature of another implementation, also
// when both are killed, and an evidence file has it. If the store's owner puts back an older copy, the
// witness refuses it, and the store opens frozen.
func TestLitewitnessSignsAStore(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	socket, fingerprint := w.keys()
	address := w.free()
	serve := func() *process {
		p := w.start("litewitness", "-db", "memory.db", "-name", "lite.example", "-key", fingerprint, "-ssh-agent", socket, "-listen", address)
		w.listens(address)
		return p
	}
	lite := serve()
	w.trust("memory.db", "shop.example/tgad", s.key)
	vkey := regexp.MustCompile(`vkey=(\S+)`).FindStringSubmatch(lite.said.String())
	if vkey == nil {
		t.Fatalf("the witness does not say its key:\n%s", lite.said)
	}
	witness, err := unquoted(vkey[1])
	if err != nil {
		t.Fatal(err)
	}
	s.signedBy(witness, address)
	s.serve("ready")

	proved := func(trace, file string) {
		t.Helper()
		if out, err := s.tgad("receipt", trace, "--wait", "30s"); err != nil {
			t.Fatalf("receipt: %v\n%s", err, out)
		}
		// The newest checkpoint may still be on its way to the witness.
		w.wait("the witness has signed what covers "+trace, func() bool {
			if err := os.RemoveAll(filepath.Join(w.dir, file)); err != nil {
				t.Fatal(err)
			}
			if out, err := s.tgad("evidence", "export", trace, "-o", file); err != nil {
				t.Fatalf("export: %v\n%s", err, out)
			}
			out, err := w.run("tgad", "evidence", "verify", file, "--key", s.key, "--witness", witness)
			return err == nil && strings.Contains(out, "lite.example")
		})
	}
	first := s.charge("order-1")
	proved(first, "one.evidence")
	if out, err := w.run("tgad", "evidence", "verify", "one.evidence", "--key", s.key, "--witness", "lite.example+00000000+"+strings.Repeat("A", 44)); err == nil {
		t.Errorf("a file is good with a witness that is none:\n%s", out)
	}

	// Both are killed, and one is away for a while.
	w.end(lite, syscall.SIGKILL)
	second := s.charge("order-2")
	w.end(s.daemon, syscall.SIGKILL)
	lite = serve()
	s.serve("ready")
	proved(second, "two.evidence")
	w.end(s.daemon, syscall.SIGTERM)
	w.do("cp", "-a", "data", "before")
	s.serve("ready")
	proved(s.charge("order-3"), "three.evidence")
	w.end(s.daemon, syscall.SIGTERM)

	// The owner of the disk puts everything back; the witness is on another machine.
	w.do("rm", "-r", "data")
	w.do("mv", "before", "data")
	s.serve("frozen")
	if out, err := s.tgad("call", "payments", "charge", `{"account":"acme","amount":5}`, "--key", "order-3"); err == nil {
		t.Errorf("a store that was put back takes a call:\n%s", out)
	}
	if out, err := s.tgad("verify"); err == nil || !strings.Contains(out, "witness lite.example: it has seen 6 appends, and the store signs for 4") {
		t.Errorf("verify does not name the witness: %v\n%s", err, out)
	}
	w.end(s.daemon, syscall.SIGTERM)
	w.end(lite, syscall.SIGINT)
}

// unquoted returns a value as slog's text handler writes it.
func unquoted(value string) (string, error) {
	if strings.HasPrefix(value, `"`) {
		return strconv.Unquote(value)
	}
	return value, nil
}

// log is a log of tessera, whose checkpoints a witness signs.
type log struct {
	appender *tessera.Appender
	await    *tessera.PublicationAwaiter
	end      func(context.Context) error
}

func (w *world) log(ctx context.Context, dir string, s note.Signer, by tessera.WitnessGroup) (*log, error) {
	driver, err := posix.New(ctx, posix.Config{Path: filepath.Join(w.dir, dir)})
	if err != nil {
		return nil, err
	}
	l := &log{}
	var reader tessera.LogReader
	l.appender, l.end, reader, err = tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().WithCheckpointSigner(s).
		WithCheckpointInterval(200*time.Millisecond).WithBatching(16, 20*time.Millisecond).WithWitnesses(by, &tessera.WitnessOptions{Timeout: 2 * time.Second}))
	if err != nil {
		return nil, err
	}
	l.await = tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, 50*time.Millisecond)
	return l, nil
}

// add adds an entry, and returns the first checkpoint that includes it.
func (l *log) add(ctx context.Context, entry string, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, checkpoint, err := l.await.Await(ctx, l.appender.Add(ctx, tessera.NewEntry([]byte(entry))))
	return checkpoint, err
}

// TestTesseraAsksOurWitness: `tgad witness serve` signs each checkpoint of a log of another implementation,
// also after a kill of the witness. A second log under the same name and key gets no signature.
func TestTesseraAsksOurWitness(t *testing.T) {
	w := newWorld(t)
	secret, public, err := note.GenerateKey(rand.Reader, "log.example")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	address := w.free()
	witness := w.do("tgad", "evidence", "keygen", "ours.example", "--witness", "-o", "witness.key")
	serve := func(more ...string) *process {
		p := w.start("tgad", append([]string{"witness", "serve", "--key", "witness.key", "--state", "memory", "--listen", address, "--trust", "log.example " + public}, more...)...)
		w.listens(address)
		return p
	}
	ours := serve("--create")
	by, err := tessera.NewWitness(witness, &url.URL{Scheme: "http", Host: address})
	if err != nil {
		t.Fatal(err)
	}
	group := tessera.NewWitnessGroup(1, by)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	l, err := w.log(ctx, "log", signer, group)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		checkpoint, err := l.add(ctx, "entry "+strconv.Itoa(i), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !by.Satisfied(checkpoint) {
			t.Fatalf("published without the signature:\n%s", checkpoint)
		}
		if i == 20 {
			w.end(ours, syscall.SIGKILL)
			ours = serve()
		}
	}
	if err := l.end(ctx); err != nil {
		t.Fatal(err)
	}

	if _, err := w.log(ctx, "fork", signer, group); err == nil || !strings.Contains(err.Error(), "witness policy was not satisfied") {
		t.Errorf("a second log of the same name begins: %v", err)
	}
	w.wait("the witness tells of the second log", func() bool {
		return strings.Contains(ours.said.String(), "origin=log.example size=0")
	})
	w.end(ours, syscall.SIGTERM)
}
