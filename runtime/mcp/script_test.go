//go:build unix

package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// envMode makes the test binary run as a tool server, in the mode that the variable names.
const envMode = "TGAD_TEST_MODE"

// envWitness names the witness file, in which a scripted server notes what reached it, one line
// each: "start PID", then "call NAME" for each tools/call.
const envWitness = "TGAD_TEST_WITNESS"

func TestMain(m *testing.M) {
	switch os.Getenv(envMode) {
	case "":
		goleak.VerifyTestMain(m)
	case "script":
		newScript().serve()
	case "sdk":
		if err := sdkServer().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	case "parent":
		runParent()
	case "hold": // a descendant that outlives its parent
		hang()
	case "mute": // never answers, never ends on EOF
		witness("start %d", os.Getpid())
		hang()
	case "exit":
		os.Exit(3)
	}
}

// script is a tool server whose tools are named after what they do. It handles raw lines, so that
// no library changes the bytes that the test sees.
type script struct {
	out       sync.Mutex
	mu        sync.Mutex
	waiting   []string // answers held back by "barrier"
	cancelled []string // params of notifications/cancelled
	replies   []string // answers to this server's own requests
	resume    func()
	stubborn  bool
}

func newScript() *script {
	return &script{stubborn: os.Getenv("TGAD_TEST_STUBBORN") != ""}
}

func witness(format string, args ...any) {
	path := os.Getenv(envWitness)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, format+"\n", args...)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		panic(err)
	}
}

func (s *script) serve() {
	witness("start %d", os.Getpid())
	fmt.Fprintln(os.Stderr, "scripted server is up")
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if s.stubborn {
				hang()
			}
			return
		}
		s.line(bytes.TrimSpace(line))
	}
}

func (s *script) say(format string, args ...any) {
	s.out.Lock()
	defer s.out.Unlock()
	fmt.Fprintf(os.Stdout, format, args...)
}

func (s *script) line(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		panic(err)
	}
	switch m.Method {
	case "":
		s.mu.Lock()
		s.replies = append(s.replies, string(line))
		if len(s.replies) == 2 && s.resume != nil {
			s.resume()
		}
		s.mu.Unlock()
	case "initialize":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1"}}}`+"\n", m.ID)
	case "notifications/cancelled":
		s.mu.Lock()
		s.cancelled = append(s.cancelled, string(m.Params))
		s.mu.Unlock()
	case "tools/call":
		var p struct {
			Name string          `json:"name"`
			Args json.RawMessage `json:"arguments"`
			Meta json.RawMessage `json:"_meta"`
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			panic(err)
		}
		witness("call %s", p.Name)
		s.call(m.ID, p.Name, p.Args, p.Meta)
	default:
		if m.ID != nil {
			s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no %s"}}`+"\n", m.ID, m.Method)
		}
	}
}

// ok is a result that carries raw.
func ok(id json.RawMessage, raw string) string {
	return fmt.Sprintf(`{"result":{"content":[],"structuredContent":%s},"jsonrpc":"2.0","id":%s}`, raw, id)
}

