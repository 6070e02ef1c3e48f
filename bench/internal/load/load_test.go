package load

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestArtifactsHaveTheirSize: every artifact from 1 KiB up is within a few bytes of the requested size, so
// that a row of a table is about one size.
func TestArtifactsHaveTheirSize(t *testing.T) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		m := New(size)
		for range 3 {
			trace := m.Next()
			for _, make := range []func() *tga.Artifact{trace.MakeRequest, trace.MakeDecision, trace.MakeCall, trace.MakeEffect} {
				a := make()
				if err := a.Seal(); err != nil {
					t.Fatal(err)
				}
				if n := len(a.Canonical); n < size-size/5 || n > size+size/5 {
					t.Errorf("%v of %d bytes, asked for %d", a.Type, n, size)
				}
			}
		}
	}
}

// TestFilledStoreChecks: the store that the benchmarks write verifies.
func TestFilledStoreChecks(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "store"), 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Fill(70, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Fill(5, false); err != nil {
		t.Fatal(err)
	}
	op := s.Append(1).Op
	for range 6 {
		if _, err := op(0); err != nil {
			t.Fatal(err)
		}
	}
	report, err := s.DB.Check(context.Background())
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("%+v, %v", report.Problems, err)
	}
	if report.Traces != 77 || report.Open != 6 || report.Entries != 70*4+5*3+6 {
		t.Errorf("%+v", report)
	}
}
