// Package embed has a daemon for a store inside a process that needs one, or uses the daemon
// that another process has for it.
package embed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// Daemon is a daemon inside this process, for a store that has none of its own. Processes
// that share a store share the daemon of the one that came first; when that ends, another
// takes over. So they may be started, killed and restarted in any order, and the verbs
// of the command reach the store by the same socket.
type Daemon struct {
	// Socket is where the daemon listens, in this process or in another one.
	Socket string

	near daemon.Near                   // what this process asks of a daemon of its own
	conf atomic.Pointer[config.Config] // that holds, or will where this process takes over
	next atomic.Pointer[config.Config] // while it is brought about
	end  context.CancelFunc
	over sync.WaitGroup
}

// Pauses between tries to have the store.
const (
	takeOverPause = 50 * time.Millisecond
	brokenPause   = time.Second
)

// Start has a daemon for the store in dir. It returns once one is ready, in this process
// or in another. conf is the daemon's configuration, nil for [DefaultConfig].
func Start(ctx context.Context, dir string, conf *config.Config, log *slog.Logger) (*Daemon, error) {
	return start(ctx, dir, conf, log, how{})
}

// Alone is Start of a store that is shared with no process: whoever else starts with it while it is
// held reaches nobody, and Alone fails where another process has it. The rules of conf are for this
// process's calls only.
func Alone(ctx context.Context, dir string, conf *config.Config, log *slog.Logger) (*Daemon, error) {
	return start(ctx, dir, conf, log, how{alone: true})
}

// how a daemon is started.
type how struct {
	idle  bool // it takes up nothing
	alone bool // and is for this process alone
}

func start(ctx context.Context, dir string, conf *config.Config, log *slog.Logger, how how) (*Daemon, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	socket, err := socketOf(dir)
	if err != nil {
		return nil, err
	}
	if how.alone {
		socket += "1" // where nobody who shares the store looks
	}
	if conf == nil {
		if conf, err = DefaultConfig(); err != nil {
			return nil, err
		}
	}
	e := &Daemon{Socket: socket}
	e.conf.Store(conf)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	e.end = end
	ready, failed := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	e.over.Go(func() {
		for life.Err() == nil {
			err := daemon.Run(life, daemon.Options{
				Data: dir, Socket: socket, Config: e.conf.Load(), Logger: log, Reload: e.again, Idle: how.idle, Near: &e.near,
				Ready: func() { once.Do(func() { close(ready) }) },
			})
			pause := brokenPause
			if errors.Is(err, tga.StateLockAcquireFailed) && !how.alone {
				// Another process has the store. It serves this one too.
				once.Do(func() { close(ready) })
				pause = takeOverPause
			} else if err != nil {
				log.Error("the store stopped", "data", dir, "error", err)
				select {
				case failed <- err:
				default:
				}
			}
			select {
			case <-time.After(pause):
			case <-life.Done():
			}
		}
	})
	select {
	case <-ready:
		return e, nil
	case err = <-failed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	e.Close()
	return nil, err
}

// Visit has a daemon for a store that is there, to settle a call: the one of the process that
// has it, else one in this process. That one approves nothing and takes nothing up: what the
// store's shims approve is theirs to say, and it knows none of their tool servers. Of of, which may
// be nil, it takes the key ring.
func Visit(ctx context.Context, dir string, of *config.Config) (*Daemon, error) {
	if all, err := os.ReadDir(dir); err != nil || len(all) == 0 {
		return nil, tga.Errorf(tga.NotFound, "there is no store in %s", dir)
	}
	conf, err := assemble.Parse("", []byte(`
[limits]
drain_timeout = "1s"
[[rule]]
decision = "NEEDS_APPROVAL"
`))
	if err != nil {
		return nil, err
	}
	if of != nil {
		conf.Keyring = of.Keyring
		conf.Keyring.Path, conf.Keyring.KEKFile = of.Path(of.Keyring.Path), of.Path(of.Keyring.KEKFile)
	}
	return start(ctx, dir, conf, nil, how{idle: true})
}

// Reload has the daemon go on with another configuration: all of it, or nothing. Where another process has the store,
// its configuration holds, and this one's only once this process takes over; own is then false.
func (e *Daemon) Reload(conf *config.Config) (own bool, err error) {
	e.next.Store(conf)
	defer e.next.Store(nil)
	if own, err = e.near.Reload(); err == nil {
		e.conf.Store(conf)
	}
	return own, err
}

// again is the configuration that [Daemon.Reload] brings about.
func (e *Daemon) again() (*config.Config, error) {
	if conf := e.next.Load(); conf != nil {
		return conf, nil
	}
	return nil, tga.Errorf(tga.ValidationError, "this daemon is inside of another program, which reads its file of configuration on SIGHUP")
}

// Client returns a client of the store. Where this process has it, nothing goes through the
// socket but streams.
func (e *Daemon) Client(o client.Options) *client.Client {
	o.Exchange = e.near.Exchange
	return client.New(e.Socket, o)
}

// Close ends this process's part. Calls under way come to their ends first.
func (e *Daemon) Close() {
	e.end()
	e.over.Wait()
}

// DefaultConfig is that of a store that only shims use: every call is approved, as it
// would be without tgad, and recorded; every tool is a write tool about which nothing is
// attested. Hints of tool servers count where a shim passes them on, which it does when it is told.
func DefaultConfig() (*config.Config, error) {
	return assemble.Parse("", []byte(`
allow_all = true
trust_hints = true

[limits]
request_bytes = "96MiB"
drain_timeout = "1s"
`))
}

// socketOf is the socket of the store in dir: beside it, or where its path is too long
// for a socket, in a directory for such.
func socketOf(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", tga.Errorf(tga.StoreUnavailable, "the store's directory: %w", err)
	}
	path := filepath.Join(abs, "run", "tgad.sock")
	// The daemon binds under a longer name first.
	if len(path)+17 <= daemon.MaxSocketPath {
		return path, nil
	}
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("tgad-%d", os.Getuid()))
	}
	// By the resolved path: two names of one directory are one store.
	// The directory itself is left to the engine to make: it takes an empty one for a disk
	// that is not mounted.
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		above := filepath.Dir(abs)
		if err = access.MkdirAll(above); err == nil {
			above, err = filepath.EvalSymlinks(above)
			real = filepath.Join(above, filepath.Base(abs))
		}
	}
	if err != nil {
		return "", tga.Errorf(tga.StoreUnavailable, "the store's directory: %w", err)
	}
	sum := tga.Sum([]byte(real))
	return filepath.Join(base, "tgad-mcp", sum.String()[:16], "s"), nil
}
