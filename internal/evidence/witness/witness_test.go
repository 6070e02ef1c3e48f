package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	fnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// looseSignature changes the bits that the base64 of the last line does not use. A key hash and a signature
// have 68 bytes: two thirds of the last four characters.
func looseSignature(raw []byte) []byte {
	i := len(raw) - len("x=\n")
	return append(bytes.Clone(raw[:i]), append([]byte{raw[i] + 1}, "=\n"...)...)
}

// TestAnswers walks the answers of C2SP tlog-witness. Each row is sent to a witness that has signed ten
// leaves of a log, or none.
func TestAnswers(t *testing.T) {
	key, former, stranger := storeKey(t, origin), storeKey(t, origin), storeKey(t, origin)
	good, fork := &log{key: key}, &log{key: key, fork: 5}
	text := func(text string, by ...note.Signer) []byte {
		raw, err := note.Sign(&note.Note{Text: text}, by...)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	proof := func(l *log, old, size int64) tlog.TreeProof {
		p, err := l.prove(old, size)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	other := checkpoint.Checkpoint{Origin: "other.example/tgad", Size: 3}
	otherRaw, err := other.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	ten := good.head(10)
	tooMany := make(tlog.TreeProof, 64)
	loose := tlog.Hash{}.String()
	loose = loose[:42] + "B=" // the unused bits are not zero
	for _, row := range []struct {
		name   string
		signed int64 // leaves that the witness has signed
		body   []byte
		status int
		size   string // of a 409
	}{
		{"first, of some leaves", 0, good.step(0, 7), 200, ""},
		{"first, of one leaf", 0, good.step(0, 1), 200, ""},
		{"first, of none", 0, good.step(0, 0), 200, ""},
		{"grown", 10, good.step(10, 11), 200, ""},
		{"grown much", 10, good.step(10, 1000), 200, ""},
		{"the same again", 10, good.step(10, 10), 200, ""},
		{"by the second trusted key", 10, body(10, proof(good, 10, 12), (&log{key: former}).at(12)), 200, ""},
		{"by both, and a stranger", 10, body(10, proof(good, 10, 12), text(good.head(12).Text(), key, stranger, former)), 200, ""},
		{"with a loose line of a stranger", 10, body(10, proof(good, 10, 12), append(good.at(12), "— x AAAAAAB=\n"...)), 200, ""},
		{"with an extension", 10, body(10, proof(good, 10, 12), text(good.head(12).Text()+"more\n\nof it\n", key)), 200, ""},

		{"unknown origin", 0, body(0, nil, otherRaw), 404, ""},
		{"unknown origin, and signed by nobody known", 0, body(0, nil, text("x\n1\n"+loose[:42]+"A=\n", stranger)), 404, ""},

		{"signed by a stranger", 10, body(10, proof(good, 10, 12), text(good.head(12).Text(), stranger)), 403, ""},
		{"signature of another text", 10, body(10, proof(good, 10, 12), bytes.Replace(good.at(12), []byte("\n12\n"), []byte("\n13\n"), 1)), 403, ""},
		{"a loose line of the log's key", 10, body(10, proof(good, 10, 12), looseSignature(good.at(12))), 403, ""},
		{"a loose line of the log's key, and one in order", 10, body(10, proof(good, 10, 12), append(looseSignature(good.at(12)), good.at(12)[bytes.Index(good.at(12), []byte("— ")):]...)), 403, ""},
		{"by a stranger, and the old size is too large", 10, body(20, nil, text(good.head(12).Text(), stranger)), 403, ""},

		{"old is larger than the checkpoint", 10, body(11, nil, good.at(10)), 400, ""},
		{"old is larger, first", 0, body(1, nil, good.at(0)), 400, ""},
		{"empty", 0, nil, 400, ""},
		{"a line alone", 0, []byte("old 0\n"), 400, ""},
		{"no old", 0, bytes.TrimPrefix(good.step(0, 7), []byte("old ")), 400, ""},
		{"old in capitals", 0, bytes.Replace(good.step(0, 7), []byte("old"), []byte("OLD"), 1), 400, ""},
		{"old with a zero before it", 10, body("010", proof(good, 10, 12), good.at(12)), 400, ""},
		{"old twice zero", 0, body("00", nil, good.at(7)), 400, ""},
		{"old with a sign", 0, body("+0", nil, good.at(7)), 400, ""},
		{"old below zero", 0, body("-1", nil, good.at(7)), 400, ""},
		{"old minus zero", 0, body("-0", nil, good.at(7)), 400, ""},
		{"old is no number", 0, body("x", nil, good.at(7)), 400, ""},
		{"old with a blank", 0, body("0 ", nil, good.at(7)), 400, ""},
		{"old beyond 63 bits", 0, body("9223372036854775808", nil, good.at(7)), 400, ""},
		{"carriage returns", 0, bytes.ReplaceAll(good.step(0, 7), []byte("\n"), []byte("\r\n")), 400, ""},
		{"a proof of 64 lines", 10, body(10, tooMany, good.at(12)), 400, ""},
		{"a proof that is no base64", 10, []byte("old 10\n!\n\n" + string(good.at(12))), 400, ""},
		{"a hash too short", 10, []byte("old 10\nAAAA\n\n" + string(good.at(12))), 400, ""},
		{"a hash in another spelling", 10, []byte("old 10\n" + loose + "\n\n" + string(good.at(12))), 400, ""},
		{"no checkpoint", 0, []byte("old 0\n\n"), 400, ""},
		{"a checkpoint without signatures", 0, body(0, nil, []byte(good.head(7).Text()+"\n")), 400, ""},
		{"a checkpoint that is no note", 0, body(0, nil, append(good.at(7), "x\n"...)), 400, ""},
		{"a checkpoint cut off", 0, body(0, nil, good.at(7)[:len(good.at(7))-1]), 400, ""},
		{"a size with a zero before it", 0, body(0, nil, text(origin+"\n07\n"+tlog.Hash{}.String()+"\n", key)), 400, ""},
		{"two lines", 0, body(0, nil, text(origin+"\n7\n", key)), 400, ""},
		{"a hand-over", 0, body(0, nil, handOver(t, good.head(7), key, former)), 400, ""},

		{"old is 0, and it has signed", 10, good.step(0, 12), 409, "10"},
		{"old is smaller", 10, good.step(9, 12), 409, "10"},
		{"old is larger", 10, good.step(11, 12), 409, "10"},
		{"rolled back", 10, good.step(4, 9), 409, "10"},
		{"rolled back, as it begins", 10, good.step(0, 4), 409, "10"},
		{"old of what was never signed", 0, good.step(5, 7), 409, "0"},
		{"equal sizes, another head", 10, fork.step(10, 10), 409, "10"},
		{"equal sizes, another head, and a proof", 10, body(10, proof(good, 10, 12), fork.at(10)), 409, "10"},
		{"no leaves, and another head", 0, body(0, nil, text(checkpoint.Checkpoint{Origin: origin, Head: tlog.Hash{1}}.Text(), key)), 409, "0"},
		{"not grown, and the wrong old", 10, fork.step(9, 12), 409, "10"},

		{"a fork with its own proof", 10, fork.step(10, 12), 422, ""},
		{"a fork with the proof of the log", 10, body(10, proof(good, 10, 12), fork.at(12)), 422, ""},
		{"no proof", 10, body(10, nil, good.at(12)), 422, ""},
		{"half a proof", 10, body(10, proof(good, 10, 12)[:1], good.at(12)), 422, ""},
		{"a proof, and more", 10, body(10, append(proof(good, 10, 12), tlog.Hash{}), good.at(12)), 422, ""},
		{"a proof of 63 lines", 10, body(10, tooMany[:63], good.at(12)), 422, ""},
		{"another proof", 10, body(10, proof(good, 9, 12), good.at(12)), 422, ""},
		{"a proof where old is 0", 0, body(0, proof(good, 3, 7), good.at(7)), 422, ""},
		{"a proof of no growth", 10, body(10, proof(good, 9, 10), good.at(10)), 422, ""},
	} {
		disk := vfs.NewMem()
		w := start(t, disk, key, former)
		if row.signed > 0 {
			if a := ask(w, good.step(0, row.signed)); a.Code != 200 {
				t.Fatalf("%d leaves: %d %s", row.signed, a.Code, a.Body)
			}
		}
		before := disk.String()
		a := ask(w, row.body)
		if a.Code != row.status {
			t.Errorf("%s: %d %q, want %d", row.name, a.Code, a.Body, row.status)
			continue
		}
		kind := a.Header().Get("Content-Type")
		if size := a.Body.String(); (kind == "text/x.tlog.size") != (a.Code == 409) || a.Code == 409 && size != row.size+"\n" {
			t.Errorf("%s: %d with %s and the body %q, want the size %q", row.name, a.Code, kind, size, row.size)
		}
		if a.Code == 200 {
			_, raw, _ := bytes.Cut(row.body, []byte("\n\n"))
			cosigned(t, w, raw, a.Body.Bytes())
			continue
		}
		if strings.Contains(a.Body.String(), "—") || disk.String() != before {
			t.Errorf("%s: refused, and something is signed or remembered: %q", row.name, a.Body)
		}
		// A refused request changes nothing: the witness continues from where it was.
		if a := ask(w, good.step(row.signed, 13)); a.Code != 200 {
			t.Errorf("%s: the next checkpoint is answered %d %q", row.name, a.Code, a.Body)
		}
	}
	if ten.Head == fork.head(10).Head {
		t.Fatal("the fork is none")
	}
}

func handOver(t *testing.T, at checkpoint.Checkpoint, from, to checkpoint.Signer) []byte {
	t.Helper()
	raw, err := checkpoint.HandOver(at, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestOtherRequests(t *testing.T) {
	w := start(t, vfs.NewMem(), storeKey(t, origin))
	for _, row := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/add-checkpoint", 405}, {http.MethodPut, "/add-checkpoint", 405},
		{http.MethodPost, "/", 404}, {http.MethodPost, "/add-checkpoint/", 404}, {http.MethodPost, "/x/add-checkpoint", 404},
	} {
		a := httptest.NewRecorder()
		if w.ServeHTTP(a, httptest.NewRequest(row.method, row.path, nil)); a.Code != row.status {
			t.Errorf("%s %s: %d, want %d", row.method, row.path, a.Code, row.status)
		}
	}
}

func TestLimits(t *testing.T) {
	key := storeKey(t, origin)
	l := &log{key: key}
	padded := func(size int) []byte { // a checkpoint of that many bytes
		c := l.head(7)
		bare, err := note.Sign(&note.Note{Text: c.Text() + "\n"}, key)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := note.Sign(&note.Note{Text: c.Text() + strings.Repeat("x", size-len(bare)) + "\n"}, key)
		if err != nil || len(raw) != size {
			t.Fatalf("%d bytes, %v", len(raw), err)
		}
		return raw
	}
	for _, row := range []struct {
		name   string
		body   []byte
		status int
	}{
		{"the longest checkpoint", body(0, nil, padded(checkpoint.MaxBytes)), 200},
		{"a longer checkpoint", body(0, nil, padded(checkpoint.MaxBytes+1)), 400},
		{"the longest body", bytes.Repeat([]byte("x"), MaxRequest), 400},
		{"a longer body", bytes.Repeat([]byte("x"), MaxRequest+1), 413},
		{"the longest proof, size and checkpoint", body(int64(1<<63-1), make(tlog.TreeProof, 63), padded(checkpoint.MaxBytes)), 400},
	} {
		if a := ask(start(t, vfs.NewMem(), key), row.body); a.Code != row.status {
			t.Errorf("%s: %d %.100q, want %d", row.name, a.Code, a.Body, row.status)
		}
	}
	if n := len(body(int64(1<<63-1), make(tlog.TreeProof, 63), padded(checkpoint.MaxBytes))); n != MaxRequest {
		t.Errorf("the longest request has %d bytes, MaxRequest is %d", n, MaxRequest)
	}
	trust := Trust{}
	for i := range maxOrigins {
		if err := trust.Add(fmt.Sprintf("origin.example/%d %s", i, key.Public)); err != nil {
			t.Fatal(err)
		}
	}
	if err := trust.Add("origin.example/0 " + storeKey(t, "x").Public); err != nil {
		t.Errorf("a second key of an origin: %v", err)
	}
	if err := trust.Add("origin.example/x " + key.Public); tga.CodeOf(err) != tga.LimitExceeded {
		t.Errorf("one origin more: %v", err)
	}
	// Origins that are no longer trusted are remembered too.
	w := start(t, vfs.NewMem(), key)
	for i := range maxOrigins {
		w.state.seen[fmt.Sprint("former", i)] = entry{}
	}
	if a := ask(w, l.step(0, 3)); a.Code != 503 {
		t.Errorf("one origin more than the state takes: %d %q", a.Code, a.Body)
	}
}

// TestHeadsForOneSizeAreLogged: two signed heads of one size are the proof that convinces others.
func TestHeadsForOneSizeAreLogged(t *testing.T) {
	key := storeKey(t, origin)
	var said bytes.Buffer
	w := start(t, vfs.NewMem(), key)
	w.log = slog.New(slog.NewJSONHandler(&said, nil))
	fork := &log{key: key, fork: 5}
	ask(w, (&log{key: key}).step(0, 10))
	if ask(w, (&log{key: key}).step(10, 11)); said.Len() > 0 {
		t.Errorf("what grew is logged: %s", &said)
	}
	ask(w, fork.step(11, 11))
	for _, want := range []string{`"level":"ERROR"`, "two histories", strconv.Quote(string(fork.at(11)))} {
		if !strings.Contains(said.String(), strings.ReplaceAll(want, `\u2014`, "—")) {
			t.Errorf("the log has no %s:\n%s", want, &said)
		}
	}
}

// TestTrustIsRead: an origin may contain blanks.
func TestTrustIsRead(t *testing.T) {
	key := storeKey(t, "x")
	_, public, err := NewKey("witness.example")
	if err != nil {
		t.Fatal(err)
	}
	trust := Trust{}
	for _, line := range []string{"a/b " + key.Public, "go.sum database tree\t" + key.Public, "a/b  " + storeKey(t, "y").Public} {
		if err := trust.Add(line); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if len(trust["a/b"]) != 2 || len(trust["go.sum database tree"]) != 1 || len(trust) != 2 {
		t.Errorf("trust in %v", trust)
	}
	for _, line := range []string{"", " ", key.Public, " " + key.Public, "a/b", "a/b x", "a/b " + public, "a/b " + key.Public + "x"} {
		if err := trust.Add(line); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestConcurrentRequests: with many senders of one log, the witness never confirms a checkpoint as the
// newest after it has signed a larger one. It reads the clock once for each signature.
func TestConcurrentRequests(t *testing.T) {
	key := storeKey(t, origin)
	l := &log{key: key}
	l.grow(200)
	w := start(t, vfs.NewMem(), key)
	type signature struct {
		at   time.Time
		size int64
	}
	var mu sync.Mutex
	var signed []signature
	var wg sync.WaitGroup
	for sender := range int64(8) {
		wg.Go(func() {
			old := int64(0)
			for size := sender + 1; size <= 200; {
				a := ask(w, l.step(old, size))
				switch a.Code {
				case 200:
					at, err := fnote.CoSigV1Timestamp(cosigned(t, w, l.at(size), a.Body.Bytes()))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					signed = append(signed, signature{at, size})
					mu.Unlock()
					old, size = size, size+3
				case 409:
					var err error
					if old, err = strconv.ParseInt(strings.TrimSpace(a.Body.String()), 10, 64); err != nil {
						t.Error(err)
						return
					}
					size = max(size, old)
				default:
					t.Errorf("%d %s", a.Code, a.Body)
					return
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(signed, func(a, b signature) int { return a.at.Compare(b.at) })
	for i := 1; i < len(signed); i++ {
		if signed[i].at.Equal(signed[i-1].at) || signed[i].size < signed[i-1].size {
			t.Errorf("%d leaves are signed at %v, after %d at %v", signed[i].size, signed[i].at, signed[i-1].size, signed[i-1].at)
		}
	}
	if len(signed) < 50 {
		t.Errorf("only %d signatures", len(signed))
	}
}

// TestClient: the store's side of the protocol, package checkpoint, works with this witness.
func TestClient(t *testing.T) {
	key, second := storeKey(t, origin), storeKey(t, origin)
	l, fork := &log{key: key}, &log{key: key, fork: 5}
	w := start(t, vfs.NewMem(), key, second)
	srv := httptest.NewServer(w)
	defer srv.Close()
	fresh := func() *checkpoint.Witness { return &checkpoint.Witness{URL: srv.URL, Key: w.key.Verifier} }
	put := func(to *checkpoint.Witness, raw []byte, prove checkpoint.Prove) error {
		line, err := to.Put(t.Context(), raw, prove)
		if err == nil {
			cosigned(t, w, raw, line)
		}
		return err
	}
	to := fresh()
	for _, size := range []int64{3, 4, 4, 77} {
		if err := put(to, l.at(size), l.prove); err != nil {
			t.Fatalf("%d leaves: %v", size, err)
		}
	}
	if err := put(fresh(), l.at(100), l.prove); err != nil {
		t.Errorf("a new process: %v", err)
	}
	var newer *checkpoint.NewerError
	if _, err := fresh().Newest(t.Context(), l.at(50), l.prove); !errors.As(err, &newer) || newer.Size != 100 {
		t.Errorf("a store that was rolled back: %v", err)
	}
	for _, own := range [][]byte{l.at(100), l.at(120)} {
		if raw, err := fresh().Newest(t.Context(), own, l.prove); raw != nil || err != nil {
			t.Errorf("%q, %v", raw, err)
		}
	}
	var other *checkpoint.OtherError
	if err := put(fresh(), fork.at(130), fork.prove); !errors.As(err, &other) || other.Size != 120 {
		t.Errorf("a fork: %v", err)
	}
	if err := put(fresh(), fork.at(120), fork.prove); !errors.As(err, &other) || other.Size != 120 {
		t.Errorf("a fork of the same size: %v", err)
	}
	// The store handed its key over, and the witness knows both.
	l.key = second
	if err := put(fresh(), l.at(140), l.prove); err != nil {
		t.Errorf("by the next key: %v", err)
	}
}

// TestServeEndsWithTheRequestsUnderWay: a request that is half sent at the end is answered.
func TestServeEndsWithTheRequestsUnderWay(t *testing.T) {
	key := storeKey(t, origin)
	w := start(t, vfs.NewMem(), key)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Serve(ctx, l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := (&log{key: key}).step(0, 7)
	fmt.Fprintf(c, "POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(request))
	proceed := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(c, proceed); err != nil || !bytes.HasPrefix(proceed, []byte("HTTP/1.1 100")) {
		t.Fatalf("%q, %v", proceed, err)
	}
	stop() // the handler waits for the body
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200")) {
		t.Errorf("%q, %v", answer, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	if err := w.state.Close(); err != nil {
		t.Error(err)
	}
	if a := ask(w, (&log{key: key}).step(7, 8)); a.Code != 503 {
		t.Errorf("with its state closed: %d %q", a.Code, a.Body)
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Serve(t.Context(), l); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a listener that is closed: %v", err)
	}
}
