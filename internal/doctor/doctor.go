//go:build unix

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/promtext"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// Examine makes all checks, one after the other. dir is the store's directory; with "" the
// checks that need it are left out.
func Examine(ctx context.Context, c *client.Client, socket, dir string) iter.Seq[Finding] {
	return func(yield func(Finding) bool) {
		checks := []func() Finding{
			func() Finding { return socketFile(socket) },
			func() Finding { return daemon(ctx, c) },
			func() Finding { return clock(ctx, c) },
			func() Finding { return told(ctx, c) },
			func() Finding { return backedUp(ctx, c) },
		}
		if dir == "" {
			checks = append(checks, func() Finding {
				return Finding{"store", Warn, "no --data and no $TGAD_DATA: the store and its disk are not looked at", ""}
			})
		} else {
			checks = append(checks,
				func() Finding { return directory(dir) },
				func() Finding { return fileSystem(dir) },
				func() Finding { return freeSpace(dir, lowWater(ctx, c)) },
				func() Finding { return syncLatency(dir) },
				func() Finding { return lockHolder(dir) },
				func() Finding { return format(dir) },
			)
		}
		for _, check := range checks {
			if ctx.Err() != nil || !yield(check()) {
				return
			}
		}
	}
}

func socketFile(path string) Finding {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Finding{"socket", Bad, path + " is not there", "Start the daemon: tgad serve --data DIR. If it listens elsewhere, set --socket or $TGAD_SOCKET."}
	case err != nil:
		return Finding{"socket", Bad, err.Error(), ""}
	case st.Mode().Type() != fs.ModeSocket:
		return Finding{"socket", Bad, fmt.Sprintf("%s is no socket (%s)", path, st.Mode()), "Move it away; the daemon does not remove what it did not make."}
	case st.Mode().Perm()&0o007 != 0:
		return Finding{"socket", Bad, fmt.Sprintf("%s has mode %#o: everybody may call tools", path, st.Mode().Perm()), "chmod 660, and keep its directory at 750."}
	}
	parent, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return Finding{"socket", Bad, err.Error(), ""}
	}
	if parent.Mode().Perm()&0o022 != 0 && parent.Mode()&fs.ModeSticky == 0 {
		return Finding{"socket", Warn, fmt.Sprintf("its directory has mode %#o: others may put a socket of their own there", parent.Mode().Perm()), "chmod 750 the directory."}
	}
	return Finding{"socket", OK, fmt.Sprintf("%s, mode %#o", path, st.Mode().Perm()), ""}
}

func daemon(ctx context.Context, c *client.Client) Finding {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	start := time.Now()
	if err := c.Live(ctx); err != nil {
		return Finding{"daemon", Bad, err.Error(), "If it runs: its log says why it does not answer."}
	}
	took := time.Since(start)
	if err := c.Healthy(ctx); err != nil {
		return Finding{"daemon", Bad, err.Error(), "tgad verify says what is missing. Restore a backup, or tgad unfreeze --accept-loss."}
	}
	if err := c.Ready(ctx); err != nil {
		return Finding{"daemon", Warn, "answers, and is not ready: " + err.Error(), ""}
	}
	doubt, err := c.InDoubt(ctx)
	if err != nil {
		return Finding{"daemon", Warn, "is ready; the calls in doubt are not known: " + err.Error(), ""}
	}
	f := Finding{"daemon", OK, fmt.Sprintf("ready, answers in %s, %d calls in doubt", took.Round(10*time.Microsecond), len(doubt)), ""}
	if len(doubt) > 0 {
		f.Verdict, f.Remedy = Warn, "tgad in-doubt lists them; settle each with resolve or abandon."
	}
	return f
}

// metrics are the daemon's.
func metrics(ctx context.Context, c *client.Client) (promtext.Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	raw, err := c.Metrics(ctx)
	if err != nil {
		return promtext.Metrics{}, err
	}
	return promtext.Parse(raw)
}

// lateNotice is how long a receiver may fail to accept a notice before that is a warning.
const lateNotice = time.Minute

// told checks whether people are notified of what waits for them.
func told(ctx context.Context, c *client.Client) Finding {
	m, err := metrics(ctx, c)
	if err != nil {
		return Finding{"notify", Warn, "the daemon does not say whether people are told of what waits: " + err.Error(), ""}
	}
	late := m.By("tgad_notify_late_seconds", "notify")
	if len(late) == 0 {
		return Finding{"notify", OK, "nobody is told of what waits: the configuration has no [[notify]]", ""}
	}
	var bad []string
	for _, id := range slices.Sorted(maps.Keys(late)) {
		if s := time.Duration(late[id] * float64(time.Second)); s >= lateNotice {
			bad = append(bad, fmt.Sprintf("%s since %s", id, s.Round(time.Second)))
		}
	}
	if len(bad) > 0 {
		return Finding{"notify", Warn, "not told of what waits: " + strings.Join(bad, ", "), "tgad notify says why, and tgad notify --test tries it."}
	}
	return Finding{"notify", OK, fmt.Sprintf("%d receivers, none is late", len(late)), ""}
}

