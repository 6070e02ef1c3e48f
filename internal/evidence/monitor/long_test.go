package monitor

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
)

// endless is a store that answers with evidence that has no end.
type endless struct {
	raw  []byte // its checkpoint
	most []int64
	took int // bytes of the longest answer
}

func (e *endless) Checkpoint(context.Context) ([]byte, [][]byte, error) { return e.raw, nil, nil }
func (e *endless) Tile(context.Context, string) ([]byte, error)         { return nil, errors.New("none") }

func (e *endless) Evidence(_ context.Context, w io.Writer, _, most int64, _ []byte) error {
	e.most = append(e.most, most)
	for took := 0; ; {
		n, err := w.Write(make([]byte, 1<<10))
		if took += n; err != nil {
			e.took = max(e.took, took)
			return err
		}
		if took > 100*mostEvidence {
			e.took = took
			return errors.New("it takes everything")
		}
	}
}

// follows is a monitor of a store that shows a checkpoint of nine appends.
func follows(t *testing.T, from Source, shows *endless) *Monitor {
	t.Helper()
	signer, err := checkpoint.NewSigner("payments.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	c := checkpoint.Checkpoint{Origin: "payments.example/tgad", Size: 9}
	if shows.raw, err = c.Sign(signer); err != nil {
		t.Fatal(err)
	}
	m, err := Open(from, Options{Key: signer.Public, State: filepath.Join(t.TempDir(), "state"), Page: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestLongEvidenceIsNotTaken: a store cannot fill the memory of its monitor. The monitor asks for shorter pages, down to
// one append, and says that it was not answered. That is no alarm.
func TestLongEvidenceIsNotTaken(t *testing.T) {
	was := mostEvidence
	mostEvidence = 1 << 16
	defer func() { mostEvidence = was }()
	from := &endless{}
	m := follows(t, from, from)
	for range 2 {
		_, err := m.Step(t.Context())
		if a := (*Alarm)(nil); !errors.Is(err, errTooLong) || errors.As(err, &a) {
			t.Errorf("%v", err)
		}
	}
	if want := []int64{8, 4, 2, 1, 1}; !slices.Equal(from.most, want) || from.took > mostEvidence {
		t.Errorf("pages of %v appends, and %d bytes of %d were taken", from.most, from.took, mostEvidence)
	}
}

// hung is a store that takes requests and does not answer those for evidence.
type hung struct {
	endless
	wait int // how many of them
}

func (h *hung) Evidence(ctx context.Context, _ io.Writer, _, most int64, _ []byte) error {
	h.most = append(h.most, most)
	if len(h.most) > h.wait {
		return errors.New("it answers")
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestStoreThatHangsIsAskedAgain: its monitor does not wait for it for ever, and says so each time.
func TestStoreThatHangsIsAskedAgain(t *testing.T) {
	was := stepTime
	stepTime = 10 * time.Millisecond
	defer func() { stepTime = was }()
	from := &hung{wait: 2}
	m := follows(t, from, &from.endless)
	for range 3 {
		_, err := m.Step(t.Context())
		if a := (*Alarm)(nil); err == nil || errors.As(err, &a) || errors.Is(err, context.DeadlineExceeded) != (len(from.most) <= 2) {
			t.Errorf("asked %d times: %v", len(from.most), err)
		}
	}
	if want := []int64{8, 4, 2}; !slices.Equal(from.most, want) {
		t.Errorf("it was asked for %v appends, want %v", from.most, want)
	}
}
