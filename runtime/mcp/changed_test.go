package mcp

import (
	"sync/atomic"
	"testing"
)

// TestToolsChanged: OnToolsChanged is called when a server of the official SDK announces that its
// tools changed, and when a new process replaces a server. It is not called for a first session.
func TestToolsChanged(t *testing.T) {
	var told atomic.Int32
	said := make(chan struct{}, 16)
	hook := func(o *Options) {
		o.OnToolsChanged = func() { told.Add(1); said <- struct{}{} }
	}
	s := newScripted(t, "sdk", func(o *Options) { hook(o); o.ProtocolVersion = "2025-11-25" })
	before, err := s.ListTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.must("echo", "{}")
	if n := told.Load(); n != 0 {
		t.Errorf("told %d times of a first session", n)
	}
	s.must("grow", "{}")
	<-said
	after, err := s.ListTools(t.Context())
	if err != nil || len(after) != len(before)+1 {
		t.Errorf("%d tools, and %d before: %v", len(after), len(before), err)
	}

	told.Store(0)
	s = newScripted(t, "script", hook)
	s.must("echo", "{}")
	if n := told.Load(); n != 0 {
		t.Errorf("told %d times of a first session", n)
	}
	if _, err := s.Dispatch(t.Context(), testCall("die", "{}")); err == nil {
		t.Fatal("the server lives")
	}
	s.must("echo", "{}")
	if n := told.Load(); n != 1 {
		t.Errorf("told %d times of a session that follows one that ended", n)
	}
}

// TestNobodyAsksForChanges: without OnToolsChanged an announced change has no effect.
func TestNobodyAsksForChanges(t *testing.T) {
	s := newScripted(t, "script", nil)
	s.must("changed", "{}")
	s.must("echo", "{}")
}