func (s *script) call(id json.RawMessage, tool string, args, meta json.RawMessage) {
	name, arg, _ := strings.Cut(tool, "/")
	switch name {
	case "echo":
		s.say("%s\n", ok(id, fmt.Sprintf(`{"args":%s,"meta":%s}`, args, meta)))
	case "pid":
		s.say("%s\n", ok(id, strconv.Itoa(os.Getpid())))
	case "env":
		b, _ := json.Marshal(os.Environ())
		s.say("%s\n", ok(id, string(b)))
	case "result":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, args[len(`{"raw":`):len(args)-1])
	case "fault":
		s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"said no"}}`+"\n", id, arg)
	case "garbage":
		s.say("Listening on port 0\n{\"jsonrpc\":\n[]\n\n%s\n", ok(id, "1"))
	case "twice":
		s.say("%s\n%s\n", ok(id, "1"), ok(id, "2"))
	case "die":
		os.Exit(7)
	case "torn":
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}`, id) // only the last brace is missing
		os.Exit(7)
	case "unended": // a whole answer, only its newline is missing
		s.say("%s", ok(id, "1"))
		os.Exit(7)
	case "bytes": // a result of exactly the given number of bytes
		n, _ := strconv.Atoi(arg)
		head, tail := `{"content":[],"x":"`, `"}`
		s.say(`{"jsonrpc":"2.0","id":%s,"result":%s%s%s}`+"\n", id, head, strings.Repeat("y", n-len(head)-len(tail)), tail)
	case "hang":
	case "deaf":
		s.say("%s\n", ok(id, "1"))
		hang()
	case "unplug": // closes stdin, then answers
		_ = os.Stdin.Close()
		s.say("%s\n", ok(id, "1"))
		hang()
	case "cancelled":
		s.mu.Lock()
		b, _ := json.Marshal(s.cancelled)
		s.mu.Unlock()
		s.say("%s\n", ok(id, string(b)))
	case "ask": // asks the client, answers once it was answered
		s.mu.Lock()
		s.resume = func() { s.say("%s\n", ok(id, "["+strings.Join(s.replies, ",")+"]")) }
		s.mu.Unlock()
		s.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/message","params":{}}` + "\n" +
			`{"jsonrpc":"2.0","id":4,"method":"sampling/createMessage","params":{}}` + "\n")
	case "changed": // announces that its tools changed
		s.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n%s\n", ok(id, "1"))
	case "barrier": // holds answers back until the given number of calls has come, then answers the last first
		s.mu.Lock()
		s.waiting = append(s.waiting, ok(id, string(args)))
		n, _ := strconv.Atoi(arg)
		if len(s.waiting) == n {
			for i := n - 1; i >= 0; i-- {
				s.say("%s\n", s.waiting[i])
			}
		}
		s.mu.Unlock()
	case "leave": // starts a descendant that holds the lock that this process inherited
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envMode+"=hold")
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "lock")}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		s.say("%s\n", ok(id, strconv.Itoa(cmd.Process.Pid)))
	default:
		panic("no script for " + tool)
	}
}

// sdkServer is a server of the official SDK. Its echo tool gets and returns raw JSON.
func sdkServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object"}`)
	s.AddTool(&sdk.Tool{Name: "echo", InputSchema: schema, Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			meta, err := json.Marshal(r.Params.Meta)
			return &sdk.CallToolResult{
				StructuredContent: json.RawMessage(fmt.Sprintf(`{"args":%s,"meta":%s}`, r.Params.Arguments, meta)),
			}, err
		})
	s.AddTool(&sdk.Tool{Name: "grow", InputSchema: schema}, // adds a tool, which the SDK tells the client
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			s.AddTool(&sdk.Tool{Name: "grown", InputSchema: schema},
				func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					return &sdk.CallToolResult{}, nil
				})
			return &sdk.CallToolResult{StructuredContent: json.RawMessage("{}")}, nil
		})
	s.AddTool(&sdk.Tool{Name: "fail", InputSchema: schema},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "no funds"}}}, nil
		})
	return s
}

// runParent is a process that owns a child which ignores EOF. It prints the child's
// answer and waits to be killed.
func runParent() {
	s, err := New("child", Options{
		Command:  []string{os.Args[0]},
		Env:      []string{envMode + "=script", "TGAD_TEST_STUBBORN=1", envWitness + "=" + os.Getenv(envWitness)},
		LockFile: os.Getenv("TGAD_TEST_LOCK"),
	})
	if err == nil {
		_, err = s.Dispatch(context.Background(), testCall("pid", "{}"))
	}
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	hang()
}

// hang keeps the process running until it is killed. A select without cases would not do: if no other
// goroutine can run, the runtime of a program without cgo reports a deadlock and ends the program.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}
