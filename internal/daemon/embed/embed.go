// Package embed runs a daemon for a store inside the calling process, or uses the daemon that
// another process runs for that store.
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

// Daemon is a daemon inside this process, for a store without a daemon process of its own.
// Processes that share a store share the daemon of the process that came first. When that process
// ends, another takes over. So they may be started, killed and restarted in any order, and the
// verbs of the command reach the store by the same socket.
type Daemon struct {
	// Socket is where the daemon listens, in this process or in another one.
	Socket string

	near daemon.Near                   // reaches the daemon if it is in this process
	conf atomic.Pointer[config.Config] // current, or for when this process takes over
	next atomic.Pointer[config.Config] // the new one, during Reload
	// opening is held while the daemon of this process opens the store with conf, and during Reload. Otherwise a
	// Reload in between would find no daemon to tell, and the one that opens would keep the old configuration.
	opening sync.Mutex
	end     context.CancelFunc
	over    sync.WaitGroup
}

// Pauses between tries to open the store.
const (
	takeOverPause = 50 * time.Millisecond
	brokenPause   = time.Second
)

// Start starts a daemon for the store in dir. It returns once a daemon of the store is ready, in this
// process or in another. conf is the daemon's configuration, nil for [DefaultConfig].
func Start(ctx context.Context, dir string, conf *config.Config, log *slog.Logger) (*Daemon, error) {
	return start(ctx, dir, conf, log, how{})
}

// Alone is Start for a store that no other process shares. It fails if another process has the store,
// and another process that starts with the store meanwhile does not reach this daemon. So the rules of
// conf apply to this process's calls only.
func Alone(ctx context.Context, dir string, conf *config.Config, log *slog.Logger) (*Daemon, error) {
	return start(ctx, dir, conf, log, how{alone: true})
}

// how a daemon is started.
type how struct {
	idle  bool // it recovers nothing, see daemon.Options.Idle
	alone bool // no other process reaches it
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
		socket += "1" // a path where processes that share the store do not look
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
			e.opening.Lock()
			opened := sync.OnceFunc(e.opening.Unlock)
			err := daemon.Run(life, daemon.Options{
				Data: dir, Socket: socket, Config: e.conf.Load(), Logger: log, Reload: e.again, Idle: how.idle, Near: &e.near,
				Ready: func() { opened(); once.Do(func() { close(ready) }) },
			})
			opened()
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

// Visit returns a daemon for an existing store, to settle a call: the daemon of the process that has
// the store, else a new one in this process. The new one approves no call and recovers no trace,
// because it does not know what the store's shims approve, nor their tool servers. It uses the
// key ring of of, which may be nil, and reaches a bucket as of says.
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
		conf.Keyring, conf.Backup = of.Keyring, of.Backup
		conf.Backup.To = "" // a daemon keeps that one; a verb makes the one that it is asked for
		for _, path := range []*string{
			&conf.Keyring.Path, &conf.Keyring.KEKFile, &conf.Keyring.KEKSocket, &conf.Backup.Spool, &conf.Backup.CredentialsFile, &conf.Backup.CAFile,
		} {
			*path = of.Path(*path)
		}
	}
	return start(ctx, dir, conf, nil, how{idle: true})
}

// Reload applies another configuration to the daemon: all of it, or nothing. If another process has the store, own is
// false: that process's configuration stays, and conf applies only once this process takes over. While this process
// opens the store, Reload waits.
func (e *Daemon) Reload(conf *config.Config) (own bool, err error) {
	e.opening.Lock()
	defer e.opening.Unlock()
	e.next.Store(conf)
	defer e.next.Store(nil)
	if own, err = e.near.Reload(); err == nil {
		e.conf.Store(conf)
	}
	return own, err
}

// again is daemon.Options.Reload: it returns the configuration that [Daemon.Reload] applies.
func (e *Daemon) again() (*config.Config, error) {
	if conf := e.next.Load(); conf != nil {
		return conf, nil
	}
	return nil, tga.Errorf(tga.ValidationError, "this daemon is inside of another program, which reads its file of configuration on SIGHUP")
}

// Client returns a client of the store. If this process has the store, only streams go through the
// socket.
func (e *Daemon) Client(o client.Options) *client.Client {
	o.Exchange = e.near.Exchange
	return client.New(e.Socket, o)
}

// Close ends this process's part. Calls under way come to their ends first.
func (e *Daemon) Close() {
	e.end()
	e.over.Wait()
}

// DefaultConfig is the configuration of a store that only shims use. Every call is approved, as it
// would be without tgad, and recorded. Every tool is a write tool about which nothing is attested.
// Hints of tool servers count if a shim passes them on, which it does only if it is told to.
func DefaultConfig() (*config.Config, error) {
	return assemble.Parse("", []byte(`
allow_all = true
trust_hints = true

[limits]
request_bytes = "96MiB"
drain_timeout = "1s"
`))
}

// socketOf is the path of the socket for the store in dir: below dir, or, if that is too long for a
// socket, in a directory of the user's.
func socketOf(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", tga.Errorf(tga.StoreUnavailable, "the store's directory: %w", err)
	}
	path := filepath.Join(abs, "run", "tgad.sock")
	// The daemon first binds the socket under a name that is up to 17 bytes longer.
	if len(path)+17 <= daemon.MaxSocketPath {
		return path, nil
	}
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("tgad-%d", os.Getuid()))
	}
	// Use the resolved path: two names of one directory are one store. Do not make the directory
	// itself: the engine makes it, and refuses an empty one, which may be a disk that is not mounted.
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
