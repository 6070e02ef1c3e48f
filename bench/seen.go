package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/bench/internal/load"
	"github.com/tgad/tgad/internal/ui"
	_ "github.com/tgad/tgad/internal/verify/sqlitecheck" // the driver of the index of lists
	"github.com/tgad/tgad/schemas/wire"
)

// seenCallers is how many callers call at once while the cost of observing a daemon is measured.
const seenCallers = 16

// look is one way to observe a daemon.
type look struct {
	name   string
	config string            // what its configuration has more
	env    map[string]string // of the process, while it starts
	// begin starts what looks at the daemon; end ends that.
	begin func(*served) (end func() error, err error)
	// behind is the metric of the work that is still to be done after the calls.
	behind string
}

// looks returns the ways to observe a daemon. The first is not to observe it.
func (s *suite) looks(sink string) ([]look, error) {
	secret := filepath.Join(s.dir, "hook.secret")
	if err := os.WriteFile(secret, []byte("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"), 0o600); err != nil {
		return nil, err
	}
	return []look{
		{name: "nobody"},
		{name: "list_index = true", config: "[store]\nlist_index = true\n", behind: "tgad_lists_behind"},
		{name: "spans to a collector", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": sink, "OTEL_BSP_SCHEDULE_DELAY": "200"}},
		{name: "a page of tgad ui", begin: page},
		{name: "audit records into a file", behind: "tgad_audit_lag",
			config: fmt.Sprintf("[[audit]]\nid = \"file\"\ntype = \"file\"\npath = %q\n", filepath.Join(s.dir, "audit.ndjson"))},
		{name: "audit records to a webhook", behind: "tgad_audit_lag",
			config: fmt.Sprintf("[[audit]]\nid = \"hook\"\ntype = \"webhook\"\nurl = %q\nsecret_file = %q\n", sink, secret)},
	}, nil
}

// page opens the list of calls in a web view of the daemon, and loads it again whenever the view
// says that something has changed, as a browser does.
func page(s *served) (end func() error, err error) {
	view := ui.New(s.client, ui.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	var over sync.WaitGroup
	served := make(chan error, 1)
	over.Go(func() { served <- view.Serve(ctx, l) })
	end = func() error { stop(); over.Wait(); return <-served }
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	browser, at := &http.Client{Jar: jar}, "http://"+l.Addr().String()
	get := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+path, nil)
		if err != nil {
			return nil, err
		}
		resp, err := browser.Do(req)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.Join(fmt.Errorf("%s: %s", path, resp.Status), resp.Body.Close())
		}
		return resp, err
	}
	read := func(path string) error {
		resp, err := get(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	if err := read(view.Login()); err != nil {
		return nil, errors.Join(err, end())
	}
	if err := read("/traces"); err != nil {
		return nil, errors.Join(err, end())
	}
	events, err := get("/live")
	if err != nil {
		return nil, errors.Join(err, end())
	}
	over.Go(func() {
		defer events.Body.Close()
		for lines := bufio.NewScanner(events.Body); lines.Scan(); {
			if lines.Text() == "event: change" && read("/traces") != nil {
				return // the view has ended
			}
		}
	})
	return end, nil
}

// looked is a daemon that is observed.
type looked struct {
	look
	*served
	makers []*load.Maker
	took   []float64 // µs of CPU of a call, a block each
	rates  []float64 // calls per second
}

// seen measures what it costs a daemon to be observed. The daemons make blocks of calls in turns.
// The processor time is that of the whole process, until the work after the calls is done too.
func (s *suite) seen(blocks, calls int) ([]string, error) {
	sink, err := newToolServer()
	if err != nil {
		return nil, err
	}
	s.closing(sink.srv.Close)
	looks, err := s.looks(sink.url)
	if err != nil {
		return nil, err
	}
	all := make([]*looked, 0, len(looks))
	for i, l := range looks {
		x, err := s.lookedAt(filepath.Join(s.dir, "seen-"+strconv.Itoa(i)), l, sink)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		all = append(all, x)
	}
	for block := range blocks + 1 {
		for _, x := range all {
			if err := x.block(calls, block > 0); err != nil {
				return nil, fmt.Errorf("%s: %w", x.name, err)
			}
		}
	}
	facts := make([]string, len(all))
	for i, x := range all {
		ratios := make([]float64, blocks)
		for b := range ratios {
			ratios[b] = x.took[b] / all[0].took[b]
		}
		facts[i] = fmt.Sprintf("seen by   %s: %.0f µs of CPU a call, %.2f × (%.2f to %.2f) that of nobody; %.0f calls a second",
			x.name, middle(x.took), middle(ratios), slices.Min(ratios), slices.Max(ratios), middle(x.rates))
	}
	return facts, nil
}

func (s *suite) lookedAt(dir string, l look, tool *toolServer) (_ *looked, err error) {
	for name, value := range l.env {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.Unsetenv(name)) }()
	}
	d, err := serve(dir, tool.url, 1<<10, l.config, nil)
	if err != nil {
		return nil, err
	}
	s.closing(d.close)
	x := &looked{look: l, served: d}
	for range seenCallers {
		x.makers = append(x.makers, load.New(d.size))
	}
	if l.begin != nil {
		end, err := l.begin(d)
		if err != nil {
			return nil, err
		}
		s.closing(end)
	}
	return x, nil
}

// block makes calls by all callers and waits until the work after them is done.
func (x *looked) block(calls int, counts bool) error {
	before, start := cpuTime(), time.Now()
	errs := make([]error, len(x.makers))
	var over sync.WaitGroup
	for w, m := range x.makers {
		over.Go(func() {
			for range calls / len(x.makers) {
				res, err := x.client.Call(context.Background(), load.CallRequest(m, x.size))
				if err == nil {
					err = res.Err()
				}
				if err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	over.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for x.behind != "" {
		n, err := x.metric(x.behind)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if x.env != nil {
		time.Sleep(300 * time.Millisecond) // until the last spans have gone
	}
	if made := float64(calls / len(x.makers) * len(x.makers)); counts {
		x.took = append(x.took, (cpuTime()-before)/made*1e6)
		x.rates = append(x.rates, made/took.Seconds())
	}
	return nil
}

// metric asks the daemon for the sum of a metric.
func (x *looked) metric(name string) (sum float64, err error) {
	text, err := x.metrics()
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllSubmatch(text, -1)
	if found == nil {
		return 0, fmt.Errorf("no metric %s", name)
	}
	for _, m := range found {
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (s *served) metrics() (_ []byte, err error) {
	hc := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", s.socket)
	}, DisableKeepAlives: true}}
	resp, err := hc.Get("http://" + wire.Host + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return io.ReadAll(resp.Body)
}

func middle(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
