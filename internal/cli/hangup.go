package cli

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// OutliveHangup keeps SIGHUP from ending a process that reads its files only at its start. By
// default SIGHUP ends a process at once, and a call under way would be in doubt. The process
// logs that it reads nothing again.
func OutliveHangup(log *slog.Logger) (stop func()) {
	return heedHangups(catchHangups(), func() {
		log.Warn("SIGHUP is ignored: files are read at the start; stop the process with SIGTERM and start it again")
	})
}

// OutliveReaders keeps a process alive when a pipe that is its stdout or stderr has lost its reader, until stop is
// called. By default Go ends such a process at the next write: a daemon would die of a line for its log, with
// every call under way in doubt. While the signal is caught, the write fails instead.
//
// A verb whose work is its output alone, such as export, is not to outlive its reader.
func OutliveReaders() (stop func()) {
	caught := make(chan os.Signal, 1) // never read: the error of the write says it
	signal.Notify(caught, syscall.SIGPIPE)
	return func() { signal.Stop(caught) }
}

// catchHangups catches SIGHUP for [heedHangups]. From here on no SIGHUP ends the process.
//
// It catches the signal instead of ignoring it, because child processes inherit an ignored
// signal, and tool servers need theirs.
func catchHangups() chan os.Signal {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	return caught
}

// heedHangups calls do for each caught signal until stop is called. When stop returns, do is not running.
func heedHangups(caught chan os.Signal, do func()) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case <-caught:
				do()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(caught)
		close(over)
		<-gone
	}
}
