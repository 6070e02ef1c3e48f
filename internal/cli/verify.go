package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/doctor"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/logfile"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Verdict is what a verification found. Faults is empty where everything agrees.
type Verdict struct {
	OK      bool      `json:"ok"`
	What    string    `json:"what"` // "store", "open store", "segment" or "export"
	Path    string    `json:"path,omitempty"`
	Traces  int       `json:"traces"`
	Entries int       `json:"entries"`
	Notes   int       `json:"notes"`
	Unread  int       `json:"unread,omitempty"` // traces, and values beside them, that are sealed under keys which cannot be had
	Frozen  string    `json:"frozen,omitempty"` // why a store that is whole takes no calls
	Faults  []Failure `json:"faults"`
}

func (v *Verdict) fault(f Failure) { v.Faults = append(v.Faults, f) }

// VerifyPath verifies a store that no process has open, a segment or an export at path.
// conf, which may be nil, names the key ring of a sealed store. Only the lock file of a
// store is written. An error means that it could not be read; findings are in the Verdict.
func (s *Streams) VerifyPath(ctx context.Context, path string, conf *config.Config) (Verdict, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Verdict{}, tga.Errorf(tga.NotFound, "there is no store and no file: %w", err)
	}
	if err != nil {
		return Verdict{}, err
	}
	if st.IsDir() {
		return s.verifyStore(ctx, path, conf)
	}
	f, err := os.Open(path)
	if err != nil {
		return Verdict{}, err
	}
	defer f.Close()
	watched := logfile.NewReader(ctx, f)
	defer s.Watch(ctx, func(context.Context) string { return watched.Progress("verify") })()
	is, err := segment.Is(watched)
	if err != nil {
		return Verdict{}, err
	}
	if is {
		return verifySegment(ctx, watched, st.Size(), path)
	}
	return verifyExport(ctx, watched, path)
}

func (s *Streams) verifyStore(ctx context.Context, dir string, conf *config.Config) (v Verdict, err error) {
	v = Verdict{What: "store", Path: dir}
	if has, err := doctor.HasStore(dir); err != nil {
		return v, err
	} else if !has {
		return v, tga.Errorf(tga.NotFound, "there is no store in %s", dir)
	}
	var o engine.Options
	if conf != nil {
		ring, ringErr := assemble.Keyring(conf, dir)
		if ringErr != nil {
			return v, ringErr
		}
		if ring != nil {
			defer func() { err = errors.Join(err, ring.Close()) }()
			o.Keyring = ring
		}
	}
	db, err := engine.OpenReadOnly(dir, o)
	if err != nil {
		return v, v.found(&Unopened{err})
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if now := db.Stats(); now.Restored {
		v.Frozen = now.Frozen
	} else if why := doctor.FrozenFor(now); why != "" {
		// The log may lack appends that were acknowledged, even if the rest agrees.
		v.fault(Failure{Code: tga.StateChecksumMismatch, Message: "the store is frozen: " + why})
	}
	defer s.Watch(ctx, func(context.Context) string {
		for _, w := range db.Working() {
			return checked(w.What, w.Traces, w.Entries)
		}
		return ""
	})()
	report, err := db.Check(ctx)
	if err != nil {
		return v, v.found(err)
	}
	v.take(report)
	if err := evidence.Verify(ctx, db, dir); err != nil && tga.CodeOf(err) != tga.PermissionDenied {
		return v, v.found(err)
	} else if err != nil {
		v.OK = false // signed by a key that is not the store's
		v.fault(FailureOf(err))
	}
	return v, nil
}

// take adds the findings of a store's check to the verdict.
func (v *Verdict) take(report engine.Report) {
	v.Traces, v.Entries, v.Notes, v.Unread = report.Traces, report.Entries, report.Notes, report.Unread
	for _, p := range report.Problems {
		f := FailureOf(p.Err)
		if !p.TraceID.IsZero() {
			f.TraceID = p.TraceID.String()
		}
		if p.Seq != 0 {
			f.Sequence = p.Seq
		}
		v.fault(f)
	}
	v.OK = len(v.Faults) == 0
}

// found adds an error to the verdict if it is a finding of the verification. It returns any
// other error, which means that the verification could not be made.
func (v *Verdict) found(err error) error {
	if story.Unread(err) {
		return err
	}
	v.OK = false
	v.fault(FailureOf(err))
	return nil
}

func verifySegment(ctx context.Context, f *logfile.Reader, size int64, path string) (Verdict, error) {
	v := Verdict{What: "segment", Path: path}
	var keys sealedTraces
	report, err := segment.Verify(f, size, &keys)
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	if err != nil {
		return v, v.found(err)
	}
	v.OK, v.Traces, v.Entries, v.Notes, v.Unread = true, report.Traces, report.Entries, report.Notes, keys.n
	return v, nil
}

// sealedTraces are the keys of a verifier that has none, and count the sealed traces. The additional data of
// a part begins with the id of its trace, and the parts of a trace are read one after the other.
type sealedTraces struct {
	chain.NoKeys
	last tga.ID
	n    int
}

func (k *sealedTraces) Open(dst []byte, key chain.KeyID, sealed, aad []byte) ([]byte, error) {
	if id := tga.ID(aad[:len(k.last)]); id != k.last {
		k.last = id
		k.n++
	}
	return k.NoKeys.Open(dst, key, sealed, aad)
}

func verifyExport(ctx context.Context, f *logfile.Reader, path string) (Verdict, error) {
	v := Verdict{What: "export", Path: path}
	report, err := ndjson.Verify(f)
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	if err != nil {
		return v, v.found(err)
	}
	v.OK, v.Traces, v.Entries, v.Notes = true, report.Traces, report.Entries, report.Notes
	return v, nil
}

// VerifyOpen asks the daemon to check its open store, or one trace of it.
func VerifyOpen(ctx context.Context, c *client.Client, trace tga.ID) (Verdict, error) {
	v := Verdict{What: "open store"}
	said, err := c.Verify(ctx, trace)
	if err != nil {
		return v, err
	}
	v.OK, v.Traces, v.Entries, v.Notes = said.OK && len(said.Faults) == 0, said.Traces, said.Entries, said.Notes
	v.Unread, v.Frozen = said.Unread, said.Frozen
	for _, p := range said.Faults {
		v.fault(FailureOf(p.Err()))
	}
	return v, nil
}

// Verdict prints v. The error sets the exit code; it is nil if everything agrees.
func (s *Streams) Verdict(v Verdict) error {
	if s.JSON {
		if v.Faults == nil {
			v.Faults = []Failure{}
		}
		if err := s.Line(v); err != nil {
			return err
		}
	} else {
		if v.OK {
			s.Printf("ok: %s of %d traces, %d entries, %d notes\n", v.What, v.Traces, v.Entries, v.Notes)
		}
		if v.OK && v.Unread > 0 {
			s.Printf("not verified: what %d traces or values beside them carry is sealed, and its keys were not asked for\n", v.Unread)
		}
		if v.Frozen != "" {
			s.Printf("frozen: %s\n", Clean(v.Frozen))
		}
		for _, f := range v.Faults {
			s.Printf("%s", f.fault())
		}
	}
	if !v.OK {
		return Silent(ExitVerify)
	}
	return nil
}

// fault returns a failure as text in the list of a verification.
func (f Failure) fault() string {
	text := f.text()
	const lead = "tgad: "
	return fmt.Sprintf("FAULT %s", text[len(lead):])
}
