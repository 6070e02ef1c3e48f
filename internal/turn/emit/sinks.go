package emit

import (
	"context"
	"errors"
	"os"

	"github.com/tgad/tgad/schemas/tga"
)

// FileOptions say how a file of events is written.
type FileOptions struct {
	// Sync makes every event durable before the next. Without it a power cut may lose the last
	// events.
	Sync bool
}

// File appends each event as a line to a file. It creates a missing file with mode 0600. A last
// line that a crash cut off stays, on a line of its own.
func File(path string, o FileOptions) (Sink, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "file of events: %w", err)
	}
	if err := endLine(f); err != nil {
		return nil, errors.Join(tga.Errorf(tga.ValidationError, "file of events: %w", err), f.Close())
	}
	return &file{f: f, sync: o.Sync}, nil
}

// endLine ends a line that was cut off, so that the next event does not continue it.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = f.Write([]byte("\n"))
	return err
}

type file struct {
	f    *os.File
	sync bool
	torn bool // the last write left part of a line
}

func (s *file) Write(_ context.Context, e Event) error {
	line := make([]byte, 0, len(e.JSON)+2)
	if s.torn {
		line = append(line, '\n')
	}
	line = append(append(line, e.JSON...), '\n')
	n, err := s.f.Write(line)
	s.torn = n > 0 && n < len(line) || s.torn && n == 0
	if err == nil && s.sync {
		err = s.f.Sync()
	}
	return err
}

func (s *file) Close() error { return s.f.Close() }
