package attempt

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// awayLog is a log that is away. The first request ends the shim.
type awayLog struct {
	script
	end func()
}

func (l *awayLog) GiveUp(context.Context, tga.ID, runtime.Permit, string, time.Duration) error {
	l.end()
	return tga.Errorf(tga.StoreUnavailable, "the log is away")
}

// TestPermitThatTheLogWasNotToldOfStaysNoted: a shim ends while it gives up the permit of an earlier one and the log is away. The next shim
// finds the note.
func TestPermitThatTheLogWasNotToldOfStaysNoted(t *testing.T) {
	log := &awayLog{}
	s, err := NewDesk(Options{Server: "fake", Log: log, Logger: slog.New(slog.DiscardHandler), State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	log.end = s.end
	book, err := paper.OpenBook(filepath.Join(t.TempDir(), "book"))
	if err != nil {
		t.Fatal(err)
	}
	trace, permit := NewID().String(), runtime.Permit{1}.String()
	if err := book.Change(trace, func(string) string { return permit }); err != nil {
		t.Fatal(err)
	}
	NewPermits(s, book).TakeOver()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	noted := map[string]string{}
	if err := book.Each("", func(name, value string) { noted[name] = value }); err != nil || noted[trace] != permit {
		t.Errorf("noted %v, %v", noted, err)
	}
}
