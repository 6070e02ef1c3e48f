package monitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/access"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/schemas/tga"
)

// state is the state of a monitor, as its file has it.
type state struct {
	Version    string `json:"version"`
	Origin     string `json:"origin"`
	Checkpoint string `json:"checkpoint,omitempty"` // as it was signed
	Checked    int64  `json:"checked"`              // how many of its appends were checked

	size int64
	head tlog.Hash
}

func (s *state) raw() []byte {
	if s.Checkpoint == "" {
		return nil
	}
	return []byte(s.Checkpoint)
}

// alarmName is where the alarm of a state is written.
func alarmName(path string) string { return path + ".alarm" }

// readState reads the file of a monitor. If there is none, the monitor has seen nothing yet. A file
// that cannot be read is an error: to begin with an empty state would forget what was seen.
func readState(path, origin string) (state, error) {
	if err := readAlarm(path); err != nil {
		return state{}, err
	}
	empty := state{Version: tga.MonitorStateVersion, Origin: origin}
	raw, err := access.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return state{}, tga.Errorf(tga.StoreUnavailable, "monitor: %w", err)
	}
	var s state
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return state{}, damagedState(path, "%v", err)
	}
	if s.Version != tga.MonitorStateVersion {
		return state{}, tga.Errorf(tga.FormatTooNew, "%s has format %q, this program reads %q", path, s.Version, tga.MonitorStateVersion)
	}
	if s.Origin != origin {
		return state{}, tga.Errorf(tga.ValidationError, "%s remembers the store %q, asked is for %q: give each store a file of its own", path, s.Origin, origin)
	}
	if s.Checkpoint != "" {
		c, err := checkpoint.Unverified(s.raw())
		if err != nil {
			return state{}, damagedState(path, "%v", err)
		}
		s.size, s.head = c.Size, c.Head
	}
	if s.Checked < 0 || s.Checked > s.size {
		return state{}, damagedState(path, "%d appends of %d were checked", s.Checked, s.size)
	}
	return s, nil
}

func damagedState(path, format string, args ...any) error {
	return tga.Errorf(tga.StateChecksumMismatch, "%s is damaged: %s. Put a copy of it back: what the monitor saw stands nowhere else", path, fmt.Sprintf(format, args...))
}

func (s *state) write(path string) error {
	s.Version = tga.MonitorStateVersion
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := checkpoint.Replace(checkpoint.Disk, path, append(raw, '\n')); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "monitor: %w", err)
	}
	return nil
}

// written is an alarm on disk.
type written struct {
	Kind  string   `json:"kind"`
	Code  tga.Code `json:"code"`
	Text  string   `json:"text"`
	Had   string   `json:"had,omitempty"`   // signed checkpoint that was remembered
	Shown string   `json:"shown,omitempty"` // the one that contradicts it
}

func writeAlarm(path string, a *Alarm) error {
	raw, err := json.MarshalIndent(written{a.Kind, a.Code, a.Text, string(a.Had), string(a.Shown)}, "", "  ")
	if err != nil {
		return err
	}
	if err := checkpoint.Replace(checkpoint.Disk, alarmName(path), append(raw, '\n')); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "monitor: the alarm is not written down: %w", err)
	}
	return nil
}

// readAlarm returns the alarm whose file nobody removed; nil if there is none.
func readAlarm(path string) error {
	raw, err := access.ReadFile(alarmName(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var w written
	if err == nil {
		err = json.Unmarshal(raw, &w)
	}
	if err != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "%s: an alarm that cannot be read: %w", alarmName(path), err)
	}
	return &Alarm{w.Kind, w.Code, w.Text, []byte(w.Had), []byte(w.Shown)}
}
