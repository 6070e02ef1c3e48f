//go:build unix

package demo

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Options of a demo.
type Options struct {
	Exe    string // the tgad executable
	Lab    string // the executable with the tool servers and callers
	Out    io.Writer
	JSON   bool // one object a line instead of text
	Colour bool
	Seed   uint64
	Points int    // kills per tool in part 3
	Keep   string // work here and leave everything there; "" = a temporary directory
}

// show is a demo in progress.
type show struct {
	printer
	Options
	dir    string
	charge *world // its tool honours keys
	opaque *world // its tool does not
}

// Run runs the demo and returns how many of its claims are false. An error means that it
// could not be run to its end.
func Run(ctx context.Context, o Options) (failed int, err error) {
	start := time.Now()
	s := &show{printer: printer{w: o.Out, json: o.JSON, colour: o.Colour}, Options: o}
	if err := s.prepare(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.cleanUp()) }()
	s.text("%s", s.bold("tgad demo"))
	s.text("A payments tool server, an agent that calls it, and kill -9.")
	s.text("Charges are counted in the tool server's own journal.")
	for _, part := range []func(context.Context) error{
		s.withoutTgad, s.throughTgad, s.killAtPoints, s.sameKey, s.settleDoubt, s.tamper,
	} {
		if err := part(ctx); err != nil {
			return s.failed(), err
		}
	}
	s.summary(time.Since(start))
	return s.failed(), nil
}

func (s *show) prepare() error {
	err := s.makeDir("")
	if err != nil {
		return err
	}
	if s.charge, err = newWorld(s.Exe, s.Lab, filepath.Join(s.dir, "charge")); err != nil {
		return err
	}
	s.opaque, err = newWorld(s.Exe, s.Lab, filepath.Join(s.dir, "opaque"))
	return err
}

func (s *show) cleanUp() error {
	return errors.Join(s.charge.close(), s.opaque.close(), s.dropDir())
}

// makeDir makes the directory that the scenario works in: part below the Keep directory, or
// a temporary one.
func (s *show) makeDir(part string) (err error) {
	if s.Keep == "" {
		s.dir, err = os.MkdirTemp("", "tgad-demo-")
		return err
	}
	if s.dir, err = filepath.Abs(filepath.Join(s.Keep, part)); err == nil {
		err = os.MkdirAll(s.dir, 0o750)
	}
	return err
}

// dropDir removes the directory, unless Keep is set.
func (s *show) dropDir() error {
	if s.Keep != "" || s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

func (s *show) summary(took time.Duration) {
	failed := s.failed()
	if s.json {
		s.line(struct {
			Claims  int     `json:"claims"`
			Failed  int     `json:"failed"`
			Seed    uint64  `json:"seed"`
			Seconds float64 `json:"seconds"`
		}{len(s.claims), failed, s.Seed, took.Seconds()})
		return
	}
	s.text("")
	if failed == 0 {
		s.text("%s  %d claims, all so, in %.1f s (seed %d)", s.paint("1;32", "PASS"), len(s.claims), took.Seconds(), s.Seed)
	} else {
		s.text("%s  %d of %d claims are not so (seed %d):", s.paint("1;31", "FAIL"), failed, len(s.claims), s.Seed)
		for _, c := range s.claims {
			if !c.OK {
				s.text("      part %d: %s (%s)", c.Part, c.Text, c.Seen)
			}
		}
	}
	if s.Keep != "" {
		s.text("      everything is in %s", s.dir)
	}
}
