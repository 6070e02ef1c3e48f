package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// toolServer is a tool over HTTP that answers at once: the daemon has no tools in its
// own process. Its round trip is part of what call_socket measures, and is measured by
// itself in call_http.
type toolServer struct {
	url string
	srv *http.Server
}

func newToolServer() (*toolServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if _, err := io.WriteString(w, `{"paid":true}`); err != nil {
			return // the caller went away
		}
	})}
	go srv.Serve(l) // ends with Close
	return &toolServer{url: "http://" + l.Addr().String(), srv: srv}, nil
}

// served is a daemon in this process, on a socket.
type served struct {
	client *client.Client
	inside *runtime.Runtime // what the daemon itself asks
	signer *capability.Ring
	socket string
	size   int
	stop   context.CancelFunc
	done   chan error
}

// serve runs a daemon on a store in dir, which tune may change; nil leaves it. more is what its configuration has
// beside what all have. The socket gets a directory of its own, whose
// path is short enough for a socket's name.
func serve(dir, toolURL string, size int, more string, tune func(*engine.Options)) (*served, error) {
	run, err := os.MkdirTemp("", "tgad")
	if err != nil {
		return nil, err
	}
	// The program is the daemon's remote supervisor too: it signs what it appends.
	signer, err := capability.Open(filepath.Join(run, "private"), "bench", "tgad", capability.Options{Lifetime: capability.MaxLifetime})
	if err != nil {
		return nil, err
	}
	set, err := signer.JWKS()
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(run, "public.jwks")
	if err := os.WriteFile(keys, set, 0o600); err != nil {
		return nil, err
	}
	cfg, err := assemble.Parse("bench.toml", fmt.Appendf(nil, `
allow_all = true
[approval]
self = true
[[supervisor]]
uid = [%d]
keys_file = %q
issuer = "bench"
[[server]]
id = "payments"
type = "http"
url = %q
concurrency = 1024
[[server]]
id = "own"
type = "external"
[[tool]]
server = "payments"
name = "charge"
licence = "dedupe_key"
window = "24h"
%s`, os.Geteuid(), keys, toolURL, more))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &served{socket: filepath.Join(run, "run", "s"), size: size, signer: signer, stop: stop, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() {
		err := daemon.Run(ctx, daemon.Options{
			Data: dir, Socket: s.socket, Config: cfg, Version: "bench",
			Logger: slog.New(slog.DiscardHandler), Ready: func() { close(ready) },
			Tune:   tune,
			Opened: func(rt *runtime.Runtime) { s.inside = rt },
		})
		s.done <- errors.Join(err, os.RemoveAll(run))
	}()
	select {
	case <-ready:
	case err := <-s.done:
		stop()
		return nil, fmt.Errorf("daemon: %w", err)
	}
	s.client = client.New(s.socket, client.Options{Name: "bench", MaxIdle: 256})
	return s, nil
}

func (s *served) close() error {
	err := s.client.Close()
	s.stop()
	return errors.Join(err, <-s.done)
}

var syncsMetric = regexp.MustCompile(`(?m)^tgad_log_syncs_total (\S+)$`)

// syncs asks the daemon's metrics; 0 where they do not answer.
func (s *served) syncs() uint64 {
	text, err := s.metrics()
	if err != nil {
		return 0
	}
	m := syncsMetric.FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return 0
	}
	return uint64(n)
}

// call measures governed calls over the socket.
func (s *served) call(writers int) *measure.Subject {
	makers := make([]*load.Maker, writers)
	for w := range makers {
		makers[w] = load.New(s.size)
	}
	return &measure.Subject{Case: "call_socket", Writers: writers, Bytes: s.size, Syncs: s.syncs, Op: func(n int) (time.Duration, error) {
		req := load.CallRequest(makers[n], s.size)
		start := time.Now()
		res, err := s.client.Call(context.Background(), req)
		if err == nil {
			err = res.Err()
		}
		return time.Since(start), err
	}}
}

// signed seals request, approval and call as one append, with the token of a remote
// supervisor in the approval.
func (s *served) signed(t *load.Trace) (chain.Batch, error) {
	var b chain.Batch
	seal := func(a *tga.Artifact) error {
		b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a})
		return a.Seal()
	}
	request := t.MakeRequest()
	if err := seal(request); err != nil {
		return b, err
	}
	p := request.Request.Proposal
	token, err := s.signer.Mint(context.Background(), runtime.Grant{
		TraceID: request.TraceID, PlanID: request.PlanID, Server: p.ToolServer, Tool: p.ToolName, ArgsDigest: tga.Sum(p.Args),
	})
	if err != nil {
		return b, err
	}
	decision := t.MakeDecision()
	decision.Decision.MintedCapability = token
	if err := seal(decision); err != nil {
		return b, err
	}
	call := t.MakeCall()
	call.Call.CapabilityDigest = tga.Sum([]byte(token))
	return b, seal(call)
}

// batchItems is how many appends one batch request of call_socket_batch has.
const batchItems = 16

// batch measures requests of batchItems fused appends, each to a trace of its own. A
// latency is that of the request; the other figures are per append. Sealing and leases
// are outside the latency and inside the rest.
func (s *served) batch(writers int) *measure.Subject {
	makers := make([]*load.Maker, writers)
	for w := range makers {
		makers[w] = load.New(s.size)
	}
	return &measure.Subject{Case: "call_socket_batch", Writers: writers, Bytes: s.size, Each: batchItems, Syncs: s.syncs, Op: func(n int) (time.Duration, error) {
		ctx := context.Background()
		items, leases := make([]wire.BatchItem, batchItems), make([]wire.Lease, batchItems)
		for i := range items {
			t := makers[n].Next()
			b, err := s.signed(t)
			if err != nil {
				return 0, err
			}
			if leases[i], err = s.client.Lease(ctx, t.ID, time.Minute); err != nil {
				return 0, err
			}
			items[i].TraceID, items[i].Lease = t.ID, leases[i].Lease
			for _, a := range b.Artifacts {
				items[i].Artifacts = append(items[i].Artifacts, wire.NewArtifact{Artifact: a.Artifact.Canonical})
			}
		}
		start := time.Now()
		answers, err := s.client.AppendBatch(ctx, items)
		took := time.Since(start)
		if err != nil {
			return 0, err
		}
		for i, a := range answers {
			if a.Problem != nil {
				return 0, a.Problem.Err()
			}
			if _, err := s.client.Release(ctx, leases[i]); err != nil {
				return 0, err
			}
		}
		return took, nil
	}}
}
