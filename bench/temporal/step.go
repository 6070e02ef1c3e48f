package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tgad/tgad/bench/temporal/adapter"
)

// Temporal and tgad need different versions of the same modules. So the activity speaks the protocol of a daemon's
// socket itself, without tgad's client, as a program in another language would.

// body is the body of the activity: it makes a charge, and returns its answer. If tgad does not know whether the
// charge was made, that is an answer too. An error would make Temporal try again.
type body func(ctx context.Context, o order) (adapter.Answer, error)

// direct asks the payment service.
func direct(world adapter.World) body {
	return func(ctx context.Context, o order) (a adapter.Answer, err error) {
		a.Outcome = adapter.Completed
		a.Receipt, err = adapter.Charge(ctx, world, o.Key, o.Amount)
		return a, err
	}
}

const configuration = `
[[server]]
id = "payments"
type = "http"
url = %q

[[tool]]
server = "payments"
name = %q
licence = %q
%s
[[rule]]
decision = "APPROVE"
rationale = "the kill test charges"
`

// through starts a daemon of tgad, which is killed with this process, and asks that.
func through(dir string, world adapter.World) (body, error) {
	at := strings.LastIndexByte(world.URL, '/')
	licence, window := "park", ""
	if world.Dedupes {
		licence, window = "dedupe_key", `window = "24h"`
	}
	config, socket := filepath.Join(dir, "tgad.toml"), filepath.Join(dir, "t", "s")
	err := os.WriteFile(config, fmt.Appendf(nil, configuration, world.URL[:at], world.URL[at+1:], licence, window), 0o600)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(self), "tgad"), "serve", "--data", filepath.Join(dir, "store"), "--socket", socket, "--config", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	for range 1000 { // a daemon that died leaves its socket, at which nobody listens
		conn, err := dial(context.Background(), "", "")
		if err == nil {
			asks := &http.Client{Transport: &http.Transport{DialContext: dial}}
			return func(ctx context.Context, o order) (adapter.Answer, error) {
				return ask(ctx, asks, world.URL[at+1:], o)
			}, conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.New("the daemon does not listen")
}

// ask has the daemon make a call.
func ask(ctx context.Context, client *http.Client, tool string, o order) (a adapter.Answer, err error) {
	call, err := json.Marshal(map[string]any{
		"tool_server": "payments", "tool_name": tool, "idempotency_key": o.Key, "args": map[string]any{"key": o.Key, "amount": o.Amount},
	})
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://tgad/v1/tool-calls", bytes.NewReader(call))
	if err != nil {
		return a, err
	}
	req.Header.Set("Tgad-Client", "tgad-adapter-temporal")
	reply, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, reply.Body.Close()) }()
	var said struct {
		State  string `json:"state"`
		Code   string `json:"code"`
		Detail string `json:"detail"`
		Result struct {
			Receipt int64 `json:"receipt"`
		} `json:"result"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&said); err != nil {
		return a, err
	}
	switch {
	case said.Code == "EFFECT_IN_DOUBT":
		return adapter.Answer{Outcome: adapter.InDoubt, Detail: said.Detail}, nil
	case said.State == "COMPLETED":
		return adapter.Answer{Outcome: adapter.Completed, Receipt: said.Result.Receipt}, nil
	}
	return a, fmt.Errorf("%s: %s", said.Code, said.Detail)
}
