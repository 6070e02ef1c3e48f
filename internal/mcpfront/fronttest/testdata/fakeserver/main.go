// Command fakeserver is the tool server of the shim's tests. It keeps a journal of its effects:
// one line for each call that had its effect, written and synced before the answer. It is a
// program of its own because the tests start it hundreds of times, and it starts in a tenth of
// the time that a test binary takes.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
)

// Environment variables. Package fronttest has the same names.
const (
	envJournal  = "TGAD_MCP_FAKE"     // path of the journal
	envStubborn = "TGAD_MCP_STUBBORN" // if set, the server keeps running when its client is gone
	envDie      = "TGAD_MCP_FAKE_AT"  // where to die: "journal" (before the line), "answer" (after it)
)

// must ends the server if it cannot write its journal: without the line the tests would not see the
// effect.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() { os.Exit(serve(os.Getenv(envJournal))) }

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
}

const tools = `{"tools":[{"name":"charge","description":"Charges a card","inputSchema":{"type":"object"}},{"name":"look","description":"Looks","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`

// serve answers requests until its client is gone, or until it dies as envDie says. It returns the exit code.
func serve(journal string) int {
	must(os.WriteFile(filepath.Join(filepath.Dir(journal), "server.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600))
	out := bufio.NewWriter(os.Stdout)
	say := func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...)
		out.Flush()
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	started := time.Now().UnixNano()
	held := map[string]json.RawMessage{}
	var subscribed json.RawMessage // id of a subscription
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && os.Getenv(envStubborn) != "" {
			time.Sleep(time.Hour) // stays alive until it is killed
		}
		if err != nil {
			return 0
		}
		var r request
		if json.Unmarshal(line, &r) != nil {
			say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`)
			continue
		}
		switch r.Method {
		case "initialize":
			capabilities := `"capabilities":{"tools":{}}`
			if b, err := os.ReadFile(journal + ".capabilities"); err == nil {
				capabilities = string(b)
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25",%s,"serverInfo":{"name":"fake","version":"1"}}}`, r.ID, capabilities)
		case "tools/list":
			if b, err := os.ReadFile(journal + ".instead"); err == nil { // of the list
				for line := range strings.Lines(string(b)) {
					say("%s", strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "ID", string(r.ID)))
				}
				if len(b) == 0 {
					return 3
				}
				continue
			}
			must(os.WriteFile(journal+".listed", nil, 0o600))
			list := tools
			if b, err := os.ReadFile(journal + ".tools"); err == nil {
				list = string(b)
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, list)
		case "server/discover":
			if b, err := os.ReadFile(journal + ".discover"); err == nil {
				say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, b)
				continue
			}
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, r.ID)
		case "echo":
			// Some SDKs write the result before the id.
			say(`{"result":%s,"jsonrpc":"2.0","id":%s}`, r.Params, r.ID)
		case "refuse":
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"no"}}`, r.ID, mcpraw.At(r.Params, "/code"))
		case "babble":
			say("this is no message")
			say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
		case "changed":
			say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
		case "flood":
			var p struct {
				N    int
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
			must(json.Unmarshal(r.Params, &p))
			for i := range p.N {
				say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`, p.Meta.ProgressToken, i, strings.Repeat("x", 256<<10))
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
		case "say": // a line that the test has made
			say("%s", mcpraw.ScalarText(mcpraw.At(r.Params, "/line")))
			say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
		case "hold": // is never answered
		case "started":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"at":%d}}`, r.ID, started)
		case "die":
			return 3
		case "subscriptions/listen":
			subscribed = r.ID
			must(os.WriteFile(journal+".subscribed", mcpraw.At(r.Params, "/notifications"), 0o600))
			say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, r.ID, mcpraw.At(r.Params, "/notifications"))
		case "grow":
			say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"n":9007199254740993}}`, subscribed)
			say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, r.ID)
		case "notifications/cancelled":
			if f, err := os.OpenFile(journal+".order", os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
				fmt.Fprintln(f, r.Method)
				must(f.Close())
			}
			if subscribed != nil && string(mcpraw.At(r.Params, "/requestId")) == string(subscribed) {
				say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, subscribed, subscribed)
				subscribed = nil
				must(os.WriteFile(journal+".cancelled", r.Params, 0o600))
			}
		case "ask", "prompts/get":
			if name := mcpraw.ScalarText(mcpraw.At(r.Params, "/name")); r.Method != "ask" && name != "ask" {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such prompt"}}`, r.ID)
				continue
			}
			held["q1"] = r.ID
			say(`{"jsonrpc":"2.0","id":"q1","method":"sampling/createMessage","params":{"n":9007199254740993}}`)
		case "tasks/get":
			task(say, journal, r)
		case "tasks/list":
			b, err := os.ReadFile(journal + ".tasks")
			if err != nil {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, r.ID)
				continue
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, b)
		case "tasks/cancel", "tasks/update", "tasks/result":
			if b, err := os.ReadFile(journal + ".taskfault"); err == nil && r.Method == "tasks/result" {
				say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, r.ID, b)
				continue
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{"by":%q,"params":%s,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":%s}}}}`, r.ID, filepath.Base(filepath.Dir(journal)), r.Params, mcpraw.At(r.Params, "/taskId"))
		case "resources/list", "resources/templates/list":
			b, err := os.ReadFile(journal + strings.ReplaceAll(strings.TrimSuffix(r.Method, "/list"), "/", ".")) // journalresources, journalresources.templates
			if err != nil {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, r.ID)
				continue
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, b)
		case "resources/read", "resources/subscribe", "completion/complete":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"by":%q,"params":%s}}`, r.ID, filepath.Base(filepath.Dir(journal)), r.Params)
		case "tools/call":
			if mcpraw.ScalarText(mcpraw.At(r.Params, "/name")) == "grow" {
				uri := mcpraw.ScalarText(mcpraw.At(r.Params, "/arguments/uri"))
				task := mcpraw.ScalarText(mcpraw.At(r.Params, "/arguments/task"))
				for _, n := range []string{`tools/list_changed","params":{`, `resources/list_changed","params":{`, `resources/updated","params":{"uri":"` + uri + `",`, `tasks","params":{"taskId":"` + task + `",`} {
					say(`{"jsonrpc":"2.0","method":"notifications/%s"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, n, subscribed)
				}
			}
			if f, err := os.OpenFile(journal+".order", os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
				fmt.Fprintln(f, r.Method)
				must(f.Close())
			}
			if done := call(say, journal, r, line); done {
				return 9
			}
		case "":
			if to, ok := held[strings.Trim(string(r.ID), `"`)]; ok {
				say(`{"jsonrpc":"2.0","id":%s,"result":{"heard":%s}}`, to, r.Result)
			}
		default:
			if len(r.ID) > 0 {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, r.ID)
			}
		}
	}
}

