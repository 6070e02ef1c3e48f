//go:build unix

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// mcpClient is a typical MCP client: it starts the command of its configuration, starts it
// again when it has ended, and repeats a call whose answer was lost. It knows nothing of tgad.
type mcpClient struct {
	command []string
	env     []string
	stderr  io.Writer

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	ids int
}

// maxTries bounds how often a call is repeated.
const maxTries = 20

// call calls charge for an order and returns the text of the answer.
func (c *mcpClient) call(ctx context.Context, order string) (text string, tries int, err error) {
	for tries = 1; tries <= maxTries && ctx.Err() == nil; tries++ {
		if text, err = c.try(ctx, order); err == nil {
			return text, tries, nil
		}
		c.end()
	}
	return "", tries, fmt.Errorf("order %s: no answer after %d tries: %w", order, maxTries, err)
}

func (c *mcpClient) try(ctx context.Context, order string) (string, error) {
	if c.cmd == nil {
		if err := c.start(ctx); err != nil {
			return "", err
		}
	}
	a, err := c.ask("tools/call", map[string]any{"name": "charge", "arguments": map[string]string{"order": order}})
	if err != nil {
		return "", err
	}
	if a.Error != nil {
		return "", fmt.Errorf("the server answers %s", a.Error)
	}
	var result struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Content) == 0 {
		return "", fmt.Errorf("the answer %s has no text: %w", a.Result, err)
	}
	return result.Content[0].Text, nil
}

// start starts the command and makes the handshake.
func (c *mcpClient) start(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, c.command[0], c.command[1:]...)
	cmd.Env, cmd.Stderr = append(os.Environ(), c.env...), c.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd, c.in, c.out = cmd, in, bufio.NewReader(out)
	_, err = c.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": struct{}{}, "clientInfo": map[string]string{"name": "client", "version": "1"},
	})
	if err == nil {
		_, err = io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	return err
}

func (c *mcpClient) ask(method string, params any) (a rpc, err error) {
	c.ids++
	q, err := json.Marshal(rpc{Version: "2.0", ID: c.ids, Method: method, Params: params})
	if err != nil {
		return a, err
	}
	if _, err := c.in.Write(append(q, '\n')); err != nil {
		return a, err
	}
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			return a, fmt.Errorf("the connection ended before %s was answered: %w", method, err)
		}
		if a = (rpc{}); json.Unmarshal([]byte(line), &a) == nil && a.ID == c.ids && a.Method == "" {
			return a, nil
		}
	}
}

// end ends the connection and the process.
func (c *mcpClient) end() {
	if c.cmd == nil {
		return
	}
	_ = c.in.Close() // its end is all the message it has
	ended := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	_ = c.cmd.Wait() // it was killed, or ends at the end of its input
	ended.Stop()
	c.cmd = nil
}

// pid is the process that the client started, 0 where there is none.
func (c *mcpClient) pid() int {
	if c.cmd == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// unknown reports whether an answer says that the outcome is not known.
func unknown(answer string) bool { return strings.Contains(answer, "OUTCOME UNKNOWN") }

var errNotHeld = errors.New("the call did not come to the point of its kill")
