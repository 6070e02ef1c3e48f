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

// maxProfile limits the duration of a profile: profiling slows the process down.
const maxProfile = time.Minute

// snapshots are the profiles of one moment.
var snapshots = []string{"allocs", "goroutine", "heap", "threadcreate"}

// timed is a profile over a period.
type timed struct {
	start    func(io.Writer) error
	stop     func()
	byItself time.Duration // the period if the request names none
}

var timedProfiles = map[string]timed{
	"profile": {pprof.StartCPUProfile, pprof.StopCPUProfile, 30 * time.Second},
	"trace":   {trace.Start, trace.Stop, time.Second},
}

// profiling is held while a profile is taken. It is global because a profile is of the whole process.
var profiling sync.Mutex

// profile answers GET /debug/pprof/{name} in the form that go tool pprof and go tool trace read.
// Package net/http/pprof would do the same, but its HTML pages add 0.3 MB to the program.
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
		_ = pprof.Lookup(name).WriteTo(bounded{o.w}, 0) // an error means that the client is gone
		return nil, nil
	}
	if err := p.start(bounded{o.w}); err != nil {
		return nil, tga.Errorf(tga.StateConcurrentExecution, "%w: somebody else in this process takes one", err)
	}
	o.status = http.StatusOK
	o.hold(last)
	p.stop()
	_ = bound(o.w) // if the connection fails, so does the write
	return nil, nil
}

// hold waits for d, or until the client is gone or the daemon drains.
func (o operating) hold(d time.Duration) {
	ctx, stop := context.WithTimeout(o.r.Context(), d)
	defer stop()
	select {
	case <-ctx.Done():
	case <-o.d.drain:
	}
}