// oldBackup is the least age of the daemon's backup that is a warning.
const oldBackup = time.Minute

// backedUp checks whether the daemon's backup is current.
func backedUp(ctx context.Context, c *client.Client) Finding {
	m, err := metrics(ctx, c)
	if err != nil {
		return Finding{"backup", Warn, "the daemon does not say how old its backup is: " + err.Error(), ""}
	}
	every, err := m.Value("tgad_backup_every_seconds")
	if err != nil || every == 0 {
		return Finding{"backup", OK, "the daemon keeps none: the configuration has no [backup] to", ""}
	}
	age, err := m.Value("tgad_backup_age_seconds")
	if err != nil {
		return Finding{"backup", Warn, err.Error(), ""}
	}
	old := time.Duration(age * float64(time.Second)).Round(time.Second)
	for code := range m.By("tgad_backup_failed", "code") {
		return Finding{"backup", Warn, fmt.Sprintf("is %s old, and the newest try failed: %s", old, code), "The daemon's log has the error. The backup that is there can be restored."}
	}
	if limit := max(oldBackup, 3*time.Duration(every*float64(time.Second))); old > limit {
		return Finding{"backup", Warn, fmt.Sprintf("is %s old, and should be made every %gs", old, every), "If one takes long, raise [backup] share. The first one of a large store takes long."}
	}
	return Finding{"backup", OK, fmt.Sprintf("has what the store had %s ago", old), ""}
}

// clock checks whether the daemon has seen the wall clock jump.
func clock(ctx context.Context, c *client.Client) Finding {
	m, err := metrics(ctx, c)
	if err != nil {
		return Finding{"clock", Warn, "the daemon does not say whether the clock jumped: " + err.Error(), ""}
	}
	jumps, err := m.Value("tgad_clock_jumps_total")
	if err != nil {
		return Finding{"clock", Warn, err.Error(), ""}
	}
	by, err := m.Value("tgad_clock_jump_seconds")
	if err != nil {
		return Finding{"clock", Warn, err.Error(), ""}
	}
	if jumps == 0 {
		return Finding{"clock", OK, "has not jumped since the daemon began", ""}
	}
	return Finding{"clock", Warn, fmt.Sprintf("jumped %.0f times since the daemon began, the last time by %s", jumps, time.Duration(by*float64(time.Second)).Round(time.Millisecond)),
		"Unless the machine slept: look at its time service. Calls in doubt under dedupe_key wait until the clock has passed the newest time in the store."}
}

func directory(dir string) Finding {
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return Finding{"directory", Bad, err.Error(), "tgad serve makes it; name the one the daemon uses."}
	case !st.IsDir():
		return Finding{"directory", Bad, dir + " is no directory", ""}
	}
	found, err := access.CheckTree(dir)
	const remedy = "As the user of the store: chmod -R go= DIR. It holds what was called with which arguments."
	switch {
	case err != nil:
		return Finding{"directory", Bad, err.Error(), ""}
	case found.Refuse != "":
		return Finding{"directory", Bad, found.Refuse + "; the daemon refuses it", remedy}
	case found.Warn != "":
		return Finding{"directory", Warn, found.Warn, remedy}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Finding{"directory", Bad, err.Error(), ""}
	}
	return Finding{"directory", OK, fmt.Sprintf("%s, mode %#o", real, st.Mode().Perm()), ""}
}

// format opens the store as tgad verify does, unless another process has it open.
func format(dir string) Finding {
	if has, err := HasStore(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Finding{"format", Bad, err.Error(), ""}
	} else if !has {
		return Finding{"format", Warn, "there is no store yet", ""}
	}
	db, err := engine.OpenReadOnly(dir, engine.Options{})
	switch {
	case errors.Is(err, tga.StateLockAcquireFailed):
		return Finding{"format", OK, "the store is open; its holder could read it", ""}
	case errors.Is(err, tga.NotFound):
		return Finding{"format", Warn, "there is no store yet", ""}
	case err != nil:
		return Finding{"format", Bad, err.Error(), "tgad explain " + string(tga.CodeOf(err))}
	}
	s := db.Stats()
	if err := db.Close(); err != nil {
		return Finding{"format", Bad, err.Error(), ""}
	}
	if why := FrozenFor(s); why != "" {
		return Finding{"format", Bad, "the store is frozen: " + why, "tgad verify " + dir + ", then restore a backup, or tgad unfreeze --accept-loss."}
	}
	return Finding{"format", OK, fmt.Sprintf("store %s reads, opened %d times; %.1f MiB of log, %.1f MiB of it in %d full segments that are not compressed",
		s.StoreID, s.Incarnation, mib(s.LogBytes), mib(uint64(s.UncompressedBytes)), s.UncompressedSegments), ""}
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
