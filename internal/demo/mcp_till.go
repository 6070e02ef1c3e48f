//go:build unix

package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sale is a line of the till's own journal, synced before anything is answered.
type sale struct {
	What  string `json:"what"` // received, charged, repeated
	Order string `json:"order"`
	Key   string `json:"key"` // the idempotency key that came with the call
}

// Till is the verb that runs the tool server of the scenario mcp: --journal FILE, and
// --hold DIR. It knows one tool, charge, and MCP as far as one client needs it. With
// --keys it charges once per key.
//
// A file ORDER.POINT in DIR makes it stop for ever when a call for that order is at that
// point (received, charged). It then renames the file to ORDER.POINT.PID. So a kill comes
// at the intended point on any machine.
func Till(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("till", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var t till
	flags.StringVar(&t.journal, "journal", "", "the tool server's journal")
	flags.StringVar(&t.hold, "hold", "", "directory of the points to stop at")
	flags.BoolVar(&t.keys, "keys", false, "charge once per key")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := t.serve(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "till:", err)
		return 1
	}
	return 0
}

type till struct {
	journal, hold string
	keys          bool
}

func (t *till) serve(stdin io.Reader, stdout io.Writer) error {
	// Read in a goroutine of its own: the end of input says that the client is gone, also to
	// a till that has stopped.
	lines, failed := make(chan []byte), make(chan error, 1)
	go func() {
		in := bufio.NewReader(stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				failed <- err
				return
			}
			lines <- line
		}
	}()
	for {
		select {
		case line := <-lines:
			answer, err := t.answer(line, failed)
			if err == nil && answer != nil {
				_, err = stdout.Write(append(answer, '\n'))
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// answer answers one message; nil if the message wants no answer.
func (t *till) answer(line []byte, over <-chan error) ([]byte, error) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string `json:"name"`
			Arguments struct {
				Order string `json:"order"`
			} `json:"arguments"`
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, err
	}
	say := func(kind, value string) ([]byte, error) {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.ID, kind, value), nil
	}
	switch {
	case m.ID == nil:
		return nil, nil
	case m.Method == "initialize":
		return say("result", `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"till","version":"1"}}`)
	case m.Method == "tools/list":
		return say("result", `{"tools":[{"name":"charge","description":"Charges for an order","inputSchema":{"type":"object","required":["order"],"properties":{"order":{"type":"string"}}}}]}`)
	case m.Method == "tools/call" && m.Params.Name == "charge":
		var key string
		if raw := m.Params.Meta["dev.tgad/idempotencyKey"]; raw != nil {
			if err := json.Unmarshal(raw, &key); err != nil {
				return nil, err
			}
		}
		if err := t.charge(m.Params.Arguments.Order, key, over); err != nil {
			return nil, err
		}
		return say("result", fmt.Sprintf(`{"content":[{"type":"text","text":"charged for %s"}]}`, m.Params.Arguments.Order))
	}
	return say("error", `{"code":-32601,"message":"the till does not know this"}`)
}

func (t *till) charge(order, key string, over <-chan error) error {
	if err := t.note("received", order, key); err != nil {
		return err
	}
	if err := t.stop(order, "received", over); err != nil {
		return err
	}
	if t.keys && key != "" {
		known, err := salesOf(t.journal, func(s sale) bool { return s.What == "charged" && s.Key == key })
		if err != nil {
			return err
		}
		if known > 0 {
			return t.note("repeated", order, key)
		}
	}
	if err := t.note("charged", order, key); err != nil {
		return err
	}
	return t.stop(order, "charged", over)
}

func (t *till) note(what, order, key string) error {
	b, err := json.Marshal(sale{what, order, key})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(t.journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// stop stops for ever if there is a file for this order and point.
func (t *till) stop(order, point string, over <-chan error) error {
	at := filepath.Join(t.hold, order+"."+point)
	err := os.Rename(at, at+"."+strconv.Itoa(os.Getpid()))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = <-over
	}
	return err
}

// salesOf counts lines of a till's journal.
func salesOf(path string, which func(sale) bool) (n int, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		var s sale
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return n, fmt.Errorf("journal %s: %w", path, err)
		}
		if which(s) {
			n++
		}
	}
	return n, nil
}