// waitFor returns once the file is there. No name means no wait.
func waitFor(file string) {
	for file != "" {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func call(say func(string, ...any), journal string, r request, line []byte) (die bool) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      map[string]any  `json:"_meta"`
		State     string          `json:"requestState"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad params"}}`, r.ID)
		return false
	}
	var args struct {
		MiB  int    `json:"mib"`
		Wait string `json:"wait"` // a file to wait for
		Die  string `json:"die"`
		N    int    `json:"n"`
	}
	_ = json.Unmarshal(p.Arguments, &args) // an error is ignored: a test may give a member another type
	key, _ := p.Meta["dev.tgad/idempotencyKey"].(string)
	effect := func() {
		if p.Name == "nothing" {
			return // for the benchmark, which must not wait for this server's disk
		}
		f, err := os.OpenFile(journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		must(err)
		entry, err := json.Marshal(map[string]string{"tool": p.Name, "key": key, "args": string(p.Arguments), "line": string(line)})
		must(err)
		_, err = f.Write(append(entry, '\n'))
		must(err)
		must(f.Sync())
		must(f.Close())
	}
	dieAt := os.Getenv(envDie)
	if args.Die != "" {
		dieAt = args.Die
		if _, err := os.Stat(journal + ".died"); err == nil {
			dieAt = "" // only once
		} else {
			must(os.WriteFile(journal+".died", nil, 0o600))
		}
	}
	if dieAt == "journal" {
		return true
	}
	if p.Name == "input" && p.State == "" {
		waitFor(args.Wait)
		say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"input_required","requestState":"s1","inputRequests":{}}}`, r.ID)
		return false
	}
	if _, err := os.Stat(journal + ".opened"); p.Name == "url" && err != nil {
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"sign in","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x/","message":"go"}]}}}`, r.ID)
		return false
	}
	if p.Name == "job" {
		effect()
		say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","taskId":"job-%d","status":"working","ttlMs":null,"pollIntervalMs":20,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"}}`, r.ID, args.N)
		return false
	}
	effect()
	waitFor(args.Wait)
	switch {
	case dieAt == "answer":
		return true
	case p.Name == "mute":
	case p.Name == "fail":
		say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"no money"}],"isError":true}}`, r.ID)
	case p.Name == "fault":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":"broken"}}`, r.ID)
	case p.Name == "unknown":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"timed out upstream"}}`, r.ID)
	case p.Name == "noise":
		say(`{"jsonrpc":"2.0","id":%s,"id":%s,"result":{}}`, r.ID, r.ID)
	case args.MiB > 0:
		say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, r.ID, strings.Repeat("x", args.MiB<<20))
	default:
		say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}],"structuredContent":{"args":%s,"big":9007199254740993,"one":1.0}}}`, r.ID, p.Arguments)
	}
	return false
}

func task(say func(string, ...any), journal string, r request) {
	status := `"status":"working"`
	if b, err := os.ReadFile(journal + ".taskdone"); err == nil {
		result := `{"content":[{"type":"text","text":"job done"}]}`
		if len(b) > 0 {
			result = string(b)
		}
		status = `"status":"completed","result":` + result
		if strings.HasPrefix(result, `"status"`) {
			status = result
		}
	}
	say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","taskId":%s,%s,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":20}}`, r.ID, mcpraw.At(r.Params, "/taskId"), status)
}
