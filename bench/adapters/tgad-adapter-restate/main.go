// Command tgad-adapter-restate is the adapter of Restate. The charge is a run block of a service, and the
// key is the idempotency key of its invocation. The argument "once" sets a retry policy of one attempt for
// each invocation. With "tgad" the run block charges through tgad.
//
// The server is the program restate-server, beside this one as install.sh puts it or in PATH. It runs outside
// of the service and is not killed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	"github.com/restatedev/sdk-go/server"

	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/internal/killtest/engines"
)

const (
	service = "Payments"
	handler = "Charge"
)

type order struct {
	Key    string
	Amount int
}

// ports are where everything listens, in a file of the run's directory.
type ports struct{ Node, Ingress, Admin, Service int }

type worker struct{ ingress *ingress.Client }

func main() {
	name, variant := engines.Variant("Restate server 1.7.12", "one attempt")
	adapter.Main(adapter.Engine{
		Name:    name,
		Servers: servers,
		Start: func(ctx context.Context, dir string, world adapter.World) (adapter.Worker, error) {
			return start(ctx, dir, world, variant)
		},
	})
}

func servers(ctx context.Context, dir string) (func() error, error) {
	program, err := program()
	if err != nil {
		return nil, err
	}
	at, err := free()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(at)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("base-dir = %q\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\nbind-port = %d\ndisable-telemetry = true\n[ingress]\nbind-port = %d\n[admin]\nbind-port = %d\n",
		filepath.Join(dir, "restate"), at.Node, at.Ingress, at.Admin)
	file := filepath.Join(dir, "restate.toml")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ports"), raw, 0o600), os.WriteFile(file, []byte(config), 0o600)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "restate.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--config-file", file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return nil, err
	}
	stop := func() error {
		// The server's data is not needed any more, and an orderly end would take seconds.
		err := cmd.Process.Kill()
		var exit *exec.ExitError
		if waitErr := cmd.Wait(); !errors.As(waitErr, &exit) {
			err = errors.Join(err, waitErr)
		}
		return err
	}
	for range 600 {
		if reached(ctx, at.Admin, "/health") && reached(ctx, at.Ingress, "/restate/health") {
			return stop, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	said, err := os.ReadFile(log.Name())
	return nil, errors.Join(fmt.Errorf("restate-server has not answered in a minute: %s", said), err, stop())
}

// program finds restate-server: where npm puts it beside this program, or in PATH.
func program() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server")
	if path, err := exec.LookPath(beside); err == nil {
		return path, nil
	}
	return exec.LookPath("restate-server")
}

// free chooses ports that nobody listens on. All are held until all are chosen.
func free() (p ports, err error) {
	for _, port := range []*int{&p.Node, &p.Ingress, &p.Admin, &p.Service} {
		l, listenErr := net.Listen("tcp", "127.0.0.1:0")
		if listenErr != nil {
			return p, errors.Join(err, listenErr)
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

func reached(ctx context.Context, port int, path string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, local(port)+path, nil)
	if err != nil {
		return false
	}
	reply, err := http.DefaultClient.Do(req)
	return err == nil && reply.Body.Close() == nil && reply.StatusCode == http.StatusOK
}

func local(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

func start(ctx context.Context, dir string, world adapter.World, variant string) (adapter.Worker, error) {
	step, err := engines.NewStep(ctx, dir, world, variant)
	if err != nil {
		return nil, err
	}
	var at ports
	raw, err := os.ReadFile(filepath.Join(dir, "ports"))
	if err == nil {
		err = json.Unmarshal(raw, &at)
	}
	if err != nil {
		return nil, err
	}
	var options []restate.ServiceDefinitionOption
	if variant == engines.Once {
		options = append(options, restate.WithInvocationRetryPolicy(restate.WithMaxRetryAttempts(1), restate.KillOnMaxAttempts()))
	}
	payments := restate.NewService(service, options...).Handler(handler, restate.NewServiceHandler(func(ctx restate.Context, o order) (adapter.Answer, error) {
		return restate.Run(ctx, func(ctx restate.RunContext) (adapter.Answer, error) {
			return step(ctx, o.Key, o.Amount)
		})
	}))
	quiet := slog.NewTextHandler(io.Discard, nil)
	failed := make(chan error, 1)
	go func() {
		failed <- server.NewRestate().WithLogger(quiet, true).Bind(payments).Start(ctx, fmt.Sprintf("127.0.0.1:%d", at.Service))
	}()
	select {
	case err := <-failed:
		return nil, err
	case <-time.After(100 * time.Millisecond): // it listens
	}
	return &worker{ingress.NewClient(local(at.Ingress))}, register(ctx, dir, at)
}

// register tells the server where the service is, once in a run.
func register(ctx context.Context, dir string, at ports) error {
	done := filepath.Join(dir, "registered")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	body := fmt.Sprintf(`{"uri":%q,"force":true}`, local(at.Service))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, local(at.Admin)+"/deployments", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(reply.Body)
	if err = errors.Join(err, reply.Body.Close()); err != nil {
		return err
	}
	if reply.StatusCode/100 != 2 {
		return fmt.Errorf("registering the service: %s: %s", reply.Status, said)
	}
	return os.WriteFile(done, nil, 0o600)
}

func (w *worker) Call(ctx context.Context, key string, amount int) (adapter.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	a, err := ingress.Service[order, adapter.Answer](w.ingress, service, handler).Request(ctx, order{key, amount}, restate.WithIdempotencyKey(key))
	return says(ctx, a, err)
}

func (w *worker) Status(ctx context.Context, key string) (adapter.Answer, error) {
	a, err := ingress.ServiceInvocationByIdempotencyKey[adapter.Answer](w.ingress, service, handler, key).Output(ctx)
	return says(ctx, a, err)
}

// says reads the answer of the server.
func says(ctx context.Context, a adapter.Answer, err error) (adapter.Answer, error) {
	var none *ingress.InvocationNotFoundError
	var runs *ingress.InvocationNotReadyError
	var ended ingress.Error
	switch {
	case err == nil:
		return a, nil
	case errors.As(err, &none):
		return adapter.Answer{Outcome: adapter.Unknown}, nil
	case errors.As(err, &runs) || ctx.Err() != nil:
		return adapter.Answer{Outcome: adapter.Running}, nil
	case errors.As(err, &ended):
		// Its attempts are used up. The last one may have charged: the service died in it.
		return adapter.Answer{Outcome: adapter.InDoubt, Detail: err.Error()}, nil
	}
	return adapter.Answer{}, err
}
