package entry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/wait"
)

// TestConnectionThatBreaks: the conversation goes on, because other clients may share it.
func TestConnectionThatBreaks(t *testing.T) {
	e := &exchange{events: make(chan event, 1), gone: t.Context().Done()}
	one := &session{f: NewFront(FrontOptions{}, nil, t.Context()), waits: map[frames.Key]*exchange{frames.KeyOf([]byte("1")): e}}
	go func() { (<-e.events).done <- errors.New("broken") }()
	m := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	if err := one.Send(&m.Envelope, m); !errors.Is(err, ErrNoTaker) {
		t.Errorf("error %v: it was not delivered", err)
	}
}

// deaf is a client whose connection takes no bytes until it breaks.
type deaf struct {
	*httptest.ResponseRecorder
	begun chan bool
	once  sync.Once
	gone  <-chan struct{}
}

func (d *deaf) Write([]byte) (int, error) {
	d.once.Do(func() { close(d.begun) })
	<-d.gone
	return 0, errors.New("broken")
}

// lasting is a party that is not over.
type lasting struct{ Party }

func (lasting) Over() bool { return false }

// TestStreamThatBreaks: messages that were not sent on a stream that broke are on the next stream.
func TestStreamThatBreaks(t *testing.T) {
	f := NewFront(FrontOptions{}, nil, t.Context())
	one := &session{f: f, c: lasting{}, over: make(chan struct{}), waits: map[frames.Key]*exchange{}}
	f.sessions = map[string]*session{"x": one}
	open := func(ctx context.Context, to http.ResponseWriter) (over chan bool) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/mcp", nil)
		r.Header.Set(sessionHeader, "x")
		over = make(chan bool)
		go func() {
			defer close(over)
			f.ServeHTTP(to, r)
		}()
		return over
	}
	say := func(n int) {
		m := frames.NewFrame(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"n%d"}`, n))
		if err := one.Hand(&m.Envelope, m); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &deaf{ResponseRecorder: httptest.NewRecorder(), begun: make(chan bool), gone: ctx.Done()}
	say(0)
	over := open(ctx, d)
	<-d.begun // message 0 is being written, and is lost with the connection
	for n := 1; n <= 3; n++ {
		say(n)
	}
	cancel()
	<-over
	say(4)
	in, out := io.Pipe()
	ctx, cancel = context.WithCancel(t.Context())
	over = open(ctx, piped{httptest.NewRecorder(), out})
	lines := bufio.NewReader(in)
	for n := 1; n <= 4; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data: ") {
			if !strings.Contains(line, fmt.Sprintf(`"n%d"`, n)) {
				t.Errorf("%s is not %d", line, n)
			}
			n++
		}
	}
	cancel()
	_ = in.Close()
	<-over
}

type piped struct {
	*httptest.ResponseRecorder
	to io.Writer
}

func (p piped) Write(b []byte) (int, error) { return p.to.Write(b) }

// TestAnswerThatNobodyReadsIsNotDelivered: an answer in a pipe whose reader is gone was not
// delivered, and the repeat of the call is served it.
func TestAnswerThatNobodyReadsIsNotDelivered(t *testing.T) {
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := stdout{frames.NewSink(wr)}
	f := frames.NewFrame([]byte(`{}`))
	if err := s.Send(&f.Envelope, f); err != nil {
		t.Errorf("with a reader: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if !paper.NoReader(wr) {
		t.Error("a pipe without a reader has one")
	}
	if err := s.Send(&f.Envelope, f); err == nil {
		t.Error("it was delivered to nobody")
	}
}

// still is a party that does nothing.
type still struct{ Party }

func (still) FromClient(*frames.Frame) {}

// TestQuestionGoesToARequestThatWaits: a client has no stream of its own, so a question of the tool server is written before an
// answer that the client waits for. A POST that has its answer, or is cancelled, takes no further message. If none waits, the
// message is kept for the stream that the client opens next.
func TestQuestionGoesToARequestThatWaits(t *testing.T) {
	for range 20 { // requests have no order
		one := &session{f: NewFront(FrontOptions{}, nil, t.Context()), c: still{}, waits: map[frames.Key]*exchange{}}
		all := map[string]*exchange{}
		for _, id := range []string{"1", "2", "3"} {
			all[id] = &exchange{events: make(chan event, maxQueued), gone: t.Context().Done(), cancelled: wait.NewLatch()}
			one.waits[frames.KeyOf([]byte(id))] = all[id]
		}
		hand := func(raw string) {
			m := frames.NewFrame([]byte(raw))
			if err := one.Hand(&m.Envelope, m); err != nil {
				t.Fatal(err)
			}
		}
		const question = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create"}`
		hand(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		one.hear(frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)))
		hand(question)
		if n := len(all["2"].events); n != 1 || len(all["1"].events) != 1 || len(all["3"].events) != 0 {
			t.Fatalf("of three requests, the one that waits has %d messages", n)
		}
		hand(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		hand(question)
		if n := len(one.pending); n != 1 {
			t.Fatalf("%d messages are kept for the next stream", n)
		}
	}
}
