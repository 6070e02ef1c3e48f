//go:build unix

package demo

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// StockCaller is the verb of the caller without tgad, which does what an agent does today:
// it starts the tool server, calls charge once, and prints the answer.
func StockCaller(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("caller", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("journal", "", "the tool server's journal")
	arguments := flags.String("args", "{}", "arguments of the call")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	answer, err := stockCall(*path, json.RawMessage(*arguments), stderr)
	if err != nil {
		fmt.Fprintln(stderr, "caller:", err)
		return 1
	}
	fmt.Fprintln(stdout, answer)
	return 0
}

type rpc struct {
	Version string          `json:"jsonrpc"`
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// stockCall makes one call over MCP, with just the messages that it needs.
func stockCall(journal string, arguments json.RawMessage, stderr io.Writer) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	server := exec.Command(exe, "payments", "--journal", journal)
	server.Stderr = stderr
	in, err := server.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := server.Start(); err != nil {
		return "", err
	}
	defer func() {
		_ = in.Close()    // the server ends at the end of its input
		_ = server.Wait() // its exit code says nothing about the call
	}()

	send, answers := json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	ask := func(q rpc) (rpc, error) {
		var a rpc
		q.Version = "2.0"
		if err := send.Encode(q); err != nil || q.ID == 0 {
			return a, err
		}
		for {
			// Notifications of the server have no id and want no answer.
			if a = (rpc{}); answers.Decode(&a) != nil {
				return a, fmt.Errorf("the tool server ended before it answered %s", q.Method)
			}
			if a.ID == q.ID {
				break
			}
		}
		if a.Error != nil {
			return a, fmt.Errorf("%s: %s", q.Method, a.Error)
		}
		return a, nil
	}
	if _, err := ask(rpc{ID: 1, Method: "initialize", Params: map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": struct{}{},
		"clientInfo": map[string]string{"name": "stock caller", "version": "1"},
	}}); err != nil {
		return "", err
	}
	if _, err := ask(rpc{Method: "notifications/initialized"}); err != nil {
		return "", err
	}
	a, err := ask(rpc{ID: 2, Method: "tools/call", Params: map[string]any{"name": "charge", "arguments": arguments}})
	if err != nil {
		return "", err
	}
	var result struct {
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError"`
	}
	if err := json.Unmarshal(a.Result, &result); err != nil {
		return "", err
	}
	if result.IsError {
		return "", fmt.Errorf("the tool failed: %s", a.Result)
	}
	return string(result.Structured), nil
}
