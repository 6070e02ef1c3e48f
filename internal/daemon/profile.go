package daemon

import (
	"context"
	"io"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// maxProfile bounds how long a profile is taken: it costs what it measures.
const maxProfile = time.Minute

// snapshots are the profiles that are of a moment.
var snapshots = []string{"allocs", "goroutine", "heap", "threadcreate"}

// timed is a profile that takes time, by default so long.
type timed struct {
	start    func(io.Writer) error
	stop     func()
	byItself time.Duration
}

var timedProfiles = map[string]timed{
	"profile": {pprof.StartCPUProfile, pprof.StopCPUProfile, 30 * time.Second},
	"trace":   {trace.Start, trace.Stop, time.Second},
}

// profiling is held while a profile is taken. It is the process's, as the profile is.
var profiling sync.Mutex

// profile answers GET /debug/pprof/{name} in the form that go tool pprof and go tool trace read.
// Package net/http/pprof does too, and has pages of its own, which are 0.3 MB of a program.
func (o operating) profile() (any, error) {
	if err := o.everything("take a profile of the process"); err != nil {
		return nil, err
	}
	name := o.r.PathValue("name")
	p, takesTime := timedProfiles[name]
	if !takesTime && !slices.Contains(snapshots, name) {
		return nil, tga.Errorf(tga.NotFound, "there is no profile %.80q: want allocs, goroutine, heap, profile, threadcreate or trace", name)
	}
	last := p.byItself
	if s := o.r.URL.Query().Get("seconds"); s != "" {
		n, err := strconv.Atoi(s)
		if last = time.Duration(n) * time.Second; err != nil || n < 1 || n > int(maxProfile/time.Second) {
			return nil, tga.Errorf(tga.ValidationError, "seconds is %.20q: want 1 to %d", s, maxProfile/time.Second)
		}
	}
	if !profiling.TryLock() {
		return nil, tga.Errorf(tga.StateConcurrentExecution, "another profile is being taken: the runtime takes one at a time")
	}
	defer profiling.Unlock()
	o.w.Header().Set("Content-Type", "application/octet-stream")
	if !takesTime {
		o.status = http.StatusOK
		_ = pprof.Lookup(name).WriteTo(o.w, 0) // who has gone away has no use for the rest
		return nil, nil
	}
	if err := p.start(o.w); err != nil {
		return nil, tga.Errorf(tga.StateConcurrentExecution, "%w: somebody else in this process takes one", err)
	}
	o.status = http.StatusOK
	o.hold(last)
	p.stop()
	return nil, nil
}

// hold waits, until the client is gone or the daemon ends.
func (o operating) hold(d time.Duration) {
	ctx, stop := context.WithTimeout(o.r.Context(), d)
	defer stop()
	select {
	case <-ctx.Done():
	case <-o.d.drain:
	}
}
