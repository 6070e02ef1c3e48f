package adapter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// Engine is an engine with its adapter.
type Engine struct {
	Name string // with version and setting, as the table shows it
	// Servers starts servers that the engine needs outside of the process that is killed, such as a
	// database, and returns a function that stops them. Nil means that there are none.
	Servers func(ctx context.Context, dir string) (stop func() error, err error)
	// Start opens the engine on the files that earlier processes left in dir, and begins its recovery.
	Start func(ctx context.Context, dir string, world World) (Worker, error)
}

// Worker is an engine that has started. The harness asks one thing at a time; a load makes many calls at once.
type Worker interface {
	// Call makes the charge of a key, or continues it, and returns the engine's answer.
	Call(ctx context.Context, key string, amount int) (Answer, error)
	// Status returns the engine's answer about a key, and sends nothing.
	Status(ctx context.Context, key string) (Answer, error)
}

// Main runs an adapter on the standard streams and ends the process.
func Main(e Engine) {
	if err := Serve(context.Background(), e, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", e.Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve answers requests until in ends. A request that cannot be handled is answered with an error. A line
// that is not of this protocol ends the loop.
func Serve(ctx context.Context, e Engine, in io.Reader, out io.Writer) (err error) {
	lines := NewLines(in)
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	s := &session{engine: e}
	defer func() {
		if s.stop != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var req Request
		if err := json.Unmarshal(line, &req); err != nil {
			return fmt.Errorf("request %.80q: %w", line, err)
		}
		a, err := s.answer(ctx, req)
		if err != nil {
			a = Answer{Error: err.Error()}
		}
		a.ID = req.ID
		if err := encode.Encode(a); err != nil {
			return err
		}
	}
}

// session is the state of the adapter's process.
type session struct {
	engine Engine
	stop   func() error // of servers
	begun  bool
	worker Worker
}

func (s *session) answer(ctx context.Context, req Request) (Answer, error) {
	switch req.Op {
	case OpServe, OpStart:
		if req.Version != Protocol {
			return Answer{}, fmt.Errorf("%s with version %d of the protocol: this adapter has %d", req.Op, req.Version, Protocol)
		}
		if s.begun {
			return Answer{}, fmt.Errorf("%s in a process that has begun", req.Op)
		}
		s.begun = true
		return s.begin(ctx, req)
	case OpCall, OpStatus, OpLoad:
		if s.worker == nil {
			return Answer{}, fmt.Errorf("%s before start", req.Op)
		}
		switch req.Op {
		case OpCall:
			return s.worker.Call(ctx, req.Key, req.Amount)
		case OpStatus:
			return s.worker.Status(ctx, req.Key)
		}
		loaded, err := req.Load.run(ctx, s.worker)
		return Answer{Loaded: loaded}, err
	}
	return Answer{}, fmt.Errorf("op %.40q is none of serve, start, call, status and load", req.Op)
}

func (s *session) begin(ctx context.Context, req Request) (a Answer, err error) {
	a.Engine = s.engine.Name
	switch {
	case req.Op == OpStart && req.World == nil:
		return a, errors.New("start without a world")
	case req.Op == OpStart:
		s.worker, err = s.engine.Start(ctx, req.Dir, *req.World)
	case s.engine.Servers != nil:
		s.stop, err = s.engine.Servers(ctx, req.Dir)
		a.Servers = true
	}
	return a, err
}

// Lines reads lines of at most [MaxLine] bytes.
type Lines struct{ scanner *bufio.Scanner }

// NewLines reads the lines of r.
func NewLines(r io.Reader) *Lines {
	s := bufio.NewScanner(r)
	// The scanner needs room for the newline too.
	s.Buffer(make([]byte, 0, 4<<10), MaxLine+1)
	s.Split(whole)
	return &Lines{s}
}

// whole splits lines. It drops a last line without a newline: its writer was killed in the middle of it.
func whole(data []byte, _ bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// Next returns the next line without its end; io.EOF after the last one. The bytes are valid until the
// next call.
func (l *Lines) Next() ([]byte, error) {
	if !l.scanner.Scan() {
		if err := l.scanner.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("a line has more than %d bytes", MaxLine)
		}
		return nil, io.EOF
	}
	return l.scanner.Bytes(), nil
}

// payments is a client that keeps a connection for each caller of a load.
var payments = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: MaxCallers}}

// Charge asks the world once for a charge, and returns the number of its receipt. It always sends the header
// with the key, as a careful client does, even if the world ignores it.
func Charge(ctx context.Context, w World, key string, amount int) (receipt int64, err error) {
	body, err := json.Marshal(map[string]any{"key": key, "amount": amount})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	reply, err := payments.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, reply.Body.Close()) }()
	if reply.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the payment service answers %s", reply.Status)
	}
	return Receipt(reply.Body)
}

// Receipt reads the number in an answer of the world.
func Receipt(r io.Reader) (int64, error) {
	var paid struct {
		Receipt int64 `json:"receipt"`
	}
	if err := json.NewDecoder(r).Decode(&paid); err != nil {
		return 0, fmt.Errorf("answer of the payment service: %w", err)
	}
	return paid.Receipt, nil
}
